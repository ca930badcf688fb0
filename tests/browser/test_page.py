"""The status page in Chromium: what it shows, how it follows, and what it never does."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reports.numbers import count, hours, per_cent
from tests.browser.conftest import DESK, PHONE, Witness
from tests.browser.world import World, lay_out
from tests.test_sidecar import CONFIG, until, write

Look = Callable[..., Witness]
pytestmark = pytest.mark.slow


def words(witness: Witness, selector: str = "main") -> str:
    """What a person reads there."""
    return str(witness.page.inner_text(selector))


def as_of(world: World) -> str:
    return str(json.loads(world.sidecar.get("/api/v1/status")[1])["as_of"])


def test_it_says_the_same_numbers_as_the_commands(demo: World, look: Look) -> None:
    """Read off the page, row by row, they are those of `tracker ledger` and `tracker interruptions`."""
    page = look(demo.url).page
    rows = page.eval_on_selector_all(
        "#all-attempts tbody tr", "rows => rows.map(r => [...r.cells].map(c => c.innerText))"
    )
    shown = page.eval_on_selector_all("#evidence li summary", "all => all.map(s => s.innerText)")
    ledger = json.loads(demo.told("ledger", "--json"))
    stops = json.loads(demo.told("interruptions", "--json"))

    assert [row[0] for row in rows] == [str(a["attempt"]) for a in reversed(ledger["attempts"])]
    for row, attempt in list(zip(rows, reversed(ledger["attempts"]), strict=True))[
        1:
    ]:  # the last one goes on
        assert row[1] == attempt["job_id"]
        assert row[5] == hours(attempt["gpu_hours"]["allocated"])
        assert row[6] == hours(attempt["gpu_hours"]["productive"])
        assert row[-3] == per_cent(attempt["mfu_ratio"])
        assert row[-2] == count(attempt["cost"])
    assert len(shown) == len(stops)
    for text, stop in zip(shown, reversed(stops), strict=True):
        assert stop["at"][:16].replace("T", " ") in text
        assert f"ended attempt {stop['attempt']}" in text
        assert f"{hours(stop['gpu_hours'])} GPU-h" in text


@pytest.mark.parametrize(
    ("path", "command"),
    [
        pytest.param("/api/v1/ledger", ["ledger"], id="ledger"),
        pytest.param("/api/v1/interruptions", ["interruptions"], id="interruptions"),
        pytest.param("/api/v1/forecast", ["forecast"], id="forecast"),
    ],
)
def test_a_document_is_that_of_the_command(path: str, command: list[str], demo: World) -> None:
    """Byte for byte, as of the same moment."""
    status, body = demo.sidecar.get(path)
    document = json.loads(body)
    moment_said = document["as_of"] if isinstance(document, dict) else as_of(demo)

    assert status == 200
    assert body == demo.told(*command, "--json", "--as-of", moment_said)


def test_nothing_is_asked_of_another_host_and_nothing_is_wrong(demo: World, look: Look) -> None:
    """One request for the page, its own address for what is new; a silent console, also while it follows."""
    witness = look(demo.url)
    witness.ask_until(lambda: len(witness.asked) > 2, "it does not ask for what is new")

    assert witness.said == []
    assert {re.sub(r"(:\d+)/.*", r"\1", address) for address in witness.asked} == {demo.url}


@pytest.mark.parametrize(
    ("scheme", "viewport"),
    [pytest.param("light", DESK, id="light, on a desk"), pytest.param("dark", PHONE, id="dark, on a phone")],
)
def test_axe_finds_nothing(scheme: str, viewport: dict[str, int], demo: World, look: Look, axe: str) -> None:
    """Contrast, names, landmarks, headings, tables, with all details open."""
    page = look(demo.url, color_scheme=scheme, viewport=viewport, bypass_csp=True).page
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
    page.evaluate(axe)
    found: dict[str, Any] = page.evaluate("axe.run(document)")

    assert len(found["passes"]) > 20
    told = [(one["id"], one["nodes"][0]["html"][:200]) for one in found["violations"]]
    assert told == []


@pytest.mark.parametrize("width", [320, 360, 768])
def test_a_small_screen_scrolls_one_way_only(width: int, demo: World, look: Look) -> None:
    """What is too wide scrolls in itself."""
    page = look(demo.url, viewport={"width": width, "height": 740}).page
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")

    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_keyboard_reaches_everything(demo: World, look: Look) -> None:
    """The first stop skips to the report; an interruption opens with Enter."""
    page = look(demo.url).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#main"

    page.focus("#evidence summary")
    page.keyboard.press("Enter")
    assert page.evaluate("document.querySelector('#evidence details').open")


def test_the_past_arrives_while_somebody_looks(demo: World, look: Look) -> None:
    """What a child finds out is added to the open page: changes since a day before, figures over time."""
    witness = look(demo.url)
    page = witness.page
    witness.ask_until(lambda: page.locator("#figure-tokens").count() == 1, "the past does not come")

    assert "changes since" in words(witness, "header")
    assert page.locator("#figure-finish .wide > svg").is_visible()
    assert not page.locator("#figure-finish .narrow > svg").is_visible()
    assert witness.said == []


def test_several_runs_have_an_index_that_leads_to_each(
    tmp_path: Path, worlds: Callable[..., World], look: Look, axe: str
) -> None:
    """Names with slashes, quotes and marks too; the one that needs somebody stands first."""
    for name, title in (("young", "a/b <i> & 'c'"), ("stalled", "😀 100%")):
        lay_out(tmp_path / name, name, gpus=64, title=title)
    world = worlds(tmp_path, "--config", "*/run.toml")
    witness = look(world.url, bypass_csp=True)
    page = witness.page
    rows = page.eval_on_selector_all("tbody tr", "rows => rows.map(r => [...r.cells].map(c => c.innerText))")
    page.evaluate(axe)
    found = page.evaluate("axe.run(document)")

    assert [row[:2] for row in rows] == [["😀 100%", "stalled"], ["a/b <i> & 'c'", "running"]]
    assert [one["id"] for one in found["violations"]] == []
    page.click("text=a/b")
    assert page.inner_text("h1") == "a/b <i> & 'c'"
    page.click("text=All runs")
    assert page.title() == "Training runs"
    assert witness.said == []


def test_it_follows_without_losing_your_place(
    tmp_path: Path, worlds: Callable[..., World], look: Look
) -> None:
    """A stop arrives above the open one: scroll, open details, focus, the very elements stay; no reload."""
    (tmp_path / "run.toml").write_text(CONFIG)
    write(tmp_path / "train.log", range(1, 101))
    write(tmp_path / "train.log", range(51, 101))
    world = worlds(tmp_path)
    witness = look(world.url)
    page = witness.page
    page.evaluate(
        """() => {
          window.kept = document.querySelector('#stop-1 details');
          window.kept.open = true;
          window.kept.querySelector('summary').focus();
          window.scrollTo(0, document.body.scrollHeight - 700);
          window.at = window.kept.getBoundingClientRect().top;
        }"""
    )
    write(tmp_path / "train.log", range(81, 131))
    witness.ask_until(
        lambda: page.locator("#evidence li").count() == 2, f"it does not follow: {world.sidecar.said}"
    )

    assert page.evaluate(
        "window.kept.isConnected && window.kept === document.querySelector('#stop-1 details')"
    )
    assert page.evaluate("window.kept.open")
    assert page.evaluate("window.kept.contains(document.activeElement)")
    assert page.evaluate("Math.abs(window.kept.getBoundingClientRect().top - window.at)") < 200
    assert not page.evaluate("document.querySelector('#stop-2 details').open")
    assert witness.said == []


def test_a_tracker_that_is_gone_is_said_and_its_last_numbers_stay(
    tmp_path: Path, worlds: Callable[..., World], look: Look
) -> None:
    """Nobody takes old numbers for new ones."""
    (tmp_path / "run.toml").write_text(CONFIG)
    write(tmp_path / "train.log", range(1, 101))
    world = worlds(tmp_path)
    witness = look(world.url)
    shown = words(witness, "#all-attempts")
    world.sidecar.process.kill()
    world.sidecar.process.wait()
    witness.ask_until(lambda: witness.page.is_visible("#lost"), "nothing is said")

    assert "does not answer" in words(witness, "#lost")
    assert words(witness, "#all-attempts") == shown


def test_without_scripts_it_is_all_there_and_reloads_itself(demo: World, look: Look) -> None:
    """The script only saves the reload."""
    witness = look(demo.url, java_script_enabled=False)

    assert "GPU-h" in witness.page.inner_text("#evidence")
    assert 'http-equiv="refresh"' in witness.page.content()


HOSTILE = (
    "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"> ' \" {{7*7}} "
    "\x1b[31mred\x1b[0m \u202eright to left\u202c \u200bzero" + "A" * 10_000
)


def test_a_hostile_line_is_shown_as_text(worlds: Callable[..., World], look: Look) -> None:
    """Markup, quotes, templates, ANSI, marks that turn text around, 10,000 characters: never obeyed."""
    world = worlds("stalled", gpus=64)
    log = max(world.folder.glob("logs/*.log*"))
    with log.open("a", encoding="utf-8") as more:
        more.write(f"RuntimeError: CUDA error: uncorrectable ECC error encountered {HOSTILE}\n")
    (world.folder / "sacct.txt").write_text(
        re.sub(r"RUNNING\|", "FAILED|", (world.folder / "sacct.txt").read_text()), encoding="utf-8"
    )
    until(
        lambda: "owned" in world.sidecar.get("/api/v1/interruptions")[1],
        f"the line is no evidence: {world.sidecar.get('/api/v1/interruptions')[1]}",
    )
    witness = look(world.url)
    page = witness.page
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
    shown = page.inner_text("main")

    assert "<script>document.title='owned'</script>" in shown
    assert "{{7*7}}" in shown
    assert "\u202e" not in page.content()
    assert "\x1b" not in page.content()
    assert page.title() != "owned"
    assert page.eval_on_selector_all("main script, main img", "all => all.length") == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= DESK["width"]
    assert witness.said == []

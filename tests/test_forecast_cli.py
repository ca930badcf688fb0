"""`tracker forecast` on real stores, the stored history, the child that the sidecar asks, and the gauges."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.core.story import T0, us
from tests.factories import ListFacts
from tests.test_forecast import asked, facts, finished, settings, steady
from tests.test_sidecar import Hands, Stub, a_config, a_sidecar, values
from tracker import app
from tracker.cli import root
from tracker.clock import SystemClock
from tracker.core.documents import status_document
from tracker.core.forecast.blocks import bucketed
from tracker.core.forecast.value import Forecast, Quantiles
from tracker.exporter import Exporter
from tracker.families import Page
from tracker.forecasting import DAY_US, ask_store, history, keep
from tracker.outlook import Outlook
from tracker.store import Reader, Writer, keep_forecast

pytestmark = pytest.mark.slow
"""Whole processes and long histories: not what one runs before each commit."""

CONFIG = """\
[run]
name = "little"
[model]
active_params = 1e9
sequence_length = 1000
[hardware]
gpu = "h100-sxm"
gpus = 8
{plan}
[[source]]
collector = "jsonl"
path = "train.jsonl"
"""
PLAN = """\
[plan]
tokens = 1e6
later_stages = 0.0
gpu_hour_price = 2.0
start = 2026-01-01T00:00:00Z
"""


def iso(second: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(T0 // 1_000_000 + second))


def write(folder: Path, *, steps: int = 500, plan: str = PLAN) -> Path:
    """Write a run of ten-second steps of a thousand tokens, and its config."""
    rows = [{"kind": "attempt", "start": iso(0), "gpus": 8, "resumed_from": 0, "global_batch_size": 1}]
    rows += [
        {"at": iso(100 + 10 * step), "step": step, "samples": step, "step_time_ms": 10_000.0}
        for step in range(5, steps + 1, 5)
    ]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = folder / "run.toml"
    config.write_text(CONFIG.format(plan=plan))
    return config


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    config = write(tmp_path)
    app.ingest_once(app.load_config(config), final=True)
    return config


@dataclass(frozen=True)
class Done:
    """What a call of the command line came to."""

    returncode: int
    stdout: str
    stderr: str


def tracker(*arguments: str) -> Done:
    """Call the command line in this process: a start of Python each time would take most of the test."""
    made = CliRunner().invoke(root, list(arguments))
    return Done(made.exit_code, made.stdout, made.stderr)


def test_the_command_answers_on_one_screen(stored: Path) -> None:
    """And its document holds the same answer."""
    at = ("--config", str(stored), "--as-of", iso(5100))
    text, document = tracker("forecast", *at), tracker("forecast", *at, "--json")

    assert text.returncode == document.returncode == 0
    assert "Even odds to be done by 2026-01-01 02:4" in text.stdout
    assert len(text.stdout.splitlines()) <= 24
    told = json.loads(document.stdout)
    assert told["finish_at"]["p10"] < told["finish_at"]["p50"] < told["finish_at"]["p90"]
    assert told["basis"] == "measured"
    assert tracker("forecast", *at, "--json").stdout == document.stdout


def test_a_forecast_loads_no_reader_but_the_config_s_own(stored: Path) -> None:
    """Nor what only a replay or the history needs: all readers together take a third of a second."""
    code = (
        "import sys; from pathlib import Path; from tracker import app; "
        f"app.forecast_now(app.load_config(Path({str(stored)!r})), as_of_us={us(5100)}); "
        "print(*(m for m in sys.modules if m.startswith(('collectors.', 'tracker.core.forecast.'))))"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    loaded = {name for name in made.stdout.split() if not name.startswith("collectors._")}
    assert {name for name in loaded if name.startswith("collectors.")} == {"collectors.jsonl"}
    assert "tracker.core.forecast.model" in loaded
    assert not {"tracker.core.forecast.backtest", "tracker.core.forecast.history"} & loaded


def test_since_is_before_the_forecast(stored: Path) -> None:
    """A moment that is not is a wrong call, told with both moments."""
    at = ("--config", str(stored), "--as-of", iso(5100))
    for since in (5100, 9000):
        made = tracker("forecast", *at, "--since", iso(since))
        assert made.returncode == 2
        assert f"--since {iso(since)}: expected a moment before {iso(5100)}" in made.stderr
    assert "Since 2026-01-01 00:50 the middle" in tracker("forecast", *at, "--since", iso(3000)).stdout


def test_a_since_before_the_run_began_is_told_not_compared(tmp_path: Path) -> None:
    """Without a planned start nothing was to be said of it then: left out, and told where it is asked for."""
    config = write(tmp_path, plan=PLAN.replace("start = 2026-01-01T00:00:00Z\n", ""))
    app.ingest_once(app.load_config(config), final=True)
    at = ("--config", str(config), "--as-of", iso(5100))
    usual, asked_for = tracker("forecast", *at), tracker("forecast", *at, "--since", iso(-3000))

    for made in (usual, asked_for):
        assert made.returncode == 0
        assert "the middle" not in made.stdout
    assert usual.stderr == ""
    assert f"nothing to compare with: at {iso(-3000)}" in asked_for.stderr
    assert "the middle" in tracker("forecast", *at, "--since", iso(3000)).stdout


def test_a_choice_changes_cost_and_energy_too(stored: Path) -> None:
    """Each has its row of differences, with the decimals that it is worth, and what they are is said."""
    made = tracker("forecast", "--config", str(stored), "--as-of", iso(5100), "--what-if", "mfu=0.5")
    rows = {line.split()[0]: line for line in made.stdout.split("What if", 1)[1].splitlines() if line.strip()}

    assert " USD (-" in rows["cost"]
    assert " MWh (" in rows["energy"]
    assert re.search(r"-\d+\.\d h \(-\d", rows["GPU-hours"])
    assert "median of the differences" in made.stdout
    wrong = tracker("forecast", "--config", str(stored), "--as-of", iso(5100), "--what-if", "mfu=2")
    assert "expected a ratio from 0 to 1" in wrong.stderr


def test_status_has_the_same_forecast(stored: Path) -> None:
    """One snapshot, many faces."""
    at = ("--config", str(stored), "--as-of", iso(5100), "--json")
    status, told = tracker("status", *at), json.loads(tracker("forecast", *at).stdout)

    assert json.loads(status.stdout)["forecast"]["finish_at"] == told["finish_at"]
    assert json.loads(status.stdout)["forecast"]["gpu_hours"] == told["gpu_hours"]


def test_a_choice_is_told_beside_what_is(stored: Path) -> None:
    """With the change and its spread; a bad one is a wrong call."""
    at = ("--config", str(stored), "--as-of", iso(5100))
    good = tracker("forecast", *at, "--what-if", "gpus=16", "--what-if", "restart_min=5")
    bad = tracker("forecast", *at, "--what-if", "gpu=16")
    worse = tracker("forecast", *at, "--what-if", "gpus")

    assert "What if gpus = 16, restart_min = 5" in good.stdout
    assert "days (" in good.stdout
    assert (bad.returncode, worse.returncode) == (2, 2)
    assert "did you mean 'gpus'" in bad.stderr
    assert "expected k=v" in worse.stderr


def test_a_replay_prints_its_scores(stored: Path) -> None:
    """Beside three straight lines."""
    at = ("--config", str(stored), "--as-of", iso(5100))
    made = tracker("forecast", *at, "--backtest", "--moments", "3")
    document = json.loads(tracker("forecast", *at, "--backtest", "--moments", "3", "--json").stdout)

    assert "from the start" in made.stdout
    assert "pinball" in made.stdout
    assert len(document["moments"]) == 3
    assert document["score"]["straight_lines"]["step_rate"]["median_error_days"] < 0.01


@pytest.mark.parametrize(
    ("plan", "ingested", "word"),
    [
        pytest.param("", True, "no target", id="no plan"),
        pytest.param(PLAN.replace("1e6", "1e5"), True, "reached on", id="a target already passed"),
        pytest.param(PLAN, False, "plan and published figures only", id="no store yet"),
        pytest.param(PLAN.replace("tokens = 1e6\n", ""), True, "no target", id="no target"),
        pytest.param(
            PLAN + "deadline = 2026-01-01T00:30:00Z\n",
            True,
            "deadline 2026-01-01 00:30 has passed",
            id="a deadline in the past",
        ),
        pytest.param(
            PLAN.replace("1e6", "1e17"), True, "more than 20 years away", id="a target out of sight"
        ),
    ],
)
def test_odd_stores_get_a_sentence(tmp_path: Path, plan: str, ingested: bool, word: str) -> None:
    """Exit status 0: no data yet is an answer."""
    config = write(tmp_path, plan=plan)
    if ingested:
        app.ingest_once(app.load_config(config), final=True)
    made = tracker("forecast", "--config", str(config), "--as-of", iso(5100))
    status = tracker("status", "--config", str(config), "--as-of", iso(5100), "--json")

    assert made.returncode == 0, made.stderr
    assert word in made.stdout
    assert status.returncode == 0, status.stderr


def test_nothing_kept_is_said(stored: Path) -> None:
    """And an empty history is an empty list."""
    made = tracker("forecast", "--config", str(stored), "--history")
    document = tracker("forecast", "--config", str(stored), "--history", "--json")

    assert "no forecast was kept yet" in made.stderr
    assert json.loads(document.stdout)["forecasts"] == []


def test_what_is_kept_comes_back(stored: Path) -> None:
    """In order of time, once for each moment and inputs, up to the moment asked for."""
    config = app.load_config(stored)
    made = [ask_store(config, as_of_us=us(at)).forecast for at in (3000, 4000, 4000, 2000)]
    for one in made:
        keep(config, one)

    assert history(config, until_us=us(3500)) == [made[3], made[0]]
    assert [f.as_of_us for f in history(config, until_us=us(9000))] == [us(2000), us(3000), us(4000)]
    assert "2026-01-01 00:50" in tracker("forecast", "--config", str(stored), "--history").stdout


def test_a_finished_run_s_history_says_how_right_each_forecast_was(tmp_path: Path) -> None:
    """Its error, whether the range held the truth, pinball; how the middle moved, and mostly by what."""
    config = write(tmp_path, steps=1000)
    app.ingest_once(app.load_config(config), final=True)
    loaded = app.load_config(config)
    for at in (3000, 5000, 7000, 20_000):
        keep(loaded, ask_store(loaded, as_of_us=us(at)).forecast)
    before = ("--config", str(config), "--history", "--as-of", iso(7500))
    after = ("--config", str(config), "--history", "--as-of", iso(20_000))
    early, late = tracker("forecast", *before), tracker("forecast", *after)
    document = json.loads(tracker("forecast", *after, "--json").stdout)

    assert "3 forecasts that were kept" in early.stdout
    assert "in range" not in early.stdout
    assert "The run finished on 2026-01-01 02:48" in late.stdout
    assert "pinball" in late.stdout
    assert document["truth"] == iso(10_100)
    rows = document["forecasts"]
    assert [row["inside_p10_p90"] is None for row in rows] == [False, False, False, True]
    assert all(abs(row["error_days"]) < 0.01 for row in rows[:3])
    assert [row["move"] is None for row in rows] == [True, False, False, True]
    for row in rows[1:3]:
        assert sum(part["us"] for part in row["move"]["parts"]) == row["move"]["us"]
    assert document["score"]["moments"] == 3


def test_a_reading_that_cannot_be_true_is_named_by_every_face(tmp_path: Path) -> None:
    """The forecast does not use it; the status warns of it."""
    config = write(tmp_path)
    with (tmp_path / "train.jsonl").open("a") as file:
        file.write(
            json.dumps({"at": iso(5400), "step": 900, "samples": 900, "step_time_ms": 10_000.0}) + "\n"
        )
    app.ingest_once(app.load_config(config), final=True)
    at = ("--config", str(config), "--as-of", iso(5500))
    text, status = tracker("forecast", *at), tracker("status", *at, "--json")

    assert "not used" in text.stdout
    assert "step 900 at 2026-01-01 01:30 UTC cannot be true" in text.stdout
    assert "500,000 tokens left" in text.stdout
    assert any("step 900" in warning for warning in json.loads(status.stdout)["warnings"])


def test_history_is_bounded(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest go."""
    monkeypatch.setattr("tracker.store.forecasts.MOST_KEPT", 2)
    path = app.load_config(stored).store
    with Writer(path) as writer:
        for at in range(5):
            keep_forecast(writer, at, "d", json.dumps({"at": at}))
    with Reader(path) as reader:
        assert [json.loads(body)["at"] for body in reader.kept_forecasts(until_us=10)] == [2, 3, 4]


def test_the_store_sums_readings_as_the_core_does(stored: Path) -> None:
    """In SQL, and one by one; whatever the width and the moment."""
    with Reader(app.load_config(stored).store) as reader:
        (stream,) = reader.streams()
        for width_us in (1_000_000, 60_000_000, 3_600_000_000):
            for until_us in (us(0), us(1234), us(99_999)):
                asked_ = {"width_us": width_us, "until_us": until_us}
                ours = reader.buckets(stream.stream_id, start=0, end=None, **asked_)
                assert ours == bucketed(reader.readings(stream.stream_id), **asked_)


def test_a_store_and_a_list_give_the_same_forecast(stored: Path) -> None:
    """The facts decide, not who keeps them."""
    config = app.load_config(stored)
    with Reader(config.store) as reader:
        (stream,) = reader.streams()
        kept = list(reader.readings(stream.stream_id))
    assert len(kept) == 100
    one = ask_store(config, as_of_us=us(5100), since_us=us(5100) - DAY_US)
    again = ask_store(config, as_of_us=us(5100), since_us=us(5100) - DAY_US)
    assert one.forecast == again.forecast


# -- the sidecar's child ---------------------------------------------------------------------------------


def waited(outlook: Outlook) -> Forecast | None:
    until = time.monotonic() + 60
    while outlook.busy and time.monotonic() < until:
        made = outlook.poll()
        if made is not None:
            return made
        time.sleep(0.05)
    return None


def test_a_child_makes_and_keeps_the_forecast(stored: Path) -> None:
    """It is what the store says in this process."""
    outlook = Outlook(stored, clock=SystemClock())
    outlook.begin(us(5100))
    outlook.begin(us(5100))
    made = waited(outlook)

    config = app.load_config(stored)
    assert outlook.problem == ""
    assert made == ask_store(config, as_of_us=us(5100), since_us=us(5100) - DAY_US).forecast
    assert history(config, until_us=us(5100)) == [made]


def test_a_child_that_fails_says_why(tmp_path: Path) -> None:
    """In one line; the next one is tried."""
    config = write(tmp_path)
    config.write_text("[run\n")
    outlook = Outlook(config, clock=SystemClock())
    outlook.begin(us(5100))

    assert waited(outlook) is None
    assert "the forecast failed" in outlook.problem
    assert not outlook.busy


def test_a_child_that_takes_too_long_is_ended(stored: Path) -> None:
    """And is gone."""
    outlook = Outlook(stored, clock=SystemClock(), limit_s=0.0)
    outlook.begin(us(5100))
    time.sleep(0.02)

    assert outlook.poll() is None
    assert not outlook.busy
    assert "took longer" in outlook.problem


def test_closing_ends_the_child(stored: Path) -> None:
    """Nothing is left behind."""
    outlook = Outlook(stored, clock=SystemClock())
    outlook.begin(us(5100))
    child = outlook._child._child
    assert child is not None
    outlook.close()

    assert not outlook.busy
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)


class Oracle:
    """An outlook that answers at a given call."""

    def __init__(self, after: int, *, problem: str = "") -> None:
        self.after, self.problem, self.busy, self.asked = after, problem, False, 0

    def begin(self, as_of_us: int) -> None:
        self.asked += 1
        self.busy = not self.problem

    def poll(self) -> Forecast | None:
        self.after -= 1
        if self.problem or not self.busy or self.after > 0:
            return None
        self.busy = False
        return Forecast(as_of_us=T0, basis="measured", finish_us=Quantiles(p10=1e15, p50=2e15, p90=3e15))

    def close(self) -> None:
        self.busy = False


@pytest.mark.parametrize(
    ("oracle", "ready", "asked_for"),
    [
        pytest.param(Oracle(3), 1, 1, id="ready once the first forecast is there"),
        pytest.param(Oracle(99), 0, 1, id="not before"),
        pytest.param(
            Oracle(1, problem="no memory"), 0, 1, id="a failed one is told, and asked for again later"
        ),
    ],
)
def test_the_sidecar_is_ready_with_its_first_forecast(oracle: Oracle, ready: int, asked_for: int) -> None:
    """It never waits for it, looks more often meanwhile, and asks once."""
    exporter, clock = Exporter(version="0"), Hands(6)
    work = Stub([])
    a_sidecar([a_config()], {"live": work}, clock=clock, exporter=exporter, outlooks={"live": oracle}).run()

    assert values(exporter)["tracker_ready"] == ready
    assert ("training_forecast_finish_timestamp_seconds" in values(exporter)) == bool(ready)
    assert oracle.asked == asked_for
    assert not oracle.busy


# -- faces -----------------------------------------------------------------------------------------------


def page(made: ListFacts, at_s: float) -> dict[str, float]:
    snapshot = asked(made, at_s, settings(peak=None)).snapshot
    exporter = Exporter(version="0")
    exporter.publish(Page("story", snapshot))
    found = {}
    for text in exporter.render()[0].decode().splitlines():
        if text.startswith("training_forecast"):
            name, _, value = text.rpartition(" ")
            found[name] = float(value)
    return found


def test_the_gauges_show_the_forecast() -> None:
    """By probability; what is not known has no sample."""
    shown = page(facts(steady()), 5100)

    finish = [shown[f'training_forecast_finish_timestamp_seconds{{p="{p}",run="story"}}'] for p in PS]
    assert finish == sorted(finish)
    assert 'training_forecast_gpu_hours{p="0.5",run="story"}' in shown
    assert "training_forecast_delay_seconds" not in " ".join(shown)


PS = ("0.1", "0.5", "0.9")


def test_days_behind_is_in_status_and_on_the_page() -> None:
    """The same number, in days and in seconds."""
    snapshot = asked(facts(steady()), 5100).snapshot
    days = status_document(snapshot)["forecast"]["days_behind_plan"]
    exporter = Exporter(version="0")
    exporter.publish(Page("story", snapshot))
    text = exporter.render()[0].decode()

    assert days == pytest.approx(snapshot.forecast.days_behind_plan if snapshot.forecast else None)
    (line,) = [t for t in text.splitlines() if t.startswith("training_forecast_delay_seconds{")]
    assert float(line.split()[-1]) == pytest.approx(days * 86_400)


def test_a_snapshot_without_a_forecast_has_nulls() -> None:
    """The section is always there."""
    snapshot = replace(asked(finished(), 20_000).snapshot, forecast=None)

    assert status_document(snapshot)["forecast"] == {
        "finish_at": {"p10": None, "p50": None, "p90": None},
        "gpu_hours": {"p10": None, "p50": None, "p90": None},
        "cost": {"p10": None, "p50": None, "p90": None},
        "energy_mwh": {"p10": None, "p50": None, "p90": None},
        "days_behind_plan": None,
    }

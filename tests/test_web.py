"""The pages as text: what stands on them, what never does, when they are drawn anew, who may ask for what."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from reports.daily import daily_page
from reports.html_blocks import table, text
from reports.html_document import document
from reports.html_mail import WIDTH, mail_html
from reports.html_script import SCRIPT, digest
from reports.html_style import COLOURS, STYLE
from reports.live import Frame, run_page
from reports.live_index import IndexRow, index_page
from reports.live_parts import MOST_ATTEMPTS, MOST_STOPS
from reports.page import Figure, KeyFigure, KeyFigures, Notes, Page, Paragraph, Section
from reports.tables import Table
from tests.test_exporter import FULL, NOON_US, VITALS, attempt, stop
from tests.test_sidecar import Hands
from tracker.answers import Answers, Shown
from tracker.core.beside import Beside
from tracker.core.daily import Health, daily
from tracker.core.snapshot import Snapshot
from tracker.exporter import Exporter
from tracker.pages import About, HtmlPages
from tracker.serve import Request, Response
from tracker.vitals import Vitals

EVIL = "<script>alert(1)</script>\"'&{{x}}\x1b[31m\u202e\u2066\x00\u200b"
FRAME = Frame(version="1.2.3")


class Reader(HTMLParser):
    """Reads a page: its tags, their attributes, its words."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.names: list[tuple[str, str]] = []
        self.words = ""
        self._hidden = 0
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.names += [(name, value or "") for name, value in attrs]
        self._hidden += tag in {"script", "style", "title"}

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in {"script", "style", "title"}

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.words += data


def page_of(snapshot: Snapshot) -> Page:
    return daily_page(daily(snapshot))


def hostile() -> Snapshot:
    """A run whose every word is hostile."""
    return replace(
        FULL,
        run=EVIL,
        attempts=tuple(replace(line, job_id=EVIL, cause=EVIL) for line in FULL.attempts),
        interruptions=tuple(
            replace(one, evidence=EVIL + "A" * 20_000, cause=EVIL) for one in FULL.interruptions
        ),
        operating_point={EVIL: EVIL},
        warnings=(EVIL,),
        unknown=(EVIL,),
        unmatched_jobs=(EVIL,),
    )


RENDERINGS: list[Callable[[Snapshot], str]] = [
    lambda s: run_page(s.run, page_of(s), s, replace(FRAME, problems=(EVIL,), home="/")),
    lambda s: document(page_of(s)),
    lambda s: mail_html(page_of(s), images={"waterfall": "w@x"}, link="http://h/?a=1&b=2"),
    lambda s: index_page([IndexRow(run=s.run, path="/runs/x", snapshot=s, problems=(EVIL,))], version="1"),
]
IDS = ["status page", "file", "mail", "index"]


@pytest.mark.parametrize("render", RENDERINGS, ids=IDS)
def test_hostile_words_are_words(render: Callable[[Snapshot], str]) -> None:
    """No tag, no attribute and no control character comes out of a log, a name or a message."""
    page = render(hostile())
    read, plain = Reader(page), Reader(render(FULL))

    assert set(read.tags) <= set(plain.tags) | {"li", "ul", "p", "pre", "span", "div", "br"}
    assert read.tags.count("script") == plain.tags.count("script")
    assert not [name for name, _ in read.names if name.startswith("on")]
    assert "alert(1)" in read.words
    assert not re.search(
        "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]", page.replace(SCRIPT, "")
    )
    assert len(page) < 150_000


@pytest.mark.parametrize("render", RENDERINGS, ids=IDS)
def test_nothing_comes_from_outside(render: Callable[[Snapshot], str]) -> None:
    """A cluster without a way out shows all of it."""
    read = Reader(render(FULL))
    addresses = [value for name, value in read.names if name in {"src", "href", "action", "data", "srcset"}]

    assert all(
        value.startswith(("#", "/", "data:image/svg+xml,", "cid:", "http://h/")) for value in addresses
    )
    assert "url(" not in STYLE
    assert "@import" not in STYLE


@pytest.mark.parametrize("render", RENDERINGS[:2], ids=IDS[:2])
def test_every_name_on_a_page_is_one_of_its_kind(render: Callable[[Snapshot], str]) -> None:
    """Links into the page lead somewhere, labels name something."""
    names = Reader(render(FULL)).names
    made = [value for name, value in names if name == "id"]
    used = [
        v.removeprefix("#") for n, v in names if n == "aria-labelledby" or (n == "href" and v.startswith("#"))
    ]

    assert len(made) == len(set(made))
    assert set(used) <= set(made)


def test_the_policy_lets_the_own_script_and_style_run_and_nothing_else() -> None:
    """By what they are, so that text which slipped through could still do nothing."""
    page = run_page("r", page_of(FULL), FULL, FRAME)
    script, style = (
        re.findall(r"<script>(.*?)</script>", page, re.S),
        re.findall(r"<style>(.*?)</style>", page, re.S),
    )

    assert script == [SCRIPT]
    assert style == [STYLE]
    assert digest(SCRIPT) in HtmlPages.policy
    assert digest(STYLE) in HtmlPages.policy
    assert "unsafe" not in HtmlPages.policy
    assert ' style="' not in page


def contrast(one: str, other: str) -> float:
    """Of two colours, as WCAG has it."""

    def light(colour: str) -> float:
        parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
        r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("side", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("role", "grounds"),
    [
        *((role, ("paper", "back")) for role in ("ink", "muted", "link")),
        *((role, ("paper",)) for role in ("run", "forecast", "good", "warning", "problem")),
    ],
)
def test_words_in_colour_can_be_read(role: str, grounds: tuple[str, ...], side: int) -> None:
    """Where they stand, with the contrast that WCAG AA asks for."""
    for ground in grounds:
        assert contrast(COLOURS[role][side], COLOURS[ground][side]) >= 4.5


def test_a_run_without_numbers_says_what_it_waits_for() -> None:
    """Instead of empty axes."""
    page = Reader(run_page("young", None, None, replace(FRAME, without="the sources are being read")))

    assert "No numbers yet: the sources are being read." in page.words


def test_the_latest_attempts_and_stops_are_shown_and_the_rest_is_told_of() -> None:
    """However long a run is, its page stays below 200 kB."""
    many = replace(
        FULL,
        attempts=tuple(replace(attempt(n), start_us=NOON_US + n * 10**10) for n in range(1, 501)),
        interruptions=tuple(
            replace(stop(n, "unexpected", "gpu"), evidence="NVRM: Xid 79 " * 30) for n in range(1, 500)
        ),
    )
    page = run_page("long", page_of(many), many, FRAME)
    words = Reader(page).words

    assert len(page.encode()) < 200_000
    assert f"The latest {MOST_ATTEMPTS} of 500 attempts" in words
    assert f"The latest {MOST_STOPS} of 499" in words
    assert page.index('id="stop-499"') < page.index('id="stop-498"')


def test_columns_of_numbers_stand_at_the_right_and_bars_of_characters_go() -> None:
    """A screen reader hears no blocks; a first column without a name still names its rows."""
    made = table(Table(title="T", headings=("", ">hours", ""), rows=[("lost", "3", "██"), ("idle", "", "")]))

    assert 'class="n2"' in made
    assert "█" not in made
    assert '<th scope="row">lost' in made
    assert made.count("<td>") == 3  # the nameless head, and two cells


def test_a_tone_is_never_told_by_colour_alone() -> None:
    """A sign for who sees no colour, a word for who hears the page."""
    part = Section(name="s", title="S", blocks=(
        Paragraph(text="It stopped.", tone="problem"),
        KeyFigures(figures=(KeyFigure(name="Goodput", value="60 %", tone="warning"),)),
        Notes(items=("small",), title="Print"),
    ))  # fmt: skip
    page = replace(page_of(FULL), sections=(part,), tone="good")
    words = Reader(document(page)).words

    assert "Good: " in words
    assert "Problem: It stopped." in words
    assert "Warning: 60 %" in words


def test_mail_is_made_of_tables_with_everything_inline() -> None:
    """No style sheet, no script, no drawing: pictures come by content id, else words; 640 pixels at most."""
    page = page_of(FULL)
    figures = [figure for figure in page.figures() if isinstance(figure, Figure)]
    made = mail_html(page, images={figures[0].name: "picture@run"}, link="http://h/")
    read = Reader(made)

    assert not {"style", "script", "svg", "link"} & set(read.tags)
    assert ("src", "cid:picture@run") in read.names
    assert text(figures[0].alt) in made
    assert figures[1].alt.split("\n")[0] in read.words
    assert all(int(value) <= WIDTH for name, value in read.names if name == "width" and value.isdigit())
    assert page.verdict in read.words


def test_a_mail_may_hold_some_sections_only() -> None:
    """Short and right."""
    page = page_of(FULL)
    made = Reader(mail_html(page, images={}, sections=("key-figures",)))

    assert page.sections[0].title in made.words
    assert page.sections[1].title not in made.words


# -- several runs ---------------------------------------------------------------------------------------


def test_the_run_that_needs_somebody_stands_first() -> None:
    """Down, stalled, late or in trouble, then the rest; finished ones last."""
    assert FULL.forecast is not None
    late = replace(FULL.forecast, days_behind_plan=3.0)
    rows = [
        IndexRow(run="done", path="/runs/done", snapshot=replace(FULL, state="finished")),
        IndexRow(run="well", path="/runs/well", snapshot=FULL),
        IndexRow(run="new", path="/runs/new", snapshot=None),
        IndexRow(run="late", path="/runs/late", snapshot=replace(FULL, forecast=late)),
        IndexRow(run="stuck", path="/runs/stuck", snapshot=replace(FULL, state="stalled")),
        IndexRow(run="dead", path="/runs/dead", snapshot=replace(FULL, state="down")),
    ]
    page = index_page(rows, version="1")
    names = re.findall(r'<a href="/runs/(\w+)">', page)

    assert names == ["dead", "stuck", "late", "well", "new", "done"]
    assert "6 runs, 3 to look at" in page
    assert "three days late" in page


def test_a_run_that_ended_short_of_its_target_is_not_early_in_the_index() -> None:
    assert FULL.tokens.net is not None
    far = replace(FULL, state="finished", tokens=replace(FULL.tokens, planned=4 * FULL.tokens.net))
    page = index_page([IndexRow(run="r", path="/runs/r", snapshot=far)], version="1")

    assert "ended before its target" in page
    assert "early" not in page
    assert "days late" not in page


# -- what the server answers ----------------------------------------------------------------------------


@pytest.fixture
def pages() -> HtmlPages:
    return HtmlPages("1.2.3")


@pytest.fixture
def answers(pages: HtmlPages) -> Answers:
    made = Answers(Exporter(version="0"), pages, clock=Hands(10**9))
    made.publish(Shown(run="llama-13b", snapshot=FULL, vitals=VITALS))
    return made


def get(answers: Answers, path: str, query: str = "", **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return answers(Request(method="GET", path=path, query=query, headers=named))


def test_a_page_is_drawn_once_for_all_who_ask(answers: Answers, pages: HtmlPages) -> None:
    """And anew when its run has something new."""
    shown = Shown(run="llama-13b", snapshot=FULL, vitals=VITALS)
    first = pages.run(shown, alone=True)

    assert pages.run(replace(shown, lingers=False), alone=True) is first
    assert pages.run(replace(shown, snapshot=replace(FULL, state="down")), alone=True) is not first
    assert "trouble" in pages.run(replace(shown, vitals=replace(VITALS, problems=("trouble",))), alone=True)


def test_whoever_has_the_page_gets_it_again_only_where_it_changed(answers: Answers) -> None:
    """By its tag; packed and plain are one page."""
    plain, packed = get(answers, "/"), get(answers, "/", accept_encoding="gzip")
    tag = plain.headers["ETag"]

    assert gzip.decompress(packed.body) == plain.body
    assert packed.headers["ETag"] == tag
    assert get(answers, "/", if_none_match=f'"other", {tag}').status == 304
    answers.publish(Shown(run="llama-13b", snapshot=replace(FULL, state="stalled"), vitals=VITALS))
    assert get(answers, "/", if_none_match=tag).status == 200


@pytest.mark.parametrize("name", ["status", "ledger", "interruptions", "forecast"])
def test_documents_have_tags_too(name: str, answers: Answers) -> None:
    """JSON, with the same promise."""
    first = get(answers, f"/api/v1/{name}")

    assert first.content_type == "application/json"
    assert json.loads(first.body)
    assert get(answers, f"/api/v1/{name}", if_none_match=first.headers["ETag"]).body == b""


@pytest.mark.parametrize(
    ("path", "query", "status", "words"),
    [
        pytest.param("/api/v1/nothing", "", 404, "nothing here", id="no such document"),
        pytest.param("/api/v1/status", "run=other", 404, "no run of that name", id="no such run"),
        pytest.param("/api/v1/forecast", "run=young", 503, "no snapshot yet", id="no numbers yet"),
        pytest.param("/api/v1/forecast", "run=plain", 503, "no forecast yet", id="no forecast yet"),
        pytest.param("/api/v1/status", "", 400, "name one", id="several runs"),
    ],
)
def test_errors_of_the_documents_are_json(
    path: str, query: str, status: int, words: str, answers: Answers
) -> None:
    """With one sentence that says what to do."""
    answers.publish(Shown(run="young"))
    answers.publish(Shown(run="plain", snapshot=replace(FULL, run="plain", forecast=None)))
    response = get(answers, path, query)

    assert response.status == status
    assert words in json.loads(response.body)["error"]


def test_the_page_of_one_of_several_leads_back(answers: Answers) -> None:
    """And its documents are its own."""
    assert b"All runs" not in get(answers, "/").body
    answers.publish(Shown(run="a/b", snapshot=replace(FULL, run="a/b"), vitals=Vitals(ready=True)))
    page = get(answers, "/runs/a%2Fb").body.decode()

    assert '<a href="/">All runs</a>' in page
    assert 'href="/api/v1/status?run=a%2Fb"' in page
    assert "/runs/a%2Fb" in get(answers, "/").body.decode()


@pytest.mark.parametrize(
    ("name", "served"),
    [
        pytest.param("llama-13b-2026-01-05.pdf", True, id="the report of a day"),
        pytest.param("llama-13b-weekly-2026-01-05.pdf", True, id="of a week"),
        pytest.param("llama-13b-v2-2026-01-05.txt", False, id="no PDF"),
        pytest.param("llama-2026-01-05.pdf", False, id="of another run"),
        pytest.param("llama-13b-2026-01-05.pdf.part", False, id="half written"),
    ],
)
def test_only_a_report_of_the_run_is_served(
    name: str, served: bool, tmp_path: Path, answers: Answers, pages: HtmlPages
) -> None:
    """From the folder that the config names; the path of the file is never the client's word."""
    (tmp_path / name).write_bytes(b"%PDF-1.7 x")
    pages.tell("llama-13b", About(reports=tmp_path))
    response = get(answers, "/report.pdf")

    assert response.status == (200 if served else 404)
    assert (response.body == b"%PDF-1.7 x") is served
    assert (b"/report.pdf" in get(answers, "/").body) is served


def test_a_link_in_the_reports_folder_leads_nowhere(
    tmp_path: Path, answers: Answers, pages: HtmlPages
) -> None:
    """Nor does a path in the query."""
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "llama-13b-2026-01-05.pdf").symlink_to(tmp_path / "secret")
    pages.tell("llama-13b", About(reports=tmp_path))

    assert get(answers, "/report.pdf").status == 404
    assert get(answers, "/report.pdf", "run=../secret").status == 404
    assert get(answers, "/report.pdf/../secret").status == 404


def test_the_newest_report_is_the_one(tmp_path: Path, answers: Answers, pages: HtmlPages) -> None:
    """By its date."""
    for day in ("2026-01-05", "2026-02-01", "2025-12-31"):
        (tmp_path / f"llama-13b-{day}.pdf").write_bytes(day.encode())
    pages.tell("llama-13b", About(reports=tmp_path))

    assert get(answers, "/report.pdf").body == b"2026-02-01"


# -- the past -------------------------------------------------------------------------------------------


def test_the_past_goes_from_one_process_to_the_other_and_makes_the_same_report() -> None:
    """Written as JSON, read again, put beside the snapshot: the very report that the child had made."""
    before = replace(
        FULL, as_of_us=FULL.as_of_us - 86_400_000_000, attempts=FULL.attempts[:1], interruptions=()
    )
    assert FULL.forecast is not None
    made = daily(
        FULL,
        before=before,
        earlier=before,
        history=(replace(FULL.forecast, as_of_us=1),),
        health=Health(files=3),
    )
    past = Beside.from_json(json.loads(json.dumps(Beside.of(made).to_json())))

    assert past == Beside.of(made) == past.sharing(FULL)
    assert past.with_snapshot(FULL, health=made.health) == made


def test_without_a_past_the_page_is_there_all_the_same() -> None:
    """It shows what one moment can say."""
    assert daily_page(Beside().with_snapshot(FULL, health=Health())).sections

"""The daily report as a page and as text: what it says in which state, in numbers of the core."""

from __future__ import annotations

import datetime as dt
import doctest
import importlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reports.daily import daily_page
from reports.daily_axes import time_ticks
from reports.daily_finish import _MOVERS, _parts
from reports.daily_words import CAUSES, dates
from reports.page import (
    Block,
    Figure,
    Heading,
    KeyFigures,
    Notes,
    Page,
    Paragraph,
    Section,
    Words,
)
from reports.tables import Table
from reports.text import WIDTH, text_of
from reports.typst_page import document
from tests.core.run_story import any_run, lengths, planned, story
from tests.report_states import GOLDEN, STATES, daily_in, page_in
from tracker.core import records
from tracker.core.daily import Health, daily, history_moments
from tracker.core.forecast.value import Part
from tracker.core.ledger import BUCKETS
from tracker.core.settings import Hardware
from tracker.core.snapshot import Mfu, Snapshot
from tracker.core.strip import strip

NAMES = [state.name for state in STATES]
EVIL = '<script>alert(1)</script> {{x}} #panic("y") $z$ \\n \x1b[31m \u202e\u2066 \'q\' "r" ' + "A" * 10_000


# -- the states -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_text_of_each_state_is_the_golden_one(name: str) -> None:
    """Renew by `python -m tests.report_states`, and read what changed."""
    assert text_of(page_in(name)) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "said", "tone"),
    [
        ("first-hour", "Too early to be sure", "plain"),
        ("on-plan", "on plan", "good"),
        ("behind-plan", "late; goodput fell from", "problem"),
        ("stalled", "Stalled since", "problem"),
        ("rolled-back", "a rollback by hand that threw away 5,000 steps", "warning"),
        ("finished", "Finished on 10 January", "good"),
        ("ended-short", "Ended on 6 January at 25 % of its target", "warning"),
        ("ended-short", "fewer than planned for these tokens; over the budget of 20,000 USD", "warning"),
        ("no-plan", "No plan, so no finish is forecast", "plain"),
        ("moe-fp8", "Finishes", "warning"),
    ],
    ids=lambda value: str(value)[:12],
)
def test_the_verdict_says_what_matters_in_each_state(name: str, said: str, tone: str) -> None:
    page = page_in(name)

    assert said in page.verdict
    assert page.tone == tone


def test_what_the_forecast_warns_of_is_read_beside_the_finish() -> None:
    """A crash loop: no green page, and the sentence stands where the finish does."""
    made = daily_in("on-plan")
    assert made.forecast is not None
    said = "The last 11 launches ended without a step more than before."
    shot = replace(made.snapshot, forecast=replace(made.forecast, warning=said))
    page = daily_page(replace(made, snapshot=shot))

    assert page.tone == "warning"
    assert said in text_of(page).replace("\n  ", " ")


@pytest.mark.parametrize(
    "move",
    [(558, 350, 145, 0, 0, 0, -94), (4, 4, 4, 4, 4, 4, 4), (0, 12_300, 0, -7, 0, 0, 0)],
    ids=["a part against the others", "parts too small to tell", "one large part"],
)
def test_the_told_parts_of_a_move_sum_to_it(move: tuple[int, ...]) -> None:
    """In thousandths of a day: +0.6, +0.4 and +0.1 alone would be no move of 0.96 days."""
    made = tuple(Part(name=name, us=n * 86_400_000, why="") for name, n in zip(_MOVERS, move, strict=True))

    told = re.findall(r"([+−])([0-9.]+)", _parts(made, 2))
    assert sum(float(n) * (1 if sign == "+" else -1) for sign, n in told) == pytest.approx(
        round(sum(move) / 1000, 2)
    )


@pytest.mark.slow
def test_what_is_too_early_to_be_sure_of_is_no_alarm() -> None:
    """A first slow step points months away: the verdict says so, and nothing beside it calls it late."""
    text = text_of(daily_page(replace(daily_in("first-hour"), pace="far behind")))

    assert "Too early to be sure" in text
    assert "!!" not in text


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_no_figure_is_empty_axes(name: str) -> None:
    """Each figure has something drawn inside its axes, and words for who cannot see it."""
    for figure in page_in(name).figures():
        assert len(figure.alt) > 20
        for panel in figure.drawing.panels:
            assert panel.x.high > panel.x.low
            assert panel.y.high > panel.y.low
            assert panel.lines or panel.bars
            for line in panel.lines:
                assert all(panel.y.low <= y <= panel.y.high for _, y in line.points)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name != "first-hour"])
def test_the_last_day_is_the_exact_difference_of_two_ledgers(name: str) -> None:
    made = daily_in(name)
    assert made.day is not None
    now, before = made.snapshot.gpu_us, made.before.gpu_us if made.before is not None else None
    assert now is not None
    assert before is not None

    day, moved = made.day.gpu_us, made.day.restated_us
    assert {key: day[key] + moved.get(key, 0) for key in day} == {
        key: now[key] - before[key] for key in ("allocated", *BUCKETS)
    }
    assert all(day[key] >= 0 for key in BUCKETS if key != "productive")
    assert sum(moved.values()) == 0
    assert sum(made.day.gpu_us[key] for key in BUCKETS) == made.day.gpu_us["allocated"]


def _ledger(attempts: Iterable[Mapping[str, int]], as_of_us: int) -> Snapshot:
    """Return a snapshot with attempts of these hours, in hours since the start."""
    whole = {key: 0 for key in ("allocated", *BUCKETS)}
    lines = []
    for number, hours in enumerate(attempts, 1):
        own = {key: hours.get(key, 0) * 3_600_000_000 for key in BUCKETS}
        own["allocated"] = sum(own.values())
        whole = {key: us + own[key] for key, us in whole.items()}
        lines.append(replace(story().attempts[0], number=number, gpu_us=own, wall_us=own))
    return Snapshot(run="r", as_of_us=as_of_us, state="running", attempts=tuple(lines), gpu_us=whole)


@pytest.mark.parametrize(
    ("before", "now", "day", "moved"),
    [
        pytest.param(
            [{"startup": 4}],
            [{"startup": 2, "productive": 24, "pending": 2}],
            {"productive": 22, "pending": 2},
            {"startup": -2, "productive": 2},
            id="a wait for the first line was training",
        ),
        pytest.param(
            [{"productive": 10, "tail": 5}],
            [{"productive": 39}],
            {"productive": 24},
            {"tail": -5, "productive": 5},
            id="a stall was a log that came late",
        ),
        pytest.param(
            [{"productive": 10}],
            [{"productive": 6, "lost": 10}, {"startup": 1, "productive": 17}],
            {"productive": 13, "lost": 10, "startup": 1},
            {},
            id="what a restart threw away is lost in this day",
        ),
        pytest.param(
            [{"productive": 10, "startup": 3}],
            [{"productive": 12, "startup": 1}, {"startup": 9, "productive": 14}],
            {"productive": 14, "startup": 9},
            {"startup": -2, "productive": 2},
            id="another attempt's start-up hides nothing",
        ),
    ],
)
def test_time_before_the_day_that_turns_out_to_be_another_is_named_apart(
    before: list[dict[str, int]], now: list[dict[str, int]], day: dict[str, int], moved: dict[str, int]
) -> None:
    """No bucket of the day is below zero, none above what was allocated, and nothing is dropped."""
    made = daily(_ledger(now, 24 * 3_600_000_000), before=_ledger(before, 0))
    assert made.day is not None
    assert made.day.goodput_ratio is not None

    assert {
        key: us // 3_600_000_000 for key, us in made.day.gpu_us.items() if us and key != "allocated"
    } == day
    assert {key: us // 3_600_000_000 for key, us in made.day.restated_us.items()} == moved
    assert 0 <= made.day.goodput_ratio <= 1


@pytest.mark.slow
def test_a_run_that_ended_short_is_compared_with_no_finish() -> None:
    made = daily_in("ended-short")
    text = text_of(page_in("ended-short"))

    assert made.ended_short
    assert made.late_days is None
    assert "before the plan" not in text
    assert "early" not in text


@pytest.mark.slow
def test_a_run_whose_log_ends_it_before_the_target_says_so_while_it_runs() -> None:
    """The plan has 4e12 tokens, the log stops it at 47,684 steps of 84M."""
    made = daily_in("behind-plan")
    own = replace(made, shorter_target=2.5e12)
    told = text_of(daily_page(own))

    assert "The log ends the run at 2.500T tokens, 62 % of the plan’s 4.000T" in told
    assert "The log ends the run" not in text_of(page_in("behind-plan"))


@pytest.mark.slow
def test_a_finished_run_is_set_against_the_plan_for_the_tokens_that_it_trained() -> None:
    """Later stages that it did not train are in no figure of the plan's side."""
    made = daily_in("finished").snapshot
    assert made.settings is not None
    assert made.settings.plan is not None
    more = replace(made.settings, plan=replace(made.settings.plan, later_stages=0.5))
    own, other = daily(made), daily(replace(made, settings=more))
    assert own.plan is not None
    assert other.plan is not None

    assert other.plan.gpu_hours == pytest.approx(own.plan.gpu_hours)
    assert other.plan.finish_us == pytest.approx(own.plan.finish_us)
    assert other.late_days == pytest.approx(own.late_days)
    assert other.figures.hours_per_trillion.ratio_to_plan == pytest.approx(
        other.figures.gpu_hours.ratio_to_plan, rel=0.01
    )
    assert "100.0 % of 2.01T, and 50 % later stages" in text_of(daily_page(other))
    assert "for these tokens" in text_of(daily_page(other))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["behind-plan", "finished"])
def test_only_forecasts_of_earlier_moments_are_history(name: str) -> None:
    made = daily_in(name)

    assert made.history
    assert all(f.as_of_us < made.snapshot.as_of_us for f in made.history)


@pytest.mark.slow
def test_a_first_line_of_one_step_does_not_slow_the_stretches_after_it() -> None:
    """Beyond its first stretch, an attempt's points have the step time that its ledger has."""
    made = daily_in("on-plan")
    told = 0
    for line in made.snapshot.attempts:
        points = [p for p in made.series.points if p.attempt == line.number and p.steps >= 20][1:]
        for point in points:
            assert point.step_time_s == pytest.approx(line.step_time_s, rel=0.1)
            told += 1
    assert told > 50
    assert not made.changes.changes  # a steady run, however often it restarts


@pytest.mark.slow
def test_the_variance_table_sums() -> None:
    """The parts shown come to the foot, as rounded."""
    table = next(t for t in tables(page_in("behind-plan")) if t.title.startswith("Against the plan"))

    def number(text: str) -> float:
        return float(text.replace(",", "").replace("−", "-").replace("+", ""))

    assert table.foot is not None
    for column, within in ((1, 3.0), (2, 0.03)):
        total = sum(number(row[column]) for row in table.rows)
        assert total == pytest.approx(number(table.foot[column]), abs=within)


@pytest.mark.slow
def test_an_fp8_run_says_which_peak_its_mfu_is_of() -> None:
    text = text_of(page_in("moe-fp8"))

    assert "37B of 671B parameters active" in text
    assert "It trains in fp8; the peak is that of bf16" in text


# -- a small run, by hand ---------------------------------------------------------------------------


def report(shot: Snapshot, **more: Any) -> Page:
    return daily_page(daily(shot, **more))


def blocks(page: Page) -> Iterator[Block]:
    for section in page.sections:
        yield from section.blocks


def tables(page: Page) -> list[Table]:
    return [block for block in blocks(page) if isinstance(block, Table)]


def test_a_run_without_an_attempt_is_a_short_report() -> None:
    page = report(Snapshot(run="x", as_of_us=1_767_600_000_000_000, state="waiting"))

    assert page.verdict == "No attempt was seen yet; no plan, so no finish is forecast."
    assert not list(page.figures())
    assert [section.name for section in page.sections] == ["behind"]


def test_a_section_without_data_is_left_out_or_one_sentence() -> None:
    """Neither GPU count nor plan: words say so, no table of dashes."""
    page = report(replace(story(), gpu_us=None, settings=None))

    assert "GPU-hours are not known" in text_of(page)
    assert all(table.rows for table in tables(page))


def test_a_bare_snapshot_makes_a_report_without_a_forecast() -> None:
    page = report(story())

    assert page.verdict
    assert page.compared == ""


def test_the_ledger_table_sums_to_its_foot_in_hours() -> None:
    table = next(t for t in tables(report(story())) if t.title == "GPU-hours")

    assert table.foot is not None
    hours = sum(float(row[1].replace(",", "")) for row in table.rows)
    assert hours == pytest.approx(float(table.foot[1].replace(",", "")), abs=0.05)


def test_the_time_line_tiles_each_attempt() -> None:
    """Pieces of an attempt follow each other without gap or overlap, from its start to its end."""
    shot = story()

    for line in shot.attempts:
        pieces = [piece for piece in strip(shot) if piece.attempt == line.number]
        assert pieces[0].start_us == line.start_us
        assert pieces[-1].end_us == (line.end_us if line.end_us is not None else shot.as_of_us)
        assert all(a.end_us == b.start_us for a, b in pairwise(pieces))
        lost = sum(piece.end_us - piece.start_us for piece in pieces if piece.what == "lost")
        assert (lost > 0) == (line.wall_us["lost"] > 0)


def test_health_is_told_with_its_rejects_and_problems() -> None:
    text = text_of(
        report(
            story(),
            health=Health(
                files=3, rejects={"torn": 7}, unrecognised=("odd.log",), problems=("The disk is full.",)
            ),
        )
    )

    assert "Three files with records" in text
    assert "7 lines could not be used (7 torn)" in text
    assert "No collector reads one file: odd.log" in text
    assert "! The disk is full." in text


def test_dates_are_in_the_zone_of_the_report() -> None:
    page = daily_page(daily(story()), zone=ZoneInfo("Asia/Tokyo"), zone_name="Asia/Tokyo")

    assert page.as_of == "1 January 2026, 09:35 Asia/Tokyo"


@pytest.mark.parametrize(
    ("at", "said"),
    [
        (dt.datetime(2026, 3, 14, 9, 20, tzinfo=dt.UTC), "14 March"),
        (dt.datetime(2027, 1, 2, tzinfo=dt.UTC), "2 January 2027"),
    ],
    ids=["this year goes without saying", "another year is said"],
)
def test_a_day_is_written_as_people_say_it(at: dt.datetime, said: str) -> None:
    when = dates(dt.UTC, "UTC", 1_767_225_600_000_000)

    assert when.day(at.timestamp() * 1e6) == said


def test_every_cause_has_a_name_for_people() -> None:
    assert set(CAUSES) == set(records.CAUSES)


@pytest.mark.parametrize("days", [0.01, 0.2, 1.0, 3.0, 20.0, 54.0, 400.0, 4000.0], ids="{} days".format)
def test_history_is_at_most_twelve_earlier_moments(days: float) -> None:
    end = round(days * 86_400e6)
    moments = history_moments(0, end)

    assert len(moments) <= 12
    assert all(0 < at < end for at in moments)
    assert list(moments) == sorted(moments)


@pytest.mark.parametrize(
    ("minutes", "said"),
    [
        (20, ["08:05\n5 Jan", "08:10", "08:15", "08:20"]),
        (50, ["08:10\n5 Jan", "08:20", "08:30", "08:40", "08:50"]),
        (170, ["08:30\n5 Jan", "09:00", "09:30", "10:00", "10:30"]),
        (60 * 40, ["12:00\n5 Jan", "00:00\n6 Jan", "12:00", "00:00\n7 Jan"]),
    ],
    ids=["twenty minutes", "the first hour", "three hours", "two days"],
)
def test_an_axis_over_time_has_ticks_however_short_it_is(minutes: int, said: list[str]) -> None:
    """Round moments of the zone, each day named once."""
    low = dt.datetime(2026, 1, 5, 8, 4, tzinfo=dt.UTC).timestamp() * 1e6
    when = dates(dt.UTC, "UTC", round(low))

    assert [tick.text for tick in time_ticks(low, low + minutes * 6e7, when)] == said


@pytest.mark.parametrize(
    "name",
    [
        "reports.page",
        "reports.daily_words",
        "reports.daily_axes",
        "tracker.core.daily",
        "tracker.post.names",
        "tracker.child",
    ],
)
def test_examples_in_docstrings_hold(name: str) -> None:
    results = doctest.testmod(importlib.import_module(name))

    assert results.failed == 0
    assert results.attempted > 0


@given(lengths, st.sampled_from(["plan", "no plan", "no device", "reserved"]))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_run_makes_a_report(parts: list[tuple[int, int, int, int]], how: str) -> None:
    """Whatever happened and whatever is not known: a page, in lines, with nothing outside its axes."""
    more: dict[str, Any] = {"plan": planned()} if how in ("plan", "reserved") else {}
    shot = any_run(parts, **more)
    assert shot.settings is not None
    if how == "no device":
        shot = replace(shot, mfu=Mfu(), settings=replace(shot.settings, hardware=Hardware()))
    if how == "reserved":
        shot = replace(shot, settings=replace(shot.settings, billing="reservation"))
    page = report(shot, before=shot, earlier=shot)

    assert page.verdict
    assert text_of(page)
    assert json.dumps(document(replace(page, sections=()), paper="a4"))
    for figure in page.figures():
        for panel in figure.drawing.panels:
            for bar in panel.bars:
                assert panel.x.low <= bar.x0 <= bar.x1 <= panel.x.high
                assert panel.y.low <= bar.y0 < bar.y1 <= panel.y.high


# -- hostile text -----------------------------------------------------------------------------------


def hostile_page() -> Page:
    """A page with hostile text in every place that takes text."""
    figure = Figure(
        name="f", alt=EVIL, caption=EVIL,
        drawing=replace(
            next(page_of_story().figures()).drawing,
            keys=(),
        ),
    )  # fmt: skip
    panel = figure.drawing.panels[0]
    figure = replace(
        figure,
        drawing=replace(
            figure.drawing,
            panels=(
                replace(panel, title=EVIL[:60], words=(Words(x=0, y=0, text=EVIL[:80]),)),
                *figure.drawing.panels[1:],
            ),
        ),
    )
    every: tuple[Block, ...] = (
        Heading(text=EVIL),
        Paragraph(text=EVIL, tone="warning"),
        Table(title=EVIL, headings=(EVIL[:50], ">n"), rows=[(EVIL, EVIL[:90])], foot=(EVIL[:30], ""),
              notes=[EVIL]),
        Notes(title=EVIL, items=(EVIL,)),
        figure,
    )  # fmt: skip
    return Page(
        title=EVIL, run=EVIL, as_of_us=0, as_of=EVIL, state="running", verdict=EVIL, tone="problem",
        sections=(Section(name="s", title=EVIL, blocks=every),), subtitle=EVIL, compared=EVIL,
    )  # fmt: skip


def page_of_story() -> Page:
    return report(story())


def test_hostile_text_is_only_text_in_the_text_report() -> None:
    """Nothing that a terminal or an editor obeys comes through."""
    text = text_of(hostile_page())

    assert all(c.isprintable() or c == "\n" for c in text)
    assert "<script>alert(1)</script>" in text


def test_hostile_words_of_a_log_are_cut_where_they_stand_in_the_report() -> None:
    shot = story()
    stops = tuple(replace(stop, evidence=EVIL) for stop in shot.interruptions)
    page = report(
        replace(
            shot, run=EVIL, interruptions=stops, warnings=(EVIL,), unknown=(EVIL,), unmatched_jobs=(EVIL,)
        )
    )
    text = text_of(page)

    assert all(len(line) <= 3 * WIDTH for line in text.splitlines())
    assert len(text) < 12_000


def test_a_planned_run_of_the_story_tells_its_cost() -> None:
    page = report(story(plan=planned()))
    figures = [f for block in blocks(page) if isinstance(block, KeyFigures) for f in block.figures]

    assert any(figure.name == "Cost, USD" for figure in figures)

"""The forecast: every state has an answer or a sentence, nothing leaks back, moves add up, scores hold."""

from __future__ import annotations

import datetime as dt
import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.core.story import EXCLUDES, T0, Log, facts, row, us
from tests.factories import ListFacts, facts_from
from tests.simulator import observe, preset, simulate
from tracker.core.book import Book
from tracker.core.errors import InvalidValue
from tracker.core.forecast.answer import forecast
from tracker.core.forecast.backtest import NoTruth, backtest
from tracker.core.forecast.blocks import bucketed
from tracker.core.forecast.choices import parse
from tracker.core.forecast.document import backtest_document, forecast_document, history_document
from tracker.core.forecast.doubt import Limits, Point, doubtful
from tracker.core.forecast.history import Truth, judged, thinned
from tracker.core.forecast.score import DECILES, Scored, best_factor, score
from tracker.core.forecast.section import forecast_section
from tracker.core.forecast.state import State, state_of
from tracker.core.forecast.value import Forecast
from tracker.core.hardware import peak_given
from tracker.core.plan import Plan, PlanStage, PriceStep
from tracker.core.records import Kind, Reading
from tracker.core.settings import Hardware, Model, Reservation, Settings
from tracker.core.snapshot import Snapshot
from tracker.core.summary import snapshot
from tracker.forecasting import Asked, ask

STEP_TOKENS = 1000
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def settings(**plan: Any) -> Settings:
    """Return the settings of a 1B model on 8 GPUs that is to see a million tokens."""
    base: dict[str, Any] = {
        "active_params": 1e9,
        "tokens": 1e6,
        "peak": peak_given(989.0),
        "gpus": 8,
        "later_stages": 0.0,
        "gpu_hour_price": 2.0,
        "gpu_power_w": 700.0,
        "start": START,
    }
    made = Plan(**{**base, **plan})
    return Settings(
        run="story",
        model=Model(active_params=1e9, sequence_length=1000),
        hardware=Hardware(peak_flop_per_s=989e12, gpus=8),
        plan=made,
    )


def asked(
    made: ListFacts, at_s: float, config: Settings | None = None, since_s: float | None = None
) -> Asked:
    return ask(
        Book(config or settings()),
        made,
        as_of_us=us(at_s),
        since_us=None if since_s is None else us(since_s),
    )


def told(made: ListFacts, at_s: float, config: Settings | None = None) -> Forecast:
    return asked(made, at_s, config).forecast


def steady(until: int = 500, step_s: float = 10.0) -> Log:
    """Return a log of so many steps, ten seconds each, a line every five."""
    return Log().launch(resume=0).at(100).train(range(5, until + 1, 5), since=0, step_s=step_s)


def fine(value: Any) -> bool:
    """Tell whether a document holds no infinity, no NaN and no far date anywhere."""
    if isinstance(value, dict):
        return all(fine(v) for v in value.values())
    if isinstance(value, list):
        return all(fine(v) for v in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return not (isinstance(value, str) and value[4:5] == "-" and value[:4] > "2100")


def document(made: Forecast) -> dict[str, Any]:
    return forecast_document("story", made, plan_finish_us=None)


# -- answers -------------------------------------------------------------------------------------------


def test_a_steady_run_ends_where_arithmetic_says() -> None:
    """500 of 1,000 steps done at 10 s each: 5,000 s are left, and little can happen in them."""
    made = told(facts(steady()), 5100)

    assert made.basis == "measured"
    assert made.finish_us is not None
    assert made.finish_us.p10 is not None
    assert made.finish_us.p50 == pytest.approx(us(10_100), abs=120 * 1e6)
    assert made.finish_us.p10 < made.finish_us.p50 < (made.finish_us.p90 or 0)
    assert made.gpu_hours is not None
    assert made.gpu_hours.p50 == pytest.approx(8 * 10_100 / 3600, rel=0.03)
    assert made.cost is not None
    assert made.cost.p50 == pytest.approx(2 * (made.gpu_hours.p50 or 0), rel=1e-6)
    assert made.energy_mwh is not None
    assert made.energy_mwh.p50 == pytest.approx((made.gpu_hours.p50 or 0) * 700 / 1e6, rel=1e-6)
    assert sum(d.share_ratio for d in made.drivers) == pytest.approx(1, abs=0.05)


def test_time_since_the_last_line_counts_as_work() -> None:
    """A forecast does not move only because the next line is a minute away."""
    early, late = told(facts(steady()), 5100), told(facts(steady()), 5140)

    assert early.finish_us is not None
    assert late.finish_us is not None
    assert late.finish_us.p50 == pytest.approx(early.finish_us.p50, abs=60e6)


def test_a_slow_first_step_with_a_line_of_its_own_makes_no_later_step_faster() -> None:
    """Two seconds a step before and after a restart, whose first step took 60: one line of many says so."""
    before = Log().launch(resume=0).at(100).train(range(50, 10_001, 50), since=0, step_s=2.0)
    after = Log().at(20_700).launch(resume=10_000).at(21_000).line(10_001, 60.0)
    after.train(range(10_050, 12_001, 50), since=10_001, step_s=2.0)
    got = asked(facts(before, after), after.now, settings(tokens=4e7))

    late = [block for block in got.state.blocks if block.end_us > us(22_000)]
    assert len(late) > 1
    assert [b.tokens / b.work_s for b in late] == pytest.approx([500] * len(late), rel=0.03)
    assert got.forecast.inputs is not None
    assert got.forecast.inputs.rate == pytest.approx(500 / 8, rel=0.03)


def test_the_same_question_has_the_same_answer() -> None:
    """The seed follows from the run and the moment."""
    once, again = document(told(facts(steady()), 5100)), document(told(facts(steady()), 5100))

    assert json.dumps(once) == json.dumps(again)


def test_plan_stages_are_forecast_at_their_own_pace() -> None:
    """A stage of twice the FLOP a token takes about twice as long; the measured one is not touched."""
    stages = (PlanStage(name="main", tokens=6e5), PlanStage(name="long", tokens=4e5, mfu=0.175))
    one = told(facts(steady()), 5100)
    two = told(facts(steady()), 5100, settings(stages=stages))

    assert one.finish_us is not None
    assert two.finish_us is not None
    ahead = [((f.finish_us.p50 or 0) - us(5100)) / 1e6 for f in (one, two) if f.finish_us]
    assert ahead[1] - ahead[0] == pytest.approx(4000, rel=0.1)


def test_later_stages_are_in_the_forecast_as_in_the_plan() -> None:
    """8 % of a million tokens is 800 s more."""
    without, with_ = told(facts(steady()), 5100), told(facts(steady()), 5100, settings(later_stages=0.08))

    assert without.finish_us is not None
    assert with_.finish_us is not None
    moved = ((with_.finish_us.p50 or 0) - (without.finish_us.p50 or 0)) / 1e6
    assert moved == pytest.approx(800, rel=0.15)
    assert any("later stages: 8%" in text for text in with_.assumptions)


def test_a_price_that_changes_is_charged_by_the_calendar() -> None:
    """Half of the rest at 2, half at 4."""
    prices = (
        PriceStep(gpu_hour_price=2.0),
        PriceStep(gpu_hour_price=4.0, since=START + dt.timedelta(seconds=7600)),
    )
    made = told(facts(steady()), 5100, settings(gpu_hour_price=None, prices=prices))

    assert made.cost is not None
    assert made.cost.p50 == pytest.approx((5100 * 2 + 2500 * 2 + 2500 * 4) * 8 / 3600, rel=0.04)


def test_a_reservation_is_paid_whether_it_is_used_or_not() -> None:
    """16 reserved GPUs cost twice what 8 do until the end."""
    config = replace(settings(), billing="reservation", reservation=Reservation(gpus=16, start_us=T0))
    made = told(facts(steady()), 5100, config)

    assert made.gpu_hours is not None
    assert made.gpu_hours.p50 == pytest.approx(16 * 10_100 / 3600, rel=0.03)


@pytest.mark.parametrize(
    ("deadline_s", "low", "high"),
    [
        pytest.param(20_000, 0.9, 1.0, id="a late deadline is all but sure"),
        pytest.param(7_000, 0.0, 0.02, id="an early one all but hopeless"),
        pytest.param(1_000, 0.0, 0.0, id="a past one is missed"),
    ],
)
def test_the_deadline_has_a_probability(deadline_s: float, low: float, high: float) -> None:
    """Between 0 and 1, and in words."""
    limit = START + dt.timedelta(seconds=deadline_s)
    made = told(facts(steady()), 5100, settings(deadline=limit, budget=40.0))

    assert made.by_deadline_ratio is not None
    assert low <= made.by_deadline_ratio <= high
    assert made.within_budget_ratio is not None
    assert any("deadline" in text for text in made.sentences)
    if deadline_s < 5100:
        assert any("has passed" in text for text in made.sentences)


def test_behind_the_plan_is_said_with_the_rate_that_would_catch_up() -> None:
    """The plan's days, the tokens that are missing, and what it would take."""
    config = settings(mfu=0.00008, goodput=1.0, attn_overhead=0.0)
    planned = config.plan.finish_at() if config.plan is not None else None
    assert planned is not None
    assert 5100 < (planned - START).total_seconds() < 10_100
    text = " ".join(told(facts(steady()), 5100, config).sentences)

    assert "behind the plan" in text
    assert "fewer tokens than planned" in text
    assert "To catch up, +" in text


# -- early and odd states ------------------------------------------------------------------------------


def failed_starts() -> ListFacts:
    logs = []
    for number in range(4):
        log = Log().at(600.0 * number).launch(resume=0)
        log.event(Kind.EXIT, end_kind="failed")
        logs.append(log)
    return facts(*logs)


def no_launch() -> ListFacts:
    return facts()


def launched() -> ListFacts:
    return facts(Log().launch(resume=0))


def down() -> ListFacts:
    log = steady(300)
    log.at(3200).event(Kind.EXIT, end_kind="failed")
    return facts(log, rows=[row("1", 0, 3200)])


def rolled_back() -> ListFacts:
    first = steady(400)
    second = Log().at(4500).launch(resume=100).at(4600).train(range(105, 151, 5), since=100)
    return facts(first, second)


def finished() -> ListFacts:
    log = steady(1000)
    log.event(Kind.COMPLETED)
    return facts(log, rows=[row("1", 0, log.now + 5, state="COMPLETED")])


STATES = [
    pytest.param(no_launch, 50, "waiting", "plan", id="before the first launch"),
    pytest.param(launched, 50, "starting", "plan", id="launched, no step yet"),
    pytest.param(lambda: facts(steady()), 160, "running", "plan", id="after one reading"),
    pytest.param(lambda: facts(steady()), 260, "running", "measured", id="in the first minutes"),
    pytest.param(lambda: facts(steady()), 5100, "running", "measured", id="half way"),
    pytest.param(lambda: facts(steady()), 9000, "stalled", "measured", id="stalled for an hour"),
    pytest.param(down, 3300, "down", "measured", id="down"),
    pytest.param(down, 400_000, "down", "measured", id="down for days: paused"),
    pytest.param(rolled_back, 5100, "running", "measured", id="after a rollback"),
    pytest.param(failed_starts, 3000, "down", "plan", id="every attempt failed before its first step"),
    pytest.param(finished, 20_000, "finished", "exact", id="finished"),
]


@pytest.mark.parametrize(("make", "at_s", "state", "basis"), STATES)
def test_every_state_has_an_answer(make: Any, at_s: float, state: str, basis: str) -> None:
    """A range, or an exact moment; never infinity, NaN or a far date; a finish never lies in the past."""
    got = asked(make(), at_s)
    made = got.forecast

    assert got.snapshot.state == state
    assert made.basis == basis
    assert fine(document(made))
    assert made.sentences
    assert made.finish_us is not None
    assert made.finish_us.p50 is not None
    if basis == "exact":
        assert made.finish_us.p10 == made.finish_us.p50 == made.finish_us.p90 <= us(at_s)
    else:
        assert made.finish_us.p10 is not None
        assert us(at_s) < made.finish_us.p10 < made.finish_us.p50
    assert Forecast.from_json(json.loads(json.dumps(made.to_json()))) == made


def test_before_the_first_step_it_says_that_it_knows_the_plan_only() -> None:
    """And waits for the planned start."""
    config = settings(start=START + dt.timedelta(days=3))
    made = told(no_launch(), 50, config)

    assert "plan and published figures only" in made.sentences[0]
    assert made.finish_us is not None
    assert made.finish_us.p10 is not None
    assert made.finish_us.p10 > us(3 * 86_400)
    assert any("planned MFU" in text for text in made.assumptions)


def test_a_long_stop_is_expected_to_last() -> None:
    """What has been down for days is not expected back in minutes."""
    hour, days = told(down(), 3300), told(down(), 400_000)
    assert hour.finish_us is not None
    assert days.finish_us is not None

    assert (hour.finish_us.p50 or 0) - us(3300) < (days.finish_us.p50 or 0) - us(400_000)


def test_finished_is_exact_also_in_hours_and_money() -> None:
    """P10 = P50 = P90, the ledger's own."""
    got = asked(finished(), 20_000)
    made = got.forecast

    assert made.gpu_hours is not None
    assert got.snapshot.gpu_us is not None
    assert made.gpu_hours.p10 == made.gpu_hours.p90 == got.snapshot.gpu_us["allocated"] / 3.6e9
    assert made.cost is not None
    assert made.cost.p50 == pytest.approx(2 * (made.gpu_hours.p50 or 0))
    assert made.days_behind_plan is not None


BAD = [
    pytest.param({"plan": None}, "no target", id="no plan"),
    pytest.param({"tokens": None}, "no target", id="no target"),
    pytest.param({"tokens": 5e5}, "", id="the target reached this moment"),
    pytest.param({"tokens": 1e5}, "", id="a target already passed"),
    pytest.param({"tokens": 1e15}, "", id="a target that takes thousands of years"),
]


@pytest.mark.parametrize(("change", "reason"), BAD)
def test_bad_input_gets_an_answer_or_a_sentence(change: dict[str, Any], reason: str) -> None:
    """Never an exception, and nothing that is not a number."""
    config = replace(settings(), plan=None) if "plan" in change else settings(**change)
    made = told(facts(steady()), 5100, config)

    assert fine(document(made))
    assert made.sentences or made.reasons
    if reason:
        assert reason in made.reasons[0]
        assert made.finish_us is None
    if change.get("tokens") == 1e15:
        assert "more than 20 years" in made.sentences[0]
        assert made.gpu_hours is None


def test_without_a_rate_and_without_a_planned_one_it_says_so() -> None:
    """No step, no peak: nothing to go by."""
    made = told(launched(), 50, settings(peak=None))

    assert made.basis == "none"
    assert "no rate" in made.reasons[0]
    assert forecast_section(made) == forecast_section(None)


def test_without_a_gpu_count_the_date_is_there_and_the_hours_are_not() -> None:
    """Absent with a reason, never zero."""
    log = Log().launch(resume=0, gpus=None).at(100).train(range(5, 501, 5), since=0)
    config = replace(settings(gpus=None), hardware=Hardware())
    made = told(facts(log), 5100, config)

    assert made.finish_us is not None
    assert made.gpu_hours is None
    assert any("GPU count is unknown" in text for text in made.reasons)


def test_without_tokens_it_names_what_would_tell_them() -> None:
    """The log has steps only, and the config no batch."""
    log = Log().launch(resume=0).at(100)
    for step in range(5, 101, 5):
        log.at(100 + 10 * step).line(step, 10.0, tokens_per_step=None)
    made = told(facts(log), 1100)

    assert made.basis == "none"
    assert "global_batch_size" in made.reasons[0]


@pytest.mark.slow
@hypothesis_settings(max_examples=25, deadline=None)
@given(
    at_s=st.floats(0, 60_000),
    tokens=st.floats(1.0, 1e18),
    ends=st.lists(st.integers(100, 20_000), max_size=3, unique=True),
)
def test_no_moment_and_no_target_makes_a_number_that_is_none(
    at_s: float, tokens: float, ends: list[int]
) -> None:
    """Whatever the state, the document is JSON without infinity, NaN or the year 9999."""
    logs = [steady()]
    for end in sorted(ends):
        logs.append(Log().at(5200 + end).launch(resume=100).at(5300 + end).train(range(105, 131, 5), 100))
    made = told(facts(*logs), at_s, settings(tokens=tokens))

    assert fine(document(made))
    json.dumps(document(made), allow_nan=False)


# -- nothing later leaks -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama_like", "rollback", "elastic", "finished", "ramp"])
def test_the_past_does_not_know_the_future(name: str) -> None:
    """With everything after the moment deleted the state is the same, and so is the forecast."""
    run = simulate(preset(name, seed=5))
    p = run.parameters
    config = Settings(
        run=name,
        model=Model(active_params=p.active_params, sequence_length=p.sequence_length),
        hardware=Hardware(gpus=p.gpus),
        plan=Plan(tokens=p.total_steps * p.batch * p.sequence_length, later_stages=0.0),
    )
    whole = facts_from(*observe(run))
    for share in (0.2, 0.45, 0.8):
        at_us = int(p.start_us + share * (run.now_us - p.start_us))
        then = facts_from(*observe(run, until_us=at_us))
        ours = [ask(Book(config), f, as_of_us=at_us) for f in (whole, then)]
        assert ours[0].state == ours[1].state
        assert ours[0].forecast == ours[1].forecast


def test_a_book_that_has_seen_more_says_the_same() -> None:
    """Asked about yesterday after today: as if asked yesterday."""
    made = facts(steady())
    book = Book(settings())
    ask(book, made, as_of_us=us(5100))

    assert ask(book, made, as_of_us=us(2000)).forecast == told(made, 2000)


# -- the state -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama_like", "rollback", "elastic", "ramp", "steady"])
def test_the_calendar_is_told_without_a_gap(name: str) -> None:
    """First start-up, work, overhead, stops and what is open sum to the calendar since the first launch."""
    run = simulate(preset(name, seed=2))
    config = Settings(run=name, model=Model(sequence_length=4096))
    made = facts_from(*observe(run))
    for share in (0.3, 0.6, 0.9):
        at_us = int(run.parameters.start_us + share * (run.now_us - run.parameters.start_us))
        book = Book(config)
        shot = snapshot(book, made, as_of_us=at_us)
        state = state_of(book, made, shot)
        opened = book.open(made, as_of_us=at_us)
        if not state.stretches or state.start_us is None:
            continue
        path = [opened.entries[i] for i in opened.lineage.path]
        first = next(e for e in path if e.closed.first_us is not None)
        net = sum(e.closed.productive_us for e in path) / 1e6
        overhead = sum(s.checkpoint_s + s.evaluation_s + s.other_s for s in state.stretches)
        stops = sum(s.wait_s + s.redo_s for s in state.stops)
        begun = ((first.closed.first_us or 0) - state.start_us) / 1e6
        last = [e for e in path if e.closed.first_us is not None][-1]
        lost_last = last.closed.lost_us / 1e6
        whole = begun + net + lost_last + overhead + stops + state.quiet_s
        assert whole == pytest.approx((at_us - state.start_us) / 1e6, rel=1e-6, abs=2)


def test_blocks_hold_all_work_and_all_tokens() -> None:
    """Whatever the rounding of the hours."""
    got = asked(rolled_back(), 5100)
    state, shot = got.state, got.snapshot

    assert sum(b.work_s for b in state.blocks) == pytest.approx(
        (shot.wall_us["productive"] + shot.wall_us["lost"]) / 1e6
    )
    assert sum(b.tokens for b in state.blocks) == pytest.approx(shot.tokens.processed)
    assert sum(b.net_tokens for b in state.blocks) == pytest.approx(shot.tokens.net)
    assert state.stops[0].redo_s == pytest.approx(3000, abs=50)


def test_readings_are_summed_by_time() -> None:
    """The last of each counter, the mean step time; what is later does not count."""
    made = bucketed(
        [
            Reading(0, T0, 5, 2_000_000, tokens=10),
            Reading(1, T0 + 10, 6, 4_000_000, tokens=12),
            Reading(2, T0 + 60_000_000, 7, None, tokens=14),
            Reading(3, T0 + 90_000_000, 8, 1),
        ],
        width_us=60_000_000,
        until_us=T0 + 60_000_000,
    )

    assert [(b.step, b.tokens, b.step_time_sum_us, b.step_time_count) for b in made] == [
        (6, 12, 6_000_000, 2),
        (7, 14, 0, 0),
    ]


# -- why it moved, and what if -------------------------------------------------------------------------


def slowed() -> ListFacts:
    log = steady(250)
    log.train(range(255, 401, 5), since=250, step_s=13.0)
    return facts(log)


def test_a_move_is_explained_in_parts_that_sum_to_it() -> None:
    """To the microsecond; the slower rate is the largest part."""
    made = asked(slowed(), 4500, since_s=2600).forecast
    move = made.move

    assert move is not None
    assert sum(part.us for part in move.parts) == move.us
    assert [part.name for part in move.parts] == [
        "progress", "tokens", "rate", "goodput", "plan", "start", "range",
    ]  # fmt: skip
    before = told(slowed(), 2600)
    assert made.finish_us is not None
    assert before.finish_us is not None
    assert move.us == round((made.finish_us.p50 or 0) - (before.finish_us.p50 or 0))
    by_name = {part.name: part.us for part in move.parts}
    assert by_name["rate"] > 0
    assert by_name["tokens"] == by_name["plan"] == 0


def test_waiting_for_the_start_is_not_progress_that_is_missing() -> None:
    """Forecast the day before the planned start, nothing was due by then; a late start is its own part."""
    config = settings(start=START + dt.timedelta(days=1))
    move = asked(no_launch(), 86_400 * 1.5, config, since_s=50).forecast.move

    assert move is not None
    by_name = {part.name: part.us / 3.6e9 for part in move.parts}
    assert move.us / 3.6e9 == pytest.approx(12, abs=0.5)
    assert by_name["progress"] + by_name["start"] == pytest.approx(12, abs=0.5)
    assert abs(by_name["range"]) < 0.5


def test_a_moved_target_is_its_own_part() -> None:
    """BLOOM's moved three times."""
    before = told(facts(steady()), 4000)
    now = asked(facts(steady()), 5100, settings(tokens=1.2e6))
    made = forecast(now.state, now.settings, earlier=before)

    assert made.move is not None
    by_name = {part.name: part.us for part in made.move.parts}
    assert by_name["tokens"] == pytest.approx(2000e6, rel=0.1)
    assert sum(by_name.values()) == made.move.us


def test_twice_the_gpus_take_half_the_time() -> None:
    """And the change has a spread of its own."""
    got = asked(facts(steady()), 5100)
    other = got.under({"gpus": "16"})

    assert other is not None
    assert other.change["days"].p50 == pytest.approx(-2500 / 86_400, rel=0.1)
    assert other.change["gpu_hours"].p50 == pytest.approx(0, abs=0.6)
    assert forecast_document("s", got.forecast, plan_finish_us=None, otherwise=other.forecast)["what_if"]


def test_a_choice_that_changes_nothing_moves_nothing() -> None:
    """Both are played with the same random numbers."""
    other = asked(facts(steady()), 5100).under({"mtbf_factor": "1"})

    assert other is not None
    assert (other.change["days"].p10, other.change["days"].p90) == (0, 0)


@pytest.mark.parametrize(
    ("pairs", "word"),
    [
        pytest.param({"gpu": "2048"}, "did you mean 'gpus'", id="an unknown choice names the nearest"),
        pytest.param({"gpus": "many"}, "above 0", id="no number"),
        pytest.param({"gpus": "-8"}, "above 0", id="below zero"),
        pytest.param({"gpus": "nan"}, "above 0", id="not a number"),
        pytest.param({"gpus": "8.5"}, "whole number", id="half a GPU"),
        pytest.param({"mfu": "42"}, "ratio", id="a percentage"),
        pytest.param({"mfu": "0.4"}, "MFU is known", id="an MFU without a known one"),
    ],
)
def test_bad_choices_are_named(pairs: dict[str, str], word: str) -> None:
    """With the value and what was expected."""
    with pytest.raises(InvalidValue, match=word):
        parse(pairs, mfu_now=None)


# -- replay and scores ---------------------------------------------------------------------------------


def summarise(book: Book, made: Any, at_us: int) -> Snapshot:
    return snapshot(book, made, as_of_us=at_us)


def test_a_finished_run_is_replayed_against_its_finish() -> None:
    """A steady one is forecast well from the first quarter on."""
    replay = backtest(settings(), finished(), summarise, as_of_us=us(20_000), moments=8)

    assert replay.finished
    assert replay.truth_us == pytest.approx(us(10_100), abs=1e6)
    assert len(replay.rows) == 8
    assert replay.score is not None
    assert replay.score.median_error < 0.02
    assert fine(backtest_document("story", replay))


def test_a_running_one_is_replayed_against_what_it_has_reached() -> None:
    """Whether or not there is a plan."""
    config = replace(settings(), plan=None)
    replay = backtest(config, facts(steady()), summarise, as_of_us=us(5100), moments=4)

    assert not replay.finished
    assert replay.target_tokens == 500 * STEP_TOKENS
    assert replay.truth_us == pytest.approx(us(5100), abs=1e6)


def test_without_progress_there_is_nothing_to_replay() -> None:
    """A sentence, not an empty table."""
    with pytest.raises(NoTruth, match="no step"):
        backtest(settings(), launched(), summarise, as_of_us=us(50))


def test_a_perfect_forecaster_scores_as_it_should() -> None:
    """Truths spread as the levels say: coverage is the level, pinball the textbook value of a uniform."""
    cases = [
        Scored(
            made_s=0.0,
            levels={q: q for q in (0.05, 0.25, 0.75, 0.95, *DECILES)},
            truth_s=(n + 0.5) / 1000,
            lines={"from_start": 0.5},
        )
        for n in range(1000)
    ]
    got = score(cases)

    assert got is not None
    assert got.coverage_80 == pytest.approx(0.8)
    assert got.coverage_50 == pytest.approx(0.5)
    assert got.worst_decile == pytest.approx(0)
    assert got.pinball == pytest.approx(sum(q * (1 - q) / 2 for q in DECILES) / 9, abs=1e-4)
    line = got.lines["from_start"]
    assert line.pinball == pytest.approx(0.125, abs=1e-4)
    assert line.pinball_with_range == pytest.approx(got.pinball, abs=1e-4)
    assert score([]) is None


def test_the_best_range_of_a_line_is_a_quantile_of_what_came() -> None:
    """With equal weights the plain one."""
    assert best_factor(0.5, [1.0] * 5, [1, 2, 3, 4, 5], [1.0] * 5) == 3


def test_history_is_a_fan() -> None:
    """One row a forecast, with all its levels."""
    kept = [told(facts(steady()), at) for at in (2000, 3000)]
    made = history_document("story", judged(kept, None))

    assert [len(f["levels"]) for f in made["forecasts"]] == [13, 13]
    assert fine(made)


def test_state_names_its_inputs() -> None:
    """Another state has another digest; the same one the same."""
    one, two = asked(facts(steady()), 5000).state, asked(facts(steady()), 5100).state

    assert isinstance(one, State)
    assert one.digest() != two.digest()
    assert two.digest() == asked(facts(steady()), 5100).state.digest()
    assert EXCLUDES


# -- readings that cannot be true ------------------------------------------------------------------------


def dated(*points: tuple[float, int], step_s: float = 10.0) -> ListFacts:
    """Return a log of a few readings (second, step) that print ten seconds a step."""
    log = Log().launch(resume=0)
    for at, step in points:
        log.at(at).line(step, step_s)
    return facts(log)


def test_a_reading_too_low_for_the_next_is_flagged_and_not_used() -> None:
    """At 3,000 s it says 100; at 6,000 s 500: 400 steps of ten seconds do not fit."""
    made = asked(dated((1100, 100), (2100, 200), (5000, 210), (6100, 500)), 6100)
    right = asked(dated((1100, 100), (2100, 200), (6100, 500)), 6100)

    (doubt,) = made.state.doubts
    assert doubt.startswith("step 210 at 2026-01-01 01:23 UTC cannot be true: from it to the next would be")
    assert made.forecast.flagged == (doubt,)
    assert any(doubt in text for text in made.snapshot.warnings)
    assert [b.end_us for b in made.state.blocks] == [b.end_us for b in right.state.blocks]
    assert made.state.done_tokens == right.state.done_tokens


def test_a_last_reading_too_high_for_those_before_is_flagged_and_not_used() -> None:
    """Its tokens are not done: the forecast goes on from the reading before it."""
    made = asked(dated((1100, 100), (2100, 200), (3100, 300), (4100, 900)), 4100)

    (doubt,) = made.state.doubts
    assert doubt.startswith("step 900 at 2026-01-01 01:08 UTC cannot be true: up to it")
    assert made.state.done_tokens == pytest.approx(300 * STEP_TOKENS)
    assert sum(b.net_tokens for b in made.state.blocks) == pytest.approx(300 * STEP_TOKENS)
    assert made.forecast.finish_us is not None
    assert (made.forecast.finish_us.p50 or 0) > us(4100 + 6000)


def test_a_printed_time_that_no_reading_fits_is_what_is_wrong() -> None:
    """In another unit it contradicts every line: none is doubted then."""
    made = asked(dated(*((100 + 1000 * n, 100 * n) for n in range(1, 12)), step_s=100.0), 12_000)

    assert made.state.doubts == ()


def test_batch_ramps_and_steady_logs_are_not_doubted() -> None:
    """Tokens decide, not steps."""
    for name in ("ramp", "llama_like", "rollback", "elastic", "steady"):
        run = simulate(preset(name, seed=3))
        config = Settings(run=name, model=Model(sequence_length=run.parameters.sequence_length))
        book, made = Book(config), facts_from(*observe(run))
        assert state_of(book, made, snapshot(book, made, as_of_us=int(run.now_us))).doubts == ()


@pytest.mark.parametrize(
    ("points", "wrong"),
    [
        pytest.param([(0, 0.0), (10, 10.0), (20, 20.0)], {}, id="as fast as can be"),
        pytest.param([(0, 0.0), (10, 3.0), (11, 12.0), (20, 20.0)], {1}, id="the earlier one is too low"),
        pytest.param([(0, 0.0), (10, 10.0), (11, 40.0), (20, 20.0)], {2}, id="the later one is too high"),
        pytest.param([(0, 0.0), (1, 40.0)], {1}, id="the start is believed"),
        pytest.param([], {}, id="nothing"),
    ],
)
def test_which_of_two_that_contradict_is_wrong(points: list[tuple[int, float]], wrong: Any) -> None:
    """Hours and tokens in units of what an hour can hold, half as much again being too much."""
    hour = 3_600_000_000
    made = [Point(at_us=at * hour, step=n + 1, tokens=tokens) for n, (at, tokens) in enumerate(points)]

    assert set(doubtful(made, Limits(printed_us=float(hour), peak_us=None))) == set(wrong)


# -- the target, the belief, the words ---------------------------------------------------------------------


def test_the_forecast_counts_to_the_plan_s_own_target() -> None:
    """The run behind its target still has the later stages that the plan's date holds."""
    made = told(facts(steady()), 5100, settings(tokens=4.8e5, later_stages=0.08))
    done = told(facts(steady()), 5100, settings(tokens=4e5, later_stages=0.08))  # 432,000 are through

    assert made.basis == "measured"
    assert made.inputs is not None
    assert made.inputs.target_tokens == pytest.approx(4.8e5 * 1.08)
    assert any("with the same 518K" in t or "518,400 tokens (later stages of 8%" in t for t in made.sentences)
    assert done.basis == "exact"


def test_a_run_that_fails_far_more_often_than_others_is_believed() -> None:
    """Thirty stops in a day of 8 GPUs: the belief of one in 40,000 GPU-hours hardly counts any more."""
    logs, at, step = [], 0.0, 0
    for _ in range(30):
        log = Log().at(at).launch(resume=step).at(at + 60)
        log.train(range(step + 5, step + 101, 5), since=step)
        logs.append(log)
        step += 100
        at += 60 + 1000 + 300
    made = told(facts(*logs), at - 290, settings(tokens=1e7))

    assert made.inputs is not None
    assert made.inputs.mtbf_gpu_hours == pytest.approx(8 * 1000 / 3600, rel=0.6)


def test_fewer_tokens_but_an_earlier_finish_is_explained() -> None:
    """Slow at first and fast since: what is to come outweighs what is missing."""
    log = Log().launch(resume=0).at(100).train(range(5, 101, 5), since=0, step_s=20.0)
    log.train(range(105, 401, 5), since=100, step_s=5.0)
    made = told(facts(log), log.now, settings(mfu=0.000095, goodput=1.0, attn_overhead=0.0))
    text = " ".join(made.sentences)

    assert made.days_behind_plan is not None
    assert made.days_behind_plan < 0
    assert "fewer tokens than planned after 0.0 days" in text
    assert "more than the plan's" in text


# -- forecasts that were kept ------------------------------------------------------------------------------


def test_kept_forecasts_are_judged_once_the_truth_is_known() -> None:
    """Error, whether the range held it, pinball; and how the middle moved, parts summing to it."""
    kept = [told(finished(), at) for at in (4000, 2000, 6000)]
    truth = Truth(finish_us=us(10_100), tokens=1e6, start_us=T0)
    open_, known = judged(kept, None), judged(kept, truth)

    assert [k.forecast.as_of_us for k in known.kept] == [us(2000), us(4000), us(6000)]
    assert open_.score is None
    assert {k.error_us for k in open_.kept} == {None}
    assert known.score is not None
    assert known.score.count == 3
    for n, k in enumerate(known.kept):
        middle = k.forecast.finish_us
        assert middle is not None
        assert k.error_us == pytest.approx((middle.p50 or 0) - us(10_100), abs=2e6)
        assert k.inside == ((middle.p10 or 0) <= us(10_100) <= (middle.p90 or 0))
        assert (k.pinball_us or -1) >= 0
        assert (k.move is None) == (n == 0)
        if k.move is not None:
            assert sum(part.us for part in k.move.parts) == k.move.us
    assert fine(history_document("story", known))


def test_a_forecast_for_another_target_is_not_judged() -> None:
    """It answered another question, and the table says so."""
    other = told(finished(), 4000, settings(tokens=2e6))
    found = judged([other], Truth(finish_us=us(10_100), tokens=1e6, start_us=T0))

    assert found.score is None
    assert found.kept[0].other_target
    assert found.kept[0].error_us is None


@pytest.mark.parametrize(("count", "most"), [(0, 5), (3, 5), (100, 5), (7, 1), (7, 0)])
def test_thinning_keeps_the_first_and_the_last(count: int, most: int) -> None:
    """And never more than asked for."""
    made = [Forecast(as_of_us=n, basis="none") for n in range(count)]
    some = thinned(made, most)

    assert len(some) == min(count, most)
    assert not some or some[-1] is made[-1]
    assert most < 2 or not some or some[0] is made[0]

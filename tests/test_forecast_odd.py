"""Forecasts of odd runs: long stalls, unpaid pauses, stages of other sizes, choices that change nothing."""

from __future__ import annotations

import datetime as dt
import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reports.forecast import forecast_pairs
from tests.core.story import Log, facts, row, us
from tests.factories import ListFacts
from tests.test_forecast import START, asked, failed_starts, rolled_back, settings, slowed, steady, told
from tracker.core.errors import InvalidValue
from tracker.core.forecast.change import Change
from tracker.core.forecast.choices import KEYS, LIMITS, parse
from tracker.core.forecast.model import play
from tracker.core.forecast.pace import rate_belief
from tracker.core.forecast.prior import DEFAULT
from tracker.core.forecast.state import StageLeft, State
from tracker.core.forecast.stops import counts
from tracker.core.forecast.value import Quantiles
from tracker.core.plan import PlanStage
from tracker.core.records import Kind
from tracker.core.settings import Reservation
from tracker.forecasting import Asked

YEAR_S = 365 * 86_400


@pytest.mark.parametrize("quiet_s", [3600, 30 * 86_400, 10 * YEAR_S], ids=["an hour", "a month", "ten years"])
def test_goodput_to_come_is_a_share_however_long_the_run_stands_still(quiet_s: float) -> None:
    """It counts from the next step on: what is left of the stop is told beside it."""
    made = told(facts(steady()), 5100 + quiet_s)

    assert made.inputs is not None
    assert 0.5 < made.inputs.goodput_ratio <= 1


def test_a_pause_without_an_allocation_costs_its_start_up_only() -> None:
    """Five days down are not paid: 700 steps of 10 s, a start-up and redone work on 8 GPUs are."""
    log = steady(300)
    log.at(3200).event(Kind.EXIT, end_kind="failed")
    got = asked(facts(log, rows=[row("1", 0, 3200)]), 432_000)

    assert got.state.phase == "down"
    assert got.forecast.gpu_hours is not None
    spent, work_s = 8 * 3200 / 3600, 7000
    assert got.forecast.gpu_hours.p50 == pytest.approx(spent + 8 * (work_s + 1200) / 3600, rel=0.25)


def test_a_hang_that_holds_its_gpus_is_paid() -> None:
    """The attempt runs: what stands still is allocated."""
    got = asked(facts(steady()), 432_000)

    assert got.state.phase == "stalled"
    assert got.forecast.gpu_hours is not None
    assert (got.forecast.gpu_hours.p50 or 0) > 8 * 432_000 / 3600


def two_stages(second: int) -> State:
    state = asked(facts(steady()), 5100).state
    one = StageLeft(name="one", tokens=1e9, cost_factor=1.0, gpus=None, current=True)
    two = StageLeft(name="two", tokens=1e10, cost_factor=1.0, gpus=second, current=False)
    return replace(state, stages=(one, two))


def test_a_stage_on_more_gpus_fails_as_often_as_its_gpus_do() -> None:
    """The same GPU-hours of work take the same number of stops, whatever the number of GPUs."""
    by_chance = replace(DEFAULT, planned_days=1e9)  # planned stops come by the calendar
    few, many = (play(two_stages(gpus), plan_rate=None, priors=by_chance) for gpus in (8, 800))

    stops = [float(p.drivers["stops"].mean()) / (p.stop_s or math.nan) for p in (few, many)]
    assert stops[1] == pytest.approx(stops[0], rel=0.2)
    assert many.wall_s.mean() < 0.3 * few.wall_s.mean()


def changed(got: Asked, **choice: str) -> tuple[Quantiles, Quantiles]:
    other = got.under(choice)
    assert other is not None
    return other.change["days"], other.change["gpu_hours"]


def test_the_present_gpus_change_nothing_where_spares_are_held() -> None:
    """8 of 10 allocated GPUs train: asking for 8 is asking for what is."""
    got = asked(facts(steady()), 5100)
    got = replace(got, state=replace(got.state, gpus=10))

    for what in changed(got, gpus="8"):
        assert (what.p10, what.p50, what.p90) == (0, 0, 0)


def test_more_gpus_need_a_larger_reservation() -> None:
    """Ten reserved GPUs do not hold 80: those are paid, and the change is that of the two totals."""
    config = replace(settings(), billing="reservation", reservation=Reservation(gpus=10))
    got = asked(facts(steady()), 5100, config)
    other = got.under({"gpus": "80"})

    assert other is not None
    assert other.forecast.finish_us is not None
    assert got.state.spent_gpu_hours is not None
    assert other.forecast.gpu_hours is not None
    ahead_h = ((other.forecast.finish_us.p50 or 0) - got.state.as_of_us) / 3.6e9
    assert other.forecast.gpu_hours.p50 == pytest.approx(got.state.spent_gpu_hours + 80 * ahead_h, rel=1e-6)
    now = got.forecast.gpu_hours
    assert now is not None
    expected = (other.forecast.gpu_hours.p50 or 0) - (now.p50 or 0)
    assert other.change["gpu_hours"].p50 == pytest.approx(expected, abs=1.0)


@pytest.mark.parametrize("key", sorted(KEYS))
def test_a_choice_that_nobody_can_mean_names_its_limits(key: str) -> None:
    """A billion minutes, a thousandth of a second: no answer in millions of years."""
    low, high = LIMITS[key]
    for value in (low / 10, high * 10):
        with pytest.raises(InvalidValue, match=f"--what-if {key}"):
            parse({key: str(value)}, mfu_now=0.4)
    parse({key: str(low)}, mfu_now=0.4)
    parse({key: str(high)}, mfu_now=0.4)


def test_a_range_without_an_end_is_said_in_words() -> None:
    """Never "between a day and not in sight"."""
    made = told(facts(steady()), 5100 + 10 * YEAR_S)

    assert made.finish_us is not None
    assert made.finish_us.p90 is None
    assert "takes over 20 years" in made.sentences[0]
    assert "not in sight" not in made.sentences[0]


def test_a_target_that_is_passed_costs_what_it_had_taken_by_then() -> None:
    """The run goes on: its hours, money and energy after the target are not the target's."""
    early, late = (asked(facts(steady()), at, settings(tokens=2e5)) for at in (2101, 5100))

    for got in (early, late):
        made = got.forecast
        assert made.basis == "exact"
        assert made.finish_us == Quantiles.exact(us(2100))
        assert made.gpu_hours is not None
        assert made.gpu_hours.p50 == pytest.approx(8 * 2100 / 3600)
        assert made.cost is not None
        assert made.cost.p50 == pytest.approx(2 * 8 * 2100 / 3600)
        assert "by then" in made.sentences[0]
    assert late.snapshot.gpu_us is not None
    assert late.snapshot.gpu_us["allocated"] == 8 * 5_100_000_000


@pytest.mark.parametrize(("deadline_s", "word"), [(3000, "Done before"), (2000, "Done after")])
def test_a_limit_is_kept_or_not_once_the_finish_is_known(deadline_s: int, word: str) -> None:
    """No probability is told of what is past."""
    limit = START + dt.timedelta(seconds=deadline_s)
    made = told(facts(steady()), 5100, settings(tokens=2e5, deadline=limit, budget=5.0))

    assert any(text.startswith(f"{word} the deadline") for text in made.sentences)
    assert any(text.startswith("Over the budget of 5") for text in made.sentences)
    assert not any("probability" in text for text in made.sentences)


def test_one_reading_is_not_yet_a_pace() -> None:
    """A first step compiles: the plan is believed, and it says so; without a planned rate too."""
    one, two = (told(facts(steady()), at) for at in (160, 210))
    bare = told(facts(steady()), 160, settings(peak=None))

    assert one.basis == "plan"
    assert "one reading tells no rate yet" in one.sentences[0]
    assert any("planned MFU" in text for text in one.assumptions)
    assert two.basis == "measured"
    assert bare.basis == "measured"
    assert any("rests on one reading, of 50 s" in text for text in bare.sentences)


def test_launches_that_reached_no_step_are_counted_in_words() -> None:
    """Also while the run is down."""
    made = asked(failed_starts(), 3000)

    assert made.snapshot.state == "down"
    assert "None of 4 attempts has reached a step yet." in made.forecast.sentences


def test_a_launch_that_fails_before_a_step_is_part_of_the_stop_before_it() -> None:
    """Its calendar and its GPUs are in that stop's cost, once; it is no stop of its own."""
    before = steady(300).at(3200).event(Kind.EXIT, end_kind="failed")
    failed = Log().at(3500).launch(resume=300).at(3700).event(Kind.EXIT, end_kind="failed")
    after = Log().at(4000).launch(resume=300).at(4100).train(range(305, 501, 5), since=300)
    rows = [row("1", 0, 3200), row("2", 3500, 3700), row("3", 4000, None)]
    state = asked(facts(before, failed, after, rows=rows), after.now).state

    (stop,) = state.stops
    assert state.attempts == 3
    assert stop.wait_s == pytest.approx(4100 - 3100)
    assert stop.billed_s == pytest.approx((3200 - 3100) + 200 + 100)


# -- the same luck under another choice ------------------------------------------------------------------


def frail() -> Asked:
    """Return a run that stops about hourly, asked with as much before it as behind it."""
    logs, at, step = [], 0.0, 0
    for number in range(12):
        log = Log().at(at).launch(resume=step).at(at + 60)
        log.train(range(step + 5, step + 301, 5), since=step)
        logs.append(log)
        step += 300
        at += 60 + 3000 + 300 + 60 * (number % 4)
    return asked(facts(*logs), at - 400, settings(tokens=7.2e6))


def spread(values: Any) -> float:
    low, high = np.quantile(values, (0.1, 0.9))
    return float(high - low)


@pytest.mark.parametrize("choice", [{"restart_min": "2"}, {"checkpoint_interval_min": "10"}, {"gpus": "16"}])
def test_both_sides_of_a_choice_have_the_same_luck(choice: dict[str, str]) -> None:
    """The spread of the difference is the choice's own, far below that of two forecasts drawn apart."""
    got = frail()
    other = got.under(choice)
    assert other is not None
    change = parse(choice, mfu_now=None)
    now = play(got.state, plan_rate=None).wall_s
    then = play(replace(got.state, run="another"), plan_rate=None, change=change).wall_s

    paired = other.change["days"]
    assert paired.p10 is not None
    assert paired.p90 is not None
    assert paired.p90 - paired.p10 < 0.4 * spread((then - now) / 86_400)


def test_a_cheaper_restart_never_costs_time() -> None:
    """In no play: the same stops come, each is shorter."""
    got = frail()
    now, then = (play(got.state, plan_rate=None, change=c).wall_s for c in (None, Change(restart_s=60.0)))

    assert (then <= now + 1e-6).all()
    assert (then < now).mean() > 0.9


@pytest.mark.parametrize("expected", [0.0, 0.3, 5.0, 29.0, 31.0, 400.0])
@pytest.mark.parametrize("bunching", [1.0, 1.4, 6.0])
def test_counts_are_bunched_and_grow_with_what_is_expected(expected: float, bunching: float) -> None:
    """Mean and variance of 4,000 of them; more expected is never fewer of them in the same play."""
    made, more = (
        counts(np.random.default_rng(1), np, np.full(4000, m), bunching) for m in (expected, 1.1 * expected)
    )

    assert made.mean() == pytest.approx(expected, rel=0.01, abs=0.01)
    assert made.var() == pytest.approx(bunching * expected, rel=0.06, abs=0.01)
    assert (more >= made).all()
    assert (made == np.rint(made)).all()


# -- a warm-up -----------------------------------------------------------------------------------------------


def ramped(rises: int) -> State:
    """Return the state of a run whose first steps took twice as long, sooner and sooner less."""
    log, step = Log().launch(resume=0).at(100), 0
    for piece in range(48):
        share = min(1.0, piece / rises) if rises else 1.0
        log.train(range(step + 5, step + 21, 5), since=step, step_s=20.0 - 10.0 * share)
        step += 20
    return asked(facts(log), log.now, settings(tokens=5e6)).state


def test_a_warm_up_that_is_over_makes_no_range_wide() -> None:
    """A ramp in the first quarter is a level since then; one that still rises is no level yet."""
    none, over, rising = (rate_belief(ramped(rises), None, DEFAULT) for rises in (0, 12, 48))

    assert over.mean == pytest.approx(none.mean, abs=0.005)
    assert over.sd < 1.1 * none.sd
    assert rising.sd > 1.5 * over.sd


def test_another_number_of_gpus_is_a_doubt_of_the_change() -> None:
    """Nobody knows how a run scales: twice the GPUs have a wider spread than a few more have."""
    got = frail()
    little, much = (changed(got, gpus=gpus)[0] for gpus in ("9", "16"))

    for change in (little, much):
        assert change.p10 is not None
        assert change.p90 is not None
        assert change.p90 < 0
    assert (much.p90 or 0) - (much.p10 or 0) > 3 * ((little.p90 or 0) - (little.p10 or 0))


# -- later stages on top of the planned tokens ---------------------------------------------------------------


def test_the_finish_never_jumps_back_when_the_planned_tokens_are_trained() -> None:
    """8 % of 400,000 tokens, 32 more steps, are expected on top: the target is reached with them."""
    config = settings(tokens=4e5, later_stages=0.08)
    before, between, after = (asked(facts(steady()), at, config).forecast for at in (4090, 4150, 5100))

    for made in (before, between):
        assert made.basis == "measured"
        assert made.finish_us is not None
        assert (made.finish_us.p10 or 0) < us(4420 + 60)
        assert (made.finish_us.p90 or 0) > us(4420 - 60)
    assert after.finish_us == Quantiles.exact(us(4420))
    assert any("later stages, 8% (assumed), are expected on top until" in t for t in between.sentences)
    assert any("plan.later_stages = 0" in t for t in between.sentences)
    assert not any("planned tokens were trained" in t for t in before.sentences)
    assert "(400,000 tokens, and 8% for later stages)" in after.sentences[0]


def test_a_run_that_says_it_is_done_before_its_later_stages_is_told_what_it_lacks() -> None:
    """It finished; what the forecasts before it expected on top is named."""
    log = steady()
    log.event(Kind.COMPLETED)
    rows = [row("1", 0, log.now + 5, state="COMPLETED")]
    made = asked(facts(log, rows=rows), 20_000, settings(tokens=5e5, later_stages=0.08)).forecast

    assert made.finish_us == Quantiles.exact(us(5100))
    assert made.sentences[0].startswith("Finished on")
    assert "later stages, 8% (assumed), are not part of it" in made.sentences[1]


# -- launch after launch that brings nothing -----------------------------------------------------------------


def looping(launches: int, *, last: int = 110) -> ListFacts:
    """Return a run that saved at step 100, and of which each launch since died ten steps later."""
    logs = [Log().launch(resume=0).at(100).train(range(5, 111, 5), since=0)]
    for number in range(launches):
        log = Log().at(1400 + 300 * number).launch(resume=100).at(1500 + 300 * number)
        logs.append(log.train(range(105, (last if number == launches - 1 else 110) + 1, 5), since=100))
    for number, log in enumerate(logs):
        log.at(1250 + 300 * number).event(Kind.EXIT, end_kind="failed")
    rows = [row(str(n), log.now - 250 if n else 0, log.now) for n, log in enumerate(logs)]
    return facts(*logs, rows=rows)


@pytest.mark.parametrize(
    ("made", "says"),
    [
        pytest.param(looping(6), "The last 6 launches", id="each dies where the one before died"),
        pytest.param(failed_starts(), "The last 4 launches", id="none reaches a step"),
        pytest.param(looping(2), "", id="two in a row happen"),
        pytest.param(looping(6, last=115), "", id="the last one came further"),
        pytest.param(facts(steady()), "", id="no stop at all"),
    ],
)
def test_a_crash_loop_is_said_before_anything_else(made: ListFacts, says: str) -> None:
    """The forecast knows no end of it: next to the finish it says what it believes, and so does status."""
    got = asked(made, 3300)

    assert got.forecast.warning.startswith(says)
    assert bool(got.forecast.warning) == bool(says)
    assert (got.forecast.sentences[1] == got.forecast.warning) == bool(says)
    assert (got.forecast.warning in got.snapshot.warnings) == bool(says)


def test_launches_inside_a_stop_are_named_beside_the_rate_of_stops() -> None:
    """Status counts six stops where the forecast counts one: the row says why."""
    got = asked(looping(6), 3300)
    (row_,) = [text for name, text in forecast_pairs(got.snapshot, got.forecast) if name == "counts on"]

    assert sum(1 for stop in got.state.stops if not stop.planned) == 1
    assert got.forecast.inputs is not None
    assert got.forecast.inputs.merged_launches == 5
    assert "5 launches that kept no step are part of the stop before" in row_
    assert "of the calendar productive" in row_
    (plain,) = [
        text
        for name, text in forecast_pairs(asked(facts(steady()), 5100).snapshot, told(facts(steady()), 5100))
        if name == "counts on"
    ]
    assert "launch" not in plain


# -- the plan alone ------------------------------------------------------------------------------------------


def test_before_the_first_step_each_stage_goes_at_its_own_planned_rate() -> None:
    """No plan.mfu is given: the default one is nobody's. The middle is near the day that the plan says."""
    stages = (
        PlanStage(name="pre", tokens=5e8, mfu=0.0104),
        PlanStage(name="long", tokens=2.5e8, mfu=0.0052),
        PlanStage(name="anneal", tokens=2.5e8, mfu=0.0208),
    )
    plan: dict[str, Any] = {"tokens": None, "stages": stages, "goodput": 1.0}
    got = asked(facts(), -3600, settings(**plan))
    made = got.forecast

    assert made.basis == "plan"
    assert made.finish_us is not None
    assert got.snapshot.plan_finish_us is not None
    length = got.snapshot.plan_finish_us - us(0)
    assert (made.finish_us.p50 or 0) - us(0) == pytest.approx(length, rel=0.1)
    assert any("planned MFU 0.0104 (of stage pre)" in text for text in made.assumptions)
    choice = got.under({"mfu": "0.0104"})
    assert choice is not None
    assert choice.change["days"].p50 == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("mfu", [0.35, 0.00002], ids=["far slower than planned", "far faster than planned"])
def test_one_reading_far_from_the_plan_is_told_and_the_range_reaches_it(mfu: float) -> None:
    """The middle is the plan's, as before; that the first reading says something else is no secret."""
    got = asked(facts(steady()), 160, settings(tokens=1e8, mfu=mfu))
    made = got.forecast

    assert made.basis == "plan"
    assert made.finish_us is not None
    line = made.lines_us["step_rate"]
    slow = line > (made.finish_us.p50 or 0)
    assert slow == (mfu == 0.35)
    near, far = (made.finish_us.p10, made.finish_us.p90) if slow else (made.finish_us.p90, made.finish_us.p10)
    assert far is not None
    assert near is not None
    now = us(160)
    assert math.log((far - now) / (line - now)) == pytest.approx(0, abs=0.25)
    assert abs(math.log((near - now) / ((made.finish_us.p50 or 0) - now))) < 0.5
    assert made.warning == made.sentences[1]
    assert "The one reading so far runs at 100 tokens a second" in made.warning
    assert "too little to believe yet" in made.warning


def test_one_reading_near_the_plan_changes_nothing() -> None:
    """What the plan's own range holds is no surprise."""
    got = asked(facts(steady()), 160, settings(tokens=1e8, mfu=0.0000948, attn_overhead=0.0))

    assert got.forecast.basis == "plan"
    assert got.forecast.warning == ""


# -- words ---------------------------------------------------------------------------------------------------


def test_fewer_tokens_than_expected_are_told_as_that() -> None:
    """The run that slowed: what came is less than what was expected, and that is later."""
    made = asked(slowed(), 4500, since_s=2600).forecast
    assert made.move is not None
    part = next(p for p in made.move.parts if p.name == "progress")
    came, expected = (
        float(text.replace(",", "")) for text in re.findall(r"([\d,]+) (?:tokens came|were)", part.why)
    )

    assert part.us > 0
    assert came < expected


def test_steps_that_were_thrown_away_are_no_tokens_that_came() -> None:
    """A rollback from 400 to 100."""
    made = asked(rolled_back(), 4700, since_s=4200).forecast
    assert made.move is not None
    (part,) = [p for p in made.move.parts if p.name == "progress"]

    assert "tokens were thrown away" in part.why


@pytest.mark.parametrize("kind", ["running", "finished"])
def test_a_run_on_plan_is_said_to_be_on_plan(kind: str) -> None:
    """No "0.0 days behind", no "0% fewer", and nothing to catch up by +0%."""
    log = Log().launch(resume=0).at(10).train(range(5, 501, 5), since=0)
    if kind == "finished":
        log.event(Kind.COMPLETED)
    plan = dt.timedelta(seconds=10_060 if kind == "running" else 5010)
    tokens = 1e6 if kind == "running" else 5e5
    mfu = tokens * 6e9 / (8 * 989e12 * plan.total_seconds())
    config = settings(mfu=mfu, goodput=1.0, attn_overhead=0.0, tokens=tokens)
    made = told(facts(log), log.now, config)
    text = " ".join(made.sentences)

    assert made.days_behind_plan == pytest.approx(0, abs=40 / 86_400)
    assert "On plan" in text
    assert "0.0 days" not in text.replace("after 0.0 days", "")
    assert " 0%" not in text
    assert "catch up, +0%" not in text


def test_a_run_that_ended_short_of_its_target_did_not_finish_early() -> None:
    """Half of the tokens: no finish is set beside the plan's."""
    log = Log().launch(resume=0).at(10).train(range(5, 501, 5), since=0)
    log.event(Kind.COMPLETED)
    made = told(facts(log), log.now, settings(tokens=1e6))

    assert made.sentences[0].endswith("at 50% of its target.")
    assert made.sentences[0].startswith("Ended on")
    assert made.days_behind_plan is None
    assert "plan, which" not in " ".join(made.sentences)


def test_a_finished_run_is_set_beside_the_plan_for_its_tokens() -> None:
    """Later stages that were not trained here do not make it early: an hour late is an hour late."""
    log = Log().launch(resume=0).at(10).train(range(5, 501, 5), since=0)
    log.event(Kind.COMPLETED)
    mfu = 5e5 * 6e9 / (8 * 989e12 * (5010 - 3600))
    config = settings(mfu=mfu, goodput=1.0, attn_overhead=0.0, tokens=5e5, later_stages=0.5)
    made = told(facts(log), log.now, config)

    assert made.days_behind_plan == pytest.approx(1 / 24, abs=40 / 86_400)
    assert any(
        text.startswith("1.0 hours after the plan, which has these tokens by") for text in made.sentences
    )


def test_a_range_within_a_minute_is_said_as_that() -> None:
    """Never "between 03:49 and 03:49"."""
    made = told(facts(steady()), 5100, settings(tokens=5.005e5))

    assert made.finish_us is not None
    assert made.sentences[0].startswith("Expected to be done at")
    assert "within that minute" in made.sentences[0]

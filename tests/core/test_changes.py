"""Changes of pace: planted ones are found where they are, and what only looks like one is not named."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from tests.core.run_story import H100, planned
from tests.core.story import EXCLUDES, Log, facts, settings, us
from tests.core.test_book import eventful, told
from tests.factories import ListFacts
from tracker.core.book import Book
from tracker.core.changes import Change, Changes, changes
from tracker.core.cusum import KEPT, STEADY, Cusum
from tracker.core.records import Flag, Kind
from tracker.core.summary import snapshot

HOUR = 3600.0


@dataclass
class Job:
    """A log that is written with noise; every call goes on from where the last one ended."""

    seed: int = 1
    noise: float = 0.01
    log: Log = field(default_factory=Log)
    step: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    def run(self, hours: float, step_s: float = 10.0, *, every: int = 6, **more: Any) -> Job:
        """Train for some hours, a line each `every` steps."""
        end = self.log.now + hours * HOUR
        while self.log.now < end:
            took = round(step_s * self.chance.lognormvariate(0, self.noise), 6)
            self.log.now += took * every
            self.step += every
            self.log.line(self.step, took, **more)
        return self

    @property
    def now(self) -> float:
        return self.log.now


def begun(seed: int = 1, noise: float = 0.01, **said: Any) -> Job:
    """A job that has just started its first step."""
    return Job(seed, noise, Log().launch(resume=0, **said).at(100).event(Kind.TRAIN_START))


def told_at(made: ListFacts, as_of: float, **more: Any) -> Changes:
    """Return the changes as of a second after T0."""
    book = Book(settings(hardware=H100, plan=planned(), **more))
    one = snapshot(book, made, as_of_us=us(as_of))
    return changes(book.open(made, as_of_us=us(as_of)), made, one)


def found(*jobs: Job, as_of: float | None = None) -> tuple[Change, ...]:
    """Return the changes that some logs show."""
    logs = [job.log for job in jobs]
    return told_at(facts(*logs), jobs[-1].now + 1 if as_of is None else as_of).changes


@pytest.mark.parametrize("seed", range(8))
def test_a_slower_pace_is_found_where_it_began(seed: int) -> None:
    """Five per cent slower after eight hours: when, from what, to what, and what it cost."""
    job = begun(seed).run(8)
    at = job.now
    job.run(6, 10.5)

    (change,) = found(job)

    assert change.sort == "slower"
    assert change.earliest_us <= us(at) <= change.latest_us
    assert abs(change.at_us - us(at)) <= 600e6
    assert change.ratio == pytest.approx(1.05, abs=0.006)
    assert change.step_time_before_s == pytest.approx(10.0, rel=0.005)
    assert change.step_time_after_s == pytest.approx(10.5, rel=0.005)
    assert change.mfu_before_ratio is not None
    assert change.mfu_after_ratio is not None
    assert change.mfu_before_ratio / change.mfu_after_ratio == pytest.approx(change.ratio, rel=1e-3)
    assert change.ended_us is None
    assert change.gpu_hours == pytest.approx(6 * 8 * (1 - 1 / 1.05), rel=0.15)
    assert "slow node or a degraded link" in change.hint
    assert change.evidence == ("no restart and no sign of trouble within ten minutes of it",)


@pytest.mark.parametrize("every", [1, 6, 30])
def test_a_drop_of_five_per_cent_is_seen_within_an_hour(every: int) -> None:
    """Asked an hour after it, with a line each 10 s, a minute or five minutes."""
    job = begun(noise=0.015).run(10, every=every)
    at = job.now
    job.run(1.02, 10 / 0.95, every=every)

    (change,) = found(job, as_of=at + HOUR)

    assert change.sort == "slower"
    assert change.seen_us <= us(at + HOUR)


@pytest.mark.parametrize("seed", range(6))
def test_a_steady_run_has_no_change(seed: int) -> None:
    """Four days with noise, wiggles of a day and single slow lines."""
    job = begun(seed, 0.02)
    for hour in range(96):
        wiggle = 1 + 0.01 * (abs(hour % 24 - 12) / 6 - 1)
        job.run(1, 10 * wiggle, every=30)
        if job.chance.random() < 0.3:
            job.run(0.01, 60.0, every=1)

    assert found(job) == ()


def test_a_pace_that_comes_back_ends_the_change_and_its_cost() -> None:
    """Slower for three hours: two changes; the first ended and cost three hours' worth."""
    job = begun().run(6).run(3, 11.0)
    back = job.now
    job.run(6)

    slower, faster = found(job)

    assert (slower.sort, faster.sort) == ("slower", "faster")
    assert slower.ended_us is not None
    assert abs(slower.ended_us - us(back)) <= 600e6
    assert slower.gpu_hours == pytest.approx(3 * 8 * (1 - 1 / 1.1), rel=0.1)
    assert faster.gpu_hours is not None
    assert faster.gpu_hours < 0
    assert told_at(facts(job.log), job.now + 1).slower_open == 0


def test_slower_twice_costs_each_its_own_part() -> None:
    """10 -> 11 -> 12 s: the first goes on to cost 1 s a step, the second costs the other."""
    job = begun(noise=0.003).run(6).run(3, 11.0).run(3, 12.0)

    one, other = found(job)

    first = 3 * 8 * (1 - 10 / 11) + 3 * 8 * (1 - 10 / 11)
    assert one.gpu_hours == pytest.approx(first, rel=0.05)
    assert other.gpu_hours == pytest.approx(3 * 8 * (1 - 11 / 12), rel=0.1)
    now = told_at(facts(job.log), job.now + 1)
    assert now.pace_ratio == pytest.approx(1.2, rel=0.01)
    assert now.slower_open == 2
    assert now.gpu_hours == pytest.approx((one.gpu_hours or 0) + (other.gpu_hours or 0))


def test_another_gpu_count_is_no_slow_down() -> None:
    """16 GPUs, then 8: twice the step time, named as another operating point, without a cost."""
    one = begun(gpus=16).run(6)
    log = Log(now=one.now + 300).launch(resume=one.step, gpus=8).at(one.now + 400)
    two = Job(2, 0.01, log.event(Kind.TRAIN_START), one.step).run(6, 20.0)

    (change,) = told_at(facts(one.log, two.log), two.now + 1).changes

    assert change.sort == "operating_point"
    assert change.what == ("gpus 16 -> 8",)
    assert change.gpu_hours is None
    assert change.ratio == pytest.approx(2, rel=0.05)


def test_another_sequence_length_is_no_slow_down() -> None:
    """Context extension changes what a step is."""
    one = begun(sequence_length=1000).run(4)
    log = Log(now=one.now + 300).launch(resume=one.step, sequence_length=4000).at(one.now + 400)
    two = Job(2, 0.01, log.event(Kind.TRAIN_START), one.step).run(4, 55.0, every=1, tokens_per_step=4000)

    (change,) = found(one, two)

    assert change.sort == "operating_point"
    assert set(change.what) == {"sequence_length 1000 -> 4000", "batch 1000 -> 4000"}


def test_a_ramp_of_the_batch_is_one_change() -> None:
    """Eight batches in two hours, then steady: one entry from the first to the last."""
    job = begun()
    for size in range(1, 9):
        job.run(0.25, 4.0 * size**0.8, every=3, tokens_per_step=size * 250)
    job.run(5, 4.0 * 8**0.8, tokens_per_step=2000)

    (change,) = found(job)

    assert change.what == ("batch 250 -> 2000",)
    assert "ramp" in change.hint


def test_two_operating_points_by_turns_keep_their_own_levels() -> None:
    """Back on 16 GPUs and 8 % slower than before on 16: that is named."""
    jobs = [begun(gpus=16).run(5)]
    for gpus, step_s in ((8, 20.0), (16, 10.8)):
        last = jobs[-1]
        log = Log(now=last.now + 300).launch(resume=last.step, gpus=gpus).at(last.now + 400)
        jobs.append(Job(gpus, 0.01, log.event(Kind.TRAIN_START), last.step).run(5, step_s))

    named = found(*jobs)

    assert [c.sort for c in named] == ["operating_point", "operating_point", "slower"]
    assert named[-1].evidence[0].startswith("attempt 3 began there")
    assert named[-1].ratio == pytest.approx(1.08, rel=0.01)


def test_a_restart_on_a_slow_node_says_that_a_restart_was_there() -> None:
    """The same operating point, 6 % slower from the new launch on."""
    one = begun().run(6)
    log = Log(now=one.now + 300).launch(resume=one.step).at(one.now + 400).event(Kind.TRAIN_START)
    two = Job(2, 0.01, log, one.step).run(4, 10.6)

    (change,) = found(one, two)

    assert change.attempt == 2
    assert change.evidence == ("attempt 2 began there: it may run on other nodes",)
    assert "node list" in change.hint


def test_signs_of_trouble_beside_a_change_are_counted_by_cause() -> None:
    """A thermal message at the moment: the hint points to it."""
    job = begun().run(6)
    job.log.event(Kind.FAILURE, cause="gpu_thermal", confidence=0.5, text="HW Slowdown")
    job.run(4, 10.7)

    (change,) = found(job)

    assert change.evidence == ("log lines that tell of gpu_thermal within ten minutes of it: 1",)
    assert "The lines above" in change.hint


@pytest.mark.parametrize("flag", [Flag.STEP_TIME_EXCLUDES, Flag.STEP_TIME_INCLUDES])
def test_saves_and_evaluations_are_no_changes(flag: Flag) -> None:
    """A save of a minute each half hour and an evaluation of ten minutes each four hours."""
    job = begun(noise=0.01)
    for half in range(96):
        job.run(0.5, flags=int(flag))
        bucket = (Kind.EVAL_START, Kind.EVAL_END) if half % 8 == 7 else (Kind.SAVE_START, Kind.SAVE_END)
        length = 600 if half % 8 == 7 else 60
        job.log.event(bucket[0], step=job.step).at(job.now + length).event(bucket[1], step=job.step)
        if flag is Flag.STEP_TIME_INCLUDES:
            job.log.now += 60.0
            job.step += 6
            job.log.line(job.step, (60.0 + length) / 6, flags=int(flag))

    assert found(job) == ()


def test_a_start_that_compiles_is_no_change() -> None:
    """The first line of each launch is twenty times as slow."""
    jobs: list[Job] = []
    for number in range(6):
        start, step = (jobs[-1].now + 60, jobs[-1].step) if jobs else (0.0, 0)
        log = Log(now=start).launch(resume=step).at(start + 100).event(Kind.TRAIN_START)
        jobs.append(Job(number, 0.01, log, step).run(0.01, 200.0, every=1).run(5))

    assert found(*jobs) == ()


@pytest.mark.parametrize("seed", range(4))
def test_what_was_named_stays_named(seed: int) -> None:
    """As of later moments the same changes stand with the same time; new ones come after."""
    job = begun(seed).run(5).run(3, 10.7).run(4).run(3, 9.2)
    made = facts(job.log)
    before: list[tuple[str, int, int, int]] = []
    for hour in range(1, 16):
        named = told_at(made, 100 + hour * HOUR).changes
        now = [(str(c.sort), c.at_us, c.earliest_us, c.seen_us) for c in named]
        assert now[: len(before)] == before
        assert all(c.seen_us <= us(100 + hour * HOUR) for c in named)
        before = now
    assert len(before) == 3


@pytest.mark.parametrize("seed", range(8))
def test_the_past_does_not_know_the_future(seed: int) -> None:
    """As of any moment, all facts give the changes of the facts of that moment."""
    logs, rows = eventful(seed)
    end = max(r[2] or 0 for r in rows)
    for part in range(1, 6):
        moment = end * part / 6

        assert told_at(told(logs, rows, end), moment) == told_at(told(logs, rows, moment), moment)


def test_an_unknown_gpu_count_leaves_the_cost_unknown() -> None:
    """The change is named; what it cost is not zero but unknown."""
    job = Job(1, 0.01, Log().launch(resume=0, gpus=None).at(100).event(Kind.TRAIN_START)).run(6).run(3, 11.0)
    book = Book(settings(hardware=type(H100)()))
    made = facts(job.log)
    one = snapshot(book, made, as_of_us=us(job.now))

    (change,) = changes(book.open(made, as_of_us=us(job.now)), made, one).changes

    assert change.sort == "slower"
    assert change.gpu_hours is None
    assert change.mfu_before_ratio is None


def test_no_reading_no_change() -> None:
    """An empty run has no pace."""
    now = told_at(facts(Log().launch(resume=0)), 1000)

    assert now == Changes()
    assert EXCLUDES


# -- the watch alone ----------------------------------------------------------------------------------


@given(
    values=st.lists(st.floats(-0.02, 0.02), min_size=20, max_size=400),
    wild=st.lists(st.floats(-20, 20), max_size=6),
    scale=st.floats(-5, 5),
)
@limits(max_examples=60, deadline=None)
def test_single_wild_values_never_make_a_shift(values: list[float], wild: list[float], scale: float) -> None:
    """Within two per cent of a level, with single outliers of any size far apart: nothing is named."""
    watch = Cusum()
    for number, value in enumerate(values):
        assert watch.feed(scale + value) is None
        if number % 60 == 59 and wild:
            assert watch.feed(scale + wild.pop()) is None


@given(st.integers(20, 300), st.floats(0.05, 3.0), st.sampled_from([-1, 1]))
@limits(max_examples=80, deadline=None)
def test_a_shift_without_noise_is_found_at_its_value(count: int, size: float, sign: int) -> None:
    """Whatever its size and length of the past: the first value of the new level."""
    watch = Cusum()
    for _ in range(count):
        assert watch.feed(1.0) is None
    named = [shift for _ in range(12) if (shift := watch.feed(1.0 + sign * size)) is not None]

    assert [(s.at, s.first, s.last) for s in named] == [(count, count, count)]
    assert named[0].before == pytest.approx(1.0)
    assert named[0].after == pytest.approx(1.0 + sign * size)


@given(st.lists(st.floats(-0.2, 0.2), min_size=30, max_size=200), st.floats(-4, 4))
@limits(max_examples=60, deadline=None)
def test_the_unit_of_time_does_not_matter(values: list[float], move: float) -> None:
    """Milliseconds or seconds: the same shifts at the same places."""
    one, other = Cusum(), Cusum()
    grid = [round(value * 1024) / 1024 for value in values]
    move = round(move * 4) / 4
    a = [s.at for v in grid if (s := one.feed(v)) is not None]
    b = [s.at for v in grid if (s := other.feed(v + move)) is not None]

    assert a == b


def shaken(chance: random.Random, spikes: float) -> float:
    """A cell's value of a steady run, where some cells hold a slow step."""
    return chance.gauss(0, 0.005) + (0.045 if chance.random() < spikes else 0.0)


@pytest.mark.parametrize("seed", range(12))
def test_slow_steps_do_not_hide_a_shift_of_a_steady_run(seed: int) -> None:
    """One cell in twelve holds a step that took four times as long: 5 % are named within an hour."""
    chance = random.Random(seed)
    watch = Cusum()
    for _ in range(400):
        assert watch.feed(shaken(chance, 1 / 12)) is None
    named = [s for _ in range(11) if (s := watch.feed(0.05 + shaken(chance, 1 / 12))) is not None]

    assert len(named) == 1
    assert named[0].after == pytest.approx(0.05, abs=0.01)
    assert abs(named[0].at - 400) <= 3


@pytest.mark.parametrize(
    ("wave", "found"), [(0.005, True), (0.017, False)], ids=["a steady run", "a run that wanders"]
)
def test_an_hour_that_is_off_counts_where_hours_are_steady(wave: float, found: bool) -> None:
    """Nine cells 3.8 % off: too little for the sum, plain for the hour's median, and nothing special in a
    run whose hours wander by more than a per cent."""
    chance = random.Random(1)
    watch = Cusum()
    for number in range(600):
        value = wave * math.sin(2 * math.pi * number / 288) + chance.gauss(0, 0.002)
        assert watch.feed(value) is None
    assert watch.shaken is not None
    assert (watch.shaken <= STEADY) == found
    named = [s for _ in range(9) if (s := watch.feed(watch.middle + 0.038)) is not None]

    assert bool(named) == found


def test_steady_is_said_only_of_a_whole_day() -> None:
    """Until then an hour is not compared with others."""
    watch = Cusum()
    for number in range(KEPT - 1):
        watch.feed(0.001 * (number % 3))
        assert watch.shaken is None
    for number in range(12):
        watch.feed(0.001 * (number % 3))

    assert watch.shaken == pytest.approx(0.0, abs=1e-9)

"""Series for figures: bounded, in order, and their sums are the ledger's."""

from __future__ import annotations

import pytest

from tests.core.run_story import H100, planned
from tests.core.story import Log, facts, row, settings, us
from tests.core.test_book import eventful, told
from tests.factories import ListFacts
from tracker.core.book import Book
from tracker.core.cells import CELL_US, cells
from tracker.core.records import Kind
from tracker.core.series import Series, series, width_for
from tracker.core.summary import snapshot


def drawn(made: ListFacts, as_of: float, *, most: int = 600) -> Series:
    """Return the series at a second after T0."""
    book = Book(settings(hardware=H100, plan=planned()))
    one = snapshot(book, made, as_of_us=us(as_of))
    return series(book.open(made, as_of_us=us(as_of)), made, one, most=most)


def test_a_run_of_no_reading_has_no_point() -> None:
    """Nothing to draw is an empty series."""
    assert drawn(facts(Log().launch(resume=0)), 50).points == ()


def test_one_steady_attempt_is_flat() -> None:
    """Two hours at 10 s a step: every point says 10 s, the tokens rise by their steps."""
    log = Log().launch(resume=0).at(100).event(Kind.TRAIN_START).train(range(5, 721, 5), 0)

    points = drawn(facts(log), 7300).points

    assert {round(p.step_time_s or 0, 6) for p in points} == {10.0}
    assert points[-1].tokens_net == 720_000
    assert {p.attempt for p in points} == {1}
    assert {(p.gpus, p.world) for p in points} == {(8, 8)}
    assert points[0].mfu_ratio == pytest.approx(6e9 * 1000 / (10 * 8 * 989e12))


def test_saves_and_evaluations_mark_their_points_only() -> None:
    """A point says that a save fell into it; the step time keeps out of it."""
    log = Log().launch(resume=0).at(0).event(Kind.TRAIN_START).train(range(10, 101, 10), 0)
    log.event(Kind.SAVE_START, step=100).at(log.now + 60).event(Kind.SAVE_END, step=100)
    log.train(range(110, 201, 10), 100)

    points = drawn(facts(log), 2200, most=30).points

    assert sum(p.checkpoint for p in points) in (1, 2)
    assert not any(p.evaluation for p in points)
    assert {round(p.step_time_s or 0, 3) for p in points} == {10.0}


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("most", [20, 600])
def test_points_are_bounded_ordered_and_sum_to_the_ledger(seed: int, most: int) -> None:
    """For any run: tokens end at the snapshot's, work is productive and lost time, lost steps are lost."""
    logs, rows = eventful(seed)
    end = max(r[2] or 0 for r in rows)
    made = told(logs, rows, end)
    book = Book(settings(hardware=H100, plan=planned()))
    one = snapshot(book, made, as_of_us=us(end))

    found = series(book.open(made, as_of_us=us(end)), made, one, most=most)

    points = found.points
    assert len(points) <= most
    assert [p.at_us for p in points] == sorted(p.at_us for p in points)
    work = (one.wall_us["productive"] + one.wall_us["lost"]) / 1e6
    assert sum(p.work_s for p in points) == pytest.approx(work)
    assert points[-1].tokens_net == pytest.approx((one.tokens.net or 0) + (one.tokens.inherited or 0))
    assert sum(p.steps for p in points) == one.steps.processed
    lost = sum(line.steps_lost for line in one.attempts)
    assert sum(p.steps * p.lost_ratio for p in points) == pytest.approx(lost)


@pytest.mark.parametrize("seed", range(10))
def test_the_past_does_not_know_the_future(seed: int) -> None:
    """As of any moment, all facts give the series of the facts of that moment."""
    logs, rows = eventful(seed)
    end = max(r[2] or 0 for r in rows)
    for part in range(1, 8):
        moment = end * part / 8

        assert drawn(told(logs, rows, end), moment) == drawn(told(logs, rows, moment), moment)


def test_a_log_without_a_clock_is_drawn_by_its_step_times() -> None:
    """The printed step times are its clock; the points are spread over the work."""
    log = Log().launch(resume=0).train(range(10, 1001, 10), 0, stamp=False)
    made = facts(log.records, rows=[row("1", 0, 10_100)], written_us=us(10_100))

    points = drawn(made, 10_200).points

    assert len(points) > 50
    assert points[-1].tokens_net == 1_000_000


def test_no_batch_and_no_length_means_no_tokens_and_no_mfu() -> None:
    """What the log does not say is not drawn; the step time is."""
    log = Log().launch(resume=0).at(0).train(range(10, 101, 10), 0, tokens_per_step=None)

    points = drawn(facts(log), 1000).points

    assert {p.tokens_net for p in points} == {None}
    assert {p.mfu_ratio for p in points} == {None}
    assert points[0].step_time_s == pytest.approx(10)


def test_cells_of_a_log_are_those_of_its_parts() -> None:
    """A file rotated in the middle gives the work and steps of the whole."""
    log = Log().launch(resume=0).at(0).train(range(10, 1001, 10), 0)
    book = Book(settings(hardware=H100))
    whole = facts(log)
    one = snapshot(book, whole, as_of_us=us(10_000))

    found = cells(book.open(whole, as_of_us=us(10_000)), whole, one)

    assert sum(c.steps for c in found) == 1000
    assert all(c.until_us - c.from_us <= 2 * CELL_US for c in found)
    assert width_for(book.open(whole, as_of_us=us(10_000))) == 30_000_000

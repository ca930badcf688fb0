"""Many readings folded in one go: the state that one after the other gives, to the last field."""

from __future__ import annotations

import random

import pytest

from tracker.core.fold import Fold, Frame
from tracker.core.fold_many import take
from tracker.core.records import Flag, Reading

T0 = 1_767_225_600_000_000
USUAL = int(Flag.STEP_TIME_EXCLUDES)


def readings(seed: int, count: int, gap_s: float) -> list[Reading]:
    """Usual readings, and some that are not: late ones, without a stamp or tokens, repeated, odd flags."""
    chance = random.Random(seed)
    made, at, step, offset = [], T0, 100, 0
    for _ in range(count):
        steps = chance.choice((1, 1, 10, 0)) if chance.random() < 0.01 else 10
        step += steps
        offset += 80
        at += round(gap_s * chance.choice((0.99, 1.0, 1.01, 3.0)) * 1e6)
        if chance.random() < 0.005:
            at -= 5_000_000
        made.append(
            Reading(
                offset=offset,
                at_us=None if chance.random() < 0.003 else at // 1_000_000 * 1_000_000,
                step=step,
                step_time_us=None if chance.random() < 0.003 else round(gap_s * 1e5),
                samples=None if chance.random() < 0.003 else step * 64,
                batch=64 if chance.random() < 0.1 else None,
                skipped=int(chance.random() < 0.05),
                flags=USUAL
                | (int(Flag.WHOLE_SECOND) if seed % 2 else 0)
                | (int(Flag.NAN) if chance.random() < 0.003 else 0),
                reported_flop_per_s=chance.choice((None, 4e14)),
            )
        )
    return made


@pytest.mark.parametrize("gap_s", [0.4, 15.0, 90.0, 7200.0], ids=lambda gap: f"a line each {gap} s")
@pytest.mark.parametrize("cut", [None, 5_000], ids=["no cut", "a cut in the middle"])
@pytest.mark.parametrize("seed", range(4))
def test_in_one_go_and_one_by_one_are_the_same_state(seed: int, cut: int | None, gap_s: float) -> None:
    """Whatever is not usual is left to the long way; what was taken is told."""
    frame = Frame(start_us=T0 - 60_000_000, resume_step=100, cut=cut, resume_tokens=100 * 64 * 32,
                  sequence_length=32)  # fmt: skip
    rows = readings(seed, 1000 if gap_s < 60 else 2500, gap_s)
    one, many = Fold(frame=frame), Fold(frame=frame)
    place = in_one_go = 0
    while place < len(rows):
        block = rows[place : place + 700]
        odometers = take(many, block)
        for reading, odometer in zip(block, odometers, strict=False):
            one.reading(reading)
            assert one.odometer == odometer
        place += len(odometers)
        in_one_go += len(odometers)
        if len(odometers) > 50:
            assert one.to_json() == many.to_json()
        if len(odometers) < len(block):
            one.reading(rows[place])
            many.reading(rows[place])
            place += 1
    assert one.to_json() == many.to_json()
    assert in_one_go > (200 if cut is not None else len(rows) / 2), "the short way was gone"

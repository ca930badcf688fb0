"""Lines dated in the future: said, with the likelier of two reasons."""

from __future__ import annotations

import pytest

from tests.factories import ListFacts
from tracker.core.clocks import Arrivals, ahead
from tracker.core.records import Reading

NOW_US = 1_770_000_000_000_000


def facts(*leads_s: float, source: int = 0) -> ListFacts:
    """One file whose lines are dated so many seconds after now."""
    made = ListFacts()
    made.add(
        [
            Reading(offset=number, at_us=NOW_US + int(lead * 1e6), step=number + 1)
            for number, lead in enumerate(leads_s)
        ],
        source=source,
    )
    return made


@pytest.mark.parametrize(
    ("lead_s", "words"),
    [
        pytest.param(3_600, ("1 h 00 min", "zone"), id="an-hour-is-a-zone"),
        pytest.param(19_800, ("5 h 30 min", "zone"), id="so-are-five-and-a-half"),
        pytest.param(7_199, ("1 h 59 min", "zone"), id="the-newest-line-is-a-little-old"),
        pytest.param(400, ("400 s", "compare its node's clock"), id="minutes-are-a-clock"),
        pytest.param(90_000 * 30, ("compare its node's clock",), id="so-are-days"),
    ],
)
def test_it_is_said_with_its_likely_reason(lead_s: float, words: tuple[str, ...]) -> None:
    (found,) = ahead(facts(-600, lead_s).streams(), NOW_US)
    assert all(word in found.sentence for word in words)
    assert found.sentence.startswith("source 1: ")


def test_seconds_between_nodes_are_no_news() -> None:
    assert ahead(facts(-5, 59).streams(), NOW_US) == []


def test_nothing_stamped_is_no_news() -> None:
    assert ahead(ListFacts().streams(), NOW_US) == []


def looks(*lags_s: float, followed: bool = True) -> list[str]:
    """What is said after looks a minute apart, at each of which a new line is so many seconds late."""
    arrivals, said = Arrivals(), []
    for number, lag in enumerate((lags_s[0], *lags_s)):
        now_us = NOW_US + number * 60_000_000
        streams = facts(number * 60 - lag).streams()
        said = [one.sentence for one in arrivals.look(streams, now_us, followed=followed)]
    return said


@pytest.mark.parametrize(
    ("lags_s", "words"),
    [
        pytest.param((3600, 3610, 3590, 3601), ("3590 s", "zone"), id="an-hour-each-time-is-a-zone"),
        pytest.param((420, 425, 419, 440), ("419 s", "compare"), id="seven-minutes-each-time-are-a-clock"),
    ],
)
def test_lines_that_come_late_by_as_much_each_time_are_said(
    lags_s: tuple[float, ...], words: tuple[str, ...]
) -> None:
    """A clock that is behind this machine's, or a zone that is another."""
    (sentence,) = looks(*lags_s)
    assert all(word in sentence for word in words)


@pytest.mark.parametrize(
    "lags_s",
    [
        pytest.param((2, 1, 3, 2, 4), id="lines-that-come-as-they-are-written"),
        pytest.param((900, 60, 500, 1500, 20), id="a-buffer-that-is-written-when-it-is-full"),
        pytest.param((3600, 3600, 3600), id="too-few-to-tell"),
    ],
)
def test_lines_that_wait_in_a_buffer_are_no_news(lags_s: tuple[float, ...]) -> None:
    assert looks(*lags_s) == []


def test_what_is_read_after_a_pause_tells_nothing_of_clocks() -> None:
    """Nobody knows when it came."""
    assert looks(3600, 3600, 3600, 3600, 3600, followed=False) == []

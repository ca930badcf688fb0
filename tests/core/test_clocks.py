"""Lines dated in the future: said, with the likelier of two reasons."""

from __future__ import annotations

import pytest

from tests.factories import ListFacts
from tracker.core.clocks import ahead
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

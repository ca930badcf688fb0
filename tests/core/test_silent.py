"""An attempt that counts as running and has been silent for a day is told, with what to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.test_exporter import NOON_US, attempt
from tracker.core.ledger import AttemptLine
from tracker.core.silent import SILENT_US, silent

LAST_US = NOON_US - 20_000_000
NEVER = replace(attempt(), progress_us=None)
ENDED = replace(attempt(), running=False, end_us=NOON_US)


@pytest.mark.parametrize(
    ("line", "as_of_us", "words"),
    [
        pytest.param(attempt(), LAST_US + SILENT_US, "", id="for-a-day-it-is-only-stalled"),
        pytest.param(attempt(), LAST_US + SILENT_US + 1, "are tail", id="after-a-day-it-may-be-history"),
        pytest.param(
            NEVER, LAST_US + SILENT_US, "are startup", id="one-that-never-logged-counts-from-its-start"
        ),
        pytest.param(ENDED, LAST_US + 100 * SILENT_US, "", id="one-that-ended-may-be-silent"),
    ],
)
def test_who_counts_as_running_and_says_nothing_is_told(line: AttemptLine, as_of_us: int, words: str) -> None:
    """It costs GPU-hours that perhaps nobody used."""
    found = silent([line], as_of_us)

    assert bool(found) == bool(words)
    assert all(words in sentence for sentence in found)


def test_the_remedy_takes_the_last_sign_of_progress_in() -> None:
    """The moment named is not before it, and the sentence stays the same from day to day."""
    (found,) = silent([replace(attempt(), progress_us=1_767_600_001_000_000)], 2_000_000_000_000_000)
    (later,) = silent([replace(attempt(), progress_us=1_767_600_001_000_000)], 2_100_000_000_000_000)

    assert "since 2026-01-05T08:00:01Z" in found
    assert "set run.until = 2026-01-05T08:01:00Z" in found
    assert later == found

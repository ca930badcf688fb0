"""What became of reports and letters, as it is asked for: by the page, the doctor, the next report.

Edge: SQL, on a store that is only read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tracker.store.reader import Reader

REPORTS: Final = """
    SELECT kind, day, zone, as_of_us, state, attempts, begun_us, not_before_us, made_us, problem, files
      FROM report
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRow:
    """One day of one schedule."""

    kind: str
    day: str
    zone: str
    as_of_us: int
    state: str
    """"making", "made" or "failed"."""
    attempts: int
    begun_us: int
    not_before_us: int
    made_us: int | None
    problem: str
    """Why the last try failed, or what was left out of a made one; empty where nothing."""
    files: tuple[str, ...]
    """Names of the documents, in the report's folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelState:
    """One channel of the outbox at a moment."""

    channel: str
    queued: int = 0
    """Those being sent included."""
    sent: int = 0
    dead: int = 0
    oldest_us: int | None = None
    """When the one that waits longest was queued; None where none waits."""
    next_us: int | None = None
    """When the next try is due; None where none waits."""
    last_sent_us: int | None = None
    failures: Mapping[str, int] = field(default_factory=dict)
    """Failed tries over the life of the store, by reason."""
    problem: str = ""
    """What the latest failure said, where something waits or was given up lately; else empty. Of a mail that
    was given up, with its recipient."""


def report_rows(reader: Reader, *, since_day: str = "") -> list[ReportRow]:
    """Return the reports of a day and later, in order of time."""
    found = reader._all(f"{REPORTS} WHERE day >= ? ORDER BY as_of_us, kind", (since_day,))
    return [as_report(row) for row in found]


def report_failures(reader: Reader, *, since_us: int, until_us: int) -> list[ReportRow]:
    """Return the reports of [since, until) that failed, or were made with something left out.

    What an earlier moment's report came to does not change any more: so a report may tell of it.
    """
    found = reader._all(
        f"{REPORTS} WHERE problem <> '' AND as_of_us >= ? AND as_of_us < ? ORDER BY as_of_us, kind",
        (since_us, until_us),
    )
    return [as_report(row) for row in found]


def given_up(reader: Reader, *, since_us: int, until_us: int) -> list[tuple[str, str, str]]:
    """Return (channel, recipient, error) of letters that were given up in [since, until)."""
    found = reader._all(
        """
        SELECT channel, recipient, error FROM outbox
         WHERE state = 'dead' AND tried_us >= ? AND tried_us < ? ORDER BY tried_us, channel, recipient
        """,
        (since_us, until_us),
    )
    return [(row[0], row[1], row[2]) for row in found]


def outbox_state(reader: Reader, *, lately_us: int) -> list[ChannelState]:
    """Return every channel that ever had a letter; what was given up before `lately_us` is only counted."""
    with reader.snapshot():
        found = reader._all(
            """
            SELECT channel, sum(state IN ('queued', 'sending')), sum(state = 'sent'), sum(state = 'dead'),
                   min(CASE WHEN state IN ('queued', 'sending') THEN queued_us END),
                   min(CASE WHEN state IN ('queued', 'sending') THEN not_before_us END), max(sent_us)
              FROM outbox GROUP BY channel ORDER BY channel
            """
        )
        failures: dict[str, dict[str, int]] = {}
        for channel, reason, tries in reader._all("SELECT channel, reason, tries FROM outbox_failure"):
            failures.setdefault(channel, {})[reason] = tries
        problems = dict(
            reader._all(
                """
                SELECT channel, CASE WHEN state = 'dead' AND channel = 'mail'
                                     THEN 'not to ' || recipient || ': ' || error ELSE error END
                  FROM outbox
                 WHERE error <> '' AND (state IN ('queued', 'sending') OR state = 'dead' AND tried_us > ?)
                 ORDER BY tried_us
                """,
                (lately_us,),
            )
        )
    return [
        ChannelState(
            channel=row[0],
            queued=row[1],
            sent=row[2],
            dead=row[3],
            oldest_us=row[4],
            next_us=row[5],
            last_sent_us=row[6],
            failures=failures.get(row[0], {}),
            problem=problems.get(row[0], ""),
        )
        for row in found
    ]


def as_report(row: Sequence[object]) -> ReportRow:
    """Return a row of `REPORTS`."""
    names = ReportRow.__dataclass_fields__
    values = dict(zip(names, row, strict=True))
    values["files"] = tuple(json.loads(str(row[10])))
    return ReportRow(**values)  # type: ignore[arg-type]  # the columns are typed by the schema

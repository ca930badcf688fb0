"""A run told in a few words, as records: what tests of the ledger start from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.factories import ListFacts
from tracker.core.book import Book, Marks
from tracker.core.records import Event, Flag, Json, Kind, Reading, SchedulerRow
from tracker.core.settings import Hardware, Model, Settings
from tracker.core.snapshot import Snapshot
from tracker.core.summary import snapshot

S = 1_000_000
T0 = 1_767_225_600 * S
SEQUENCE = 1000
PEAK = 989e12
EXCLUDES = int(Flag.STEP_TIME_EXCLUDES)


@dataclass
class Log:
    """One file being written. `now` is in seconds since T0; every call stands for one line."""

    now: float = 0.0
    records: list[Reading | Event] = field(default_factory=list)

    def _offset(self) -> int:
        return 100 * len(self.records)

    def at(self, second: float) -> Log:
        """Move the clock."""
        self.now = second
        return self

    def event(
        self, kind: Kind, *, step: int | None = None, duration_s: float | None = None, stamp: bool = True,
        text: str = "", **data: Json,
    ) -> Log:  # fmt: skip
        """Write an event line."""
        self.records.append(
            Event(
                offset=self._offset(),
                kind=kind,
                at_us=us(self.now) if stamp else None,
                step=step,
                duration_us=None if duration_s is None else round(duration_s * S),
                text=text,
                data=data,
            )
        )
        return self

    def launch(self, *, resume: int | None = None, gpus: int | None = 8, **settings: Json) -> Log:
        """Write a start-up banner, and where it resumes."""
        self.event(Kind.LAUNCH)
        if gpus is not None:
            settings["gpus"] = gpus
        if settings:
            self.event(Kind.SETTING, **settings)
        if resume is not None:
            self.event(Kind.RESUME, step=resume)
        return self

    def line(
        self,
        step: int,
        step_s: float | None = 10.0,
        *,
        flags: int = EXCLUDES,
        stamp: bool = True,
        **more: Any,
    ) -> Log:
        """Write a reading as the clock stands."""
        more.setdefault("tokens_per_step", SEQUENCE)
        self.records.append(
            Reading(
                offset=self._offset(),
                at_us=us(self.now) if stamp else None,
                step=step,
                step_time_us=None if step_s is None else round(step_s * S),
                flags=flags,
                **more,
            )
        )
        return self

    def train(self, steps: Iterable[int], since: int, step_s: float = 10.0, **more: Any) -> Log:
        """Run from step `since` on and write a line at each of `steps`."""
        for step in steps:
            self.now += (step - since) * step_s
            self.line(step, step_s, **more)
            since = step
        return self


def us(second: float) -> int:
    """Return a second after T0 as microseconds."""
    return T0 + round(second * S)


def row(
    job_id: str,
    start: float,
    end: float | None,
    *,
    gpus: int | None = 8,
    state: str = "",
    name: str = "train",
) -> SchedulerRow:
    """Return a scheduler row in seconds after T0."""
    state = state or ("RUNNING" if end is None else "FAILED")
    return SchedulerRow(
        job_id=job_id,
        start_us=us(start),
        end_us=None if end is None else us(end),
        gpus=gpus,
        state=state,
        name=name,
    )


def settings(**changes: Any) -> Settings:
    """Return the settings of a 1B dense model on 8 H100."""
    base: dict[str, Any] = {
        "run": "story",
        "model": Model(active_params=1e9, sequence_length=SEQUENCE),
        "hardware": Hardware(peak_flop_per_s=PEAK, gpus=8),
    }
    return Settings(**{**base, **changes})


def facts(*logs: Log | list[Reading | Event], rows: Iterable[SchedulerRow] = (), **more: Any) -> ListFacts:
    """Return the facts of some files and scheduler rows."""
    made = ListFacts()
    for number, log in enumerate(logs):
        records = log.records if isinstance(log, Log) else log
        made.add(records, file_name=f"log-{number}.txt", **more)
    made.rows = sorted(rows, key=lambda r: (r.start_us, r.job_id))
    return made


def tell(made: ListFacts, as_of: float, *, marks: Marks | None = None, **changes: Any) -> Snapshot:
    """Return the snapshot at a second after T0."""
    return snapshot(Book(settings(**changes), marks=marks), made, as_of_us=us(as_of))


def seconds(snapshot: Snapshot, attempt: int | None = None) -> dict[str, float]:
    """Return wall seconds by bucket, those above zero, of one attempt or of all."""
    wall = snapshot.wall_us if attempt is None else snapshot.attempts[attempt - 1].wall_us
    return {name: value / S for name, value in wall.items() if value}

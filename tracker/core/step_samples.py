"""What a run did step by step: a sample at each reading, a column for each figure. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, cast


class StepSample(NamedTuple):
    """What a snapshot as of a reading says step by step; None: unknown."""

    at_us: int
    """The first whole millisecond at which the reading is known."""
    step: int | None
    tokens_net: int | None
    tokens_processed: int | None
    step_time_s: float | None


@dataclass(slots=True)
class StepSamples:
    """Many of them, a list for each of their fields; no moment twice, in order."""

    at_us: list[int] = field(default_factory=list)
    steps: list[int | None] = field(default_factory=list)
    tokens_net: list[int | None] = field(default_factory=list)
    tokens_processed: list[int | None] = field(default_factory=list)
    step_times_s: list[float | None] = field(default_factory=list)

    def __len__(self) -> int:
        """Return how many."""
        return len(self.at_us)

    def __iter__(self) -> Iterator[StepSample]:
        """Yield them one by one."""
        return map(StepSample, *self.columns())

    def columns(self) -> tuple[list[int], ...]:
        """Return the lists, in the order of the fields of a `StepSample`."""
        return cast(
            "tuple[list[int], ...]",
            (self.at_us, self.steps, self.tokens_net, self.tokens_processed, self.step_times_s),
        )

    def append(self, sample: StepSample) -> None:
        """Add one; it takes the place of one of the same moment."""
        columns = self.columns()
        if self.at_us and self.at_us[-1] == sample.at_us:
            for column in columns:
                column.pop()
        for column, value in zip(columns, sample, strict=True):
            column.append(cast("int", value))

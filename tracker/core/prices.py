"""What GPU-hours cost: a price that may change from a date on, in a named currency.

Pure. A price list is a step function of time; hours spent over a span are spread evenly in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from tracker.core._checks import not_negative
from tracker.core.errors import InvalidValue

EXCLUDED = (
    "Published costs are hours times an assumed rent. They leave out research and ablations, "
    "failed runs before the final one, data, people, storage and network, and idle reservations."
)
"""What a figure such as DeepSeek-V3's 5.576 million dollars does not contain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceStep:
    """A price of one GPU-hour that holds from a moment on."""

    gpu_hour_price: float
    """Money per GPU-hour, 0 or more."""
    since: datetime | None = None
    """First moment it holds, with a zone; None for the start of time."""

    def __post_init__(self) -> None:
        not_negative("gpu_hour_price", self.gpu_hour_price, "a price of 0 or more per GPU-hour")
        if self.since is not None and self.since.tzinfo is None:
            raise InvalidValue("price.from", self.since, "a time with a zone", "Write 2026-01-05T00:00:00Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Price steps in order of time, with their currency."""

    steps: tuple[PriceStep, ...]
    """By time, the first from the start of time or from its own date; never empty."""
    currency: str = "USD"
    """A label printed beside every amount; nothing is converted."""

    def __post_init__(self) -> None:
        if not self.steps:
            raise InvalidValue("prices", (), "at least one price")
        if any(step.since is None for step in self.steps[1:]):
            raise InvalidValue("price.from", None, "a date on every price but the first")
        dated = [step.since for step in self.steps if step.since is not None]
        if any(a >= b for a, b in pairwise(dated)):
            raise InvalidValue("prices", [str(d) for d in dated], "dates in ascending order")

    @classmethod
    def flat(cls, gpu_hour_price: float, *, currency: str = "USD") -> Prices:
        """Return a price that never changes."""
        return cls(steps=(PriceStep(gpu_hour_price=gpu_hour_price),), currency=currency)

    @property
    def is_flat(self) -> bool:
        """Whether one price holds throughout."""
        return len({step.gpu_hour_price for step in self.steps}) == 1

    def at(self, moment: datetime) -> float:
        """Return the price of a GPU-hour at a moment; before the first date the first holds."""
        price = self.steps[0].gpu_hour_price
        for step in self.steps:
            if step.since is None or step.since <= moment:
                price = step.gpu_hour_price
        return price

    def cost(
        self, gpu_hours: float, *, start: datetime | None = None, end: datetime | None = None
    ) -> float | None:
        """Return the money for GPU-hours spread evenly over [start, end).

        None when the price changes and the span is unknown: then no figure is honest.

        >>> Prices.flat(2.0).cost(2_788_000)
        5576000.0
        """
        if self.is_flat:
            return gpu_hours * self.steps[0].gpu_hour_price
        if start is None or end is None:
            return None
        if end <= start:
            return gpu_hours * self.at(start)
        inner = [s.since for s in self.steps if s.since is not None and start < s.since < end]
        edges = [start, *inner, end]
        whole = (end - start).total_seconds()
        return sum(gpu_hours * ((b - a).total_seconds() / whole) * self.at(a) for a, b in pairwise(edges))

    def cost_of_spans(self, spans: Iterable[tuple[datetime, datetime, float]]) -> float:
        """Return the money for (start, end, GPU-hours) spans, as a ledger's attempts are."""
        return sum(self.cost(hours, start=a, end=b) or 0.0 for a, b, hours in spans)


def cost_per_trillion_tokens(*, gpu_hours_per_trillion_tokens: float, gpu_hour_price: float) -> float:
    """Return money per 1e12 tokens.

    >>> cost_per_trillion_tokens(gpu_hours_per_trillion_tokens=180_000, gpu_hour_price=2.0)
    360000.0
    """
    return gpu_hours_per_trillion_tokens * gpu_hour_price

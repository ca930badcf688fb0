"""What a person says about an interruption, kept beside what its evidence says; neither replaces the other.

Pure. A correction belongs to an attempt, by a name that no reading of the logs changes: the content of the
file that it is told in and where it begins there, or its allocation. Corrections are appended, never
altered: of several, the last one counts, and one that says nothing takes the others back. What was said
after a moment is not known at that moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tracker.core.errors import InvalidValue, nearest
from tracker.core.records import CAUSES

KINDS: Final = ("planned", "unexpected")


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """One thing that a person said."""

    attempt: str
    """Name of the attempt that ended, by `overlay.name_of`."""
    at_us: int
    """When it ended, as far as was known then."""
    made_us: int
    by: str
    """Who said it."""
    note: str
    """Why, in their words."""
    cause: str | None = None
    """One of records.CAUSES; None: as judged."""
    kind: str | None = None
    """"planned" or "unexpected"; None: as the cause has it, else as judged."""
    manual: bool | None = None
    """Whether a person had to act; None: not said."""

    def __post_init__(self) -> None:
        if self.cause is not None and self.cause not in CAUSES:
            raise InvalidValue(
                "cause", self.cause, f"one of {', '.join(CAUSES)}", nearest(self.cause, CAUSES)
            )
        if self.kind is not None and self.kind not in KINDS:
            raise InvalidValue("kind", self.kind, f"one of {', '.join(KINDS)}", nearest(self.kind, KINDS))
        for name in ("by", "note"):
            if not getattr(self, name).strip():
                raise InvalidValue(name, getattr(self, name), "a text that is not empty")

    @property
    def withdraws(self) -> bool:
        """Tell whether it only takes back what was said before."""
        return self.cause is None and self.kind is None and self.manual is None

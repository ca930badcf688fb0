"""What a user can cause or fix, in finished sentences.

Pure. Every class here is shown to a person as it is: a message names the thing, the value it had,
what was expected, and what to do. Bugs are not in here; they trace back.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class TrackerError(Exception):
    """Something a user can cause or fix; the command line prints it without a traceback."""


class InvalidValue(TrackerError, ValueError):
    """A value is outside what its name allows."""

    def __init__(self, name: str, value: object, expected: str, remedy: str = "") -> None:
        text = f"{name} = {shown(value)}: expected {expected}"
        super().__init__(f"{text}. {remedy}" if remedy else text)
        self.name = name
        self.value = value
        self.expected = expected
        self.remedy = remedy


def shown(value: object, limit: int = 120) -> str:
    """Return a value as one bounded, printable line, for use inside a message."""
    text = repr(value)
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``did you mean 'x'?`` for a misspelt name, or an empty string.

    >>> nearest("gpsu", ["gpus", "name"])
    "did you mean 'gpus'?"
    """
    match = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return f"did you mean {match[0]!r}?" if match else ""

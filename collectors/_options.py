"""What a source's own options may say, and the sentences about those that say something else.

Pure. Each collector names its options with one of the checks below; `checked` makes its `Collector.check`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from collectors._aliases import FIELDS
from collectors._clock import stamp_us
from tracker.core.errors import InvalidValue, nearest, shown
from tracker.core.records import Json
from tracker.interfaces import Check, Context

Look = Callable[[str, Json], Iterator[str]]
"""(key, value) -> what is wrong with it, each a sentence that begins with the key."""

_LONGEST: Final = 200


def checked(**looks: Look) -> Check:
    """Return a check of options, each by its own; keys that are not named here are not looked at.

    >>> list(checked(year=YEAR, first_step=FIRST_STEP)({"year": "2026", "first_step": 0}))
    ["year = '2026': expected a whole number from 2000 to 2099. Write it without quotes: year = 2026"]
    """

    def check(options: Mapping[str, Json]) -> Iterator[str]:
        for key, look in looks.items():
            if key in options:
                yield from look(key, options[key])

    return check


def fault(key: str, value: Json, expected: str, remedy: str = "") -> str:
    """Return the sentence about a value that cannot be used."""
    return str(InvalidValue(key, value, expected, remedy))


def one_of(*words: str) -> Look:
    """Expect one of some words."""

    def look(key: str, value: Json) -> Iterator[str]:
        if not isinstance(value, str) or value not in words:
            hint = nearest(value, words) if isinstance(value, str) else ""
            listed = ", ".join(f'"{word}"' for word in words)
            yield fault(key, value, f"one of {listed}", _sentence(hint) or f'Write {key} = "{words[0]}"')

    return look


def whole(least: int, most: int, example: int, what: str = "") -> Look:
    """Expect a whole number within bounds."""
    bounds = f"{least} or {most}" if most == least + 1 else f"a whole number from {least} to {most}"
    expected = bounds + (f", {what}" if what else "")

    def look(key: str, value: Json) -> Iterator[str]:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            number = value.strip() if isinstance(value, str) else ""
            quoted = number.isascii() and number.isdigit() and least <= int(number[:18]) <= most
            how = f"Write it without quotes: {key} = {int(number)}" if quoted else f"Write {key} = {example}"
            yield fault(key, value, expected, how)

    return look


YEAR: Final = whole(2000, 2099, 2026)
FIRST_STEP: Final = whole(0, 1, 0, "the number that the first step has in the file")
BATCHES: Final = whole(1, 1_000_000_000, 8)
RATE: Final = one_of("cluster", "device")
STEP_TIME: Final = one_of("excludes", "includes", "sample")


def between(key: str, value: Json) -> Iterator[str]:
    """Expect the text that stands between two fields of a row."""
    if not _is_text(value) or "\n" in str(value) or "\r" in str(value):
        yield fault(key, value, "the text between two fields", f'Write {key} = "|", or leave it out')


def moment(key: str, value: Json) -> Iterator[str]:
    """Expect a date with a time."""
    if (
        not isinstance(value, str)
        or len(value) < len("2026-01-05 08:00")
        or stamp_us(value.encode(), Context()) is None
    ):
        yield fault(key, value, "a date with a time", f'Write {key} = "2026-01-05T08:00:00Z"')


def columns(*needed: tuple[str, ...]) -> Look:
    """Expect names of columns, a list or one text with commas, with one of each group of needed ones."""

    def look(key: str, value: Json) -> Iterator[str]:
        example = ", ".join(f'"{group[0]}"' for group in needed)
        expected = "names of fields in the order of the output"
        names = value.split(",") if isinstance(value, str) else value
        if not isinstance(names, Sequence) or not names or not all(map(_is_text, names)):
            yield fault(key, value, expected, f"Write {key} = [{example}, ...], as given to sacct --format")
            return
        lower = {str(name).strip().lower().partition("%")[0] for name in names}
        for group in needed:
            if not lower & {name.lower() for name in group}:
                yield fault(key, value, f"{' or '.join(group)} among the fields", f"Ask for {group[0]}")

    return look


def keys_of_a_record(key: str, value: Json) -> Iterator[str]:
    """Expect a table: a number that we know -> the key (column) under which it stands."""
    example = f'Write {key} = {{ step = "opt/updates" }}'
    if not isinstance(value, dict):
        yield fault(key, value, "a table of keys by what they hold", example)
        return
    for name, theirs in value.items():
        if name not in FIELDS:
            hint = nearest(name, FIELDS)
            known = ", ".join(FIELDS)
            yield fault(f"{key}.{shown(name)[1:-1]}", theirs, f"one of these names: {known}", _sentence(hint))
        elif not _is_text(theirs):
            yield fault(f"{key}.{name}", theirs, "a key of the records, as text", example)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST and bool(value.strip() or value == "\t")


def _sentence(hint: str) -> str:
    return hint[:1].upper() + hint[1:]

"""Patterns that a user wrote: run in linear time where google-re2 is installed, else within limits.

Pure. Python's own engine may need exponential time for a pattern such as `(a+)+b`. Without google-re2 a
pattern may therefore not repeat what holds a repetition or alternatives, may hold `WIDE_REPEATS` repetitions
without an upper bound of what matches nearly anything and `NARROW_REPEATS` of the rest, and sees
`GUARDED_BYTES` of a line. That keeps out what is known to explode; only google-re2 is a proof.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Any, Final

LONGEST_PATTERN: Final = 4096
WIDE_REPEATS: Final = 3
NARROW_REPEATS: Final = 8
GUARDED_BYTES: Final = 512
CLOSED_UP_TO: Final = 64
_MEMORY: Final = 8 << 20
_WIDE: Final = frozenset({".", "\\S", "\\s", "\\w", "\\W", "\\D"})
_COUNTED: Final = re.compile(r"\{(\d*)(?:(,)(\d*))?\}")


class Unfit(ValueError):
    """A pattern that cannot be used; its text says why, for people."""


def engine() -> Any:
    """Return the module re2, or None where it is not installed."""
    try:
        return importlib.import_module("re2")
    except ImportError:
        return None


class Pattern:
    """One compiled pattern over bytes."""

    def __init__(self, text: str, *, with_re2: bool | None = None) -> None:
        """Compile; raises Unfit."""
        if len(text) > LONGEST_PATTERN:
            raise Unfit(f"longer than {LONGEST_PATTERN} characters")
        re2 = engine() if with_re2 is None or with_re2 else None
        self.linear = re2 is not None
        """Whether it runs in linear time on lines of any length."""
        try:
            if re2 is not None:
                options = re2.Options()
                options.log_errors, options.max_mem = False, _MEMORY
                self._compiled: Any = re2.compile(text.encode(), options)
            else:
                guard(text)
                self._compiled = re.compile(text.encode())
        except Unfit:
            raise
        except Exception as error:  # re2's error has no public name
            raise Unfit(_words(error, linear=self.linear)) from None
        index: Mapping[Any, int] = self._compiled.groupindex
        self.groups: dict[str, int] = {
            name.decode() if isinstance(name, bytes) else name: number for name, number in index.items()
        }
        """Names of its groups, and their numbers."""
        self.literal = _literal(text)
        """Bytes that every line it matches holds; empty where there are none to be sure of."""

    def search(self, line: bytes) -> dict[str, bytes] | None:
        """Return the groups that took part in a match within a line; None where there is none."""
        found = self._compiled.search(line if self.linear else line[:GUARDED_BYTES])
        if found is None:
            return None
        return {
            name: text for name, number in self.groups.items() if (text := found.group(number)) is not None
        }


def guard(text: str) -> None:
    """Refuse a pattern that Python's engine may take too long for; raises Unfit.

    >>> guard(r"step (\\d+) of .* took ([\\d.]+) ms")
    >>> guard(r"(\\w+\\s?)*x")
    Traceback (most recent call last):
    collectors._patterns.Unfit: it repeats a repetition, which may take for ever: install google-re2
    """
    opened: list[bool] = []  # for each open group: whether it holds a repetition or alternatives
    repeats = False  # whether what a quantifier would now repeat does
    atom, wide, narrow, at = "", 0, 0, 0
    while at < len(text):
        char = text[at]
        length, endless = _quantifier(text, at)
        if length:
            if repeats and char != "?":
                raise Unfit("it repeats a repetition, which may take for ever: install google-re2")
            if endless:
                wide, narrow = (wide + 1, narrow) if atom in _WIDE else (wide, narrow + 1)
            repeats = True
            if opened:
                opened[-1] = True
            at += length
            if at < len(text) and text[at] in "?+":
                at += 1
            continue
        repeats = False
        if char == "\\":
            atom = text[at : at + 2]
            if atom[1:].isdigit() and atom != "\\0":
                raise Unfit("it refers back to a group, which may take for ever")
            at += 2
        elif char == "[":
            end = _class_end(text, at)
            atom = "." if text[at + 1 : at + 2] == "^" else "["
            at = end
        elif char == "(":
            opened.append(False)
            atom = char
            at += 2 if text[at + 1 : at + 2] == "?" else 1
        elif char == ")":
            repeats = opened.pop() if opened else False
            if opened and repeats:
                opened[-1] = True
            atom, at = char, at + 1
        else:
            if char == "|" and opened:
                opened[-1] = True
            atom, at = char, at + 1
    if wide > WIDE_REPEATS or narrow > NARROW_REPEATS:
        raise Unfit(
            f"it has {wide} repetitions such as .* and {narrow} such as [0-9]+ ({WIDE_REPEATS} and "
            f"{NARROW_REPEATS} are allowed): bound them, {{1,20}} instead of +, or install google-re2"
        )


def _class_end(text: str, at: int) -> int:
    end = at + 1
    if text[end : end + 1] == "^":
        end += 1
    if text[end : end + 1] == "]":
        end += 1
    while end < len(text) and text[end] != "]":
        end += 2 if text[end] == "\\" else 1
    return end + 1


def _quantifier(text: str, at: int) -> tuple[int, bool]:
    """Return the length of the quantifier at a place (0: there is none) and whether it has no bound."""
    char = text[at]
    if char in "*+":
        return 1, True
    if char == "?":
        return 1, False
    if char == "{" and (found := _COUNTED.match(text, at)) is not None:
        top = found[3] if found[2] else found[1]
        return len(found[0]), not top or len(top) > 6 or int(top) > CLOSED_UP_TO
    return 0, False


def _literal(text: str) -> bytes:
    """Return the longest run of plain characters outside groups, of a pattern without alternatives.

    >>> _literal(r"step (\\d+): loss (\\S+)"), _literal("a|b"), _literal("(?i)step (x)")
    (b': loss ', b'', b'')
    """
    if "|" in text or "(?i" in text or "(?s" in text or "(?x" in text or "\\Q" in text:
        return b""
    runs, run, depth, at = [], "", 0, 0
    while at < len(text):
        char = text[at]
        if char == "[":
            runs.append(run)
            run, at = "", _class_end(text, at)
            continue
        if char.isalnum() or char in " :,=/_-%<>#@~!&;'\"":
            run += char if not depth else ""
            at += 1
            continue
        if char in "*?{" and run:
            run = run[:-1]
        runs.append(run)
        run = ""
        depth += {"(": 1, ")": -1}.get(char, 0)
        at += 2 if char == "\\" else 1
        if char == "{":
            at = text.find("}", at) + 1 or len(text)
    runs.append(run)
    return max(runs, key=len).encode()


def _words(error: Exception, *, linear: bool) -> str:
    what = error.args[0] if error.args else error
    text = what.decode("utf-8", "replace") if isinstance(what, bytes) else str(what)
    more = " (google-re2 has no look-around and no references back)" if linear else ""
    return f"no usable regular expression: {text[:200]}{more}"

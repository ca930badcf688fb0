"""Which files a pattern means now: shell globs over bytes, and the names that rotation gives.

Edge: lists folders and asks for status; opens no file. ``train.log`` also means ``train.log.1``,
``train.log-20260102.gz`` and their like, so that one late reading finds what a live one saw.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from tracker.follow.source import kind_of

_ROTATED: Final = re.compile(
    rb"""(?: [.-]\d{1,4}                                   # .1  -2          logrotate, logging
         | [.-]\d{8}(?:[-_T.]?\d{2,10})?                   # -20260102-1767312000
         | [.-]\d{4}-\d\d-\d\d(?:[-_T]\d\d(?:[-:]?\d\d){0,2}(?:[._]\d+)?)?  # .2026-01-02_07-00-00
         | [.-]\d{10}                                      # -1767312000
         | \.old | \.bak | \.prev
         )? (?:\.gz)? \Z""",
    re.VERBOSE,
)
_MAGIC: Final = re.compile(r"[*?\[]")
_PASSING: Final = frozenset({
    errno.EIO,
    errno.ESTALE,
    errno.ETIMEDOUT,
    errno.ENOTCONN,
    errno.EHOSTDOWN,
    errno.ECONNRESET,
})
"""Errors of a file system that is not answering: what it hides is not gone."""

Kind = Literal["literal", "magic", "deep"]


@dataclass(slots=True)
class Scan:
    """What one look over a pattern met besides files."""

    problems: dict[bytes, str] = field(default_factory=dict)
    """Path to reason, for what was meant and cannot be read."""
    silent: set[bytes] = field(default_factory=set)
    """Folders and files that could not be looked at now: nothing is known about them."""


def unrotated(name: bytes) -> bytes:
    """Return a file name without the suffix that log rotation added.

    >>> unrotated(b"train.log.1.gz"), unrotated(b"train.log-20260102"), unrotated(b"train.log")
    (b'train.log', b'train.log', b'train.log')
    """
    found = _ROTATED.search(name)
    return name[: found.start()] if found and found.start() else name


def reason(error: OSError) -> str:
    """Return why a file cannot be read, in the words of the health report."""
    words = {
        errno.EACCES: "permission denied",
        errno.EPERM: "permission denied",
        errno.ELOOP: "is a symbolic link in a circle",
        errno.ENOENT: "gone",
        errno.ESTALE: "stale file handle (ESTALE)",
        errno.EIO: "input/output error (EIO)",
        errno.ENAMETOOLONG: "name too long",
    }
    code = error.errno or 0
    return words.get(code, f"{os.strerror(code).lower()} ({errno.errorcode.get(code, code)})")


class Pattern:
    """One glob, relative to a root folder.

    ``*``, ``?`` and ``[...]`` stay within a name and do not match a leading dot; ``**`` is any
    number of folders, symbolic links and hidden ones left out. A name that equals a part of the
    pattern character for character matches it too, so ``run[1].log`` finds the file of that name.
    ``skip``: files that no pattern means, however wide it is.
    """

    def __init__(self, text: str, root: Path, *, rotated: bool = True, skip: Collection[Path] = ()) -> None:
        self.text = text
        self._skip = frozenset(os.path.realpath(os.fsencode(path)) for path in skip)
        self._skipped_names = frozenset(os.path.basename(path) for path in self._skip)
        self._rotated = rotated
        full = os.path.join(os.fsencode(root.absolute()), os.fsencode(text))
        parts = [part for part in full.split(b"/") if part not in {b"", b"."}]
        self._parts = [_part(part) for part in parts]

    def files(self, scan: Scan) -> Iterator[tuple[bytes, os.stat_result]]:
        """Yield path and status of every regular file that the pattern means now."""
        for found in self._walk(b"/", 0, scan):
            if not self.skips(found[0]):
                yield found

    def skips(self, path: bytes) -> bool:
        """Tell whether a file is one of those that are never meant."""
        return os.path.basename(path) in self._skipped_names and os.path.realpath(path) in self._skip

    def _walk(self, folder: bytes, at: int, scan: Scan) -> Iterator[tuple[bytes, os.stat_result]]:
        if at == len(self._parts):
            return
        kind, literal, match = self._parts[at]
        last = at == len(self._parts) - 1
        if kind == "deep":
            if not last:
                yield from self._walk(folder, at + 1, scan)
            for entry in _entries(folder, scan):
                if entry.name.startswith(b"."):
                    continue
                if _is_folder(entry, links=False):
                    yield from self._walk(entry.path, at, scan)
                elif last:
                    yield from _regular(entry.path, entry.stat, scan, all_names=True)
        elif not last:
            if kind == "literal":
                yield from self._walk(os.path.join(folder, literal), at + 1, scan)
                return
            for entry in _entries(folder, scan):
                if (match(entry.name) or entry.name == literal) and _is_folder(entry, links=True):
                    yield from self._walk(entry.path, at + 1, scan)
        else:
            yield from self._names(folder, literal, match, scan)

    def _names(
        self, folder: bytes, literal: bytes, match: Callable[[bytes], object], scan: Scan
    ) -> Iterator[tuple[bytes, os.stat_result]]:
        """Yield the files of one folder; the literal name even where listing is forbidden."""
        if not self._rotated and match is _never:
            path = os.path.join(folder, literal)
            yield from _regular(path, lambda: os.stat(path), scan)
            return
        seen = False
        all_names = literal == b"*"
        for entry in _entries(folder, scan):
            name = entry.name
            exact = name == literal
            if not (exact or match(name)):
                if not self._rotated:
                    continue
                base = unrotated(name)
                if base == name or not (base == literal or match(base)):
                    continue
            seen = seen or exact
            yield from _regular(entry.path, entry.stat, scan, all_names=all_names)
        if match is _never and not seen and folder in scan.problems:
            path = os.path.join(folder, literal)
            yield from _regular(path, lambda: os.stat(path), scan)


def _part(part: bytes) -> tuple[Kind, bytes, Callable[[bytes], object]]:
    if part == b"**":
        return "deep", part, _never
    if not _MAGIC.search(os.fsdecode(part)):
        return "literal", part, _never
    # Latin-1 maps each byte to one character and back: a name need not be valid UTF-8.
    expression = re.compile(fnmatch.translate(part.decode("latin-1")).encode("latin-1"))
    if part.startswith(b"."):
        return "magic", part, expression.match
    return "magic", part, lambda name: not name.startswith(b".") and expression.match(name)


def _never(name: bytes) -> object:
    return None


def _entries(folder: bytes, scan: Scan) -> Iterator[os.DirEntry[bytes]]:
    """Yield a folder's entries; an unreadable one is a problem, a missing one is nothing yet."""
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        scan.problems[folder] = f"folder: {reason(error)}"
        scan.silent.add(folder)


def _is_folder(entry: os.DirEntry[bytes], *, links: bool) -> bool:
    try:
        return entry.is_dir(follow_symlinks=links)
    except OSError:  # a circle of links, or a file system that does not answer
        return False


def _regular(
    path: bytes, status: Callable[[], os.stat_result], scan: Scan, *, all_names: bool = False
) -> Iterator[tuple[bytes, os.stat_result]]:
    """Yield the path if it leads to a regular file; note why it is not read otherwise."""
    try:
        found = status()
    except FileNotFoundError:
        if os.path.islink(path):
            scan.problems[path] = "is a symbolic link to nothing"
        return
    except NotADirectoryError:
        return
    except OSError as error:
        scan.problems[path] = reason(error)
        if error.errno in _PASSING or error.errno == errno.EACCES:
            scan.silent.add(path)
        return
    if stat.S_ISREG(found.st_mode):
        yield path, found
    elif not (all_names and stat.S_ISDIR(found.st_mode)):
        scan.problems[path] = kind_of(found.st_mode)

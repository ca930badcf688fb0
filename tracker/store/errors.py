"""What can go wrong with the file that holds the facts, in words for the person who must mend it.

Edge: knows SQLite's error codes, and nothing else does.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tracker.core.errors import TrackerError


class StoreError(TrackerError):
    """The store cannot do what was asked."""


class StoreMissing(StoreError):
    """There is no store at this path."""


class StoreOutdated(StoreError):
    """The store was written by an older version and must be migrated."""


class StoreNewer(StoreError):
    """The store was written by a newer version than this one."""


class StoreForeign(StoreError):
    """The file is a database, but not one of ours."""


class StoreCorrupt(StoreError):
    """The file is damaged, or no database at all."""


class StoreFull(StoreError):
    """The disk has no room left, or the quota is used up. Passes when there is room again."""


class StoreReadOnly(StoreError):
    """The file, its folder or its disk cannot be written. Passes when the permission is back."""


class StoreBusy(StoreError):
    """Another process held the store for longer than we wait. Passes by itself."""


class StoreInUse(StoreError):
    """Another sidecar works on this store."""


class StoreGone(StoreError):
    """The file was deleted, moved or replaced while it was open."""


PASSING: Final = (StoreFull, StoreReadOnly, StoreBusy)
"""Errors that may pass by themselves: keep what is to be written and try again later."""

_WRONG = 1
_FULL = (13,)
_READ_ONLY = (8, 3)
_BUSY = (5, 6)
_CORRUPT = (11, 26)
_CANNOT_OPEN = (14,)
_IO_ERROR = (10,)


def explain(error: sqlite3.Error, path: Path, *, settled: bool = True) -> StoreError | None:
    """Return SQLite's error as a sentence with a remedy; None where only a bug of ours can cause it.

    `settled`: the schema is the one that its number says; what is missing in it was damaged.
    """
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    if code is None and "decode to UTF-8" in str(error):
        return damaged(path, "a text in it is no text")
    if settled and primary == _WRONG and str(error).startswith(("no such column", "no such table")):
        return damaged(path, str(error))  # its schema has the right number, and other words
    if primary in _FULL:
        return StoreFull(
            f"no room to write {path} ({error}). Free space on its disk or raise the quota; "
            "nothing is lost, the logs are read on from the last commit."
        )
    if primary in _READ_ONLY:
        return StoreReadOnly(
            f"{path} cannot be written ({error}). The file, its folder and the disk must be writable "
            "for the user who runs the tracker."
        )
    if primary in _BUSY:
        return StoreBusy(
            f"{path} is locked by another process ({error}). It is tried again; if it stays, look for a "
            "program other than `tracker` that holds it open."
        )
    if primary in _CORRUPT:
        return damaged(path, str(error))
    if primary in _CANNOT_OPEN:
        return StoreReadOnly(
            f"{path} cannot be opened ({error}). The file must be readable, and its folder writable "
            "for whoever ingests."
        )
    if primary in _IO_ERROR:
        return StoreReadOnly(f"the disk under {path} fails ({error}). See the kernel's messages; then retry.")
    return None


def damaged(path: Path, what: str) -> StoreCorrupt:
    """Return that a store is damaged, what shows it, and what to do."""
    return StoreCorrupt(
        f"{path} is damaged or no database ({what}). Run `tracker db check {path}`; then "
        f"`tracker db restore {path} BACKUP`, or move the file away and let the logs be read again."
    )


@contextmanager
def decoded(path: Path, what: str) -> Iterator[None]:
    """Turn the errors of decoding rows inside the block into ours: the file was changed under us."""
    try:
        yield
    except (ValueError, TypeError, KeyError) as error:
        raise damaged(path, f"{what}: {type(error).__name__}") from error


@contextmanager
def explained(path: Path, *, settled: bool = True) -> Iterator[None]:
    """Turn SQLite's errors inside the block into ours; bugs pass through."""
    try:
        yield
    except sqlite3.Error as error:
        ours = explain(error, path, settled=settled)
        if ours is None:
            raise
        raise ours from error
    except UnicodeDecodeError as error:  # Python's, over SQLite's own words about a text in the schema
        raise damaged(path, "a text in it is no text") from error

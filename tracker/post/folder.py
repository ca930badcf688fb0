"""The folder that reports are put in: whether it takes them, and in words what to do where it does not.

Edge: looks at the file system; makes the folder where told to.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

from tracker.core.errors import InvalidValue

ROOM_BYTES: Final = 5_000_000
"""What a report's documents take at most, and then some."""
_NAME: Final = "report.directory"
_OTHER: Final = "or name another folder"


def made(folder: Path) -> Path:
    """Return the folder, made where it is missing. Raises InvalidValue."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidValue(_NAME, str(folder), *_words(folder, error)) from None
    return folder


def trouble(folder: Path) -> str:
    """Return why a folder will take no report and what to do; empty where it will. Writes nothing."""
    there = _there(folder)
    number = 0
    if not there.is_dir():
        number = errno.ENOTDIR
    elif not os.access(there, os.W_OK | os.X_OK):
        number = errno.EACCES
    elif _room(there) < ROOM_BYTES:
        number = errno.ENOSPC
    return str(InvalidValue(_NAME, str(folder), *_words(folder, OSError(number, "")))) if number else ""


def refused(folder: Path, error: OSError) -> str:
    """Return why a document could not be put into a folder, and what to do."""
    return str(InvalidValue(_NAME, str(folder), *_words(folder, error)))


def _there(folder: Path) -> Path:
    """Return the folder, or what is there of its path."""
    return next((one for one in (folder, *folder.parents) if os.path.lexists(one)), folder)


def _room(folder: Path) -> int:
    told = os.statvfs(folder)
    return told.f_bavail * told.f_frsize if told.f_blocks else ROOM_BYTES


def _words(folder: Path, error: OSError) -> tuple[str, str]:
    """Return what was expected, and what to do."""
    there = _there(folder)
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        what = "leads nowhere" if there.is_symlink() and not there.exists() else "is no folder"
        return f"a folder, and {there} {what}", f"Move {there} away, {_OTHER}"
    if error.errno in (errno.EACCES, errno.EPERM):
        return (
            f"a folder that can be written to, and {there} is not open to this user",
            f"Change its owner or mode, {_OTHER}",
        )
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return (
            f"room for {ROOM_BYTES // 1_000_000} MB, and the disk of {there} is full",
            f"Make room, {_OTHER}",
        )
    if error.errno == errno.EROFS:
        return (
            f"a folder that can be written to, and {there} is mounted read-only",
            f"Mount it for writing, {_OTHER}",
        )
    return f"a folder that can be written to ({error.strerror or error})", f"Mend that, {_OTHER}"

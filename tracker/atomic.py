"""Files that appear whole or not at all.

Edge: writes to disk. A reader sees the old file or the new one, never half of one, and a power cut leaves
one of the two.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from tracker.scratch import hold, sweep

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def replacing(path: Path, *, mode: int = 0o644) -> Iterator[BinaryIO]:
    """Give a file to write; it takes the place of `path` when the block ends, and goes when it fails.

    Raises OSError, named after `path`, where its folder cannot be written to or the disk is full.
    """
    folder = path.parent
    try:
        handle, written = _begun(path, folder)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), mode & ~_umask())
            written.replace(path)  # while it is open, and so held
    except BaseException as error:
        with contextlib.suppress(OSError):
            written.unlink()
        if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise
    sync_folder(folder)


def _begun(path: Path, folder: Path) -> tuple[int, Path]:
    """Make the file that is to take its place; what killed writers of the same file left goes."""
    prefix, suffix = f".{path.name[:60]}.", ".tmp"
    sweep(folder.glob(f"{glob.escape(prefix)}*{suffix}"))
    while True:
        handle, name = tempfile.mkstemp(prefix=prefix, suffix=suffix, dir=folder)
        if hold(handle, Path(name)):
            return handle, Path(name)
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """Let a name that came or went in a folder outlive a power cut, where its file system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _umask() -> int:
    """Return the process's umask without changing it for more than a moment."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    return 0o022

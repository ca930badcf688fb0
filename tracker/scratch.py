"""Folders and files for a while, which no kill leaves behind for ever.

Edge: writes to disk. Whoever makes one holds a lock on it, which the kernel lets go of however its owner
ends. What lies there without one is nobody's, and the next who makes such a thing sweeps it away.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final

_PREFIX: Final = "tracker-"


class Scratch:
    """A folder for this process: `path`, until `close` or the end of the block."""

    def __init__(self, purpose: str, *, within: Path | None = None) -> None:
        """Make it, in the system's folder for such things; sweep away what killed processes left there."""
        parent = within if within is not None else Path(tempfile.gettempdir())
        prefix = f"{_PREFIX}{purpose}-"
        sweep(parent.glob(f"{prefix}*"))
        self.path, self._held = _made(prefix, parent)

    def close(self) -> None:
        """Remove it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._held >= 0:
            os.close(self._held)
            self._held = -1

    def __enter__(self) -> Path:
        return self.path

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def hold(handle: int, path: Path) -> bool:
    """Lock what was just made, while it is open here; False where a sweep took it before that."""
    with contextlib.suppress(OSError):  # a file system without such locks: nobody sweeps there either
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except OSError:
        return False


def sweep(found: Iterable[Path]) -> None:
    """Remove those that are ours to remove and that nobody holds; whatever cannot be removed stays."""
    for path in found:
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                if os.fstat(handle).st_uid != os.geteuid():
                    continue
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()
            finally:
                os.close(handle)


def _made(prefix: str, parent: Path) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            if hold(handle, path):
                return path, handle
            os.close(handle)

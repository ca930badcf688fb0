"""Who may write the store now, and which sidecar works on it: two kernel locks beside the database.

Edge. Both die with their holder, whatever kills it.

`<db>.lock` is held for every write transaction and every checkpoint, by any process, and for no longer.
Trap: some SQLite versions in use (3.7.0 to 3.51.2) can damage a write-ahead log when one connection
checkpoints while another commits; with this lock that never happens. `<db>.running` is held by a sidecar
as long as it lives and says who it is.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from tracker.store.errors import StoreBusy, StoreGone, StoreInUse, StoreReadOnly

WAIT_S: Final = 30.0
"""How long a writer waits for another one; a transaction takes milliseconds, `compact` seconds."""
MODE: Final = 0o640
_CLAIMS: Final = 10
_CLAIM_PAUSE_S: Final = 0.02
_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


class WriteLock:
    """The right to write, taken for one transaction at a time. Not re-entrant."""

    def __init__(self, database: Path) -> None:
        self.path = database.with_name(database.name + ".lock")
        self._fd = -1

    @contextmanager
    def held(self, *, wait_s: float = WAIT_S) -> Iterator[None]:
        """Hold the lock inside the block; StoreBusy after `wait_s`."""
        self.acquire(wait_s=wait_s)
        try:
            yield
        finally:
            self.release()

    def acquire(self, *, wait_s: float = WAIT_S) -> None:
        """Take the lock, or raise StoreBusy."""
        deadline = time.monotonic() + wait_s
        pause_s = 0.0005
        while True:
            if self._fd < 0:
                self._fd = _open(self.path)
            if _try_lock(self._fd, self.path):
                if _same_file(self._fd, self.path):
                    _note(self._fd, b"%-20d\n" % os.getpid())
                    return
                self.close()  # somebody deleted the lock file: the new one is the lock
                continue
            if time.monotonic() >= deadline:
                raise StoreBusy(
                    f"{self.path}: held by another process (last holder: {_word(self.path)}) for more than "
                    f"{wait_s:g} s. If that process hangs, end it: the lock goes with it."
                )
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 0.02)

    def release(self) -> None:
        """Give the lock back."""
        if self._fd >= 0:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give the lock back and close its file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The sidecar that works on a store."""

    pid: int
    host: str
    started_at: str
    """ISO 8601, UTC, as its caller said."""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, started {self.started_at}"


class RunLock:
    """The mark of the one sidecar of a store. Use as a context manager, or keep it until the end."""

    def __init__(self, database: Path, *, started_at: str) -> None:
        """Claim the store; StoreInUse names the sidecar that has it."""
        self.path = _run_path(database)
        self._fd = _open(self.path)
        owner = Owner(pid=os.getpid(), host=socket.gethostname(), started_at=started_at)
        for _ in range(_CLAIMS):
            if _try_lock(self._fd, self.path):
                break
            time.sleep(_CLAIM_PAUSE_S)  # `running` looks for an instant by taking a shared lock
        else:
            first = _owner(os.pread(self._fd, 4096, 0))
            os.close(self._fd)
            self._fd = -1
            raise StoreInUse(
                f"{database} is in use by another sidecar: {first}. Stop that one first, or give this "
                "one a store of its own ([store] path)."
            )
        _note(self._fd, json.dumps(asdict(owner)).encode() + b"\n", whole=True)

    def require(self) -> None:
        """Raise StoreGone unless the mark is still there: whoever finds none may have begun work too.

        A program that tidies up old files may have deleted it. The caller then lets go of everything and
        claims the store anew, or learns who has it now.
        """
        if self._fd < 0 or not _same_file(self._fd, self.path):
            raise StoreGone(
                f"{self.path} was deleted while a sidecar worked on the store. The store is claimed and "
                "opened anew; keep programs that delete old files (tmpfiles, tmpwatch) away from its folder."
            )

    def close(self) -> None:
        """Give the store free."""
        if self._fd >= 0:
            _note(self._fd, b"", whole=True)
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def running(database: Path) -> Owner | None:
    """Return the sidecar that works on a store now, or None. Never blocks."""
    path = _run_path(database)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return _owner(os.pread(fd, 4096, 0))
        fcntl.flock(fd, fcntl.LOCK_UN)
        return None
    finally:
        os.close(fd)


def _owner(text: bytes) -> Owner:
    try:
        return Owner(**json.loads(text))
    except (ValueError, TypeError):
        return Owner(pid=0, host="?", started_at="?")


def own_files(database: Path) -> tuple[Path, ...]:
    """Return the files that a store consists of while it is used, there or not."""
    tails = ("", "-wal", "-shm", "-journal", ".lock", ".running", ".sending-mail", ".sending-webhook")
    return tuple(database.with_name(database.name + tail) for tail in tails)


def _run_path(database: Path) -> Path:
    return database.with_name(database.name + ".running")


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, MODE)
    except OSError as error:
        raise StoreReadOnly(
            f"{path} cannot be opened ({error.strerror}). Whoever writes the store needs write access to "
            "this file and its folder."
        ) from error


def _try_lock(fd: int, path: Path) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            raise StoreReadOnly(
                f"{path}: this file system has no locks ({error.strerror}). Put the store on a local disk: "
                "set [store] path, such as a folder under /var/lib or $TMPDIR."
            ) from error
        raise
    return True


def _note(fd: int, text: bytes, *, whole: bool = False) -> None:
    """Say who holds a lock: for people only, so a disk that is full or read-only does not matter."""
    with suppress(OSError):
        if whole:
            os.ftruncate(fd, 0)
        os.pwrite(fd, text, 0)


def _same_file(fd: int, path: Path) -> bool:
    try:
        there = path.stat()
    except OSError:
        return False
    ours = os.fstat(fd)
    return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)


def _word(path: Path) -> str:
    try:
        return f"process {int(path.read_bytes()[:20])}"
    except (OSError, ValueError):
        return "unknown"

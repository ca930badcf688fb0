"""Small files that a person wrote, read whole: configs, passwords, certificates.

Edge: reads a file. Nothing here can hang: what is no regular file, a named pipe say, is refused, for reading
one waits until somebody writes.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

_KINDS: Final = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
LARGEST_CERTIFICATES: Final = 8 << 20


def read(path: Path, *, limit: int) -> bytes:
    """Return the bytes of a file, at most one more than `limit`, which tells that there are too many.

    Raises OSError, whose strerror can be shown.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            raise OSError(errno.EINVAL, "is a socket or a device, not a file", str(path)) from None
        raise
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            kind = next((word for is_kind, word in _KINDS if is_kind(mode)), "something else")
            raise OSError(errno.EINVAL, f"is {kind}, not a file: save it as one", str(path))
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(limit + 1)
    finally:
        os.close(handle)


def check_certificates(path: Path) -> None:
    """Raise OSError where a file of certificates or a key cannot be given to OpenSSL, which would wait."""
    if len(read(path, limit=LARGEST_CERTIFICATES)) > LARGEST_CERTIFICATES:
        raise OSError(errno.EFBIG, f"is larger than {LARGEST_CERTIFICATES >> 20} MiB", str(path))

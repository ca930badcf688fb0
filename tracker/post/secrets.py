"""Passwords and URLs of webhooks: read from a file or the environment, when they are needed.

Edge. What is read here is shown nowhere: messages name the file or the variable, never the value.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tracker import smallfile
from tracker.core.errors import TrackerError

_LARGEST: Final = 8_192


class SecretMissing(TrackerError):
    """A password or URL is not where the config says."""


def read_secret(what: str, *, file: Path | None, variable: str | None) -> str:
    """Return the first line of a file, or the value of an environment variable; SecretMissing says which."""
    if variable is not None:
        value = os.environ.get(variable, "")
        if not value.strip():
            raise SecretMissing(
                f"{what}: the environment variable {variable} is not set. Set it for the tracker's process, "
                "or name a file instead"
            )
        return _first_line(value)
    assert file is not None
    try:
        body = smallfile.read(file, limit=_LARGEST)
    except OSError as error:
        raise SecretMissing(f"{what}: {file}: {error.strerror or error}. It must hold the {what}") from None
    try:
        line = _first_line(body.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise SecretMissing(f"{what}: {file} is no UTF-8 text. It must hold the {what}") from None
    if not line:
        raise SecretMissing(f"{what}: {file} is empty. It must hold the {what}")
    return line


def _first_line(text: str) -> str:
    lines = text.splitlines()
    return lines[0].rstrip() if lines else ""

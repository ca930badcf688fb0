"""An entry for Prometheus' file_sd: where this sidecar is to be scraped, in a file of its own.

Edge: writes one small file. It is there as long as the sidecar listens: written whole once the real port is
known, written again when the runs change, gone after a clean stop. What a killed sidecar leaves behind is
replaced by its successor; until then `up` is 0, as it should be.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tracker.atomic import replacing, sync_folder
from tracker.config.kinds import Listen

LABEL_CHARS: Final = 120
MOST_RUNS: Final = 20
_EVERYWHERE: Final = ("0.0.0.0", "::", "")
_log = logging.getLogger(__name__)


class FileSd:
    """Keeps the entry. A folder that cannot be written to is told in the log, and stops nothing."""

    def __init__(self, path: Path, *, announce: Listen | None = None) -> None:
        """`announce`: host and port that scrapers should use; port 0 there means the real one."""
        self.path = path
        self._announce = announce
        self._written: bytes | None = None

    def listening(self, listen: Listen, runs: Sequence[str], *, tls: bool) -> None:
        """Write the entry, where it is not written already."""
        body = entry(target(listen, self._announce), runs, tls=tls)
        if body == self._written and self.path.exists():
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self.path) as file:
                file.write(body)
        except OSError as error:
            _log.warning("%s: the scraper is not told where we are: %s", self.path, error.strerror or error)
            return
        self._written = body
        _log.info("announced in %s", self.path)

    def stopping(self) -> None:
        """Take the entry away, unless somebody else has written his there since."""
        written, self._written = self._written, None
        if written is None:
            return
        with contextlib.suppress(OSError):
            if self.path.read_bytes() == written:
                self.path.unlink()
                sync_folder(self.path.parent)


def target(listen: Listen, announce: Listen | None) -> str:
    """Return host:port for scrapers: as announced, else as bound; of all addresses, this host's name.

    >>> target(Listen("127.0.0.1", 9109), None)
    '127.0.0.1:9109'
    >>> target(Listen("0.0.0.0", 41234), Listen("node17", 0))
    'node17:41234'
    """
    host, port = listen.host, listen.port
    if announce is not None:
        host, port = announce.host, announce.port or port
    if host in _EVERYWHERE:
        host = socket.gethostname()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def entry(address: str, runs: Sequence[str], *, tls: bool) -> bytes:
    """Return the file's content: one target group, its labels few and bounded.

    The metrics name their run themselves: here it is a `__meta_` label, for relabelling only, so that a
    target keeps its series when its runs change.
    """
    shown = [_label(run) for run in sorted(set(runs))[:MOST_RUNS]]
    labels = {"__meta_tracker_runs": f",{','.join(shown)}," if shown else ""}
    if tls:
        labels["__scheme__"] = "https"
    return (json.dumps([{"targets": [address], "labels": labels}], indent=2) + "\n").encode()


def _label(text: str) -> str:
    clean = "".join(c if c.isprintable() and c != "," else "?" for c in text[:LABEL_CHARS])
    return clean.encode("utf-8", "replace").decode()

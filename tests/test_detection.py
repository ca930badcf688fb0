"""Who reads a file: every collector looks at every fixture, of every kind, and the owner wins outright."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors import HEAD_BYTES, detect, named
from tests.test_collectors import collector_of, fixtures, load

FILES = fixtures()


def content_of(path: Path) -> bytes:
    """Return a fixture as its collector would see it: logs without their annotations."""
    return load(path).content if collector_of(path).kind == "log" else path.read_bytes()


def announced(path: Path) -> bool:
    """Return whether a log's head shows what it is; some say themselves that it does not."""
    return collector_of(path).kind != "log" or load(path).context.get("detect", True) is not False


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_owner_of_a_file_wins_outright(path: Path) -> None:
    """No other collector is as sure as the owner; and nobody else reads a log whose head shows nothing."""
    found = detect(content_of(path)[:HEAD_BYTES])
    if not announced(path):
        assert found.collector in (None, named(path.parent.name)), found.text
        return
    assert found.collector is not None, found.text
    assert found.collector.name == path.parent.name, found.text

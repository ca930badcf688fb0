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
    """No other collector is as sure as the owner; what shows nothing may be read for its events."""
    found = detect(content_of(path)[:HEAD_BYTES])
    if not announced(path):
        assert found.collector in (None, named("events"), named(path.parent.name)), found.text
        return
    assert found.collector is not None, found.text
    assert found.collector.name == path.parent.name, found.text


TROUBLE = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 55.88 GiB.\n"


@pytest.mark.parametrize(
    ("head", "reader"),
    [
        pytest.param(TROUBLE, "events", id="nothing but trouble"),
        pytest.param(b"Loading weights\n" + TROUBLE, "events", id="trouble in some talk"),
        pytest.param(b"ok\n" * 3, None, id="no trouble"),
        pytest.param(
            b"".join(b"> step %d of 90, loss=2.%d\n" % (n, n) for n in range(9)) + TROUBLE,
            None,
            id="a training log of nobody",
        ),
        pytest.param(
            b" 12%|# | 12/100 [00:24<02:56,  2.00s/it]\n" + TROUBLE, "huggingface", id="a bar and trouble"
        ),
    ],
)
def test_lines_of_trouble_are_read_where_nobody_else_reads_a_file(head: bytes, reader: str | None) -> None:
    """Any format's own words win; the steps of a format that nobody knows are not passed over in silence."""
    found = detect(head)

    assert (found.collector.name if found.collector else None) == reader, found.text

"""Folders and half-written files of killed processes are swept away; those of living ones are not."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tracker.atomic import replacing
from tracker.scratch import Scratch

HOLD = """
import sys, time
from pathlib import Path
from tracker.atomic import replacing
from tracker.scratch import Scratch
folder = Path(sys.argv[1])
with Scratch("test", within=folder) as own, replacing(folder / "out.txt") as file:
    (own / "big").write_text("x")
    file.write(b"half")
    print(own, flush=True)
    time.sleep(60)
"""


def begun(folder: Path) -> tuple[subprocess.Popen[str], Path]:
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    return child, Path(child.stdout.readline().strip())


def test_what_a_killed_process_left_goes_with_the_next(tmp_path: Path) -> None:
    """Folder and half-written file alike; the file itself is never half."""
    child, left = begun(tmp_path)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert left.is_dir()
    assert len(list(tmp_path.glob(".out.txt.*.tmp"))) == 1

    with Scratch("test", within=tmp_path) as own:
        assert own.is_dir()
        assert not left.exists()
    with replacing(tmp_path / "out.txt") as file:
        assert len(list(tmp_path.glob(".out.txt.*.tmp"))) == 1, "ours"
        file.write(b"whole")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.txt"]
    assert (tmp_path / "out.txt").read_bytes() == b"whole"


def test_what_a_living_process_holds_stays(tmp_path: Path) -> None:
    """Whoever makes such a thing meanwhile, in another process or this one."""
    child, held = begun(tmp_path)
    try:
        with Scratch("test", within=tmp_path) as own, Scratch("test", within=tmp_path) as other:
            assert own.is_dir()
            assert other.is_dir()
        with replacing(tmp_path / "out.txt") as file:
            file.write(b"whole")
        assert (held / "big").read_text() == "x"
        assert len(list(tmp_path.glob(".out.txt.*.tmp"))) == 1
    finally:
        child.kill()
        child.communicate()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """A name like ours may be anybody's trap."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "data").write_text("x")
    (tmp_path / "tracker-test-link").symlink_to(precious)
    with Scratch("test", within=tmp_path):
        pass
    assert (precious / "data").read_text() == "x"


def test_a_folder_is_gone_after_an_error(tmp_path: Path) -> None:
    """And the error goes on."""
    with pytest.raises(ValueError, match="stop"), Scratch("test", within=tmp_path):
        raise ValueError("stop")
    assert list(tmp_path.iterdir()) == []

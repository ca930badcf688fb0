"""The unit file for systemd: what systemd itself says of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[1] / "configs" / "systemd" / "tracker@.service"
MOST_EXPOSED = 20
"""Tenths of the exposure that `systemd-analyze security` gives: 96 for a unit that says nothing."""


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit as an instance, with a program that is there."""
    if shutil.which("systemd-analyze") is None:
        if os.environ.get("CI"):
            pytest.fail("systemd-analyze is missing: Debian package systemd")
        pytest.skip("systemd-analyze is missing: Debian package systemd")
    made = tmp_path / "tracker@llama-13b.service"
    made.write_text(re.sub(r"ExecStart=\S+", "ExecStart=/bin/true", UNIT.read_text(), count=1))
    return made


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True)


def test_it_is_valid(unit: Path) -> None:
    """No key is unknown and no value is refused: systemd would start it."""
    done = analyze("verify", str(unit))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_wrong_key_would_be_seen(unit: Path) -> None:
    """The check above can fail."""
    unit.write_text(unit.read_text().replace("Restart=always", "Restart=sometimes"))
    assert "sometimes" in analyze("verify", str(unit)).stderr


def test_it_is_hardened(unit: Path) -> None:
    """The exposure that systemd computes is low, and grows when the hardening goes."""
    limit = f"--threshold={MOST_EXPOSED}"
    assert analyze("security", "--offline=true", limit, str(unit)).returncode == 0
    kept = [line for line in unit.read_text().splitlines() if not line.startswith(("Protect", "SystemCall"))]
    unit.write_text("\n".join(kept) + "\n")
    assert analyze("security", "--offline=true", limit, str(unit)).returncode != 0


def test_the_program_it_starts_is_ours() -> None:
    """The command line in it is one that `tracker run` takes."""
    line = next(line for line in UNIT.read_text().splitlines() if line.startswith("ExecStart="))
    assert line.split()[1:] == ["run", "--config", "/etc/run-telemetry/%i.toml"]

"""What is shipped: three packages with all their data, and nothing else; pins without addresses."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Names in the wheel, built from this tree."""
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out], cwd=ROOT, check=True,
        capture_output=True,
    )  # fmt: skip
    (wheel,) = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        return file.namelist()


def test_the_wheel_holds_three_packages_and_nothing_else(shipped: list[str]) -> None:
    """No tests, no configs, no docs."""
    tops = {name.split("/")[0] for name in shipped if ".dist-info/" not in name}

    assert tops == {"tracker", "collectors", "reports"}


def test_the_wheel_holds_every_file_of_them(shipped: list[str]) -> None:
    """Migrations, tables, the bundled run, and the marks that they are typed."""
    there = {
        str(path.relative_to(ROOT))
        for top in ("tracker", "collectors", "reports")
        for path in (ROOT / top).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert there - set(shipped) == set()
    for needed in ("tracker/py.typed", "tracker/demo/run.toml", "tracker/core/data/hardware.toml"):
        assert needed in shipped
    assert any(name.startswith("tracker/store/migrations/") for name in shipped)


def test_pins_are_names_and_versions_only() -> None:
    """No address of any registry, no path, no hash of a machine's own build."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()

    assert lines
    assert not [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+", line)]


def test_every_dependency_is_pinned() -> None:
    """Those of the distribution and of its development extra."""
    text = (ROOT / "pyproject.toml").read_text()
    wanted = {
        name.lower().replace("_", "-")
        for name in re.findall(r'^  "([A-Za-z0-9_-]+)[<>=]', text.split("[project.scripts]")[0], re.MULTILINE)
    }
    pinned = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
    }

    assert wanted
    assert wanted <= pinned

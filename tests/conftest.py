"""What every test may lean on."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import hypothesis
import pytest

hypothesis.settings.register_profile("quick", max_examples=15)
"""For `make check`: fewer tries of each law; `make test` tries them all."""

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


def need(present: bool, reason: str) -> None:
    """Skip with the reason where something is missing; fail instead when CI says that it must be there."""
    if present:
        return
    if os.environ.get("CI"):
        pytest.fail(f"missing in CI: {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real logs; tests that read it are skipped where it is absent."""
    need(SHARED.is_dir(), "no folder ../shared/data with the real logs beside this checkout")
    return SHARED


@pytest.fixture(scope="session")
def promtool() -> str:
    """The path of promtool (Debian package prometheus)."""
    path = shutil.which("promtool")
    need(path is not None, "promtool is not installed (Debian package prometheus)")
    assert path is not None
    return path

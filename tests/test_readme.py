"""The README tells the truth: its output is what the commands print today, and its links lead somewhere."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.console_blocks import blocks, printed

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("command", "shown"), list(blocks(README)), ids=lambda text: text.split("\n")[0][:60]
)
def test_the_output_shown_is_real(
    command: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Renew it with `python -m tests.test_readme`."""
    monkeypatch.chdir(tmp_path)

    assert printed(command) == shown


def test_every_link_leads_to_a_page() -> None:
    """Relative links of the README exist."""
    pages = re.findall(r"\]\(([^)#:]+)\)", README)

    assert [page for page in pages if not (ROOT / page).exists()] == []


def test_the_config_shown_is_valid(tmp_path: Path) -> None:
    """A reader who copies it gets no error."""
    from collectors import BUILTIN
    from tracker.config.load import load

    body = README.split("```toml\n")[1].split("```")[0]
    path = tmp_path / "run.toml"
    path.write_text(body, "utf-8")

    assert load(path, lambda: {c.name: c for c in BUILTIN}).settings.run == "llama-13b"


if __name__ == "__main__":
    import os
    import tempfile

    from tests.console_blocks import renewed

    home = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        page = renewed(README)
        os.chdir(home)
    (ROOT / "README.md").write_text(page, "utf-8")
    sys.exit(0)

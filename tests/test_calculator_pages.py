"""The calculators' pages show real output, and name every figure, flag and code they promise."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

from tests.console_blocks import blocks, demo, printed
from tracker.core.hardware import accelerators
from tracker.core.plan_check import CODES

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("calculators.md", "references.md")

MODULES = (
    "reports.figures", "tracker.core._checks", "tracker.core.chain", "tracker.core.convert",
    "tracker.core.definitions", "tracker.core.energy", "tracker.core.failures", "tracker.core.flop",
    "tracker.core.goodput_model", "tracker.core.hardware", "tracker.core.plan", "tracker.core.plan_check",
    "tracker.core.poisson", "tracker.core.prices", "tracker.core.references",
    "tracker.core.run_money", "tracker.core.variance",
)  # fmt: skip


def shown() -> list[tuple[str, str, str]]:
    """Every block of the pages, with its page."""
    return [(page, *block) for page in PAGES for block in blocks((DOCS / page).read_text("utf-8"))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the demo's run in it."""
    made = tmp_path_factory.mktemp("pages")
    demo(made)
    return made


@pytest.mark.parametrize(("page", "command", "output"), shown(), ids=lambda value: str(value)[:40].strip())
def test_a_pages_output_is_what_the_command_prints(
    page: str, command: str, output: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Renew them with `python -m tests.console_blocks docs/calculators.md docs/references.md`."""
    monkeypatch.chdir(folder)
    assert output == printed(command), page


def test_every_calculator_is_shown_with_real_output() -> None:
    """Each of the six, at least once."""
    commands = " ".join(command for _, command, _ in shown())

    for name in ("plan", "references", "backsolve", "convert", "goodput", "mtbf"):
        assert f"tracker {name}" in commands


def test_the_page_names_every_mistake_the_check_knows() -> None:
    """By its code."""
    page = (DOCS / "calculators.md").read_text("utf-8")

    assert [code for code in CODES if f"`{code}`" not in page] == []


def test_the_page_shows_every_accelerator() -> None:
    """By its name in the config."""
    page = (DOCS / "references.md").read_text("utf-8")

    assert [row.name for row in accelerators() if f"\n{row.name} " not in page] == []


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_the_formulas_hold(name: str) -> None:
    """Each formula's docstring has one."""
    results = doctest.testmod(importlib.import_module(name))

    assert results.attempted > 0
    assert results.failed == 0

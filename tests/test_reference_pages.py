"""The reference pages say what the code says, and every promise of the design has a place on them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tracker.cli import COMMANDS
from tracker.config.keys import SECTIONS
from tracker.families import FAMILIES

DOCS = Path(__file__).parents[1] / "docs"


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", list(generator().PAGES))
def test_the_page_is_what_the_code_says_now(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make docs` writes them anew."""
    monkeypatch.setenv("COLUMNS", "100")
    made: str = generator().PAGES[name]()

    assert (DOCS / name).read_text() == made, "run `make docs`"


def test_writing_again_changes_nothing() -> None:
    """The script says which pages it wrote; none, when they are up to date."""
    done = subprocess.run([sys.executable, DOCS / "generate.py"], capture_output=True, text=True, check=True)

    assert done.stdout == ""


def test_every_key_every_family_and_every_command_is_there() -> None:
    """Each by its name."""
    configuration, metrics, cli = (
        (DOCS / f"{n}.md").read_text() for n in ("configuration", "metrics", "cli")
    )

    assert not [s.name for s in SECTIONS.values() if s.header not in configuration]
    assert not [k.name for s in SECTIONS.values() for k in s.keys if f"| `{k.name}` |" not in configuration]
    assert not [f.name for f in FAMILIES if f"| `{f.name}` |" not in metrics]
    assert not [name for name in COMMANDS if f"## `tracker {name}`" not in cli]


def test_every_document_is_explained() -> None:
    """What a key means is a sentence, and ends as one."""
    assert not [
        f"{s.name}.{k.name}" for s in SECTIONS.values() for k in s.keys if not k.doc.rstrip(")").endswith(".")
    ]
    assert not [family.name for family in FAMILIES if not family.help.rstrip(")").endswith(".")]

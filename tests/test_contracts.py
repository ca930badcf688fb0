"""The import contracts name every module: one that nobody listed would be free to import anything."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import grimp
import pytest

ROOT = Path(__file__).parents[1]
CONTRACTS: dict[str, dict[str, Any]] = {
    contract["name"]: contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
}


def modules(folder: str) -> set[str]:
    """Modules and packages that stand directly in a folder, by their full names."""
    found = set()
    for path in (ROOT / folder).iterdir():
        package = path.is_dir() and (path / "__init__.py").exists()
        if package or (path.suffix == ".py" and path.stem != "__init__"):
            found.add(f"{folder.replace('/', '.')}.{path.stem}")
    return found


def named(words: list[str]) -> set[str]:
    return {word.strip() for line in words for word in line.split("|")}


EDGES = modules("tracker") - {"tracker.core"}


def test_the_layers_name_every_module_of_the_tracker() -> None:
    """And both other packages."""
    layers = named(CONTRACTS["Arrows point at the records"]["layers"])

    assert layers == modules("tracker") | {"collectors", "reports"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param(
            "The core is pure: it takes values, not edges, and nothing of third parties but numpy",
            EDGES | {"collectors", "reports"},
            id="core",
        ),
        pytest.param(
            "Collectors know records, not formulas, and no edge",
(EDGES - {"tracker.interfaces"}) | {"tracker.core", "reports"},
            id="collectors",
        ),
        pytest.param("Reports know finished numbers, and no edge", EDGES | {"collectors"}, id="reports"),
    ],
)  # fmt: skip
def test_what_is_forbidden_names_every_module(name: str, expected: set[str]) -> None:
    """A new module has to be put somewhere on purpose."""
    ours = {
        m
        for m in CONTRACTS[name]["forbidden_modules"]
        if m.split(".")[0] in {"tracker", "collectors", "reports"}
    }

    assert ours == expected


def test_collectors_do_not_know_each_other() -> None:
    """A format imports shared modules, whose names begin with an underscore, and no other format.

    A test and no contract: a contract would have to list every format, and grow stale with each new one.
    """
    graph = grimp.build_graph("collectors", cache_dir=None)
    formats = {name for name in modules("collectors") if not name.split(".")[1].startswith("_")}
    known = {
        (importer, imported)
        for importer in graph.modules - {"collectors"}
        for imported in graph.find_modules_directly_imported_by(importer)
        if imported in formats
    }

    assert len(formats) > 5
    assert known == set()


def test_third_parties_of_the_core_are_all_named() -> None:
    """Every dependency of the distribution is forbidden in the core."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {
        line.split(">")[0].split("=")[0].split("<")[0].replace("-", "_") for line in project["dependencies"]
    }
    forbidden = CONTRACTS[
        "The core is pure: it takes values, not edges, and nothing of third parties but numpy"
    ]

    names = {"yaml" if name == "pyyaml" else name for name in names}  # known by another name
    assert names - {"tzdata", "numpy"} <= set(forbidden["forbidden_modules"])

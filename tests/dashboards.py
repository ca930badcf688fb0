"""What the tests of the dashboards share: the committed JSON, its panels and queries, variables filled in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
GRAFANA: Final = ROOT / "configs" / "grafana"
FILES: Final = tuple(sorted((GRAFANA / "dashboards").glob("*.json")))
BOARDS: Final[dict[str, dict[str, Any]]] = {path.stem: json.loads(path.read_text()) for path in FILES}
FILLED: Final = {
    "$__rate_interval": "2m",
    "$__interval_ms": "15000",
    "$__interval": "15s",
    "${datasource}": "p",
    "$job": ".+",
    "$instance": ".+",
    "$run": ".+",
}


PACE: Final = {name: value for name, value in FILLED.items() if name.startswith("$__")}
"""What Grafana fills in by the width of the picture."""


@dataclass(frozen=True)
class Asked:
    """One query of a dashboard."""

    board: str
    where: str
    expr: str
    now: bool

    @property
    def filled(self) -> str:
        """Return the expression with every variable at "All"."""
        return self.paced(FILLED)

    def paced(self, values: Mapping[str, str]) -> str:
        """Return the expression with these variables filled in."""
        text = self.expr
        for name, value in values.items():
            text = text.replace(name, value)
        return text

    def __str__(self) -> str:
        return f"{self.board}: {self.where}"


def panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the panels, those of collapsed rows too; rows are no panels."""
    for panel in board["panels"]:
        if panel["type"] == "row":
            yield from panel.get("panels") or ()
        else:
            yield panel


def queries() -> Iterator[Asked]:
    """Yield every query of every panel and annotation."""
    for uid, board in BOARDS.items():
        for panel in panels(board):
            for target in panel["targets"]:
                where = f"{panel['title']} {target['refId']}"
                yield Asked(uid, where, target["expr"], bool(target.get("instant")))
        for mark in board["annotations"]["list"]:
            yield Asked(uid, f"annotation {mark['name']}", mark["target"]["expr"], False)

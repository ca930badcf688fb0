"""Writes the dashboards' JSON: `make dashboards`. A test compares, and fails on a difference.

Edge: writes configs/grafana/dashboards/*.json. Run as a script: python configs/grafana/build.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

import fleet
import health
import run

HERE: Final = Path(__file__).parent
BOARDS: Final = (run.BOARD, fleet.BOARD, health.BOARD)


def texts() -> dict[str, str]:
    """Return every file's text by its name."""
    return {
        f"{board.uid}.json": json.dumps(board.document(), indent=2, ensure_ascii=False) + "\n"
        for board in BOARDS
    }


def main(folder: Path) -> int:
    """Write every file; say which ones changed."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts().items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"{name} written")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "dashboards"))

"""Console blocks of a page: `$ tracker ...` and what it printed. Run as a module to write them anew.

python -m tests.console_blocks docs/calculators.md docs/references.md
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from click.testing import CliRunner

from tracker.cli import root

BLOCK = re.compile(r"(```console\n)(\$ tracker (?:[^\n]*\\\n)*[^\n]*\n)(.*?)(```\n)", re.DOTALL)


def printed(command: str) -> str:
    """Return what a block's command prints today; it must succeed."""
    words = shlex.split(command.removeprefix("$ tracker ").replace("\\\n", " "))
    result = CliRunner().invoke(root, words, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.stdout


def blocks(page: str) -> Iterator[tuple[str, str]]:
    """Yield (command, shown output) of every console block."""
    for match in BLOCK.finditer(page):
        yield match.group(2), match.group(3)


def renewed(page: str) -> str:
    """Return the page with the output of today."""
    return BLOCK.sub(lambda m: m.group(1) + m.group(2) + printed(m.group(2)) + m.group(4), page)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(renewed(path.read_text("utf-8")), "utf-8")

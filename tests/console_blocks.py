"""Console blocks of a page: `$ tracker ...` and what it printed. Run as a module to write them anew.

python -m tests.console_blocks docs/calculators.md docs/references.md
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
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


def demo(folder: Path) -> None:
    """Make the bundled run in a folder, for blocks that ask about it."""
    done = CliRunner().invoke(root, ["demo", "--directory", str(folder / "demo")], standalone_mode=False)
    if done.exception is not None:
        raise done.exception


if __name__ == "__main__":
    pages = [Path(name).resolve() for name in sys.argv[1:]]
    home = Path.cwd()
    with tempfile.TemporaryDirectory() as temporary:
        demo(Path(temporary))
        os.chdir(temporary)
        for page in pages:
            page.write_text(renewed(page.read_text("utf-8")), "utf-8")
        os.chdir(home)

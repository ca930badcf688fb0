"""A run's past as one OpenMetrics text file, for `promtool tsdb create-blocks-from openmetrics`.

Edge: writes files. The format wants all samples of a series together, and time gives them all mixed; so
every series is first written to a file of its own, a block at a time, and memory stays bounded.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

from tracker.export.history import RUN_FAMILIES, Block, Labels
from tracker.families import Family
from tracker.scratch import Scratch


def write(blocks: Iterable[Block], out: BinaryIO, *, told: Callable[[int, int], None] | None = None) -> int:
    """Write the samples and the end mark; return how many samples. `told` hears samples and last moment."""
    samples = 0
    with Scratch("export") as folder:
        places: dict[str, dict[Labels, Path]] = {}
        made = 0
        for block in blocks:
            stamps: dict[int, str] = {}
            for line in block.lines:
                own = places.setdefault(line.family.name, {})
                if line.labels not in own:
                    made += 1
                    own[line.labels] = folder / str(made)
                place = own[line.labels]
                head = f"{line.family.name}{{{braced(line.labels)}}} "
                for at_ms in line.times_ms:
                    if at_ms not in stamps:
                        stamps[at_ms] = f" {seconds(at_ms)}\n"
                pairs = zip(line.values, line.times_ms, strict=True)
                with place.open("a", encoding="utf-8") as file:
                    file.write("".join([f"{head}{value!r}{stamps[at_ms]}" for value, at_ms in pairs]))
            samples += block.samples
            if told is not None:
                told(samples, block.end_ms)
        for family in RUN_FAMILIES:
            out.write(_header(family).encode())
            for place in places.get(family.name, {}).values():
                with place.open("rb") as part:
                    shutil.copyfileobj(part, out, 1 << 20)
    out.write(b"# EOF\n")
    return samples


def braced(labels: Labels) -> str:
    r"""Return labels as they stand between braces.

    >>> braced((("run", 'a "b"'), ("p", "0.5")))
    'run="a \\"b\\"",p="0.5"'
    """
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)


def seconds(at_ms: int) -> str:
    """Return a moment in seconds that gives the same millisecond to readers that round, and that cut.

    >>> seconds(1_767_225_600_000), seconds(1_767_225_600_250)
    ('1767225600', '1767225600.25')
    """
    whole, rest = divmod(at_ms, 1000)
    if not rest:
        return str(whole)
    at_s = at_ms / 1000
    while int(at_s * 1000) < at_ms:
        at_s = math.nextafter(at_s, math.inf)
    return repr(at_s)


def _header(family: Family) -> str:
    name = family.name
    if family.kind == "counter":
        name = name.removesuffix("_total")
    elif family.kind == "info":
        name = name.removesuffix("_info")
    return f"# HELP {name} {_escaped(family.help)}\n# TYPE {name} {family.kind}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

"""Lines that mean nothing, as real logs are full of them; a reader must pass them over.

Pure, given its random source. Among them: benign tracebacks, words like error and failed, carriage-return
progress bars, invalid UTF-8, and lines that look a little like a training line.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulator.text import Line

_QUIET = (
    "node-{n:04d}:{pid}:{tid} [{g}] NCCL INFO Channel {c:02d}/0 : {a}[{g}] -> {b}[{h}] via P2P/CUMEM",
    "node-{n:04d}:{pid}:{tid} [{g}] NCCL INFO comm 0x55d0{pid:04x} rank {a} nranks 512 - Init COMPLETE",
    "node-{n:04d}:{pid}:{tid} [{g}] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB ; OOB eth0",
    "/opt/venv/lib/python3.11/site-packages/layers/norm.py:{c}: UserWarning: falling back to the slow kernel",
    "  warnings.warn(",
    "[Rank {a}] (after {c} iterations) memory (MB) | allocated: {pid}.0 | max allocated: {tid}.5",
    "WARNING: optional kernel failed to import, no fused path (this is not an error)",
    " > building shuffle index with split [0, {pid}) and [{pid}, {tid}) ...",
    "Number of parameters in most loaded shard in billions: 1.{c}",
    "gc: collected {c} objects",
    "",
    "iteration of the sampler over shard {c} of {pid}",
    "checkpoint directory has {c} entries",
    "step 0{c} of the data index: ok",
)
_BAR = "Loading shards: {done:3d}%|{bar:<10}| {k}/10 [00:{k:02d}<00:{left:02d},  1.01s/it]"
_BENIGN = (
    "Import of fast_gelu failed with: Traceback (most recent call last):",
    '  File "/opt/app/ops/__init__.py", line {c}, in <module>',
    "    import fast_gelu",
    "ModuleNotFoundError: No module named 'fast_gelu'",
)


class Chatter:
    """Strews lines of no meaning between those of a log."""

    def __init__(self, rng: random.Random, share: float) -> None:
        self.rng = rng
        self.share = share

    def between(self, said: list[Line]) -> list[Line]:
        """Return the lines with chatter between them; the order in time is kept."""
        from tests.simulator.text import Line

        found: list[Line] = []
        for number, line in enumerate(said):
            found.append(line)
            if number == 1:
                found += [
                    Line(line.at_us, self._bar()),
                    Line(line.at_us, self._fill("\n".join(_BENIGN)) + "\n"),
                ]
            count = int(self.share + self.rng.random())
            if count and self._splits(line):
                continue
            found += [Line(line.at_us, self._one()) for _ in range(count)]
        return found

    def _splits(self, line: Line) -> bool:
        """Tell whether the next line continues this one (a block of several lines)."""
        return line.text.rstrip().endswith("(ms):") or line.text.startswith("-----")

    def _one(self) -> str:
        if self.rng.random() < 0.01:
            return "\udcff\udcfe binary \udc80 from a broken writer\x00\n"
        return self._fill(self.rng.choice(_QUIET)) + "\n"

    def _bar(self) -> str:
        parts = [_BAR.format(done=10 * k, bar="#" * k, k=k, left=10 - k) for k in range(11)]
        return "\r".join(parts) + "\n"

    def _fill(self, text: str) -> str:
        rng = self.rng
        return text.format(
            n=rng.randint(1, 128),
            pid=rng.randint(1000, 9999),
            tid=rng.randint(10_000, 65_000),
            g=rng.randint(0, 7),
            h=rng.randint(0, 7),
            a=rng.randint(0, 511),
            b=rng.randint(0, 511),
            c=rng.randint(0, 31),
        )

"""Finding the few lines of a log that matter, without looking at the others one by one.

Pure: what is remembered here are shapes of lines; it changes the speed and no answer.

A *gate* is a literal that every line of interest holds. Few gates are searched for one after another (a block
costs about 0.6 ms a MB and gate). Many gates would be slower than the log itself, so then the block is
reduced to its shape: digits, hex letters and punctuation dropped in one pass. Chatter repeats itself: nearly
all of its lines have shapes seen before, and a set look-up settles them, whatever the number of gates. Only
new shapes are searched.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final

_DROPPED: Final = b"0123456789abcdef.:,-+ \t()[]/|_<>=*#'\"`"
_FEW: Final = 3
_SHAPES: Final = 8192
_LONGEST_SHAPE: Final = 400
_BLIND_BLOCKS: Final = 16


class Scanner:
    """Finds the lines that hold one of the gates."""

    def __init__(self, gates: Sequence[bytes], hot: bytes = b"") -> None:
        """`hot` is the gate of lines that somebody else finds faster: see `lines`."""
        self._gates = tuple(dict.fromkeys(gates))
        self._hot = hot
        self._reduced = tuple((gate.translate(None, _DROPPED), gate) for gate in self._gates)
        self._hot_shape = hot.translate(None, _DROPPED)
        self._shaped = len(self._gates) > _FEW and all(reduced for reduced, _ in self._reduced)
        self._dull: set[bytes] = set()
        self._blind = 0

    def lines(self, block: bytes, taken: Container[int] = (), count: int = 0) -> dict[int, tuple[bytes, ...]]:
        """Return where the lines begin that hold a gate, in order, and which gates each holds.

        Lines that begin at one of the `count` places of `taken` hold the hot gate and are left out.
        """
        found: dict[int, tuple[bytes, ...]] = {}
        gates = self._present(block, count) if self._shaped else self._gates
        for gate in gates:
            at = block.find(gate)
            while at >= 0:
                start = block.rfind(b"\n", 0, at) + 1
                if start not in taken:
                    found[start] = (*found[start], gate) if start in found else (gate,)
                end = block.find(b"\n", at)
                if end < 0:
                    break
                at = block.find(gate, end)
        return found if len(gates) < 2 else dict(sorted(found.items()))

    def _present(self, block: bytes, taken: int) -> tuple[bytes, ...]:
        """Return the gates that lines of the block may hold, the taken ones set aside.

        A taken line holds the hot gate, so that its shape is never dull: if as many lines are not dull as
        were taken, there are no others.
        """
        shape_of_all = block.translate(None, _DROPPED)
        if self._blind:
            self._blind -= 1
            return tuple(gate for reduced, gate in self._reduced if reduced in shape_of_all)
        dull = self._dull
        shapes = shape_of_all.split(b"\n")
        lively = [shape for shape in shapes if shape not in dull]
        if len(lively) == taken:
            return ()
        fresh = set(lively)
        if len(fresh) > len(shapes) // 2 and len(fresh) > 64:  # nothing repeats: shapes only cost
            self._blind = _BLIND_BLOCKS
            return tuple(gate for reduced, gate in self._reduced if reduced in shape_of_all)
        blob = b"\n".join(fresh)
        present = {gate for reduced, gate in self._reduced if reduced in blob}
        held = [reduced for reduced, gate in self._reduced if gate in present]
        known = {shape for shape in fresh if not any(reduced in shape for reduced in held)}
        if len(dull) + len(known) > _SHAPES:
            dull.clear()
        dull.update(shape for shape in known if len(shape) <= _LONGEST_SHAPE)
        if taken and self._hot in present:
            hot = self._hot_shape
            if sum(hot in shape for shape in lively) == taken:
                present.discard(self._hot)
        return tuple(gate for gate in self._gates if gate in present)

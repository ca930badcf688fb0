"""One module for each format; this file holds the one list of them, and tells which one a file is for.

Pure. `NAMES` is the registry: a collector that is not in it does not exist. Each is
loaded when it is asked for: all of them take a third of a second.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tracker.core.errors import InvalidValue, nearest
from tracker.interfaces import Collector, Evidence

NAMES: Final = (
    "automodel", "colossalai", "composer", "csv", "deepspeed", "events", "gpt_neox", "huggingface",
    "internevo", "jsonl", "kernel", "kubernetes", "kubernetes_watch", "levanter", "lightning",
    "lightning_csv", "lingua", "litgpt", "llmc", "maxtext", "megatron", "megatron_bridge",
    "megatron_deepspeed", "metaseq", "mllog", "modded_nanogpt", "nanogpt", "nanotron", "nemo", "olmo",
    "olmo_core", "pattern", "slurm", "tensorboard", "torchtitan", "torchtune", "trainer_log", "trainer_state",
)  # fmt: skip
"""The registry: the collector of a name is `COLLECTOR` of the module of that name."""


class _Known(Mapping[str, Collector]):
    """Every collector by name, each loaded when it is first looked at."""

    def __getitem__(self, name: str) -> Collector:
        if name not in NAMES:
            raise KeyError(name)
        found: Collector = importlib.import_module(f"{__name__}.{name}").COLLECTOR
        return found

    def __contains__(self, name: object) -> bool:
        return name in NAMES

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


KNOWN: Final[Mapping[str, Collector]] = _Known()

BUILTIN: tuple[Collector, ...]
"""All of them, loaded when somebody asks for this name."""


def __getattr__(name: str) -> Any:
    if name == "BUILTIN":
        return tuple(KNOWN.values())
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


HEAD_BYTES: Final = 256 * 1024
"""How much of a file `detect` wants to see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A collector that thinks that a file is its own."""

    collector: Collector
    evidence: Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """Who reads a file: one collector, nobody, or several who cannot be told apart."""

    claims: tuple[Claim, ...]
    """All that recognise it, the strongest first."""

    @property
    def collector(self) -> Collector | None:
        """The one that reads it; None where nobody knows it, or where the strongest claims tie."""
        return None if self.tied or not self.claims else self.claims[0].collector

    @property
    def tied(self) -> tuple[Claim, ...]:
        """The strongest claims where they are equally strong; else empty."""
        best = [claim for claim in self.claims if claim.evidence.score == self.claims[0].evidence.score]
        return tuple(best) if len(best) > 1 else ()

    @property
    def text(self) -> str:
        """Say who reads it and why, or why nobody does, in one sentence for people."""
        if self.tied:
            both = "; ".join(f"{claim.collector.name}: {claim.evidence.text}" for claim in self.tied)
            return f"several collectors claim it equally ({both}): name one in [[source]] collector"
        if not self.claims:
            return "no collector recognises it: name one in [[source]] collector"
        return f"{self.claims[0].collector.name}: {self.claims[0].evidence.text}"


def detect(head: bytes, collectors: Iterable[Collector] | None = None) -> Detection:
    """Return who reads a file, given its first bytes (decompressed)."""
    head = head[:HEAD_BYTES]
    claims = [
        Claim(collector=one, evidence=found)
        for one in (KNOWN.values() if collectors is None else collectors)
        if (found := one.detect(head)) is not None
    ]
    claims.sort(key=lambda claim: (-claim.evidence.score, claim.collector.name))
    return Detection(claims=tuple(claims))


def named(name: str, collectors: Iterable[Collector] | None = None) -> Collector:
    """Return the collector of that name; InvalidValue names the nearest where there is none."""
    known = KNOWN if collectors is None else {one.name: one for one in collectors}
    if name in known:
        return known[name]
    raise InvalidValue(
        "[[source]] collector",
        name,
        f"one of {', '.join(sorted(known))}, or auto",
        nearest(name, known),
    )

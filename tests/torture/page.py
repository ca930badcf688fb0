"""docs/reliability.md: what was tried to break the product, and what came of it.

Edge: writes one file. The words that do not change stand in page.txt beside this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.torture.disk import FAULTS, Seen
from tests.torture.disk import REMEDIES as DISK_REMEDIES
from tests.torture.flips import Flips
from tests.torture.kills import Tally
from tests.torture.world import FAULTS as WORLD
from tests.torture.world import REMEDIES, Met

_WORDS = Path(__file__).with_name("page.txt")
_FAULTS_SHOWN = 20
_COLUMNS = (
    "seed", "what is played", "kills", "fresh processes", "before it listened", "clock set", "frozen",
    "killed frozen", "scrapes", "questions", "reports", "rows compared", "differences",
)  # fmt: skip


Soak = Mapping[str, Any]
"""What tests.soak tells of one played time."""


def page(
    tallies: Sequence[Tally],
    seen: Sequence[Seen],
    flips: Sequence[Flips],
    met: Sequence[Met] = (),
    soaks: Sequence[Soak] = (),
) -> str:
    """Return the page."""
    text = _WORDS.read_text(encoding="utf-8")
    for name, value in {
        "KILLS": _kills(tallies),
        "RESULT": _result(tallies),
        "COUNTS": _counts(tallies, seen, flips, met, soaks),
        "DISK": _disk(seen),
        "WORLD": _world(met),
        "SOAK": _soak(soaks),
        "FLIPS": _flips(flips),
    }.items():
        text = text.replace(f"@{name}@", value)
    return text


def _kills(tallies: Sequence[Tally]) -> str:
    total = Tally(plot="**all**", seed=0)
    for one in tallies:
        total.add(one)
    lines = [f"| {' | '.join(_COLUMNS)} |", f"| {' | '.join('---' for _ in _COLUMNS)} |"]
    for one in [*tallies, total]:
        numbers = (
            one.kills, one.fresh, one.early, one.stepped, one.frozen, one.killed_frozen, one.scrapes,
            one.questions, one.reports, one.rows, len(one.faults),
        )  # fmt: skip
        seed = str(one.seed) if one is not total else ""
        lines.append(f"| {seed} | {one.plot} | {' | '.join(f'{n:,}' for n in numbers)} |")
    return "\n".join(lines)


def _result(tallies: Sequence[Tally]) -> str:
    kills, rows = sum(one.kills for one in tallies), sum(one.rows for one in tallies)
    faults = [f"seed {one.seed}: {fault}" for one in tallies for fault in one.faults]
    if not faults:
        return f"**{kills:,} kills, {rows:,} rows compared twice, zero differences.**"
    shown = [f"- {fault.splitlines()[0][:300]}" for fault in faults[:_FAULTS_SHOWN]]
    return "\n".join([f"**{kills:,} kills, {len(faults):,} differences:**", "", *shown])


def _disk(seen: Sequence[Seen]) -> str:
    lines = [
        "| fault | what happens | what it says | what to do | stores again | rows compared | result |",
        "| --- | --- | --- | --- | ---: | ---: | --- |",
    ]
    for one in seen:
        what = (FAULTS[one.name].__doc__ or "").strip() if one.name in FAULTS else ""
        result = (
            "; ".join(fault.splitlines()[0][:200] for fault in one.faults) or "nothing lost, nothing twice"
        )
        back = "" if one.back_s is None else f"after {one.back_s:.1f} s"
        if one.left_out:
            result = f"not tried here: {one.left_out.splitlines()[0][:200]}"
        cells = (
            one.name, what, _cell(_plain(one.message)), DISK_REMEDIES.get(one.name, ""), back,
            str(one.rows or ""), _cell(result),
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _counts(
    tallies: Sequence[Tally],
    seen: Sequence[Seen],
    flips: Sequence[Flips],
    met: Sequence[Met],
    soaks: Sequence[Soak],
) -> str:
    """Return all that was done in a few lines."""
    tried = [one for one in seen if not one.left_out]
    lines = [
        "| what | how often | lost, doubled, hung or not told |",
        "| --- | ---: | ---: |",
        f"| kills | {sum(t.kills for t in tallies):,} | {sum(len(t.faults) for t in tallies):,} |",
        f"| faults of the disk | {len(tried)} | {sum(len(one.faults) for one in tried):,} |",
        f"| faults of the world | {len(met)} | {sum(len(one.faults) for one in met):,} |",
        f"| stores with flipped bits | {sum(f.stores for f in flips):,} "
        f"| {sum(len(f.faults) for f in flips):,} |",
    ]
    for one in soaks:
        lost = one["steps_written"] - one["steps_in_the_model"]
        lines.append(f"| days played | {one['days']:,} | {lost:,} |")
    return "\n".join(lines)


def _world(met: Sequence[Met]) -> str:
    lines = [
        "| fault | what happens | what it says | what to do | figures | memory at its highest | result |",
        "| --- | --- | --- | --- | --- | ---: | --- |",
    ]
    for one in met:
        what = (WORLD[one.name].__doc__ or "").strip() if one.name in WORLD else ""
        result = "; ".join(f.splitlines()[0][:200] for f in one.faults) or "nothing lost, nothing twice"
        if one.left_out:
            result = f"not tried here: {one.left_out}"
        cells = (
            one.name, what, _cell(_plain(one.message)), REMEDIES.get(one.name, ""), _cell(one.figures),
            f"{one.memory_mb:.0f} MB", _cell(result),
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _soak(soaks: Sequence[Soak]) -> str:
    lines = []
    for one in soaks:
        lines += [
            f"{one['days']} days in {one['minutes']:.0f} minutes: {one['steps_written']:,} steps written,"
            f" {one['steps_in_the_model']:,} in the model, {one['attempts']} attempts,"
            f" {one['reports']} weekly reports made by real children.",
            "",
            "| day | memory | handles | children | store | write-ahead log | a snapshot takes |",
            "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        ]
        held = one["held"]
        for at in [*held[:-1:4], *held[-1:]]:
            lines.append(
                f"| {at['day']} | {at['rss_mb']:.1f} MB | {at['handles']} | {at['children']} |"
                f" {at['store_mb']:.2f} MB | {at['wal_mb']:.2f} MB | {at['snapshot_ms']:.0f} ms |"
            )
    return "\n".join(lines)


def _flips(flips: Sequence[Flips]) -> str:
    lines = [
        "| seed | stores | harmless | told | found by `db check` | a value is another one | faults |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in flips:
        numbers = (one.stores, one.harmless, one.told, one.found, one.silent, len(one.faults))
        lines.append(f"| {one.seed} | {' | '.join(f'{n:,}' for n in numbers)} |")
        lines += [f"\n{fault}" for fault in one.faults[:_FAULTS_SHOWN]]
    return "\n".join(lines)


def _plain(message: str) -> str:
    """Return a message without its time, and without the folder that only this trial had."""
    words = message.split(" ")
    if "WARNING" in words:
        words = words[words.index("WARNING") + 3 :]
    return " ".join(Path(word).name if word.startswith("/tmp/") else word for word in words)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")

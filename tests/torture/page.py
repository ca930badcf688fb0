"""docs/reliability.md: what was tried to break the product, and what came of it.

Edge: writes one file. The words that do not change stand in page.txt beside this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.torture.disk import FAULTS, Seen
from tests.torture.flips import Flips
from tests.torture.kills import Tally

_WORDS = Path(__file__).with_name("page.txt")
_FAULTS_SHOWN = 20
_COLUMNS = (
    "seed", "what is played", "kills", "fresh processes", "before it listened", "clock set", "frozen",
    "killed frozen", "scrapes", "questions", "reports", "rows compared", "differences",
)  # fmt: skip


def write_page(path: Path, tallies: Sequence[Tally], seen: Sequence[Seen], flips: Sequence[Flips]) -> None:
    """Write the page."""
    path.write_text(page(tallies, seen, flips), encoding="utf-8")


def page(tallies: Sequence[Tally], seen: Sequence[Seen], flips: Sequence[Flips]) -> str:
    """Return the page."""
    text = _WORDS.read_text(encoding="utf-8")
    for name, value in {
        "KILLS": _kills(tallies),
        "RESULT": _result(tallies),
        "DISK": _disk(seen),
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
        "| fault | what happens | stores again | rows compared | result | what it says |",
        "| --- | --- | ---: | ---: | --- | --- |",
    ]
    for one in seen:
        what = (FAULTS[one.name].__doc__ or "").strip() if one.name in FAULTS else ""
        result = (
            "; ".join(fault.splitlines()[0][:200] for fault in one.faults) or "nothing lost, nothing twice"
        )
        back = "" if one.back_s is None else f"after {one.back_s:.1f} s"
        if one.left_out:
            result = f"not tried here: {one.left_out.splitlines()[0][:200]}"
        cells = (one.name, what, back, str(one.rows or ""), _cell(result), _cell(_plain(one.message)))
        lines.append(f"| {' | '.join(cells)} |")
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

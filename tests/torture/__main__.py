"""Kills, faults of disk and world at length: `python -m tests.torture --kills 1000 --out PAGE`.

Edge. Results are also kept as lines of JSON where --record says; --from adds those of an earlier time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from tests.torture.disk import FAULTS, Seen, attempt
from tests.torture.flips import Flips, flip
from tests.torture.kills import Tally, clean, torture
from tests.torture.nursery import Nursery
from tests.torture.page import Soak, page
from tests.torture.stage import PLOTS
from tests.torture.world import FAULTS as WORLD
from tests.torture.world import Met, meet


def main() -> int:
    """Do it; return 1 where anything was lost, doubled or wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="in all")
    parser.add_argument("--each", type=int, default=40, help="kills of one run")
    parser.add_argument("--seed", type=int, default=1, help="of the first run; the next ones follow")
    parser.add_argument("--no-disk", action="store_true", help="leave out disks and flipped bits")
    parser.add_argument("--no-world", action="store_true", help="leave out schedulers, servers, large logs")
    parser.add_argument("--soak", type=int, default=0, metavar="DAYS", help="play so many days with reports")
    parser.add_argument("--flips", type=int, default=400, help="stores with flipped bits")
    parser.add_argument("--keep", action="store_true", help="keep the folders of runs with a fault")
    parser.add_argument("--record", type=Path, help="append the results to this file")
    parser.add_argument("--from", type=Path, dest="earlier", help="begin with the results in this file")
    parser.add_argument("--out", type=Path, help="write the page here")
    given = parser.parse_args()
    os.nice(10)
    tallies: list[Tally] = []
    seen: list[Seen] = []
    flips: list[Flips] = []
    met: list[Met] = []
    soaks: list[Soak] = []
    if given.earlier is not None:
        for line in given.earlier.read_text(encoding="utf-8").splitlines():
            words = json.loads(line)
            sort = words.pop("sort")
            if sort == "kills":
                tallies.append(Tally(**words))
            elif sort == "disk":
                seen.append(Seen(**words))
            elif sort == "world":
                met.append(Met(**words))
            elif sort == "soak":
                soaks.append(words)
            else:
                flips.append(Flips(**words))
    _kill(given, tallies)
    if not given.no_disk:
        _take_disks(given, seen)
        _flip_bits(given, flips)
    if not given.no_world:
        _meet_world(given, met)
    if given.soak:
        soaks += _soak(given)
    if given.out is not None:
        given.out.write_text(page(tallies, seen, flips, met, soaks), encoding="utf-8")
    return 1 if any(one.faults for some in (tallies, seen, flips, met) for one in some) else 0


def _kill(given: argparse.Namespace, tallies: list[Tally]) -> None:
    if given.kills <= 0:
        return
    begun, done, seed = time.monotonic(), 0, given.seed
    nursery = Nursery()
    try:
        while done < given.kills:
            folder = Path(tempfile.mkdtemp(prefix="torture-"))
            kills = min(given.each, given.kills - done)
            tally = torture(folder, PLOTS[seed % len(PLOTS)], seed=seed, kills=kills, nursery=nursery)
            tallies.append(tally)
            done += tally.kills
            _record(given, {"sort": "kills", **asdict(tally)})
            print(
                f"seed {seed}, {tally.plot}: {tally.kills} kills, {tally.frozen} freezes, {tally.scrapes} "
                f"scrapes, {tally.rows} rows, {len(tally.faults)} faults; "
                f"{done} kills in {time.monotonic() - begun:.0f} s",
                flush=True,
            )
            _tell(given, tally.faults, folder)
            seed += 1
    finally:
        nursery.close()


def _take_disks(given: argparse.Namespace, seen: list[Seen]) -> None:
    for name in FAULTS:
        folder = Path(tempfile.mkdtemp(prefix="torture-"))
        one = attempt(name, folder, seed=given.seed)
        seen.append(one)
        _record(given, {"sort": "disk", **asdict(one)})
        print(f"{name}: {one.left_out or f'{one.rows} rows, {len(one.faults)} faults'}", flush=True)
        _tell(given, one.faults, folder)


def _meet_world(given: argparse.Namespace, met: list[Met]) -> None:
    for name in WORLD:
        folder = Path(tempfile.mkdtemp(prefix="torture-"))
        one = meet(name, folder, seed=given.seed)
        met.append(one)
        _record(given, {"sort": "world", **asdict(one)})
        print(f"{name}: {one.figures or one.message}, {len(one.faults)} faults", flush=True)
        _tell(given, one.faults, folder)


def _soak(given: argparse.Namespace) -> list[Soak]:
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "soak.jsonl"
        asked = ("--days", str(given.soak), "--reports", "--record", str(record))
        subprocess.run([sys.executable, "-m", "tests.soak", *asked], check=True)
        told = json.loads(record.read_text(encoding="utf-8"))
    _record(given, told)
    del told["sort"]
    return [told]


def _flip_bits(given: argparse.Namespace, flips: list[Flips]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="torture-"))
    one = flip(folder, stores=given.flips, seed=given.seed)
    flips.append(one)
    _record(given, {"sort": "flips", **asdict(one)})
    print(f"{one.stores} stores with flipped bits, {one.told} told, {one.silent} silent", flush=True)
    _tell(given, one.faults, folder)


def _record(given: argparse.Namespace, words: dict[str, object]) -> None:
    if given.record is not None:
        with given.record.open("a", encoding="utf-8") as file:
            file.write(json.dumps(words) + "\n")


def _tell(given: argparse.Namespace, faults: list[str], folder: Path) -> None:
    for fault in faults:
        print(f"    {fault}", flush=True)
    if faults and given.keep:
        print(f"    kept: {folder}", flush=True)
    else:
        clean(folder)


if __name__ == "__main__":
    sys.exit(main())

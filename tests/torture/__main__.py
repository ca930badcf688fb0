"""Kills and disk faults at length: `python -m tests.torture --kills 1000 --out docs/reliability.md`.

Edge. Results are also kept as lines of JSON where --record says; --from adds those of an earlier time.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from tests.torture.disk import FAULTS, Seen, attempt
from tests.torture.flips import Flips, flip
from tests.torture.kills import Tally, clean, torture
from tests.torture.nursery import Nursery
from tests.torture.page import write_page
from tests.torture.stage import PLOTS


def main() -> int:
    """Do it; return 1 where anything was lost, doubled or wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="in all")
    parser.add_argument("--each", type=int, default=40, help="kills of one run")
    parser.add_argument("--seed", type=int, default=1, help="of the first run; the next ones follow")
    parser.add_argument("--no-disk", action="store_true", help="leave out disks and flipped bits")
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
    if given.earlier is not None:
        for line in given.earlier.read_text(encoding="utf-8").splitlines():
            words = json.loads(line)
            sort = words.pop("sort")
            if sort == "kills":
                tallies.append(Tally(**words))
            elif sort == "disk":
                seen.append(Seen(**words))
            else:
                flips.append(Flips(**words))
    _kill(given, tallies)
    if not given.no_disk:
        _take_disks(given, seen)
        _flip_bits(given, flips)
    if given.out is not None:
        write_page(given.out, tallies, seen, flips)
    faults = [one.faults for one in tallies] + [one.faults for one in seen] + [one.faults for one in flips]
    return 1 if any(faults) else 0


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

"""What following costs: GB/s of a cached log beside a bare read, and one poll over 10,000 quiet files.

    python benchmarks/follow_files.py [--mb 400] [--files 10000]

CPU seconds, best of three. "bare" reads the same blocks and does nothing with them.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tracker.follow import Follower
from tracker.follow.lines import BLOCK_BYTES

LINE = b" [2026-03-02 10:00:20] iteration %8d/ 1000000 | elapsed time per iteration (ms): 803.1 | loss: 2 |\n"


def best(work: Callable[[], int]) -> tuple[float, int]:
    times, result = [], 0
    for _ in range(3):
        start = time.process_time()
        result = work()
        times.append(time.process_time() - start)
    return min(times), result


def bare(path: Path) -> int:
    fd, size = os.open(path, os.O_RDONLY), 0
    while block := os.pread(fd, BLOCK_BYTES, size):
        size += len(block)
    os.close(fd)
    return size


def follow(path: Path, *, count_lines: bool) -> int:
    follower = Follower([path.name], root=path.parent, rotated=False, count_lines=count_lines)
    size = sum(len(chunk.data) for chunk in follower.poll(now_us=0))
    follower.close()
    return size


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--mb", type=int, default=400)
    words.add_argument("--files", type=int, default=10_000)
    args = words.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "train.log"
        with log.open("wb") as file:
            for start in range(0, args.mb * 10_000, 10_000):
                file.write(b"".join(LINE % i for i in range(start, start + 10_000))[:1_000_000])
        floor, size = best(lambda: bare(log))
        for name, count in (("follow", False), ("follow, lines counted", True)):
            cpu, got = best(lambda count=count: follow(log, count_lines=count))  # type: ignore[misc]
            print(f"{name:22} {got / cpu / 1e9:5.2f} GB/s   bare {size / floor / 1e9:5.2f} GB/s"
                  f"   ratio {cpu / floor:4.1f}")  # fmt: skip
        log.unlink()
        for i in range(args.files):
            (Path(folder) / f"rank{i:05d}.log").write_bytes(b"rank %d\n" % i)
        follower = Follower(["*.log"], root=Path(folder))
        list(follower.poll(now_us=0))
        cpu, _ = best(lambda: sum(1 for _ in follower.poll(now_us=1)))
        floor, _ = best(lambda: sum(entry.stat().st_size for entry in os.scandir(folder)))
        print(f"quiet poll             {cpu * 1e3:5.1f} ms for {args.files:,} files   "
              f"bare stat {floor * 1e3:.1f} ms   ratio {cpu / floor:4.1f}")  # fmt: skip
        follower.close()


if __name__ == "__main__":
    main()

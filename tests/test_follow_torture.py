"""Log writers, rotation and a follower that is killed, at random: nothing lost, nothing twice.

``FOLLOW_SEEDS=5000 pytest tests/test_follow_torture.py -m slow`` runs as many worlds.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.follow_world import BANNER, World, append, pack, packed

pytestmark = pytest.mark.slow
"""Whole processes and long histories: not what one runs before each commit."""

LONG = int(os.environ.get("FOLLOW_SEEDS", "600"))


class Job:
    """One or two processes that write logs, and the tools that rotate them, step by step."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder = folder
        self.chance = chance
        self.names = ["a.log", "b.log"][: chance.choice([1, 2])]
        self.truth: list[bytes] = []
        self.unwritten = dict.fromkeys(self.names, b"")
        self.begun: set[str] = set()
        self.rotating: dict[str, Iterator[None]] = {}

    def lines(self) -> bytes:
        """Return a few lines that nothing else holds."""
        text = b""
        for _ in range(self.chance.randint(0, 5)):
            line = b"line %06d %s\n" % (len(self.truth), b"x" * self.chance.choice([0, 3, 40, 300]))
            self.truth.append(line)
            text += line
        return text

    def write(self, name: str) -> None:
        """Write some lines, torn anywhere; most runs begin with the same banner."""
        text = self.unwritten[name]
        if name not in self.begun and self.chance.random() < 0.8:
            text += BANNER
        self.begun.add(name)
        text += self.lines()
        size = self.chance.choice([len(text), self.chance.randint(0, len(text))])
        append(self.folder / name, text[:size])
        self.unwritten[name] = text[size:]

    def flush(self, name: str) -> None:
        """Write what is left of a torn line."""
        append(self.folder / name, self.unwritten[name])
        self.unwritten[name] = b""

    def shift(self, name: str) -> None:
        """Make room for ``name.1``."""
        for number in range(40, 0, -1):
            for packing in ("", ".gz"):
                old = self.folder / f"{name}.{number}{packing}"
                if old.exists():
                    old.rename(self.folder / f"{name}.{number + 1}{packing}")

    def rotate(self, name: str) -> None:
        """Begin a rotation; the slow parts of it happen in later steps."""
        if name in self.rotating or not (self.folder / name).exists():
            return
        self.flush(name)
        self.shift(name)
        if self.chance.random() < 0.5:
            self.rotating[name] = self.copy_truncate(name)
            return
        (self.folder / name).rename(self.folder / f"{name}.1")
        self.begun.discard(name)
        if self.chance.random() < 0.6:
            self.rotating[name] = self.gzip(self.folder / f"{name}.1")

    def go_on(self, name: str) -> None:
        """Take the next step of a rotation."""
        self.flush(name)
        if next(self.rotating[name], "done") == "done":
            del self.rotating[name]

    def gzip(self, path: Path) -> Iterator[None]:
        """Pack beside the original; the original goes last."""
        whole = packed(path.read_bytes())
        target = path.with_name(path.name + ".gz")
        target.write_bytes(whole[: len(whole) // 2])
        yield
        target.write_bytes(whole)
        yield
        path.unlink()

    def copy_truncate(self, name: str) -> Iterator[None]:
        """Copy in pieces, to the end; then truncate. The job writes meanwhile."""
        path, copy = self.folder / name, self.folder / f"{name}.1"
        text = path.read_bytes()
        size = self.chance.choice([0, min(300, len(text)), len(text) // 2, len(text)])
        copy.write_bytes(text[:size])
        yield
        append(copy, path.read_bytes()[size:])
        yield
        append(copy, path.read_bytes()[copy.stat().st_size :])
        os.truncate(path, 0)
        self.begun.discard(name)

    def meddle(self, name: str, step: int) -> None:
        """Do what people do in a folder of logs."""
        path, what = self.folder / name, self.chance.random()
        busy = name in self.rotating or not path.exists()
        if what < 0.25 and path.exists() and path.stat().st_size:
            shutil.copyfile(path, self.folder / f"copy{step}.log")
        elif what < 0.35 and path.exists():
            os.link(path, self.folder / f"link{step}.log")
        elif what < 0.45:
            latest = self.folder / "latest.log"
            latest.unlink(missing_ok=True)
            latest.symlink_to(name)
        elif what < 0.6 and not busy:
            self.flush(name)
            path.rename(self.folder / f"{name[0]}-moved{step}.log")
            self.begun.discard(name)
        elif what < 0.75 and not busy:
            self.flush(name)
            shutil.copyfile(path, self.folder / f"{name[0]}-kept{step}.log")
            os.truncate(path, 0)
            self.begun.discard(name)
        elif what < 0.85:
            for one in filter(Path.exists, self.folder.glob("*.log")):
                os.utime(one)
        elif not busy:
            shutil.copyfile(path, self.folder / ".incoming")
            (self.folder / ".incoming").rename(path)

    def finish(self) -> None:
        """Let everything come to its end."""
        for name in self.names:
            while name in self.rotating:
                self.go_on(name)
            self.flush(name)


def live(folder: Path, seed: int, *, meddling: bool, steps: int = 80) -> None:
    """Play one world and compare what the store holds with what was written."""
    chance = random.Random(seed)
    world = World(folder, chance.choice(["*.log", "*", "**/*.log"]), max_open=chance.choice([2, 64]))
    job = Job(folder, chance)
    for step in range(steps):
        name, what = chance.choice(job.names), chance.random()
        if what < 0.35:
            job.write(name)
        elif what < 0.5:
            job.rotate(name)
        elif what < 0.62 and name in job.rotating:
            job.go_on(name)
        elif what < 0.68 and meddling:
            job.meddle(name, step)
        elif what < 0.72:
            world.restart()
        else:
            kill = chance.choice([None, None, None, 0, 1, 2])
            budget = chance.choice([1 << 40, 1 << 40, 1000, 100])
            for number, _ in enumerate(world.iterate(max_bytes=budget)):
                if number == kill:
                    break
            world.tick(chance.choice([0.3, 1.0, 2.0]))
            if kill is not None:
                world.restart()
    job.finish()
    world.settle()
    got = b"".join(world.streams()).splitlines(keepends=True)
    lines = Counter(line for line in got if line.startswith(b"line"))
    assert lines == Counter(job.truth), f"seed {seed}"
    world.restart()
    assert world.settle() == b"", f"seed {seed}: read again after a restart"
    once = World(folder, *world.patterns)
    once.settle()
    # Nothing was deleted but copies of what is still there: one reading finds the same streams.
    assert once.streams() == world.streams(), f"seed {seed}: one reading differs"
    once.follower.close()
    world.follower.close()


@pytest.mark.parametrize("meddling", [False, True], ids=["rotation", "rotation-and-people"])
def test_nothing_is_lost_and_nothing_is_read_twice(tmp_path: Path, meddling: bool) -> None:
    """Whatever is rotated, packed, copied, torn, budgeted, killed and restarted, in any order."""
    for seed in range(40):
        folder = tmp_path / str(seed)
        folder.mkdir()
        live(folder, seed, meddling=meddling)


@pytest.mark.slow
@pytest.mark.parametrize("meddling", [False, True], ids=["rotation", "rotation-and-people"])
def test_nothing_is_lost_in_many_worlds(tmp_path: Path, meddling: bool) -> None:
    """The same, many more times."""
    for seed in range(1000, 1000 + LONG):
        folder = tmp_path / str(seed)
        folder.mkdir()
        live(folder, seed, meddling=meddling)
        shutil.rmtree(folder)


def write_for(folder: Path, seconds: float, seed: int) -> None:
    """Write as fast as the machine lets, and rotate: in a process of its own."""
    chance = random.Random(seed)
    log, number, end = folder / "job.log", 0, time.monotonic() + seconds
    file = log.open("ab", buffering=0)
    while time.monotonic() < end:
        for _ in range(chance.randint(1, 400)):
            line = b"line %08d %s\n" % (number, b"." * chance.randint(0, 200))
            cut = chance.randint(0, len(line))
            file.write(line[:cut])
            file.write(line[cut:])
            number += 1
        time.sleep(chance.choice([0, 0, 0.01]))
        if chance.random() < 0.03:
            for old in range(200, 0, -1):
                for packing in ("", ".gz"):
                    name = folder / f"job.log.{old}{packing}"
                    if name.exists():
                        name.rename(folder / f"job.log.{old + 1}{packing}")
            if chance.random() < 0.5:  # only the job writes, so nothing falls between the two
                shutil.copyfile(log, folder / "job.log.1")
                os.truncate(log, 0)
            else:
                log.rename(folder / "job.log.1")
                file.close()
                file = log.open("ab", buffering=0)
                if chance.random() < 0.5:
                    pack(folder / "job.log.1")
            file.write(BANNER)
    file.close()
    (folder / "written").write_text(str(number))


def race(folder: Path, seconds: float, seed: int) -> None:
    """Follow a job that does not wait for us."""
    job = multiprocessing.get_context("spawn").Process(target=write_for, args=(folder, seconds, seed))
    job.start()
    chance = random.Random(seed)
    world = World(folder, "job.log", second_look_s=0.05)
    while job.is_alive():
        world.now_s = time.monotonic()
        kill = chance.choice([None, None, chance.randint(0, 5)])
        for number, _ in enumerate(world.iterate(max_bytes=chance.choice([1 << 20, 1 << 40]))):
            if number == kill:
                world.restart()
                break
    job.join()
    assert job.exitcode == 0
    world.now_s = time.monotonic()
    world.settle()
    written = int((folder / "written").read_text())
    got = Counter(
        int(line[5:13])
        for stream in world.streams()
        for line in stream.splitlines()
        if line.startswith(b"line")
    )
    assert written > 1000
    assert sum(got.values()) == written, "lost or doubled"
    assert set(got.values()) == {1}
    world.follower.close()


def test_a_job_that_does_not_wait(tmp_path: Path) -> None:
    """Truncation and renames between any two of our system calls."""
    race(tmp_path, seconds=3, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 4))
def test_a_job_that_does_not_wait_for_long(tmp_path: Path, seed: int) -> None:
    """The same for twenty seconds each."""
    race(tmp_path, seconds=20, seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("packing", ["plain", "gzip"])
def test_memory_stays_bounded_on_an_endless_line(tmp_path: Path, packing: str) -> None:
    """A line of 200 MB: it is kept to its first MiB, and so is our memory."""
    log = tmp_path / "a.log"
    with log.open("wb") as file:
        file.write(b"before\n")
        for _ in range(200):
            file.write(b"x" * 1_000_000)
        file.write(b"\nafter\n")
    if packing == "gzip":
        pack(log)
    program = f"""
        import resource
        from pathlib import Path
        from tracker.follow import Follower
        follower = Follower(["a.log*"], root=Path({str(tmp_path)!r}))
        list(follower.poll(now_us=0))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        follower = Follower(["a.log*"], root=Path({str(tmp_path)!r}))
        got = [(len(c.data), c.offset, c.too_long_bytes) for c in follower.poll(now_us=0)]
        assert got == [
            (7, 0, 0), ((1 << 20) + 1, 7, 200_000_000 - (1 << 20)), (6, 200_000_008, 0)
        ], got
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True
    )
    bare = subprocess.run(
        [sys.executable, "-c", "import resource, tracker.follow; "
         "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert int(done.stdout) - int(bare.stdout) < 16 * 1024, "KiB above an idle interpreter"

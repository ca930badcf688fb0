"""Takes the disk under a store away in all the ways that disks go, under a running sidecar, and looks.

Edge: mounts, fills, damages. Needs root (mounts) and, for some, ext4 tools, loop devices and bindfs; what is
not there is left out and said. Every fault must give a message and a metric, end no process, lose no row that
was stored, and pass by itself when its cause goes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.torture.content import Rows, content, differences, rows
from tests.torture.sidecar import Sidecar, ask
from tests.torture.stage import Plot, Stage
from tracker import app
from tracker.core.errors import TrackerError
from tracker.store import Store

PLOT: Final = Plot(name="disk", preset="finished", changes=(("total_steps", 3000),))
_MOST_LINES: Final = 30
"""What may be printed in one life: a fault that lasts is told once, not at every try."""


@dataclass(slots=True)
class Seen:
    """What one fault did."""

    name: str
    message: str = ""
    """What the sidecar or the command said of it."""
    back_s: float | None = None
    """From the end of the cause until it stored again."""
    rows: int = 0
    faults: list[str] = field(default_factory=list)
    left_out: str = ""
    """Why it could not be tried here."""


class CannotTry(Exception):
    """The machine lacks what the fault needs."""


@dataclass(slots=True)
class Place:
    """A folder with logs, and a disk of its own for the store."""

    folder: Path
    stage: Stage
    sidecar: Sidecar | None = None
    begun: list[Sidecar] = field(default_factory=list)
    """All that were started."""

    @property
    def disk(self) -> Path:
        return self.folder / "disk"

    @property
    def store(self) -> Path:
        return self.disk / "tracker.db"

    def start(self, under: Sequence[str] = ()) -> Sidecar:
        self.sidecar = Sidecar(self.folder, foresees=False, under=under)
        self.begun.append(self.sidecar)
        return self.sidecar

    def another(self) -> Sidecar:
        """Start a second one on the same store."""
        (self.folder / "other.toml").write_text((self.folder / "run.toml").read_text())
        self.begun.append(Sidecar(self.folder, "other.toml", foresees=False))
        return self.begun[-1]

    def running(self) -> Sidecar:
        assert self.sidecar is not None
        return self.sidecar

    def up(self, limit_s: float = 240.0) -> None:
        """Wait until it stores, and has read all that is there."""
        one = self.running()
        one.until(lambda: one.metric("tracker_store_up") == 1, "to store again", limit_s)
        one.until(one.caught_up, "to catch up", limit_s)

    def down(self, limit_s: float = 120.0) -> None:
        """Wait until it says that it cannot store."""
        one = self.running()
        one.until(lambda: one.metric("tracker_store_up") == 0, "to tell that it cannot store", limit_s)

    def third(self) -> None:
        """Write a third of the run."""
        self.stage.play(-(-len(self.stage.todo) // 3), 0.5)


@contextlib.contextmanager
def place(folder: Path, seed: int = 1) -> Iterator[Place]:
    """Make the folder; in the end nothing runs and nothing is mounted."""
    stage = Stage(PLOT, folder, seed=seed)
    stage.configs()
    config = folder / "run.toml"
    config.write_text(config.read_text().replace('"tracker.db"', '"disk/tracker.db"'))
    (folder / "disk").mkdir()
    there = Place(folder, stage)
    try:
        yield there
    finally:
        for one in there.begun:
            one.end()
        with contextlib.suppress(OSError):
            for _ in range(3):
                if not os.path.ismount(there.disk):
                    break
                subprocess.run(["umount", "-l", str(there.disk)], check=False, capture_output=True)


def mount(*words: str) -> None:
    """Run a command that needs rights or tools; CannotTry where it fails."""
    try:
        done = subprocess.run(words, capture_output=True, check=False, timeout=60)
    except OSError as error:
        raise CannotTry(f"{words[0]}: {error.strerror}") from error
    if done.returncode != 0:
        raise CannotTry(f"{' '.join(words[:3])}: {done.stderr.decode().strip()[:200]}")


def _small(there: Place) -> None:
    mount("mount", "-t", "tmpfs", "-o", "size=3m,mode=755", "none", str(there.disk))


def _ext4(there: Place) -> None:
    image = there.folder / "image"
    with image.open("wb") as file:
        file.truncate(32 << 20)
    mount("mkfs.ext4", "-q", "-F", str(image))
    mount("mount", "-o", "loop,errors=remount-ro", str(image), str(there.disk))


def _bindfs(there: Place) -> None:
    below = there.folder / "below"
    below.mkdir()
    mount("bindfs", str(below), str(there.disk))


# -- the faults ---------------------------------------------------------------------------------------


def full(there: Place, seen: Seen) -> None:
    """The disk is full: nothing can be stored until there is room again."""
    _small(there)
    _break_and_mend(there, seen, _fill, lambda at: (at.disk / "ballast").unlink(), "no room to write")


def _fill(there: Place) -> None:
    with (there.disk / "ballast").open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1 << 9, 1):
            with contextlib.suppress(OSError):
                while file.write(b"x" * size) == size:
                    pass


def read_only(there: Place, seen: Seen) -> None:
    """The kernel finds the file system at fault and makes it read-only; an operator mounts it anew."""
    _ext4(there)

    def fail(at: Place) -> None:
        device = subprocess.run(
            ["findmnt", "-no", "SOURCE", str(at.disk)], capture_output=True, text=True, check=True
        ).stdout.strip()
        trigger = Path("/sys/fs/ext4") / Path(device).name / "trigger_fs_error"
        if not trigger.exists():
            raise CannotTry("this kernel has no trigger_fs_error")
        trigger.write_text("x")

    def mend(at: Place) -> None:
        mount("umount", "-l", str(at.disk))
        subprocess.run(["e2fsck", "-fy", str(at.folder / "image")], check=False, capture_output=True)
        mount("mount", "-o", "loop,errors=remount-ro", str(at.folder / "image"), str(at.disk))

    _break_and_mend(there, seen, fail, mend, "cannot be written", "fails")


def deleted(there: Place, seen: Seen) -> None:
    """Somebody deletes the store's files: the logs are read anew."""

    def delete(at: Place) -> None:
        for path in at.disk.glob("tracker.db*"):
            path.unlink()

    _break_and_mend(there, seen, delete, lambda at: None, "deleted", kept=False)


def log_removed(there: Place, seen: Seen) -> None:
    """The write-ahead log is deleted under the sidecar, and others read and write before it is killed."""
    there.start()
    there.third()
    there.up()
    Path(f"{there.store}-wal").unlink()
    there.third()
    for number in range(3):
        status, _, err = ask(there.folder, "status", "--config", "run.toml", "--json")
        if "Traceback" in err:
            seen.faults.append(f"tracker status ended with {status}: {err[-500:]}")
        try:
            with Store.open_writer(there.store) as writer:
                writer.put_meta(f"torture {number}", "x" * 9000)
        except TrackerError as error:
            seen.message = seen.message or str(error)
        there.stage.play(5, 0.3)
    one = there.running()
    if one.process.poll() is not None:
        seen.faults.append(f"it ended: {one.said[-800:]}")
    seen.message = seen.message or next((x for x in one.said.splitlines() if "WARNING" in x), "")
    one.kill()
    there.start()
    there.up()
    _compare(there, seen, None)


def log_removed_while_killed(there: Place, seen: Seen) -> None:
    """It is killed, and its log is gone when it starts again: read on from what the file holds."""
    there.start()
    there.third()
    there.up()
    there.running().kill()
    with contextlib.suppress(FileNotFoundError):
        Path(f"{there.store}-wal").unlink()
    there.third()
    there.start()
    there.up()
    _compare(there, seen, None)


def damaged(there: Place, seen: Seen) -> None:
    """Pages are overwritten: told with the remedy; the file moved away, the logs are read anew."""

    def flip(at: Place) -> None:
        status, _, err = ask(at.folder, "db", "compact", str(at.store))  # so that the file holds the pages
        if status:
            seen.faults.append(f"tracker db compact: {err[-300:]}")
        with at.store.open("r+b") as file:
            size = file.seek(0, 2)
            for page in range(1, size // 4096):
                file.seek(page * 4096)
                first = file.read(1)
                file.seek(page * 4096)
                file.write(bytes([first[0] ^ 0x5A]))

    def move(at: Place) -> None:
        for path in at.disk.glob("tracker.db*"):
            path.rename(at.folder / f"damaged-{path.name}")

    _break_and_mend(there, seen, flip, move, "damaged", kept=False)


def permission(there: Place, seen: Seen) -> None:
    """Folder and files become unwritable: what is open goes on; a start says what is missing."""
    under = (
        ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override")
        if os.geteuid() == 0
        else ()
    )
    mount(*under, "true")
    there.start(under)
    there.third()
    there.up()
    _chmod(there, 0o500, 0o400)
    there.third()
    there.up()
    before = content(there.store)
    there.running().kill()
    one = there.start(under)
    _refused(one, seen, "cannot be")
    _chmod(there, 0o750, 0o640)
    there.start(under)
    there.up()
    _compare(there, seen, before)


def _chmod(there: Place, folder: int, files: int) -> None:
    for path in there.disk.iterdir():
        path.chmod(files)
    there.disk.chmod(folder)


def _refused(one: Sidecar, seen: Seen, word: str) -> None:
    """A start that is impossible ends with status 1 and one sentence."""
    try:
        status = one.process.wait(60)
    except subprocess.TimeoutExpired:
        status = 0
    one.end()
    said = one.said.strip().splitlines()
    seen.message = said[-1] if said else ""
    if status != 1 or word not in seen.message or "Traceback" in one.said:
        seen.faults.append(f"status {status}, and it said: {one.said[-800:]}")


def full_at_start(there: Place, seen: Seen) -> None:
    """It is killed, the disk fills up, and it starts again: it serves what is stored, and waits for room."""
    _small(there)
    there.start()
    there.third()
    there.up()
    before = content(there.store)
    there.running().kill()
    _fill(there)
    there.third()
    one = there.start()
    there.down()
    said = [line for line in one.said.splitlines() if "no room" in line]
    seen.message = said[0] if said else ""
    if not said:
        seen.faults.append(f"no message: {one.said[-800:]}")
    (there.disk / "ballast").unlink()
    began = time.monotonic()
    there.up()
    seen.back_s = time.monotonic() - began
    _compare(there, seen, before)


def second(there: Place, seen: Seen) -> None:
    """Another sidecar is started on the same store: it is refused, and told who has it."""
    first = there.start()
    there.third()
    there.up()
    other = there.another()
    _refused(other, seen, f"process {first.process.pid} on ")
    there.third()
    there.up()
    _compare(there, seen, None)


def mark_deleted(there: Place, seen: Seen) -> None:
    """A program that tidies up deletes the sidecar's mark, and a second one starts: one goes on."""
    first = there.start()
    there.third()
    there.up()
    before = content(there.store)
    Path(f"{there.store}.running").unlink()
    other = there.another()
    there.third()
    ends = time.monotonic() + 60
    while time.monotonic() < ends and not _refused_one(first, other):
        there.stage.play(1, 0.2)
    said = [line for line in first.said.splitlines() if ".running was deleted" in line]
    seen.message = said[0] if said else ""
    if not said or not _refused_one(first, other):
        seen.faults.append(f"both work on it: {first.said[-800:]}\n{other.said[-800:]}")
    goes, stays = (other, first) if other.process.poll() is not None else (first, other)
    if goes.process.poll() is None and goes.stop() != 0:
        seen.faults.append(f"it did not end well: {goes.said[-800:]}")
    goes.end()
    there.sidecar = stays
    there.up()
    _compare(there, seen, before)


def _refused_one(first: Sidecar, other: Sidecar) -> bool:
    """Whether one of two sidecars has given way: ended, or up without the store."""
    return other.process.poll() == 1 or "in use by another" in first.said


def newer(there: Place, seen: Seen) -> None:
    """The store was written by a newer version: refused and left alone; put back, it goes on."""
    there.start()
    there.third()
    there.up()
    before = content(there.store)
    if there.running().stop() != 0:
        seen.faults.append(there.running().said[-500:])
    number = _user_version(there.store, None)
    _user_version(there.store, 999)
    _refused(there.start(), seen, "newer")
    _user_version(there.store, number)
    there.start()
    there.up()
    _compare(there, seen, before)


def _user_version(path: Path, number: int | None) -> int:
    """Return the schema version in the file's header; write another one there if it is given."""
    with path.open("r+b") as file:
        file.seek(60)
        now = int.from_bytes(file.read(4), "big")
        if number is not None:
            file.seek(60)
            file.write(number.to_bytes(4, "big"))
    return now


def over_the_network(there: Place, seen: Seen) -> None:
    """A mount that other hosts might share: the safe journal, and the same content after kills."""
    _bindfs(there)
    for _ in range(3):
        there.start()
        one = there.running()
        one.until(lambda one=one: one.url is not None, "to listen")  # type: ignore[misc]
        there.third()
        time.sleep(0.3)
        one.kill()
    there.start()
    there.up()
    seen.message = "journal: " + _journal(there)
    if "delete" not in seen.message:
        seen.faults.append(f"a write-ahead log on a shared mount: {seen.message}")
    _compare(there, seen, None)


def _journal(there: Place) -> str:
    _, out, _ = ask(there.folder, "db", "info", str(there.store))
    return next((line.strip() for line in out.splitlines() if "journal" in line), "?")


FAULTS: Final[Mapping[str, Callable[[Place, Seen], None]]] = {
    "disk full": full,
    "disk full at a start": full_at_start,
    "read-only after an error": read_only,
    "permission lost": permission,
    "store deleted": deleted,
    "write-ahead log deleted": log_removed,
    "killed and its log deleted": log_removed_while_killed,
    "pages overwritten": damaged,
    "store of a newer version": newer,
    "a second sidecar": second,
    "its mark deleted, a second sidecar": mark_deleted,
    "a mount that may be shared (bindfs)": over_the_network,
}


REMEDIES: Final[Mapping[str, str]] = {
    "disk full": "Free space on the store's disk, or raise the quota. It goes on by itself.",
    "disk full at a start": "Likewise; the last numbers are served meanwhile.",
    "read-only after an error": (
        "Unmount, check and mount the disk anew: the sidecar holds no file of it meanwhile. Move the store to"
        " a sound disk where it stays bad."
    ),
    "permission lost": "Give the tracker's user write access to the store's folder and files, and start it.",
    "store deleted": (
        "Nothing; to keep reports and forecasts of earlier days too, stop it, `tracker db restore` the last"
        " backup, and start it."
    ),
    "write-ahead log deleted": "`tracker db check`; restart it. Keep clean-up programs out of its folder.",
    "killed and its log deleted": "Nothing: what the log held is read from the job's logs again.",
    "pages overwritten": "`tracker db restore` a backup, or move the file away.",
    "store of a newer version": "Run the newer tracker, or restore the copy that was kept when it migrated.",
    "a second sidecar": "Stop one of the two; two runs need two stores.",
    "its mark deleted, a second sidecar": "Stop one of the two; keep tmpfiles and the like out of it.",
    "a mount that may be shared (bindfs)": "Nothing; a local disk is faster: it can have a write-ahead log.",
}


def attempt(name: str, folder: Path, *, seed: int = 1) -> Seen:
    """Try one fault."""
    seen = Seen(name)
    with place(folder, seed) as there:
        try:
            FAULTS[name](there, seen)
        except CannotTry as why:
            seen.left_out = str(why)
        except AssertionError as why:
            seen.faults.append(str(why))
    return seen


def _break_and_mend(
    there: Place,
    seen: Seen,
    fail: Callable[[Place], None],
    mend: Callable[[Place], None],
    *words: str,
    kept: bool = True,
) -> None:
    """Let it store, break it, write on, look, mend it, write on, and compare."""
    there.start()
    there.third()
    there.up()
    one = there.running()
    one.until(lambda: one.metric("training_step") is not None, "to show numbers")
    pid, before = one.process.pid, content(there.store)
    step = one.metric("training_step")
    fail(there)
    there.third()
    _noticed(there, seen, words, step)
    mended = time.monotonic()
    mend(there)
    there.up()
    seen.back_s = time.monotonic() - mended
    if one.process.poll() is not None or one.process.pid != pid:
        seen.faults.append("it did not live through it")
    _compare(there, seen, before if kept else None)
    lines = one.said.count("\n")
    if lines > _MOST_LINES or "Traceback" in one.said:
        seen.faults.append(f"it printed {lines} lines: {one.said[-1500:]}")


def _noticed(there: Place, seen: Seen, words: tuple[str, ...], step: float | None) -> None:
    """The metric falls, the message says why, and the last numbers stay up."""
    one = there.running()
    if words == ("deleted",):  # passes within a second by itself
        one.until(lambda: (one.metric("tracker_store_errors_total") or 0) > 0, "to count an error")
    else:
        there.down()
        if one.metric("training_step") != step:
            seen.faults.append(f"the last numbers are gone: step {one.metric('training_step')}, was {step}")
        health = one.get("/healthz")
        if health is None or health[0] != 200:
            seen.faults.append(f"/healthz says {health}")
    said = [line for line in one.said.splitlines() if any(word in line for word in words)]
    seen.message = said[0] if said else ""
    if not said:
        seen.faults.append(f"no message with {words}: {one.said[-800:]}")


def _compare(there: Place, seen: Seen, before: Rows | None) -> None:
    """Write the rest, stop, read last lines, and hold the store against one made of the logs at once."""
    there.stage.finish()
    one = there.running()
    time.sleep(0.3)
    status = one.stop()
    if status != 0:
        seen.faults.append(f"SIGTERM ended it with {status}: {one.said[-500:]}")
    once = there.folder / "once.toml"
    once.write_text((there.folder / "run.toml").read_text().replace('"disk/tracker.db"', '"once.db"'))
    try:
        app.ingest_once(app.load_config(there.folder / "run.toml"), final=True)
        app.ingest_once(app.load_config(once), final=True)
    except TrackerError as error:
        seen.faults.append(f"afterwards it cannot be read: {error}")
        return
    ends = content(there.store)
    seen.rows = rows(ends)
    seen.faults += differences(ends, content(there.folder / "once.db"))
    if before is not None:
        lost = sum((before["reading"] - ends["reading"]).values())
        if lost:
            seen.faults.append(f"{lost} readings that were stored are gone")
    checked, _, err = ask(there.folder, "db", "check", str(there.store))
    if checked != 0:
        seen.faults.append(f"tracker db check: {err[-500:]}")


def clean(folder: Path) -> None:
    """Remove a folder that nothing works in any more."""
    shutil.rmtree(folder, ignore_errors=True)

"""Several processes on one store: nobody loses a row, nobody waits for a dead one."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from tests.store_help import add_stream, batch, make_store, reading
from tracker.store import SCHEMA_VERSION, RunLock, Store, running
from tracker.store.errors import StoreBusy, StoreForeign, StoreInUse, StoreMissing, StoreNewer
from tracker.store.filesystem import FileSystem, file_system, look_up
from tracker.store.lock import WriteLock

pytestmark = pytest.mark.slow
"""Whole processes and long histories: not what one runs before each commit."""

PRELUDE = """
import os, sys, time
from tests.store_help import add_stream, batch, reading
from tracker.store import RunLock, Store
path = sys.argv[1]
"""


def child(code: str, *words: object, **options: object) -> subprocess.Popen[str]:
    """Start Python on some lines of code, with this checkout on its path."""
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(code), *map(str, words)],
        cwd=Path(__file__).resolve().parents[1],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
        **options,  # type: ignore[call-overload]
    )


def finish(process: subprocess.Popen[str], timeout: float = 30) -> str:
    out, _ = process.communicate(timeout=timeout)
    assert process.returncode == 0, out
    return out


# -- the write lock ---------------------------------------------------------------------------------------


def test_two_processes_and_their_checkpoints_take_turns(tmp_path: Path) -> None:
    """Each commits many times and checkpoints often; every row of both is there, and the file is whole."""
    path = make_store(tmp_path)
    with Store.open_writer(path) as writer:
        streams = [add_stream(writer), add_stream(writer)]
    code = """
        with Store.open_writer(path) as writer:
            for n in range(150):
                writer.commit([batch(int(sys.argv[2]), readings=[reading(n)])])
                if n % 3 == 0:
                    writer.checkpoint(truncate=n % 2 == 0)
    """
    processes = [child(code, path, stream) for stream in streams]
    for process in processes:
        finish(process)

    with Store.open_reader(path) as reader:
        assert [len(list(reader.readings(s))) for s in streams] == [150, 150]
        assert reader._connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_the_lock_dies_with_its_holder(tmp_path: Path) -> None:
    """Killed inside a transaction, a process holds up nobody, and its transaction never was."""
    path = make_store(tmp_path)
    with Store.open_writer(path) as writer:
        stream = add_stream(writer)
    code = """
        writer = Store.open_writer(path)
        with writer.transaction() as connection:
            connection.execute("INSERT INTO meta VALUES ('half', 'done')")
            print("inside", flush=True)
            time.sleep(60)
    """
    process = child(code, path)
    assert process.stdout is not None
    assert process.stdout.readline() == "inside\n"
    with pytest.raises(StoreBusy, match=f"process {process.pid}"):
        Store.open_writer(path, wait_s=0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.communicate()

    with Store.open_writer(path, wait_s=2) as writer:
        writer.commit([batch(stream, readings=[reading(0)])])
    with Store.open_reader(path) as reader:
        assert reader.meta("half") is None
        assert len(list(reader.readings(stream))) == 1


def test_killed_again_and_again_while_writing_no_acknowledged_commit_is_lost(tmp_path: Path) -> None:
    """SIGKILL at any moment: what was said to be stored is stored, in order, and nothing twice."""
    path = make_store(tmp_path)
    with Store.open_writer(path) as writer:
        stream = add_stream(writer)
    code = """
        writer = Store.open_writer(path)
        n = writer.stream(int(sys.argv[2])).offset
        while True:
            writer.commit([batch(int(sys.argv[2]), offset=n + 1, readings=[reading(n)])])
            n += 1
            print(n, flush=True)
            if n % 5 == 0:
                writer.checkpoint()
    """
    acknowledged = 0
    for kill in range(5):
        process = child(code, path, stream)
        assert process.stdout is not None
        for _ in range(7 + kill * 3):
            acknowledged = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate()
        acknowledged = int(rest.split("\n")[-2]) if "\n" in rest else acknowledged
        with Store.open_reader(path) as reader:
            steps = [r.step for r in reader.readings(stream)]
        assert len(steps) >= acknowledged
        assert steps == [(n + 1) * 10 for n in range(len(steps))]
    with Store.open_writer(path) as writer:
        assert writer.stream(stream).offset == len(steps)


def test_a_deleted_lock_file_does_not_let_two_in(tmp_path: Path) -> None:
    """The lock is the file that lies there now; who holds a deleted one finds out at the next turn."""
    path = tmp_path / "tracker.db"
    first, second = WriteLock(path), WriteLock(path)
    with first.held():
        pass
    first.path.unlink()
    with second.held(), pytest.raises(StoreBusy):
        first.acquire(wait_s=0.01)
    first.close()
    second.close()


def test_threads_take_turns_too(tmp_path: Path) -> None:
    """The scheduler's threads may share one writer, or have their own."""
    path = make_store(tmp_path)
    with Store.open_writer(path) as shared, Store.open_writer(path) as own:
        streams = [add_stream(shared) for _ in range(3)]

        def work(index: int) -> None:
            for n in range(40):
                (own if index == 2 else shared).commit([batch(streams[index], readings=[reading(n)])])

        threads = [threading.Thread(target=work, args=(index,)) for index in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with Store.open_reader(path) as reader:
        assert [len(list(reader.readings(s))) for s in streams] == [40, 40, 40]


def test_a_writer_left_open_is_closed_under_the_lock_at_exit(tmp_path: Path) -> None:
    """Closing the last connection checkpoints: that must wait for whoever writes."""
    path = make_store(tmp_path)
    lock = WriteLock(path)
    process = child("writer = Store.open_writer(path); print('open', flush=True); sys.stdin.readline()", path)
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "open\n"
    with lock.held():
        process.stdin.write("\n")
        process.stdin.flush()
        time.sleep(0.3)
        assert process.poll() is None
    finish(process)
    lock.close()


def test_the_log_stays_small_without_anyone_asking(tmp_path: Path) -> None:
    """The writer checkpoints as it goes: the log stays near 8 MB, and the file has the rest."""
    path = make_store(tmp_path)
    with Store.open_writer(path) as writer:
        stream = add_stream(writer)
        for start in range(0, 150_000, 5_000):
            writer.commit([batch(stream, readings=[reading(n) for n in range(start, start + 5_000)])])
        log = Path(f"{path}-wal").stat().st_size
    assert path.stat().st_size > 6_000_000
    assert log < 12_000_000


# -- the sidecar's mark -----------------------------------------------------------------------------------


def test_a_second_sidecar_is_refused_and_the_first_is_named(tmp_path: Path) -> None:
    """One store, one sidecar: process, host and start of the first stand in the message."""
    path = tmp_path / "tracker.db"
    process = child(
        """
        from pathlib import Path
        lock = RunLock(Path(path), started_at="2026-01-05T08:00:00Z")
        print("up", flush=True)
        time.sleep(60)
        """,
        path,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    found = running(path)
    assert found is not None
    assert found.pid == process.pid
    with pytest.raises(StoreInUse, match=rf"process {process.pid} on .*, started 2026-01-05T08:00:00Z"):
        RunLock(path, started_at="2026-01-05T09:00:00Z")
    process.kill()
    process.wait()
    process.communicate()
    assert running(path) is None
    with RunLock(path, started_at="2026-01-05T09:00:00Z"):
        assert running(path) is not None
    assert running(path) is None


def test_a_correction_is_written_while_the_sidecar_runs(tmp_path: Path) -> None:
    """The sidecar holds the write lock only for its own transactions."""
    path = make_store(tmp_path)
    with RunLock(path, started_at="now"), Store.open_writer(path) as sidecar:
        stream = add_stream(sidecar)
        with Store.open_writer(path, durable=True, wait_s=0.5) as correction:
            correction.put_meta("note", "by hand")
        sidecar.commit([batch(stream, readings=[reading(0)])])
    with Store.open_reader(path) as reader:
        assert reader.meta("note") == "by hand"


# -- readers ----------------------------------------------------------------------------------------------


def test_a_reader_never_waits_for_a_writer(tmp_path: Path) -> None:
    """While a transaction is open, a page is answered from the state before it."""
    path = make_store(tmp_path)
    with Store.open_writer(path) as writer:
        stream = add_stream(writer)
        writer.commit([batch(stream, readings=[reading(0)])])
        with writer.transaction() as connection:
            connection.execute("DELETE FROM reading")
            begun = time.monotonic()
            with Store.open_reader(path) as reader:
                assert len(list(reader.readings(stream))) == 1
            assert time.monotonic() - begun < 4.0  # SQLite's own patience is five seconds


def test_closing_a_reader_leaves_the_log_alone(tmp_path: Path) -> None:
    """Even as the last one: only a holder of the lock moves pages into the database."""
    path = make_store(tmp_path)
    process = child(
        """
        writer = Store.open_writer(path)
        writer.commit([batch(add_stream(writer), readings=[reading(0)])])
        print("done", flush=True)
        os.kill(os.getpid(), 9)
        """,
        path,
    )
    process.communicate()
    before = (path.read_bytes(), Path(f"{path}-wal").stat().st_size)
    assert before[1] > 0
    with Store.open_reader(path) as reader:
        assert len(reader.streams()) == 1

    assert (path.read_bytes(), Path(f"{path}-wal").stat().st_size) == before


def as_another_user(folder: Path, path: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run a line of Python as a user who may not write the folder (as ourselves, where we are not root)."""
    folder.chmod(0o555)
    for parent in folder.parents[:-2] if os.geteuid() == 0 else ():
        parent.chmod(0o755)
    become = "os.setgid(65534); os.setuid(65534)\n" if os.geteuid() == 0 else ""
    try:
        return subprocess.run(
            [
                sys.executable,
                "-c",
                f"import os, sys\nfrom tracker.store import Store, stored_version\n{become}{code}",
                str(path),
            ],
            cwd=Path(__file__).resolve().parents[1],
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        folder.chmod(0o755)


@pytest.mark.parametrize("live", [True, False], ids=["while-it-is-written", "after-a-clean-end"])
def test_another_user_may_read_who_may_not_write(tmp_path: Path, live: bool) -> None:
    """Neither the folder nor the file is theirs; the store is read all the same."""
    path = make_store(tmp_path)
    writer = Store.open_writer(path)
    stream = add_stream(writer)
    writer.commit([batch(stream, readings=[reading(0)])])
    if not live:
        writer.close()
    for name in tmp_path.iterdir():
        name.chmod(0o644)
    code = (
        "with Store.open_reader(sys.argv[1]) as reader, reader.snapshot():\n"
        "    print(len(reader.streams()), stored_version(sys.argv[1]))"
    )
    found = as_another_user(tmp_path, path, code)
    writer.close()

    assert (found.returncode, found.stdout) == (0, f"1 {SCHEMA_VERSION}\n"), found.stderr


# -- where it lies ----------------------------------------------------------------------------------------

MOUNTS = """\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
30 22 0:40 / /lustre/scratch rw - lustre 10.0.0.1@o2ib:/scratch rw
31 22 0:41 / /home rw shared:5 master:1 - nfs4 srv:/home rw
32 22 0:42 / /mnt/s3 rw - fuse.mountpoint-s3 s3 rw
33 22 8:2 / /mnt/ntfs rw - fuseblk /dev/sdb1 rw
34 22 0:43 / /mnt/with\\040space rw - cifs //srv/share rw
35 31 0:44 / /home/local rw - xfs /dev/sdc rw
36 22 0:45 / /gpfs rw - gpfs gpfs0 rw
37 22 0:46 / /bee rw - beegfs beegfs_nodev rw
38 22 0:47 / /nine rw - 9p share rw
a broken line
"""


@pytest.mark.parametrize(
    ("path", "kind", "shared"),
    [
        pytest.param("/var/lib/t.db", "ext4", False, id="local-disk"),
        pytest.param("/lustre/scratch/u/t.db", "lustre", True, id="lustre"),
        pytest.param("/lustre/scratchy/t.db", "ext4", False, id="a-name-that-only-begins-alike"),
        pytest.param("/home/u/t.db", "nfs4", True, id="nfs"),
        pytest.param("/home/local/t.db", "xfs", False, id="local-disk-mounted-inside-nfs"),
        pytest.param("/mnt/s3/t.db", "fuse.mountpoint-s3", True, id="fuse"),
        pytest.param("/mnt/ntfs/t.db", "fuseblk", False, id="a-block-device-by-fuse"),
        pytest.param("/mnt/with space/t.db", "cifs", True, id="cifs-under-a-name-with-a-space"),
        pytest.param("/gpfs/t.db", "gpfs", True, id="gpfs"),
        pytest.param("/bee/t.db", "beegfs", True, id="beegfs"),
        pytest.param("/nine/t.db", "9p", True, id="9p"),
    ],
)
def test_shared_file_systems_are_known_by_their_kind(path: str, kind: str, shared: bool) -> None:
    """The write-ahead log is for disks that no other host has mounted."""
    found = look_up(MOUNTS, path)

    assert (found.kind, found.shared) == (kind, shared)


def test_a_system_that_does_not_say_counts_as_local(tmp_path: Path) -> None:
    """Without /proc there is nothing to ask."""
    assert file_system(tmp_path, mounts=tmp_path / "none") == FileSystem(kind="", mounted_on="")


def test_on_a_shared_file_system_the_safe_journal_is_used_and_works(tmp_path: Path) -> None:
    """The same store in the other mode: it commits, is read meanwhile, and has no shared memory."""
    path = make_store(tmp_path)
    with Store.open_writer(path, journal="delete") as writer:
        stream = add_stream(writer)
        with Store.open_reader(path) as reader, reader.snapshot():
            assert reader.streams() == []
        writer.commit([batch(stream, readings=[reading(0)])])
        assert not Path(f"{path}-wal").exists()
        assert writer.journal == "delete"
    with Store.open_writer(path) as writer:
        assert writer.journal == "wal"
        writer.commit([batch(stream, readings=[reading(1)])])
    with Store.open_reader(path) as reader:
        assert len(list(reader.readings(stream))) == 2


def test_names_that_lead_to_one_file_take_one_lock(tmp_path: Path) -> None:
    """A symlink is the same store."""
    path = make_store(tmp_path)
    link = tmp_path / "link.db"
    link.symlink_to(path)
    with Store.open_writer(link) as writer:
        assert writer.path == path
        with writer.transaction(), pytest.raises(StoreBusy):
            Store.open_writer(path, wait_s=0.01)


# -- what cannot be opened --------------------------------------------------------------------------------


def test_what_is_no_store_is_named(tmp_path: Path) -> None:
    """Each with its own word and remedy, and nothing is changed."""
    with pytest.raises(StoreMissing, match="tracker ingest"):
        Store.open_reader(tmp_path / "none.db")
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE t (a)")
    connection.close()
    before = foreign.read_bytes()
    for opened in (Store.open_reader, Store.open_writer):
        with pytest.raises(StoreForeign, match="another program"):
            opened(foreign)
    assert foreign.read_bytes() == before
    newer = make_store(tmp_path, "newer.db")
    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    for opened in (Store.open_reader, Store.open_writer):
        with pytest.raises(StoreNewer, match="schema version 99"):
            opened(newer)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """The message names the file and who must be able to write it."""
    path = make_store(tmp_path)
    for name in tmp_path.iterdir():
        name.chmod(0o444)
    found = as_another_user(tmp_path, path, "Store.open_writer(sys.argv[1])")

    assert found.returncode == 1
    assert "StoreReadOnly" in found.stderr
    assert "write access" in found.stderr


def test_a_reader_holds_up_a_checkpoint_only_for_an_instant(tmp_path: Path) -> None:
    """The log is cut when it can be; until then the sidecar goes on."""
    path = make_store(tmp_path)
    log = Path(f"{path}-wal")
    with Store.open_writer(path) as writer, Store.open_reader(path) as reader:
        stream = add_stream(writer)
        with reader.snapshot():
            writer.commit([batch(stream, readings=[reading(0)])])
            begun = time.monotonic()
            writer.checkpoint(truncate=True)
            assert time.monotonic() - begun < 4  # likewise
            assert log.stat().st_size > 0
        writer.checkpoint(truncate=True)
        assert log.stat().st_size == 0

"""The commands on real logs: ingest, status, ledger, check, collectors test, demo."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.test_sidecar import CONFIG, line, write
from tracker import doctor
from tracker.cli import root
from tracker.core.ledger import BUCKETS
from tracker.store import filesystem

DEMO = Path(__file__).parents[1] / "tracker" / "demo"
SACCT = (
    "JobID|JobName|State|Start|End|AllocTRES|NNodes\n"
    "4711|pretrain|COMPLETED|2026-01-05T07:50:00|2026-01-05T09:00:00|gres/gpu=8,node=1|1\n"
)


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Call the command line in a folder with a config."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRACKER_CONFIG", raising=False)
    (tmp_path / "run.toml").write_text(CONFIG)
    runner = CliRunner()

    def run(*words: str) -> Result:
        done = runner.invoke(root, words)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done

    return run


Prepare = Callable[[Path], object]
NOTHING = "[run]\nname = 'r'"
MAIL = "[report.mail]\nhost='h'\nfrom='a@b'\nto='c@d'\nuser='u'\npassword_file='none'\n"


def put(name: str, body: bytes | str) -> Prepare:
    """Write a file of the folder."""
    data = body.encode() if isinstance(body, str) else body
    return lambda folder: (folder / name).write_bytes(data)


def command(program: str) -> Prepare:
    """Let the only source be a program."""
    source = f'collector = "slurm"\ncommand = ["{program}"]'
    return put("run.toml", CONFIG.replace('path = "*.log"', source))


def document(done: Result) -> dict[str, object]:
    found: dict[str, object] = json.loads(done.stdout)
    return found


# -- ingest, status, ledger ---------------------------------------------------------------------------


def test_ingest_reads_everything_once(call: Callable[..., Result], tmp_path: Path) -> None:
    """A second time there is nothing new; new lines are new."""
    write(tmp_path / "train.log", range(1, 101))

    first, second = document(call("ingest", "--json")), document(call("ingest", "--json"))
    write(tmp_path / "train.log", range(101, 111))
    third = document(call("ingest", "--json"))

    assert (first["files"], first["lines"], first["readings"]) == (1, 100, 100)
    assert (second["lines"], second["readings"]) == (0, 0)
    assert (third["lines"], third["readings"]) == (10, 10)


def test_an_unterminated_line_waits_for_final(call: Callable[..., Result], tmp_path: Path) -> None:
    """It may be half of a line; --final says that it is not."""
    write(tmp_path / "train.log", range(1, 11))
    with (tmp_path / "train.log").open("a") as log:
        log.write(line(11).rstrip("\n"))

    waiting = call("ingest")
    assert "an unterminated last line waits" in waiting.output
    assert json.loads(call("status", "--json").stdout)["steps"]["last"] == 10

    call("ingest", "--final")
    assert json.loads(call("status", "--json").stdout)["steps"]["last"] == 11


def test_a_writer_that_ends_each_line_with_nul_is_read_whole(
    call: Callable[..., Result], tmp_path: Path
) -> None:
    """`ingest` waits for the second look itself; the last NUL byte is left, and is called so."""
    (tmp_path / "train.log").write_text("".join(line(step) + "\0" for step in range(1, 301)))

    done = call("ingest")

    assert "300 lines new, 300 readings" in done.output
    assert "1 bytes left: NUL bytes" in done.output
    assert "unterminated" not in done.output


@pytest.mark.parametrize("tail", ["", ".1", "-20260105.gz"])
def test_status_and_ledger_say_what_the_log_says(
    tail: str, call: Callable[..., Result], tmp_path: Path
) -> None:
    """100 steps of 10 s on 8 GPUs; the first began before its line. Whatever the file is called."""
    write(tmp_path / "train.log", range(1, 101))
    if tail.endswith(".gz"):
        (tmp_path / f"train.log{tail}").write_bytes(gzip.compress((tmp_path / "train.log").read_bytes()))
        (tmp_path / "train.log").unlink()
    elif tail:
        (tmp_path / "train.log").rename(tmp_path / f"train.log{tail}")
    assert call("ingest").exit_code == 0
    as_of = ("--as-of", "2026-01-05T08:16:40Z")
    status, ledger = (json.loads(call(c, "--json", *as_of).stdout) for c in ("status", "ledger"))

    assert status["as_of"] == "2026-01-05T08:16:40Z"
    assert status["tokens"]["net"] == 100 * 64 * 2048
    assert status["gpu_hours"]["productive"] == pytest.approx(100 * 10 * 8 / 3600)
    total = ledger["total"]
    assert sum(total[name] for name in BUCKETS) == pytest.approx(total["allocated"], rel=1e-12)
    assert len(ledger["attempts"]) == 1
    assert ledger["attempts"][0]["mfu_ratio"] == pytest.approx(status["mfu"]["productive_ratio"])


def test_people_get_tables(call: Callable[..., Result], tmp_path: Path) -> None:
    """The same figures, rounded, with their conventions."""
    write(tmp_path / "train.log", range(1, 101))
    call("ingest")
    as_of = ("--as-of", "2026-01-05T08:16:40Z")
    page, ledger = call("status", *as_of).stdout, call("ledger", *as_of).stdout

    assert "13.107M in the model" in page
    assert "of the dense peak (bf16, 989 TFLOP/s), FLOPs by 6N" in page
    assert "productive" in ledger
    assert "100.0 %" in ledger


def test_as_of_looks_back(call: Callable[..., Result], tmp_path: Path) -> None:
    """What came later is not known then."""
    write(tmp_path / "train.log", range(1, 101))
    call("ingest")

    then = json.loads(call("status", "--json", "--as-of", "2026-01-05T08:08:20").stdout)
    assert then["steps"]["last"] == 50
    before = json.loads(call("status", "--json", "--as-of", "2026-01-05T07:00").stdout)
    assert before["state"] == "waiting"


@pytest.mark.parametrize(
    ("prepare", "status", "said"),
    [
        pytest.param(lambda f: None, 0, "source 1: no file matches", id="no-file-yet"),
        pytest.param(put("a.log", "hello\n" * 100), 0, "no collector", id="another-text"),
        pytest.param(put("a.log", os.urandom(5_000)), 0, "no collector", id="binary"),
        pytest.param(put("a.log", ""), 0, "0 readings", id="empty"),
        pytest.param(lambda f: (f / "a.log").mkdir(), 1, "a.log: is a directory", id="a-folder"),
        pytest.param(lambda f: (f / "a.log").symlink_to("a.log"), 1, "a.log: ", id="a-link-to-itself"),
        pytest.param(command("false"), 1, "ended with status 1", id="a-command-that-fails"),
        pytest.param(command("no-such-program"), 1, "cannot be started", id="a-command-that-is-not-there"),
        pytest.param(put("run.toml", NOTHING), 1, "to read", id="no-source"),
        pytest.param(put("tracker.db", "x" * 9_999), 1, "damaged", id="a-damaged-store"),
    ],
)  # fmt: skip
def test_ingest_of_bad_input(
    prepare: Prepare, status: int, said: str, call: Callable[..., Result], tmp_path: Path
) -> None:
    """A sentence for each, and 1 only where something could not be read."""
    prepare(tmp_path)
    done = call("ingest")

    assert done.exit_code == status, done.output
    assert said in done.output


def test_rejects_are_counted_with_their_reason(call: Callable[..., Result], tmp_path: Path) -> None:
    """A line that looks like ours and cannot be used is told, and the others count."""
    write(tmp_path / "train.log", range(1, 11))
    bad = line(11).replace("2026-01-05", "1970-01-01")
    with (tmp_path / "train.log").open("a") as log:
        log.write(bad)
    done = call("ingest")

    assert "1 lines rejected: 1 " in done.output
    assert json.loads(call("status", "--json").stdout)["rejects"]["lines"] == 1


# -- check --------------------------------------------------------------------------------------------


def findings(done: Result) -> list[tuple[str, str, str]]:
    rows = json.loads(done.stdout)["findings"]
    return [(row["level"], row["about"], row["text"]) for row in rows]


def test_a_sound_setup_has_nothing_wrong(call: Callable[..., Result], tmp_path: Path) -> None:
    """Before and after the first ingestion; status 0."""
    write(tmp_path / "train.log", range(1, 101))
    before = call("check")
    call("ingest")
    after = call("check")

    for done in (before, after):
        assert (done.exit_code, "nothing wrong" in done.output) == (0, True), done.output
    assert "megatron: " in before.output
    assert "100 readings" in after.output


@pytest.mark.parametrize(
    ("prepare", "about", "said"),
    [
        pytest.param(put("run.toml", "[run]"), "config", "run.name: missing", id="config"),
        pytest.param(put("run.toml", NOTHING), "sources", "no [[source]]", id="no-source"),
        pytest.param(lambda f: (f / "train.log").unlink(), "source 1", "no file there yet", id="no-file"),
        pytest.param(put("a.log", "hello\n" * 9), "source 1", "no collector", id="unknown"),
        pytest.param(lambda f: (f / "d.log").mkdir(), "source 1", "d.log: is a directory", id="a-folder"),
        pytest.param(lambda f: (f / "tracker.db").mkdir(), "store", "is a folder", id="store-is-a-folder"),
        pytest.param(put("tracker.db", "x" * 9_999), "store", "damaged", id="damaged"),
        pytest.param(put("run.toml", CONFIG + "[store]\npath = 'none/t.db'"), "store", "does not exist",
                     id="no-folder-for-the-store"),
        pytest.param(put("run.toml", CONFIG + "[report]\ndirectory = 'train.log/out'"), "report",
                     "train.log is no folder", id="no-folder-for-reports"),
        pytest.param(put("run.toml", CONFIG + MAIL), "mail", "No such file", id="no-password-file"),
        pytest.param(command("no-such-program"), "source 1", "no such program in PATH", id="no-program"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found(
    prepare: Prepare, about: str, said: str, call: Callable[..., Result], tmp_path: Path
) -> None:
    """Each fault by what it is about, and status 1."""
    write(tmp_path / "train.log", range(1, 101))
    prepare(tmp_path)
    done = call("check", "--json")

    assert done.exit_code == 1
    assert [
        text for level, where, text in findings(done) if (level, where) == ("wrong", about) and said in text
    ]
    people = call("check")
    assert people.exit_code == 1
    assert "WRONG" in people.output


def test_a_full_disk_is_wrong_and_named_by_status(
    call: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can be stored: what status shows is old, and it says so."""
    write(tmp_path / "train.log", range(1, 101))
    call("ingest")
    assert "MB free" not in call("status").stderr
    monkeypatch.setattr(filesystem, "LEAST_ROOM", 1 << 62)
    done = call("check", "--json")

    assert done.exit_code == 1
    assert [text for level, about, text in findings(done) if (level, about) == ("wrong", "store")
            and f"MB free in {tmp_path}: too little for the store" in text]  # fmt: skip
    assert f"MB free in {tmp_path}: too little for the store" in call("status").stderr
    assert "MB free" not in call("status", "--as-of", "2026-01-05T08:00:00Z").stderr


def test_a_copied_file_is_nothing_wrong(call: Callable[..., Result], tmp_path: Path) -> None:
    """It is told as what it is, and read once."""
    write(tmp_path / "a.log", range(1, 101))
    call("ingest")
    (tmp_path / "b.log").write_bytes((tmp_path / "a.log").read_bytes())
    call("ingest")
    done = call("check", "--json")

    assert done.exit_code == 0, done.output
    said = [text for level, about, text in findings(done) if (level, about) == ("ok", "source 1")]
    assert "b.log: a copy of what is read from another file, not read twice" in said
    assert "100 readings" in done.output


def test_an_unrecognised_file_is_named_once(call: Callable[..., Result], tmp_path: Path) -> None:
    """By its content now; the store's word counts only for files that were not looked at."""
    write(tmp_path / "train.log", range(1, 101))
    (tmp_path / "z.log").write_text("hello\n" * 9)
    call("ingest")
    done = call("check", "--json")

    wrong = [text for level, _, text in findings(done) if level == "wrong"]
    assert len(wrong) == 1
    assert wrong[0].startswith("z.log: no collector")


def test_the_store_names_an_unrecognised_file_that_was_not_looked_at(
    call: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With why, in words for people."""
    (tmp_path / "z.log").write_text("hello\n" * 9)
    os.utime(tmp_path / "z.log", (1_750_000_000, 1_750_000_000))
    write(tmp_path / "train.log", range(1, 101))
    call("ingest")
    monkeypatch.setattr(doctor, "FILES_TRIED", 1)
    done = call("check", "--json")

    wrong = [text for level, _, text in findings(done) if level == "wrong"]
    assert len(wrong) == 1
    assert wrong[0].startswith("z.log: no collector")


def test_what_others_can_reach_is_noted(call: Callable[..., Result], tmp_path: Path) -> None:
    """A note, not a fault: it is allowed."""
    write(tmp_path / "train.log", range(1, 11))
    open_to_all = CONFIG.replace("127.0.0.1:0", "0.0.0.0:0")
    assert open_to_all != CONFIG
    (tmp_path / "run.toml").write_text(open_to_all + "[report]\ndirectory = '.'\n")
    done = call("check", "--json")

    assert done.exit_code == 0
    notes = [(about, text) for level, about, text in findings(done) if level == "note"]
    assert any(
        w == "config" and "without encryption (TLS) or password" in t and "'0.0.0.0:0'" in t for w, t in notes
    )


def test_a_port_in_use_is_found(call: Callable[..., Result], tmp_path: Path) -> None:
    """With what to do."""
    write(tmp_path / "train.log", range(1, 11))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (tmp_path / "run.toml").write_text(CONFIG.replace("127.0.0.1:0", f"127.0.0.1:{port}"))
        done = call("check", "--json")

    assert [text for level, about, text in findings(done) if (level, about) == ("wrong", "port")]


def test_rejected_lines_are_shown(call: Callable[..., Result], tmp_path: Path) -> None:
    """By reason, with some of them, as a note; nothing that a terminal would obey."""
    write(tmp_path / "train.log", range(1, 11))
    with (tmp_path / "train.log").open("a") as log:
        log.write(line(11).replace("2026-01-05", "1970-01-01").replace("1.092914E+01", "\x1b]0;x\x07"))
    call("ingest")
    done = call("check")

    assert done.exit_code == 0
    assert "1 lines could not be used" in done.output
    assert "1970-01-01" in done.output
    assert "\x1b" not in done.output


def test_check_writes_nothing(call: Callable[..., Result], tmp_path: Path) -> None:
    """A doctor that changes what it looks at is none."""
    write(tmp_path / "train.log", range(1, 11))
    before = sorted(tmp_path.rglob("*"))
    call("check")

    assert sorted(tmp_path.rglob("*")) == before


# -- collectors ---------------------------------------------------------------------------------------


def test_collectors_lists_all(call: Callable[..., Result]) -> None:
    """Each with its framework; --json with what it knows and needs."""
    rows = json.loads(call("collectors", "--json").stdout)["collectors"]
    page = call("collectors").output

    assert {"jsonl", "megatron", "slurm"} <= {row["name"] for row in rows}
    assert all(row["name"] in page for row in rows)


def test_a_file_is_tried(call: Callable[..., Result], tmp_path: Path) -> None:
    """Who reads it and why, what came out, what was rejected, what must be set."""
    write(tmp_path / "train.log", range(1, 11))
    with (tmp_path / "train.log").open("a") as log:
        log.write(line(11).replace("2026-01-05", "1970-01-01"))
    done = call("collectors", "test", "train.log", "--json")
    found = json.loads(done.stdout)

    assert done.exit_code == 0
    assert found["collector"] == "megatron"
    assert found["evidence"]
    assert (found["readings"], found["first_step"], found["last_step"]) == (10, 1, 10)
    assert found["last_at"] == "2026-01-05T08:01:40Z"
    assert sum(found["rejects"].values()) == 1
    assert found["rejected"][0]["line"].startswith("[1970-01-01")
    page = call("collectors", "test", "train.log").output
    assert "step 10 at 2026-01-05 08:01:40Z" in page
    assert not (tmp_path / "tracker.db").exists()


def test_the_zone_of_a_try_can_be_given(call: Callable[..., Result], tmp_path: Path) -> None:
    """Times without a zone are read in it."""
    write(tmp_path / "train.log", range(1, 3))
    done = call("collectors", "test", "train.log", "--timezone", "Europe/Berlin", "--json")

    assert json.loads(done.stdout)["first_at"] == "2026-01-05T07:00:10Z"


def test_a_scheduler_file_is_tried(call: Callable[..., Result], tmp_path: Path) -> None:
    """Jobs with state, times and GPUs."""
    (tmp_path / "sacct.txt").write_text(SACCT)
    page = call("collectors", "test", "sacct.txt").output

    assert "slurm" in page
    assert "job 4711: COMPLETED, 2026-01-05 07:50:00Z to 2026-01-05 09:00:00Z, 8 GPUs" in page


@pytest.mark.parametrize("body", [b"", b"\0" * 5_000, b"\xff\xfe" * 5_000, b"x" * 3_000_000, b"hello\n"])
def test_a_file_that_nobody_reads(body: bytes, call: Callable[..., Result], tmp_path: Path) -> None:
    """Status 1 and the reason; --collector reads it all the same, and finds nothing."""
    (tmp_path / "odd").write_bytes(body)
    done = call("collectors", "test", "odd")
    forced = call("collectors", "test", "odd", "--collector", "megatron")

    assert (done.exit_code, "no collector recognises it" in done.output) == (1, True)
    assert (forced.exit_code, "you named it" in forced.output) == (0, True)


# -- demo ---------------------------------------------------------------------------------------------


def test_the_demo_shows_a_run(call: Callable[..., Result], tmp_path: Path) -> None:
    """Labelled as simulated, from raw logs and an empty store, with what to do next; nothing unexplained."""
    done = call("demo", "--directory", "d")

    assert done.exit_code == 0, done.output
    assert "A SIMULATED run: no GPU ran for it" in done.output
    assert "demo-13b-simulated" in done.output
    assert "tracker run --config d/run.toml" in done.output
    status = json.loads(
        call("status", "-c", "d/run.toml", "--json", "--as-of", "2026-01-06T22:12:00Z").stdout
    )
    hours = status["gpu_hours"]
    assert hours["other"] < 0.005 * hours["allocated"]
    assert sum(hours[name] for name in BUCKETS) == pytest.approx(hours["allocated"])


def test_an_edited_line_moves_the_number(call: Callable[..., Result], tmp_path: Path) -> None:
    """The demo computes: nothing of its answer is bundled."""

    def lost() -> float:
        call("demo", "--directory", "d")
        status = call("status", "-c", "d/run.toml", "--json", "--as-of", "2026-01-06T22:12:00Z")
        hours: float = json.loads(status.stdout)["gpu_hours"]["lost"]
        return hours

    before = lost()
    log = max((tmp_path / "d" / "logs").iterdir(), key=lambda path: path.name)
    text = log.read_text(errors="surrogateescape")
    assert "successfully loaded checkpoint" in text
    number = next(
        w for w in text.split("successfully loaded checkpoint")[1].split() if w.rstrip("]").isdigit()
    )
    log.write_text(
        text.replace(f"at iteration {number}", f"at iteration {int(number.rstrip(']')) - 1500}]"),
        errors="surrogateescape",
    )

    assert lost() != before


def test_the_demo_leaves_other_folders_alone(call: Callable[..., Result], tmp_path: Path) -> None:
    """A folder with something else in it is refused."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")

    assert call("demo", "--directory", "full").exit_code == 2
    assert call("demo", "--directory", ".").exit_code == 2  # another run's config stands there
    assert (tmp_path / "run.toml").read_text() == CONFIG


def test_the_demo_takes_a_temporary_folder(
    call: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says where it is."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = call("demo")

    (made,) = tmp_path.glob("tracker-demo-*")
    assert str(made) in done.output
    shutil.rmtree(made)


def test_a_run_that_is_history_is_told_as_of_its_end(call: Callable[..., Result], tmp_path: Path) -> None:
    """With [run] until an old log without a last word does not count as running until now."""
    write(tmp_path / "train.log", range(1, 101))
    call("ingest")
    forgotten = document(call("status", "--json"))
    assert forgotten["state"] == "stalled"
    warning = next(one for one in forgotten["warnings"] if "counts as running" in one)
    assert "set run.until = 2026-01-05T08:17:00Z" in warning
    assert f"note   run       {warning}" in call("check").output
    config = tmp_path / "run.toml"
    config.write_text(config.read_text().replace("[run]", "[run]\nuntil = 2026-01-05T08:17:00Z", 1))

    now = document(call("status", "--json"))
    assert (now["as_of"], now["state"]) == ("2026-01-05T08:17:00Z", "running")
    assert not any("counts as running" in one for one in now["warnings"])
    assert "run.until" not in call("check").output
    assert call("ledger", "--json").stdout == call("ledger", "--json", "--as-of", "2026-01-05T08:17").stdout
    earlier = document(call("status", "--json", "--as-of", "2026-01-05T08:08:20"))
    assert earlier["as_of"] == "2026-01-05T08:08:20Z"
    for command in (("status",), ("ledger",), ("interruptions",)):  # nor is a later moment, asked for by name
        later = call(*command, "--json", "--as-of", "2036-01-01T00:00:00Z").stdout
        assert later == call(*command, "--json").stdout

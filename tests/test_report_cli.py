"""`tracker report` on a store: which files it writes, what it says, and what it says when it cannot."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from reports.text import text_of
from tests.core.story import T0
from tracker import app, atomic, reporting
from tracker.cli import root
from tracker.cli._options import Moment
from tracker.config import ConfigError
from tracker.rendering import NotRendered

NAME = "a-b-quoted-2026-01-01"
AS_OF = "2026-01-01T02:00:00Z"
CONFIG = """\
[run]
name = "a/b 'quoted' \N{GRINNING FACE}"
[model]
active_params = 1e9
sequence_length = 1000
[hardware]
gpu = "h100-sxm"
gpus = 8
[plan]
tokens = 1e6
later_stages = 0.0
gpu_hour_price = 2.0
start = 2026-01-01T00:00:00Z
[[source]]
collector = "jsonl"
path = "train.jsonl"
[report]
directory = "out"
timezone = "Europe/Berlin"
"""


def iso(second: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(T0 // 1_000_000 + second))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A config over a store with an hour of steps."""
    rows = [{"kind": "attempt", "start": iso(0), "gpus": 8, "resumed_from": 0, "global_batch_size": 1}]
    rows += [
        {"at": iso(100 + 10 * step), "step": step, "samples": step, "step_time_ms": 10_000.0}
        for step in range(5, 500, 5)
    ]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = tmp_path / "run.toml"
    path.write_text(CONFIG, encoding="utf-8")
    app.ingest_once(app.load_config(path), final=True)
    return path


def asked(config: Path, *more: str) -> tuple[int, str, str]:
    """Call the command; return its status and what it said on both ways."""
    result = CliRunner().invoke(root, ["report", "--config", str(config), "--as-of", AS_OF, *more])
    return result.exit_code, result.stdout, result.stderr


def files(folder: Path) -> set[Path]:
    """The files below a folder, without those of the store."""
    return {p for p in folder.rglob("*") if p.is_file() and not p.name.startswith("tracker.db")}


def without_pdf(monkeypatch: pytest.MonkeyPatch, why: str = "") -> None:
    """Let no child print: quickly a stand-in, or a failure."""

    def stand_in(page: object, **more: object) -> bytes:
        if why:
            raise NotRendered(why)
        return b"%PDF-stand-in " + str(more.get("paper")).encode()

    monkeypatch.setattr("tracker.rendering.pdf", stand_in)


@pytest.mark.slow
def test_two_processes_write_the_same_bytes(config: Path, tmp_path: Path) -> None:
    """Two processes, two seeds of hashes, two zones, a second reading of the sources between them."""
    made = []
    for number, seed in enumerate(("1", "2")):
        base = tmp_path / f"try{number}"
        base.mkdir()
        subprocess.run(
            [
                sys.executable, "-c", "from tracker.cli import main; main()", "report", "--config",
                str(config), "--as-of", AS_OF, "--out", str(base / "x.pdf"),
            ],
            env={**os.environ, "PYTHONHASHSEED": seed, "TZ": ("Asia/Tokyo", "America/New_York")[number]},
            check=True,
            capture_output=True,
        )  # fmt: skip
        made.append({path.name: path.read_bytes() for path in base.iterdir()})
        app.ingest_once(app.load_config(config), final=True)

    assert sorted(made[0]) == ["x.html", "x.pdf", "x.txt"]
    assert made[0] == made[1]
    assert made[0]["x.pdf"].startswith(b"%PDF-")


def test_text_goes_to_standard_output_and_nothing_is_written(config: Path) -> None:
    before = files(config.parent)
    status, out, _ = asked(config, "--text")
    loaded = app.load_config(config)
    at_us = Moment().convert(AS_OF, None, None)

    assert status == 0
    assert out == text_of(reporting.page_of(app.daily_now(loaded, as_of_us=at_us), loaded))
    assert "Europe/Berlin" in out.splitlines()[2]
    assert files(config.parent) == before


@pytest.mark.parametrize(
    ("out", "names"),
    [
        ([], [f"out/{NAME}.html", f"out/{NAME}.pdf", f"out/{NAME}.txt"]),
        (["--out", "{}/x.pdf"], ["x.html", "x.pdf", "x.txt"]),
        (["--out", "{}/x.txt"], ["x.txt"]),
        (["--out", "{}/x.html"], ["x.html"]),
        (["--out", "{}/new"], [f"new/{NAME}.html", f"new/{NAME}.pdf", f"new/{NAME}.txt"]),
    ],
    ids=["the report's folder", "a PDF with both beside it", "text alone", "HTML alone", "a folder"],
)  # fmt: skip
def test_out_says_what_is_written_and_where(
    config: Path, monkeypatch: pytest.MonkeyPatch, out: list[str], names: list[str]
) -> None:
    """Whatever the run is called; the day is that of the report's zone."""
    without_pdf(monkeypatch)
    folder = config.parent
    before = files(folder)
    status, said, _ = asked(config, *(part.format(folder) for part in out))

    new = sorted(str(p.relative_to(folder)) for p in files(folder) - before)
    assert status == 0
    assert new == names
    assert sorted(said.split()) == sorted(str(folder / name) for name in names)


def test_paper_is_the_configs_unless_told(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_pdf(monkeypatch)
    config.write_text(CONFIG.replace('directory = "out"', 'directory = "out"\npaper = "letter"'), "utf-8")

    asked(config, "--out", str(config.parent / "x.pdf"))
    asked(config, "--out", str(config.parent / "y.pdf"), "--paper", "a4")
    assert (config.parent / "x.pdf").read_bytes() == b"%PDF-stand-in letter"
    assert (config.parent / "y.pdf").read_bytes() == b"%PDF-stand-in a4"


def test_an_unknown_paper_in_the_config_is_told(config: Path) -> None:
    config.write_text(CONFIG.replace('directory = "out"', 'directory = "out"\npaper = "a5"'), "utf-8")

    with pytest.raises(ConfigError, match=r"report\.paper = 'a5': expected one of"):
        app.load_config(config)


def test_text_and_html_are_there_where_the_pdf_fails(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_pdf(monkeypatch, "the PDF could not be made: typst is missing: pip install typst")
    status, said, err = asked(config, "--out", str(config.parent / "x.pdf"))

    assert status == 1
    assert err == "tracker: the PDF could not be made: typst is missing: pip install typst\n"
    assert said.split() == [str(config.parent / "x.txt"), str(config.parent / "x.html")]
    assert (config.parent / "x.html").exists()
    assert not (config.parent / "x.pdf").exists()


def test_a_folder_that_is_not_there_is_told_before_anything_is_computed(config: Path) -> None:
    status, _, err = asked(config, "--out", str(config.parent / "no" / "x.pdf"))

    assert status == 2
    assert f"there is no folder {config.parent / 'no'}. Make it first" in err


def test_a_target_that_is_no_folder_is_told(config: Path) -> None:
    """Such as a device, or a file without an ending."""
    (config.parent / "taken").write_text("mine", "utf-8")
    for target in ("/dev/full", str(config.parent / "taken")):
        status, _, err = asked(config, "--out", target)

        assert status == 2
        assert f"expected a folder, or a file .pdf, .html or .txt, and {target} is neither" in " ".join(
            err.split()
        )
    assert (config.parent / "taken").read_text("utf-8") == "mine"


def test_an_ending_that_is_none_of_ours_is_told(config: Path) -> None:
    status, _, err = asked(config, "--out", str(config.parent / "x.docx"))

    assert status == 2
    assert "expected a file .pdf, .html or .txt, or a folder that is there" in err


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "No space left on device. Make room there, and call it again"),
        (errno.EACCES, "Permission denied"),
    ],
    ids=["full", "not writable"],
)
def test_a_folder_that_takes_nothing_is_told_with_the_file(
    config: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    """And nothing half-written is left."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(atomic.tempfile, "mkstemp", refuse)
    status, _, err = asked(config, "--out", str(config.parent / "x.txt"))

    assert status == 1
    assert err == f"tracker: {config.parent / 'x.txt'}: {said}\n"
    assert not list(config.parent.glob("*.tmp"))


def test_a_disk_that_is_full_in_the_middle_is_told_with_the_file(tmp_path: Path) -> None:
    """In a process that may write no more than 1,000 bytes to a file."""
    code = (
        "import resource, sys; from pathlib import Path; from tracker.atomic import replacing\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))\n"
        "with replacing(Path(sys.argv[1])) as file: file.write(b'x' * 100_000)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "x.html")], capture_output=True, text=True, check=False
    )

    assert done.stderr.splitlines()[-1] == f"OSError: [Errno 27] File too large: '{tmp_path / 'x.html'}'"
    assert not list(tmp_path.iterdir())


def test_a_store_that_is_not_there_yet_gives_a_report_that_says_so(config: Path) -> None:
    for tail in ("", "-wal", "-shm"):
        (config.parent / f"tracker.db{tail}").unlink(missing_ok=True)
    status, out, _ = asked(config, "--text")

    assert status == 0
    assert "No attempt was seen yet" in out


def test_the_parts_of_a_mail_are_written_for_whoever_mails(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its HTML names the pictures beside it, its subject is ASCII-safe JSON."""
    without_pdf(monkeypatch)
    monkeypatch.setattr("tracker.rendering.pictures", lambda page, names, **_: {"waterfall": b"\x89PNG"})
    asked(config, "--out", str(config.parent / "x.pdf"), "--mail")

    html = (config.parent / "x.mail.html").read_text("utf-8")
    assert "cid:waterfall" in html
    assert (config.parent / "x.waterfall.png").read_bytes() == b"\x89PNG"
    subject = json.loads((config.parent / "x.mail.json").read_text("ascii"))["subject"]
    assert subject.startswith("a/b 'quoted'")

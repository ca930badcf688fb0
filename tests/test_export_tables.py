"""The tables: they sum to the ledger, say nothing they do not know, and no spreadsheet obeys them."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.core.story import Log, facts, row, settings, us
from tests.history_help import stored
from tracker.cli import root
from tracker.cli.export import TABLES as OFFERED
from tracker.config import Config
from tracker.core.book import Book
from tracker.core.ledger import BUCKETS
from tracker.core.records import Kind
from tracker.core.summary import snapshot
from tracker.export.formats import DANGEROUS, guarded, write
from tracker.export.tables import TABLES, Row, seen
from tracker.store import Reader

FAR_US = 1_800_000_000_000_000


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return stored(tmp_path_factory.mktemp("run"), "rollback")


def call(*words: str, check: int = 0) -> Result:
    done = CliRunner().invoke(root, ["export", *words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == check, done.output
    return done


def rows_of(run: Config, name: str, as_of_us: int = FAR_US) -> list[dict[str, Any]]:
    with Reader(run.store) as reader, reader.snapshot():
        table = TABLES[name]
        made = seen(run.settings, reader, as_of_us=as_of_us)
        return [dict(zip([c.name for c in table.columns], row, strict=True)) for row in table.rows(made)]


def test_the_ledger_table_sums_to_the_ledger(run: Config) -> None:
    """By bucket, in whole microseconds."""
    with Reader(run.store) as reader, reader.snapshot():
        whole = snapshot(Book(run.settings), reader, as_of_us=FAR_US)
    assert whole.gpu_us is not None
    found = rows_of(run, "ledger")

    for bucket in BUCKETS:
        assert sum(r["gpu_us"] for r in found if r["bucket"] == bucket) == whole.gpu_us[bucket]
    assert sum(r["gpu_us"] for r in found) == whole.gpu_us["allocated"]


def test_windows_sum_to_the_work_of_each_attempt(run: Config) -> None:
    """Time, steps and tokens, and each window's parts to its length."""
    attempts = {r["attempt"]: r for r in rows_of(run, "attempts")}
    windows = rows_of(run, "windows")
    assert len(windows) > 50

    for w in windows:
        parts = [w[f"{name}_us"] for name in ("productive", "lost", "checkpoint", "evaluation", "other")]
        assert sum(parts) == w["end_us"] - w["start_us"]
        assert w["steps_net"] + w["steps_lost"] == w["last_step"] - w["first_step"] + 1
    for number, attempt in attempts.items():
        own = [w for w in windows if w["attempt"] == number]
        told = sum(w["steps_net"] for w in own), sum(w["tokens_net"] for w in own)
        saved = attempt["steps_net"] - told[0]  # steps that only a save after the last reading tells of
        assert saved >= 0
        assert saved or told[1] == attempt["tokens_net"]


def test_every_reading_of_an_attempt_is_there_once(run: Config) -> None:
    with Reader(run.store) as reader:
        stored_readings = sum(1 for s in reader.streams() for _ in reader.readings(s.stream_id))
    found = rows_of(run, "readings")

    assert len(found) == len({(r["file"], r["offset_bytes"]) for r in found}) == stored_readings


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_all_formats_hold_the_same(name: str, form: str, run: Config, tmp_path: Path) -> None:
    """Column by column; the moment of ISO text is that of its microseconds."""
    out = tmp_path / f"x.{form}"
    call("--config", str(run.path), "--table", name, "--out", str(out), "--as-of", "2026-02-01")
    expected = rows_of(run, name, 1_769_904_000_000_000)

    if form == "jsonl":
        found = [json.loads(line) for line in out.read_text().splitlines()]
    elif form == "csv":
        found = list(csv.DictReader(io.StringIO(out.read_text())))
        expected = [{k: as_csv(v) for k, v in row.items()} for row in expected]
    else:
        duckdb = pytest.importorskip("duckdb")
        with duckdb.connect() as database:
            made = database.execute("SELECT * FROM read_parquet(?)", [str(out)])
            names = [column[0] for column in made.description]
            found = [dict(zip(names, row, strict=True)) for row in made.fetchall()]
        moments = {c.name for c in TABLES[name].columns if c.kind == "moment"}
        for row in [*found, *expected]:
            for key in moments:
                row[key] = None if row[key] is None else str(row[key]).replace("T", " ").removesuffix("Z")
    assert found == expected


def as_csv(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_the_commands_choice_is_the_tables() -> None:
    assert tuple(TABLES) == OFFERED


def test_what_is_unknown_is_empty_and_never_zero(tmp_path: Path) -> None:
    """No GPU count, no tokens, no end: no figure."""
    log = Log().launch(gpus=None).line(10, tokens_per_step=None).at(100).line(20, tokens_per_step=None)
    bare = settings(model=settings().model.__class__(), hardware=settings().hardware.__class__())
    made = seen(bare, facts(log), as_of_us=us(110))
    out = io.BytesIO()
    write("csv", TABLES["attempts"].columns, TABLES["attempts"].rows(made), out)
    told = next(csv.DictReader(io.StringIO(out.getvalue().decode())))

    for name in ("end", "end_us", "gpus", "tokens_net", "mfu_ratio", "cause", "allocated_gpu_us"):
        assert told[name] == "", name


HOSTILE = [
    "=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "  =1+1", "＝1", '=HYPERLINK("x")', "\ufeff=1",
    "\u200b=1", " \u2060\u200b -1", "\ufffd=1",
]  # fmt: skip
LATER = {
    "\t=1": "'\t'=1", "\r=1": "'\r'=1", "\n=1": "'\n'=1", ";=cmd|' /C calc'!A0": ";'=cmd|' /C calc'!A0",
    "lost; \u200b@SUM(1)": "lost; \u200b'@SUM(1)", "a\x1b[31m": "a\ufffd[31m", "\x1b=1": "'\ufffd=1",
    "a\x9b1;2b": "a\ufffd1;2b", "loss = -1; ok": "loss = -1; ok",
}  # fmt: skip
"""Where a cell may begin for a spreadsheet that splits by semicolons or tabs; what a terminal would obey."""


@pytest.mark.parametrize(("text", "expected"), [*((t, f"'{t}") for t in HOSTILE), *LATER.items()])
def test_no_cell_of_text_begins_a_formula(text: str, expected: str) -> None:
    """Evidence of a log, in every column of text; numbers, also negative ones, stay numbers."""
    log = Log().launch().line(10).at(20).event(Kind.FAILURE, cause="gpu", fatal=True, text=text)
    made = seen(settings(), facts(log, rows=[row("1", 0, 30)]), as_of_us=us(100))
    out = io.BytesIO()
    write("csv", TABLES["interruptions"].columns, TABLES["interruptions"].rows(made), out)
    told = next(csv.DictReader(io.StringIO(out.getvalue().decode(), newline="")))

    assert told["evidence"] == expected
    assert not any(cell.startswith(DANGEROUS) for cell in told.values())
    assert guarded(guarded(text)) == guarded(text), "once is enough"


def test_other_formats_keep_the_text_as_it_was() -> None:
    rows: list[Row] = [("=1", 1)]
    out = io.BytesIO()
    columns = (TABLES["ledger"].columns[0], TABLES["ledger"].columns[1])
    write("jsonl", columns, rows, out)

    assert json.loads(out.getvalue()) == {"run": "=1", "attempt": 1}


def test_text_that_no_format_should_choke_on() -> None:
    """NUL, half a surrogate pair, quotes, line breaks."""
    rows: list[Row] = [('a\0b"\n,\ud800é', 1)]
    columns = (TABLES["ledger"].columns[0], TABLES["ledger"].columns[1])
    for form in ("csv", "jsonl", "parquet"):
        out = io.BytesIO()
        assert write(form, columns, rows, out) == 1  # type: ignore[arg-type]


def test_parquet_without_its_package_says_what_to_install(
    run: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)

    done = call("--config", str(run.path), "--table", "ledger", "--out", str(tmp_path / "x.parquet"), check=1)

    assert "pip install 'run-telemetry[parquet]'" in done.stderr
    assert not list(tmp_path.iterdir())


def test_standard_output_is_the_default(run: Config) -> None:
    done = call("--config", str(run.path), "--table", "ledger")

    assert done.stdout.startswith("run,attempt,bucket,gpu_us,wall_us\n")

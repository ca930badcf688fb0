"""The command line: what it says, where, and with which exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from tracker import __version__
from tracker.cli import COMMANDS, Entry, root
from tracker.core.errors import TrackerError

MINIMAL = '[run]\nname = "r"\n'


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Call the command line in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRACKER_CONFIG", raising=False)
    runner = CliRunner()

    def run(*words: str) -> Result:
        return runner.invoke(root, words)

    return run


def process(*words: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", "from tracker.cli import main; main()", *words],
        capture_output=True, text=True, timeout=60, check=False, cwd=cwd, env={**os.environ, **env},
    )  # fmt: skip


def commands() -> list[tuple[str, click.Command]]:
    """Every command and command of a group, by its full name."""
    found: list[tuple[str, click.Command]] = []

    def add(name: str, command: click.Command | None, context: click.Context) -> None:
        assert command is not None, name
        found.append((name, command))
        if isinstance(command, click.Group):
            for inner in command.list_commands(context):
                add(f"{name} {inner}", command.get_command(context, inner), context)

    top = click.Context(root, info_name="tracker")
    for name in COMMANDS:
        add(name, root.get_command(top, name), top)
    return found


def test_version(call: Callable[..., Result]) -> None:
    """--version names program and version."""
    done = call("--version")

    assert (done.exit_code, done.output) == (0, f"tracker, version {__version__}\n")


def test_help_lists_every_command(call: Callable[..., Result]) -> None:
    """Also without any word."""
    page = call("--help").output

    assert all(f"  {name} " in page for name in COMMANDS)


@pytest.mark.parametrize(("name", "entry"), COMMANDS.items(), ids=list(COMMANDS))
def test_the_overview_says_what_the_command_says(name: str, entry: Entry) -> None:
    """The line in the table is the first line of the command's own help."""
    command = root.get_command(click.Context(root), name)

    assert command is not None
    assert command.name == name
    assert (command.help or "").split("\n")[0] == entry.summary


@pytest.mark.parametrize(("name", "command"), [pytest.param(n, c, id=n) for n, c in commands()])
def test_every_command_has_help_with_an_example(
    name: str, command: click.Command, call: Callable[..., Result]
) -> None:
    """--help works everywhere, every option is explained, and an example stands in it."""
    done = call(*name.split(), "--help")

    assert done.exit_code == 0
    if not isinstance(command, click.Group) or command.invoke_without_command:
        assert "Example" in done.output
        assert f"tracker {name}" in done.output
    options = [p for p in command.params if isinstance(p, click.Option)]
    assert not [p.name for p in options if not p.help]


def test_help_loads_little() -> None:
    """Nothing is loaded that help does not need: that is what keeps it quick."""
    assert process("--help").returncode == 0
    program = (
        "import sys; from tracker.cli import root; root(['--help'], standalone_mode=False); "
        "print(*sys.modules, file=sys.stderr)"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    heavy = {"sqlite3", "tomllib", "prometheus_client", "apscheduler", "rich", "collectors", "msgspec"}
    assert not set(loaded.stderr.split()) & heavy


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        pytest.param((), 2, "Usage: tracker", id="no-command-shows-help"),
        pytest.param(("statsu",), 2, "no command 'statsu': did you mean 'status'?", id="a-misspelt-command"),
        pytest.param(("xyzzy",), 2, "see `tracker --help`", id="a-strange-command"),
        pytest.param(("status",), 2, "no config: give --config FILE", id="no-config"),
        pytest.param(("status", "--config", "none.toml"), 2, "none.toml", id="a-config-that-is-not-there"),
        pytest.param(("status", "--config", "."), 2, "is a directory", id="a-config-that-is-a-folder"),
        pytest.param(("status", "--confg", "x"), 2, "No such option", id="a-misspelt-option"),
        pytest.param(("status", "-c", "r.toml", "--as-of", "soon"), 2, "expected ISO 8601", id="no-moment"),
        pytest.param(
            ("status", "-c", "r.toml", "--as-of", "1970-01-01"), 2, "between 2000 and 2100", id="1970"
        ),
        pytest.param(
            ("status", "-c", "r.toml", "--as-of", "9999-12-31T23:59:59-12:00"), 2, "2100", id="9999"
        ),
        pytest.param(("status", "-c", "bad.toml"), 1, "run.name: missing", id="a-config-that-is-wrong"),
        pytest.param(("status", "-c", "folder.toml"), 1, "is a folder", id="a-store-that-is-a-folder"),
        pytest.param(("status", "-c", "text.toml"), 1, "damaged or no database", id="a-store-that-is-text"),
        pytest.param(("collectors", "test", "none.log"), 1, "no such file", id="a-log-that-is-not-there"),
        pytest.param(("collectors", "test", "."), 1, "is a folder", id="a-log-that-is-a-folder"),
        pytest.param(("collectors", "test", "text.db", "--timezone", "X/Y"), 2, "IANA", id="no-zone"),
        pytest.param(
            ("collectors", "test", "text.db", "--collector", "megtron"), 1, "expected", id="no-collector"
        ),
        pytest.param(("collectors", "test", "text.db"), 1, "", id="nobody-recognises-it"),
    ],
)
def test_what_a_user_can_cause_is_a_sentence(
    words: tuple[str, ...], status: int, said: str, call: Callable[..., Result], tmp_path: Path
) -> None:
    """Never a traceback; 2 for a wrong call, 1 for the world."""
    (tmp_path / "r.toml").write_text(MINIMAL)
    (tmp_path / "bad.toml").write_text("[run]\n")
    (tmp_path / "folder.toml").write_text(MINIMAL + "[store]\npath = '.'\n")
    (tmp_path / "text.toml").write_text(MINIMAL + "[store]\npath = 'text.db'\n")
    (tmp_path / "text.db").write_text("this is no database\n" * 100)
    done = call(*words)

    assert (done.exit_code, "Traceback" in done.output) == (status, False), done.output
    assert said in done.output
    assert isinstance(done.exception, SystemExit)


def test_a_bug_still_traces_back(call: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only failures of users and of the world are turned into sentences."""
    from tracker import app

    def broken(path: Path) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(app, "load_config", broken)
    Path("run.toml").write_text(MINIMAL)

    assert isinstance(call("status").exception, ZeroDivisionError)


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        pytest.param(TrackerError("so it is\x1b[31m"), 1, "tracker: so it is?[31m\n", id="ours"),
        pytest.param(PermissionError(13, "Permission denied", "/x"), 1, "/x: Permission denied", id="system"),
        pytest.param(OSError("odd"), 1, "tracker: odd", id="without-a-number"),
        pytest.param(MemoryError(), 1, "out of memory", id="memory"),
        pytest.param(BrokenPipeError(), 0, "", id="the-reader-left"),
        pytest.param(KeyboardInterrupt(), 130, "", id="interrupted"),
    ],
)
def test_failures_by_kind(
    error: BaseException, status: int, said: str, call: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has its status and its words."""
    from tracker import app

    def failing(path: Path) -> None:
        raise error

    monkeypatch.setattr(app, "load_config", failing)
    Path("run.toml").write_text(MINIMAL)
    done = call("status")

    assert done.exit_code == status
    assert said in done.output


def test_the_config_is_found(call: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    """--config, else TRACKER_CONFIG, else run.toml, else tracker.toml here."""

    def run_of(*words: str) -> str:
        name: str = json.loads(call("status", "--json", *words).stdout)["run"]
        return name

    Path("tracker.toml").write_text('[run]\nname = "by second name"\n')
    assert run_of() == "by second name"
    Path("run.toml").write_text('[run]\nname = "by first name"\n')
    assert run_of() == "by first name"
    Path("env.toml").write_text('[run]\nname = "by environment"\n')
    monkeypatch.setenv("TRACKER_CONFIG", "env.toml")
    assert run_of() == "by environment"
    Path("given.toml").write_text('[run]\nname = "given"\n')
    assert run_of("--config", "given.toml") == "given"
    monkeypatch.setenv("TRACKER_CONFIG", "gone.toml")
    assert call("status").exit_code == 2
    assert "TRACKER_CONFIG = 'gone.toml'" in call("status").output


def test_no_data_yet_is_nulls_and_status_0(call: Callable[..., Result]) -> None:
    """A store that is not there yet is a run that waits."""
    Path("run.toml").write_text(MINIMAL)
    done = call("status", "--json", "--as-of", "2026-01-05")
    document = json.loads(done.stdout)

    assert done.exit_code == 0
    assert document["schema"] == 1
    assert document["as_of"] == "2026-01-05T00:00:00Z"
    assert document["state"] == "waiting"
    assert document["goodput_ratio"] is None
    assert document["gpu_hours"]["allocated"] is None
    assert not Path("tracker.db").exists()


def test_json_is_one_document_on_standard_output(call: Callable[..., Result]) -> None:
    """Nothing else stands there."""
    Path("run.toml").write_text('[run]\nname = "naïve \\u202e\\u0007"\n')
    for command in ("status", "ledger"):
        done = call(command, "--json")

        assert json.loads(done.stdout)["run"] == "naïve \u202e\u0007"
        assert done.stdout.isascii()
        assert done.stderr == ""


def test_hostile_text_reaches_no_terminal(call: Callable[..., Result]) -> None:
    """Escape sequences and reordering marks of a log's or config's words are shown as question marks."""
    Path("run.toml").write_text('[run]\nname = "a\\u001b]0;b\\u0007\\u202ec"\n')
    page = call("status").stdout

    assert "a?]0;b??c" in page


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    """`tracker ... | head -1` ends quietly."""
    (tmp_path / "run.toml").write_text(MINIMAL)
    code = f"{sys.executable} -c 'from tracker.cli import main; main()' status | head -c 1"
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)

    assert done.stderr == ""


@pytest.mark.slow
def test_no_color_and_pipes_get_plain_text(tmp_path: Path) -> None:
    """Aligned columns, no escape sequence, whatever FORCE_COLOR-like things stand around."""
    (tmp_path / "run.toml").write_text(MINIMAL)
    for command in ("status", "ledger"):
        done = process(command, cwd=tmp_path, NO_COLOR="1")

        assert done.returncode == 0
        assert "\x1b" not in done.stdout

"""A command may hang, babble, be missing or leave children: nobody waits for it, nothing stays behind."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from tracker.commands import Answer, Command


def run(*words: str, timeout_s: float = 10.0, limit_bytes: int = 1 << 20) -> Answer:
    command = Command(words, timeout_s=timeout_s, limit_bytes=limit_bytes)
    command.start()
    answer = command.take(wait_s=20)
    assert answer is not None
    return answer


def python(code: str, **options: float) -> Answer:
    return run(sys.executable, "-c", code, **options)  # type: ignore[arg-type]


def test_what_it_prints_is_the_answer() -> None:
    """Any bytes, and what it says on standard error is not part of it."""
    answer = python(
        "import sys; sys.stdout.buffer.write(bytes(range(256)) * 1000); print('x', file=sys.stderr)"
    )

    assert answer == Answer(output=bytes(range(256)) * 1000)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        pytest.param("import sys; print('partial'); sys.exit('slurmdbd is down')",
                     "ended with status 1: slurmdbd is down", id="failed-with-words"),
        pytest.param("raise SystemExit(3)", "ended with status 3: it said nothing", id="failed-silently"),
        pytest.param(
            "import os; os.kill(os.getpid(), 9)", "ended with status -9: it said nothing", id="killed"
        ),
        pytest.param("import sys\nfor _ in range(4000): sys.stdout.write('y' * 1000)",
                     "printed more than 1,048,576 bytes and was ended", id="talks-without-end"),
    ],
)  # fmt: skip
def test_an_answer_that_cannot_be_used_says_why(code: str, expected: str) -> None:
    """Half an answer is none."""
    assert python(code) == Answer(problem=expected)


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("import time; time.sleep(60)", id="hangs"),
        pytest.param("import os, time; os.close(1); time.sleep(60)", id="hangs-after-its-output-ended"),
        pytest.param(
            "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)", id="ignores-sigterm"
        ),
        pytest.param(
            "import os, time\nif os.fork() == 0: time.sleep(60)", id="a-child-keeps-the-output-open"
        ),
    ],
)
def test_a_command_that_hangs_is_ended(code: str) -> None:
    """After its time it is killed, whatever it thinks of that."""
    begun = time.monotonic()
    answer = python(code, timeout_s=0.5)

    assert answer == Answer(problem="took longer than 0.5 s and was ended")
    assert time.monotonic() - begun < 50  # it would sleep for sixty


def test_a_missing_command_is_told() -> None:
    """With the system's own words."""
    assert run("no-such-program-here").problem == "cannot be started: No such file or directory"
    assert (run("a\0b").problem or "").startswith("cannot be started: ")


def test_asking_never_waits_and_closing_ends_it(tmp_path: Path) -> None:
    """While it runs there is no answer; afterwards its children are gone as well."""
    note = tmp_path / "pid"
    command = Command(["sh", "-c", f"sleep 60 & echo $! > {note}; wait"], timeout_s=60)
    assert command.take() is None
    command.start()
    command.start()
    assert command.take() is None
    assert command.running  # so the call above did not wait for its end
    while not (note.exists() and note.read_text().strip()):
        time.sleep(0.01)
    command.close()

    assert not command.running
    child = int(note.read_text())
    for _ in range(200):
        try:
            state = Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            break
        if state == "Z":
            break
        time.sleep(0.01)
    else:
        pytest.fail("the child lives on")


def test_what_a_command_leaves_behind_is_ended() -> None:
    """A background child that closed its output does not outlive the command."""
    answer = run("sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!")
    child = int(answer.output)
    for _ in range(200):
        try:
            if Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return
            os.kill(child, 0)
        except OSError:
            return
        time.sleep(0.01)
    pytest.fail("the child lives on")


def test_it_can_run_again() -> None:
    """Each start is a new run; its answer is taken once."""
    command = Command(["echo", "hello"], timeout_s=10)
    for _ in range(2):
        command.start()
        assert command.take(wait_s=10) == Answer(output=b"hello\n")
        assert command.take() is None

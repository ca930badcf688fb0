"""Commands whose output is a document, such as sacct: run now and then, bounded in time and size.

Edge: starts processes. A command that hangs is ended with all its children, one that talks without end is
cut off, one that is missing is told; none of them holds up whoever asked.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tracker.leash import Leash

OUTPUT_BYTES: Final = 256 << 20
"""More than this is no answer: a year of sacct rows for 100,000 jobs is a tenth of it."""
_TOLD_BYTES: Final = 2_000
_BLOCK_BYTES: Final = 1 << 16
_GRACE_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a command said."""

    output: bytes = b""
    problem: str | None = None
    """Why there is no output to use, in a sentence; None if there is."""


class Command:
    """One command, run again and again, at most one at a time."""

    def __init__(self, words: Sequence[str], *, timeout_s: float, limit_bytes: int = OUTPUT_BYTES) -> None:
        self._words = tuple(words)
        self._timeout_s = timeout_s
        self._limit_bytes = limit_bytes
        self._run: _Run | None = None

    @property
    def running(self) -> bool:
        """Tell whether it runs now."""
        return self._run is not None

    def start(self) -> None:
        """Start it, unless it runs."""
        if self._run is None:
            self._run = _Run(self._words, self._timeout_s, self._limit_bytes)

    def take(self, *, wait_s: float = 0.0) -> Answer | None:
        """Return what it said once it has ended, once; None while it runs or when it was not started."""
        run = self._run
        if run is None:
            return None
        run.thread.join(wait_s)
        if run.thread.is_alive():
            return None
        self._run = None
        return run.answer

    def close(self) -> None:
        """End it and its children."""
        if self._run is not None:
            self._run.end()
            self._run.thread.join(_GRACE_S)
            self._run = None


class _Run:
    """One run, watched by a thread of its own."""

    def __init__(self, words: tuple[str, ...], timeout_s: float, limit_bytes: int) -> None:
        self.answer = Answer(problem="was not started")
        self._words = words
        self._timeout_s = timeout_s
        self._limit_bytes = limit_bytes
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False
        self._late = False
        self._mutex = threading.Lock()
        self.thread = threading.Thread(target=self._watch, name=f"command {words[0]}", daemon=True)
        self.thread.start()

    def end(self) -> None:
        """Kill the whole process group."""
        with self._mutex:
            self._ended = True
            process = self._process
            # Trap: once it was waited for, its number may belong to somebody else.
            if process is not None and process.returncode is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)

    def _watch(self) -> None:
        try:
            self.answer = self._ask()
        except OSError as error:
            self.answer = Answer(problem=f"cannot be started: {error.strerror or error}")
        except ValueError as error:  # a NUL in its words
            self.answer = Answer(problem=f"cannot be started: {error}")

    def _ask(self) -> Answer:
        with self._mutex:
            if self._ended:
                return Answer(problem="was ended")
            leash = Leash()
            try:
                process = subprocess.Popen(
                    self._words,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                    bufsize=0,
                    pass_fds=leash.fds,
                )
            except BaseException:
                leash.let_go()
                raise
            leash.hold(process)
            self._process = process
        assert process.stdout is not None
        assert process.stderr is not None
        told = _Tail(process.stderr.fileno())
        timer = threading.Timer(self._timeout_s, self._give_up)
        timer.daemon = True
        timer.start()
        blocks: list[bytes] = []
        size = 0
        try:
            while block := os.read(process.stdout.fileno(), _BLOCK_BYTES):
                blocks.append(block)
                size += len(block)
                if size > self._limit_bytes:
                    self.end()
                    break
            self._reap(process)
        finally:
            timer.cancel()
            told.join()
            process.stdout.close()
            process.stderr.close()
            leash.let_go()
        if size > self._limit_bytes:
            return Answer(problem=f"printed more than {self._limit_bytes:,} bytes and was ended")
        if self._late:
            return Answer(problem=f"took longer than {self._timeout_s:g} s and was ended")
        if process.returncode != 0:
            return Answer(problem=f"ended with status {process.returncode}: {told.text or 'it said nothing'}")
        return Answer(output=b"".join(blocks))

    def _reap(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for its end, which may come after that of its output; then end what it left behind."""
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        self.end()  # its number is still its own: it was not waited for yet
        with self._mutex:
            process.wait()

    def _give_up(self) -> None:
        self._late = True
        self.end()


class _Tail:
    """The last words on standard error, read so that the command never waits for us."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._kept = b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while block := os.read(self._fd, _BLOCK_BYTES):
                self._kept = (self._kept + block)[-_TOLD_BYTES:]

    def join(self) -> None:
        """Wait for its end."""
        self._thread.join(_GRACE_S)

    @property
    def text(self) -> str:
        """Return the words as one line."""
        return " ".join(self._kept.decode("utf-8", "replace").split())

"""Documents: files and commands that are read whole, again whenever they changed.

Edge: reads files, runs commands. A document's rows are replaced by what it says now; what a scheduler once
said of an allocation stays when its list slides on.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tracker.commands import Command
from tracker.core.records import Json
from tracker.core.segments import Segmenter
from tracker.follow.glob import Pattern, Scan, reason
from tracker.follow.source import Unreadable, open_file, source_of
from tracker.ingest.pending import Pending
from tracker.ingest.plan import Plan
from tracker.ingest.take import take
from tracker.interfaces import Collector
from tracker.store import NewStream, StoredStream

LARGEST_BYTES: Final = 256 << 20
_BLOCK_BYTES: Final = 1 << 20
_FRESH_US: Final = 2_000_000
"""A file changed so recently may change again within the resolution of its time stamp."""
_IDENTITY_BYTES: Final = 256


@dataclass(slots=True)
class _State:
    """A document as it was last read."""

    stream_id: int | None = None
    digest: str = ""
    stamp: tuple[int, int] | None = None
    """Size and modification time (ns) at which it needs no second look; None: look again."""
    inputs: str = ""
    useless: str = ""
    """Why none of its lines could be used; empty where one could, or where it has none."""


@dataclass(slots=True)
class _Asked:
    """A command source."""

    plan: Plan
    command: Command
    due_s: float = 0.0
    problem: str | None = None
    answered: bool = False


class Documents:
    """All documents. `look` reads what changed into the pending batches."""

    def __init__(
        self,
        plans: Iterable[Plan],
        by_name: dict[str, Collector],
        pending: Pending,
        *,
        root: Path,
        stored: Iterable[StoredStream],
        skip: Collection[Path] = (),
    ) -> None:
        self._pending = pending
        self._root = root
        self._states: dict[str, _State] = {}
        self._adopted: dict[str, tuple[Plan, Collector]] = {}
        self._patterns: list[tuple[Plan, Collector, Pattern]] = []
        self._asked: list[_Asked] = []
        self.problems: dict[str, str] = {}
        """Path to reason, as of the last look."""
        self.files: dict[int, int] = {}
        """Files found, by index of the source."""
        self.read_bytes = 0
        all_plans = list(plans)
        for plan in all_plans:
            if plan.source.command is not None and plan.collector is not None:
                command = Command(plan.source.command, timeout_s=plan.source.timeout_s)
                self._asked.append(_Asked(plan, command))
            elif plan.source.pattern is not None and not plan.followed:
                assert plan.collector is not None
                pattern = Pattern(plan.source.pattern, root, rotated=False, skip=skip)
                self._patterns.append((plan, plan.collector, pattern))
        for stream in stored:
            if stream.kind not in ("document", "scheduler"):
                continue
            position = stream.position
            key = str(position.get("path", ""))
            self._states[key] = _State(
                stream_id=stream.stream_id,
                digest=str(position.get("digest", "")),
                inputs=str(stream.evidence.get("inputs", "")),
            )
            collector = by_name.get(stream.collector or "")
            plan_there = all_plans[stream.source] if stream.source < len(all_plans) else None
            if plan_there is not None and collector is not None and plan_there.collector is None:
                self._adopted[key] = (plan_there, collector)

    def adopt(self, plan: Plan, collector: Collector, path: str) -> None:
        """Read a file of an `auto` source that was recognised as a document."""
        self._adopted[path] = (plan, collector)

    @property
    def busy(self) -> bool:
        """Whether a command runs now."""
        return any(asked.command.running for asked in self._asked)

    def look(self, *, now_us: int, now_s: float, wait: bool = False) -> None:
        """Read every document that changed, and every command that is due; with `wait`, see them end."""
        self.problems = {}
        self.files = {}
        for plan, collector, pattern in self._patterns:
            scan = Scan()
            found = list(pattern.files(scan))
            self.files[plan.index] = len(found)
            for path, why in scan.problems.items():
                self.problems[self._shown(path)] = why
            for path, status in found:
                self._file(plan, collector, path, status, now_us)
        for shown, (plan, collector) in self._adopted.items():
            path = os.fsencode(self._root / shown)
            try:
                status = os.stat(path)
            except OSError:
                continue  # gone; what it said stays
            self._file(plan, collector, path, status, now_us)
        for asked in self._asked:
            self._ask(asked, now_us=now_us, now_s=now_s, wait=wait)

    def command_problem(self, plan: Plan) -> tuple[bool, str | None]:
        """Return whether a command source has ever answered, and what its last problem was."""
        for asked in self._asked:
            if asked.plan is plan:
                return asked.answered and asked.problem is None, asked.problem
        return False, None

    def close(self) -> None:
        """End running commands."""
        for asked in self._asked:
            asked.command.close()

    # -- one document --------------------------------------------------------------------------------

    def _ask(self, asked: _Asked, *, now_us: int, now_s: float, wait: bool) -> None:
        if now_s >= asked.due_s and not asked.command.running:
            asked.due_s = now_s + asked.plan.source.interval_s
            asked.command.start()
        answer = asked.command.take(wait_s=asked.plan.source.timeout_s + 5 if wait else 0)
        if answer is None:
            return
        asked.problem = answer.problem
        asked.answered = True
        if answer.problem is None and asked.plan.collector is not None:
            words = asked.plan.source.command or ("",)
            key = f"command:{asked.plan.source.shown or ' '.join(words)}"
            self._document(
                asked.plan,
                asked.plan.collector,
                key,
                name=os.path.basename(words[0]),
                data=answer.output,
                written_us=now_us,
                now_us=now_us,
            )
            useless = self._states[key].useless
            asked.problem = f"its answer holds nothing that can be used: {useless}" if useless else None

    def _file(
        self, plan: Plan, collector: Collector, path: bytes, status: os.stat_result, now_us: int
    ) -> None:
        shown = self._shown(path)
        state = self._states.setdefault(shown, _State())
        stamp = (status.st_size, status.st_mtime_ns)
        if state.stamp == stamp and state.inputs == plan.inputs(collector):
            return
        try:
            data = _whole(path)
        except OSError as error:
            self.problems[shown] = reason(error)
            return
        except Unreadable as error:
            self.problems[shown] = str(error)
            return
        modified_us = status.st_mtime_ns // 1000
        settled = not 0 <= now_us - modified_us < _FRESH_US
        self._document(
            plan,
            collector,
            shown,
            name=os.path.basename(path).decode("utf-8", "replace"),
            data=data,
            written_us=min(modified_us, now_us),
            now_us=now_us,
        )
        state.stamp = stamp if settled else None

    def _document(
        self,
        plan: Plan,
        collector: Collector,
        key: str,
        *,
        name: str,
        data: bytes,
        written_us: int,
        now_us: int,
    ) -> None:
        """Put what a document says now in the place of what it said before."""
        state = self._states.setdefault(key, _State())
        digest = hashlib.blake2b(data, digest_size=16).hexdigest()
        inputs = plan.inputs(collector)
        if (state.digest, state.inputs) == (digest, inputs):
            return
        identity = hashlib.blake2b(data[:_IDENTITY_BYTES], digest_size=16).hexdigest()
        new = None
        if state.stream_id is None:
            state.stream_id = self._pending.new_id()
            new = NewStream(
                source=plan.index,
                kind=_kind(collector),
                identity=identity,
                file_name=name,
                written_us=written_us,
                seen_us=now_us,
            )
        position: dict[str, Json] = {"path": key, "digest": digest}
        segmenter = Segmenter()
        batch = self._pending.batch(
            state.stream_id, position=position, offset=len(data), context={}, segmenter=segmenter, new=new
        )
        self._pending.restart(batch, segmenter)
        batch.kind = _kind(collector)
        batch.collector, batch.parser_version = collector.name, collector.version
        batch.evidence = {"inputs": inputs}
        batch.identity, batch.file_name, batch.source = identity, name, plan.index
        before = batch.rows
        refused = len(batch.rejects)
        take(collector, data, plan.context(name), segmenter, batch)
        refusals = batch.rejects[refused:]
        state.useless = refusals[0].reason if refusals and batch.rows - before == len(refusals) else ""
        batch.lines = data.count(b"\n")
        self._pending.added(batch.rows - before)
        self.read_bytes += len(data)
        state.digest, state.inputs = digest, inputs

    def _shown(self, path: bytes) -> str:
        below = os.fsencode(self._root) + b"/"
        return path.removeprefix(below).decode("utf-8", "backslashreplace")


def _kind(collector: Collector) -> Literal["document", "scheduler"]:
    return "scheduler" if collector.kind == "scheduler" else "document"


def _whole(path: bytes) -> bytes:
    """Return a file's content, unpacked. Raises OSError, Unreadable."""
    fd, _ = open_file(path)
    try:
        source = source_of(fd)
        blocks = []
        size = 0
        while block := source.read(size, _BLOCK_BYTES):
            blocks.append(block)
            size += len(block)
            if size > LARGEST_BYTES:
                raise Unreadable(f"is larger than {LARGEST_BYTES >> 20} MiB, too large to be read whole")
        return b"".join(blocks)
    finally:
        os.close(fd)

"""What is wrong with a set-up: config, sources, clock, store, port, reports; each with what to do.

Edge: looks at files, the disk, the port and the store, and starts the commands of sources once.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tracker import trial
from tracker.commands import Command
from tracker.config import Config, Source
from tracker.core.book import Book
from tracker.core.clocks import ahead
from tracker.core.errors import TrackerError, shown
from tracker.core.silent import silent
from tracker.core.summary import snapshot
from tracker.follow.glob import Pattern, Scan, unrotated
from tracker.interfaces import Clock
from tracker.marks import StoredMarks
from tracker.serve import ListenError, Response, Server
from tracker.store import Reader, own_files, running, stored_version
from tracker.store import filesystem as disks
from tracker.store import health as store_health

FILES_TRIED: Final = 20
"""Files of one source whose format is looked at, the newest first."""
LITTLE_SPACE: Final = 1 << 30
_FUTURE_US: Final = 300 * 1_000_000
_EARLIEST_US: Final = 1_767_225_600_000_000  # 2026: before that this program did not exist

Recognise = Callable[[bytes], tuple[str | None, str]]
"""(head of a file) -> (collector's name or None, why)."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    level: Literal["ok", "note", "wrong"]
    about: str
    """"config", "source 1", "store" ..."""
    text: str


def look(config: Config, *, clock: Clock, recognise: Recognise) -> Iterator[Finding]:
    """Yield what is found, in the order of the data's way."""
    yield from _config(config)
    yield from _clock(clock)
    if not config.sources:
        yield Finding("wrong", "sources", 'no [[source]]: nothing is read. Add one: path = "logs/*.log"')
    looked_at: set[tuple[int, str]] = set()
    for source in config.sources:
        about = f"source {source.number}"
        found = (
            _command(source)
            if source.command is not None
            else _files(source, config, clock, recognise, looked_at)
        )
        yield from (Finding(level, about, text) for level, text in found)
    yield from _store(config, clock, looked_at)
    yield from _port(config, clock)
    yield from _web(config, clock)
    yield from _out(config, clock)


Said = Iterator[tuple[Literal["ok", "note", "wrong"], str]]


def _config(config: Config) -> Iterator[Finding]:
    yield Finding("ok", "config", f"{config.path} is valid")
    for warning in config.warnings:
        yield Finding("note", "config", warning)
    settings = config.settings
    if settings.model.active_params is None:
        yield Finding("note", "config", "no MFU: set model.active_params")
    if settings.hardware.peak_flop_per_s is None:
        yield Finding("note", "config", "no MFU: set hardware.gpu or hardware.peak_tflops")
    if settings.plan is None:
        yield Finding("note", "config", "no comparison with a plan: there is no [plan]")


def _clock(clock: Clock) -> Iterator[Finding]:
    now_us = clock.now_us()
    if now_us < _EARLIEST_US:
        yield Finding(
            "wrong", "clock", "this machine's clock stands before 2026: set it, or start its time service"
        )
    else:
        yield Finding("ok", "clock", "plausible")


def _command(source: Source) -> Said:
    assert source.command is not None
    program = source.command[0]
    if shutil.which(program) is None:
        yield "wrong", f"{shown(program)}: no such program in PATH. Install it, or give its full path"
        return
    command = Command(source.command, timeout_s=source.timeout_s)
    command.start()
    answer = command.take(wait_s=source.timeout_s + 5)
    if answer is None:
        yield "wrong", f"{source.shown}: did not end within {source.timeout_s:g} s"
    elif answer.problem is not None:
        yield "wrong", f"{source.shown}: {answer.problem}"
    else:
        yield "ok", f"{source.shown}: {len(answer.output):,} bytes"


def _files(
    source: Source, config: Config, clock: Clock, recognise: Recognise, looked_at: set[tuple[int, str]]
) -> Said:
    assert source.pattern is not None
    scan = Scan()
    skip = (config.path, *own_files(config.store))
    found = list(Pattern(source.pattern, config.folder, skip=skip).files(scan))
    for path, reason in sorted(scan.problems.items()):
        yield "wrong", f"{os.fsdecode(path)}: {reason}"
    if not found:
        yield "wrong", f"{source.shown}: no file there yet. Looked from {config.folder}"
        return
    found.sort(key=lambda item: item[1].st_mtime_ns, reverse=True)
    size = sum(status.st_size for _, status in found)
    yield "ok", f"{source.shown}: {len(found):,} files, {size:,} bytes"
    if found[0][1].st_mtime_ns // 1000 > clock.now_us() + _FUTURE_US:
        yield "note", f"{os.fsdecode(found[0][0])} was changed in the future: two clocks disagree"
    newest = [Path(os.fsdecode(path)) for path, _ in found[:FILES_TRIED]]
    looked_at |= {(source.number, _plain(path.name)) for path in newest}
    yield from _formats(source, newest, recognise)


def _formats(source: Source, paths: list[Path], recognise: Recognise) -> Said:
    kinds: dict[str, list[str]] = {}
    for path in paths:
        try:
            head = trial.head_of(path)
        except trial.CannotRead as error:
            yield "wrong", str(error)
            continue
        if not head:
            kinds.setdefault("empty so far", []).append(path.name)
        elif source.collector != "auto":
            kinds.setdefault(f"read as {source.collector}, as the config says", []).append(path.name)
        else:
            name, why = recognise(head)
            if name is None:
                yield "wrong", f"{path.name}: {why}"
            else:
                kinds.setdefault(why, []).append(path.name)
    for why, names in kinds.items():
        yield "ok", f"{_listed(names)}: {why}"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}"


def _plain(name: str) -> str:
    """Return a file's name without what rotation added, as the store has it."""
    return unrotated(os.fsencode(name)).decode("utf-8", "replace")


def _store(config: Config, clock: Clock, looked_at: set[tuple[int, str]]) -> Iterator[Finding]:
    place, about = config.store, "store"
    try:
        version = stored_version(place)
    except TrackerError as error:
        yield Finding("wrong", about, str(error))
        return
    folder = place.parent
    if not os.access(folder, os.W_OK) or (place.exists() and not os.access(place, os.W_OK)):
        yield Finding(
            "wrong", about, f"{place}: this user may not write it. Change the owner, or [store] path"
        )
    full = disks.no_room(place)
    if full:
        yield Finding("wrong", about, full)
    else:
        free = disks.free_bytes(folder)
        level: Literal["ok", "note"] = "note" if free < LITTLE_SPACE else "ok"
        yield Finding(level, about, f"{free / 1e9:.1f} GB free in {folder}")
    disk = disks.file_system(place)
    if disk.shared:
        yield Finding(
            "note", about,
            f"{place} lies on {disk.kind}, which other hosts may have mounted: a slower journal is used. "
            "A local disk is better",
        )  # fmt: skip
    if not version:
        yield Finding("ok", about, f"{place} does not exist yet: `tracker ingest` or `tracker run` makes it")
        return
    yield from _stored(config, clock, looked_at)


def _stored(config: Config, clock: Clock, looked_at: set[tuple[int, str]]) -> Iterator[Finding]:
    place = config.store
    about = "store"
    owner = running(place)
    if owner is not None:
        yield Finding("ok", about, f"a sidecar works on it: {owner}")
    try:
        faults = store_health.check(place, quick=True)
        for fault in faults:
            yield Finding("wrong", about, fault)
        if not faults:
            info = store_health.info(place)
            rows = info.rows.get("reading", 0)
            yield Finding("ok", about, f"{place}: whole, {info.file_bytes:,} bytes, {rows:,} readings")
        with Reader(place) as reader:
            yield from _dated(reader, clock.now_us())
            yield from _silent(reader, config, clock.now_us())
            yield from _held(reader, config, looked_at)
    except TrackerError as error:
        yield Finding("wrong", about, str(error))


def _dated(reader: Reader, now_us: int) -> Iterator[Finding]:
    for found in ahead(reader.streams(), now_us):
        yield Finding("wrong", "clock", found.sentence)


def _silent(reader: Reader, config: Config, now_us: int) -> Iterator[Finding]:
    with reader.snapshot():
        run = snapshot(
            Book(config.settings, marks=StoredMarks(reader)), reader, as_of_us=config.moment_us(now_us)
        )
    for sentence in silent(run.attempts, run.as_of_us):
        yield Finding("note", "run", sentence)


def _held(reader: Reader, config: Config, looked_at: set[tuple[int, str]]) -> Iterator[Finding]:
    guessing = {source.number for source in config.sources if source.collector == "auto"}
    copies: dict[int, list[str]] = {}
    reports = reader.reports()
    read = {(report.source, report.file_name) for report in reports if report.collector is not None}
    for report in reports:
        number = report.source + 1
        if report.kind == "copy":
            if number <= len(config.sources) and (report.source, report.file_name) not in read:
                copies.setdefault(number, []).append(report.file_name)
        elif report.collector is None and number in guessing and (number, report.file_name) not in looked_at:
            why = report.evidence.get("why") or "not recognised yet"
            yield Finding("wrong", f"source {number}", f"{report.file_name}: {why}")
    for number, names in copies.items():
        yield Finding(
            "ok",
            f"source {number}",
            f"{_listed(names)}: a copy of what is read from another file, not read twice",
        )
    counts = reader.reject_counts()
    if counts:
        parts = ", ".join(f"{count:,} {reason}" for reason, count in counts.items())
        yield Finding("note", "rejects", f"{sum(counts.values()):,} lines could not be used: {parts}")
        for reject in reader.rejected(limit=5):
            line = reject.line[:120].decode("utf-8", "replace")
            yield Finding("note", "rejects", f"{reject.reason}: {line}")


def _port(config: Config, clock: Clock) -> Iterator[Finding]:
    listen = config.serve.listen
    try:
        probe = Server(listen, lambda request: Response(body=b""), clock=clock)
    except ListenError as error:
        try:
            ours = running(config.store) is not None
        except OSError:
            ours = False
        if ours:
            yield Finding("ok", "port", f"{listen}: in use, and a sidecar of this store runs")
        else:
            yield Finding("wrong", "port", str(error))
        return
    probe.stop()
    yield Finding("ok", "port", f"{listen} is free")


def _web(config: Config, clock: Clock) -> Iterator[Finding]:
    path, listen = config.serve.web_config, config.serve.listen
    if path is None:
        return
    from tracker import webconfig

    try:
        found = webconfig.load(path)
    except webconfig.WebConfigError as error:
        yield Finding("wrong", "web config", str(error))
        return
    tls, logins = ("TLS" if found.tls else "no TLS"), f"{len(found.users)} logins"
    yield Finding("ok", "web config", f"{path} is valid: {tls}, {logins}")
    exposure = listen.exposure(tls=found.tls is not None, login=bool(found.users))
    if exposure:
        yield Finding("note", "web config", f"serve.listen = {exposure}")
    dates = webconfig.validity(found.tls.cert_file) if found.tls is not None else None
    said = dates.said(clock.now_us()) if dates is not None else None
    if said is not None:
        yield Finding(said[0], "web config", said[1])
    for private in (path, *((found.tls.key_file,) if found.tls is not None else ())):
        if private.stat().st_mode & stat.S_IROTH:
            yield Finding("note", "web config", f"{private} can be read by everybody here: chmod o-r it")


def _out(config: Config, clock: Clock) -> Iterator[Finding]:
    """Look at what leaves the tracker by itself."""
    if config.report is None and not config.webhooks:
        return
    from tracker.post import checkup

    if config.report is not None:
        from tracker.rendering import trouble

        wrong = trouble()
        said = f"{wrong}. Until then reports and mails go out without it" if wrong else "a PDF can be made"
        yield Finding("wrong" if wrong else "ok", "report", said)
    for level, about, text in checkup.look(config, clock=clock):
        yield Finding(level, about, text)

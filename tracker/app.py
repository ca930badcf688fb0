"""The composition root: a config file becomes real edges, and the parts that need each other meet.

Edge. Commands call this; nothing here is imported by the parts.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tracker import config as configuration
from tracker.config import Config, ConfigError
from tracker.core.book import Book
from tracker.core.corrections import Correction
from tracker.core.errors import InvalidValue
from tracker.core.facts import Facts, Stream
from tracker.core.records import Event, Reading, SchedulerRow
from tracker.core.snapshot import Snapshot
from tracker.core.summary import snapshot
from tracker.interfaces import Clock, Collector, Context
from tracker.marks import StoredMarks
from tracker.store import Reader, stored_version
from tracker.store.filesystem import no_room
from tracker.store.lock import WAIT_S

if TYPE_CHECKING:
    from tracker.clock import SystemClock
    from tracker.config import Listen
    from tracker.core.daily import Daily
    from tracker.core.forecast.backtest import Replay
    from tracker.core.forecast.history import History
    from tracker.doctor import Finding
    from tracker.forecasting import Asked
    from tracker.gate import Gate
    from tracker.ingest import IngestHealth, Progress
    from tracker.ingest.plan import Detect
    from tracker.pages import HtmlPages
    from tracker.parts import Edges
    from tracker.serve import Server
    from tracker.sidecar import Sidecar
    from tracker.trial import Trial
    from tracker.webconfig import WebConfig
    from tracker.work import OpenWork
    from tracker.workings import Workings


def collectors() -> Mapping[str, Collector]:
    """Return every collector by name, each loaded when it is asked for: all of them take a moment."""
    from collectors import KNOWN

    return KNOWN


def load_config(path: Path) -> Config:
    """Read a config file; ConfigError names every fault."""
    return configuration.load(path, collectors)


def check(path: Path) -> list[Finding]:
    """Look at everything that a config file names; a fault of the file itself is a finding too."""
    from collectors import detect
    from tracker import doctor
    from tracker.clock import SystemClock

    try:
        config = load_config(path)
    except ConfigError as error:
        return [doctor.Finding("wrong", "config", problem) for problem in error.problems]

    def recognise(head: bytes) -> tuple[str | None, str]:
        detection = detect(head, collectors().values())
        return (detection.collector.name if detection.collector else None), detection.text

    return list(doctor.look(config, clock=SystemClock(), recognise=recognise))


LOCK_WAIT_S: Final = 1.0
"""How long the sidecar waits for a store that another process is writing: other runs wait with it."""


def open_work(config: Config, clock: Clock, *, wait_s: float = WAIT_S) -> OpenWork:
    """Open the store of a config with all that works on it; the caller closes it."""
    from tracker.work import OpenWork

    return OpenWork(config, clock=clock, formats=_formats, wait_s=wait_s)


def _formats() -> tuple[Mapping[str, Collector], Detect]:
    from collectors import detect

    known = collectors()
    return known, lambda head: detect(head, known.values())


def ingest_once(
    config: Config, *, final: bool = False, told: Callable[[int, int], None] | None = None
) -> IngestHealth:
    """Read all sources of a config to their end; `told` gets the bytes done, and those known to be left."""
    from tracker.clock import SystemClock

    if not config.sources:
        raise NoSources(config.path)
    clock = SystemClock()

    def progress(so_far: Progress) -> None:
        if told is not None:
            told(so_far.read_bytes, so_far.lag_bytes)

    with open_work(config, clock) as work:
        work.read_all(final=final, told=progress)
        work.snapshot(
            as_of_us=config.moment_us(clock.now_us())
        )  # leaves marks behind: the next question is answered at once
        return work.health()


def run_sidecar(
    places: Sequence[str], *, listen: Listen | None = None, web_config: Path | None = None
) -> None:
    """Follow, serve and schedule until SIGTERM or SIGINT: every run that the places mean.

    A place is a config file, a folder of them or a pattern; SIGHUP reads them again. `listen` and
    `web_config`, where given, count instead of what the configs say.
    """
    import signal

    from tracker import __version__
    from tracker.answers import Answers
    from tracker.clock import SystemClock
    from tracker.configs import Configs, where_to_serve
    from tracker.discovery import FileSd
    from tracker.exporter import Exporter
    from tracker.gate import Gate
    from tracker.logsetup import set_up
    from tracker.manners import stand_back
    from tracker.pages import HtmlPages
    from tracker.serve import Server
    from tracker.sidecar import Sidecar

    configs = Configs(places, load_to_follow)
    configs.load()
    serve = where_to_serve(configs.loaded, listen=listen, web_config=web_config)
    set_up()
    limits = [config.limits for config in configs.loaded]
    stand_back(nice=max(one.nice for one in limits), oom_score_adj=max(one.oom_score_adj for one in limits))
    _allow_handles()
    clock, gate = SystemClock(), Gate()
    clock.wait_for_signals()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: clock.stop())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something to read again
    web = _web_config(serve.web_config, clock)
    exporter = Exporter(
        version=__version__, clock=clock, workings=lambda: _workings(sidecar, server, web)
    )  # asked at a scrape, when all of them are there
    told = {one.serve.file_sd: one.serve.announce for one in configs.loaded if one.serve.file_sd is not None}
    pages = HtmlPages(__version__)
    answers = Answers(exporter, pages, clock=clock)
    server = Server(serve.listen, answers, clock=clock, security=web)
    sidecar = Sidecar(
        configs,
        clock=clock,
        gate=gate,
        answers=answers,
        server=server,
        edges=lambda config: edges_of(config, clock=clock, gate=gate, pages=pages),
        announcers=[FileSd(path, announce=announce) for path, announce in told.items()],
    )
    signal.signal(signal.SIGHUP, lambda *_: sidecar.reload())
    sidecar.run()


def _allow_handles() -> None:
    """Let the process open as many files as it may: each run takes some ten."""
    import contextlib
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 1 << 16), most))


def _web_config(path: Path | None, clock: Clock) -> WebConfig | None:
    if path is None:
        return None
    from tracker.webconfig import WebConfig

    return WebConfig(path, clock=clock)


def _workings(sidecar: Sidecar, server: Server, web: WebConfig | None) -> Workings:
    from tracker.workings import Workings

    answers, refused = server.counts()
    return Workings(
        runs=sidecar.runs,
        configs_ok=sidecar.configs_ok,
        configs_read_us=sidecar.configs_read_us,
        web_config_ok=not web.problem if web is not None else None,
        web_config_read_us=web.loaded_us if web is not None else None,
        certificate_end_us=web.certificate_end_us if web is not None else None,
        answers=answers,
        refused=refused,
        logins_failed=web.logins_failed if web is not None else {},
    )


def edges_of(config: Config, *, clock: SystemClock, gate: Gate, pages: HtmlPages) -> Edges:
    """Return what one run of the sidecar needs of the world; a part that goes on beside it is added here."""
    from tracker.beside import Past
    from tracker.outlook import Outlook
    from tracker.pages import About
    from tracker.parts import Edges
    from tracker.post.errands import Errands

    past, report = Past(config.path, clock=clock, gate=gate), config.report
    pages.tell(
        config.settings.run,
        About(
            zone=config.zone if report is None else report.zone,
            reports=None if report is None else report.directory,
            past=past,
        ),
    )
    sends = config.report is not None or bool(config.webhooks)
    return Edges(
        open_work=lambda: open_work(config, clock, wait_s=LOCK_WAIT_S),
        outlook=Outlook(config.path, clock=clock),
        parts=(*((Errands(config, clock=clock, gate=gate),) if sends else ()), past),
    )


def load_to_follow(path: Path) -> Config:
    """Read a config file that must name something to read."""
    config = load_config(path)
    if not config.sources:
        raise NoSources(path)
    return config


class NoSources(ConfigError):
    """A config without a [[source]] has nothing to read."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            str(path), ['no [[source]], so there is nothing to read. Add one: path = "logs/*.log"']
        )


def try_file(
    path: Path, *, name: str | None, zone: dt.tzinfo, told: Callable[[int], None] | None = None
) -> Trial:
    """Read one file by the collector of that name, or by the one that recognises it."""
    from collectors import detect, named
    from tracker import trial

    head = trial.head_of(path)
    detection = detect(head, collectors().values())
    chosen = named(name, collectors().values()) if name is not None else detection.collector
    evidence = detection.text if name is None else f"you named it (on its own: {detection.text})"
    if chosen is None:
        return trial.Trial(collector=None, evidence=evidence)
    context = Context(zone=zone, file_name=path.name)
    return trial.run(path, chosen, context=context, evidence=evidence, told=told)


def snapshot_now(config: Config, *, as_of_us: int) -> Snapshot:
    """Return the run as the store has it; a store that is not there yet is a run without facts."""
    if not stored_version(config.store):
        return snapshot(Book(config.settings), NoFacts(), as_of_us=as_of_us)
    with Reader(config.store) as reader:
        return snapshot_of(Book(config.settings, marks=StoredMarks(reader)), reader, as_of_us=as_of_us)


def forecast_now(config: Config, *, as_of_us: int, since_us: int | None = None) -> Asked:
    """Return the run with its forecast, told against that of an earlier moment where one is given."""
    from tracker import forecasting

    if not stored_version(config.store):
        return forecasting.ask(Book(config.settings), NoFacts(), as_of_us=as_of_us)
    return forecasting.ask_store(config, as_of_us=as_of_us, since_us=since_us)


def clocks_ahead(config: Config, *, now_us: int) -> list[str]:
    """Return a sentence for each source whose lines are dated after now."""
    from tracker.core.clocks import ahead

    if not stored_version(config.store):
        return []
    with Reader(config.store) as reader, reader.snapshot():
        return [found.sentence for found in ahead(reader.streams(), now_us)]


def store_full(config: Config) -> str:
    """Return a sentence where the store's disk is full, so that what follows is old; else nothing."""
    return no_room(config.store)


def daily_now(config: Config, *, as_of_us: int) -> Daily:
    """Return what the daily report of a run shows; a store that is not there yet is a run without facts."""
    from tracker import reporting

    if not stored_version(config.store):
        return reporting.daily_of(Book(config.settings), NoFacts(), as_of_us=as_of_us)
    return reporting.daily_of_store(config, as_of_us=as_of_us)


def forecast_judged(config: Config, *, until_us: int) -> History:
    """Return the kept forecasts, how each moved, and how right it was once the run is finished."""
    from tracker import forecasting
    from tracker.core.forecast.history import judged

    if not stored_version(config.store):
        return judged([], None)
    return forecasting.judged_history(config, until_us=until_us)


def forecast_backtest(config: Config, *, as_of_us: int, moments: int) -> Replay:
    """Replay a store; raises NoTruth where there is nothing to score against."""
    from tracker.core.forecast.backtest import NoTruth, backtest

    def summarise(book: Book, facts: Facts, at_us: int) -> Snapshot:
        return snapshot(book, facts, as_of_us=at_us)

    if not stored_version(config.store):
        raise NoTruth("there is no store yet: run `tracker ingest` first")
    with Reader(config.store) as reader, reader.snapshot():
        return backtest(config.settings, reader, summarise, as_of_us=as_of_us, moments=moments)


def snapshot_of(book: Book, reader: Reader, *, as_of_us: int) -> Snapshot:
    """Return the run as one committed state of an open store has it."""
    with reader.snapshot():
        rejects = sum(reader.reject_counts().values())
        return snapshot(book, reader, as_of_us=as_of_us, rejects=rejects)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a person says of an interruption; all None takes back what was said."""

    cause: str | None = None
    kind: str | None = None
    manual: bool | None = None
    note: str
    by: str


def correct_interruption(config: Config, number: int, said: Said, *, clock: Clock) -> Snapshot:
    """Keep a person's word on the interruption that has this number now; return the run as it then is.

    Raises InvalidValue for a number, cause or kind that there is not, and the errors of the store.
    """
    from tracker.store import Writer

    if not stored_version(config.store):
        raise NoInterruption(number, 0)
    now_us = config.moment_us(clock.now_us())  # of a run that is history: so that it counts
    with Reader(config.store) as reader:
        book = Book(config.settings, marks=StoredMarks(reader))
        before = snapshot_of(book, reader, as_of_us=now_us)
        stop = next((one for one in before.interruptions if one.number == number), None)
        if stop is None:
            raise NoInterruption(number, len(before.interruptions))
        correction = Correction(
            attempt=before.attempts[stop.attempt - 1].name,
            at_us=stop.at_us,
            made_us=now_us,
            by=said.by,
            note=said.note,
            cause=said.cause,
            kind=said.kind,
            manual=said.manual,
        )
        with Writer(config.store, durable=True) as writer:
            writer.add_correction(correction)
        return snapshot_of(book, reader, as_of_us=now_us)


class NoInterruption(InvalidValue):
    """A number that no interruption has."""

    def __init__(self, number: int, known: int) -> None:
        expected = f"1..{known}" if known else "an interruption, and there is none yet"
        super().__init__("ID", number, expected, "`tracker interruptions` lists them")


class NoFacts:
    """The facts of a store that does not exist."""

    def streams(self) -> Sequence[Stream]:
        """Return none."""
        return ()

    def scheduler_rows(self) -> Sequence[SchedulerRow]:
        """Return none."""
        return ()

    def readings(self, stream_id: int, *, start: int = 0, end: int | None = None) -> Iterator[Reading]:
        """Return none."""
        return iter(())

    def events(self, stream_id: int, *, start: int = 0, end: int | None = None) -> Iterator[Event]:
        """Return none."""
        return iter(())

    def corrections(self) -> Sequence[Correction]:
        """Return none."""
        return ()


_: type[Facts] = NoFacts

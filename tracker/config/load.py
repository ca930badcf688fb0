"""A TOML file read into a `Config`: relative paths resolved, times put in a zone, the peak looked up.

Edge: reads the config file, and nothing else.
"""

from __future__ import annotations

import datetime as dt
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tracker import smallfile
from tracker.config import check, keys
from tracker.config.check import Checked, ConfigError
from tracker.config.kinds import in_zone, plain_json, to_us
from tracker.config.model import Config, Limits, Mail, Report, Serve, Source, Webhook
from tracker.core.errors import TrackerError, nearest, shown
from tracker.core.hardware import Peak, lookup, peak_flop_per_s, peak_given
from tracker.core.plan import Plan, PlanFailures, PlannedConversion, PlanStage
from tracker.core.prices import PriceStep
from tracker.core.records import Json
from tracker.core.settings import Hardware, Model, Reservation, Settings, SourceSettings
from tracker.daily import DAYS, Schedule
from tracker.interfaces import Collector

LARGEST_FILE: Final = 1 << 20
_MAIL_PORTS: Final = {"starttls": 587, "implicit": 465, "none": 25}
_TOO_DEEP: Final = "not usable TOML: nested too deeply: brackets or tables in one another, hundreds of times"
_PLAN_ONLY: Final = ("experts", "experts_per_token")
Collectors = Mapping[str, Collector]


def load(path: Path, collectors: Callable[[], Collectors]) -> Config:
    """Read a config file. `collectors` gives the known ones by name, asked only if a source needs it.

    Raises ConfigError with every fault found.
    """
    return parse(_read(path), path=path, collectors=collectors)


def parse(text: str, *, path: Path, collectors: Callable[[], Collectors]) -> Config:
    """Return the config that a TOML text says, as if it stood in `path`."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(str(path), [f"not TOML: {error}"]) from None
    except RecursionError:
        raise ConfigError(str(path), [_TOO_DEEP]) from None
    except ValueError:  # Python reads whole numbers of up to 4,300 digits
        raise ConfigError(str(path), ["not usable TOML: a number in it has too many digits"]) from None
    try:
        return _Loader(document, path, collectors).config()
    except RecursionError:  # a.a.a ... is read without one
        raise ConfigError(str(path), [_TOO_DEEP]) from None


def _read(path: Path) -> str:
    try:
        body = smallfile.read(path, limit=LARGEST_FILE)
    except OSError as error:
        raise ConfigError(str(path), [f"cannot be read: {error.strerror or error}"]) from None
    if len(body) > LARGEST_FILE:
        raise ConfigError(str(path), [f"larger than {LARGEST_FILE} bytes: this is no config file"])
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise ConfigError(str(path), [f"not UTF-8 text (line {line}): save it as UTF-8"]) from None


class _Loader:
    """One pass over one document; collects problems and raises them together at the end."""

    def __init__(self, document: Mapping[str, Any], path: Path, collectors: Callable[[], Collectors]) -> None:
        self.document = document
        self.path = path
        self.folder = path.absolute().parent
        self.collectors = collectors
        self.problems: list[str] = []
        self.warnings: list[str] = []
        self.zone: dt.tzinfo = dt.UTC

    def config(self) -> Config:
        check.check_top(self.document, self.problems)
        run = self.one(keys.RUN)
        if "run" not in self.document:
            self.problems.append(
                'run.name: missing, expected a text. Write [run] and below it name = "my-run"'
            )
        self.zone = run.get("timezone", dt.UTC)
        model, hardware = self.one(keys.MODEL), self.one(keys.HARDWARE)
        peak = self.peak(hardware)
        plan = self.plan(model, hardware, peak)
        sources, source_settings = self.sources()
        reservation = self.one(keys.RESERVATION)
        ingest, store, serve = self.one(keys.INGEST), self.one(keys.STORE), self.one(keys.SERVE)
        report, webhooks = self.report(), self.webhooks()
        limits = self.one(keys.LIMITS)
        self.consider(run, reservation, serve)
        if self.problems:
            raise ConfigError(str(self.path), self.problems)
        settings = Settings(
            run=run["name"],
            billing=run.get("billing", "attempt"),
            model=Model(**{k: v for k, v in model.items() if k not in _PLAN_ONLY}),
            hardware=Hardware(
                gpu=hardware.get("gpu"),
                precision=hardware.get("precision", "bf16"),
                peak_flop_per_s=peak.value if peak else None,
                peak_source=peak.source.title if peak else "",
                gpus=hardware.get("gpus"),
            ),
            plan=plan,
            reservation=Reservation(
                start_us=self.us(reservation.get("start")),
                end_us=self.us(reservation.get("end")),
                gpus=reservation.get("gpus"),
            ),
            sources=source_settings,
        )
        return Config(
            path=self.path.absolute(),
            folder=self.folder,
            settings=settings,
            zone=self.zone,
            until_us=self.us(run.get("until")),
            sources=sources,
            poll_s=ingest.get("poll_s", 1.0),
            store=self.resolve(store.get("path", "tracker.db")),
            serve=Serve(**{
                **serve,
                "web_config": self.file(serve, "web_config"),
                "file_sd": self.file(serve, "file_sd"),
            }),
            limits=Limits(**limits),
            report=report,
            webhooks=webhooks,
            warnings=tuple(self.warnings),
        )

    def one(self, section: keys.Section) -> dict[str, Any]:
        checked = check.check_one(self.document, section, self.problems)
        return checked.values if checked is not None else {}

    def peak(self, hardware: Mapping[str, Any]) -> Peak | None:
        """Return the peak of the config or of the table; None without either."""
        precision = hardware.get("precision", "bf16")
        gpu, tflops = hardware.get("gpu"), hardware.get("peak_tflops")
        peak = None
        if gpu is not None:
            try:
                lookup(gpu)
                peak = peak_flop_per_s(gpu, precision) if tflops is None else None
            except TrackerError as error:
                self.problems.append(f"hardware.gpu = {shown(gpu)}: {error}")
        if tflops is not None:
            try:
                peak = peak_given(tflops, precision, name="hardware.peak_tflops")
                if gpu is not None:
                    peak = replace(peak, gpu=lookup(gpu).name)  # its power is still known
            except TrackerError as error:
                self.problems.append(str(error))
        return peak

    def plan(self, model: Mapping[str, Any], hardware: Mapping[str, Any], peak: Peak | None) -> Plan | None:
        """Return the plan, or None where the file has no [plan]."""
        before = len(self.problems)
        values = self.one(keys.PLAN)
        stages = [
            PlanStage(**s.values)
            for s in check.check_many(self.document, keys.STAGE, self.problems)
            if {"name", "tokens"} <= s.values.keys()
        ]
        prices = [
            PriceStep(gpu_hour_price=p.values["gpu_hour_price"], since=self.utc(p.values.get("from")))
            for p in check.check_many(self.document, keys.PRICE, self.problems)
            if "gpu_hour_price" in p.values
        ]
        failures = self.one(keys.FAILURES)
        conversion = self.conversion(hardware)
        sources = self.one(keys.PLAN_SOURCES)
        if "plan" not in self.document or len(self.problems) > before:
            return None
        for name in ("start", "deadline"):
            if name in values:
                values[name] = self.utc(values[name])
        model_keys = {*(key.name for key in keys.MODEL.keys)} - {"global_batch_size", "tokens_per_step"}
        values |= {k: v for k, v in model.items() if k in model_keys}
        values.setdefault("causal", Model().causal)
        try:
            return Plan(
                peak=peak,
                gpus=hardware.get("gpus"),
                stages=tuple(stages),
                prices=tuple(prices),
                failures=PlanFailures(**failures) if failures else None,
                conversion=conversion,
                sources=sources,
                **values,
            )
        except TrackerError as error:
            self.problems.append(str(error))
            return None

    def conversion(self, hardware: Mapping[str, Any]) -> PlannedConversion | None:
        """Return the hours taken over from another device, with the plan's own device where it says none."""
        values = self.one(keys.CONVERSION)
        if not {"from", "ratio"} <= values.keys():
            return None
        to_gpu = values.get("to") or hardware.get("gpu")
        if to_gpu is None:
            self.warnings.append("[plan.conversion] is not checked: set its `to`, or hardware.gpu")
            return None
        for name, gpu in (("from", values["from"]), ("to", to_gpu)):
            try:
                lookup(gpu)
            except TrackerError as error:
                self.problems.append(f"plan.conversion.{name} = {shown(gpu)}: {error}")
        return PlannedConversion(from_gpu=values["from"], to_gpu=to_gpu, ratio=values["ratio"])

    def sources(self) -> tuple[tuple[Source, ...], tuple[SourceSettings, ...]]:
        tables = check.check_many(self.document, keys.SOURCE, self.problems)
        made = [self.source(number, table) for number, table in enumerate(tables, start=1)]
        settings = tuple(
            SourceSettings(
                started_at_us=self.us(t.values.get("started_at")), job_name=t.values.get("job_name")
            )
            for t in tables
        )
        return tuple(made), settings

    def source(self, number: int, table: Checked) -> Source:
        values, where = table.values, f"source[{number}]"
        name = values.get("collector", "auto")
        has_path, has_command = "path" in values, "command" in values
        raw = self.document["source"][number - 1]
        misspelt = any(nearest(other, ("path", "command")) for other in table.others)
        if isinstance(raw, Mapping) and ("path" in raw) == ("command" in raw) and not misspelt:
            have = "both path and command" if "path" in raw else "neither path nor command"
            self.problems.append(f"{where}: {have}. Give one: a glob of files, or a program to run")
        if not has_command:
            for key in ("interval_s", "timeout_s"):
                if key in values:
                    self.problems.append(f"{where}.{key}: only for a command")
        self.collector(where, name, table.others, has_command)
        pattern = command = None
        if has_path:
            path = values["path"]
            pattern = str(self.resolve(path)) if path.startswith("~") else path
        if has_command:
            command = values["command"]
        return Source(
            number=number,
            collector=name,
            pattern=pattern,
            command=command,
            interval_s=values.get("interval_s", 60.0),
            timeout_s=values.get("timeout_s", 30.0),
            zone=values.get("timezone", self.zone),
            options={key: plain_json(value) for key, value in table.others.items()},
            shown=values.get("path") or " ".join(command or ()),
        )

    def collector(self, where: str, name: str, others: Mapping[str, Any], has_command: bool) -> None:
        """Check a collector's name and the keys that are its own."""
        if name == "auto" and not others:
            if has_command:
                self.problems.append(f"{where}.collector: name it: a command's output is not guessed at")
            return
        known = self.collectors()
        if name != "auto" and name not in known:
            hint = nearest(name, known)
            self.problems.append(
                f"{where}.collector = {shown(name)}: expected auto or one of {', '.join(sorted(known))}"
                + (f", {hint}" if hint else "")
            )
            return
        if has_command and known[name].followed:
            self.problems.append(
                f"{where}.command: {name} reads a log that grows; give its path. A command is for "
                + ", ".join(sorted(c.name for c in known.values() if not c.followed))
            )
        options = (
            {option for c in known.values() for option in c.options}
            if name == "auto"
            else {*known[name].options}
        )
        for other in others:
            if other not in options:
                more = check.unknown_key(where, other, keys.SOURCE, options)
                self.problems.append(more)
        given = {key: plain_json(value) for key, value in others.items()}
        examine = known[name].check if name != "auto" else None
        if examine is not None:
            self.problems += [f"{where}.{problem}" for problem in examine(given)]
        elif name == "auto":
            for key in given:
                self.problems += [
                    f"{where}.{problem}" for problem in _of_any(known.values(), key, given[key])
                ]

    def report(self) -> Report | None:
        """Return the [report] table with its mail and its schedules; None without one."""
        values, mail = self.one(keys.REPORT), self.one(keys.MAIL)
        tables = check.check_many(self.document, keys.SCHEDULE, self.problems)
        if "report" not in self.document:
            return None
        made = self.mail(mail)
        at, zone = values.get("at", dt.time(7, 0)), values.get("timezone", self.zone)
        to = made.to if made is not None else ()
        schedules = [Schedule(at=at, zone=zone, to=to)] if not tables else []
        for number, table in enumerate(tables, start=1):
            one = table.values
            if "to" in one and "mail" not in self.document["report"]:
                self.problems.append(f"report.schedule[{number}].to: nothing is mailed without [report.mail]")
            schedules.append(
                Schedule(
                    name=one.get("name", ""),
                    days=one.get("days", DAYS),
                    at=one.get("at", at),
                    zone=one.get("timezone", zone),
                    to=one.get("to", to),
                )
            )
        self.twice("report.schedule", [one.name for one in schedules])
        for number, schedule in enumerate(schedules, start=1):
            if schedule.at.hour < 4 and _shifts(schedule.zone):
                self.warnings.append(
                    f"report.{f'schedule[{number}].' if tables else ''}at = {schedule.at:%H:%M}: clocks in "
                    f"{schedule.zone} change at night, so that this time may not exist or come twice; take "
                    "04:00 or later"
                )
        return Report(
            at=at,
            zone=zone,
            directory=self.resolve(values.get("directory", "reports-out")),
            paper=values.get("paper", "a4"),
            mail=made,
            schedules=tuple(schedules),
            time_limit_s=values.get("time_limit_s", 300.0),
        )

    def mail(self, mail: Mapping[str, Any]) -> Mail | None:
        """Return the [report.mail] table; None without a usable one."""
        if not {"host", "from", "to"} <= mail.keys():
            return None
        secrets = {"password_file", "password_env"} & mail.keys()
        if ("user" in mail) != bool(secrets):
            have, lack = ("user", "password_file") if "user" in mail else (min(secrets), "user")
            self.problems.append(f"report.mail.{lack}: missing, because {have} is set. Give both or none")
        if len(secrets) > 1:
            self.problems.append("report.mail: both password_file and password_env. Give one of them")
        tls, near = mail.get("tls", "starttls"), _on_this_machine(mail["host"])
        if tls == "none" and not near:
            if "user" in mail:
                self.problems.append(
                    'report.mail.tls = "none": the password would cross the network in clear. Take '
                    '"starttls" or "implicit"'
                )
            else:
                self.warnings.append(
                    f'report.mail.tls = "none": anybody on the way to {mail["host"]} can read the reports'
                )
        if tls == "none" and "ca_file" in mail:
            self.problems.append('report.mail.ca_file: not used with tls = "none". Leave one of them out')
        return Mail(
            host=mail["host"],
            port=mail.get("port", _MAIL_PORTS[tls]),
            sender=mail["from"],
            to=mail["to"],
            tls=tls,
            ca_file=self.file(mail, "ca_file"),
            user=mail.get("user"),
            password_file=self.file(mail, "password_file"),
            password_env=mail.get("password_env"),
            reply_to=mail.get("reply_to"),
            on_uncertain=mail.get("on_uncertain", "resend"),
            timeout_s=mail.get("timeout_s", 30.0),
        )

    def webhooks(self) -> tuple[Webhook, ...]:
        """Return every [[webhook]]."""
        made = []
        for number, table in enumerate(check.check_many(self.document, keys.WEBHOOK, self.problems), start=1):
            values = dict(table.values)
            ways = {"url_file", "url_env"} & values.keys()
            if len(ways) != 1:
                have = "both url_file and url_env" if ways else "neither url_file nor url_env"
                self.problems.append(f"webhook[{number}]: {have}. Give one: the URL is a secret")
            for name in ("url_file", "ca_file"):
                if name in values:
                    values[name] = self.resolve(values[name])
            if "name" in values:
                made.append(Webhook(**values))
        self.twice("webhook", [one.name for one in made])
        return tuple(made)

    def twice(self, where: str, names: Iterable[str]) -> None:
        """Report names that are given more than once."""
        seen: set[str] = set()
        for name in names:
            if name and name.lower() in seen:
                self.problems.append(f"{where}.name = {shown(name)}: given twice. Each needs its own")
            seen.add(name.lower())

    def file(self, values: Mapping[str, Any], name: str) -> Path | None:
        """Return the path under a key, absolute; None where it is not set."""
        return self.resolve(values[name]) if name in values else None

    def consider(
        self, run: Mapping[str, Any], reservation: Mapping[str, Any], serve: Mapping[str, Any]
    ) -> None:
        """Look at what is only wrong together."""
        start, end = self.us(reservation.get("start")), self.us(reservation.get("end"))
        if start is not None and end is not None and end <= start:
            self.problems.append(
                f"reservation.end = {shown(str(reservation['end']))}: expected a moment after "
                "reservation.start"
            )
        if reservation and run.get("billing", "attempt") != "reservation":
            self.warnings.append('[reservation] is not used: run.billing is "attempt", not "reservation"')
        listen = serve.get("listen")
        if listen is not None and listen.exposure() and "web_config" not in serve:
            self.warnings.append(f"serve.listen = {listen.exposure()}")

    def us(self, moment: dt.datetime | None) -> int | None:
        return to_us(in_zone(moment, self.zone)) if moment is not None else None

    def utc(self, moment: dt.datetime | None) -> dt.datetime | None:
        return in_zone(moment, self.zone) if moment is not None else None

    def resolve(self, path: str) -> Path:
        """Return a path of the file as an absolute one; `~` is the home folder."""
        plain = Path(path)
        if path.startswith("~"):
            try:
                plain = plain.expanduser()
            except RuntimeError:
                self.problems.append(f"path = {shown(path)}: expected a known home folder after ~")
        return self.folder / plain


def _of_any(collectors: Iterable[Collector], key: str, value: Json) -> list[str]:
    """Return what is wrong with an option that no collector which has it would take so."""
    found = []
    for one in collectors:
        if key in one.options and one.check is not None:
            found.append([p for p in one.check({key: value}) if p.startswith((f"{key} ", f"{key}."))])
    return found[0] if found and all(found) else []


def _on_this_machine(host: str) -> bool:
    return host in {"localhost", "::1"} or host.startswith("127.")


def _shifts(zone: dt.tzinfo) -> bool:
    """Tell whether a zone's offset changes within a year."""
    return len({dt.datetime(2026, month, 1, tzinfo=zone).utcoffset() for month in (1, 4, 7, 10)}) > 1

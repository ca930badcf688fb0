"""`tracker collectors`: which log formats are read, and what one of them makes of a file.

Edge.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracker.cli._options import json_option

if TYPE_CHECKING:
    from tracker.interfaces import Collector
    from tracker.trial import Trial


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def collectors(ctx: click.Context, as_json: bool) -> None:
    """List the log formats that are read; try one on a file.

    \b
    Examples:
      tracker collectors
      tracker collectors test train.log
    """
    if ctx.invoked_subcommand is not None:
        return
    from tracker import app
    from tracker.cli._output import print_json, print_pairs

    known = app.collectors().values()
    if as_json:
        print_json({"schema": 1, "collectors": [_document(one) for one in known]})
        return
    print_pairs([(one.name, _described(one)) for one in known])


@collectors.command("test")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--collector", "name", metavar="NAME", help="Read it by this one, whatever it looks like.")
@click.option(
    "--timezone", default="UTC", show_default=True, metavar="ZONE", help="Zone of its times that carry none."
)
@json_option
def try_file(file: Path, name: str | None, timezone: str, as_json: bool) -> None:
    """Say which collector reads FILE and why, what it read, what it rejected, what the config must say.

    \b
    Examples:
      tracker collectors test logs/train.log
      tracker collectors test sacct.txt --collector slurm --timezone Europe/Berlin
    """
    from tracker import app
    from tracker.cli._output import bar, print_json
    from tracker.config.kinds import ZONE
    from tracker.core.errors import InvalidValue

    try:
        zone = ZONE.read("--timezone", timezone)
    except InvalidValue as error:
        raise click.UsageError(str(error)) from None
    with bar("reading", _size(file)) as told:
        trial = app.try_file(file, name=name, zone=zone, told=told)
    if as_json:
        print_json(_trial_document(trial))
    else:
        _show(file, trial)
    if trial.collector is None:
        raise click.exceptions.Exit(1)


def _described(one: Collector) -> str:
    lines = [one.framework]
    for what, words in (("knows", one.knows), ("needs", one.needs), ("own keys", one.options)):
        if words:
            lines.append(f"{what}: {', '.join(words)}")
    return "\n".join([*lines, *([one.notes] if one.notes else [])])


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _document(one: Collector) -> dict[str, Any]:
    return {
        "name": one.name,
        "framework": one.framework,
        "version": one.version,
        "kind": one.kind,
        "knows": list(one.knows),
        "needs": list(one.needs),
        "options": list(one.options),
        "notes": one.notes,
    }


def _trial_document(trial: Trial) -> dict[str, Any]:
    from tracker.core.documents import iso

    return {
        "schema": 1,
        "collector": trial.collector.name if trial.collector else None,
        "evidence": trial.evidence,
        "bytes": trial.read_bytes,
        "lines": trial.lines,
        "readings": trial.readings,
        "first_step": trial.first.step if trial.first else None,
        "last_step": trial.last.step if trial.last else None,
        "first_at": iso(trial.first.at_us) if trial.first else None,
        "last_at": iso(trial.last.at_us) if trial.last else None,
        "processes": trial.processes,
        "events": dict(sorted(trial.events.items())),
        "causes": dict(sorted(trial.causes.items())),
        "settings": dict(sorted(trial.settings.items())),
        "scheduler_rows": trial.row_count,
        "rejects": dict(sorted(trial.rejects.items())),
        "rejected": [
            {"offset": r.offset, "reason": r.reason, "line": r.line.decode("utf-8", "replace")}
            for r in trial.rejected
        ],
        "skipped_bytes": trial.skipped_bytes,
        "must_be_set": _must_be_set(trial),
    }


def _show(file: Path, trial: Trial) -> None:
    from reports.numbers import count, size
    from tracker.cli._output import print_pairs

    pairs = [("file", str(file)), ("collector", trial.collector.name if trial.collector else "none")]
    pairs.append(("because", trial.evidence))
    if trial.collector is None:
        print_pairs(pairs)
        return
    pairs.append(("read", f"{size(trial.read_bytes)}, {count(trial.lines)} lines"))
    if trial.row_count:
        pairs.append(("scheduler rows", f"{count(trial.row_count)}\n{_rows(trial)}"))
    if trial.collector.kind != "scheduler":
        pairs += _log_pairs(trial)
    if trial.rejects:
        pairs.append(("rejected", f"{count(trial.rejects.total())} lines\n{_rejects(trial)}"))
    if trial.skipped_bytes:
        pairs.append(("skipped", f"{size(trial.skipped_bytes)}: over-long lines or NUL bytes"))
    if must := _must_be_set(trial):
        pairs.append(("must be set", ", ".join(must)))
    if trial.collector.notes:
        pairs.append(("mind", trial.collector.notes))
    print_pairs(pairs)


def _log_pairs(trial: Trial) -> list[tuple[str, str]]:
    from reports.numbers import count, moment, seconds

    pairs = [("readings", count(trial.readings) + ("" if trial.readings else ": no line with a step"))]
    for name, reading in (("first", trial.first), ("last", trial.last)):
        if reading is not None:
            took = reading.step_time_us / 1e6 if reading.step_time_us is not None else None
            text = f"step {count(reading.step)} at {moment(reading.at_us)}, {seconds(took)} a step"
            for what, value in (("samples", reading.samples), ("tokens", reading.tokens)):
                text += f", {count(value)} {what}" if value is not None else ""
            pairs.append((name, text))
    if trial.readings and trial.stamped < trial.readings:
        pairs.append(("clock", f"{count(trial.readings - trial.stamped)} readings carry no time"))
    pairs.append(("processes", count(trial.processes)))
    pairs.append(("events", _counts(trial.events) or "none"))
    if trial.causes:
        pairs.append(("trouble", _counts(trial.causes)))
    if trial.settings:
        pairs.append(("settings", ", ".join(f"{k} {v}" for k, v in sorted(trial.settings.items()))))
    return pairs


def _must_be_set(trial: Trial) -> list[str]:
    """Return config keys that the format cannot tell, without those that this file told all the same."""
    if trial.collector is None:
        return []
    told = {f"model.{name}" for name in trial.settings} | {f"hardware.{name}" for name in trial.settings}
    return [need for need in trial.collector.needs if need not in told]


def _counts(counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{number:,} {name}" for name, number in ordered)


def _rows(trial: Trial) -> str:
    from reports.numbers import count, moment

    return "\n".join(
        f"job {row.job_id}: {row.state or '?'}, {moment(row.start_us)} to {moment(row.end_us)}, "
        f"{count(row.gpus)} GPUs"
        for row in trial.rows
    )


def _rejects(trial: Trial) -> str:
    lines = [f"{count:,} {reason}" for reason, count in trial.rejects.most_common()]
    lines += [f"at byte {r.offset}: {r.line[:150].decode('utf-8', 'replace')}" for r in trial.rejected[:5]]
    return "\n".join(lines)

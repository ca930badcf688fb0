"""What the metrics page shows: one table of families, each a name, its help, and how a snapshot fills it.

Pure. A family reads values that are already there; it computes nothing. What is unknown has no sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal

from tracker.core.forecast.value import Quantiles
from tracker.core.ledger import BUCKETS
from tracker.core.run_standing import Standing, late_days, run_standing
from tracker.core.snapshot import STATES, Snapshot
from tracker.vitals import Vitals

J_PER_MWH: Final = 3.6e9
LABEL_CHARS: Final = 120
"""Text from logs is cut to this before it becomes a label's value."""
MOST_REASONS: Final = 40
"""Reasons shown one by one; the rest is summed as "other"."""

Samples = Iterable[tuple[tuple[str, ...], float | int | None]]


@dataclass(frozen=True)
class Page:
    """What is shown of one run. No slots: it keeps what the core makes of the snapshot."""

    run: str
    snapshot: Snapshot | None = None
    """None before the first one, and after a finished run's linger time."""
    vitals: Vitals = field(default_factory=Vitals)

    @cached_property
    def standing(self) -> Standing | None:
        """Where the run stands: made by the core when it is first asked for, once for a page."""
        return run_standing(self.snapshot) if self.snapshot is not None else None


@dataclass(frozen=True, slots=True)
class Family:
    """One metric family. Its label `run` comes first and is not listed."""

    name: str
    kind: Literal["gauge", "counter", "info"]
    help: str
    samples: Callable[[Page], Samples]
    labels: tuple[str, ...] = ()
    values: str = ""
    """What its labels may be, for the reference."""


def _of(read: Callable[[Snapshot], float | int | None]) -> Callable[[Page], Samples]:
    def samples(page: Page) -> Samples:
        return [((), read(page.snapshot))] if page.snapshot is not None else []

    return samples


def _by(read: Callable[[Snapshot], Samples]) -> Callable[[Page], Samples]:
    def samples(page: Page) -> Samples:
        return read(page.snapshot) if page.snapshot is not None else []

    return samples


def _at(read: Callable[[Standing], float | int | None]) -> Callable[[Page], Samples]:
    return lambda page: [((), read(page.standing))] if page.standing is not None else []


def _at_by(read: Callable[[Standing], Samples]) -> Callable[[Page], Samples]:
    return lambda page: read(page.standing) if page.standing is not None else []


def _own(read: Callable[[Vitals], float | int | None]) -> Callable[[Page], Samples]:
    return lambda page: [((), read(page.vitals))]


def _own_by(read: Callable[[Vitals], Samples]) -> Callable[[Page], Samples]:
    return lambda page: read(page.vitals)


def _seconds(us: int | None) -> float | None:
    return us / 1e6 if us is not None else None


def _hours(hours: float | None) -> float | None:
    return hours * 3600 if hours is not None else None


def _gpu_seconds(snapshot: Snapshot, bucket: str) -> float | None:
    return _seconds(snapshot.gpu_us[bucket]) if snapshot.gpu_us is not None else None


def _mfu(snapshot: Snapshot) -> Samples:
    mfu, reference = snapshot.mfu, snapshot.mfu.reference_precision
    yield ("productive", reference), mfu.productive_ratio
    yield ("allocated", reference), mfu.allocated_ratio
    yield ("recent", reference), mfu.recent_ratio
    yield ("six_n_productive", reference), mfu.six_n_productive_ratio


def _per_trillion(snapshot: Snapshot) -> Samples:
    yield ("realised",), snapshot.per_trillion.realised
    yield ("recent",), snapshot.per_trillion.recent
    yield ("plan",), snapshot.per_trillion.plan


def _interruptions(snapshot: Snapshot) -> Samples:
    counts: dict[tuple[str, ...], int] = {}
    for interruption in snapshot.interruptions:
        key = (interruption.kind, interruption.cause)
        counts[key] = counts.get(key, 0) + 1
    return sorted(counts.items())


OPERATING_POINT: Final = (
    "gpu", "gpu_name", "gpus", "precision", "global_batch_size", "sequence_length", "micro_batch_size",
    "tensor_parallel", "pipeline_parallel", "data_parallel", "context_parallel", "expert_parallel",
    "recompute", "framework", "framework_version",
)  # fmt: skip
"""Labels of training_operating_point_info; what the log does not say is empty."""


def _quantiles(q: Quantiles | None, unit: float = 1.0) -> Samples:
    """Return the quantiles by `p`, times what makes them a base unit."""
    if q is not None:
        for p, value in (("0.1", q.p10), ("0.5", q.p50), ("0.9", q.p90)):
            yield (p,), value * unit if value is not None else None


def _finish(snapshot: Snapshot) -> Samples:
    return _quantiles(snapshot.forecast.finish_us if snapshot.forecast is not None else None, 1e-6)


def _finish_gpu_hours(snapshot: Snapshot) -> Samples:
    return _quantiles(snapshot.forecast.gpu_hours if snapshot.forecast is not None else None)


def _finish_cost(snapshot: Snapshot) -> Samples:
    made = snapshot.forecast
    if made is not None:
        for labels, value in _quantiles(made.cost):
            yield (label(made.currency), *labels), value


def _finish_energy(snapshot: Snapshot) -> Samples:
    return _quantiles(snapshot.forecast.energy_mwh if snapshot.forecast is not None else None, J_PER_MWH)


def _probabilities(snapshot: Snapshot) -> Samples:
    made = snapshot.forecast
    if made is not None:
        yield ("deadline",), made.by_deadline_ratio
        yield ("reservation_end",), made.by_reservation_end_ratio
        yield ("budget",), made.within_budget_ratio


def _joules(mwh: float | None) -> float | None:
    return mwh * J_PER_MWH if mwh is not None else None


def _money(currency: str, amount: float | None) -> Samples:
    yield (label(currency),), amount


def _energy(standing: Standing) -> Samples:
    yield (standing.power_from or "",), _joules(standing.energy_mwh)


def _checkpoint_intervals(standing: Standing) -> Samples:
    yield ("now",), standing.checkpoints.interval_s
    yield ("best",), standing.checkpoints.best_interval_s
    yield ("plan",), standing.planned.checkpoint_interval_s


def _recent_stops(standing: Standing) -> Samples:
    yield ("1h",), standing.unexpected_1h
    yield ("24h",), standing.unexpected_24h


def _delay(snapshot: Snapshot) -> float | None:
    days = late_days(snapshot)
    return days * 86_400 if days is not None else None


def _operating_point(snapshot: Snapshot) -> Samples:
    point = snapshot.operating_point
    if point:
        yield tuple(label(str(point.get(name, ""))) for name in OPERATING_POINT), 1


def _convention(snapshot: Snapshot) -> Samples:
    mfu = snapshot.mfu
    yield (mfu.reference_precision, label(mfu.flop_method or ""), label(mfu.peak_source)), 1


def _reasons(counts: Iterable[tuple[str, int]]) -> Samples:
    """Return the largest counts by reason, bounded, the rest as "other"."""
    ordered = sorted(counts, key=lambda item: (-item[1], item[0]))
    sums: dict[str, int] = {}
    for place, (reason, count) in enumerate(ordered):
        name = label(reason) if place < MOST_REASONS else "other"
        sums[name] = sums.get(name, 0) + count
    return [((reason,), count) for reason, count in sums.items()]


def _letters(vitals: Vitals) -> Samples:
    for one in vitals.channels:
        yield (one.channel, "queued"), one.queued
        yield (one.channel, "sent"), one.sent
        yield (one.channel, "dead"), one.dead


def label(text: str) -> str:
    """Return text of a log as a label's value: bounded, printable, valid UTF-8.

    >>> label("a" * 200 + chr(27))[-3:]
    'aa…'
    """
    clean = "".join(c if c.isprintable() else "?" for c in text[: LABEL_CHARS * 2])
    return clean if len(clean) <= LABEL_CHARS else clean[: LABEL_CHARS - 1] + "…"


FAMILIES: Final = (
    Family("training_allocated_gpu_seconds_total", "counter",
           "GPU time allocated to the run so far, pending time included.",
           _of(lambda s: _gpu_seconds(s, "allocated"))),
    Family("training_processed_tokens_total", "counter",
           "Tokens of all executed steps, discarded ones too.", _of(lambda s: s.tokens.processed)),
    Family("training_attempts_total", "counter", "Launches of the job, failed ones too.",
           _of(lambda s: len(s.attempts))),
    Family("training_running_attempts", "gauge", "Attempts that run now.", _of(lambda s: s.running)),
    Family("training_gpu_seconds", "gauge",
           "GPU time by what became of it; the buckets sum to the allocation.",
           _by(lambda s: [((bucket,), _gpu_seconds(s, bucket)) for bucket in BUCKETS]), ("bucket",),
           ", ".join(BUCKETS)),
    Family("training_net_tokens", "gauge",
           "Tokens that are in the model as it stands, since the first observed attempt.",
           _of(lambda s: s.tokens.net)),
    Family("training_inherited_tokens", "gauge", "Tokens from before the first observed attempt.",
           _of(lambda s: s.tokens.inherited)),
    Family("training_planned_tokens", "gauge", "Target of the plan; later stages come on top of it.",
           _of(lambda s: s.tokens.planned)),
    Family("training_mfu_ratio", "gauge",
           "Model FLOPs utilisation, by what the time below the line is. "
           "`reference` names the precision whose dense peak is 1.",
           _by(_mfu), ("scope", "reference"),
           "scope: productive, allocated, recent (last hour of productive time), six_n_productive (6N, no "
           "attention)"),
    Family("training_goodput_ratio", "gauge", "Productive over allocated GPU time, pending time left out.",
           _of(lambda s: s.goodput_ratio)),
    Family("training_gpu_hours_per_trillion_tokens", "gauge",
           "Allocated GPU-hours for 1e12 retained tokens (the plan's unit).", _by(_per_trillion), ("kind",),
           "realised, recent (last 24 h of allocation), plan"),
    Family("training_interruptions", "gauge",
           "Ends of attempts that were not the end of training, by root cause.", _by(_interruptions),
           ("kind", "cause"), "kind: unexpected, planned; cause: gpu, network, software ... unknown"),
    Family("training_mtbf_seconds", "gauge",
           "Mean time between unexpected interruptions; device: times GPUs.",
           _by(lambda s: [(("job",), _hours(s.mtbf.job_hours)), (("device",), _hours(s.mtbf.device_hours))]),
           ("scope",), "job, device"),
    Family("training_mtbf_interval_seconds", "gauge",
           "90 % interval of the job's mean time between unexpected interruptions, widened where they bunch. "
           "Before the first one only the low end is known.",
           _at_by(lambda s: zip((("low",), ("high",)), s.mtbf_interval_s, strict=True)), ("bound",),
           "low, high"),
    Family("training_recent_interruptions", "gauge",
           "Unexpected interruptions in the window of time that just passed.", _at_by(_recent_stops),
           ("window",), "1h, 24h"),
    Family("training_redone_ratio", "gauge",
           "Share of the allocation whose steps are not in the model: they are done again.",
           _at(lambda s: s.redone_ratio)),
    Family("training_checkpoint_interval_seconds", "gauge",
           "Training between two checkpoints: so far on average, what would serve the run best by its own "
           "failures, and what the plan says.", _at_by(_checkpoint_intervals), ("kind",), "now, best, plan"),
    Family("training_checkpoint_stall_seconds", "gauge", "Blocking time of a checkpoint, on average.",
           _at(lambda s: s.checkpoints.stall_s)),
    Family("training_checkpoint_gain_ratio", "gauge",
           "What the best checkpoint interval would add to goodput, relative to now.",
           _at(lambda s: s.checkpoints.gain_ratio)),
    Family("training_restart_seconds", "gauge",
           "Allocated time that an unexpected interruption takes, redone steps left out, on average.",
           _at(lambda s: s.checkpoints.restart_s)),
    Family("training_last_interruption_timestamp_seconds", "gauge",
           "When the last unexpected interruption came.", _at(lambda s: _seconds(s.last_unexpected_us))),
    Family("training_last_attempt_start_timestamp_seconds", "gauge", "When the last attempt began.",
           _at(lambda s: _seconds(s.last_attempt_start_us))),
    Family("training_last_progress_timestamp_seconds", "gauge",
           "The last sign of progress: a reading, or the end of a checkpoint or of an evaluation.",
           _at(lambda s: _seconds(s.last_progress_us))),
    Family("training_stall_limit_seconds", "gauge",
           "How long the running attempt may be quiet before it counts as stalled: 3 times its usual gap.",
           _at(lambda s: _seconds(s.stall_limit_us))),
    Family("training_cost", "gauge", "Money so far, pending time included.",
           _at_by(lambda s: _money(s.currency, s.cost)), ("currency",), "as in the plan"),
    Family("training_energy_joules", "gauge",
           "Energy so far, with the facility overhead of the plan. `power_from` says what the power of a GPU "
           "is from: with TDP it is an upper bound.", _at_by(_energy), ("power_from",),
           "measured, measured in part, plan, TDP"),
    Family("training_step", "gauge", "Number of the last step that is in the model.",
           _of(lambda s: s.steps.last)),
    Family("training_net_steps", "gauge", "Steps that are in the model, since the first observed attempt.",
           _of(lambda s: s.steps.net)),
    Family("training_processed_steps", "gauge", "Steps executed, discarded ones too.",
           _of(lambda s: s.steps.processed)),
    Family("training_at_risk_steps", "gauge", "Steps that no durable checkpoint covers yet.",
           _of(lambda s: s.steps.at_risk)),
    Family("training_step_time_seconds", "gauge",
           "Wall time of a step, mean over the last window between two readings.",
           _of(lambda s: s.step_time_s)),
    Family("training_forecast_finish_timestamp_seconds", "gauge",
           "When training will be done, by probability `p` that it is done by then.", _by(_finish), ("p",),
           "0.1, 0.5, 0.9"),
    Family("training_forecast_gpu_hours", "gauge",
           "GPU-hours of the whole run at its finish, by probability `p` (the plan's unit).",
           _by(_finish_gpu_hours), ("p",), "0.1, 0.5, 0.9"),
    Family("training_forecast_cost", "gauge",
           "Money of the whole run at its finish, by probability `p`.", _by(_finish_cost),
           ("currency", "p"), "currency: as in the plan; p: 0.1, 0.5, 0.9"),
    Family("training_forecast_energy_joules", "gauge",
           "Energy of the whole run at its finish, by probability `p`.", _by(_finish_energy), ("p",),
           "0.1, 0.5, 0.9"),
    Family("training_forecast_probability_ratio", "gauge",
           "Probability to be done by the plan's deadline, by the end of the reservation, and within the "
           "budget.", _by(_probabilities), ("target",), "deadline, reservation_end, budget"),
    Family("training_forecast_delay_seconds", "gauge",
           "Median finish of the forecast minus the plan's: above 0 is late.", _of(_delay)),
    Family("training_forecast_timestamp_seconds", "gauge", "The moment that the forecast is of.",
           _of(lambda s: _seconds(s.forecast.as_of_us) if s.forecast is not None else None)),
    Family("training_plan_finish_timestamp_seconds", "gauge", "When the plan is done.",
           _of(lambda s: _seconds(s.plan_finish_us))),
    Family("training_plan_start_timestamp_seconds", "gauge",
           "When the plan begins; where it does not say, when the first attempt did.",
           _at(lambda s: _seconds(s.planned.start_us))),
    Family("training_plan_deadline_timestamp_seconds", "gauge", "When the plan says it must be done.",
           _at(lambda s: _seconds(s.planned.deadline_us))),
    Family("training_reservation_end_timestamp_seconds", "gauge", "When the reservation ends.",
           _at(lambda s: _seconds(s.reservation_end_us))),
    Family("training_plan_due_tokens", "gauge", "Tokens that the plan has trained by now, at its own pace.",
           _at(lambda s: s.due_tokens)),
    Family("training_schedule_ratio", "gauge",
           "Tokens in the model over those due by the plan: below 1 is behind.",
           _at(lambda s: s.schedule_ratio)),
    Family("training_plan_goodput_ratio", "gauge", "Goodput that the plan counts with.",
           _at(lambda s: s.planned.goodput_ratio)),
    Family("training_plan_mfu_ratio", "gauge", "MFU over productive time that the plan counts with.",
           _at(lambda s: s.planned.mfu_ratio)),
    Family("training_plan_mtbf_seconds", "gauge",
           "Mean time between interruptions of the job that the plan counts with.",
           _at(lambda s: s.planned.mtbf_s)),
    Family("training_plan_redone_ratio", "gauge",
           "Share of the allocation that the plan's failures would throw away, by the failure model.",
           _at(lambda s: s.planned.redone_ratio)),
    Family("training_plan_gpu_seconds", "gauge", "GPU time of the whole run by the plan, all its stages.",
           _at(lambda s: _hours(s.planned.gpu_hours))),
    Family("training_plan_cost", "gauge", "Money of the whole run by the plan.",
           _at_by(lambda s: _money(s.currency, s.planned.cost)), ("currency",), "as in the plan"),
    Family("training_plan_budget", "gauge", "Money that the run may cost.",
           _at_by(lambda s: _money(s.currency, s.planned.budget)), ("currency",), "as in the plan"),
    Family("training_plan_energy_joules", "gauge", "Energy of the whole run by the plan.",
           _at(lambda s: _joules(s.planned.energy_mwh))),
    Family("training_last_reading_timestamp_seconds", "gauge",
           "When the last line with a step was written.", _of(lambda s: _seconds(s.last_reading_us))),
    Family("training_run_state", "gauge", "1 for the state that the run is in, 0 for the others.",
           _by(lambda s: [((state,), int(state == s.state)) for state in STATES]), ("state",),
           ", ".join(STATES)),
    Family("training_operating_point_info", "info",
           "What the run trains on and how, as far as the log says it.", _by(_operating_point),
           OPERATING_POINT, "text of the log, cut; empty where unknown"),
    Family("training_convention_info", "info", "What the MFU is measured against.", _by(_convention),
           ("reference", "flop_method", "peak_source"),
           "flop_method: 6N, 6N*(1+a), 6N+attention_full, 6N+attention_causal"),
    Family("training_reported_flops_per_second", "gauge",
           "What the framework itself claims per GPU, in its own convention; never mixed with ours.",
           _by(lambda s: [(("hardware" if s.reported.hardware else "model",), s.reported.flop_per_s)]),
           ("counts",), "model, hardware (recomputation counted)"),
    Family("tracker_ready", "gauge",
           "1 once all sources were read to their end and a first snapshot is there.",
           _own(lambda v: int(v.ready))),
    Family("tracker_read_lines_total", "counter", "Log lines read since the tracker started.",
           _own(lambda v: v.read_lines)),
    Family("tracker_read_bytes_total", "counter",
           "Bytes read since the tracker started, after decompression.", _own(lambda v: v.read_bytes)),
    Family("tracker_stored_readings_total", "counter", "Readings stored since the tracker started.",
           _own(lambda v: v.stored_readings)),
    Family("tracker_rejected_lines_total", "counter",
           "Lines that looked like ours and could not be used, over the life of the store.",
           _own_by(lambda v: _reasons(v.rejects.items())), ("reason",),
           "few words; `tracker check` shows lines"),
    Family("tracker_skipped_bytes_total", "counter", "Bytes passed over unparsed since the tracker started.",
           _own_by(lambda v: _reasons(v.skipped_bytes.items())), ("reason",), "too_long, nul"),
    Family("tracker_rotations_total", "counter", "Files that went on under another name.",
           _own(lambda v: v.rotations)),
    Family("tracker_truncations_total", "counter", "Files whose content was replaced in place.",
           _own(lambda v: v.truncations)),
    Family("tracker_source_up", "gauge", "1 if the last look at a [[source]] succeeded.",
           _own_by(lambda v: [((str(s.number),), int(s.up)) for s in v.sources]), ("source",), "1, 2, 3 ..."),
    Family("tracker_source_files", "gauge", "Files that a [[source]] means now.",
           _own_by(lambda v: [((str(s.number),), s.files) for s in v.sources]), ("source",), "1, 2, 3 ..."),
    Family("tracker_source_lag_bytes", "gauge", "Bytes that are there and not yet read.",
           _own_by(lambda v: [((str(s.number),), s.lag_bytes) for s in v.sources]), ("source",),
           "1, 2, 3 ..."),
    Family("tracker_source_rejected_lines_total", "counter",
           "Rejected lines of a [[source]], over the life of the store.",
           _own_by(lambda v: [((str(s.number),), s.rejected_lines) for s in v.sources]), ("source",),
           "1, 2, 3 ..."),
    Family("tracker_source_info", "info", "What a [[source]] is.",
           _own_by(lambda v: [((str(s.number), s.collector, label(s.shown)), 1) for s in v.sources]),
           ("source", "collector", "reads"), "as in the config"),
    Family("tracker_unreadable_files", "gauge", "Files that the last pass could not read.",
           _own_by(lambda v: _reasons(v.unreadable_files.items())), ("reason",), "few words"),
    Family("tracker_unrecognised_files", "gauge", "Files of `auto` sources that no collector reads.",
           _own(lambda v: v.unrecognised_files)),
    Family("tracker_last_pass_timestamp_seconds", "gauge", "When the sources were last looked at.",
           _own(lambda v: _seconds(v.last_pass_us))),
    Family("tracker_snapshot_timestamp_seconds", "gauge", "The moment that the numbers above are of.",
           _of(lambda s: _seconds(s.as_of_us))),
    Family("tracker_snapshot_duration_seconds", "gauge", "Processor time of the last snapshot.",
           _own(lambda v: v.snapshot_s)),
    Family("tracker_store_up", "gauge", "1 if the last use of the store succeeded.",
           _own(lambda v: int(v.store_up) if v.store_up is not None else None)),
    Family("tracker_store_errors_total", "counter", "Uses of the store that failed.",
           _own(lambda v: v.store_errors)),
    Family("tracker_store_bytes", "gauge", "Size of the store.", _own(lambda v: v.store_bytes)),
    Family("tracker_wal_bytes", "gauge", "Size of the store's write-ahead log.", _own(lambda v: v.wal_bytes)),
    Family("tracker_disk_free_bytes", "gauge",
           "Bytes free on the store's file system, for the tracker's own user.",
           _own(lambda v: v.disk_free_bytes)),
    Family("tracker_disk_size_bytes", "gauge", "Size of the store's file system.",
           _own(lambda v: v.disk_size_bytes)),
    Family("tracker_job_last_success_timestamp_seconds", "gauge", "When a periodic job last succeeded.",
           _own_by(lambda v: [((j.name,), _seconds(j.last_success_us)) for j in v.jobs]), ("job_name",),
           "checkpoint: keeps the store's write-ahead log short; report_NAME, report_check: what is due"),
    Family("tracker_job_duration_seconds", "gauge", "How long a periodic job last took.",
           _own_by(lambda v: [((j.name,), j.last_duration_s) for j in v.jobs]), ("job_name",), "likewise"),
    Family("tracker_job_failures_total", "counter", "Runs of a periodic job that failed.",
           _own_by(lambda v: [((j.name,), j.failures) for j in v.jobs]), ("job_name",), "likewise"),
    Family("tracker_report_last_success_timestamp_seconds", "gauge",
           "When the report of a [[report.schedule]] was last made.",
           _own_by(lambda v: [((r.schedule,), _seconds(r.last_made_us)) for r in v.reports]), ("schedule",),
           "as in the config; daily where it lists none"),
    Family("tracker_report_failed_tries", "gauge",
           "Failed tries to make the report that is due now; 0 once it is made.",
           _own_by(lambda v: [((r.schedule,), r.failed_tries) for r in v.reports]), ("schedule",),
           "likewise"),
    Family("tracker_report_next_timestamp_seconds", "gauge",
           "When the next report is due, or was while it is late; no sample after a finished run's last.",
           _own_by(lambda v: [((r.schedule,), _seconds(r.next_us)) for r in v.reports]), ("schedule",),
           "likewise"),
    Family("tracker_outbox_letters", "gauge",
           "Mails and messages by what became of them, one for each recipient.",
           _own_by(_letters), ("channel", "state"),
           "channel: mail, webhook NAME; state: queued, sent, dead (given up: somebody should look)"),
    Family("tracker_outbox_oldest_timestamp_seconds", "gauge",
           "When the mail or message that waits longest was queued; no sample where none waits.",
           _own_by(lambda v: [((c.channel,), _seconds(c.oldest_us)) for c in v.channels]), ("channel",),
           "likewise"),
    Family("tracker_outbox_last_success_timestamp_seconds", "gauge",
           "When a mail or message was last taken by the other side.",
           _own_by(lambda v: [((c.channel,), _seconds(c.last_sent_us)) for c in v.channels]), ("channel",),
           "likewise"),
    Family("tracker_outbox_failures_total", "counter",
           "Failed tries to send, over the life of the store.",
           _own_by(lambda v: [((c.channel, reason), tries) for c in v.channels
                              for reason, tries in sorted(c.failures.items())]),
           ("channel", "reason"),
           "reason: network, timeout, tls, certificate, login, secret, protocol, busy, sender, recipient, "
           "message, size, uncertain, expired"),
)  # fmt: skip
"""Every family of a run. Those of the process (`tracker_build_info`, `process_*`) come besides."""

UNIT_EXCEPTIONS: Final = ("training_gpu_hours_per_trillion_tokens", "training_forecast_gpu_hours")
"""Their unit is the plan's; promtool asks for seconds, and is answered with this list."""

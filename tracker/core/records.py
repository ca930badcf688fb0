"""The facts we keep: what one line, one event or one scheduler row said, as it said it.

Pure. Collectors make these, the store keeps them, the core interprets them. A fact is an odometer as
it stood at one place of one file; differences, rates and verdicts are taken later.

Units: `_us` are integer microseconds; an `at_us` counts from 1970-01-01T00:00:00Z (UTC).
A fact that a line did not state is None, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntFlag, StrEnum
from typing import Final, NamedTuple

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

EARLIEST_US: Final = 946_684_800_000_000  # 2000-01-01: an older stamp is a clock that was never set
LATEST_US: Final = 4_102_444_800_000_000  # 2100-01-01
LARGEST: Final = 2**62  # a larger count does not fit the store and is no training run
EVIDENCE_CHARS: Final = 500


class Flag(IntFlag):
    """What a reading says about its own numbers."""

    NONE = 0
    WHOLE_SECOND = 1
    """The stamp has whole seconds: the true time lies in [at, at + 1 s)."""
    STEP_TIME_EXCLUDES = 2
    """`step_time_us` is the mean over the steps since the previous reading, without evaluation and saves."""
    STEP_TIME_INCLUDES = 4
    """The same mean, with evaluation and saves of that interval inside."""
    STEP_TIME_SAMPLE = 8
    """`step_time_us` is of the last step, or smoothed: good for a chart, not for adding up."""
    EXTRA = 16
    """An extra line that does not reset the framework's accumulators: the next mean covers it again."""
    NAN = 32
    """The line reports a loss that is not a number, or left the loss out because of it."""
    ROUNDED = 64
    """The odometer (`tokens`) is rounded as printed, such as 2.147B: use steps x batch instead."""
    REPORTED_HARDWARE = 128
    """`reported_flop_per_s` counts recomputation: it is a hardware rate and never becomes MFU."""
    ASTRAY = 256
    """The line's own stamp leapt ahead and was not believed: `at_us` is that of the line after it, by which
    it is known."""


class Reading(NamedTuple):
    """One log line seen as an odometer. Counts run from step 0 of the run, over all its attempts."""

    offset: int
    """Where it stands: bytes from the start of the (decompressed) file to its first character."""
    at_us: int | None
    """When the line was written, UTC; None where the log carries no clock."""
    step: int
    """Optimiser steps done, >= 0."""
    step_time_us: int | None = None
    """Wall time of a step; `flags` says what it covers."""
    samples: int | None = None
    """Sequences consumed so far, global."""
    tokens: int | None = None
    """Tokens consumed so far, global."""
    batch: int | None = None
    """Sequences in a step as it is now (a ramp changes it)."""
    skipped: int = 0
    """Steps since the previous reading whose update was dropped (loss scale)."""
    flags: int = 0
    """A `Flag` set, as a plain integer."""
    reported_flop_per_s: float | None = None
    """The framework's own claim per GPU; its convention is in the stream's settings."""
    tokens_per_step: int | None = None
    """Tokens in a step where the log says tokens and not sequences."""


class Kind(StrEnum):
    """What an event is. One line may yield several events."""

    LAUNCH = "launch"
    """A process began: exactly one for each start, also where many ranks print the banner."""
    SETTING = "setting"
    """`data` holds facts of the operating point, by the names of `SETTINGS`."""
    SIGN = "sign"
    """A start-up line with a clock: the process was alive."""
    RESUME = "resume"
    """A checkpoint was loaded; `step` is where training goes on (0: from nothing).
    `data` may hold `samples` or `tokens` at that step."""
    TRAIN_START = "train_start"
    """The first step is about to run."""
    SAVE_START = "save_start"
    """A checkpoint of `step` begins to be written; steps up to it were executed."""
    SAVE_END = "save_end"
    """Training goes on; `duration_us` is the blocking part where the line says it.
    `data["async"]` is true where the write itself goes on in the background."""
    SAVE_DURABLE = "save_durable"
    """The background write of `step` is complete (synchronous saves: SAVE_END says it)."""
    EVAL_START = "eval_start"
    EVAL_END = "eval_end"
    """`duration_us` where the line says it."""
    FAILURE = "failure"
    """Evidence of trouble: `data` holds `cause`, `confidence` (0..1), and may hold `fatal` (the process
    cannot go on), `back_us` (the trouble began that long before the line), `rank`, `host`, `root`
    (this line names the first failure, not a victim)."""
    EXIT = "exit"
    """The process ends; `data["end_kind"]` is one of `END_KINDS`, `data["cause"]` a cause name or absent."""
    RESTART = "restart"
    """A restart inside the job, with no banner to come: what follows is a new attempt."""
    COMPLETED = "completed"
    """Training is done: what follows is teardown, whatever it prints."""
    NOTE = "note"
    """Something a person may want to see; it changes no number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that a line says besides the odometer."""

    offset: int
    """As in `Reading`."""
    kind: Kind
    at_us: int | None = None
    """When, UTC; None where the line has no clock (then its place in the file orders it)."""
    step: int | None = None
    duration_us: int | None = None
    data: Mapping[str, Json] = field(default_factory=dict)
    text: str = ""
    """The line that proves it, cut to `EVIDENCE_CHARS`; hostile text."""


class Reject(NamedTuple):
    """A line that looked like ours and could not be used."""

    offset: int
    line: bytes
    """Its first bytes."""
    reason: str
    """One of few words, so that it can be counted: no value of the line in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerRow:
    """One allocation as the scheduler tells it; (job_id, start_us) identifies it."""

    job_id: str
    start_us: int
    """Start of the allocation, UTC."""
    end_us: int | None = None
    """None while it runs, or where the scheduler does not know."""
    name: str = ""
    state: str = ""
    """Upper case, the scheduler's own word without its tail: COMPLETED, FAILED, TIMEOUT, NODE_FAIL ..."""
    submit_us: int | None = None
    gpus: int | None = None
    nodes: int | None = None
    exit_code: str = ""
    reason: str = ""
    comment: str = ""
    data: Mapping[str, Json] = field(default_factory=dict)


Record = Reading | Event | Reject | SchedulerRow

SETTINGS: Final = frozenset(
    {
        "job_id", "job_name", "framework", "framework_version", "gpu_name", "gpus", "nodes",
        "tensor_parallel", "pipeline_parallel", "data_parallel", "context_parallel", "expert_parallel",
        "micro_batch_size", "global_batch_size", "sequence_length", "tokens_per_step",
        "layers", "hidden_size", "ffn_hidden_size", "heads", "kv_heads", "head_dim", "vocab_size",
        "experts", "experts_per_token", "parameters", "active_parameters",
        "precision", "recompute", "log_interval", "save_interval", "eval_interval",
        "target_steps", "target_samples", "target_tokens", "reported_convention",
        "gpu_power_w",
    }
)  # fmt: skip
"""Names of the operating point that collectors may state; `parameters` are of the whole model,
`gpu_power_w` is the measured power of one GPU."""

CAUSES: Final = (
    "gpu", "gpu_hbm", "gpu_sram", "gpu_system_processor", "gpu_thermal", "silent_data_corruption",
    "nic", "network", "nccl_watchdog", "host_maintenance", "software", "dependency", "ssd",
    "power_supply", "chassis", "io_board", "cpu", "system_memory", "storage", "out_of_memory",
    "preempted", "time_limit", "operator", "divergence", "unknown",
)  # fmt: skip
"""Root causes, in the categories of the Llama 3 paper's Table 5 and what jobs add to them."""

END_KINDS: Final = ("completed", "time_limit", "operator", "preempted", "host_maintenance", "failed")


def evidence(line: bytes | str) -> str:
    """Return a line as bounded text for `Event.text`; invalid UTF-8 becomes U+FFFD."""
    text = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
    return text.strip("\r\n")[:EVIDENCE_CHARS]


def problem(reading: Reading) -> str | None:
    """Return why a reading cannot be kept, in words fit for `Reject.reason`; None if it can.

    >>> problem(Reading(0, 1_767_225_600_000_000, 10, 1_500_000))
    >>> problem(Reading(0, 1_767_225_600_000_000, 10, -5))
    'step time is not above zero'
    """
    at_us = reading.at_us
    if at_us is not None and not EARLIEST_US <= at_us < LATEST_US:
        return "time stamp outside 2000..2100"
    if not 0 <= reading.step < LARGEST:
        return "step is negative or too large"
    if reading.step_time_us is not None and not 0 < reading.step_time_us < LARGEST:
        return "step time is not above zero" if reading.step_time_us <= 0 else "step time is too large"
    counts: Iterable[int | None] = (
        reading.samples,
        reading.tokens,
        reading.batch,
        reading.tokens_per_step,
        reading.skipped,
    )
    for count in counts:
        if count is not None and not 0 <= count < LARGEST:
            return "a count is negative or too large"
    return None

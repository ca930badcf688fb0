"""Everything that decides a simulated run, and the presets that tests and people ask for by name.

Pure. The same parameters (with their seed) give the same run, the same text and the same truth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

Style = Literal["megatron", "megatron_0_8", "megatron_old", "bloom", "jsonl"]
"""Which framework's words the log is written in; `sight.py` says what each of them can tell."""

START_US: Final = 1_767_600_000_000_000
"""2026-01-05T08:00:00Z: when the first job of a simulated run is submitted."""

CAUSES: Final[Mapping[str, float]] = {
    "gpu": 0.20,
    "gpu_hbm": 0.20,
    "network": 0.14,
    "nccl_watchdog": 0.14,
    "software": 0.14,
    "out_of_memory": 0.04,
    "node": 0.14,
}
"""Weights of what goes wrong by chance. `node` is a host that falls silent: the scheduler notices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """Something that somebody does (or that fate does) when the run first completes a step."""

    step: int
    """Net step after which it happens."""
    what: Literal[
        "crash", "hang", "silent", "preempt", "cancel", "maintenance", "gpus", "rollback", "rejoin", "stall"
    ]
    """crash: a failure by `cause`; hang: a watchdog ends it; silent: a host dies; stall: nothing ever ends
    it; preempt, cancel, maintenance: the scheduler's words; gpus: an orderly stop, more or fewer GPUs after;
    rollback: stopped by hand, resumed far below; rejoin: stopped, resumed on the branch once abandoned."""
    cause: str = "software"
    """For a crash."""
    to_step: int = 0
    """For rollback and rejoin: the highest step to resume from."""
    gpus: int = 0
    """For gpus: the new world size."""
    in_job: bool = False
    """For a crash or hang: restarted inside the same job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """One simulated run. Durations are seconds; shares and probabilities are 0..1."""

    preset: str = "steady"
    seed: int = 1
    style: Style = "megatron"
    start_us: int = START_US

    # the model and the machine
    total_steps: int = 1500
    """Where training is done."""
    horizon_s: float | None = None
    """The observation ends this long after `start_us`; None: an hour after the run is over."""
    inherited_steps: int = 0
    """Steps done before anybody looked: the first attempt resumes there."""
    gpus: int = 256
    """World size at first."""
    gpus_per_node: int = 8
    spares: int = 0
    """Hot spares: GPUs that the scheduler gives beyond the world size."""
    tensor_parallel: int = 4
    pipeline_parallel: int = 2
    sequence_length: int = 4096
    batch: int = 512
    """Sequences in a step, after the ramp."""
    ramp_from: int | None = None
    """Sequences in a step at first; None: no ramp."""
    ramp_by: int = 64
    ramp_samples: int = 200_000
    """The ramp is over after so many samples."""
    active_params: float = 32e9
    peak_flop_per_s: float = 989e12

    # time of a step
    step_s: float = 4.0
    """Mean time of a step with `batch` sequences on `gpus` GPUs."""
    noise: float = 0.02
    """Spread of one step, relative."""
    drift: float = 0.0
    """Relative change per 1,000 steps."""
    slow_share: float = 0.001
    """Probability per step that a slow-node episode begins."""
    slow_factor: float = 1.15
    slow_steps: int = 60
    first_step_s: float = 25.0
    """What the first step of a process takes longer (JIT, autotune)."""

    # what happens between steps
    log_interval: int = 10
    save_interval: int = 125
    save_s: float = 18.0
    asynchronous: bool = False
    """Saves block for `async_block_s` only and are durable `async_write_s` later."""
    async_block_s: float = 2.5
    async_write_s: float = 90.0
    eval_interval: int = 500
    """A multiple of the log interval, so that an evaluation follows a reading; 0: none."""
    eval_s: float = 40.0
    skip_share: float = 0.002
    """Probability per step that its update is dropped by the loss scaler."""
    nan_share: float = 0.0

    # starting up, seconds each, in order: until the first line, then phase by phase
    prolog_s: float = 35.0
    init_s: float = 45.0
    build_s: float = 30.0
    load_s: float = 60.0
    """With a checkpoint; a tenth of it without."""
    data_s: float = 12.0
    startup_spread: float = 0.25

    # trouble
    mtbf_h: float | None = None
    """Mean attempt time between failures by chance; None: none."""
    failure_shape: float = 1.0
    """Weibull shape: 1 has no memory, below 1 failures come in bunches."""
    causes: Mapping[str, float] = field(default_factory=lambda: dict(CAUSES))
    in_job_share: float = 0.3
    """Share of failures by chance that are restarted inside the job (never a silent host)."""
    requeue_share: float = 0.3
    """Share of new jobs after a failure that keep the job id."""
    early_death_share: float = 0.0
    """Share of attempts after a failure that die before their first step."""
    watchdog_s: float = 600.0
    detect_s: float = 45.0
    """Mean time from a crash to the end of its processes."""
    node_timeout_s: float = 300.0
    """How long the scheduler takes to give up a silent host."""
    restart_s: float = 25.0
    """Mean time from the death of the processes to the next launch inside the job."""
    queue_s: float = 240.0
    """Mean time from a job's end to the next one's start; long now and then (heavy tail)."""
    time_limit_h: float | None = None
    """Slurm's limit: the job is killed there."""
    exit_after_h: float | None = None
    """The framework's own limit: it saves and leaves in good order."""
    preempt_per_day: float = 0.0
    acts: tuple[Act, ...] = ()

    # the text
    scheduler: bool = True
    """Whether there is a scheduler's record of the jobs."""
    files: Literal["per_attempt", "append", "rotate"] = "per_attempt"
    chatter: float = 0.3
    """Lines that say nothing, per line that says something."""
    prefix: Literal["", "rank", "default", "srun"] = ""
    twice_share: float = 0.0
    """Share of iteration lines that a second rank prints too."""

    def __post_init__(self) -> None:
        if self.eval_interval % self.log_interval:
            raise ValueError(f"eval_interval = {self.eval_interval}: expected a multiple of the log interval")
        if self.gpus % (self.tensor_parallel * self.pipeline_parallel):
            raise ValueError(f"gpus = {self.gpus}: expected a multiple of tensor x pipeline parallel size")


PRESETS: Final[Mapping[str, Mapping[str, Any]]] = {
    "steady": {"total_steps": 1500, "exit_after_h": 0.8},
    "llama_like": {
        "total_steps": 2500,
        "gpus": 1024,
        "batch": 2048,
        "spares": 16,
        "log_interval": 5,
        "save_interval": 83,
        "asynchronous": True,
        "eval_interval": 250,
        "mtbf_h": 0.45,
        "failure_shape": 0.8,
        "early_death_share": 0.12,
        "preempt_per_day": 2.0,
        "files": "append",
        "twice_share": 0.05,
        "chatter": 1.0,
    },
    "ramp": {
        "total_steps": 1600,
        "ramp_from": 64,
        "ramp_by": 32,
        "ramp_samples": 300_000,
        "mtbf_h": 1.0,
        "noise": 0.04,
        "drift": 0.05,
        "inherited_steps": 70,
    },
    "rollback": {
        "total_steps": 1400,
        "save_interval": 100,
        "nan_share": 0.001,
        "acts": (
            Act(step=437, what="rollback", to_step=200),
            Act(step=505, what="crash", cause="gpu_hbm", in_job=True),
            Act(step=830, what="rollback", to_step=400),
            Act(step=560, what="rejoin", to_step=800),
            Act(step=1033, what="crash", cause="software"),
        ),
    },
    "elastic": {
        "total_steps": 1500,
        "gpus": 256,
        "spares": 8,
        "prefix": "default",
        "acts": (
            Act(step=310, what="gpus", gpus=192),
            Act(step=555, what="preempt"),
            Act(step=700, what="silent"),
            Act(step=777, what="gpus", gpus=320),
            Act(step=1200, what="maintenance"),
            Act(step=1203, what="hang", in_job=True),
        ),
    },
    "clockless": {
        "style": "megatron_old",
        "total_steps": 1200,
        "mtbf_h": 0.8,
        "in_job_share": 0.0,
        "save_interval": 120,
        "early_death_share": 0.1,
    },
    "young": {"total_steps": 4000, "horizon_s": 11 * 60.0, "files": "append"},
    "stalled": {
        "total_steps": 4000,
        "acts": (Act(step=420, what="crash", cause="gpu"), Act(step=733, what="stall")),
        "horizon_s": 3.2 * 3600,
    },
    "demo": {
        "total_steps": 476_837,  # 4e12 tokens
        "horizon_s": 38.2 * 3600.0,
        "gpus": 1024,
        "spares": 16,
        "batch": 1024,
        "sequence_length": 8192,
        "active_params": 13e9,
        "step_s": 1.52,
        "noise": 0.05,
        "slow_share": 4e-6,
        "slow_factor": 1.08,
        "slow_steps": 4000,
        "skip_share": 2e-5,
        "log_interval": 100,
        "save_interval": 1500,
        "asynchronous": True,
        "async_block_s": 4.0,
        "async_write_s": 120.0,
        "eval_interval": 5000,
        "eval_s": 75.0,
        "load_s": 140.0,
        "mtbf_h": 6.0,
        "failure_shape": 0.8,
        "queue_s": 420.0,
        "exit_after_h": 9.5,
        "chatter": 0.15,
        "acts": (Act(step=54_210, what="rollback", to_step=50_000),),
    },
    "finished": {
        "total_steps": 1000,
        "mtbf_h": 0.7,
        "time_limit_h": 0.6,
        "save_interval": 73,
        "files": "rotate",
        "prefix": "srun",
        "in_job_share": 0.5,
    },
}
"""Presets by name: what differs from `Parameters`' defaults."""


def preset(name: str, *, seed: int = 1, **changes: Any) -> Parameters:
    """Return a preset's parameters, with any of them changed; KeyError for an unknown name."""
    return replace(Parameters(preset=name, seed=seed, **PRESETS[name]), **changes)

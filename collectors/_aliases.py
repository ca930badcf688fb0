"""Which key of a JSON record means what: the names that training code uses for the same few numbers.

Pure. `plan` looks at the keys of a record, once for each set of keys. A name counts as it is, or after a
name space such as `train/`, `perf/` or `optim/`; what stands under `eval`, `val`, `test` or `system` is of
another loop. Where a record has several names for one number, the first in the table wins. Rates without
a word on what they cover (`tps`, `throughput`) are in no table: see `Plan.rates`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

STEP: Final = (
    "step", "global_step", "iteration", "iter", "num_updates", "update", "updates", "optimizer_step",
    "opt_step", "train_step", "training_step", "batch", "_step",
)  # fmt: skip
"""`_step` is wandb's own counter, `batch` may be a size: they count where nothing better is there."""
TOKENS: Final = (
    "tokens", "total_tokens", "tokens_seen", "num_tokens_seen", "total_tokens_seen", "consumed_tokens",
    "consumed_train_tokens", "tokens_consumed", "tokens_processed", "num_input_tokens_seen", "n_tokens",
    "trained_tokens", "train_tokens", "tokens_total", "cumulative_tokens",
)  # fmt: skip
SAMPLES: Final = (
    "samples", "consumed_samples", "consumed_train_samples", "samples_seen", "num_samples_seen",
    "total_samples", "samples_consumed", "samples_processed", "trained_samples", "sequences_seen",
    "samples_total",
)  # fmt: skip
BATCH: Final = ("global_batch_size", "gbs", "train_batch_size", "total_batch_size", "global_batch")
"""Not `batch_size`: it is a micro batch as often as a global one."""
TOKENS_PER_STEP: Final = (
    "tokens_per_step", "tokens_per_batch", "tokens_per_iter", "tokens_per_iteration", "tokens_per_update",
    "batch_tokens",
)  # fmt: skip
SKIPPED: Final = ("skipped", "skipped_steps", "skipped_iterations", "number_of_skipped_iterations")
STEP_TIME: Final = (
    "step_time", "train_step_time", "step_duration", "iter_time", "iteration_time", "curr_iter_time",
    "iter_duration", "time_per_step", "time_per_iteration", "time_per_batch", "batch_time", "update_time",
    "elapsed_time_per_iteration", "train_step_timing", "per_step", "per_iteration", "per_iter",
)  # fmt: skip
"""With a unit behind it: `_s`, `_ms`, `(ms)`, ` in s`; or before it: `seconds_per_step`. None is seconds."""
TIME: Final = (
    "at", "timestamp", "_timestamp", "@timestamp", "created_at", "datetime", "unix_time", "ts", "asctime",
    "wall_time", "walltime", "time", "date",
)  # fmt: skip
"""Those from `ts` on are believed only where the value can be a moment: they may be an elapsed time."""
SURE_TIMES: Final = frozenset(TIME[: TIME.index("ts")])
LOSS: Final = ("loss", "lm_loss", "train_loss", "training_loss", "reduced_train_loss", "ce_loss")
GPUS: Final = ("gpus", "num_gpus", "n_gpus", "ngpus", "world_size")
SEQUENCE: Final = (
    "sequence_length", "seq_length", "seq_len", "max_seq_len", "max_seq_length", "max_sequence_length",
    "context_length",
)  # fmt: skip
RATES: Final = (
    "tps", "wps", "tgs", "tokens_per_second", "tokens_per_sec", "tokens_per_s", "tok_per_s", "tokens_sec",
    "tokens_s", "throughput",
)  # fmt: skip
"""Of the cluster with some frameworks, of one device with others: used only where the source says which."""

LOOPS: Final = ("mode", "split", "phase", "stage")
"""Keys whose word may tell that a record is of validation."""

FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "step": STEP, "tokens": TOKENS, "samples": SAMPLES, "global_batch_size": BATCH,
    "tokens_per_step": TOKENS_PER_STEP, "skipped": SKIPPED, "step_time": STEP_TIME, "at": TIME, "loss": LOSS,
    "gpus": GPUS, "sequence_length": SEQUENCE, "rate": RATES,
}  # fmt: skip
_RANK: Final = {name: (field, rank) for field, names in FIELDS.items() for rank, name in enumerate(names)}

_UNITS: Final = {
    "s": 1e6, "sec": 1e6, "secs": 1e6, "second": 1e6, "seconds": 1e6, "ms": 1e3, "msec": 1e3, "millis": 1e3,
    "milliseconds": 1e3, "us": 1.0, "usec": 1.0, "microseconds": 1.0, "ns": 1e-3, "min": 6e7, "minutes": 6e7,
}  # fmt: skip
_UNIT: Final = "|".join(sorted(_UNITS, key=len, reverse=True))
_TIMED: Final = re.compile(rf"(.+?)(?:_in)?(?:_\(|_|\()({_UNIT})\)?")
_TIMED_FIRST: Final = re.compile(rf"({_UNIT})_(per_.+)")
_OTHER_LOOP: Final = re.compile(r"(?:eval|evaluation|val|valid|validation|test|system)(?:[/_].*)?")
_ASKING: Final = frozenset({"kind", *LOOPS})


class Plan(NamedTuple):
    """Where the numbers stand in records of one shape; None where they do not."""

    step: str | None = None
    tokens: str | None = None
    samples: str | None = None
    batch: str | None = None
    tokens_per_step: str | None = None
    skipped: str | None = None
    step_time: str | None = None
    step_time_us: float = 1e6
    """Microseconds in one unit of `step_time`."""
    ours: bool = False
    """The step time stands under the documented name, so it is a mean since the reading before."""
    at: str | None = None
    sure: bool = False
    """The name of `at` can mean nothing else than a moment."""
    loss: str | None = None
    gpus: str | None = None
    sequence: str | None = None
    rate: str | None = None
    other_loop: bool = False
    """The record is of an evaluation, or of the machine, and tells nothing of training."""
    counts: tuple[str | None, ...] = ()
    """batch, skipped and tokens_per_step, where any of them is there."""
    plain: bool = False
    """A step and no key that asks for more than taking numbers over."""


@lru_cache(maxsize=2048)
def plan(keys: tuple[str, ...], own: tuple[tuple[str, str], ...] = ()) -> Plan:
    """Return what each key of a record means; `own` holds (field, key) pairs that the user has set.

    >>> plan(("train/global_step", "loss", "_timestamp", "train/step_time_ms"))[:2]
    ('train/global_step', None)
    >>> plan(("step", "eval/loss")).other_loop, plan(("iter", "tps")).rate
    (True, 'tps')
    """
    best: dict[str, tuple[int, str, float]] = {}
    others = False
    for key in keys:
        name = key.lower().replace(" ", "_").replace("-", "_").replace(".", "/")
        if _OTHER_LOOP.fullmatch(name):
            others = True
            continue
        field, rank, scale = _meaning(name)
        if field and (field not in best or rank < best[field][0]):
            best[field] = (rank, key, scale)
    for field, key in own:
        if key in keys:
            scale = _meaning(f"{'step_time'}{_unit_suffix(key)}")[2] if field == "step_time" else 1e6
            best[field] = (-1, key, scale)

    def key_of(field: str) -> str | None:
        return best[field][1] if field in best else None

    step_time, at = key_of("step_time"), key_of("at")
    rare = tuple(key_of(field) for field in ("global_batch_size", "skipped", "tokens_per_step"))
    asks = {"gpus", "sequence_length", "rate"} & set(best) or _ASKING & set(keys)
    trains = any(field in best for field in ("tokens", "samples", "step_time", "loss", "rate"))
    return Plan(
        step=key_of("step"),
        tokens=key_of("tokens"),
        samples=key_of("samples"),
        batch=key_of("global_batch_size"),
        tokens_per_step=key_of("tokens_per_step"),
        skipped=key_of("skipped"),
        step_time=step_time,
        step_time_us=best["step_time"][2] if step_time is not None else 1e6,
        ours=step_time in ("step_time_s", "step_time_ms"),
        at=at,
        sure=at is not None and (best["at"][0] < len(SURE_TIMES)),
        loss=key_of("loss"),
        gpus=key_of("gpus"),
        sequence=key_of("sequence_length"),
        rate=key_of("rate"),
        other_loop=others and not trains,
        counts=rare if any(rare) else (),
        plain="step" in best and not asks and not (others and not trains),
    )


def _meaning(name: str) -> tuple[str, int, float]:
    """Return the field, its rank among the names for it, and microseconds in a unit; "" for no field."""
    for part in (name, name.rpartition("/")[2]):
        if part in _RANK:
            field, rank = _RANK[part]
            return field, rank, 1e6
        timed = _TIMED.fullmatch(part)
        base, unit = (timed[1], timed[2]) if timed else ("", "")
        if not timed and (first := _TIMED_FIRST.fullmatch(part)):
            base, unit = first[2], first[1]
        field, rank = _RANK.get(base, ("", 0))
        if field in ("step_time", "at"):
            return field, rank, _UNITS[unit]
    return "", 0, 1e6


def _unit_suffix(key: str) -> str:
    timed = _TIMED.fullmatch(key.lower().replace(" ", "_"))
    return f"_{timed[2]}" if timed else ""


def first(record: Mapping[str, object], names: Iterable[str]) -> object:
    """Return the value of the first of some names that a record has; None where it has none."""
    for name in names:
        if name in record:
            return record[name]
    return None

"""What the Trainer's logger says around the progress: that training begins, of what, saves, evaluation, end.

Pure. Printed at log level INFO only, by every node, with a stamp that may be glued to a state of the bar.
Thousands are separated since 4.3x. World size is not printed: it is what divides the batches. That a save is
complete is told only where an older one is deleted for it; else the next progress proves it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from collectors._clock import STAMP, stamp_us
from collectors._lines import Hit, Rule, rule
from collectors._process import (
    begins,
    completed,
    done,
    ends,
    launched,
    once,
    process,
    resumed,
    setting,
    settings,
    sign,
)
from tracker.core.records import Kind, Record

NAME: Final = "Hugging Face Trainer"
_LOGGED: Final = re.compile(rb"\.py:\d{1,5}\] (" + STAMP + rb") >> ")


def _moment(hit: Hit) -> int | None:
    """Return the time of a logger's line, also where it is glued to a state of the bar."""
    stamps = _LOGGED.findall(hit.text)
    return stamp_us(stamps[-1], hit.context) if stamps else hit.stamp_us()


def _training(hit: Hit) -> Iterator[Record]:
    """It begins now: the bar is drawn right after it."""
    yield from launched(hit, "training", NAME)
    one, at_us = process(hit), _moment(hit)
    if once(hit, "training"):
        if at_us is not None:
            one["anchor"] = at_us
        yield hit.event(Kind.TRAIN_START, at_us=at_us)


def _stated(hit: Hit) -> Iterator[Record]:
    """`name = value`, thousands separated since 4.3x. The number of GPUs is what divides the batches."""
    name, value, one = hit.group("name") or b"", hit.count("value"), process(hit)
    if not value:
        return
    if name.startswith(b"Gradient"):
        batch, micro = setting(hit, "global_batch_size"), setting(hit, "micro_batch_size")
        if batch and micro and batch % (micro * value) == 0:
            yield from settings(hit, {"gpus": batch // (micro * value)})
        return
    key = _STATES[name[:5]]
    if key == "target_steps" and one.get("ran"):
        return
    yield from settings(hit, {key: value})


_STATES: Final = {b"Insta": "micro_batch_size", b"Total": "global_batch_size", b"optim": "target_steps"}


def _resumes(hit: Hit) -> Iterator[Record]:
    step = hit.count(1)
    if step is not None:
        yield from resumed(hit, step, at_us=_moment(hit))


def _saves(hit: Hit) -> Iterator[Record]:
    """checkpoint-N holds N steps; any other name is the model at the end. Every node may say it."""
    named = hit.count("step") if hit.group("step") else None
    step = done(hit) if named is None else named
    if not once(hit, f"save {hit.match['path'][-60:]!r}"):
        return
    process(hit)["said"] = process(hit)["said"][-40:]
    process(hit)["saved"] = step
    yield from begins(hit, Kind.SAVE_START, step, at_us=_moment(hit))


def _saved(hit: Hit) -> Iterator[Record]:
    """Older ones go when the new one is complete."""
    for event in ends(hit, Kind.SAVE_END, at_us=_moment(hit)):
        process(hit).pop("saved", None)
        yield event


def _model_saved(hit: Hit) -> Iterator[Record]:
    """The last file of a model; a checkpoint's optimiser is written after it, and that is not told."""
    if b"checkpoint-" not in hit.text:
        yield from _saved(hit)


def _loads(hit: Hit) -> Iterator[Record]:
    """The library at work before training: one sign of life in ten seconds, of all ranks."""
    one, at_us = process(hit), hit.stamp_us()
    if at_us is not None and at_us - one.get("sign", 0) >= 10_000_000:
        one["sign"] = at_us
        yield from sign(hit)


def _evaluates(hit: Hit) -> Iterator[Record]:
    yield from begins(hit, Kind.EVAL_START, done(hit), at_us=_moment(hit))


def _rank(hit: Hit) -> Iterator[Record]:
    yield from launched(hit, "rank", NAME)


RULES: Final[tuple[Rule, ...]] = (
    rule(b"Running training *", rb"\*{5} Running training \*{5}", _training),
    rule(b"Starting trainer", rb"\bStarting trainer\.\.\.", _training),
    rule(b"Process rank: ", rb"\bProcess rank: \d{1,7}, device: ", _rank),
    rule(
        b"batch size",
        rb"  (?P<name>Instantaneous batch size per device|Total train batch size \([^)\n]{1,80}\)) = "
        rb"(?P<value>[\d,]{1,20})",
        _stated,
    ),
    rule(b"Gradient Accum", rb"  (?P<name>Gradient Accumulation steps) = (?P<value>[\d,]{1,20})", _stated),
    rule(
        b" optimization steps",
        rb"  Total (?P<name>optimization steps) = (?P<value>[\d,]{1,20})",
        _stated,
    ),
    rule(b"from global step", rb"Continuing training from global step ([\d,]{1,20})", _resumes),
    rule(
        b"aving model checkpoint",
        rb"Saving model checkpoint to (?P<path>\S{0,400}?(?:checkpoint-(?P<step>\d{1,15}))?)(?:\s|$)",
        _saves,
    ),
    rule(b"Deleting older check", rb"Deleting older checkpoint \[", _saved),
    rule(b"Running ", rb"\*{5} Running [Ee]valuation \*{5}", _evaluates),
    rule(b"Training completed", rb"Training completed(?:\. Do not forget|!)", completed),
    rule(b"Special tokens file", rb"Special tokens file saved in \S", _model_saved),
    rule(b"INFO|", rb"^\[INFO\|(?:modeling|configuration)_utils\.py:\d{1,5}\] ", _loads),
)

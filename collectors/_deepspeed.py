"""What DeepSpeed's engine and launcher print, whichever framework drives them: start, steps, saves, ends.

Pure. Its lines carry a stamp with milliseconds, local without a zone. Traps: the launcher's line stands once
a node, others once a rank; several engines in one process (actor, critic) print one banner each;
`world_size` of the configuration is the data-parallel size where a pipeline is there; the throughput timer
counts steps from the start of its process, not of the run, and leaves out what happens between two steps; a
checkpoint is written by every rank, and the end of it is told up to two times.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from collectors._lines import Hit, Make, Rule, rule
from collectors._process import begins, done, ends, launched, process, resumed, setting, settings, sign
from collectors._text import whole
from collectors._torchrun import of_exit_code
from collectors._trouble import failure
from tracker.core.records import Json, Kind, Record

_TAG: Final = re.compile(rb"global_step(\d{1,18})")


def step_of(text: bytes) -> int | None:
    """Return the step that a checkpoint's tag or path names.

    >>> step_of(b"ckpt/global_step400/mp_rank_00_model_states.pt"), step_of(b"ckpt/last")
    (400, None)
    """
    found = _TAG.search(text)
    return None if found is None else whole(found[1])


# -- start -----------------------------------------------------------------------------------------------


def _started(framework: str, mark: str) -> Make:
    return lambda hit: launched(hit, mark, framework)


def _workers(hit: Hit) -> Iterator[Record]:
    """The launcher's own count, from each node."""
    yield from settings(hit, {"gpus": hit.count(1)})


def _engine(framework: str) -> Make:
    """Return the rule for the engine's banner: a start only where nothing else has said so.

    Several engines of one process print it one after another, minutes apart.
    """

    def make(hit: Hit) -> Iterator[Record]:
        one = process(hit)
        if not one.get("marks") or one.get("ran"):
            yield from launched(hit, "engine", framework)

    return make


def _topology(hit: Hit) -> Iterator[Record]:
    """A pipeline: the line lists each process with its place."""
    process(hit)["pipe"] = True
    if hit.text.rstrip().endswith(b"}"):
        yield from settings(hit, {"gpus": hit.text.count(b"ProcessCoord(")})


_COUNTS: Final = {
    b"train_batch_size": "global_batch_size",
    b"train_micro_batch_size_per_gpu": "micro_batch_size",
    b"world_size": "data_parallel",
}
_PRECISION: Final = {
    b"fp16_enabled": "fp16",
    b"float16_config": "fp16",
    b"bfloat16_enabled": "bf16",
    b"bfloat16_config": "bf16",
}


def _configuration(hit: Hit) -> Iterator[Record]:
    """`name .... value`, a line each; the framework may say it again, and better."""
    name, value = hit.group("name") or b"", hit.group("value") or b""
    count = whole(value)
    if name in _COUNTS and count:
        found: dict[str, Json] = {_COUNTS[name]: count}
        if name == b"world_size" and not process(hit).get("pipe") and setting(hit, "gpus") is None:
            found["gpus"] = count
        yield from settings(hit, found)
    elif name in _PRECISION and value.startswith((b"True", b"enabled=True")):
        yield from settings(hit, {"precision": _PRECISION[name]})


# -- checkpoints -------------------------------------------------------------------------------------------


def _saves(hit: Hit) -> Iterator[Record]:
    step = step_of(hit.text)
    step = done(hit) if step is None else step
    events = list(begins(hit, Kind.SAVE_START, step))
    if events:
        process(hit)["saving"] = [step, hit.stamp_us()]
    yield from events


def _saved(hit: Hit) -> Iterator[Record]:
    """The first rank that is done; the tag's own line, where there is one, tells it better."""
    step = step_of(hit.text)
    yield from ends(hit, Kind.SAVE_END, done(hit) if step is None else step)


def _ready(hit: Hit) -> Iterator[Record]:
    """All ranks are done: how long it took from the first line on."""
    one = process(hit)
    begun: Any = one.pop("saving", None)
    at_us = hit.stamp_us()
    if begun is None:
        return
    one.get("busy", {}).pop(str(Kind.SAVE_START), None)
    one["free"] = at_us
    length = at_us - begun[1] if at_us is not None and begun[1] is not None and at_us > begun[1] else None
    yield hit.event(Kind.SAVE_END, step=begun[0], duration_us=length)


def _loaded(hit: Hit) -> Iterator[Record]:
    step = step_of(hit.text)
    if step is not None:
        yield from resumed(hit, step)


# -- ends ------------------------------------------------------------------------------------------------


def _exit_code(hit: Hit) -> Iterable[Record]:
    code = int(hit.group("code") or b"1")
    what = of_exit_code(code)
    return () if what is None else failure(hit, f"exit {code}", what, exit_code=code)


_STEP: Final = rb"\bstep=(?P<step>\d{1,18}), skipped=(?P<skipped>\d{1,18}), lr="


def rules(framework: str, step: Make) -> tuple[Rule, ...]:
    """Return the rules for DeepSpeed's lines; `step` makes the records of `step=40, skipped=2, lr=...`.

    Step 0, which old versions print when an engine is ready, is a sign of life.
    """

    def counted(hit: Hit) -> Iterable[Record]:
        return step(hit) if hit.count("step") else sign(hit)

    return (
        rule(b", skipped=", _STEP, counted),
        rule(b"WORLD INFO DICT", rb"\] WORLD INFO DICT: \{", _started(framework, "launcher")),
        rule(
            b" with backend",
            rb"Initializing (?:torch distributed|TorchBackend in DeepSpeed) with backend",
            _started(framework, "init"),
        ),
        rule(
            b"DeepSpeed info: vers",
            rb"DeepSpeed info: version=[\w.+-]{1,40}, git",
            _engine(framework),
        ),
        *_RULES,
    )


_RULES: Final[tuple[Rule, ...]] = (
    rule(b"dist_world_size=", rb"\bdist_world_size=(\d{1,7})\b", _workers),
    rule(b"Using topology", rb"Using topology: ?\{ProcessCoord\(", _topology),
    rule(
        b"[config.py:",
        rb"\[config\.py:\d{1,6}:print\] {1,4}(?P<name>[a-z]\w{1,60}) (?:\.{1,60}| ) ?(?P<value>\S.{0,100})$",
        _configuration,
    ),
    rule(
        b"aving model checkpoint: ",
        rb"\] Saving model checkpoint: \S",
        _saves,
        within=b"aving model checkpoint",
    ),
    rule(b"to be saved!", rb"\] Checkpoint \S{1,200} is about to be saved!", _saves),
    rule(b"zero checkpoint saved", rb"\b(?:bf16_)?zero checkpoint saved \S", _saved),
    rule(b" is ready now!", rb"\] Checkpoint \S{1,200} is ready now!", _ready),
    rule(b"Loaded checkpoint from", rb"\[Torch\] Loaded checkpoint from \S{1,400}global_step\d", _loaded),
    rule(b" loading checkpoint: ", rb"rank: \d{1,7} loading checkpoint: \S{1,400}global_step\d", _loaded),
    rule(b"to find latest file", rb"Unable to find latest file at ", lambda hit: resumed(hit, 0)),
    rule(b"exits with return code", rb" exits with return code = (?P<code>-?\d{1,3})\b", _exit_code),
)

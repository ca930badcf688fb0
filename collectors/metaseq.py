"""metaseq (OPT) and fairseq logs: `2022-11-11 14:05:29 | INFO | train_inner | {"num_updates": "2", ...}`.

Pure. Statistics as JSON with numbers as text, or as `key=value` (fairseq), once a log interval, and once more
for each epoch. Stamps have whole seconds: UTC in metaseq, local in fairseq. Traps: all numbers are rounded to
six digits, so the tokens of a batch (wpb 1.04858e+06) are sequences x their length where that fits; wps is of
the whole cluster, leaves out the interval's first update, and is 0 at the first of all; an update that
overflowed is not counted at all; every rank that writes a part of a checkpoint says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from collectors._clock import STAMP, stamp_us
from collectors._events import EVENTS, FOLLOWERS
from collectors._lines import Hit, Reader, rule
from collectors._numbers import count, number
from collectors._own import first_sign
from collectors._process import (
    INCLUDES,
    NAN,
    ROUNDED,
    SAMPLE,
    begins,
    done,
    ends,
    launched,
    once,
    process,
    progress,
    resolution,
    resumed,
    settings,
)
from collectors._swift import AT, Match, Memory, Swift, Taken
from collectors._text import seconds_us, whole
from tracker.core.records import LARGEST, Kind, Reading, Record
from tracker.interfaces import Collector, Context, Evidence

_STAMP: Final = re.compile(STAMP)
_PAIR: Final = re.compile(rb"(?:^|[ ,|])(\w{1,40})(?:=| )([-+.\w]{1,24})(?=[ ,|]|$)")


def _at(hit: Hit) -> int | None:
    """Return when a line was written. metaseq's stamps are UTC wherever it runs; fairseq's are local."""
    if b"metaseq" in hit.text[:160] or b'"cuda_gb_' in hit.text:
        hit.state["utc"] = True
    found = None if hit.line.stamp or "utc" not in hit.state else _STAMP.match(hit.text)
    return hit.stamp_us() if found is None else stamp_us(found[0] + b"Z", hit.context)


def _json(hit: Hit) -> Iterator[Record]:
    """`train_inner` is of an interval; `train` is of the epoch, its names begin with train_."""
    try:
        body = json.loads(hit.text[hit.match.start("body") :])
    except (ValueError, RecursionError):
        yield hit.reject("torn JSON line")
        return
    if not isinstance(body, dict):
        return
    found = {key: str(value) for key, value in body.items() if isinstance(value, (str, int, float))}
    yield from _statistics(hit, hit.group("tag") or b"", found)


def _pairs(hit: Hit) -> Iterator[Record]:
    """fairseq's simple format: `epoch 001:   2800 / 160368 loss=9.255, ...`; an epoch's has pipes."""
    text = hit.text[hit.match.end() :]
    found = {key.decode(): value.decode("utf-8", "replace") for key, value in _PAIR.findall(text)}
    yield from _statistics(hit, hit.group("tag") or b"train_inner", found)


def _statistics(hit: Hit, tag: bytes, found: dict[str, str]) -> Iterator[Record]:
    """Take the numbers by their names; validation's are only the end of one."""
    if not tag.startswith(b"train"):
        yield from _validated(hit, found)
        return
    epoch = tag == b"train"
    names = ("train_{}", "{}") if epoch else ("{}",)

    def value(name: str) -> str | None:
        return next((found[key] for one in names if (key := one.format(name)) in found), None)

    step = count(value("num_updates"))
    if step is None:
        yield hit.reject("statistics without num_updates")
        return
    at_us, loss = _at(hit), value("loss")
    flags = resolution(at_us) | (NAN if loss is not None and number(loss) is None else 0)
    if epoch:  # means of the whole epoch
        yield from progress(hit, Reading(hit.offset, at_us, step, flags=flags))
        return
    reading = _inner(hit.offset, at_us, step, value("wpb"), value("bsz"), value("wps"), flags)
    if at_us is None:
        yield from _restarted(hit, number(value("wall")))
        seconds = _by_wall(hit, step, number(value("wall")))
        if reading.step_time_us is not None or seconds:
            kept = round(seconds * 1e6) or None if seconds and seconds < 1e9 else reading.step_time_us
            flags = reading.flags & ~SAMPLE | INCLUDES
            reading = reading._replace(step_time_us=kept, flags=flags)
    yield from progress(hit, reading)


def _inner(
    offset: int, at_us: int | None, step: int, wpb: str | None, bsz: str | None, wps: str | None, flags: int
) -> Reading:
    """The statistics of a log interval; the rate leaves its first update out, so it is only for charts."""
    tokens, exact = _tokens(wpb, bsz)
    rate = number(wps)
    seconds = tokens / rate if tokens and rate and rate > 0 else 0.0
    step_time_us = round(seconds * 1e6) or None if seconds < 1e9 else None
    flags |= (SAMPLE if step_time_us else 0) | (0 if exact else ROUNDED)
    return Reading(offset, at_us, step, step_time_us, batch=count(bsz), flags=flags, tokens_per_step=tokens)


def _taken(match: Match, at_us: int | None, offset: int, one: Memory) -> Taken | None:
    """The same of a usual JSON line."""
    wps, wpb, bsz, step = match.group(1, 2, 3, 4)
    flags = resolution(at_us)
    return _inner(offset, at_us, int(step), wpb.decode(), bsz.decode(), wps.decode(), flags), {}


def _stamped(match: Match, context: Context) -> int | None:
    """The head's stamp; the first line that shows whose clock it is, is for the rules."""
    if "utc" in context.state:
        return stamp_us(match["at"] + b"Z", context)
    line = match.string[match.end() : match.string.find(b"\n", match.end())]
    return None if b'"cuda_gb_' in line else stamp_us(match["at"], context)


_SWIFT: Final = Swift(
    b'| {"',
    rb"(?:slurm_procid \d{1,7} : )?" + AT + rb" \| INFO \| ",
    rb'train_inner \| \{"epoch": \d{1,9}, (?:"update": [\d.]{1,16}, )?"loss": "[-\d.e+]{1,24}", '
    rb'(?:"(?!wps)\w{1,24}": "[^"\n]{1,24}", ){0,9}"wps": "([\d.e+]{1,24})", "ups": "[\d.e+-]{1,24}", '
    rb'"wpb": "([\d.e+]{1,24})", "bsz": "([\d.e+]{1,24})", "num_updates": "(\d{1,18})"[^{}\n]{0,600}\}\n',
    _taken,
    stamp=_stamped,
)


def _restarted(hit: Hit, wall: float | None) -> Iterator[Record]:
    """Seconds since the process began, that went back, are of another process."""
    before = process(hit).get("wall")
    if before is not None and None not in (wall, before[1]) and wall < before[1]:
        hit.state["process"] = {}
        yield from launched(hit, "wall", _name(hit))


def _by_wall(hit: Hit, step: int, wall: float | None) -> float | None:
    """Return seconds in a step since the statistics before; without stamps that is the only clock."""
    one = process(hit)
    before, one["wall"] = one.get("wall"), [step, wall]
    if before is None or wall is None or before[1] is None or step <= before[0]:
        return None
    return float((wall - before[1]) / (step - before[0]))


def _tokens(batch_tokens: str | None, sequences: str | None) -> tuple[int | None, bool]:
    """Return tokens in a batch, and whether they are exact.

    Six digits are printed. Sequences of one length give a whole number: 512 x 2,048 prints as 1.04858e+06.
    """
    tokens, batch = number(batch_tokens), count(sequences)
    if tokens is None or not 0 < tokens < 2.0**62:
        return None, True
    if "e" not in str(batch_tokens):
        return round(tokens), tokens == round(tokens)
    if batch:
        length = round(tokens / batch)
        if f"{batch * length:g}" == f"{tokens:g}" and length * batch * 5e-6 < batch:
            return batch * length, True
    return round(tokens), False


# -- start -----------------------------------------------------------------------------------------------


def _name(hit: Hit) -> str:
    return "metaseq" if b"metaseq" in hit.text or "utc" in hit.state else "fairseq"


def _initialised(hit: Hit) -> Iterator[Record]:
    """Each rank says it."""
    yield from launched(hit, "rank", _name(hit), at_us=_at(hit))


_STATED: Final = re.compile(
    rb"['\"]?\b(max_update|tokens_per_sample|distributed_world_size|save_interval_updates"
    rb"|validate_interval_updates|log_interval)['\"]?[=:] ?(\d{1,12})\b"
)
_COUNTS: Final = {
    b"max_update": "target_steps",
    b"tokens_per_sample": "sequence_length",
    b"distributed_world_size": "gpus",
    b"save_interval_updates": "save_interval",
    b"validate_interval_updates": "eval_interval",
    b"log_interval": "log_interval",
}


def _arguments(hit: Hit) -> Iterator[Record]:
    """The whole configuration on one line: a Namespace, or a dict. 0 is "never", and no fact."""
    if b"Namespace(" not in hit.text and b"{" not in hit.text:
        return
    at_us = _at(hit)
    yield from launched(hit, "arguments", _name(hit), at_us=at_us)
    stated = _STATED.findall(hit.text)
    yield from settings(hit, {_COUNTS[name]: whole(value) or None for name, value in stated}, at_us=at_us)


def _devices(hit: Hit) -> Iterator[Record]:
    at_us = _at(hit)
    if not process(hit).get("marks"):
        yield from launched(hit, "devices", _name(hit), at_us=at_us)
    yield from settings(hit, {"gpus": hit.count(1)}, at_us=at_us)


def _parameters(hit: Hit) -> Iterator[Record]:
    """metaseq sums the original sizes of sharded parameters."""
    yield from settings(hit, {"parameters": hit.count(1)}, at_us=_at(hit))


def _loaded(hit: Hit) -> Iterator[Record]:
    step = hit.count("step") if "step" in hit.match.groupdict() else 0
    yield from resumed(hit, step, at_us=_at(hit))


def _starts(hit: Hit) -> Iterator[Record]:
    if once(hit, "training"):
        yield hit.event(Kind.TRAIN_START, at_us=_at(hit))


# -- saves, evaluation, end ----------------------------------------------------------------------------------


def _saves(hit: Hit) -> Iterator[Record]:
    yield from begins(hit, Kind.SAVE_START, hit.count(1), at_us=_at(hit))


def _saved(hit: Hit) -> Iterator[Record]:
    """How long the writing took; copies to other storage go on."""
    length, step = seconds_us(hit.group("s")), hit.count("step")
    yield from ends(hit, Kind.SAVE_END, step, at_us=_at(hit), duration_us=length, alone=True)


def _validates(hit: Hit) -> Iterator[Record]:
    yield from begins(hit, Kind.EVAL_START, done(hit), at_us=_at(hit))


def _validated(hit: Hit, found: dict[str, str]) -> Iterator[Record]:
    step = count(next((value for name, value in found.items() if name.endswith("num_updates")), None))
    if step is None or step < LARGEST:
        yield from ends(hit, Kind.EVAL_END, step, at_us=_at(hit), alone=True)


def _done(hit: Hit) -> Iterator[Record]:
    if once(hit, "completed"):
        yield hit.event(Kind.COMPLETED, at_us=_at(hit))


def _loads(hit: Hit) -> Iterator[Record]:
    if not process(hit).get("ran") and (at_us := _at(hit)) is not None:
        yield hit.event(Kind.SIGN, at_us=at_us)


READER: Final = Reader(
    (
        rule(
            b'| {"',
            rb"\| INFO \| (?P<tag>train_inner|train|valid[\w/.-]{0,60}) \| (?P<body>\{\")",
            _json,
        ),
        rule(
            b"epoch ",
            rb"\| INFO \| (?P<tag>train_inner|train|valid[\w/.-]{0,60}) \| epoch \d{1,9}(?: \||:)(?= )",
            _pairs,
        ),
        rule(b"| epoch ", rb"^\| epoch \d{1,9}[: ] {1,9}\d{1,12} / \d{1,12}(?= loss=)(?P<tag>)", _pairs),
        rule(
            b"nitialized host",
            rb"\binitialized host \S{1,80} as rank \d{1,7}",
            _initialised,
        ),
        rule(b"distributed init (", rb"distributed init \(rank \d{1,7}\): ", _initialised),
        rule(b"tokens_per_sample", rb"\btokens_per_sample['\"]?[=:] ?\d", _arguments),
        rule(b"training on ", rb"training on (\d{1,7}) (?:devices \(GPUs/TPUs\)|GPUs$)", _devices),
        rule(b"num. model params: ", rb"num\. (?:shared )?model params: ([\d,]{1,26})\b", _parameters),
        rule(
            b"oaded checkpoint ",
            rb"\b[Ll]oaded checkpoint \S{1,400} \(epoch \d{1,9} @ (?P<step>\d{1,15}) updates\)",
            _loaded,
        ),
        rule(b"existing checkpoint", rb"\b[Nn]o existing checkpoint found ", _loaded),
        rule(b"iterating over", rb"Start iterating over samples", _starts),
        rule(b"begin training epoch", rb"begin training epoch \d", _starts),
        rule(
            b"Preparing to save",
            rb"Preparing to save checkpoint for epoch \d{1,9} @ (\d{1,15}) updates",
            _saves,
        ),
        rule(
            b"aved checkpoint ",
            rb"\b[Ss]aved checkpoint \S{1,400} \(epoch \d{1,9} @ (?P<step>\d{1,15}) updates[^)\n]{0,60}\) "
            rb"\(writing took (?P<s>[\d.]{1,20}) seconds\)",
            _saved,
        ),
        rule(b"begin validation on", rb"begin validation on \"\w", _validates),
        rule(b"done training in", rb"\bdone training in [\d.]{1,20} seconds", _done),
        rule(b"loading train data", rb"\| loading train data for epoch ", _loads),
        *EVENTS,
    ),
    followers=FOLLOWERS,
    hot=_SWIFT,
)

_OWN: Final = (
    (97, rb"\| INFO \| train_inner \| ", "`train_inner`"),
    (95, rb"\| INFO \| (?:metaseq|fairseq)[\w.]{0,60} \| ", "loggers of metaseq or fairseq"),
    (93, rb"(?m)^\| epoch \d{1,9}: {1,9}\d{1,12} / \d{1,12} loss=", "`| epoch 001: n / m loss=`"),
    (90, rb"training on \d{1,7} devices \(GPUs/TPUs\)", "`training on N devices`"),
    (90, rb"(?m)^\| training on \d{1,7} GPUs$", "`| training on N GPUs`"),
)


def detect(head: bytes) -> Evidence | None:
    """Find the name of its statistics, or of its loggers."""
    return first_sign(head, _OWN)


COLLECTOR: Final = Collector(
    name="metaseq",
    framework="metaseq (OPT, 2022 and later) and fairseq 0.8 to 0.12, JSON and simple format",
    version=1,
    parse=READER.parse,
    detect=detect,
    knows=(
        "time",
        "step",
        "tokens",
        "batch",
        "gpus",
        "parameters",
        "sequence length",
        "resume",
        "saves",
        "evaluation",
        "completion",
    ),
    needs=("run.timezone for fairseq; metaseq prints UTC",),
    notes=(
        "Updates that overflowed are not counted by the framework. The step time is of the interval's "
        "updates but its first; windows come from stamps, which have whole seconds."
    ),
)

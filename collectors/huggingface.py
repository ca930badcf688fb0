r"""Hugging Face Trainer consoles: a progress bar, and through it dicts: `{'loss': 0.86, ..., 'epoch': 0.97}`.

Pure. Transformers 4 and 5, and what stands on them: TRL, Axolotl, LlamaFactory, ms-swift. A dict has neither
step nor time: the state of the bar drawn just before it, on the same line, has the step, and the time since
training began (`_bars`). Traps: numbers are Python's (nan, inf), and text of four digits in version 5;
validation draws a bar of its own between the states of training's; banners are printed only at log level
INFO, and then by every node, as the dicts were by old versions; samples and steps per second of the last dict
are planned work by this attempt's time, too high after a resume. DeepSpeed's lines stand between.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from typing import Any, Final

from collectors._bars import STATE, advances, bar_of, due, told
from collectors._bars import begins as draws
from collectors._clock import stamp_us
from collectors._deepspeed import rules
from collectors._drawn import Drawn
from collectors._events import EVENTS, FOLLOWERS
from collectors._lines import Hit, Reader, rule
from collectors._numbers import count, number
from collectors._options import BATCHES, checked
from collectors._own import first_sign
from collectors._process import (
    NAN,
    ROUNDED,
    completed,
    done,
    durable,
    elapsed_s,
    launched,
    once,
    process,
    progress,
    resolution,
    setting,
    settings,
)
from collectors._text import clean
from collectors._trainer import NAME, RULES
from tracker.core.records import Json, Kind, Reading, Record
from tracker.interfaces import Collector, Evidence

_FIELD: Final = re.compile(r"'([^'\n]{1,80})': (?:'([^'\n]{0,80})'|([^,{}'\n]{1,80}))")
_DICT_FOLLOWS: Final = re.compile(rb"[\r ]{0,1000}\{'")
_TOKENS: Final = ("num_input_tokens_seen", "num_tokens", "tokens/total")
"""Trainer's own (with or without padding, as it was told), TRL's, Axolotl's."""


def _fields(text: bytes) -> dict[str, str]:
    found = _FIELD.findall(text.decode("utf-8", "replace"))
    return {name: (quoted or bare).strip() for name, quoted, bare in found}


# -- the bar -------------------------------------------------------------------------------------------------


def _bar(hit: Hit) -> Iterator[Record]:
    """A state of a bar without a name, or with the name that ms-swift gives it; other totals are not ours.

    Where no banner tells the total, the first bar is training's; a dict that stands behind another one
    shows it to be wrong.
    """
    n, total, s = hit.count("n"), hit.count("total"), elapsed_s(hit.group("elapsed") or b"0")
    target = setting(hit, "target_steps")
    if n is None or not total or (target is not None and total != target):
        return
    if n == 0:
        yield from draws(hit, NAME)
        yield from settings(hit, {"target_steps": total})
        return
    if process(hit).get("other"):  # the engine's lines have told the steps already
        return
    new = yield from _advanced(hit, n, total, s)
    line, place = hit.after
    if new and _DICT_FOLLOWS.match(line, place) is None and due(hit, total):
        yield from _told(hit)


def _advanced(hit: Hit, n: int, total: int, s: int) -> Generator[Record, None, bool]:
    """Take a state; return whether it is progress. Yield what it shows of the process."""
    new = yield from advances(hit, NAME, n, lambda: s)
    yield from settings(hit, {"target_steps": total})
    if new:
        bar_of(hit)["fresh"] = True
        _anchor(hit, n, s)
    return new


def _anchor(hit: Hit, step: int, s: int) -> None:
    """Learn when the bar began from a line with a clock: the engine's, of the same step."""
    one = process(hit)
    engine: Any = one.get("engine")
    if "anchor" not in one and engine is not None and engine[0] == step and engine[1] is not None:
        one["anchor"] = engine[1] - s * 1_000_000


def _told(hit: Hit, tokens: int | None = None, flags: int = 0) -> Iterator[Record]:
    return _went_on(hit, told(hit, tokens=tokens, flags=flags))


def _went_on(hit: Hit, records: Iterator[Record]) -> Iterator[Record]:
    """Yield records; after progress what was saved before it is complete."""
    for record in records:
        yield record
        saved = process(hit).pop("saved", None) if isinstance(record, Reading) else None
        if saved is not None:
            yield from durable(hit, saved)


def _engine(hit: Hit) -> Iterator[Record]:
    """DeepSpeed's line: a clock for the bar; where there is no bar, step and time."""
    one, step, at_us = process(hit), hit.count("step"), hit.stamp_us()
    one["engine"] = [step, at_us]
    bar = one.get("bar", {})
    if step is not None and "last" not in bar and not bar.get("whole"):
        one["other"] = True
        reading = Reading(hit.offset, at_us, step, flags=resolution(at_us))
        yield from _went_on(hit, progress(hit, reading))


# -- the dicts -----------------------------------------------------------------------------------------------


def _dict(hit: Hit) -> Iterator[Record]:
    end = hit.text.find(b"}", hit.match.start())
    found = _fields(hit.text[hit.text.rfind(b"{'", 0, hit.match.start()) : end if end >= 0 else None])
    if end < 0 or "epoch" not in found:
        yield hit.reject("torn dict")
    elif "train_runtime" in found:
        _count_copies(hit, once(hit, "summary"))
        yield from completed(hit)
    elif "loss" not in found and (names := [name for name in found if name.startswith("eval_")]):
        yield from _evaluated(hit, names, found)
    else:
        yield from _trained(hit, found)


def _count_copies(hit: Hit, new: bool) -> None:
    copies = hit.state.get("copies", 0)
    if not new:
        hit.state["copies"] = copies + 1 if isinstance(copies, int) else 1


def _evaluated(hit: Hit, names: list[str], found: dict[str, str]) -> Iterator[Record]:
    """One for each data set that is evaluated; its time is in the dict."""
    runtime = next((name for name in names if name.endswith("_runtime")), names[0])
    step, said = done(hit), process(hit).setdefault("evaluated", [])
    if said[:1] != [step]:
        said[:] = [step]
    _count_copies(hit, runtime not in said)
    if runtime in said:
        return
    said.append(runtime[:80])
    length = number(found.get(runtime)) if runtime.endswith("_runtime") else None
    process(hit).get("busy", {}).pop(str(Kind.EVAL_START), None)
    length_us = round(length * 1e6) if length is not None and 0 <= length < 1e9 else None
    yield hit.event(Kind.EVAL_END, step=step, duration_us=length_us)


def _trained(hit: Hit, found: dict[str, str]) -> Iterator[Record]:
    """The record of a log interval, at the step of the bar before it, or at the one that it states."""
    one = process(hit)
    same = [found.get("loss", ""), found["epoch"]]
    if (stated := _STATED.match(found.get("global_step/max_steps", ""))) is not None:
        total = int(stated[2])
        yield from settings(hit, {"target_steps": total})
        yield from _advanced(hit, int(stated[1]), total, _duration_s(found.get("elapsed_time", "")))
        one = process(hit)
    if not bar_of(hit).pop("fresh", False):
        yield from _without_bar(hit, one.get("dict") == same, found)
    else:
        _container_clock(hit)
        yield from _told(hit, *_content(found))
    one["dict"] = same


_STATED: Final = re.compile(r"(\d{1,15})/(\d{1,15})$")


def _content(found: dict[str, str]) -> tuple[int | None, int]:
    """Return the tokens so far, and flags: the loss is none, or a filter has put 0 in its place."""
    loss, norm = found.get("loss"), found.get("grad_norm")
    value = number(loss) if loss is not None else None
    bad = loss is not None and value is None
    bad = bad or (value == 0 and norm is not None and number(norm) is None)
    flags = NAN if bad else 0
    for name in _TOKENS:
        if name in found:
            tokens = count(found[name])
            return tokens, flags | (ROUNDED if tokens is not None and "e" in found[name] else 0)
    return None, flags


def _without_bar(hit: Hit, again: bool, found: dict[str, str]) -> Iterator[Record]:
    """No state of the bar stands before it: another node's, or the bar is off, or text came late."""
    if again:
        _count_copies(hit, False)
        return
    interval, one = count(hit.context.options.get("logging_steps")), process(hit)
    if not interval or one.get("other") or "last" in bar_of(hit):
        if not one.get("other"):
            yield hit.reject("no step: no progress bar stands before it")
        return
    epoch, before = number(found["epoch"]), one.get("epoch")
    if epoch is not None and before is not None and epoch < before:
        one = hit.state["process"] = {}
        yield from launched(hit, "epoch", NAME)
        one = process(hit)
    one["epoch"] = epoch
    since = done(hit)
    since = (one.get("resumed") or [0])[0] or 0 if since is None else since
    at_us, (tokens, flags) = hit.stamp_us(), _content(found)
    step = (since // interval + 1) * interval
    reading = Reading(hit.offset, at_us, step, tokens=tokens, flags=flags | resolution(at_us))
    yield from _went_on(hit, progress(hit, reading))


def _container_clock(hit: Hit) -> None:
    """The carrier stamps a line when it is complete: with the dict that ends it."""
    one, bar = process(hit), bar_of(hit)
    if "anchor" not in one and (stamp := clean(hit.after[0][:80]).stamp):
        at_us = stamp_us(stamp, hit.context)
        if at_us is not None:
            one["anchor"] = at_us - bar["last"][1] * 1_000_000


_UNITS_S: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


def _duration_s(text: str) -> int:
    """Return ms-swift's `1d 2h 3m 4s` in seconds."""
    return sum(int(n) * _UNITS_S[unit] for n, unit in re.findall(r"(\d{1,6})([dhms])\b", text))


def _usual(found: dict[str, str]) -> tuple[Json, int | None, int] | None:
    """The same of a dict that the short cut has found."""
    if "epoch" not in found or "train_runtime" in found:
        return None
    return [found["loss"], found["epoch"]], *_content(found)


READER: Final = Reader(
    (
        rule(b"%|", rb"^[ \t]{0,400}(?:Train: {1,4})?\d{1,3}%\|[^|\n]{0,2000}\| {1,4}" + STATE, _bar),
        rule(b"'epoch': ", rb"'epoch': ", _dict),
        *RULES,
        *rules(NAME, _engine),
        *EVENTS,
    ),
    followers=FOLLOWERS,
    hot=Drawn(_usual),
)

_OWN: Final = (
    (96, rb"'global_step/max_steps': '\d", "dicts with `global_step/max_steps`"),
    (96, rb"\{'train_runtime': ", "the dict `train_runtime`"),
    (95, rb"\*{5} Running training \*{5}", "the banner `Running training`"),
    (94, rb"\{'loss': [^\n}]{0,2000}'epoch': ", "dicts with loss and epoch"),
    (93, rb"\{'eval_loss': [^\n}]{0,2000}'epoch': ", "dicts with eval_loss and epoch"),
    (88, rb"\[INFO\|trainer\.py:\d{1,5}\] ", "the logger of trainer.py"),
    (40, rb"(?:^|[\r\n]) *\d{1,3}%\|[^|\n]{0,900}\| " + STATE, "a progress bar without a name"),
)


def detect(head: bytes) -> Evidence | None:
    """Find its dicts, or its banner."""
    return first_sign(head, _OWN)


COLLECTOR: Final = Collector(
    name="huggingface",
    framework="Hugging Face Trainer (transformers 4 and 5), TRL, Axolotl, LlamaFactory, ms-swift: consoles",
    version=1,
    parse=READER.parse,
    detect=detect,
    knows=(
        "step",
        "step time",
        "time where a banner, DeepSpeed or the carrier stamps a line",
        "batch and gpus at log level INFO",
        "tokens with include_num_input_tokens_seen, and with TRL and Axolotl",
        "resume",
        "saves",
        "evaluation",
        "completion",
    ),
    needs=(
        "model.sequence_length where tokens are not counted",
        "source.logging_steps where the progress bar is off",
        "source.started_at where no line has a clock",
    ),
    options=("logging_steps",),
    check=checked(logging_steps=BATCHES),
    notes=(
        "Run python -u: buffered dicts come after the bar has gone on, and have no step then. The first bar "
        "without a name is training's unless a banner states its total. TRL counts tokens anew after a "
        "resume."
    ),
)

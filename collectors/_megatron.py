"""What the Megatron family prints while it runs: checkpoints, evaluation, exits, restarts.

Pure. Printed by rank 0 for the most part. Few of these lines carry a clock: the `datetime:` lines do, and
since 2026 those of checkpoints. A save is told up to three times: that it begins, that it is done, and (by a
timer) how long it blocked; the timer's line counts only where the others had no clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from collectors._clock import STAMP, stamp_us
from collectors._iterations import GATE
from collectors._lines import Hit, Rule, rule, started
from collectors._megatron_start import start_of, starting
from collectors._text import seconds_us
from collectors._trouble import Trouble, ends, failure, leaving
from tracker.core.records import Event, Json, Kind, Record

_SAME_RESTART_US: Final = 60_000_000
_KEPT: Final = 16

# -- the lines with a clock --------------------------------------------------------------------------------


def _moment(hit: Hit) -> Iterable[Record]:
    what = hit.word("what") or ""
    at = hit.group("at")
    at_us = stamp_us(at, hit.context) if at else None
    state = hit.state
    if what.startswith("after megatron is init"):
        back_us = state.pop("init_us", None)
        start_of(state).pop("banner", None)
        yield hit.event(Kind.SIGN, at_us=at_us, back_us=back_us)
    elif what.startswith("before the start of training"):
        start_of(state).pop("banner", None)
        if state.get("loads") is False and "resumed" not in state:
            yield from resume(hit, 0, at_us)
        yield hit.event(Kind.TRAIN_START, at_us=at_us)
    elif what.startswith("after training is done"):
        if ends(hit, "done"):
            yield hit.event(Kind.COMPLETED, at_us=at_us)
    elif what.startswith("after "):
        yield hit.event(Kind.SIGN, at_us=at_us)
    elif what.lower().startswith("exiting program") or "kill switch" in what:
        yield from _exit(hit, what, at_us)


def _exit(hit: Hit, what: str, at_us: int | None) -> Iterator[Record]:
    """Exits in good order; all return 0. SIGTERM mostly announces the time limit: the scheduler knows."""
    if not ends(hit, "exit"):
        return
    step = re.search(r"at iteration +(\d{1,18})", what)
    if "straggler" in what:
        data: dict[str, Json] = {"end_kind": "failed", "cause": "unknown"}
    elif "SIG" in what or "minutes" in what:
        data = {"end_kind": "time_limit", "cause": "time_limit"}
    else:
        data = {"end_kind": "operator", "cause": "operator"}
    yield hit.event_of(Kind.EXIT, data, at_us=at_us, step=int(step[1]) if step else None)


def _initialised(hit: Hit) -> Iterable[Record]:
    hit.state["init_us"] = seconds_us(hit.group(1))
    return ()


# -- checkpoints and evaluation ------------------------------------------------------------------------------


def resume(hit: Hit, step: int, at_us: int | None = None) -> Iterator[Record]:
    """Yield the resume at a step, once for each load."""
    if hit.state.get("resumed") == step and "recent" not in hit.state:
        return
    began: Any = hit.state.setdefault("start", {})
    began["first"] = True
    started(hit.state)
    hit.state["resumed"] = step
    yield hit.event(Kind.RESUME, step=step, at_us=at_us)


def _loaded(hit: Hit) -> Iterable[Record]:
    step = hit.count(1)
    return () if step is None else resume(hit, step)


def _from_nothing(hit: Hit) -> Iterable[Record]:
    return resume(hit, 0)


def _saving(hit: Hit) -> Iterable[Record]:
    event = hit.event(Kind.SAVE_START, step=hit.count("step"))
    if hit.state.get("save") != [event.step, True] or event.at_us is None:
        hit.state["save"] = [event.step, event.at_us is not None]
        yield event


def _saved(hit: Hit) -> Iterable[Record]:
    step = hit.count("step")
    unwritten = _unwritten(hit)
    if step in unwritten:
        unwritten.remove(step)
        yield hit.event(Kind.SAVE_DURABLE, step=step)
        return
    event = _save_end(hit, step, hit.group("local") is not None)  # a node's own copy dies with the node
    _timed(hit.state, step, event.at_us)
    yield event


def _scheduled(hit: Hit) -> Iterable[Record]:
    step = hit.count("step")
    unwritten = _unwritten(hit)
    unwritten.append(step)
    del unwritten[:-_KEPT]
    event = _save_end(hit, step, True)
    _timed(hit.state, step, event.at_us)
    yield event


def _unwritten(hit: Hit) -> list[Any]:
    """Return the steps whose write goes on in the background."""
    kept: Any = hit.state.setdefault("async", [])
    return kept if isinstance(kept, list) else []


def _save_end(hit: Hit, step: int | None, background: bool, duration_us: int | None = None) -> Event:
    data: dict[str, Json] = {"async": background or None}
    return hit.event_of(Kind.SAVE_END, data, step=step, duration_us=duration_us)


def _timed(state: dict[str, Any], step: int | None, at_us: int | None) -> None:
    """Note whether the blocking part is known from stamps; else the timer's line will tell."""
    begun = state.get("save")
    if isinstance(begun, list) and begun[0] == step and begun[1] and at_us is not None:
        state.pop("save")
    else:
        state["save"] = [step, False]


def _save_timer(hit: Hit) -> Iterable[Record]:
    begun: Any = hit.state.pop("save", None)
    duration_us = seconds_us(hit.group(2) or hit.group(1), 1000)
    if isinstance(begun, list) and duration_us is not None and duration_us > 0:
        yield _save_end(hit, begun[0], begun[0] in _unwritten(hit), duration_us)


def _eval_timer(hit: Hit) -> Iterable[Record]:
    hit.state["eval_us"] = seconds_us(hit.group(2) or hit.group(1), 1000)
    return ()


def _evaluating(hit: Hit) -> Iterable[Record]:
    yield hit.event(Kind.EVAL_START)


def _evaluated(hit: Hit) -> Iterable[Record]:
    duration_us: Any = hit.state.pop("eval_us", None)
    yield hit.event(Kind.EVAL_END, step=hit.count(1), duration_us=duration_us or None)


# -- restarts without a job's end, and reruns ----------------------------------------------------------------


def _restarter(hit: Hit) -> Iterable[Record]:
    """nvidia-resiliency-ext restarts workers inside the job; every rank says so."""
    what = hit.word("state"), hit.word("stage")
    if what != ("handling", "starting"):
        return
    at_us = hit.stamp_us()
    before: Any = hit.state.get("restart")
    if isinstance(before, list):
        then, offset = before
        if at_us is not None and then is not None:
            same = at_us - then <= _SAME_RESTART_US
        else:
            same = hit.offset - offset <= 65_536
        if same:
            return
    hit.state["restart"] = [at_us, hit.offset]
    started(hit.state)
    hit.state.pop("resumed", None)
    hit.state["start"] = {"first": True}
    yield hit.event(Kind.RESTART, at_us=at_us)


def _unexpected(hit: Hit) -> Iterable[Record]:
    what = Trouble(cause="divergence", confidence=0.4, root=True)
    return failure(hit, "unexpected result", what, at_step=hit.count("step"))


def _rerun(hit: Hit) -> Iterable[Record]:
    """A result that does not come again is the machine's fault; one that does is the model's."""
    if hit.group("not"):
        return failure(hit, "rerun", Trouble(cause="silent_data_corruption", confidence=0.6, root=True))
    return failure(hit, "rerun", Trouble(cause="divergence", confidence=0.6, root=True))


_CHECKPOINT: Final = rb"(?P<local>local )?checkpoint (?:save )?(?:from|at) iteration +(?P<step>\d{1,18})\b"


def family(framework: str, convention: str) -> tuple[Rule, ...]:
    """Return the rules of the whole family; a collector adds its iteration lines and the shared events.

    `convention`: what the throughput counts that this framework prints.
    """
    return (*starting(framework, convention), *_RULES)


_RULES: Final[tuple[Rule, ...]] = (
    rule(
        b"datetime: ",
        rb"\[(?P<what>[^\]\n]{1,200})\] datetime: (?P<at>" + STAMP + rb")",
        _moment,
    ),
    rule(
        b"initialize megatron (s", rb"time to initialize megatron \(seconds\): (\d[\d.]{0,18})", _initialised
    ),
    rule(
        b"will start from random", rb"will not load any checkpoints and will start from random", _from_nothing
    ),
    rule(
        b"successfully loaded",
        rb"successfully loaded checkpoint [^\n]{0,1000}?\bat iteration +(\d{1,18})\b",
        _loaded,
        within=GATE,
    ),
    rule(b"aving ", rb"\bsaving " + _CHECKPOINT, _saving, within=GATE),
    rule(b"scheduled an async", rb"scheduled an async " + _CHECKPOINT, _scheduled, within=GATE),
    rule(b"saved ", rb"\bsaved " + _CHECKPOINT, _saved, within=GATE),
    rule(
        b"save-checkpoint", rb"save-checkpoint[ .]{0,60}: \(?([\d.]{1,18})(?:, ([\d.]{1,18})\))?", _save_timer
    ),
    rule(b"evaluate", rb"\bevaluate[ .]{0,60}: \(?([\d.]{1,18})(?:, ([\d.]{1,18})\))?", _eval_timer),
    rule(b"Evaluating on ", rb"Evaluating on \d{1,18} samples", _evaluating),
    rule(
        b"validation loss at",
        rb"validation loss at (?:iteration +(\d{1,18})\b|the end of training)",
        _evaluated,
    ),
    leaving(b"timelimit reached", rb"Exiting during evaluation, timelimit reached", "time_limit"),
    rule(
        b"[NestedRestarter]",
        rb"\[NestedRestarter\] name=\[\w{1,40}\] state=(?P<state>\w{1,40})(?: stage=(?P<stage>\w{1,40}))?",
        _restarter,
    ),
    rule(
        b"Unexpected result",
        rb"Unexpected result \S{1,40} on rank (?P<rank>\d{1,7}) at iteration #(?P<step>\d{1,18})",
        _unexpected,
    ),
    rule(
        b" rerun: unexpected",
        rb"(?:First|Second) rerun: unexpected result is (?P<not>not )?reproducible",
        _rerun,
    ),
)

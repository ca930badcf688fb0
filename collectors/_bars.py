r"""tqdm progress bars as the odometer and clock of a process: ` 32%|###  | 283/873 [25:44<47:06,  4.79s/it]`.

Pure. A bar counts steps and the time since its process began to train, in whole seconds, so differences are
exact in sum and rough alone. Where the moment of its beginning is known (`anchor`), it is a clock. Traps: a
bar is drawn several times a second and again after each printed record; every node may draw one; where lines
are buffered, a node's states come in one piece, long after those of another node; after a resume it jumps to
the step at which it goes on, and its clock begins anew.

What is kept in `process(hit)["bar"]`: last [step, s] (as drawn), kept [step, s] (as told), seen (thinned
history), whole (its beginning was seen), zero (where), zeroed (a beginning was seen since the last progress),
jump (the step from which it went on).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Final

from collectors._lines import Hit
from collectors._process import INCLUDES, SAMPLE, WHOLE_SECOND, launched, process, progress, resumed
from tracker.core.records import Event, Reading, Record

STATE: Final = (
    rb"(?P<n>\d{1,12})/(?P<total>\d{1,12}) \[(?P<elapsed>(?:\d{1,5}:)?\d\d:\d\d)<[^,\]]{1,24}, {0,4}"
    rb"[\d.?]{1,12}(?:it/s|s/it)"
)
"""A state of a bar that counts iterations, without what stands before it."""
_SLACK_S: Final = 3
_NODES_APART: Final = 10
"""Of a bar whose beginning is not in the log, another node may show so many steps before the first one."""
_HISTORY: Final = 32
_EVERY_S: Final = 10
"""A state becomes a reading once in so many seconds, unless a record comes with it."""
_SAME_START_BYTES: Final = 1 << 20
_TROUBLE: Final = ("events", "ends", "cancelled")


def bar_of(hit: Hit) -> dict[str, Any]:
    """Return what is remembered of the process's bar."""
    bar: dict[str, Any] = process(hit).setdefault("bar", {})
    return bar


def begins(hit: Hit, framework: str) -> Iterator[Event]:
    """Take the state 0/N, as a bar is first drawn: a process begins to train, or an epoch, or a node's bar.

    It is another process where one has trained and then failed, or has begun long ago.
    """
    bar = bar_of(hit)
    if "last" in bar and (_failed(hit) or hit.offset - bar.get("zero", hit.offset) > _SAME_START_BYTES):
        hit.state["process"] = {}
    if not process(hit).get("ran"):
        yield from launched(hit, "bar", framework)
    bar = bar_of(hit)
    bar["zeroed"] = True
    if "last" not in bar:
        bar["whole"] = True
        bar.setdefault("zero", hit.offset)


def advances(hit: Hit, framework: str, step: int, clock_s: Callable[[], int]) -> Generator[Event, None, bool]:
    """Take a state; return whether it is progress. Yield what it shows: another process, where that goes on.

    `clock_s` returns the bar's time, and is asked again where the process is another one.
    """
    bar = bar_of(hit)
    what = _moved(hit, step, clock_s())
    if what == "restart":
        hit.state["process"] = {}
        yield from launched(hit, "bar", framework)
        bar_of(hit)["whole"] = "zeroed" in bar
        what, bar = _moved(hit, step, clock_s()), bar_of(hit)
    if what == "new" and (jump := bar.pop("jump", None)) is not None:
        yield from resumed(hit, jump)
    return what == "new"


def in_epochs(hit: Hit, epoch: int, s: int) -> int:
    """Return the time of all bars of this process, where each epoch draws one; an earlier
    epoch is another process's."""
    known: list[int] = process(hit).get("epoch", [epoch, 0, 0])
    if epoch < known[0]:
        return s
    before_s = known[1] + known[2] if epoch > known[0] else known[1]
    process(hit)["epoch"] = [epoch, before_s, s if epoch > known[0] else max(s, known[2])]
    return before_s + s


def _failed(hit: Hit) -> bool:
    return any(hit.state.get(key) for key in _TROUBLE)


def _moved(hit: Hit, step: int, s: int) -> str:
    """Take a state of the bar; return what it is.

    "new": progress; "same": the state before, drawn again; "copy": what another node's bar has shown;
    "restart": the clock or the count went back, and no bar has shown that.
    """
    bar = bar_of(hit)
    last: list[int] | None = bar.get("last")
    if last is not None:
        later = s > last[1] and not bar.get("zeroed")
        if step == last[0] and (later or abs(s - last[1]) <= _SLACK_S):
            return "same"
        if step <= last[0] or s < last[1] - _SLACK_S:
            if _failed(hit) or not _shown(bar, step, s):
                return "restart"
            hit.state["copies"] = _count(hit.state.get("copies")) + 1
            return "copy"
    elif _count(process(hit).get("step")) >= step:
        return "copy"  # told by other means before the bar was written
    elif bar.get("whole") and step > 1 and s > 0:
        bar["jump"] = step - 1  # a step of a second and more is drawn alone, so the others were not done now
    remember(bar, step, s)
    return "new"


def remember(bar: dict[str, Any], step: int, s: int) -> None:
    """Take a state that is progress."""
    bar["last"] = [step, s]
    bar.pop("zeroed", None)
    seen: list[list[int]] = bar.setdefault("seen", [])
    if len(seen) >= _HISTORY:
        del seen[1::2]
    seen.append([step, s])


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


def _shown(bar: dict[str, Any], step: int, s: int) -> bool:
    """Tell whether the step was shown at about that time: between the states around it."""
    before = after = None
    for known in bar.get("seen", ()):
        if known[0] <= step:
            before = known
        if known[0] >= step and after is None:
            after = known
    if after is None or (before is None and not bar.get("whole") and step < after[0] - _NODES_APART):
        return False
    low = before[1] if before is not None else 0
    return bool(low - _SLACK_S <= s <= after[1] + _SLACK_S)


def due(hit: Hit, total: int | None = None) -> bool:
    """Tell whether the latest state should become a reading although no record comes with it."""
    bar = bar_of(hit)
    return soon(bar["last"], bar.get("kept"), total)


def full(hit: Hit) -> bool:
    """Tell whether the bar is at its end: of an epoch's bar no later state tells of the last steps."""
    return hit.group("n") == hit.group("total")


def soon(last: Sequence[int], kept: Sequence[int] | None, total: int | None = None) -> bool:
    """Tell the same of two states [step, s]: the latest, and the one that became a reading before it."""
    return kept is None or last[1] - kept[1] >= _EVERY_S or last[0] == total


def told(hit: Hit, *, tokens: int | None = None, flags: int = 0) -> Iterator[Record]:
    """Yield the reading of the bar's latest state; the first one's begins where the bar did, if seen."""
    bar, one = bar_of(hit), process(hit)
    last, kept = bar["last"], bar.get("kept")
    first = kept is None
    if kept is None:
        kept = [(one.get("resumed") or [0])[0] or 0, 0] if bar.get("whole") else last
    reading = sample(hit.offset, last, kept, one.get("anchor"), tokens=tokens, flags=flags, first=first)
    if reading is not None:
        bar["kept"] = [*last]
        yield from progress(hit, reading)


def sample(
    offset: int,
    last: Sequence[int],
    kept: Sequence[int],
    anchor: int | None,
    *,
    tokens: int | None = None,
    flags: int = 0,
    first: bool = False,
) -> Reading | None:
    """Return the reading of a state [step, s] since the one before it, if there is something to tell.

    `anchor` is when the bar began, in us. Without it the time since the state before is all there is:
    evaluation and saves are in it, since the bar's clock runs on.
    """
    (step, s), steps, length_s = last, last[0] - kept[0], last[1] - kept[1]
    step_time_us = round(length_s * 1e6 / steps) or None if steps > 0 and length_s > 0 else None
    if not first and (steps <= 0 or (step_time_us is None and not flags)):
        return None  # within one second: the next one tells of both
    if step_time_us is not None:
        flags |= SAMPLE if anchor is not None else INCLUDES
    flags |= WHOLE_SECOND if anchor is not None else 0
    at_us = None if anchor is None else anchor + s * 1_000_000
    return Reading(offset, at_us, step, step_time_us, tokens=tokens, flags=flags)

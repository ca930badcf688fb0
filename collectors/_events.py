"""Event lines: what machine, network, scheduler and interpreter say about trouble, whatever framework runs.

Pure. `EVENTS` are rules for a `Reader`, to stand behind a collector's own. A failure names its cause as far
as this one line tells; which one brought the others about is for the core to judge.

Not trouble: the word Traceback alone, tracebacks that a program prints and survives ("... failed with:
Traceback"), `destroy_process_group() was not called`, tasks that end because another one failed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from collectors._devices import DEVICES
from collectors._devices import FOLLOWERS as DEVICES_FOLLOWERS
from collectors._lines import Hit, Make, Reader, Rule, rule
from collectors._scheduler import SCHEDULER
from collectors._torchrun import FOLLOWERS as TORCHRUN_FOLLOWERS
from collectors._torchrun import TORCHRUN
from collectors._trouble import MOST_COUNTED, Trouble, failure, leaving, trouble
from tracker.core.records import Record

_BENIGN_BYTES: Final = 65_536


def _traceback(hit: Hit) -> Iterable[Record]:
    """`X failed with: Traceback (...)`: printed by a program that lives on. Its last line is no failure."""
    if hit.text[: hit.match.start()].strip():
        hit.state["benign"] = [min(_benign(hit) + 1, MOST_COUNTED), hit.offset]
    return ()


def _benign(hit: Hit) -> int:
    """Return how many tracebacks are open that do not matter; several ranks print at once."""
    kept = hit.state.get("benign")
    if not isinstance(kept, list):
        return 0
    count, offset = kept
    near = isinstance(offset, int) and hit.offset - offset <= _BENIGN_BYTES
    return count if near and isinstance(count, int) else 0


def _python_error(hit: Hit) -> Iterable[Record]:
    if count := _benign(hit):
        hit.done = True
        hit.state["benign"] = [count - 1, hit.offset]
        return ()
    if hit.match.groupdict().get("victim"):  # only one of the two rules looks for it
        return failure(hit, "victim", Trouble(cause="unknown", confidence=0.1))
    return failure(hit, "python", Trouble(cause="software", confidence=0.4))


_NAME: Final = rb"^(?:[A-Za-z_]\w{0,63}\.){0,8}"
_VICTIMS: Final = rb"(?P<victim>ConnectionResetError|BrokenPipeError|EOFError)"
_DISK: Final = (
    rb"\[Errno \d{1,3}\] (?:No space left on device|Stale file handle|Disk quota exceeded|Input/output error"
    rb"|Remote I/O error|Transport endpoint is not connected|Cannot send after transport endpoint shutdown)"
)
_LOADER: Final = rb"DataLoader worker \(pid[^)]{1,40}\) "
_RROR: Final = b"rror"
_XCEPTION: Final = b"xception"

_PROGRAM: Final[tuple[Rule, ...]] = (
    rule(b"Traceback (most", rb"Traceback \(most recent call last\)", _traceback),
    trouble(b"signal: Bus error", _LOADER + rb"is killed by signal: Bus", "out_of_memory", 0.6, within=_RROR),
    trouble(b"signal: Killed", _LOADER + rb"is killed by signal: Killed", "out_of_memory", 0.7, within=_RROR),
    trouble(b"DataLoader worker (", _LOADER + rb"(?:is killed|exited)", "software", 0.4, within=_RROR),
    trouble(b"[Errno ", _DISK, "storage", 0.8, within=_RROR),
    trouble(
        b"found NaN in", rb"Error: [^\n]{0,80}?found NaN in", "divergence", 0.7, within=_RROR, fatal=True
    ),
    trouble(b"Loss is nan", rb"Loss is nan, stopping training", "divergence", 0.8, fatal=True),
    trouble(
        b"loss scale reached", rb"Minimum loss scale reached", "divergence", 0.7, within=_RROR, fatal=True
    ),
    trouble(
        b"scale already at min",
        rb"loss scale already at minimum",
        "divergence",
        0.7,
        within=_XCEPTION,
        fatal=True,
    ),
    trouble(
        b"core dumped", rb"(?:Segmentation fault|Bus error) +\(core dumped\)", "software", 0.4, fatal=True
    ),
    trouble(
        b"Fatal Python error",
        rb"Fatal Python error: (?:Segmentation fault|Bus error)",
        "software",
        0.4,
        within=_RROR,
        fatal=True,
    ),
    leaving(b"KeyboardInterrupt", rb"^KeyboardInterrupt\b", "operator"),
    rule(b"Error: ", _NAME + rb"(?:" + _VICTIMS + rb"|[A-Z]\w{0,63}Error): ", _python_error, within=_RROR),
    rule(b"Exception: ", _NAME + rb"(?:[A-Z]\w{0,63})?Exception: ", _python_error, within=_XCEPTION),
)

EVENTS: Final[tuple[Rule, ...]] = (*SCHEDULER, *DEVICES, *TORCHRUN, *_PROGRAM)
FOLLOWERS: Final[dict[str, Make]] = {**TORCHRUN_FOLLOWERS, **DEVICES_FOLLOWERS}
"""Who takes the lines of records that several lines make; a reader with `EVENTS` needs them."""

ALONE: Final = Reader(EVENTS, followers=FOLLOWERS)
"""Reads nothing but event lines: for formats that find their own records by other means."""

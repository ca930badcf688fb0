"""What GPUs, driver, NCCL and network print when a part fails, and what those print who wait for it.

Pure. NCCL's victims (connection closed, communicator aborted, a watchdog that waited in vain) prove no more
than that somebody else failed: they name `nccl_watchdog`, which every other cause overrules.
Sources: NVIDIA's Xid catalogue, the CUDA runtime's error texts, NCCL's net_ib, torch ProcessGroupNCCL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from collectors._lines import Hit, Make, Rule, rule
from collectors._trouble import VICTIM, Trouble, failure, silent, trouble
from tracker.core.records import Record

_XID: Final[tuple[tuple[frozenset[int], Trouble], ...]] = (
    (frozenset({48, 94, 95, 140}), Trouble(cause="gpu_hbm", confidence=0.9, fatal=True)),
    # a row is noted for the next reset; work goes on, perhaps for days
    (frozenset({63, 64, 92}), Trouble(cause="gpu_hbm", confidence=0.6)),
    (frozenset({79}), Trouble(cause="gpu", confidence=0.95, fatal=True)),
    (frozenset({119, 120}), Trouble(cause="gpu_system_processor", confidence=0.9, fatal=True)),
    (frozenset({74, *range(144, 151)}), Trouble(cause="gpu", confidence=0.7)),  # NVLink
    # mostly the program's: faults of its kernels, and the contexts that go with them
    (frozenset({13, 31, 43, 69, 109}), Trouble(cause="software", confidence=0.4, fatal=True)),
    # clean-up after another Xid or a kill; what is to be done about another one
    (frozenset({45, 154}), Trouble(cause="unknown", confidence=0.1)),
)
_OTHER_XID: Final = Trouble(cause="gpu", confidence=0.4)
_SWITCH_FATAL: Final = Trouble(cause="network", confidence=0.7, fatal=True)
_SWITCH_XID: Final = Trouble(cause="network", confidence=0.4)
_SRAM: Final = re.compile(rb"SRAM: ?Yes", re.I)


def xid(number: int, line: bytes) -> Trouble:
    """Return what an Xid of the driver proves; the line tells memory in the chip from memory beside it.

    >>> xid(94, b"Contained ECC error, SRAM: Yes").cause, xid(79, b"").cause, xid(31, b"").cause
    ('gpu_sram', 'gpu', 'software')
    """
    for numbers, what in _XID:
        if number in numbers:
            if what.cause == "gpu_hbm" and _SRAM.search(line):
                return Trouble(cause="gpu_sram", confidence=what.confidence, fatal=what.fatal)
            return what
    return _OTHER_XID


def switch_xid(line: bytes) -> Trouble:
    """Return what an SXid of an NVSwitch proves; the line says whether it was fatal.

    >>> switch_xid(b"20034, Fatal, Link 61").fatal, switch_xid(b"12028, Non-fatal, Link 32").fatal
    (True, False)
    """
    return _SWITCH_FATAL if b" Fatal," in b" " + line else _SWITCH_XID


def _xid(hit: Hit) -> Iterable[Record]:
    number, device = hit.count("number") or 0, hit.word("device")
    what = switch_xid(hit.text) if hit.group("switch") else xid(number, hit.text)
    return failure(hit, f"xid {number} {device}", what, xid=number, device=device)


_WATCHDOG: Final = Trouble(cause="nccl_watchdog", confidence=0.5, fatal=True)
_LAGGING: Final = Trouble(cause="nccl_watchdog", confidence=0.55, fatal=True)
_DESYNC: Final = Trouble(cause="nccl_watchdog", confidence=0.6, fatal=True)
_NAMED: Final = Trouble(cause="nccl_watchdog", confidence=0.65, fatal=True)
_LAGGING_TOLD: Final = 8


def _watchdog(hit: Hit) -> Iterable[Record]:
    """All ranks print it, when the hang is as old as the time-out; who is behind the others held them up."""
    back_ms, number = hit.count("back"), hit.count("seq")
    said = hit.state.setdefault("events", {})
    assert isinstance(said, dict)
    lowest, told = said.get("lowest"), said.get("lagging")
    told = told if isinstance(told, int) else 0
    behind = number is not None and isinstance(lowest, int) and number < lowest and told < _LAGGING_TOLD
    if number is not None and (behind or lowest is None):
        said["lowest"] = number
    if behind:
        said["lagging"] = told + 1
    return failure(
        hit,
        f"watchdog {number}" if behind else "watchdog",
        _LAGGING if behind else _WATCHDOG,
        back_us=None if back_ms is None else back_ms * 1000,
        sequence=number,
    )


def _desync(hit: Hit) -> Iterable[Record]:
    """The line after it names the rank."""
    hit.open("desync", 2)
    return failure(hit, "caused the desync", _DESYNC)


_CULPRIT: Final = re.compile(rb"^[\s-]{1,12}\[(\d{1,7})\] ")


def _culprit(hit: Hit) -> Iterable[Record]:
    found = _CULPRIT.match(hit.text)
    if found is None:
        return ()
    hit.close("desync")
    return failure(hit, "desync rank", _NAMED, rank=int(found[1]))


def _rror(gate: bytes, pattern: bytes, cause: str, confidence: float) -> Rule:
    return trouble(gate, pattern, cause, confidence, within=b"rror", fatal=True)


_ASYNC: Final = rb"NET/IB ?: [^\n]{0,100}?Got async (?:error )?event ?: [^\n]{0,60}?"

DEVICES: Final[tuple[Rule, ...]] = (
    rule(
        b"Xid (",
        rb"(?P<switch>S?)Xid \((?:PCI:)?(?P<device>[0-9A-Fa-f:.]{1,24})\): (?P<number>\d{1,6})\b",
        _xid,
    ),
    trouble(b"fallen off the bus", rb"GPU has fallen off the bus", "gpu", 0.95, fatal=True),
    _rror(b"ECC error", rb"(?:uncorrectable|double[- ]bit) ECC error", "gpu_hbm", 0.9),
    _rror(b"ECCUncorrectable", rb"cudaErrorECCUncorrectable", "gpu_hbm", 0.9),
    silent(b"out of memory detected", rb"CUDA out of memory detected", within=b"out of memory"),
    trouble(
        b"out of memory",
        rb"CUDA out of memory|CUDA error: out of memory|Cuda failure (?:\d{1,4} )?'out of memory'",
        "out_of_memory",
        0.9,
        fatal=True,
    ),
    _rror(b"OutOfMemoryError", rb"OutOfMemoryError:", "out_of_memory", 0.9),
    _rror(b"NVLink error", rb"uncorrectable NVLink error", "gpu", 0.8),
    _rror(b"or a hardware error", rb"over nvlink or a hardware error", "gpu", 0.8),
    _rror(b"busy or unavailable", rb"CUDA-capable devices? (?:are|is) busy or unavailable", "gpu", 0.5),
    _rror(b"unspecified launch", rb"CUDA error: unspecified launch failure", "gpu", 0.4),
    _rror(b"CUDA error: unknown", rb"CUDA error: unknown error", "gpu", 0.4),
    _rror(b"device not ready", rb"CUDA (?:driver )?error: device not ready", "gpu", 0.4),
    _rror(b"illegal memory acc", rb"an illegal memory access was encountered", "software", 0.5),
    _rror(b"device-side assert", rb"device-side assert", "software", 0.8),
    _rror(b"CUDA error: ", rb"CUDA error: \w", "software", 0.3),
    rule(
        b"Watchdog caught",
        rb"(?:[Rr]ank (?P<rank>\d{1,7})\] {1,2})?Watchdog caught collective operation timeout"
        rb"(?::[^\n]{0,24}?SeqNum=(?P<seq>\d{1,18}))?(?:[^\n]{0,600}?Timeout\(ms\)=(?P<back>\d{1,12}))?",
        _watchdog,
    ),
    rule(b"caused the desync", rb"ranks that caused the desync are:", _desync),
    trouble(b"Heartbeat monitor", rb"Heartbeat monitor timed out", "nccl_watchdog", 0.4, fatal=True),
    trouble(b"watchdog got stuck", rb"watchdog got stuck", "nccl_watchdog", 0.4, fatal=True),
    trouble(b"NCCL operations have", rb"Some NCCL operations have failed or timed out", "nccl_watchdog", 0.3),
    trouble(
        b"Got completion from", rb"NET/IB ?: Got completion from peer", "network", 0.8, within=b"NCCL WARN"
    ),
    trouble(b"Got async ", _ASYNC + rb"fatal", "nic", 0.7, within=b"NCCL WARN"),
    trouble(b"Got async ", _ASYNC + rb"port error", "network", 0.6, within=b"NCCL WARN"),
    trouble(
        b"onnection ",
        rb"NCCL WARN [^\n]{0,200}?[Cc]onnection (?:reset|closed|refused)",
        "nccl_watchdog",
        VICTIM,
        within=b"NCCL WARN",
    ),
    _rror(b"ncclRemoteError", rb"ncclRemoteError", "nccl_watchdog", VICTIM),
    _rror(b"ncclSystemError", rb"ncclSystemError", "nccl_watchdog", VICTIM),
    _rror(b"communicator was", rb"NCCL communicator was aborted", "nccl_watchdog", VICTIM),
    _rror(b"DistBackendError", rb"DistBackendError: ", "nccl_watchdog", VICTIM),
    _rror(b"DistNetworkError", rb"DistNetworkError: ", "nccl_watchdog", VICTIM),
    _rror(b"DistStoreError", rb"DistStoreError: ", "nccl_watchdog", VICTIM),
    _rror(b"NCCL error in", rb"RuntimeError: NCCL error in", "nccl_watchdog", VICTIM),
)

FOLLOWERS: Final[dict[str, Make]] = {"desync": _culprit}
"""For a `Reader`: who takes the lines of the desync report."""

"""Kernel messages: what driver, memory killer, machine check and switch report, in any of their wrappings.

Pure. Reads dmesg (with -T, with ISO stamps, or since boot), kern.log and syslog, the journal as text and as
JSON, and the fabric manager's log. A machine that runs several jobs tells of all of them, so nothing here
is a launch or a reading: it is evidence for the attempts of its time. One part that goes on complaining is
one incident. Traps: syslog stamps have no year, dmesg's may count from the boot; Xid 45 and 154 follow from
others; after Xid 63 and 64 work goes on; a lost GPU may be told in three lines without a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from collectors._clock import STAMP, ZONE, local_us, short_us, stamp_us, wall_us
from collectors._devices import switch_xid, xid
from collectors._lines import Hit, Reader, Rule, rule
from collectors._options import YEAR, checked, moment
from collectors._trouble import Trouble
from tracker.core.records import Json, Kind, Record
from tracker.interfaces import Collector, Context, Evidence

INCIDENT_US: Final = 240_000_000
"""A complaint that comes again within this time after the last one is the same incident."""
_INCIDENT_BYTES: Final = 65_536
_MOST: Final = 64
_MONTHS: Final = {
    name: n for n, name in enumerate(b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)
}

_TIME: Final = rb"\d\d:\d\d:\d\d(?:\.\d{1,9})?"
_CTIME: Final = re.compile(
    rb"\[(?:[A-Z][a-z]{2} )?([A-Z][a-z]{2}) {1,2}(\d{1,2}) (?:(\d{4}) )?(" + _TIME + rb")(?: (\d{4}))?\]"
)
_SYSLOG: Final = re.compile(rb"(?:<\d{1,3}>)?([A-Z][a-z]{2}) {1,2}(\d{1,2}) (" + _TIME + rb") ")
_ISO: Final = re.compile(rb"(" + STAMP + rb")(" + ZONE + rb")?")
_UNIX: Final = re.compile(rb"(\d{10})\.(\d{6}) ")
_SINCE_BOOT: Final = re.compile(rb"(?:<\d{1,3}>)?\[ {0,12}(\d{1,9})\.(\d{6})\]")
_JOURNAL: Final = re.compile(rb'"__REALTIME_TIMESTAMP" ?: ?"?(\d{16})\b')
_HOST: Final = re.compile(rb"(\S{1,64}) kernel: ")
_JOURNAL_HOST: Final = re.compile(rb'"_HOSTNAME" ?: ?"([^"\\]{1,64})"')
_PREFIX: Final = 120


def _at(hit: Hit) -> int | None:
    """Return when a message was written, UTC; None where it says nothing but the time since boot."""
    text, context = hit.text, hit.context
    if hit.line.stamp:
        return stamp_us(hit.line.stamp, context)
    if text[:1] == b"{":
        found = _JOURNAL.search(text)
        return int(found[1]) if found else None
    if found := _CTIME.match(text):
        year, month = found[3] or found[5], _MONTHS.get(found[1])
        if not year or not month:
            return None
        wall = wall_us(b"%s-%02d-%02d %s" % (year, month, int(found[2]), found[4]))
        return None if wall is None else local_us(wall, context)
    if found := _SYSLOG.match(text):
        return _without_year(_MONTHS.get(found[1]), int(found[2]), found[3], context)
    if found := _SINCE_BOOT.match(text):
        boot = context.options.get("boot")
        booted = stamp_us(boot.encode(), context) if isinstance(boot, str) else None
        return None if booted is None else booted + int(found[1]) * 1_000_000 + int(found[2])
    if found := _UNIX.match(text):
        return int(found[1]) * 1_000_000 + int(found[2])
    found = _ISO.search(text, 0, _PREFIX)
    return stamp_us(found[0], context) if found else None


def _without_year(month: int | None, day: int, time: bytes, context: Context) -> int | None:
    """Return a stamp of syslog: the first one's year is the source's option, the later ones follow it."""
    if month is None:
        return None
    year = context.options.get("year")
    if "clock" in context.state or not isinstance(year, int) or not 2000 <= year < 2100:
        return short_us(month, day, time, context)
    wall = wall_us(b"%04d-%02d-%02d %s" % (year, month, day, time))
    return None if wall is None else local_us(wall, context)


def _host(hit: Hit) -> str | None:
    found = (_JOURNAL_HOST if hit.text[:1] == b"{" else _HOST).search(hit.text, 0, 4096)
    return found[1].decode("ascii", "replace") if found else None


def _incident(hit: Hit, key: str, what: Trouble, **more: Json) -> Iterator[Record]:
    """Yield the failure that a message proves, unless its part has just complained of the same."""
    hit.done = True
    seen = hit.state.setdefault("seen", {})
    assert isinstance(seen, dict)
    at_us, host = _at(hit), _host(hit)
    key = f"{host or ''} {more.get('device') or ''} {key}"
    before = seen.pop(key, None)
    seen[key] = [at_us, hit.offset]
    if len(seen) > _MOST:
        del seen[next(iter(seen))]
    if isinstance(before, list):
        then_us, offset = before
        if isinstance(then_us, int) and at_us is not None:
            again = 0 <= at_us - then_us <= INCIDENT_US
        else:
            again = isinstance(offset, int) and hit.offset - offset <= _INCIDENT_BYTES
        if again:
            return
    data: dict[str, Json] = {
        "cause": what.cause,
        "confidence": what.confidence,
        "fatal": what.fatal or None,
        "host": host,
    }
    yield hit.event_of(Kind.FAILURE, data | more, at_us=at_us)


def _xid(hit: Hit) -> Iterator[Record]:
    number = hit.count("number") or 0
    what = switch_xid(hit.text) if hit.group("switch") else xid(number, hit.text)
    name = "sxid" if hit.group("switch") else "xid"
    return _incident(hit, f"{name} {number}", what, xid=number, device=_device(hit))


def _device(hit: Hit) -> str | None:
    """Return a device the same however it is written: with a domain of four digits or eight, or none."""
    device = hit.word("device")
    if device is None:
        return None
    parts = device.lower().removesuffix(".0").split(":")
    if len(parts) == 3:
        parts[0] = parts[0][-4:].rjust(4, "0")
    return ":".join(parts) if len(parts) == 3 else ":".join(["0000", *parts])


def _fabric(hit: Hit) -> Iterator[Record]:
    """The fabric manager tells of the same errors of the switch."""
    number = hit.count("number") or 0
    what = switch_xid(b"Fatal," if hit.group("severity") == b"fatal" else b"Non-fatal")
    return _incident(hit, f"sxid {number}", what, xid=number, device=_device(hit))


def _rule(gate: bytes, pattern: bytes, cause: str, confidence: float, *, fatal: bool = False) -> Rule:
    what, key = Trouble(cause=cause, confidence=confidence, fatal=fatal), gate.decode()
    return rule(gate, pattern, lambda hit: _incident(hit, key, what))


_KILLED: Final = Trouble(cause="out_of_memory", confidence=0.9, fatal=True)
_LOST: Final = Trouble(cause="gpu", confidence=0.95, fatal=True)
_PCI: Final = rb"(?P<device>[0-9A-Fa-f]{2,8}:[0-9A-Fa-f:]{2,12}(?:\.\d)?)"

_READER: Final = Reader((
    rule(
        b"Xid (",
        rb"(?P<switch>S?)Xid \((?:PCI:)?(?P<device>[0-9A-Fa-f:.]{1,24})\): (?P<number>\d{1,6})\b",
        _xid,
    ),
    rule(
        b"fallen off the bus",
        rb"(?:GPU (?:at )?(?:PCI:)?" + _PCI + rb"[^\n]{0,80})?fallen off the bus",
        lambda hit: _incident(hit, "lost", _LOST, device=_device(hit)),
    ),
    rule(
        b"detected NVSwitch",
        rb"detected NVSwitch (?P<severity>fatal|non-fatal) error (?P<number>\d{1,6})"
        rb"(?:[^\n]{0,60}? pci bus id " + _PCI + rb")?",
        _fabric,
    ),
    rule(b"oom-kill:", rb"oom-kill:constraint=", lambda hit: _incident(hit, "oom", _KILLED)),
    rule(
        b"ut of memory: Kill",
        rb"[Oo]ut of memory: Kill(?:ed)? process (?P<pid>\d{1,10})",
        lambda hit: _incident(hit, "oom", _KILLED),
    ),
    _rule(
        b"hardware memory corr",
        rb"due to hardware memory corruption",
        "system_memory",
        0.8,
        fatal=True,
    ),
    _rule(b" UE ", rb"EDAC \S{1,12}: [^\n]{0,40}?\d{1,9} UE ", "system_memory", 0.7),
    _rule(b"Machine Check", rb"Machine Check: [^\n]{0,40}Bank|Machine Check Exception", "cpu", 0.4),
    _rule(b"health compromised", rb"mlx5_core [^\n]{0,120}health compromised", "nic", 0.7, fatal=True),
    _rule(b"Uncorrected (Fatal)", rb"AER: [^\n]{0,60}Uncorrected \(Fatal\)", "io_board", 0.4),
    _rule(b"controller is down", rb"nvme\d{1,4}: controller is down", "ssd", 0.6),
    _rule(b"medium error", rb"critical medium error, dev ", "ssd", 0.5),
    _rule(b"Kernel panic", rb"Kernel panic - not syncing", "unknown", 0.5, fatal=True),
    _rule(b"Linux version ", rb"\bLinux version \d{1,2}\.", "unknown", 0.3, fatal=True),
))


_LINE: Final = re.compile(
    rb"(?:\[ {0,12}\d{1,9}\.\d{6}\] "
    rb"|\[[A-Z][a-z]{2} [A-Z][a-z]{2} {1,2}\d{1,2} [\d:]{8} \d{4}\] "
    rb"|\[[A-Z][a-z]{2} \d\d \d{4} [\d:]{8}\] \[[A-Z]{4,8}\] \[tid \d"
    rb"|(?:<\d{1,3}>)?[A-Z][a-z]{2} {1,2}\d{1,2} [\d:.]{8,18} \S{1,64} kernel: "
    rb"|[A-Z][a-z]{2} \d{4}-\d\d-\d\d [\d:]{8} \S{1,5} \S{1,64} kernel: "
    rb"|\d{10}\.\d{6} \S{1,64} kernel: "
    rb"|kern {1,2}:\w{2,6} {0,4}: "
    rb"|\d{4}-\d\d-\d\dT[\d:,.]{8,18}(?:Z|[+-]\d\d:?\d\d) (?:\S{1,64} kernel: |(?:NVRM|nvidia-)\S{0,40}: )"
    rb'|\{(?=[^\n]{0,4000}"__REALTIME_TIMESTAMP")(?=[^\n]{0,4000}"_TRANSPORT" ?: ?"kernel"))'
)


def detect(head: bytes) -> Evidence | None:
    """Find the kernel's prefix on most lines."""
    lines = [line for line in head.split(b"\n")[:300] if line.strip()][:200]
    ours = sum(_LINE.match(line) is not None for line in lines)
    if ours * 2 > len(lines):
        return Evidence(score=88, text=f"kernel messages ({ours} of the first {len(lines)} lines)")
    return None


COLLECTOR: Final = Collector(
    name="kernel",
    framework="Linux kernel messages: dmesg, kern.log, journal (text or JSON), NVIDIA fabric manager",
    version=1,
    parse=_READER.parse,
    detect=detect,
    knows=("causes of failures", "time", "host"),
    options=("boot", "year"),
    check=checked(boot=moment, year=YEAR),
    notes=(
        'Evidence only. Give the messages of the job\'s own hosts. Stamps since boot need boot = "..." (when '
        "the machine booted), syslog stamps without a year need year; better: dmesg --time-format iso, or "
        "journalctl -k -o json."
    ),
)

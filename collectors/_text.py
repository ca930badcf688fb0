r"""What wraps a log line before the framework's own words, and how its numbers are read.

Pure. A line as written may hold several `\r` segments (progress bars), ANSI colours (or what is left of them
where the escape byte was dropped), and up to three prefixes: srun labels, torchrun tee, rank, container
runtime, kubectl. Nothing here is applied to a line unless a collector looks for something in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from collectors._clock import STAMP, ZONE

LONGEST: Final = 1 << 16
"""Bytes of a line that are looked at: no framework's record is longer."""

_ANSI: Final = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-Z\\^_]|\[\d{1,3}(?:;\d{1,3}){0,4}m")
_PREFIX: Final = re.compile(
    rb"""[ \t]*(?:
      (?P<srun>\d{1,7}):[ ]                            # srun -l:  '  0: '
    | \[(?P<rank>(?:default|rank[ ]?:?[ ]?)\d{1,7})\]:[ ]?  # torchrun tee, c10d: '[default7]:', '[rank0]:'
    | (?P<role>[A-Za-z][\w.-]{0,63}/\d{1,6})[ ](?=\[)  # nemo_run: 'i.pretrain/0 [rank4]:'
    | slurm_procid[ ](?P<proc>\d{1,7})[ ]:[ ]          # metaseq sweep
    | \[\d{1,4},(?P<mpi>\d{1,7})\]<std(?:out|err)>:[ ]?  # mpirun --tag-output
    | (?P<at>"""
    + STAMP.replace(b"[ T_]", b"T")
    + ZONE
    + rb""")[ ](?:std(?:out|err)[ ][FP][ ])?           # kubectl --timestamps, or a container runtime's file
    )""",
    re.X,
)
_PREFIXES: Final = 3


class Line(NamedTuple):
    """One line (or one segment of a line) as its writer meant it."""

    offset: int
    """Bytes from the start of the file to its first character, prefixes included."""
    text: bytes
    """Without prefixes and colours, at most `LONGEST` bytes."""
    label: bytes = b""
    """The innermost rank label: b"0" of `0: `, b"rank4", b"default7"; empty where there is none."""
    stamp: bytes = b""
    """The outer stamp that a container runtime or kubectl put before the line; it carries its zone."""


def clean(line: bytes, offset: int = 0) -> Line:
    r"""Return a line without colours and prefixes.

    >>> clean(b"  3: [rank3]:\x1b[32mstep: 1\x1b[0m")
    Line(offset=0, text=b'step: 1', label=b'rank3', stamp=b'')
    """
    text = line[:LONGEST]
    if b"\x1b" in text or _RESIDUE.search(text):
        text = _ANSI.sub(b"", text)
    if text.endswith(b"\r"):
        text = text.rstrip(b"\r")
    label = stamp = b""
    for _ in range(_PREFIXES):
        found = _PREFIX.match(text)
        if found is None:
            break
        kind = found.lastgroup
        if kind == "at":
            stamp = stamp or found["at"]
        elif kind is not None:
            label = found[kind]
        text = text[found.end() :]
    return Line(offset, text, label, stamp)


_RESIDUE: Final = re.compile(rb"\[\d{1,3}(?:;\d{1,3}){0,4}m")


def segments(line: bytes, offset: int) -> Iterator[tuple[int, bytes]]:
    r"""Yield the pieces that `\r` makes of a line, each with its offset; a progress bar draws over itself.

    >>> list(segments(b"10%\r20%\r", 100))
    [(100, b'10%'), (104, b'20%')]
    """
    start = 0
    while start < len(line):
        end = line.find(b"\r", start)
        end = len(line) if end < 0 else end
        if end > start:
            yield offset + start, line[start:end]
        start = end + 1


def whole(text: bytes | None) -> int | None:
    """Return a count, with thousands separators or without; None where it is none or does not fit.

    >>> whole(b" 2,097,152 "), whole(b"1.5"), whole(b"9" * 40)
    (2097152, None, None)
    """
    if text is None:
        return None
    digits = text.strip().replace(b",", b"")
    if not digits.isdigit() or len(digits) > 18:
        return None
    return int(digits)


def real(text: bytes | None) -> float | None:
    """Return a finite number; None for anything else, nan and inf included.

    >>> real(b"4.1E-05"), real(b"nan"), real(b"N/A")
    (4.1e-05, None, None)
    """
    if text is None:
        return None
    try:
        value = float(text.replace(b",", b""))
    except ValueError:
        return None
    return value if abs(value) < 1e300 else None


_SCALE: Final = {b"": 0, b"K": 3, b"M": 6, b"G": 9, b"B": 9, b"T": 12, b"P": 15, b"E": 18}
_SCALED: Final = re.compile(rb"\s*([\d,]+(?:\.\d+)?)\s*([KMGBTPE]?)\s*")


def scaled(text: bytes | None) -> tuple[int, bool] | None:
    """Return a count with a suffix (1.258B, 85.8G) and whether print rounded it; None where it is none.

    >>> scaled(b"1.258B"), scaled(b"20155564032")
    ((1258000000, True), (20155564032, False))
    """
    found = _SCALED.fullmatch(text) if text is not None else None
    if found is None or len(found[1]) > 30:
        return None
    value = float(found[1].replace(b",", b"")) * 10 ** _SCALE[found[2]]
    if found[2] or b"." in found[1]:
        return (round(value), True) if value < 2**62 else None
    exact = whole(found[1])
    return None if exact is None else (exact, False)


def seconds_us(text: bytes | None, unit_us: int = 1_000_000) -> int | None:
    """Return a printed duration in microseconds; `unit_us` is 1000 where the log prints milliseconds.

    >>> seconds_us(b"105.22"), seconds_us(b"803.1", 1000)
    (105220000, 803100)
    """
    value = real(text)
    if value is None or not abs(value) * unit_us < 2**62:
        return None
    return round(value * unit_us)

"""What a configuration value may be: one small reader for each kind of value.

Pure: a name and a TOML value in, a checked value out, or InvalidValue with what was expected and
what to do. No file is opened here, and no moment is asked for.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from zoneinfo import ZoneInfo

from tracker.core import _checks
from tracker.core.errors import InvalidValue, nearest, shown
from tracker.core.hardware import canonical_precision
from tracker.core.records import EARLIEST_US, LATEST_US
from tracker.daily import DAYS

Read = Callable[[str, object], Any]

MOST_ADDRESSES: Final = 100
"""Most recipients of one mail: many servers take no more at once."""
_LOCAL: Final = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_DOMAIN: Final = re.compile(
    r"[A-Za-z0-9]([A-Za-z0-9-]{0,62})(\.[A-Za-z0-9]([A-Za-z0-9-]{0,62}))*|\[[0-9A-Fa-f:.]+\]"
)
_NAMED: Final = re.compile(r"[^<>]*<(?P<address>[^<>]*)>")
WEBHOOK_EVENTS: Final = ("stalled", "recovered", "down", "restarted", "finished", "behind_plan")
"""What a webhook may be told."""

MOST_TEXT: Final = 1_000
"""Longest text that a value may be, in characters."""
MOST_TFLOP_PER_S: Final = 100_000
"""Above any dense peak of one device, at any precision, by a factor of five."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of value."""

    expected: str
    """For people, as it stands in the reference: "a ratio above 0 and up to 1"."""
    read: Read
    """(dotted name, TOML value) -> checked value; raises InvalidValue."""


@dataclass(frozen=True, slots=True)
class Listen:
    """Where the server listens."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host in {"localhost", "::1"} or self.host.startswith("127.")

    def exposure(self, *, tls: bool = False, login: bool = False) -> str:
        """Return what is to be said of an address that other machines can reach; empty for a safe one."""
        lacks = " or ".join(
            word for word, there in (("encryption (TLS)", tls), ("password", login)) if not there
        )
        if self.is_loopback or not lacks:
            return ""
        return (
            f"{shown(str(self))}: other machines can read the runs' numbers, and the log lines shown with "
            f"them, without {lacks}. Set serve.web_config to a web config file with tls_server_config and "
            "basic_auth_users (docs/serving.md), or listen on 127.0.0.1"
        )

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _text(name: str, value: object) -> str:
    expected = "a text in quotes, not empty"
    if not isinstance(value, str):
        plain = isinstance(value, (int, float)) and not isinstance(value, bool)
        raise InvalidValue(name, value, expected, f'Write "{value}"' if plain else "")
    if not value.strip():
        raise InvalidValue(name, value, expected)
    if len(value) > MOST_TEXT:
        raise InvalidValue(name, value, f"at most {MOST_TEXT} characters, not {len(value)}")
    return value


def _path(name: str, value: object) -> str:
    text = _text(name, value)
    if "\0" in text:
        raise InvalidValue(name, value, "a path without a NUL character")
    return text


def _boolean(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidValue(name, value, "true or false, without quotes")
    return value


def _gpu(name: str, value: object) -> str:
    return _text(name, value)


def _precision(name: str, value: object) -> str:
    try:
        return canonical_precision(_text(name, value))
    except InvalidValue as error:
        raise InvalidValue(name, value, error.expected, error.remedy) from None


def _peak_tflops(name: str, value: object) -> float:
    expected = "the dense peak of one GPU in TFLOP/s, such as 989 for an H100 SXM in BF16"
    number = _checks.positive(name, value, expected)
    if number > MOST_TFLOP_PER_S:
        for unit, factor in (("GFLOP/s", 1e3), ("MFLOP/s", 1e6), ("FLOP/s", 1e12)):
            if 1 <= number / factor <= MOST_TFLOP_PER_S / 5:
                hint = f"It looks like {unit}: write {number / factor:g}"
                raise InvalidValue(name, value, expected, hint)
        raise InvalidValue(name, value, expected)
    if number < 1:
        hint = f"It looks like PFLOP/s: write {number * 1e3:g}" if number * 1e3 >= 1 else ""
        raise InvalidValue(name, value, expected, hint)
    return number


def _zone(name: str, value: object) -> ZoneInfo:
    expected = "a zone of the IANA database, such as UTC or Europe/Berlin"
    text = _text(name, value)
    try:
        return ZoneInfo(text)
    except (ValueError, OSError, LookupError):
        pass
    if re.fullmatch(r"(UTC|GMT)?[+-]\d\d?(:?\d\d)?", text):
        hint = "A fixed offset is no zone: take Etc/GMT-2 for UTC+2 (its sign is the other way round)"
    else:
        import zoneinfo  # the list is read from disk: only when there is something to say

        hint = nearest(text, zoneinfo.available_timezones())
    raise InvalidValue(name, value, expected, hint)


def _moment(name: str, value: object) -> dt.datetime:
    """Return a moment; one without an offset stays naive, and the loader puts it in the run's zone."""
    expected = "a date and time such as 2026-01-05T08:00:00Z"
    moment: dt.datetime
    if isinstance(value, dt.datetime):
        moment = value
    elif isinstance(value, dt.date):
        moment = dt.datetime.combine(value, dt.time())
    elif isinstance(value, str):
        try:
            moment = dt.datetime.fromisoformat(value.strip())
        except ValueError:
            raise InvalidValue(name, value, expected) from None
    else:
        raise InvalidValue(name, value, expected)
    whole = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
    if not EARLIEST_US <= whole.timestamp() * 1e6 < LATEST_US:
        raise InvalidValue(name, str(value), "a moment between 2000 and 2100")
    return moment


def _time_of_day(name: str, value: object) -> dt.time:
    expected = "a time of day such as 07:00, in quotes"
    if isinstance(value, dt.time):
        return value.replace(second=0, microsecond=0)
    if isinstance(value, str):
        found = re.fullmatch(r"\s*(\d{1,2}):(\d{2})(?::\d{2})?\s*", value, re.ASCII)
        if found and int(found[1]) < 24 and int(found[2]) < 60:
            return dt.time(int(found[1]), int(found[2]))
    raise InvalidValue(name, value if not isinstance(value, dt.date) else str(value), expected)


def _listen(name: str, value: object) -> Listen:
    expected = "host:port, such as 127.0.0.1:9109 or [::1]:9109"
    text = _text(name, value)
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):(\d{1,5})", text, re.ASCII)
    if not found:
        if re.fullmatch(r":?\d{1,5}", text, re.ASCII):
            hint = f"Name the host: 127.0.0.1:{text.lstrip(':')}"
        elif re.fullmatch(r"[A-Za-z0-9_.-]+", text, re.ASCII):
            hint = f"Name the port: {text}:9109"
        else:
            hint = ""
        raise InvalidValue(name, value, expected, hint)
    port = int(found[2])
    if port > 65535:
        raise InvalidValue(name, value, "a port from 0 to 65535 (0: any free one)")
    return Listen(found[1].strip("[]"), port)


def _command(name: str, value: object) -> tuple[str, ...]:
    expected = 'a list of texts, such as ["sacct", "--parsable2", "--duplicates", "--jobs", "4711"]'
    if isinstance(value, str):
        raise InvalidValue(name, value, expected, "It is started without a shell: one text for each word")
    if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
        raise InvalidValue(name, value, expected)
    if not value[0].strip() or any("\0" in word for word in value):
        raise InvalidValue(name, value, expected)
    return tuple(value)


def _addresses(name: str, value: object) -> tuple[str, ...]:
    words = value if isinstance(value, list) else [value]
    expected = "a mail address, or a list of them"
    if not words or len(words) > MOST_ADDRESSES:
        raise InvalidValue(name, value, expected if not words else f"at most {MOST_ADDRESSES} addresses")
    found: dict[str, str] = {}
    for word in words:
        address = _address(name, word)
        found.setdefault(bare_address(address).lower(), address)
    return tuple(found.values())


def _address(name: str, value: object) -> str:
    expected = "a mail address such as ops@example.org or Ops <ops@example.org>"
    if not isinstance(value, str) or not value.isprintable() or len(value) > MOST_TEXT:
        raise InvalidValue(name, value, expected)
    text = value.strip()
    bare = bare_address(text)
    local, _, domain = bare.rpartition("@")
    if not bare.isascii():
        raise InvalidValue(name, value, expected, "Only ASCII before and after the @ (a domain: as xn--...)")
    if not (
        _LOCAL.fullmatch(local)
        and _DOMAIN.fullmatch(domain)
        and len(local) <= 64
        and len(bare) <= 254
        and (text == bare or _NAMED.fullmatch(text))
    ):
        raise InvalidValue(name, value, expected)
    return text


def bare_address(text: str) -> str:
    """Return the address alone, without the name before it.

    >>> bare_address("Ops <ops@example.org>"), bare_address("ops@example.org")
    ('ops@example.org', 'ops@example.org')
    """
    found = _NAMED.fullmatch(text)
    return found["address"].strip() if found else text


def _host(name: str, value: object) -> str:
    text = _text(name, value)
    if not re.fullmatch(r"[A-Za-z0-9_.-]+|\[?[0-9A-Fa-f:.]+\]?", text, re.ASCII):
        hint = "The port has a key of its own" if re.fullmatch(r"[A-Za-z0-9_.-]+:\d+", text) else ""
        raise InvalidValue(name, value, "the name or address of a machine, such as smtp.example.org", hint)
    return text.strip("[]")


def _name(name: str, value: object) -> str:
    text = _text(name, value)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}", text, re.ASCII):
        raise InvalidValue(name, value, 'letters, digits, "-" and "_", at most 40')
    return text


def _variable(name: str, value: object) -> str:
    text = _text(name, value)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,99}", text, re.ASCII):
        raise InvalidValue(name, value, "the name of an environment variable, not its value") from None
    return text


def _some_of(*words: str) -> Kind:
    expected = "a list of " + ", ".join(f'"{word}"' for word in words)

    def read(name: str, value: object) -> tuple[str, ...]:
        given: list[Any] = value if isinstance(value, list) else [value]
        if not given:
            raise InvalidValue(name, value, expected)
        for word in given:
            if not isinstance(word, str) or word.lower() not in words:
                hint = nearest(word.lower(), words) if isinstance(word, str) else ""
                raise InvalidValue(name, word, expected, hint)
        return tuple(word for word in words if word in {one.lower() for one in given})

    return Kind(expected=expected, read=read)


def _price(name: str, value: object) -> float:
    return _checks.not_negative(name, value, "an amount of 0 or more")


def _fraction(name: str, value: object) -> float:
    expected = "a fraction of 0 or more, such as 0.05"
    number = _checks.not_negative(name, value, expected)
    if number >= 5:
        hint = f"It looks like per cent: write {number / 100:g}" if number <= 100 else ""
        raise InvalidValue(name, value, expected, hint)
    return number


def _ratio(name: str, value: object) -> float:
    expected = "a ratio above 0 and up to 1"
    number = _checks.finite(name, value, expected)
    if 1 < number <= 100:
        raise InvalidValue(name, value, expected, f"It looks like per cent: write {number / 100:g}")
    return _checks.ratio(name, number)


def _factor(name: str, value: object) -> float:
    expected = "a factor of 1 or more"
    number = _checks.positive(name, value, expected)
    if number < 1 or number > 100:
        raise InvalidValue(name, value, expected, "1.0 adds nothing")
    return number


def _seconds(name: str, value: object) -> float:
    expected = "seconds, above 0 and up to a week"
    number = _checks.positive(name, value, expected)
    if number > 7 * 86_400:
        raise InvalidValue(name, value, expected)
    return number


def _linger(name: str, value: object) -> float:
    number = _checks.not_negative(name, value, "seconds, 0 or more")
    if number > 366 * 86_400:
        raise InvalidValue(name, value, "seconds, up to a year")
    return number


def _port(name: str, value: object) -> int:
    number = _checks.count(name, value)
    if number > 65535:
        raise InvalidValue(name, value, "a port from 1 to 65535")
    return number


def _count(name: str, value: object) -> int:
    number = _checks.count(name, value)
    if number >= 2**62:
        raise InvalidValue(name, value, "a whole number below 2 to the 62nd")
    return number


def _up_to(most: int, expected: str) -> Kind:
    def read(name: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise InvalidValue(name, value, expected)
        return value

    return Kind(expected=expected, read=read)


def _parameters(name: str, value: object) -> float:
    expected = "a number of parameters above 0, such as 13e9"
    number = _checks.positive(name, value, expected)
    if number < 1_000:
        raise InvalidValue(name, value, expected, f"In billions? Write {number:g}e9")
    if number > 1e18:
        raise InvalidValue(
            name, value, f"{expected}, and at most 1e18", "Count parameters, not FLOP or bytes"
        )
    return number


def _tokens(name: str, value: object) -> float:
    expected = "a number of tokens above 0, such as 4e12"
    number = _checks.positive(name, value, expected)
    if number < 1_000:
        raise InvalidValue(name, value, expected, f"In trillions? Write {number:g}e12")
    if number > 1e20:
        raise InvalidValue(name, value, f"{expected}, and at most 1e20", "Count tokens, not FLOP or bytes")
    return number


def _one_of(*words: str) -> Kind:
    expected = "one of " + ", ".join(f'"{word}"' for word in words)

    def read(name: str, value: object) -> str:
        if not isinstance(value, str) or value not in words:
            hint = nearest(value, words) if isinstance(value, str) else ""
            raise InvalidValue(name, value, expected, hint)
        return value

    return Kind(expected=expected, read=read)


def _positive(name: str, value: object) -> float:
    return _checks.positive(name, value)


def _not_negative(name: str, value: object) -> float:
    return _checks.not_negative(name, value)


TEXT: Final = Kind(expected="a text", read=_text)
PATH: Final = Kind(expected="a path, from the folder of the config file", read=_path)
BOOLEAN: Final = Kind(expected="true or false", read=_boolean)
GPU: Final = Kind(expected="a name or alias of the hardware table", read=_gpu)
PRECISION: Final = Kind(expected="fp32, tf32, bf16, fp16, fp8 or fp4", read=_precision)
PEAK_TFLOPS: Final = Kind(expected="the dense peak of one GPU in TFLOP/s", read=_peak_tflops)
ZONE: Final = Kind(expected="a zone of the IANA database", read=_zone)
MOMENT: Final = Kind(expected="a date and time; without an offset in the run's timezone", read=_moment)
TIME_OF_DAY: Final = Kind(expected="a time of day", read=_time_of_day)
LISTEN: Final = Kind(expected="host:port", read=_listen)
COMMAND: Final = Kind(expected="a list of texts: program and arguments, no shell", read=_command)
HOST: Final = Kind(expected="the name or address of a machine", read=_host)
NAME: Final = Kind(expected="a short name of letters, digits, - and _", read=_name)
VARIABLE: Final = Kind(expected="the name of an environment variable", read=_variable)
WEEKDAYS: Final = _some_of(*DAYS)
EVENTS: Final = _some_of(*WEBHOOK_EVENTS)
ADDRESS: Final = Kind(expected="a mail address", read=_address)
ADDRESSES: Final = Kind(expected="a mail address, or a list of them", read=_addresses)
AMOUNT: Final = Kind(expected="an amount of 0 or more", read=_price)
FRACTION: Final = Kind(expected="a fraction of 0 or more", read=_fraction)
RATIO: Final = Kind(expected="a ratio above 0 and up to 1", read=_ratio)
FACTOR: Final = Kind(expected="a factor of 1 or more", read=_factor)
POSITIVE: Final = Kind(expected="a number above 0", read=_positive)
NOT_NEGATIVE: Final = Kind(expected="a number of 0 or more", read=_not_negative)
SECONDS: Final = Kind(expected="seconds, above 0", read=_seconds)
LINGER: Final = Kind(expected="seconds, 0 or more", read=_linger)
PORT: Final = Kind(expected="a port from 1 to 65535", read=_port)
COUNT: Final = Kind(expected="a whole number of 1 or more", read=_count)
PARAMETERS: Final = Kind(expected="a number of parameters above 0", read=_parameters)
TOKENS: Final = Kind(expected="a number of tokens above 0", read=_tokens)
NICENESS: Final = _up_to(19, "a whole number from 0 (as everybody) to 19 (last)")
OOM_SCORE: Final = _up_to(1000, "a whole number from 0 (as everybody) to 1000 (first)")
BILLING: Final = _one_of("attempt", "reservation")
TLS: Final = _one_of("starttls", "implicit", "none")
SHAPE: Final = _one_of("generic", "slack", "teams")
ON_UNCERTAIN: Final = _one_of("resend", "hold")
PAPER: Final = _one_of("a4", "letter")


def in_zone(moment: dt.datetime, zone: dt.tzinfo) -> dt.datetime:
    """Return a moment in UTC; one without an offset is read as local time of the zone."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)
    return aware.astimezone(dt.UTC)


def to_us(moment: dt.datetime) -> int:
    """Return microseconds since 1970 UTC of an aware moment, exactly."""
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def plain_json(value: Any) -> Any:
    """Return a TOML value as plain JSON (dates as ISO text), for options that a collector reads."""
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, list):
        return [plain_json(item) for item in value]
    if isinstance(value, Mapping):
        return {key: plain_json(item) for key, item in value.items()}
    return value

"""How a try to send ends, and how long until the next one.

Pure. What may pass is tried again, later and later, with a jitter that follows from the letter; what the
other side refused for good is given up and counted.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final, Literal

MINUTE_US: Final = 60_000_000
LONGEST_US: Final = 86_400_000_000
"""Between two tries."""
FURTHEST_US: Final = LONGEST_US * 3 // 2
"""No honest `not_before` is further ahead."""
GIVE_UP_US: Final = 7 * 86_400_000_000
GIVE_UP_TRIES: Final = 12
"""A letter that nobody took for so long, in so many tries, is given up: neither a clock that was set nor a
tracker that was off alone does that."""
_JITTER: Final = 0.25

REASONS: Final = (
    "network", "timeout", "tls", "certificate", "login", "secret", "protocol",
    "busy", "sender", "recipient", "message", "size", "uncertain", "expired",
)  # fmt: skip
"""Why a try failed; a label of a metric, so they are few."""
OF_THE_SERVER: Final = ("network", "timeout", "tls", "certificate", "login", "secret", "protocol")
"""Reasons that hit every letter alike: gone for all once one is sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one try ended for one recipient."""

    kind: Literal["sent", "later", "never", "uncertain"]
    reason: str = ""
    """One of REASONS; empty where it was sent."""
    text: str = ""
    """What happened, in words; no secret in it."""
    wait_us: int | None = None
    """How long the other side asked to wait."""


SENT: Final = Outcome(kind="sent")


def wait_us(message_id: str, attempts: int) -> int:
    """Return how long until the next try after so many: a minute, doubled each time up to a day.

    The jitter adds up to a quarter: it follows from the letter, so that a thousand trackers do not come
    back in one second and a test can say what it expects.

    >>> [wait_us("<a@b>", n) // MINUTE_US for n in (1, 2, 3, 20)]
    [1, 2, 4, 1440]
    """
    plain = min(MINUTE_US << min(max(attempts - 1, 0), 20), LONGEST_US)
    digest = hashlib.sha256(f"{message_id} {attempts}".encode()).digest()
    return min(plain + int(plain * _JITTER * digest[0] / 256), LONGEST_US)


def expired(queued_us: int, attempts: int, now_us: int) -> bool:
    """Tell whether a letter waits for too long."""
    return now_us - queued_us > GIVE_UP_US and attempts > GIVE_UP_TRIES

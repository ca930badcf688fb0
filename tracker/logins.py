"""Who may come in: names and passwords against bcrypt hashes, with the rate of guesses limited.

Edge: computes hashes, which takes a processor for a tenth of a second each; everything here keeps that rare.

- A header that was right once is known by its digest: no hash is computed for it again, and no limit can
  lock out whoever sends it.
- A header that was wrong is known too, so that a scraper with an old password costs nothing.
- Only guesses count: of one address, and of all addresses that never sent a right one. Above the limit the
  answer is 429 and nothing is computed.
- An unknown name takes as long as a known one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import ipaddress
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import bcrypt

from tracker.interfaces import Clock

MOST_GUESSES: Final = 10
"""Wrong guesses in a row that one address has; then one each `GUESS_S`."""
GUESS_S: Final = 6.0
MOST_GUESSES_OF_ALL: Final = 40
"""Likewise of all addresses together that never sent a right one; then one each `GUESS_OF_ALL_S`."""
GUESS_OF_ALL_S: Final = 2.0
WAIT_S: Final = 5.0
"""How long a login waits while others are looked at: one hash is computed at a time."""
_MOST_KNOWN: Final = 1024
_BCRYPT_BYTES: Final = 72
_LONGEST: Final = 4096
_NOBODY: Final = "$2b${:02d}$" + "." * 53


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to become of a request."""

    why: Literal["", "none", "wrong", "limited", "busy"]
    """Empty: it is let in."""
    retry_s: float = 0.0
    """When to try again, where it is limited."""


_IN: Final = Verdict("")
_NONE: Final = Verdict("none")
_WRONG: Final = Verdict("wrong")


class Logins:
    """The users of one web config. Called from many threads at once."""

    def __init__(self, users: Mapping[str, bytes], *, clock: Clock) -> None:
        """`users`: bcrypt hashes by name; they were checked."""
        self._users = dict(users)
        dearest = max((cost_of(one) for one in users.values()), default=10)
        self._nobody = _NOBODY.format(dearest).encode()
        self._clock = clock
        self._key = os.urandom(32)
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._wrong: OrderedDict[bytes, None] = OrderedDict()
        self._good: OrderedDict[str, None] = OrderedDict()
        """Addresses that sent a right one."""
        self._of_address: OrderedDict[str, _Bucket] = OrderedDict()
        self._of_all = _Bucket(MOST_GUESSES_OF_ALL, GUESS_OF_ALL_S, clock.monotonic_s())
        self._computing = threading.Lock()
        self._lock = threading.Lock()

    def admit(self, header: str | None, address: str) -> Verdict:
        """Judge an Authorization header from an IP address."""
        found = _name_and_password(header)
        if found is None:
            return _NONE
        digest = hashlib.blake2b((header or "").encode("latin-1", "replace"), key=self._key).digest()
        address = _network(address)
        known = self._known(digest, address)
        if known is not None:
            return known
        if not self._computing.acquire(timeout=WAIT_S):
            return Verdict("busy", 1.0)
        try:
            known = self._known(digest, address)  # many scrapers begin with one header at once
            if known is not None:
                return known
            name, password = found
            right = _matches(password, self._users.get(name, self._nobody)) and name in self._users
            self._remember(digest, address, right=right)
            return _IN if right else _WRONG
        finally:
            self._computing.release()

    def _known(self, digest: bytes, address: str) -> Verdict | None:
        """Return the verdict that needs no hash."""
        with self._lock:
            if digest in self._right:
                self._right.move_to_end(digest)
                return _IN
            if digest in self._wrong:
                self._wrong.move_to_end(digest)
                return _WRONG
            now_s = self._clock.monotonic_s()
            own = self._of_address.get(address)
            wait_s = own.wait_s(now_s) if own is not None else 0.0
            if address not in self._good:
                wait_s = max(wait_s, self._of_all.wait_s(now_s))
            return Verdict("limited", wait_s) if wait_s > 0 else None

    def _remember(self, digest: bytes, address: str, *, right: bool) -> None:
        with self._lock:
            _keep(self._right if right else self._wrong, digest)
            if right:
                _keep(self._good, address)
                return
            now_s = self._clock.monotonic_s()
            own = self._of_address.pop(address, None) or _Bucket(MOST_GUESSES, GUESS_S, now_s)
            self._of_address[address] = own
            if len(self._of_address) > _MOST_KNOWN:
                self._of_address.popitem(last=False)
            own.take(now_s)
            if address not in self._good:
                self._of_all.take(now_s)


class _Bucket:
    """So many at once, then one each so many seconds."""

    __slots__ = ("_at_s", "_every_s", "_left", "_most")

    def __init__(self, most: int, every_s: float, now_s: float) -> None:
        self._most = most
        self._every_s = every_s
        self._left = float(most)
        self._at_s = now_s

    def wait_s(self, now_s: float) -> float:
        """Return how long until one may be taken."""
        self._left = min(self._most, self._left + max(0.0, now_s - self._at_s) / self._every_s)
        self._at_s = now_s
        return max(0.0, 1.0 - self._left) * self._every_s

    def take(self, now_s: float) -> None:
        """Take one."""
        self.wait_s(now_s)
        self._left -= 1.0


def cost_of(hashed: bytes) -> int:
    """Return the cost that stands in a bcrypt hash.

    >>> cost_of(b"$2y$10$" + b"x" * 53)
    10
    """
    return int(hashed.split(b"$")[2])


def _name_and_password(header: str | None) -> tuple[str, bytes] | None:
    kind, _, coded = (header or "").partition(" ")
    if kind.lower() != "basic" or len(coded) > _LONGEST:
        return None
    try:
        plain = base64.b64decode(coded.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None
    name, colon, password = plain.partition(b":")
    return (name.decode("utf-8", "replace"), password) if colon else None


def _matches(password: bytes, hashed: bytes) -> bool:
    """Compare in constant time; a password that bcrypt cannot take is wrong."""
    try:
        return bcrypt.checkpw(password[:_BCRYPT_BYTES], hashed)
    except ValueError:
        return False


def _network(address: str) -> str:
    """Return the address, or the /64 of a v6 one: whoever has one address there has them all."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)


def _keep(known: OrderedDict[bytes, None] | OrderedDict[str, None], key: bytes | str) -> None:
    known[key] = None  # type: ignore[index]
    if len(known) > _MOST_KNOWN:
        known.popitem(last=False)

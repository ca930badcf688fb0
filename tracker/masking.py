"""Words of another side, shown without the secrets that it may repeat.

Pure. A server that refuses a login often says with what: in clear, as base64, or quoted for a URL.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote, quote_plus, unquote

MASK: Final = "***"
_LEAST_CUT: Final = 4
"""A shorter beginning of a secret at the end of a text may be any word."""
_LEAST_CODED: Final = 4
"""Likewise of what base64 makes of a secret between other words."""


class Masked:
    """Secrets, and how to take them out of a text. `repr` shows nothing of them."""

    def __init__(self, *secrets: str) -> None:
        """Take the secrets; empty ones are none."""
        self._forms: Final = sorted({form for one in secrets if one for form in _forms(one)}, key=len)[::-1]
        self._pattern: Final = re.compile("|".join(map(re.escape, self._forms)), re.IGNORECASE)

    def __call__(self, text: str) -> str:
        """Return a text with each secret as `***`, also one that the end of the text cuts off.

        >>> Masked("hunter22")("no such hunter22, nor aHVudGVyMjI=, nor hunte")
        'no such ***, nor ***, nor ***'
        """
        if not self._forms:
            return text
        text = self._pattern.sub(MASK, text)
        low = text.lower()
        for form in self._forms:
            start = form.lower()
            for length in range(min(len(form) - 1, len(text)), _LEAST_CUT - 1, -1):
                if low.endswith(start[:length]):
                    return text[:-length] + MASK
        return text


def _forms(secret: str) -> Iterator[str]:
    """Yield the ways in which a secret may be written."""
    for word in (secret, unquote(secret), " ".join(secret.split())):
        if word:
            yield from (word, quote(word, safe=""), quote(word), quote_plus(word), quote_plus(word, safe="/"))
            yield from (html.escape(word), json.dumps(word)[1:-1])
    raw = secret.encode("utf-8", "surrogateescape")
    for coded in (base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()):
        yield from (coded, coded.rstrip("="))
    yield raw.hex()
    # Inside of something longer, as \0user\0password, base64 has three ways to write it: the letters at its
    # ends depend on its neighbours too.
    for before in range(3):
        whole = (before + len(raw)) * 8 // 6
        coded = base64.b64encode(b"\0" * before + raw).decode()[-(-before * 8 // 6) : whole]
        if len(coded) >= _LEAST_CODED:
            yield from (coded, coded.translate({ord("+"): "-", ord("/"): "_"}))

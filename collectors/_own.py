"""What only one framework prints, looked for in a file's first bytes.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tracker.interfaces import Evidence

Sign = tuple[int, bytes | re.Pattern[bytes], str]
"""(score, pattern, what to tell people), the surest sign first."""


def first_sign(head: bytes, signs: Iterable[Sign]) -> Evidence | None:
    """Return the first sign that a head holds, as evidence; None for none.

    >>> first_sign(b"| INFO | train_inner | x", [(97, rb"train_inner", "`train_inner`")])
    Evidence(score=97, text='`train_inner`')
    """
    for score, pattern, text in signs:
        if re.search(pattern, head):
            return Evidence(score=score, text=text)
    return None

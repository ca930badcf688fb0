"""What a report's files, mails and lists are called: names in ASCII, of runs that may be called anything.

Pure, and light: the sidecar's own process uses it to find the latest report.
"""

from __future__ import annotations

import hashlib
import unicodedata
from typing import Final

_SPELT: Final = str.maketrans({
    "–": "-", "—": "-", "−": "-", "‘": "'", "’": "'", "“": '"', "”": '"', "…": "...", "×": "x",
    "ß": "ss", "ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "æ": "ae", "ø": "o",
})  # fmt: skip
_JOINERS: Final = "\N{VARIATION SELECTOR-16}\N{ZERO WIDTH JOINER}"
_LONGEST: Final = 80


def ascii_of(text: str) -> str:
    """Return text in ASCII: accents are dropped, what has no likeness is a question mark."""
    return "".join(c if " " <= c <= "~" else " " if c.isspace() else "?" for c in _bare(text))


def file_name(text: str) -> str:
    """Return text as a file's name that every system and mail program takes.

    >>> file_name("a/b: c" + chr(34) + ".pdf"), file_name("../x")
    ('a-b-c.pdf', 'x')
    """
    plain = "".join(c if c.isalnum() or c in "._-" else "-" for c in ascii_of(text))
    while "--" in plain or "-." in plain:
        plain = plain.replace("--", "-").replace("-.", ".")
    return plain.strip("-.")[-100:] or "report"


def run_name(run: str) -> str:
    """Return a run's name as a part of file names and lists.

    One that loses letters by it gets a mark of its own, so that two runs with Chinese names share no file.

    >>> run_name("llama/13b \N{GRINNING FACE}"), run_name("Zürich"), run_name("\u8a13\u7df4 7b")
    ('llama-13b', 'Zuerich', '7b-8d4877')
    """
    plain = file_name(run)[:_LONGEST]
    lost = any(not c.isascii() and unicodedata.category(c)[0] in "LN" for c in _bare(run))
    return f"{plain}-{hashlib.sha256(run.encode('utf-8', 'replace')).hexdigest()[:6]}" if lost else plain


def base_name(run: str, kind: str, day: str) -> str:
    """Return the name of a report's files, without an ending.

    >>> base_name("a/b", "daily", "2026-01-05"), base_name("a/b", "weekly", "2026-01-05")
    ('a-b-2026-01-05', 'a-b-weekly-2026-01-05')
    """
    between = "" if kind == "daily" else f"{kind}-"
    return f"{run_name(run)}-{between}{day}"


def _bare(text: str) -> str:
    """Return text without accents."""
    spelt = unicodedata.normalize("NFKD", text.translate(_SPELT))
    return "".join(c for c in spelt if not unicodedata.combining(c) and c not in _JOINERS)

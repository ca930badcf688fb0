"""Has a page printed: a child process draws its figures and sets it, so that its memory never becomes ours.

Edge: starts, watches and ends one process at a time. The child gets the page as JSON and gives a PDF back.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

from reports.page import Axis, Drawing, Figure, Page, Panel, Section
from reports.typst_page import Paper, document, figures
from tracker.child import ended
from tracker.core.errors import TrackerError
from tracker.leash import Leash

LIMIT_S: Final = 120.0
TRIAL_S: Final = 30.0
"""A trial takes a second; more than this only a machine that is no good for reports."""
_SAID: Final = 400


class NotRendered(TrackerError):
    """A page could not be printed; the message says why."""


def pdf(page: Page, *, paper: Paper = "a4", limit_s: float = LIMIT_S) -> bytes:
    """Return a page as PDF; raises NotRendered."""
    made = _child({"make": "pdf", "document": document(page, paper=paper)}, "the PDF", limit_s)
    if not made.startswith(b"%PDF-"):
        raise NotRendered("the PDF could not be made: what came back is none")
    return made


def pictures(
    page: Page, names: Sequence[str], *, width_px: int, limit_s: float = LIMIT_S
) -> dict[str, bytes]:
    """Return figures of a page as PNG, by their names; raises NotRendered."""
    asked = figures(page, names)
    if not asked:
        return {}
    body = _child({"make": "png", "figures": asked, "width_px": width_px}, "the pictures", limit_s)
    found: dict[str, bytes] = msgspec.json.decode(body, type=dict[str, bytes])
    return found


def trouble(*, limit_s: float = TRIAL_S) -> str:
    """Return why no PDF can be made and what to do; empty where a page of one figure came out.

    It is really made: a library that lies there may be broken.
    """
    missing = _missing()
    if missing:
        return missing
    axis = Axis(low=0.0, high=1.0, ticks=())
    figure = Figure(name="trial", alt="A trial.", caption="A trial.",
                    drawing=Drawing(panels=(Panel(x=axis, y=axis),)))  # fmt: skip
    page = Page(title="Trial", run="trial", as_of_us=0, as_of="now", state="waiting", verdict="A trial.",
                tone="plain", sections=(Section(name="trial", title="Trial", blocks=(figure,)),))  # fmt: skip
    try:
        pdf(page, limit_s=limit_s)
    except NotRendered as error:
        return str(error)
    return ""


def _missing() -> str:
    """Return what is not even installed and what to do, without loading anything."""
    for name in ("typst", "matplotlib"):
        if find_spec(name) is None:
            return f"the PDF cannot be made: {name} is not installed: pip install {name}"
    found = find_spec("matplotlib")
    places = list(found.submodule_search_locations or ()) if found is not None else []
    fonts = [Path(place) / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf" for place in places]
    if not any(font.is_file() for font in fonts):
        return (
            "the PDF cannot be made: matplotlib's font DejaVu Sans is missing: "
            "pip install --force-reinstall matplotlib"
        )
    return ""


def _child(request: object, what: str, limit_s: float) -> bytes:
    with Leash() as leash:
        return _ask_child(request, what, limit_s, leash)


def _ask_child(request: object, what: str, limit_s: float, leash: Leash) -> bytes:
    try:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "tracker.cli.pdf_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "MPLBACKEND": "svg", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            start_new_session=True,
            pass_fds=leash.fds,
        )
    except OSError as error:
        raise NotRendered(f"{what} could not be begun: {error.strerror or error}") from None
    leash.hold(child)
    try:
        made, said = child.communicate(msgspec.json.encode(request), timeout=limit_s)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        raise NotRendered(f"{what} took longer than {limit_s:g} s and was ended") from None
    except BaseException:
        child.kill()
        child.communicate()
        raise
    if child.returncode == 0:
        return made
    lines = said.decode("utf-8", "replace").strip().splitlines()
    why = lines[-1][:_SAID] if lines else f"its process {ended(child.returncode)} and said nothing"
    raise NotRendered(f"{what} could not be made: {why}")

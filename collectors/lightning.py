r"""PyTorch Lightning consoles: `Epoch 0:  12%|#  | 120/1000 [00:58<07:09,  2.05it/s, v_num=0, loss=2.31]`.

Pure. The bar counts batches of the epoch, and its clock begins anew with each (`_bars`). Traps: a batch is an
optimiser step only where no gradients are accumulated, which the log does not say; before Lightning 2.0 the
total holds the batches of validation too; nothing has a stamp; a checkpoint's name has epoch and step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from collectors._bars import STATE, advances, due, full, in_epochs, told
from collectors._bars import begins as draws
from collectors._events import EVENTS, FOLLOWERS
from collectors._lines import Hit, Reader, rule
from collectors._numbers import count
from collectors._options import BATCHES, checked
from collectors._own import first_sign
from collectors._process import (
    NAN,
    begins,
    completed,
    done,
    elapsed_s,
    ends,
    launched,
    once,
    resumed,
    settings,
)
from collectors._text import real
from tracker.core.records import Kind, Record
from tracker.interfaces import Collector, Evidence

_NAME: Final = "Lightning"
_LOSS: Final = re.compile(rb"\b\w{0,40}loss\w{0,20}=([^,\]\s]{1,24})")


def _bar(hit: Hit) -> Iterator[Record]:
    """Batches become steps by the source's `accumulate`; without it one is one, and that is said once."""
    epoch, n, total = hit.count("epoch"), hit.count("n"), hit.count("total")
    if epoch is None or n is None or not total:
        return
    if n == 0:
        yield from draws(hit, _NAME)
        return
    accumulate = count(hit.context.options.get("accumulate"))
    s = elapsed_s(hit.group("elapsed") or b"0")
    step = (epoch * total + n) // (accumulate or 1)
    new = yield from advances(hit, _NAME, step, lambda: in_epochs(hit, epoch, s))
    if not new:
        return
    if accumulate is None and once(hit, "accumulate"):
        yield hit.event(Kind.NOTE, message="batches are taken for steps: set accumulate of the [[source]]")
    found = _LOSS.search(hit.group("rest") or b"")
    nan = found is not None and real(found[1]) is None
    if nan or full(hit) or due(hit):
        yield from told(hit, flags=NAN if nan else 0)


def _member(hit: Hit) -> Iterator[Record]:
    """From each process; a single one says nothing."""
    yield from launched(hit, "member", _NAME)
    yield from settings(hit, {"gpus": hit.count(1)})


def _restored(hit: Hit) -> Iterator[Record]:
    step = hit.count("step")
    if step is not None:
        yield from resumed(hit, step)


def _validation(hit: Hit) -> Iterator[Record]:
    if hit.count("n") == hit.count("total"):
        yield from ends(hit, Kind.EVAL_END)
    else:
        yield from begins(hit, Kind.EVAL_START, done(hit))


READER: Final = Reader(
    (
        rule(
            b"Epoch ",
            rb"\bEpoch (?P<epoch>\d{1,6}): {1,4}\d{1,3}%\|[^|\n]{0,2000}\| "
            + STATE
            + rb"(?P<rest>[^\]\n]{0,1000})",
            _bar,
        ),
        rule(
            b"Validation DataLoader",
            rb"Validation DataLoader \d{1,4}: {1,4}\d{1,3}%\|[^|\n]{0,2000}\| " + STATE,
            _validation,
        ),
        rule(b"MEMBER: ", rb"GLOBAL_RANK: \d{1,7}, MEMBER: \d{1,7}/(\d{1,7})\b", _member),
        rule(
            b"from the checkpoint",
            rb"Restored all states from the checkpoint (?:file )?at \S{0,400}\bstep=(?P<step>\d{1,15})\b",
            _restored,
        ),
        rule(
            b"`Trainer.fit` stopped", rb"`Trainer\.fit` stopped: `max_\w{1,20}=\S{1,24}` reached", completed
        ),
        *EVENTS,
    ),
    followers=FOLLOWERS,
)

_OWN: Final = (
    (70, rb"\bEpoch \d{1,6}: +\d{1,3}%\|[^|\n]{0,900}\| " + STATE + rb", v_num=", "a bar with v_num"),
    (62, rb"`Trainer\.fit` stopped: ", "`Trainer.fit` stopped"),
    (48, rb"\bEpoch \d{1,6}: +\d{1,3}%\|[^|\n]{0,900}\| " + STATE, "a bar of epochs"),
)


def detect(head: bytes) -> Evidence | None:
    """Find its bar; frameworks on top of it print their own words too, and claim more."""
    return first_sign(head, _OWN)


COLLECTOR: Final = Collector(
    name="lightning",
    framework="PyTorch Lightning 1.x and 2.x consoles (progress bar)",
    version=1,
    parse=READER.parse,
    detect=detect,
    knows=("batches", "step time from the progress bar", "gpus", "resume", "evaluation", "completion"),
    needs=(
        "source.accumulate where gradients are accumulated (accumulate_grad_batches)",
        "model.global_batch_size and model.sequence_length",
        "source.started_at where no scheduler tells when it ran",
    ),
    options=("accumulate",),
    check=checked(accumulate=BATCHES),
    notes=(
        "Before Lightning 2.0 the bar's total holds validation's batches: steps are too many there. Better "
        "give metrics.csv (lightning_csv), or a logger of your own (jsonl)."
    ),
)

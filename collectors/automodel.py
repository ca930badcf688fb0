"""NeMo Automodel logs: `step 13 | epoch 0 | loss .. | tps 6574.51(821.81/gpu) | num_label_tokens ..`.

Pure. Traps: `tps` is of the cluster, and what it says "/gpu" is of a data-parallel rank; it counts all tokens
but padding, while num_label_tokens leaves out masked prompts; steps count from 0 since v0.2, from 1 in v0.1;
the end of training is said nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from collectors._events import EVENTS, FOLLOWERS
from collectors._lines import Hit, Reader, rule
from collectors._process import (
    INCLUDES,
    NAN,
    ROUNDED,
    SAMPLE,
    begins,
    completed,
    ends,
    exits,
    launched,
    plain,
    process,
    progress,
    resolution,
    resumed,
    setting,
    settings,
    sign,
)
from collectors._swift import AT, Match, Memory, Swift, Taken
from collectors._text import real
from tracker.core.records import LARGEST, Kind, Reading, Record
from tracker.interfaces import Collector, Evidence

_NAME: Final = "NeMo Automodel"
_GATE: Final = b" | epoch "
_SECOND_US: Final = 1_000_000
_MASKED: Final = 1.02
_RATE: Final = re.compile(rb"\btps ([\d.,]{1,20})\(([\d.,]{1,20})/gpu\)")
_LABELS: Final = re.compile(rb"\bnum_label_tokens (\d{1,15})\b")
_LOSS: Final = re.compile(rb"\bloss (\S{1,24})")


def _step(hit: Hit) -> Iterator[Record]:
    """One line a step; its rate is over the time since the step before, with validation and saves in it."""
    text = hit.group("rest") or b""
    rate, labels, step = _RATE.search(text), _LABELS.search(text), hit.count("step")
    if rate is None or labels is None or step is None:
        yield hit.reject("torn step line")
        return
    one, loss = process(hit), _LOSS.search(text)
    if "base" not in one:  # what makes the printed step a count of steps done
        one["base"] = 0 if step == 1 and not one.get("resumed") else 1
    reading, memory = _reading(
        step,
        b"0" if loss is None else loss[1],
        real(rate[1]) or 0.0,
        int(labels[1]),
        hit.stamp_us(),
        hit.offset,
        one,
    )
    one.update(memory)
    yield from settings(hit, {"data_parallel": _ranks(real(rate[1]), real(rate[2]))})
    yield from progress(hit, reading)
    target = setting(hit, "target_steps")
    if target is not None and reading.step >= target:
        yield from completed(hit)


def _ranks(all_: float | None, one: float | None) -> int | None:
    return round(all_ / one) if all_ and one else None


def _reading(
    step: int, loss: bytes, tps: float, tokens: int, at_us: int | None, offset: int, one: Memory
) -> tuple[Reading, Memory]:
    """Return the reading of a step, and what to remember."""
    done, before_us, gap_us = step + int(one["base"]), one.get("at"), None
    if at_us is not None and isinstance(before_us, int) and done == (one.get("step") or 0) + 1:
        gap_us = at_us - before_us  # else steps were lost in it, or a process without a banner began
    flags, step_time_us = resolution(at_us), None
    memory = _masked(one, tps, gap_us, tokens) if tps > 0 else {}
    if tps > 0 and not memory.get("masked", one.get("masked")):
        step_time_us, flags = round(tokens / tps * 1e6), flags | INCLUDES
    elif tps > 0 and gap_us is not None and gap_us > 0:
        tokens, step_time_us = round(tps * gap_us / 1e6), gap_us
        flags |= SAMPLE | ROUNDED
    elif tps > 0:
        seen, counted, _ = one["tokens"]
        tokens = round(tokens * seen / counted)
        step_time_us, flags = round(tokens / tps * 1e6), flags | INCLUDES | ROUNDED
    flags |= NAN if real(loss) is None else 0
    memory["at"] = at_us
    return Reading(
        offset, at_us, done, step_time_us or None, flags=flags, tokens_per_step=tokens or None
    ), memory


def _masked(one: Memory, tps: float, gap_us: int | None, labels: int) -> Memory:
    """Find out whether more tokens are processed than have labels: rates x time exceed them for sure.

    Stamps have whole seconds, so a second's worth of tokens may be too many, however many steps are summed.
    """
    if one.get("masked") or gap_us is None:
        return {}
    seen, counted, most = one.get("tokens", (0.0, 0, 0.0))
    seen, counted, most = seen + tps * gap_us / 1e6, counted + labels, max(most, tps)
    return {"tokens": [seen, counted, most], "masked": counted > 0 and seen - most > _MASKED * counted}


def _taken(found: Match, at_us: int | None, offset: int, one: Memory) -> Taken | None:
    step, loss, rate, share, labels = found.groups()
    known, tps = one.get("settings", {}), real(rate)
    if not tps or "base" not in one or known.get("data_parallel") != _ranks(tps, real(share)):
        return None
    reading, memory = _reading(int(step), loss, tps, int(labels), at_us, offset, one)
    return None if reading.step >= known.get("target_steps", LARGEST) else (reading, memory)


_SWIFT: Final = Swift(
    _GATE,
    AT + rb" \| INFO \| [\w.]{1,80} \| ",
    rb"step (\d{1,15}) \| epoch \d{1,9} \| loss (\S{1,24}) \| "
    rb"(?:[a-z_]{1,30} [\d.e+-]{1,24}(?: GiB)? \| ){0,8}"
    rb"tps ([\d.]{1,20})\(([\d.]{1,20})/gpu\) \| num_label_tokens (\d{1,15})\n",
    _taken,
)


def _version(hit: Hit) -> Iterator[Record]:
    version = hit.word(1) or ""
    process(hit)["base"] = 0 if version.startswith("0.1.") else 1
    return settings(hit, {"framework_version": version})


_CONFIG: Final = {
    b"global_batch_size": "global_batch_size",
    b"local_batch_size": "micro_batch_size",
    b"World size": "gpus",
    b"- Max train steps": "target_steps",
    b"- Checkpoint every steps": "save_interval",
    b"- Validation every steps": "eval_interval",
    b"packed_sequence_size": "sequence_length",
    b"tp_size": "tensor_parallel",
    b"pp_size": "pipeline_parallel",
    b"cp_size": "context_parallel",
    b"ep_size": "expert_parallel",
}


def _config(hit: Hit) -> Iterator[Record]:
    name, value = _CONFIG.get(hit.group("key") or b""), hit.count("value")
    if name and value:
        yield from settings(hit, {name: value})


def _loaded(hit: Hit) -> Iterator[Record]:
    """The folder is named by the last step printed before the save."""
    step = hit.count(1)
    if step is not None:
        yield from resumed(hit, step + int(process(hit).get("base", 1)))


def _saves(hit: Hit) -> Iterator[Record]:
    step = hit.count(1)
    if step is not None:
        yield from begins(hit, Kind.SAVE_START, step + int(process(hit).get("base", 1)))


def _validated(hit: Hit) -> Iterator[Record]:
    hit.done = True
    step = hit.count(1)
    if step is not None:
        yield from ends(hit, Kind.EVAL_END, step + int(process(hit).get("base", 1)), alone=True)


_INFO: Final = rb"\| INFO \| \S{1,80} \| "
_FOLDER: Final = rb"\S{1,400}epoch_\d{1,9}_step_(\d{1,15})\b"
_READER: Final = Reader(
    (
        rule(b"[val] ", rb"\[val\] (?:[^|]{1,120} \| )?step (\d{1,15}) \| ", _validated),
        rule(_GATE, rb"\| (?:\S{1,80} \| )?step (?P<step>\d{1,15}) \| epoch \d{1,9} \| (?P<rest>.*)$", _step),
        rule(b"Experiment_details:", rb"Experiment_details:", lambda hit: launched(hit, "details", _NAME)),
        rule(b"- nemo_automodel: ", rb"- nemo_automodel: (\S{1,40})", _version),
        rule(b"World size: ", _INFO + rb"(?P<key>World size): (?P<value>\d{1,9})$", _config),
        rule(b" every steps: ", _INFO + rb"(?P<key>- \w{1,20} every steps): (?P<value>\d{1,12})$", _config),
        rule(b"Max train steps: ", _INFO + rb"(?P<key>- Max train steps): (?P<value>\d{1,15})$", _config),
        rule(b"_size: ", rb"^ {2,8}(?P<key>[a-z_]{2,30}_size): (?P<value>\d{1,12})$", _config),
        rule(b"Loading checkpoint from", rb"Loading checkpoint from " + _FOLDER, _loaded),
        rule(b"Saving checkpoint to", rb"Saving checkpoint to " + _FOLDER, _saves),
        rule(
            b"initiating graceful",
            rb"Received signal 15, initiating graceful stop",
            lambda hit: exits(hit, "time_limit"),
        ),
        rule(b"Model Part 0:", _INFO + rb"Model Part 0:", sign),
        *EVENTS,
    ),
    followers=FOLLOWERS,
    hot=_SWIFT,
)


_LINE: Final = re.compile(
    rb"step \d{1,15} \| epoch \d{1,9} \| loss \S{1,24} \| [^\n]{0,300}\bnum_label_tokens \d"
)
_DETAILS: Final = re.compile(rb"\| Experiment_details:|- nemo_automodel: \d")


def detect(head: bytes) -> Evidence | None:
    """Find its step line, or the details that it prints as it starts."""
    text = plain(head)
    if _LINE.search(text):
        return Evidence(score=96, text="step lines with num_label_tokens")
    if found := _DETAILS.search(text):
        return Evidence(score=93, text=found[0].decode("ascii", "replace"))
    return None


COLLECTOR: Final = Collector(
    name="automodel",
    framework="NeMo Automodel v0.1 to v0.5 and 2026",
    version=1,
    parse=_READER.parse,
    detect=detect,
    knows=("tokens", "time", "step time", "gpus", "saves", "evaluation", "resume", "completion"),
    needs=(),
    notes=(
        "Tokens of a step are its label tokens; where the rate shows that prompts are masked, rate x time, "
        "which stamps of whole seconds make rough. The end of training is taken from `Max train steps`."
    ),
)

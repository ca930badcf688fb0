"""What NeMo's logger, exp_manager and Lightning say around the progress: start, configuration, saves, ends.

Pure. Traps: three samplers announce themselves, the first is that of training; a save is told after it is
done, with its start in seconds since 1970, and by the last step counted from 0; the configuration is YAML,
indented behind the logger's prefix.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from collectors._lines import Hit, Make, Rule, rule
from collectors._process import (
    begins,
    completed,
    done,
    durable,
    ends,
    exits,
    launched,
    once,
    process,
    resumed,
    setting,
    settings,
    sign,
)
from collectors._text import seconds_us
from tracker.core.records import Json, Kind, Record

NAME: Final = "NeMo"
_CONFIG: Final = "config"
_CONFIG_LINES: Final = 600


# -- start -----------------------------------------------------------------------------------------------


def _member(hit: Hit) -> Iterator[Record]:
    if hit.group("rank") == b"0":
        yield from launched(hit, "rank 0", NAME)
    yield from settings(hit, {"gpus": hit.count("world")})


def _configured(hit: Hit) -> Iterator[Record]:
    """The configuration as indented YAML follows."""
    yield from launched(hit, "configuration", NAME)
    hit.open(_CONFIG, _CONFIG_LINES)
    process(hit)[_CONFIG] = {}


_KEY: Final = re.compile(rb"^\s{1,24}(\w{1,60}): (\S{1,60})$")
_COUNTS: Final = {
    "global_batch_size": "global_batch_size",
    "micro_batch_size": "micro_batch_size",
    "encoder_seq_length": "sequence_length",
    "seq_length": "sequence_length",
    "tensor_model_parallel_size": "tensor_parallel",
    "pipeline_model_parallel_size": "pipeline_parallel",
    "context_parallel_size": "context_parallel",
    "expert_model_parallel_size": "expert_parallel",
    "num_layers": "layers",
    "hidden_size": "hidden_size",
    "ffn_hidden_size": "ffn_hidden_size",
    "num_attention_heads": "heads",
    "num_query_groups": "kv_heads",
    "kv_channels": "head_dim",
    "num_moe_experts": "experts",
    "moe_router_topk": "experts_per_token",
    "num_nodes": "nodes",
    "max_steps": "target_steps",
    "log_every_n_steps": "log_interval",
    "activations_checkpoint_granularity": "recompute",
    "precision": "precision",
    "devices": "devices",
}


def _configuration(hit: Hit) -> Iterator[Record]:
    """Take a line of the YAML; the settings come with the first line that is none."""
    kept: dict[str, Json] = process(hit).setdefault(_CONFIG, {})
    found = _KEY.match(hit.text)
    if found is not None:
        name, value = _COUNTS.get(found[1].decode()), found[2].decode("utf-8", "replace")
        if name in ("recompute", "precision"):
            if value != "null":
                kept.setdefault(name, _PRECISION.get(value, value))
        elif name and value.isdigit() and int(value) > 0 and len(value) < 16:
            kept.setdefault(name, int(value))
    if hit.text.startswith((b" ", b"\t")) or not hit.text.strip() or not kept:
        return
    hit.close(_CONFIG)
    process(hit).pop(_CONFIG, None)
    devices, nodes = kept.pop("devices", None), kept.get("nodes")
    if isinstance(devices, int) and isinstance(nodes, int):
        kept["gpus"] = devices * nodes
    yield from settings(hit, kept)


_PRECISION: Final = {
    "bf16-mixed": "bf16",
    "16-mixed": "fp16",
    "16": "fp16",
    "32": "fp32",
    "bf16-true": "bf16",
}


def _sampler(hit: Hit) -> Iterator[Record]:
    """The first sampler is that of training; those of validation and test begin at 0."""
    samples = hit.count(1)
    if samples is None or not once(hit, "sampler"):
        return
    batch = setting(hit, "global_batch_size") or hit.state.get("batch")
    before: Any = process(hit).get("resumed")
    if samples == 0:
        if before is None:
            yield from resumed(hit, 0)
        return
    step = before[0] if before is not None else None
    if step is None and isinstance(batch, int) and samples % batch == 0:
        step = samples // batch
    process(hit)["resumed"] = [step, None]
    yield hit.event(Kind.RESUME, step=step, samples=samples)


def _restored(hit: Hit) -> Iterator[Record]:
    step = hit.count(1)
    if step is not None:
        yield from resumed(hit, step)


# -- saves and ends --------------------------------------------------------------------------------------


def _saved(hit: Hit) -> Iterator[Record]:
    """One line after the save, with its start since 1970 and its length; it names the last step, from 0."""
    start_us, length_us = seconds_us(hit.group("start")), seconds_us(hit.group("s"))
    if start_us is None or length_us is None:
        return
    iteration = hit.count("n") if hit.group("n") else None
    step = done(hit) if iteration is None else iteration + 1
    end_us, background = start_us + length_us, bool(hit.state.get("background"))
    yield from begins(hit, Kind.SAVE_START, step, at_us=start_us)
    yield from ends(hit, Kind.SAVE_END, step, at_us=end_us, duration_us=length_us, background=background)


def _scheduled(hit: Hit) -> Iterator[Record]:
    hit.state["background"] = True
    return iter(())


def _durable(hit: Hit) -> Iterator[Record]:
    finalised, iteration = hit.count("step") if hit.group("step") else None, hit.group("n")
    step = finalised if finalised is not None else int(iteration or 0) + 1
    yield from durable(hit, step)


def _saving(hit: Hit) -> Iterator[Record]:
    yield from begins(hit, Kind.SAVE_START, hit.count(1))


_LOG: Final = rb"\[NeMo [A-Z] "
RULES: Final[tuple[Rule, ...]] = (
    rule(b"MEMBER: ", rb"GLOBAL_RANK: (?P<rank>\d{1,7}), MEMBER: \d{1,7}/(?P<world>\d{1,7})\b", _member),
    rule(
        b"Experiments will be",
        rb"Experiments will be logged at ",
        lambda hit: launched(hit, "logged at", NAME),
    ),
    rule(b"Experiment configuration", rb"\*{4,} Experiment configuration \*{4,}", _configured),
    rule(
        b"total_samples: ",
        rb"Sampler with total_samples: \d{1,18} and consumed_samples: (\d{1,18})\b",
        _sampler,
    ),
    rule(
        b"nd consumed samples: ",
        rb"train dataloader with .{1,100} and consumed samples: (\d{1,18})\b",
        _sampler,
    ),
    rule(
        b"all states from the",
        rb"Restored all states from the checkpoint (?:at|file at) [^\n]{0,600}?\bstep=(\d{1,15})\b",
        _restored,
    ),
    rule(b"states from the check", rb"Restoring states from the checkpoint path at ", sign),
    rule(b"Checkpoint Load : ", rb"Global Checkpoint Load : ", sign),
    rule(
        b"Checkpoint Save : ",
        rb"Global Checkpoint Save : Rank ?: 0 : (?:Iteration: (?P<n>\d{1,15}) : )?"
        rb"Start time: (?P<start>[\d.]{1,18})s : Save duration: (?P<s>[\d.]{1,12})s",
        _saved,
    ),
    rule(b"Scheduled async", _LOG + rb".{1,60}Scheduled async checkpoint save for ", _scheduled),
    rule(
        b"uccessfully",
        rb"Async checkpoint save for step (?P<step>\d{1,15}) \(.{1,600}\) finalized successfully"
        rb"|Successfully saved checkpoint from iteration +(?P<n>\d{1,15}) to ",
        _durable,
    ),
    rule(
        b", global step ",
        rb"Epoch \d{1,9}, global step (\d{1,15}): [^\n]{0,200}?, saving model to '",
        _saving,
    ),
    rule(b"` stopped: ", rb"`Trainer\.fit` stopped: `max_(?:steps|epochs)=\d{1,15}` reached", completed),
    rule(
        b"Time limit reached",
        rb"Time limit reached\. Elapsed time is ",
        lambda hit: exits(hit, "time_limit"),
    ),
    rule(
        b"Preemption detected",
        rb"Preemption detected, saving checkpoint and exiting",
        lambda hit: exits(hit, "time_limit"),
    ),
)
FOLLOWERS: Final[dict[str, Make]] = {_CONFIG: _configuration}
"""Who takes the lines of the configuration."""

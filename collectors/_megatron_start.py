"""How a process of the Megatron family starts: banner, argument dump, shares of parameters.

Pure. A start is one launch, however many of its lines and ranks say so. The argument dump gives the operating
point; what it leaves out is not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from collectors._lines import Hit, Make, Rule, rule, started
from collectors._text import whole
from tracker.core.records import Json, Kind, Record

ARGUMENTS: Final = "arguments"
"""Name of the follower that takes the lines of the argument dump."""
_ARGUMENT_LINES: Final = 3000


def banner(hit: Hit, signal: str) -> Iterator[Record]:
    """Yield the launch that a start-up line proves, once for each start of the process.

    A start shows several such lines, and perhaps many ranks print them. One that comes again is a new start
    only if the process went on since (no banner in `state["start"]`) or something ended it.
    """
    seen = start_of(hit.state).get("banner")
    if seen is not None:
        died = any(hit.state.get(key) for key in ("events", "ends", "cancelled"))
        if signal not in seen:
            seen.append(signal)
            return
        if not died:
            return
    started(hit.state)
    for key in ("save", "async", "resumed", "loads", "shares", "shape", "init_us", "excludes"):
        hit.state.pop(key, None)
    hit.state["start"] = {"banner": [signal], "first": True}
    yield hit.event(Kind.LAUNCH)


def start_of(state: dict[str, Any]) -> dict[str, Any]:
    """Return what is known of a start that has not yet come to its first iteration line."""
    kept: dict[str, Any] = state.get("start", {})
    return kept


_SIZE: Final = re.compile(rb"([a-z][a-z-]{1,40})(?:[- ]parallel)[- ]size: (\d{1,7})")
_SIZES: Final = {
    b"data": "data_parallel",
    b"tensor-model": "tensor_parallel",
    b"model": "tensor_parallel",
    b"pipeline-model": "pipeline_parallel",
    b"context": "context_parallel",
    b"expert-model": "expert_parallel",
}


def _world(hit: Hit) -> Iterable[Record]:
    known = "world" in start_of(hit.state).get("banner", ())
    launched = list(banner(hit, "world"))
    if known and not launched:  # another rank says the same
        return
    yield from launched
    data: dict[str, Json] = {"gpus": hit.count(1)}
    for name, size in _SIZE.findall(hit.text):
        if name in _SIZES:
            data[_SIZES[name]] = whole(size)
    if "context_parallel" in data:
        hit.state["excludes"] = True
    _shape(hit.state, data)
    yield hit.event_of(Kind.SETTING, data)


def _arguments(framework: str, convention: str) -> Make:
    """Return the rule for the two lines around the dump; its setting comes when the dump is complete."""

    def make(hit: Hit) -> Iterable[Record]:
        state: dict[str, Any] = hit.state
        if not hit.group("end"):
            yield from banner(hit, ARGUMENTS)
            state["arguments"] = {}
            hit.open(ARGUMENTS, _ARGUMENT_LINES)
            return
        hit.close(ARGUMENTS)
        kept = state.pop("arguments", None)
        if kept:
            data = settings(kept)
            state["log_interval"] = data.get("log_interval")
            if "load" in kept:
                state["loads"] = kept["load"] != "None"
            if "log_throughput" in kept:
                state["excludes"] = True
            _shape(state, data, untied=kept.get("untie_embeddings_and_output_weights") == "True")
            names: dict[str, Json] = {"framework": framework, "reported_convention": convention}
            yield hit.event_of(Kind.SETTING, data | names)

    return make


def argument(hit: Hit) -> Iterable[Record]:
    """Keep a line of the argument dump, if it is of interest."""
    found = _ARGUMENT.match(hit.text)
    kept = hit.state.get("arguments")
    if found is not None and isinstance(kept, dict):
        name = found[1].decode()
        if name in _WANTED:
            kept[name] = found[2].decode("utf-8", "replace").strip()[:64]
    return ()


_ARGUMENT: Final = re.compile(rb"\s{0,8}([a-z]\w{1,63}) \.{2,60} ?([^\n]{0,200})")
_COUNTS: Final = {
    "world_size": "gpus",
    "seq_length": "sequence_length",
    "global_batch_size": "global_batch_size",
    "micro_batch_size": "micro_batch_size",
    "num_layers": "layers",
    "hidden_size": "hidden_size",
    "ffn_hidden_size": "ffn_hidden_size",
    "num_attention_heads": "heads",
    "kv_channels": "head_dim",
    "padded_vocab_size": "vocab_size",
    "num_experts": "experts",
    "moe_router_topk": "experts_per_token",
    "tensor_model_parallel_size": "tensor_parallel",
    "pipeline_model_parallel_size": "pipeline_parallel",
    "data_parallel_size": "data_parallel",
    "context_parallel_size": "context_parallel",
    "expert_model_parallel_size": "expert_parallel",
    "log_interval": "log_interval",
    "save_interval": "save_interval",
    "eval_interval": "eval_interval",
    "train_iters": "target_steps",
    "train_samples": "target_samples",
}
_WANTED: Final = frozenset(_COUNTS) | {
    "bf16",
    "fp16",
    "fp8",
    "fp4",
    "group_query_attention",
    "num_query_groups",
    "recompute_granularity",
    "recompute_activations",
    "checkpoint_activations",
    "activations_checkpoint_method",
    "log_throughput",
    "load",
    "untie_embeddings_and_output_weights",
}


def settings(arguments: dict[str, str]) -> dict[str, Json]:
    """Return what an argument dump says of the operating point.

    >>> settings({"bf16": "True", "fp8": "hybrid", "num_layers": "32", "train_samples": "None"})
    {'layers': 32, 'precision': 'fp8'}
    """
    data: dict[str, Json] = {}
    for name, setting in _COUNTS.items():
        value = whole(arguments.get(name, "").encode())
        if value:
            data[setting] = value
    if arguments.get("group_query_attention") == "True":
        data["kv_heads"] = whole(arguments.get("num_query_groups", "").encode())
    for name in ("fp4", "fp8", "bf16", "fp16"):
        if arguments.get(name, "None") not in ("None", "False"):
            data["precision"] = name
            break
    else:
        if "bf16" in arguments or "fp16" in arguments:
            data["precision"] = "fp32"
    granularity = arguments.get("recompute_granularity")
    old = [arguments.get(name) for name in ("checkpoint_activations", "activations_checkpoint_method")]
    if granularity in ("full", "selective"):
        data["recompute"] = granularity
    elif arguments.get("recompute_activations") == "True":
        data["recompute"] = "selective"
    elif any(value not in (None, "None", "False") for value in old):
        data["recompute"] = "full"
    elif granularity == "None" or "False" in old or "None" in old:
        data["recompute"] = "none"
    return {name: value for name, value in data.items() if value is not None}


# -- parameters: each model-parallel position prints its share ---------------------------------------------


def _shape(state: dict[str, Any], data: dict[str, Json], *, untied: bool = True) -> None:
    """Remember what is needed to add up the shares."""
    shape = state.setdefault("shape", {})
    for name in ("tensor_parallel", "pipeline_parallel", "expert_parallel", "experts"):
        if name in data:
            shape[name] = data[name]
    if not untied:
        vocabulary, width = data.get("vocab_size"), data.get("hidden_size")
        known = isinstance(vocabulary, int) and isinstance(width, int)
        shape["twice"] = vocabulary * width if known else None  # type: ignore[operator]


def _parameters(hit: Hit) -> Iterable[Record]:
    """Add up the shares when all are there; nothing is said where they do not add up.

    They do not where experts are spread, since one of their ranks prints, nor where the first and the last
    stage hold one embedding and its size is not known.
    """
    state: dict[str, Any] = hit.state
    shape = state.get("shape", {})
    tensor, pipeline = shape.get("tensor_parallel"), shape.get("pipeline_parallel")
    if not isinstance(tensor, int) or not isinstance(pipeline, int) or tensor * pipeline > _MOST_SHARES:
        return
    twice = shape.get("twice", 0) if pipeline > 1 else 0
    if (shape.get("experts") and shape.get("expert_parallel", 1) != 1) or twice is None:
        return
    shares = state.setdefault("shares", {})
    for found in _SHARE.finditer(hit.text):
        numbers = found[1].replace(b",", b" ").strip(b"()").decode().split()
        shares[f"{numbers[0]} {numbers[-1]}"] = int(found[2])
    if len(shares) == tensor * pipeline:
        state["shares"] = {}
        state["shape"] = {}
        yield hit.event(Kind.SETTING, parameters=sum(shares.values()) - twice)


_MOST_SHARES: Final = 1024
_SHARE: Final = re.compile(rb"model parallel rank (\(?\d[\d, ]{0,30}\)?): (\d{1,18})\b")


def starting(framework: str, convention: str) -> tuple[Rule, ...]:
    """Return the rules for the start; `convention`: what the throughput counts that this framework prints."""
    return (
        rule(b"using world size: ", rb"using world size: (\d{1,7})\b", _world),
        rule(b"arguments ---", rb"-{8,}(?P<end> end of)? arguments -{8,}", _arguments(framework, convention)),
        rule(
            b"number of parameters on",
            rb"> number of parameters on (?:\([a-z_, ]{1,60}\) )?model parallel rank \(?\d",
            _parameters,
        ),
    )

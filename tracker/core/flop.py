"""What one token costs in arithmetic: FLOP per trained token, by named conventions.

Pure: numbers in, numbers out. Every count is forward plus backward (three forward passes' worth);
recomputed activations are never in it: they belong to HFU.

    N   active parameters                       parameter
    L   layers                                  1
    H   attention heads                         1
    Q   dimension of a head                     1
    T   sequence length                         token
    a   attention allowance beyond 6N           ratio

    6N                  6 N
    6N*(1+a)            6 N (1 + a)
    6N+attention_full   6 N + 12 L H Q T        every query meets every key
    6N+attention_causal 6 N +  6 L H Q T        half of them: the mask counted

Which one counts for a run: the exact attention term where the model's layers are known, else the
allowance, else plain 6N. A figure never travels without its method.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tracker.core._checks import count, not_negative, positive
from tracker.core.errors import InvalidValue


class FlopMethod(StrEnum):
    """The name of a convention, as output prints it."""

    SIX_N = "6N"
    SIX_N_ALLOWANCE = "6N*(1+a)"
    ATTENTION_FULL = "6N+attention_full"
    ATTENTION_CAUSAL = "6N+attention_causal"
    MEGATRON = "megatron"
    GIVEN = "given"


FORMULAS: dict[FlopMethod, tuple[str, str]] = {
    FlopMethod.SIX_N: ("6 N", "Kaplan et al. 2020, arXiv:2001.08361, section 2.1"),
    FlopMethod.SIX_N_ALLOWANCE: ("6 N (1 + a)", "the estimate's allowance for attention"),
    FlopMethod.ATTENTION_FULL: (
        "6 N + 12 L H Q T",
        "Chowdhery et al. 2022, PaLM, arXiv:2204.02311, appendix B",
    ),
    FlopMethod.ATTENTION_CAUSAL: (
        "6 N + 6 L H Q T",
        "the same with the causal mask counted, as Megatron-LM 0.12 and later do",
    ),
    FlopMethod.MEGATRON: (
        "6 L (attention + MLP weights) + 6 L H Q T + 6 h V",
        "NVIDIA/Megatron-LM, training.py, num_floating_point_operations",
    ),
    FlopMethod.GIVEN: ("given", "the user"),
}
"""Formula and source of each method."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlopPerToken:
    """The arithmetic of one trained token, with the convention that counted it."""

    value: float
    """FLOP per token, forward and backward, no recomputation."""
    method: str
    """One of FlopMethod's values."""
    six_n: float
    """Plain 6N beside it, FLOP per token: the figure published runs are compared by."""


def flop_per_token(
    *,
    active_params: float,
    attn_overhead: float | None = None,
    layers: int | None = None,
    hidden_size: int | None = None,
    heads: int | None = None,
    head_dim: int | None = None,
    sequence_length: int | None = None,
    causal: bool = False,
) -> FlopPerToken:
    """Return FLOP per token by the best convention the arguments allow.

    With layers: the exact attention term (full, or causal when asked for); it needs the sequence
    length and either hidden_size or heads with head_dim. Without: 6N(1 + attn_overhead); without
    an allowance: 6N.

    Raises InvalidValue for a non-positive size, or layers without what the term needs.

    >>> flop_per_token(active_params=13e9, attn_overhead=0.05).method
    '6N*(1+a)'
    """
    n = positive("active_params", active_params, "a number of parameters above 0")
    six_n = 6 * n
    if layers is not None:
        term = attention_flop_per_token(
            layers=layers,
            hidden_size=hidden_size,
            heads=heads,
            head_dim=head_dim,
            sequence_length=sequence_length,
            causal=causal,
        )
        method = FlopMethod.ATTENTION_CAUSAL if causal else FlopMethod.ATTENTION_FULL
        return FlopPerToken(value=six_n + term, method=method.value, six_n=six_n)
    if attn_overhead is None or attn_overhead == 0:
        return FlopPerToken(value=six_n, method=FlopMethod.SIX_N.value, six_n=six_n)
    a = not_negative("attn_overhead", attn_overhead, "a ratio of 0 or more, such as 0.05")
    return FlopPerToken(value=six_n * (1 + a), method=FlopMethod.SIX_N_ALLOWANCE.value, six_n=six_n)


def attention_flop_per_token(
    *,
    layers: int,
    hidden_size: int | None = None,
    heads: int | None = None,
    head_dim: int | None = None,
    sequence_length: int | None = None,
    causal: bool = False,
) -> float:
    """Return the FLOP per token of the two attention matrix products: 12 L H Q T, or half.

    H Q is heads x head_dim where both are known, else hidden_size. Grouped queries do not change
    it: the products run over all query heads.

    Source: PaLM, arXiv:2204.02311, appendix B. Valid for full self-attention in every layer;
    a sliding window or linear attention needs its own count.

    Raises InvalidValue when a size is missing or not positive.

    >>> attention_flop_per_token(layers=32, hidden_size=4096, sequence_length=2048)
    3221225472
    """
    if sequence_length is None:
        raise InvalidValue("model.layers", layers, "sequence_length beside it", "Set model.sequence_length")
    if heads is not None and head_dim is not None:
        width = count("heads", heads) * count("head_dim", head_dim)
    elif hidden_size is not None:
        width = count("hidden_size", hidden_size)
    else:
        raise InvalidValue(
            "model.layers",
            layers,
            "hidden_size, or heads and head_dim, beside it",
            "Set model.hidden_size",
        )
    full = 12 * count("layers", layers) * width * count("sequence_length", sequence_length)
    return full / 2 if causal else full


def megatron_flop_per_token(
    *,
    layers: int,
    hidden_size: int,
    ffn_hidden_size: int,
    vocab_size: int,
    sequence_length: int,
    heads: int,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    gated: bool = True,
    moe_layers: int = 0,
    moe_ffn_hidden_size: int = 0,
    experts_per_token: int = 0,
    shared_ffn_hidden_size: int = 0,
    causal: bool = True,
) -> float:
    """Return FLOP per token counted layer by layer, as Megatron-LM's throughput line does.

    Six FLOP for every weight of the projections, the MLP (three matrices when gated) and the
    output logits, plus the attention products; the input embedding is a look-up and costs none.
    In moe_layers of the layers the MLP is experts_per_token routed experts plus the shared one.

    Source: NVIDIA/Megatron-LM, num_floating_point_operations (0.12 and later halve attention for
    the causal mask; pass causal=False for earlier ones). Valid without packing, sliding windows,
    latent attention or multi-token prediction heads.

    >>> f = megatron_flop_per_token(layers=32, hidden_size=4096, ffn_hidden_size=11008,
    ...                             vocab_size=32000, sequence_length=4096, heads=32)
    >>> round(f / 1e9, 1)
    42.9
    """
    dense_layers = count("layers", layers) - count("moe_layers", moe_layers, least=0)
    if dense_layers < 0:
        raise InvalidValue("moe_layers", moe_layers, f"at most layers = {layers}")
    h = count("hidden_size", hidden_size)
    q = count("heads", heads) * (count("head_dim", head_dim) if head_dim else h // heads)
    kv = (kv_heads if kv_heads is not None else heads) * (q // heads)
    matrices = 3 if gated else 2
    attention_weights = h * (q + 2 * kv) + q * h
    dense = matrices * h * ffn_hidden_size
    moe = matrices * h * (moe_ffn_hidden_size * experts_per_token + shared_ffn_hidden_size)
    weights = layers * attention_weights + dense_layers * dense + moe_layers * moe + h * vocab_size
    products = attention_flop_per_token(
        layers=layers,
        heads=heads,
        head_dim=q // heads,
        sequence_length=sequence_length,
        causal=causal,
    )
    return 6 * weights + products


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeParams:
    """Parameters of a mixture of experts: what a token meets, and what is stored."""

    active: float
    """Parameters one token passes through: the N of 6N."""
    total: float
    """Parameters stored."""

    @property
    def activation_ratio(self) -> float:
        """Active over total."""
        return self.active / self.total


def moe_params(
    *,
    dense_params: float,
    expert_params: float,
    experts: int,
    experts_per_token: int,
    shared_experts: int = 0,
) -> MoeParams:
    """Return active and total parameters of a mixture of experts.

    dense_params is all that every token meets besides experts (attention, embeddings, router);
    expert_params is one expert summed over its layers. Routed experts count experts_per_token
    times in active and `experts` times in total; shared experts count in both.

    Raises InvalidValue when more experts are routed to than there are.

    >>> moe_params(dense_params=1e9, expert_params=1e8, experts=64, experts_per_token=4,
    ...            shared_experts=1)
    MoeParams(active=1500000000.0, total=7500000000.0)
    """
    dense = not_negative("dense_params", dense_params)
    each = positive("expert_params", expert_params)
    n = count("experts", experts)
    k = count("experts_per_token", experts_per_token)
    shared = count("shared_experts", shared_experts, least=0)
    if k > n:
        raise InvalidValue("experts_per_token", k, f"at most experts = {n}")
    return MoeParams(active=dense + each * (k + shared), total=dense + each * (n + shared))


def hardware_flop_per_token(model_flop: float, *, recomputed_forward_ratio: float) -> float:
    """Return the FLOP a device executes per token: model FLOP plus recomputed activations.

    recomputed_forward_ratio is the share of a forward pass done twice: 1 for full activation
    recomputation (a factor of 4/3), 0 for none. This is HFU's numerator, never MFU's.

    Source: Korthikanti et al. 2022, arXiv:2205.05198, section 6.

    >>> round(hardware_flop_per_token(3.0, recomputed_forward_ratio=1.0), 6)
    4.0
    """
    share = not_negative("recomputed_forward_ratio", recomputed_forward_ratio)
    if share > 1:
        raise InvalidValue("recomputed_forward_ratio", share, "a ratio from 0 to 1")
    return model_flop * (1 + share / 3)

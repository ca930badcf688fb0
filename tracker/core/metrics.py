"""Realised efficiency: MFU, goodput, GPU-hours per trillion tokens.

Pure: numbers in, numbers out. No I/O, no clock, no rounding.

    T   retained tokens that windows cover              token
    G   GPU-time allocated, what is pending left out    gpu * us
    R   GPU-time of retained windows (productive)       gpu * us
    F   model arithmetic, forward + backward            FLOP / token
    P   dense peak of one GPU at this precision         FLOP / s / gpu

Laws (the tests hold us to them, on ledgers that come out of parsed logs):
    MFU(allocated) = MFU(productive) * goodput
    GPU-hours per 1e12 tokens * MFU(allocated) = 1e12 * F / (3600 * P)
"""

from __future__ import annotations

US_PER_S = 1_000_000
US_PER_H = 3600 * US_PER_S


def mfu(*, flop: float, gpu_us: int, peak_flop_per_s: float) -> float | None:
    """Model FLOPs utilisation, flop / (G * P), a ratio; None without GPU-time.

    The share of dense peak that became model arithmetic of retained tokens. Recomputed activations do
    not count (that is HFU); neither do tokens a restart threw away.

    Source: Chowdhery et al. 2022, PaLM, arXiv:2204.02311, appendix B.
    Holds for one GPU type and one reference precision. Above 1 means that F or P does not fit the run
    (an FP8 run against a BF16 peak, say); it is returned as it is, never clipped.

    >>> round(mfu(flop=1e9 * 48e9, gpu_us=512 * 1000 * US_PER_S, peak_flop_per_s=989e12), 4)
    0.0948
    """
    return flop * US_PER_S / (gpu_us * peak_flop_per_s) if gpu_us > 0 else None


def goodput(*, productive_us: int, allocated_us: int) -> float | None:
    """Productive over allocated GPU-time, R / G, a ratio in 0..1; None without allocation.

    >>> goodput(productive_us=90, allocated_us=100)
    0.9
    """
    return productive_us / allocated_us if allocated_us > 0 else None


def gpu_hours_per_trillion_tokens(*, tokens: int, gpu_us: int) -> float | None:
    """Allocated GPU-hours that 1e12 retained tokens cost; None without tokens.

    >>> gpu_hours_per_trillion_tokens(tokens=10**9, gpu_us=180 * US_PER_H)
    180000.0
    """
    return gpu_us / US_PER_H * 1e12 / tokens if tokens > 0 else None

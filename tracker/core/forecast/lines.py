"""The straight lines that a forecast has to beat: what everybody else's ETA is.

Pure.
"""

from __future__ import annotations

from tracker.core.forecast.state import State

_DAY_US = 86_400_000_000


def straight_lines(state: State) -> dict[str, int]:
    """Return the finish by each line, microseconds since 1970; one that cannot be drawn is left out.

    from_start: tokens since the first launch over the calendar since then. last_7_days: the same over the
    last seven days. step_rate: the last day of work, without evaluation, saves, failures or waiting.
    """
    left, start, now = state.left_tokens, state.start_us, state.as_of_us
    done = (state.done_tokens or 0.0) - state.inherited_tokens
    if left is None or start is None or done <= 0 or now <= start or left <= 0:
        return {}
    found: dict[str, int] = {}
    _put(found, "from_start", now, left / (done / (now - start)))
    since = now - 7 * _DAY_US
    if since <= start:
        if "from_start" in found:
            found["last_7_days"] = found["from_start"]
    else:
        week = 0.0
        for block in state.blocks:
            begun = block.end_us - block.work_s * 1e6
            if block.end_us > since:
                share = min(1.0, (block.end_us - since) / max(block.end_us - begun, 1.0))
                week += block.net_tokens * share
        if week > 0:
            _put(found, "last_7_days", now, left / (week / (now - since)))
    work = tokens = gpu_s = 0.0
    for block in reversed(state.blocks):
        if work >= 86_400:
            break
        work += block.work_s
        tokens += block.tokens
        gpu_s += block.work_s * block.gpus
    if tokens > 0:
        ahead = sum(s.tokens * s.cost_factor / (s.gpus or state.world or 1) for s in state.stages)
        _put(found, "step_rate", now, ahead / (tokens / gpu_s) * 1e6)
    return found


def _put(found: dict[str, int], name: str, now: int, wait_us: float) -> None:
    if wait_us < 50 * 365 * _DAY_US:
        found[name] = now + round(wait_us)

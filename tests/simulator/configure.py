"""The run.toml that reads a simulated run.

Pure.
"""

from __future__ import annotations

from tests.simulator.machine import Run
from tests.simulator.parameters import Style

COLLECTORS: dict[Style, str] = {
    "megatron": "megatron",
    "megatron_0_8": "megatron",
    "megatron_old": "megatron",
    "bloom": "megatron_deepspeed",
    "jsonl": "jsonl",
}


def config(run: Run, *, name: str = "", head: str = "", tokens: float | None = None) -> str:
    """Return a config for the files that `text.contents` names, under a name and after a comment.

    `tokens` is the plan's target; by default what the run's last step reaches.
    """
    p = run.parameters
    title = name or f"simulated-{p.preset.replace('_', '-')}-{p.seed}"
    target = tokens if tokens is not None else float(p.total_steps * p.batch * p.sequence_length)
    scheduler = (
        '\n[[source]]\ncollector = "slurm"\npath = "sacct.txt"\njob_name = "pretrain"\n'
        if p.scheduler
        else ""
    )
    return f"""{head}[run]
name = "{title}"
timezone = "UTC"
billing = "attempt"

[model]
active_params = {p.active_params!r}
total_params = {p.active_params!r}
sequence_length = {p.sequence_length}

[hardware]
gpu = "h100-sxm"
precision = "bf16"
gpus = {p.gpus}

[plan]
tokens = {target!r}
mfu = 0.42
goodput = 0.85
attn_overhead = 0.0
later_stages = 0.0
rnd_multiplier = 1.0
start = 2026-01-05T08:00:00Z
gpu_hour_price = 2.0

[[source]]
collector = "{COLLECTORS[p.style]}"
path = "logs/*.log*"
{scheduler}
[store]
path = "tracker.db"

[report]
directory = "reports-out"
"""

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


def config(run: Run, *, name: str = "", head: str = "") -> str:
    """Return a config for the files that `text.contents` names."""
    p = run.parameters
    title = name or f"simulated-{p.preset.replace('_', '-')}-{p.seed}"
    tokens = p.total_steps * p.batch * p.sequence_length
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
active_params = {p.active_params:.0f}.0
total_params = {p.active_params:.0f}.0
sequence_length = {p.sequence_length}

[hardware]
gpu = "h100-sxm"
precision = "bf16"
gpus = {p.gpus}

[plan]
tokens = {tokens}.0
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

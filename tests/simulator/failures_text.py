"""How a process says that it dies: the event lines of the format catalogue, with made-up values.

Pure, given its random source. A host that falls silent says nothing; the scheduler tells of it (in the log
only where it falls silent before its process has printed any line with a clock).
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator

from tests.simulator.machine import SECOND, Attempt, Run
from tests.simulator.slurm_text import when

Said = tuple[int, str]


def failure(run: Run, a: Attempt, rng: random.Random) -> Iterator[Said]:
    """Yield the last lines of an attempt that did not end by itself."""
    assert a.death_us is not None
    assert a.gone_us is not None
    gone, how = a.gone_us, a.how
    node = f"node-{rng.randint(1, 64):04d}"
    rank = rng.randrange(a.world)
    if how == "crash":
        yield from _crash(a, rng, node, rank)
    elif how == "hang":
        yield from _hang(run, a, rng, node, rank)
    elif how == "silent" and len(a.phases) == 1:  # else nobody could tell it from the next launch
        yield gone, _slurmd(a, node, gone, " DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS")
    elif how in ("cancel", "cancel_saved"):
        yield gone, _slurmd(a, node, a.death_us + 200_000, "")
    elif how == "limit":
        limit = a.gone_us - 1
        if a.cause is None:
            limit = a.death_us
        yield gone, _slurmd(a, node, limit, " DUE TO TIME LIMIT")
    elif how in ("preempt", "preempt_saved"):
        yield gone, _slurmd(a, node, a.death_us + 200_000, " DUE TO PREEMPTION")


def _slurmd(a: Attempt, node: str, at_us: int, why: str) -> str:
    stamp = when(at_us)
    job = a.job.job_id
    return (
        f"slurmstepd: error: *** JOB {job} ON {node} CANCELLED AT {stamp}{why} ***\n"
        f"srun: Job step aborted: Waiting up to 62 seconds for job step to finish.\n"
        f"slurmstepd: error: *** STEP {job}.0 ON {node} CANCELLED AT {stamp}{why} ***\n"
    )


def _crash(a: Attempt, rng: random.Random, node: str, rank: int) -> Iterator[Said]:
    assert a.death_us is not None
    assert a.gone_us is not None
    early = a.death_us + (a.gone_us - a.death_us) // 3
    if a.cause == "gpu":
        yield (
            early,
            (
                f"{node} kernel: [{rng.randint(10**5, 10**6)}.{rng.randint(0, 999_999):06d}] NVRM: Xid "
                f"(PCI:0000:{rng.randint(1, 200):02x}:00): 79, pid='<unknown>', name=<unknown>, "
                f"GPU has fallen off the bus.\n"
            ),
        )
    error = {
        "gpu": "RuntimeError: CUDA error: unspecified launch failure",
        "gpu_hbm": "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "software": "ValueError: shard 0172 of the data index has 4095 tokens, expected 4096",
        "out_of_memory": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.44 GiB. "
        "GPU 3 has a total capacity of 79.10 GiB of which 1.08 GiB is free.",
    }[a.cause or "software"]
    yield (
        early,
        f"[rank{rank}]: Traceback (most recent call last):\n"
        f'[rank{rank}]:   File "/opt/app/pretrain.py", line {rng.randint(80, 400)}, in <module>\n'
        f"[rank{rank}]:     pretrain(model_provider)\n"
        f"[rank{rank}]: {error}\n",
    )
    yield a.gone_us, _elastic(a, node, rank, 1)


def _hang(run: Run, a: Attempt, rng: random.Random, node: str, rank: int) -> Iterator[Said]:
    assert a.death_us is not None
    assert a.gone_us is not None
    timeout_us = round(run.parameters.watchdog_s * SECOND)
    noticed = a.death_us + timeout_us + 40_000
    if a.cause == "network":
        yield (
            noticed - 5 * SECOND,
            f"{node}:{rng.randint(1000, 9999)}:{rng.randint(10_000, 60_000)} [{rank % 8}] NCCL WARN "
            f"NET/IB : Got completion from peer 10.4.{rng.randint(0, 9)}.{rng.randint(2, 250)}<47210> "
            f"with status=12 opcode=0 len=0 vendor err 129 (Send)\n",
        )
    moment = dt.datetime.fromtimestamp(noticed // SECOND, dt.UTC)
    clock = f"{moment.month}{moment:%d %H:%M:%S}.{noticed % SECOND * 1000:09d}"
    for victim in sorted({rank, (rank + 1) % a.world, (rank + 9) % a.world}):
        yield (
            noticed,
            f"[rank{victim}]:[E{clock} ProcessGroupNCCL.cpp:629] [Rank {victim}] Watchdog caught "
            f"collective operation timeout: WorkNCCL(SeqNum={rng.randint(10_000, 99_999)}, OpType=ALLREDUCE, "
            f"NumelIn=4096, NumelOut=4096, Timeout(ms)={timeout_us // 1000}) ran for "
            f"{timeout_us // 1000 + 40} milliseconds before timing out.\n",
        )
    yield (
        noticed,
        f"[rank{rank}]:[E{clock} ProcessGroupNCCL.cpp:684] Some NCCL operations have failed or timed out. "
        f"Due to the asynchronous nature of CUDA kernels, later operations might run on incomplete data.\n"
        f"[rank{rank}]:[E{clock} ProcessGroupNCCL.cpp:690] To avoid data inconsistency, we are taking the "
        f"entire process down.\n",
    )
    yield a.gone_us, _elastic(a, node, rank, -6)


def _elastic(a: Attempt, node: str, rank: int, code: int) -> str:
    assert a.gone_us is not None
    stamp = when(a.gone_us).replace("T", "_")
    return (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        "============================================================\n"
        "pretrain.py FAILED\n"
        "------------------------------------------------------------\n"
        "Root Cause (first observed failure):\n"
        "[0]:\n"
        f"  time      : {stamp}\n"
        f"  host      : {node}\n"
        f"  rank      : {rank} (local_rank: {rank % 8})\n"
        f"  exitcode  : {code} (pid: 3431)\n"
        f"  traceback : {'Signal 6 (SIGABRT) received by PID 3431' if code < 0 else 'see above'}\n"
        "============================================================\n"
    )

"""How fast Megatron-LM's log is parsed: MB/s on one core, with the event scan and without.

    python benchmarks/parse_speed.py [--lines 1000000] [--keep FILE]

The log is made here: 5 % iteration lines, the rest what such logs are full of (timers, NCCL INFO, warnings).
`novel` is a log whose chatter never repeats, the worst case of the scan.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from pathlib import Path

from collectors._events import EVENTS, FOLLOWERS
from collectors._iterations import GATE, ITERATION, WRAPPED, Iterations
from collectors._lines import Reader, Rule, rule
from collectors._megatron import family
from collectors._megatron_start import ARGUMENTS, argument
from tracker.core.records import Reading
from tracker.interfaces import Context

BLOCK = 256 * 1024
START = 1_767_225_600  # 2026-01-01T00:00:00Z


def iteration(step: int, chance: random.Random) -> str:
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(START + step))
    return (
        f" [{stamp}.{chance.randrange(10**6):06d}] iteration {step:8d}/ 1000000 |"
        f" consumed samples: {step * 1024:12d} |"
        f" elapsed time per iteration (ms): {chance.uniform(1000, 1100):.1f} |"
        f" throughput per GPU (TFLOP/s/GPU): {chance.uniform(400, 420):.1f} |"
        f" learning rate: {chance.uniform(1e-5, 1e-4):.6E} | global batch size:  1024 |"
        f" lm loss: {chance.uniform(2, 3):.6E} | loss scale: 1.0 | grad norm: {chance.random():.3f} |"
        f" number of skipped iterations:   0 | number of nan iterations:   0 |"
    )


def chatter(chance: random.Random) -> str:
    pick = chance.randrange(12)
    process, thread, gpu = chance.randrange(99999), chance.randrange(99999), chance.randrange(8)
    nccl = f"node-{chance.randrange(128)}:{process}:{thread} [{gpu}] NCCL INFO"
    if pick < 4:
        name = ("forward-backward", "all-grads-sync", "optimizer-inner-step", "batch-generator")[pick]
        low = chance.uniform(1, 1000)
        return f"    {name} {'.' * (47 - len(name))}: ({low:.2f}, {low * 1.01:.2f})"
    if pick == 4:
        return "(min, max) time across ranks (ms):"
    if pick < 7:
        a, b = chance.randrange(1024), chance.randrange(1024)
        return (
            f"{nccl} Channel {chance.randrange(24):02d}/24 : {a}[{a % 8}] -> {b}[{b % 8}] via P2P/CUMEM/read"
        )
    if pick == 7:
        own = f"10.0.{chance.randrange(255)}.7<0>"
        return f"{nccl} NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB bond0:{own}"
    if pick == 8:
        pointer, name_ = chance.getrandbits(48), chance.getrandbits(64)
        return f"{nccl} comm 0x{pointer:x} rank {chance.randrange(1024)} nranks 1024 commId 0x{name_:x}"
    if pick == 9:
        return (
            "/usr/lib/python3.12/torch/distributed/c10d_logger.py:79: FutureWarning: `all_gather_base` is "
            "private and will be deprecated."
        )
    if pick == 10:
        return (
            f"[rank{chance.randrange(1024)}]:[W{chance.randrange(301, 330)} 11:18:53.865680143 "
            f"ProcessGroupNCCL.cpp:4115] [Rank {chance.randrange(99)}]  using GPU 0 to perform barrier"
        )
    return "WARNING:megatron.core.utils:CUDA_DEVICE_MAX_CONNECTIONS is not 1; overlap may be less"


def novel(chance: random.Random) -> str:
    return " ".join("".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=7)) for _ in range(12))


def lines(count: int, filler: object) -> Iterator[str]:
    chance = random.Random(1)
    make = novel if filler == "novel" else chatter
    for number in range(count):
        yield iteration(number // 20 + 1, chance) if number % 20 == 0 else make(chance)


WITH = {
    "iteration lines alone": (),
    "start, checkpoints ...": family("Megatron-LM", "model FLOP"),
    "and the event scan": (*family("Megatron-LM", "model FLOP"), *EVENTS),
}
"""What is looked for besides iteration lines."""


def reader(rules: tuple[Rule, ...]) -> Reader:
    iterations = Iterations(includes=None)
    return Reader(
        (rule(GATE, ITERATION, iterations.line), *rules),
        followers={WRAPPED: iterations.wrapped, ARGUMENTS: argument, **FOLLOWERS},
        hot=iterations,
    )


def measure(content: bytes, rules: tuple[Rule, ...]) -> tuple[float, int]:
    """Return MB/s of CPU time and the number of readings; blocks as the follower cuts them."""
    parser = reader(rules)
    context = Context()
    found = start = 0
    began = time.process_time()
    while start < len(content):
        end = content.rfind(b"\n", start, start + BLOCK) + 1 or len(content)
        context.offset = start
        found += sum(type(record) is Reading for record in parser.parse(content[start:end], context))
        start = end
    return len(content) / 1e6 / (time.process_time() - began), found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--lines", type=int, default=1_000_000)
    options.add_argument("--repeat", type=int, default=3, help="the best of so many runs is printed")
    options.add_argument("--keep", type=Path, help="write the log there, for another program to read")
    asked = options.parse_args()
    for filler in ("usual", "novel"):
        content = "\n".join(lines(asked.lines, filler)).encode() + b"\n"
        if asked.keep and filler == "usual":
            asked.keep.write_bytes(content)
        for label, rules in WITH.items():
            best, found = max(measure(content, rules) for _ in range(asked.repeat))
            print(
                f"{filler:5} chatter, {len(content) / 1e6:4.0f} MB, {label:23} {best:5.0f} MB/s  "
                f"{found:,} readings of {asked.lines:,} lines"
            )


if __name__ == "__main__":
    main()

"""The words of Megatron-LM (three ages of it) and of Megatron-DeepSpeed as BLOOM ran it.

Pure, given its random source. The shapes follow the format catalogue; every value is made up by the
state machine. Which moments carry a stamp, and how fine, is in `sight.py`; the two must agree.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Iterator
from typing import Final

from tests.simulator.failures_text import failure
from tests.simulator.machine import SECOND, Attempt, Block, Run
from tests.simulator.sight import SIGHTS, logged

_DIRECTORY: Final = "/checkpoints/pretrain"
Said = tuple[int, str]


class _Words:
    """One attempt's writer; the parts that differ between formats are methods."""

    def __init__(self, run: Run, a: Attempt, rng: random.Random) -> None:
        self.run, self.a, self.rng = run, a, rng
        self.p = run.parameters
        self.style = run.parameters.style
        self.sight = SIGHTS[self.style]
        size = self.p.tensor_parallel * self.p.pipeline_parallel
        self.data_parallel = max(a.world // size, 1)
        self.first = self._prefix(0)
        self.last = self._prefix(a.world - 1)

    def _prefix(self, rank: int) -> str:
        kind = "default" if self.style == "bloom" and not self.p.prefix else self.p.prefix
        if kind == "rank":
            return f"[rank{rank}]:"
        if kind == "default":
            return f"[default{rank % self.p.gpus_per_node}]:"
        if kind == "srun":
            return f"{rank:>{len(str(self.a.world - 1))}d}: "
        return ""

    # ------------------------------------------------------------------ small words

    def stamp(self, at_us: int) -> str:
        """Return a local time without a zone, as fine as the format prints it."""
        moment = dt.datetime.fromtimestamp(at_us // SECOND, dt.UTC).replace(microsecond=at_us % SECOND)
        text = moment.strftime("%Y-%m-%d %H:%M:%S")
        return f"{text}.{at_us % SECOND:06d}" if self.sight.event_us == 1 else text

    def datetime(self, at_us: int, what: str, stamp_us: int | None = None) -> Iterator[Said]:
        """Yield a `[what] datetime: ...` line, where the format has them."""
        if self.sight.event_us is not None:
            shown = self.stamp(at_us if stamp_us is None else stamp_us)
            yield at_us, f"{self.first}[{what}] datetime: {shown} \n"

    def timer(self, at_us: int, name: str, us: int) -> Iterator[Said]:
        """Yield a timer block of one entry."""
        ms = us / 1000
        if self.style in ("bloom", "megatron_old"):
            yield at_us, f"{self.last}time (ms) | {name}: {ms:.2f}\n"
            return
        yield (
            at_us,
            f"{self.last}(min, max) time across ranks (ms):\n"
            f"{self.last}    {(name + ' ').ljust(48, '.')}: ({ms:.2f}, {ms:.2f})\n",
        )

    # ------------------------------------------------------------------ start

    def start(self) -> Iterator[Said]:
        """Yield the start-up lines of the phases that were completed."""
        a, p = self.a, self.p
        began = a.first_line_us
        if began is None:
            return
        if a.in_job:
            yield from self.restart()
        else:
            yield (
                began,
                f"SLURM_JOB_ID={a.job.job_id} SLURM_JOB_NAME=pretrain "
                f"nodes={-(-a.job.gpus // p.gpus_per_node)}\n",
            )
        yield began, self.banner()
        for name, start, end in a.phases:
            if name == "init":
                yield (
                    end,
                    f"{self.first}time to initialize megatron (seconds): {(end - start) / SECOND:.3f}\n",
                )
                if self.sight.first_line_timed:
                    yield from self.datetime(
                        end, "after in-process setup and before initialize_megatron", began
                    )
                    yield from self.datetime(end, "after in-job setup and before initialize_megatron", began)
                yield from self.datetime(end, "after megatron is initialized")
                yield end, f"{self.first}building GPT model ...\n"
                shard = int(p.active_params / p.tensor_parallel / p.pipeline_parallel)
                for rank in range(p.tensor_parallel):
                    yield (
                        end,
                        f"{self._prefix(rank)} > number of parameters on (tensor, pipeline) model parallel "
                        f"rank ({rank}, 0): {shard}\n",
                    )
            elif name == "load":
                yield from self.load(start, end)
                yield from self.datetime(end, "after model, optimizer, and learning rate scheduler are built")
            elif name == "data":
                yield end, f"{self.first}> finished creating GPT datasets ...\n"
                yield from self.datetime(end, "after dataloaders are built")
                yield end, f"{self.first}done with setup ...\n"
                yield end, f"{self.first}training ...\n"
                yield from self.datetime(end, "before the start of training step")

    def restart(self) -> Iterator[Said]:
        """Yield what tells of a restart inside the job."""
        at = self.a.start_us
        if self.style == "megatron":
            yield (
                at,
                f"[{self.stamp(at)}] [WARNING] [nvrx] [NestedRestarter] name=[InJob] state=handling "
                f"stage=starting\n",
            )
        elif self.sight.event_us is not None:
            moment = f"{self.stamp(at)},{at % SECOND // 1000:03d}"
            yield (
                at,
                f"[{moment}] torch.distributed.elastic.agent.server.api: [INFO] [default] "
                f"Worker group FAILED. 3/3 attempts left; will restart worker group\n",
            )

    def banner(self) -> str:
        """Return the lines of a new process: sizes and arguments."""
        a, p = self.a, self.p
        context = (
            ", context-parallel size: 1"
            if self.style.startswith("megatron") and self.style != "megatron_old"
            else ""
        )
        sizes = (
            f"using world size: {a.world}, data-parallel size: {self.data_parallel}{context}, "
            f"tensor-model-parallel size: {p.tensor_parallel}, "
            f"pipeline-model-parallel size: {p.pipeline_parallel} "
        )
        arguments = {
            "bf16": "True",
            "ckpt_format": "torch_dist",
            "eval_interval": str(p.eval_interval or 10**6),
            "global_batch_size": str(p.batch),
            "hidden_size": "8192",
            "log_interval": str(p.log_interval),
            "micro_batch_size": "1",
            "num_attention_heads": "64",
            "num_layers": "40",
            "rampup_batch_size": str([str(p.ramp_from), str(p.ramp_by), str(p.ramp_samples)])
            if p.ramp_from is not None
            else "None",
            "save": _DIRECTORY,
            "save_interval": str(p.save_interval),
            "seq_length": str(p.sequence_length),
            "train_iters": str(p.total_steps),
            "world_size": str(a.world),
        }
        rows = "".join(
            f"{self.first}  {name} {'.' * (48 - len(name))} {value}\n" for name, value in arguments.items()
        )
        return (
            f"{self.first}{sizes}\n"
            f"{self.first}using torch.bfloat16 for parameters ...\n"
            f"{self.first}------------------------ arguments ------------------------\n{rows}"
            f"{self.first}-------------------- end of arguments ---------------------\n"
            f"{self.first}setting number of micro-batches to constant {p.batch // self.data_parallel}\n"
        )

    def load(self, start: int, end: int) -> Iterator[Said]:
        """Yield the lines of loading a checkpoint, or of finding none."""
        step, p = self.a.resume_step, self.p
        if step == 0:
            yield (
                end,
                f"{self.first}WARNING: could not find the metadata file "
                f"{_DIRECTORY}/latest_checkpointed_iteration.txt \n"
                f"{self.first}    will not load any checkpoints and will start from random\n",
            )
            return
        kind = "" if self.style in ("bloom", "megatron_old") else "distributed "
        yield start, f"{self.first} loading {kind}checkpoint from {_DIRECTORY} at iteration {step}\n"
        place = f" [ t 1/{p.tensor_parallel}, p 1/{p.pipeline_parallel} ]" if kind else ""
        yield (
            end,
            f"{self.first}  successfully loaded checkpoint from {_DIRECTORY}{place} at iteration {step}\n",
        )
        yield from self.timer(end, "load-checkpoint", end - start)

    # ------------------------------------------------------------------ work

    def training(self) -> Iterator[Said]:
        """Yield the training lines."""
        a, p = self.a, self.p
        base, since, since_us, spent, done = a.resume_step, a.resume_step, a.train_us or 0, 0, a.resume_step
        for step in logged(p, a, self.sight):
            spent += sum(a.durations[done - base : step - base])
            done = step
            end = a.ends[step - base - 1]
            extra = self.sight.extra_first and step == base + 1 and step % p.log_interval != 0
            elapsed_us = (spent if self.sight.excludes else end - since_us) / (step - since)
            text = self.iteration(step, end, elapsed_us, since)
            yield end, self.last + text
            if p.twice_share and self.rng.random() < p.twice_share:
                yield end, self._prefix(a.world - 2) + text
            if not extra:
                since, since_us, spent = step, end, 0

    def iteration(self, step: int, end: int, elapsed_us: float, since: int) -> str:
        """Return one training line, without its prefix."""
        a, p = self.a, self.p
        index = step - a.resume_step - 1
        batch, samples = a.batches[index], a.samples[index]
        skipped = sum(1 for s in range(since + 1, step + 1) if s in a.skipped)
        nan = sum(1 for s in range(since + 1, step + 1) if s in a.nan)
        loss = 1.8 + 8.0 * math.exp(-step / 250.0) + self.rng.gauss(0.0, 0.01)
        norm = abs(self.rng.gauss(0.4, 0.1))
        rate = 3e-4 * min(1.0, step / 200)
        flop = 6 * p.active_params * batch * p.sequence_length / (elapsed_us / 1e6 * a.world) / 1e12
        if self.style == "bloom":
            return (
                f" iteration {step:8d}/{p.total_steps:8d} | consumed samples: {samples:12d} "
                f"| consumed tokens: {samples * p.sequence_length:12d} "
                f"| elapsed time per iteration (s): {elapsed_us / 1e6:.2f} | learning rate: {rate:.3E} "
                f"| global batch size: {batch:5d} | lm loss: {loss:.6E} | grad norm: {norm:.3f} "
                f"| num zeros: 0.0 | number of skipped iterations: {skipped:3d} "
                f"| number of nan iterations: {nan:3d} "
                f"| samples per second: {batch / elapsed_us * 1e6:.3f} | TFLOPs: {flop * 4 / 3:.2f} |\n"
            )
        head = f" [{self.stamp(end)}]" if self.sight.stamp_us is not None else ""
        through = f" throughput per GPU (TFLOP/s/GPU): {flop:.1f} |" if self.sight.excludes else ""
        shown = "" if nan else f" lm loss: {loss:.6E} |"
        lr = f"{rate:.3E}" if self.style == "megatron_old" else f"{rate:.6E}"
        return (
            f"{head} iteration {step:8d}/{p.total_steps:8d} | consumed samples: {samples:12d} "
            f"| elapsed time per iteration (ms): {elapsed_us / 1e3:.1f} |{through} learning rate: {lr} "
            f"| global batch size: {batch:5d} |{shown} loss scale: 1.0 | grad norm: {norm:.3f} "
            f"| number of skipped iterations: {skipped:3d} | number of nan iterations: {nan:3d} |\n"
        )

    def block(self, block: Block) -> Iterator[Said]:
        """Yield the lines of a save or an evaluation."""
        if block.kind == "eval":
            if block.end_us is not None:
                yield from self.evaluation(block, block.end_us)
            return
        step = f"{block.step:7d}"
        modern = self.style == "megatron"
        how = "" if self.style in ("bloom", "megatron_old") else " in torch_dist format"
        begin = f"[{self.stamp(block.start_us)}] " if modern else ""
        yield (
            block.start_us,
            f"{self.first}{begin}saving checkpoint at iteration {step} to {_DIRECTORY}{how}\n",
        )
        if block.end_us is None:
            return
        if block.asynchronous:
            stamp = f"[{self.stamp(block.end_us)}] " if modern else ""
            yield (
                block.end_us,
                f"{self.first}  {stamp}scheduled an async checkpoint save at iteration {step} "
                f"to {_DIRECTORY}\n",
            )
        else:
            yield from self.saved(block, block.end_us)
        yield from self.timer(block.end_us, "save-checkpoint", block.end_us - block.start_us)
        if block.asynchronous and block.durable_us is not None:
            yield from self.saved(block, block.durable_us)

    def saved(self, block: Block, at_us: int) -> Iterator[Said]:
        """Yield the line that says a checkpoint can be loaded."""
        p = self.p
        if self.style in ("bloom", "megatron_old"):
            yield (
                at_us,
                f"{self.first}  successfully saved checkpoint at iteration {block.step:7d} to {_DIRECTORY}\n",
            )
            return
        modern = self.style == "megatron"
        stamp = f"[{self.stamp(at_us)}] " if modern else ""
        place = f" [ t 1/{p.tensor_parallel}, p 1/{p.pipeline_parallel} ]" if modern else ""
        yield (
            at_us,
            f"{self.first}  {stamp}successfully saved checkpoint from iteration {block.step:7d} "
            f"to {_DIRECTORY}{place}\n",
        )

    def evaluation(self, block: Block, end: int) -> Iterator[Said]:
        """Yield the lines of an evaluation that ended."""
        if self.sight.evaluation_timed:
            yield from self.timer(end, "evaluate", end - block.start_us)
        loss = 1.85 + 8.0 * math.exp(-block.step / 250.0)
        text = (
            f" validation loss at iteration {block.step} | lm loss value: {loss:.6E} "
            f"| lm loss PPL: {math.exp(loss):.6E} | "
        )
        dashes = "-" * (len(text) + 1)
        yield end, f"{self.last}{dashes}\n{self.last}{text}\n{self.last}{dashes}\n"

    # ------------------------------------------------------------------ end

    def end(self) -> Iterator[Said]:
        """Yield how it ended."""
        a = self.a
        if a.death_us is None or a.gone_us is None or a.first_line_us is None:
            return
        if a.how == "done":
            yield from self.datetime(a.gone_us, "after training is done")
            if self.sight.event_us is None:
                yield a.gone_us, f"{self.first}training is done, leaving\n"
        elif a.how == "exit_duration":
            minutes = (a.gone_us - (a.first_line_us or a.start_us)) / 60e6
            yield from self.datetime(a.gone_us, f"exiting program after {minutes} minutes")
            if self.sight.event_us is None:
                yield a.gone_us, f"{self.first}exiting program after {minutes} minutes\n"
        else:
            if a.how in ("preempt_saved", "cancel_saved"):
                yield from self.datetime(a.gone_us, "exiting program after receiving SIGTERM.")
            yield from failure(self.run, a, self.rng)


def lines(run: Run, a: Attempt, rng: random.Random) -> Iterator[Said]:
    """Yield (moment, text) of all that an attempt prints; moments need not be in order."""
    words = _Words(run, a, rng)
    yield from words.start()
    merged: list[Said] = list(words.training())
    for block in a.blocks:
        merged += words.block(block)
    yield from merged
    yield from words.end()

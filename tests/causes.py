"""Stories of how a job ended, as its files tell them, and the root cause that a person would name.

Each stands behind a few good steps of a Megatron-LM log (and beside a kernel log, objects of Kubernetes, or
sacct where it says so). `python -m tests.causes` writes docs/causes.md: what our reading makes of them.
"""

# ruff: noqa: E501 - log lines are as long as they are printed
from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from collectors import kernel, kubernetes_watch, megatron, slurm
from tests.factories import ListFacts, parse
from tracker.core.book import Book
from tracker.core.interruptions import Interruption
from tracker.core.settings import Model, Settings
from tracker.core.summary import snapshot

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "causes.md"
AS_OF_US: Final = 1_767_398_400_000_000
SLURM = "slurmstepd: error: *** {} 100{} ON gpu-001 CANCELLED AT 2026-01-01T08:01:30{} ***\n"
WATCHDOG = (
    "[rank3]:[E101 08:11:30.000000000 ProcessGroupNCCL.cpp:629] [Rank 3] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=33, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012 "
    "milliseconds before timing out.\n"
    "[rank3]: torch.distributed.DistBackendError: NCCL communicator was aborted on rank 3.\n"
)


def report(code: int, rank: int = 3) -> str:
    """What torchrun prints of a node."""
    return (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        "Root Cause (first observed failure):\n[0]:\n  time      : 2026-01-01_08:11:40\n  host      : gpu-001\n"
        f"  rank      : {rank} (local_rank: {rank % 8})\n  exitcode  : {code} (pid: 3431)\n"
    )


def xid(number: int, words: str = "", clock: str = "08:01:25") -> str:
    """What the driver says into the kernel's log."""
    return f"[Thu Jan  1 {clock} 2026] NVRM: Xid (PCI:0000:9b:00): {number}, pid=4711, name=python, {words}\n"


def kern(words: str) -> str:
    """Any other message of the kernel."""
    return f"[Thu Jan  1 08:01:25 2026] {words}\n"


def pod(reason: str, code: int) -> str:
    """How a container ended."""
    return (
        '{"kind":"Pod","metadata":{"name":"w"},"status":{"containerStatuses":[{"name":"c","state":{"terminated":'
        f'{{"exitCode":{code},"reason":"{reason}","finishedAt":"2026-01-01T08:01:30Z"}}}}}}]}}}}\n'
    )


def kube(reason: str, message: str) -> str:
    """What the cluster reports."""
    return (
        '{"kind":"Event","involvedObject":{"kind":"Pod","name":"w"},'
        f'"reason":"{reason}","message":"{message}","lastTimestamp":"2026-01-01T08:01:30Z"}}\n'
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """One end of a job."""

    name: str
    group: str
    cause: str
    kind: str = "unexpected"
    log: str = ""
    kernel: str = ""
    kube: str = ""
    sacct: str = ""
    """State and end of the job, such as "TIMEOUT|2026-01-01T12:00:00"."""


def _slurm() -> list[Story]:
    def cancelled(name: str, why: str, cause: str, kind: str = "unexpected") -> Story:
        return Story(name=name, group="Slurm", log=SLURM.format("JOB", "", why), cause=cause, kind=kind)

    def srun(name: str, line: str, cause: str) -> Story:
        return Story(name=name, group="Slurm", log=line + "\n", cause=cause)

    return [
        cancelled("time limit", " DUE TO TIME LIMIT", "time_limit", "planned"),
        cancelled("preemption", " DUE TO PREEMPTION", "preempted"),
        cancelled("requeue", " DUE TO JOB REQUEUE", "operator", "planned"),
        cancelled("node failure", " DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS", "unknown"),
        cancelled("scancel", "", "operator", "planned"),
        Story(
            name="step and job cancelled", group="Slurm", cause="time_limit", kind="planned",
            log=SLURM.format("STEP", ".0", " DUE TO TIME LIMIT") + SLURM.format("JOB", "", " DUE TO TIME LIMIT"),
        ),
        srun("memory error of a node", "slurmstepd: error: *** STEP 100.0 ON gpu-001 UNCORRECTABLE MEMORY ERROR AT "
             "2026-01-01T08:01:30 ***", "system_memory"),
        srun("node failure, by srun", "srun: error: Node failure on gpu-001", "unknown"),
        srun("segmentation fault", "srun: error: gpu-001: task 9: Segmentation fault (core dumped)", "software"),
        srun("out of memory, by srun", "srun: error: gpu-001: task 9: Out Of Memory", "out_of_memory"),
        srun("memory killer of the step", "slurmstepd: error: Detected 1 oom_kill event in StepId=100.0.",
             "out_of_memory"),
        srun("memory killer, older words", "slurmstepd: error: Detected 1 oom-kill event(s) in step 100.0 cgroup.",
             "out_of_memory"),
        Story(name="error of a program, then its victims", group="Slurm", cause="software",
              log="[rank7]: ValueError: expected 4096 tokens, got 17\n"
                  "srun: error: gpu-001: tasks 0-7: Exited with exit code 1\n"
                  "srun: error: gpu-002: tasks 8-15: Exited with exit code 143\n"),
        Story(name="hang until the time limit", group="Slurm", cause="unknown", sacct="TIMEOUT|2026-01-01T12:00:00"),
        Story(name="time limit, by sacct", group="Slurm", cause="time_limit", kind="planned",
              sacct="TIMEOUT|2026-01-01T08:01:30"),
        Story(name="node failure, by sacct, and the kernel's reason", group="Slurm", cause="gpu",
              kernel=xid(79, "GPU has fallen off the bus."), sacct="NODE_FAIL|2026-01-01T08:06:30"),
    ]  # fmt: skip


def _launchers() -> list[Story]:
    def told(name: str, log: str, cause: str, kind: str = "unexpected") -> Story:
        return Story(name=name, group="launchers", log=log, cause=cause, kind=kind)

    signal = (
        "submitit WARNING (2026-01-01 08:01:30,250) - Caught signal SIGUSR2 on gpu-001: this job is {}.\n"
    )
    return [
        told("submitit: preempted", signal.format("preempted"), "preempted"),
        told("submitit: timed out", signal.format("timed-out"), "time_limit", "planned"),
        told("Lightning: requeued", "[rank: 0] Received SIGTERM: 15\nHandling auto-requeue signal: 10\n"
             "requeued SLURM job 100\n", "time_limit", "planned"),
        told("torchrun: -9", report(-9), "out_of_memory"),
        told("torchrun: -11", report(-11), "software"),
        told("torchrun: -7", report(-7), "out_of_memory"),
        told("torchrun: -6 behind a watchdog", WATCHDOG + report(-6), "nccl_watchdog"),
        told("torchrun: 1 behind an aborted communicator",
             "[rank3]: torch.distributed.DistBackendError: NCCL communicator was aborted on rank 3.\n" + report(1),
             "nccl_watchdog"),
        told("torchrun: 1 behind an error of the program",
             "[rank5]: KeyError: 'attention_mask'\n" + report(1, 5), "software"),
        told("torchrun: told to stop", report(-15) + "[rank7]: ValueError: x\n", "software"),
        told("Ctrl-C", "KeyboardInterrupt\n", "operator", "planned"),
    ]  # fmt: skip


def _network() -> list[Story]:
    def told(name: str, log: str, cause: str, kernel_log: str = "") -> Story:
        return Story(name=name, group="NCCL and network", log=log, kernel=kernel_log, cause=cause)

    warn = "gpu-1:11:22 [3] NCCL WARN "
    return [
        told("watchdog alone", WATCHDOG, "nccl_watchdog"),
        told("completion error", warn + "NET/IB : Got completion from peer 10.0.0.7<1> with status=12 opcode=0\n"
             + WATCHDOG, "network"),
        told("port error", warn + "NET/IB : mlx5_3:1 Got async event : port error\n" + WATCHDOG, "network"),
        told("card lost", warn + "NET/IB : mlx5_3:1 Got async error event: local catastrophic fatal error\n" + WATCHDOG,
             "nic"),
        told("card lost, by the kernel", WATCHDOG, "nic",
             kern("mlx5_core 0000:1a:00.0: poll_health:825:(pid 0): device's health compromised - reached miss count")),
        told("remote error alone", "ncclRemoteError: A call failed possibly due to a network error or a remote process "
             "exiting prematurely.\n", "nccl_watchdog"),
        told("heartbeat alone", "[rank5]:[E101 08:20:53.8 ProcessGroupNCCL.cpp:1537] [PG 0 Rank 5] Heartbeat monitor "
             "timed out! Process will be terminated after dumping debug info.\n", "nccl_watchdog"),
        told("switch, fatal", WATCHDOG, "network",
             kern("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up")),
        told("victims of a program's error",
             "[rank7]: RuntimeError: shape '[4, 5]' is invalid for input of size 17\n" + WATCHDOG + report(-6),
             "software"),
    ]  # fmt: skip


def _gpu() -> list[Story]:
    def cuda(name: str, words: str, cause: str) -> Story:
        return Story(name=name, group="CUDA", log=f"[rank3]: RuntimeError: {words}\n" + WATCHDOG, cause=cause)

    def driver(number: int, words: str, cause: str, *, log: str = WATCHDOG, more: str = "") -> Story:
        name = f"{number} {words}"[:40].strip()
        return Story(name=name, group="Xid", kernel=xid(number, words) + more, log=log, cause=cause)

    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 55.88 GiB. GPU 0 has a total capacity of\n"
    return [
        cuda("ECC error", "CUDA error: uncorrectable ECC error encountered", "gpu_hbm"),
        cuda("NVLink error", "CUDA error: uncorrectable NVLink error detected during the execution", "gpu"),
        cuda("launch failure", "CUDA error: unspecified launch failure", "gpu"),
        cuda("busy", "CUDA error: all CUDA-capable devices are busy or unavailable", "gpu"),
        cuda("illegal access", "CUDA error: an illegal memory access was encountered", "software"),
        cuda("assert", "CUDA error: device-side assert triggered", "software"),
        Story(name="out of memory", group="CUDA", log=oom + WATCHDOG, cause="out_of_memory"),
        Story(name="out of memory, older words", group="CUDA", cause="out_of_memory",
              log="RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"),
        driver(48, "An uncorrectable double bit error (DBE) has been detected on GPU", "gpu_hbm"),
        driver(63, "Row Remapper: New row marked for remapping, reset gpu to activate", "gpu_hbm"),
        driver(64, "Row Remapper: remapping failed", "gpu_hbm"),
        driver(94, "Contained: CE User Channel", "gpu_hbm", more=xid(45, "Ch 00000010", "08:01:26")),
        driver(95, "Uncontained ECC error, DRAM: No, SRAM: Yes", "gpu_sram"),
        driver(79, "GPU has fallen off the bus.", "gpu"),
        driver(119, "Timeout after 6s of waiting for RPC response from GPU4 GSP!", "gpu_system_processor"),
        driver(120, "GSP task exception", "gpu_system_processor"),
        driver(74, "NVLink: fatal error detected on link 6", "gpu"),
        driver(149, "NETIR_LINK_EVT  Fatal", "gpu", more=xid(154, "GPU recovery action changed", "08:01:26")),
        driver(31, "MMU Fault: ENGINE GRAPHICS", "software", log=WATCHDOG),
        driver(13, "Graphics Exception: ESR 0x504730", "software", log="[rank3]: RuntimeError: CUDA error: an illegal "
               "memory access was encountered\n"),
        Story(name="lost, without a number", group="Xid", log=WATCHDOG, cause="gpu",
              kernel=kern("NVRM: fallen off the bus and is not responding to commands.")),
    ]  # fmt: skip


def _host() -> list[Story]:
    def told(
        name: str, log: str, cause: str, kernel_log: str = "", kube_log: str = "", kind: str = "unexpected"
    ) -> Story:
        return Story(
            name=name,
            group="host and cluster",
            log=log,
            kernel=kernel_log,
            kube=kube_log,
            cause=cause,
            kind=kind,
        )

    loader = "RuntimeError: DataLoader worker (pid 30882) is killed by signal: {}\n"
    return [
        told("memory killer, by the kernel", report(-9), "out_of_memory",
             kern("Memory cgroup out of memory: Killed process 4711 (python) total-vm:1kB")),
        told("memory that cannot be read", "", "system_memory",
             kern("Memory failure: 0x3f12a0: Killing python:4711 due to hardware memory corruption")),
        told("disk lost", "OSError: [Errno 5] Input/output error: '/scratch/data.idx'\n", "ssd",
             kern("nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10")),
        told("disk full", "OSError: [Errno 28] No space left on device: '/scratch/ckpt'\n", "storage"),
        told("stale handle", "OSError: [Errno 116] Stale file handle: '/nfs/data.idx'\n" + WATCHDOG, "storage"),
        told("data loader: shared memory", loader.format("Bus error. It is possible that dataloader's workers are out "
             "of shared memory."), "out_of_memory"),
        told("data loader: killed", loader.format("Killed."), "out_of_memory"),
        told("data loader: exited", "RuntimeError: DataLoader worker (pid(s) 30882, 30883) exited unexpectedly\n",
             "software"),
        told("container killed for memory", "", "out_of_memory", kube_log=pod("OOMKilled", 137)),
        told("pod preempted", "", "preempted", kube_log=kube("Preempted", "Preempted by a pod on node n")),
        told("pod evicted for storage", "", "storage",
             kube_log=kube("Evicted", "The node was low on resource: ephemeral-storage.")),
        told("node drained", "", "host_maintenance", kind="planned",
             kube_log=kube("Shutdown", "Node is shutting down")),
    ]  # fmt: skip


def _numbers() -> list[Story]:
    def told(name: str, log: str, cause: str) -> Story:
        return Story(name=name, group="numbers", log=log, cause=cause)

    unexpected = "Unexpected result nan on rank 3 at iteration #33 invocation #2 (message='found NaN in local grad norm')\n"
    return [
        told("NaN in the gradient", "AssertionError: Rank 3: found NaN in local grad norm in backward pass before "
             "data-parallel communication collective\n" + WATCHDOG, "divergence"),
        told("NaN in the loss", "Loss is nan, stopping training\n", "divergence"),
        told("loss scale, fairseq", "FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably "
             "exploding.\n", "divergence"),
        told("loss scale, DeepSpeed", "Exception: Current loss scale already at minimum - cannot decrease scale anymore. "
             "Exiting run.\n", "divergence"),
        told("a result that does not come again", unexpected + "First rerun: unexpected result is not reproducible within "
             "the tolerance (nan != 1.25)\n", "silent_data_corruption"),
        told("a result that comes again", unexpected + "First rerun: unexpected result is reproducible within the "
             "tolerance (nan)\n", "divergence"),
    ]  # fmt: skip


STORIES: Final[tuple[Story, ...]] = (
    *_slurm(), *_launchers(), *_network(), *_gpu(), *_host(), *_numbers()
)  # fmt: skip


def _iteration(clock: str, step: int) -> str:
    return (
        f" [2026-01-01 {clock}.000000] iteration {step:8d}/   10000 | consumed samples: {step * 128:12d} "
        "| elapsed time per iteration (ms): 1000.0 | learning rate: 1.0E-05 | global batch size:   128 "
        "| lm loss: 1.0E+01 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    )


def judged(story: Story) -> Interruption | None:
    """Return what our reading makes of a story; None where it sees no interruption."""
    facts = ListFacts()
    banner = "using world size: 16, data-parallel size: 16, tensor-model-parallel size: 1\n"
    first = banner + "".join(_iteration(f"08:01:{n:02d}", n) for n in (0, 5, 10, 15, 20))
    again = banner + _iteration("14:00:00", 30)
    files = [
        ("train-100.log", first + story.log, megatron.COLLECTOR),
        ("train-101.log", again, megatron.COLLECTOR),
        ("dmesg", story.kernel, kernel.COLLECTOR),
        ("kube.jsonl", story.kube, kubernetes_watch.COLLECTOR),
    ]
    if story.sacct:
        state, end = story.sacct.split("|")
        table = "JobID|JobName|State|Start|End|AllocTRES\n"
        table += f"100|toy|{state}|2026-01-01T08:00:00|{end}|gres/gpu=16\n"
        files.append(("sacct.txt", table, slurm.COLLECTOR))
    for name, body, collector in files:
        if body:
            records = parse(body.encode(), collector, file_name=name)
            facts.add(records, file_name=name, collector=collector.name, identity=name)
    run = Settings(run="toy", model=Model(sequence_length=4096))
    stops = snapshot(Book(run), facts, as_of_us=AS_OF_US).interruptions
    return stops[0] if stops else None


def page() -> str:
    """Return the confusion table of all stories as Markdown."""
    rows = [(story, judged(story)) for story in STORIES]
    right = sum(stop is not None and (stop.cause, stop.kind) == (s.cause, s.kind) for s, stop in rows)
    causes = sorted({story.cause for story in STORIES} | {stop.cause for _, stop in rows if stop is not None})
    counts = Counter((s.cause, stop.cause if stop is not None else "none") for s, stop in rows)
    lines = [
        "# Causes: what is told, and what is made of it",
        "",
        "Written by `python -m tests.causes`; `tests/test_causes.py` holds it to the code.",
        f"{right} of {len(rows)} stories get the cause and kind that a person would name.",
        "The stories are made up from the messages that the tools print; each follows a few good steps of a log.",
        "",
        "## Confusion table",
        "",
        "A row is the cause that is meant, a column the one that is found.",
        "",
        "| meant \\ found | " + " | ".join(causes) + " |",
        "|---|" + "---|" * len(causes),
    ]
    for meant in sorted({story.cause for story in STORIES}):
        cells = [str(counts[meant, found]) if counts[meant, found] else "" for found in causes]
        lines.append(f"| {meant} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "## Every story",
        "",
        "| group | story | meant | found | kind | sure |",
        "|---|---|---|---|---|---|",
    ]
    for story, stop in rows:
        found = ("none", "", "") if stop is None else (stop.cause, stop.kind, f"{stop.confidence:.2f}")
        mark = "" if found[:2] == (story.cause, story.kind) else " (wrong)"
        name = story.name.replace("|", "\\|")
        lines.append(
            f"| {story.group} | {name} | {story.cause} | {found[0]}{mark} | {found[1]} | {found[2]} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

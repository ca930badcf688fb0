"""Trouble read from logs: one event for a thousand ranks, the root told from its victims, no false alarm."""

from __future__ import annotations

import json
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from collectors._devices import xid
from collectors._events import ALONE
from collectors.megatron import READER
from tracker.core.records import Event, Kind, Reading, Record
from tracker.interfaces import Context

WATCHDOG = (
    b"[rank%d]:[E602 11:18:53.865680143 ProcessGroupNCCL.cpp:629] [Rank %d] Watchdog caught collective "
    b"operation timeout: WorkNCCL(SeqNum=33, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 607565 "
    b"milliseconds before timing out.\n"
)
PROGRESS = (
    b" [2026-06-02 11:%02d:00] iteration %8d/ 1000 | consumed samples: 128 |"
    b" elapsed time per iteration (ms): 1000.0 | global batch size: 128 | lm loss: 1.0E+01 |"
    b" number of skipped iterations: 0 | number of nan iterations: 0 |\n"
)


def events(text: bytes, context: Context | None = None) -> list[Event]:
    found: list[Record] = list(ALONE.parse(text, context or Context()))
    assert all(isinstance(record, Event) for record in found)
    return [record for record in found if isinstance(record, Event)]


def failures(text: bytes) -> list[tuple[object, object]]:
    return [(e.data["cause"], e.data.get("rank")) for e in events(text) if e.kind is Kind.FAILURE]


def test_a_thousand_ranks_make_one_event() -> None:
    """The first line is kept as evidence with its rank; the others are counted, and the state stays small."""
    context = Context()
    found = events(b"".join(WATCHDOG % (rank, rank) for rank in range(1000)), context)

    assert len(found) == 1
    assert found[0].data["rank"] == 0
    assert found[0].data["back_us"] == 600_000_000
    counted = context.state["events"]
    assert isinstance(counted, dict)
    assert counted["nccl_watchdog watchdog"] == 1000


def test_the_hang_began_before_the_line_that_tells_of_it() -> None:
    """The time-out is the age of the hang: the line's time less that is where productive time ended."""
    text = PROGRESS % (1, 10) + WATCHDOG % (3, 3)
    event = next(record for record in READER.parse(text, Context()) if isinstance(record, Event))
    reading = next(record for record in READER.parse(text, Context()) if isinstance(record, Reading))

    assert event.at_us is not None
    assert reading.at_us is not None
    assert event.at_us - event.data["back_us"] == reading.at_us + 473_865_680  # type: ignore[operator]


def test_the_same_trouble_is_news_after_progress() -> None:
    """An error that training survived is told again when it comes again."""
    error = b"NVRM: Xid (PCI:0000:10:1c): 63, pid=1850, Row Remapper: New row marked for remapping\n"
    text = error + error + PROGRESS % (1, 10) + error + error + PROGRESS % (2, 20)
    found = list(READER.parse(text, Context()))

    assert [type(record) for record in found] == [Event, Reading, Event, Reading]


def test_kinds_of_trouble_between_two_readings_are_bounded() -> None:
    """Whatever a log invents, an attempt has a bounded number of events and a small state."""
    context = Context()
    lines = [b"NVRM: Xid (PCI:0000:%02x:00): %d, pid=1\n" % (i % 256, i) for i in range(5000)]
    found = events(b"".join(lines), context)

    assert len(found) <= 64
    assert len(json.dumps(context.state)) < 8192


def test_the_job_and_its_step_end_once() -> None:
    """slurmstepd tells the end of the step and of the job, from several nodes: one exit, and the job's id."""
    text = b"".join(
        b"slurmstepd: error: *** %s 77%s ON n%d CANCELLED AT 2026-01-01T10:00:0%d DUE TO TIME LIMIT ***\n"
        % row
        for row in [(b"STEP", b".0", 1, 1), (b"JOB", b"", 1, 1), (b"STEP", b".0", 2, 3)]
    )
    found = events(text)

    assert [event.kind for event in found] == [Kind.SETTING, Kind.EXIT]
    assert found[0].data == {"job_id": "77"}
    assert found[1].data == {"end_kind": "time_limit", "cause": "time_limit"}


@pytest.mark.parametrize(
    ("number", "cause"),
    [
        (48, "gpu_hbm"), (63, "gpu_hbm"), (64, "gpu_hbm"), (94, "gpu_hbm"), (95, "gpu_hbm"), (79, "gpu"),
        (119, "gpu_system_processor"), (120, "gpu_system_processor"), (74, "gpu"), (13, "software"),
        (31, "software"), (45, "unknown"), (99999, "gpu"),
    ],
)  # fmt: skip
def test_an_xid_names_the_part_that_failed(number: int, cause: str) -> None:
    """The first mapping of the design; a number that nobody knows is still a GPU's."""
    assert xid(number, b"").cause == cause
    assert xid(number, b"SRAM: Yes").cause == ("gpu_sram" if cause == "gpu_hbm" else cause)


def test_a_consequence_claims_less_than_its_root() -> None:
    """An ECC error brings NCCL down on every other rank: they do not say more than that somebody died."""
    text = (
        b"[rank9]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970\n"
        b"ncclRemoteError: A call failed possibly due to a network error or a remote process exiting.\n"
        b"[rank3]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    )
    found = events(text)

    best = max(found, key=lambda event: event.data["confidence"])  # type: ignore[arg-type, return-value]
    assert (best.data["cause"], best.data["rank"]) == ("gpu_hbm", 3)
    assert {event.data["cause"] for event in found} == {"gpu_hbm", "nccl_watchdog"}


def test_each_rank_is_the_root_of_its_own_report_only() -> None:
    """A worker killed first is marked as root; one told to stop, or with a plain exit code, is not."""
    report = (
        b"torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        b"Root Cause (first observed failure):\n[0]:\n"
        b"  time      : 2026-05-01_11:12:35\n  host      : gpu-007\n  rank      : %d (local_rank: 0)\n"
        b"  exitcode  : %d (pid: 3431)\n  traceback : Signal\n"
    )
    found = events(report % (56, -9) + report % (64, -15) + report % (72, 1))

    assert [(e.data["rank"], e.data.get("root")) for e in found] == [(56, True), (72, None)]
    assert found[0].data["cause"] == "out_of_memory"


@pytest.mark.parametrize(
    "line",
    [
        b"Traceback (most recent call last):",
        b"mirror of errors: 0",
        b"TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
        b"[rank0]: Warning: destroy_process_group() was not called before program exit",
        b"srun: error: worker-3: tasks 0-7: Terminated",
        b"Bypassing SIGTERM: 15",
        b"gpu-1:1:2 [0] NCCL INFO comm 0x1f rank 0 nranks 8 - Destroy COMPLETE",
        b"INFO: no error: all CANCELLED jobs were retried",
        b"  File \"x.py\", line 1, in ValueError: not at the start of the line",
        b"Watchdog enabled with timeout 600",
    ],
    ids=lambda line: line.decode()[:40],
)  # fmt: skip
def test_a_word_of_trouble_alone_is_none(line: bytes) -> None:
    """What only sounds like it makes no event."""
    assert events(line + b"\n") == []


def test_a_traceback_that_a_program_survives_is_none() -> None:
    """`failed with: Traceback` of eight ranks at once: their last lines are no failures, a later one is."""
    text = b""
    for rank in range(8):
        text += b"%2d: Import of quick_gelu failed with: Traceback (most recent call last):\n" % rank
    for rank in range(8):
        text += b"%2d: AttributeError: module has no attribute 'quick_gelu'\n" % rank
    assert failures(text) == []
    assert failures(text + b"[rank4]: ValueError: 17\n") == [("software", 4)]


def test_the_stamp_of_a_cancelled_job_is_local_time() -> None:
    """slurmstepd prints no zone."""
    line = b"slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-07-01T12:00:00 DUE TO PREEMPTION ***\n"
    found = events(line, Context(zone=ZoneInfo("Europe/Berlin")))

    assert found[-1].at_us == 1_782_900_000_000_000
    assert found[-1].data["end_kind"] == "preempted"


def test_real_runs_that_succeeded_show_no_failure(shared_data: Path) -> None:
    """Real logs, with imports that fail and are replaced, and a time limit after success: no false alarm."""
    logs = [path for path in (shared_data / "mlperf").rglob("result_*.txt")]
    logs += list((shared_data / "mlperf" / "extra").glob("*.txt"))
    assert len(logs) > 10
    for path in logs:
        found = [event for event in events(path.read_bytes()) if event.kind is Kind.FAILURE]
        assert found == [], path

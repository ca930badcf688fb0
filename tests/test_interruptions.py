"""Why attempts ended: the root before its cascade, across files; and a person's word beside the evidence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from collectors import kernel, kubernetes_watch, megatron, slurm
from tests.factories import ListFacts, parse
from tracker.cli import root
from tracker.core.book import Book
from tracker.core.corrections import Correction
from tracker.core.documents import interruptions_document, status_document
from tracker.core.errors import InvalidValue
from tracker.core.settings import Hardware, Model, Settings
from tracker.core.snapshot import Snapshot
from tracker.core.summary import snapshot
from tracker.interfaces import Collector

AS_OF = 1_767_398_400_000_000  # 2026-01-03T00:00:00Z
RUN = Settings(
    run="toy", model=Model(active_params=1e9, sequence_length=4096), hardware=Hardware(peak_flop_per_s=989e12)
)


def iteration(clock: str, step: int) -> str:
    return (
        f" [2026-01-01 {clock}.000000] iteration {step:8d}/   10000 | consumed samples: {step * 128:12d} "
        "| elapsed time per iteration (ms): 1000.0 | learning rate: 1.0E-05 | global batch size:   128 "
        "| lm loss: 1.0E+01 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    )


BANNER = "[2026-01-01 {}] using world size: 16, data-parallel size: 16, tensor-model-parallel size: 1\n"
FIRST = (
    BANNER.format("08:00:10").replace("[2026-01-01 08:00:10] ", "")
    + iteration("08:01:00", 10)
    + iteration("08:01:10", 20)
    + " successfully saved checkpoint from iteration      20 to /ckpt\n".replace(" succ", "  succ")
    + iteration("08:01:20", 30)
)
WATCHDOG = (
    "[rank{0}]:[E101 08:11:3{1}.000000000 ProcessGroupNCCL.cpp:629] [Rank {0}] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum={2}, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) "
    "ran for 600012 milliseconds before timing out.\n"
)
VICTIMS = (
    WATCHDOG.format(3, 0, 33)
    + WATCHDOG.format(4, 1, 33)
    + "[rank3]: torch.distributed.DistBackendError: NCCL communicator was aborted on rank 3.\n"
    + "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    + "Root Cause (first observed failure):\n[0]:\n  time      : 2026-01-01_08:11:40\n  host      : gpu-001\n"
    + "  rank      : 3 (local_rank: 3)\n  exitcode  : -6 (pid: 3431)\n"
    + "srun: error: gpu-001: tasks 0-7: Exited with exit code 1\n"
)
SECOND = (
    "using world size: 16, data-parallel size: 16, tensor-model-parallel size: 1\n"
    " successfully loaded checkpoint from /ckpt [ t 1/1, p 1/1 ] at iteration 20\n"
    + iteration("08:21:00", 30)
    + iteration("08:21:10", 40)
)
XID = "[Thu Jan  1 08:01:25 2026] NVRM: Xid (PCI:0000:9b:00): {}, pid=4711, name=python, {}\n"
SACCT = (
    "JobID|JobName|State|Start|End|AllocTRES|ExitCode\n"
    "100|toy|FAILED|2026-01-01T08:00:00|2026-01-01T08:12:00|billing=1,gres/gpu=16,node=2|1:0\n"
    "101|toy|RUNNING|2026-01-01T08:20:00|Unknown|billing=1,gres/gpu=16,node=2|0:0\n"
)


def told(*files: tuple[str, str, Collector]) -> ListFacts:
    facts = ListFacts()
    for name, body, collector in files:
        facts.add(
            parse(body.encode(), collector, file_name=name),
            file_name=name,
            collector=collector.name,
            identity=name,
        )
    return facts


def answer(facts: ListFacts, *, as_of_us: int = AS_OF) -> Snapshot:
    return snapshot(Book(RUN), facts, as_of_us=as_of_us)


def run_with(log: str, *others: tuple[str, str, Collector]) -> ListFacts:
    return told(
        ("train-100.log", FIRST + log, megatron.COLLECTOR),
        ("train-101.log", SECOND, megatron.COLLECTOR),
        ("sacct.txt", SACCT, slurm.COLLECTOR),
        *others,
    )


@pytest.mark.parametrize(
    ("number", "words", "cause"),
    [
        pytest.param(94, "Contained: CE User Channel", "gpu_hbm", id="memory-of-the-gpu"),
        pytest.param(95, "Uncontained ECC error, SRAM: Yes", "gpu_sram", id="memory-in-the-chip"),
        pytest.param(79, "GPU has fallen off the bus.", "gpu", id="a-lost-gpu"),
        pytest.param(119, "Timeout after 6s of waiting for RPC", "gpu_system_processor", id="its-processor"),
    ],
)
def test_the_kernel_explains_what_the_watchdog_only_waited_for(number: int, words: str, cause: str) -> None:
    """The training log has nothing but victims; the kernel's line, ten minutes before them, is the root."""
    got = answer(run_with(VICTIMS, ("dmesg.txt", XID.format(number, words), kernel.COLLECTOR)))

    (stop,) = got.interruptions
    assert (stop.cause, stop.kind, stop.attempt) == (cause, "unexpected", 1)
    assert f"Xid (PCI:0000:9b:00): {number}" in stop.evidence
    (row,) = interruptions_document(got)
    assert row["began"] == "2026-01-01T08:01:25Z"
    assert row["at"] == "2026-01-01T08:12:00Z"
    assert row["detect_s"] == pytest.approx(640, abs=1)  # from the last step to the end of the allocation
    assert row["restart_s"] == pytest.approx(9 * 60 - 10 + 0, abs=11)
    assert row["redo_steps"] == 10
    assert row["redo_gpu_hours"] == pytest.approx(10 * 16 / 3600, rel=0.01)
    assert row["judged"] is None
    assert row["correction"] is None
    assert status_document(got)["interruptions"] == {"unexpected": 1, "planned": 0, "by_cause": {cause: 1}}


def test_without_the_kernel_the_watchdog_is_all_there_is_and_the_hang_is_back_dated() -> None:
    """It began ten minutes before the line, and training is counted only up to the last step."""
    got = answer(run_with(VICTIMS))

    (stop,) = got.interruptions
    assert stop.cause == "nccl_watchdog"
    (row,) = interruptions_document(got)
    assert row["began"] == "2026-01-01T08:01:30Z"
    first = got.attempts[0]
    assert first.wall_us["tail"] / 1e6 == pytest.approx(640, abs=1)
    assert first.wall_us["productive"] + first.wall_us["lost"] == 30 * 1_000_000


def test_the_rank_that_lags_is_the_evidence() -> None:
    """All ranks wait; the one a collective behind the others held them up."""
    late = WATCHDOG.format(3, 0, 33) + WATCHDOG.format(9, 1, 31) + WATCHDOG.format(4, 2, 33)

    (stop,) = answer(run_with(late)).interruptions

    assert "[Rank 9]" in stop.evidence


def test_a_python_error_beats_the_abort_of_those_who_waited() -> None:
    """Rank 7's own error is the root; -6 of another rank is its consequence."""
    error = "[rank7]: ValueError: expected 4096 tokens, got 17\n"

    (stop,) = answer(run_with(error + VICTIMS)).interruptions

    assert stop.cause == "software"
    assert "ValueError" in stop.evidence


def test_evidence_of_another_time_explains_nothing() -> None:
    """The same message a day before: the watchdog stays."""
    old = XID.format(94, "Contained").replace("Thu Jan  1", "Wed Dec 31").replace("2026]", "2025]")

    (stop,) = answer(run_with(VICTIMS, ("dmesg.txt", old, kernel.COLLECTOR))).interruptions

    assert stop.cause == "nccl_watchdog"


def test_a_pod_that_was_killed_for_memory_explains_a_log_that_just_ends() -> None:
    """The log has no last words; the cluster has."""
    pod = {
        "kind": "Pod",
        "metadata": {"name": "toy-3"},
        "status": {
            "containerStatuses": [
                {
                    "name": "c",
                    "state": {
                        "terminated": {
                            "exitCode": 137,
                            "reason": "OOMKilled",
                            "finishedAt": "2026-01-01T08:01:30Z",
                        }
                    },
                }
            ]
        },
    }
    facts = run_with("", ("pods.jsonl", json.dumps(pod) + "\n", kubernetes_watch.COLLECTOR))

    (stop,) = answer(facts).interruptions

    assert stop.cause == "out_of_memory"


# -- corrections -------------------------------------------------------------------------------------


def said(facts: ListFacts, **words: Any) -> Correction:
    attempt = answer(facts).attempts[0]
    defaults: dict[str, Any] = {
        "attempt": attempt.name, "at_us": attempt.end_us, "made_us": AS_OF - 10,
        "by": "ana", "note": "looked",
    }  # fmt: skip
    return Correction(**{**defaults, **words})


def test_a_correction_holds_and_the_evidence_stays() -> None:
    """Cause, kind, counts and MTBF follow the person; what the line said stands beside it."""
    facts = run_with(VICTIMS)
    before = answer(facts)
    facts.said.append(said(facts, cause="host_maintenance", manual=True, note="the row was re-cabled"))

    got = answer(facts)

    (stop,) = got.interruptions
    assert (stop.cause, stop.kind, stop.manual, stop.confidence) == ("host_maintenance", "planned", True, 1.0)
    assert stop.evidence == before.interruptions[0].evidence
    assert stop.detect_s == before.interruptions[0].detect_s
    (row,) = interruptions_document(got)
    assert row["judged"] == {"kind": "unexpected", "cause": "nccl_watchdog", "confidence": 0.5}
    assert row["correction"]["by"] == "ana"
    assert row["correction"]["note"] == "the row was re-cabled"
    assert got.attempts[0].cause == "host_maintenance"
    assert got.attempts[0].end_kind == "host_maintenance"
    assert got.mtbf.device_hours is None
    assert status_document(got)["interruptions"] == {"unexpected": 0, "planned": 1, "by_cause": {}}


def test_the_last_word_counts_and_can_be_taken_back() -> None:
    """Three words of two people; the last takes the others back."""
    facts = run_with(VICTIMS)
    facts.said.append(said(facts, cause="network"))
    facts.said.append(said(facts, cause="nic", by="ben"))
    assert answer(facts).interruptions[0].cause == "nic"

    facts.said.append(said(facts, note="no, it was not"))

    got = answer(facts)
    assert got.interruptions[0].cause == "nccl_watchdog"
    assert got.corrections == {}


def test_only_a_person_fills_by_hand() -> None:
    """Without a word it is not known; saying that leaves the verdict alone."""
    facts = run_with(VICTIMS)
    assert answer(facts).interruptions[0].manual is None

    facts.said.append(said(facts, manual=False))

    (stop,) = answer(facts).interruptions
    assert (stop.manual, stop.cause, stop.judged) == (False, "nccl_watchdog", None)


def test_what_was_said_later_was_not_known_then() -> None:
    """As of the moment before, the evidence counts."""
    facts = run_with(VICTIMS)
    facts.said.append(said(facts, cause="network", made_us=AS_OF + 1))

    assert answer(facts).interruptions[0].cause == "nccl_watchdog"
    assert answer(facts, as_of_us=AS_OF + 1).interruptions[0].cause == "network"


def test_a_correction_survives_that_its_attempt_is_told_in_another_file() -> None:
    """The name is gone, the end is the same: it still belongs there. One of nowhere is a warning."""
    facts = run_with(VICTIMS)
    facts.said.append(said(facts, attempt="log gone 0", cause="network"))
    assert answer(facts).interruptions[0].cause == "network"

    facts.said[:] = [said(facts, attempt="log gone 0", at_us=1, cause="network", note="what was it?")]

    got = answer(facts)
    assert got.interruptions[0].cause == "nccl_watchdog"
    assert any("what was it?" in text for text in got.warnings)


@pytest.mark.parametrize(
    ("words", "said_why"),
    [
        pytest.param({"cause": "gpu_hmb"}, "did you mean 'gpu_hbm'", id="a-misspelt-cause"),
        pytest.param({"kind": "planed"}, "did you mean 'planned'", id="a-misspelt-kind"),
        pytest.param({"note": " "}, "note = ' '", id="no-reason"),
        pytest.param({"by": ""}, "by = ''", id="nobody"),
    ],
)
def test_a_correction_says_what_the_core_knows(words: dict[str, Any], said_why: str) -> None:
    """Causes and kinds by name, and never without a reason and a name."""
    with pytest.raises(InvalidValue, match=said_why):
        Correction(**{"attempt": "x", "at_us": 0, "made_us": 0, "by": "ana", "note": "n", **words})


# -- the command, on a real store --------------------------------------------------------------------


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """A folder with a run of three files, read into a store."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRACKER_CONFIG", raising=False)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "train-100.log").write_text(FIRST + VICTIMS)
    (tmp_path / "logs" / "train-101.log").write_text(SECOND)
    (tmp_path / "dmesg.txt").write_text(XID.format(94, "Contained"))
    (tmp_path / "sacct.txt").write_text(SACCT)
    (tmp_path / "run.toml").write_text(
        '[run]\nname = "toy"\n[model]\nsequence_length = 4096\n'
        '[[source]]\npath = "logs/*.log"\n[[source]]\npath = "dmesg.txt"\n'
        '[[source]]\ncollector = "slurm"\npath = "sacct.txt"\n'
    )
    runner = CliRunner()

    def run(*words: str) -> Result:
        return runner.invoke(root, words)

    assert run("ingest").exit_code == 0
    return run


def rows(call: Callable[..., Result], *words: str) -> list[dict[str, Any]]:
    done = call("interruptions", "--json", *words)
    assert done.exit_code == 0, done.output
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_the_command_lists_corrects_and_takes_back(call: Callable[..., Result], tmp_path: Path) -> None:
    """From three files to a cause; a person's word is kept when the logs are read on, and withdrawn."""
    (row,) = rows(call)
    assert row["cause"] == "gpu_hbm"
    assert row.keys() >= {
        "id", "at", "attempt", "kind", "cause", "evidence", "confidence", "detect_s", "restart_s",
        "redo_steps", "redo_gpu_hours", "cost", "manual", "began", "judged", "correction",
    }  # fmt: skip
    assert "Xid" in call("interruptions").output
    assert rows(call, "--as-of", "2026-01-01T08:05:00Z") == []  # it runs still

    done = call(
        "interruptions", "set", "1", "--cause", "gpu", "--manual", "--note", "tray swapped", "--by", "ana"
    )
    assert done.exit_code == 0, done.output
    assert "tray swapped" in done.output

    with (tmp_path / "logs" / "train-101.log").open("a") as file:
        file.write(iteration("08:21:20", 50))
    assert call("ingest").exit_code == 0
    (row,) = rows(call)
    assert (row["cause"], row["manual"], row["judged"]["cause"]) == ("gpu", True, "gpu_hbm")
    assert row["correction"]["by"] == "ana"
    assert json.loads(call("status", "--json").stdout)["interruptions"]["by_cause"] == {"gpu": 1}

    assert call("interruptions", "clear", "1", "--note", "wrong node", "--by", "ben").exit_code == 0
    (row,) = rows(call)
    assert (row["cause"], row["correction"]) == ("gpu_hbm", None)


@pytest.mark.parametrize(
    ("words", "said_why"),
    [
        pytest.param(("set", "9", "--cause", "gpu", "--note", "n"), "ID = 9: expected 1..1", id="no-such-id"),
        pytest.param(
            ("set", "1", "--cause", "gpuu", "--note", "n"), "did you mean 'gpu'", id="no-such-cause"
        ),
        pytest.param(("set", "1", "--note", "n"), "nothing to set", id="nothing-to-set"),
        pytest.param(("set", "1", "--cause", "gpu"), "--note", id="no-reason"),
    ],
)
def test_a_wrong_call_is_told(call: Callable[..., Result], words: tuple[str, ...], said_why: str) -> None:
    """Exit status 2, the value, what was expected; nothing is kept."""
    done = call("interruptions", *words)

    assert done.exit_code == 2
    assert said_why in done.output
    assert rows(call)[0]["correction"] is None


def test_an_empty_run_has_no_interruptions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No store yet: an empty list, and a sentence for people."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text('[run]\nname = "toy"\n')
    runner = CliRunner()

    assert json.loads(runner.invoke(root, ["interruptions", "--json"]).stdout) == []
    assert "no attempt has ended" in runner.invoke(root, ["interruptions"]).output
    refused = runner.invoke(root, ["interruptions", "set", "1", "--cause", "gpu", "--note", "n"])
    assert refused.exit_code == 2
    assert "there is none yet" in refused.output

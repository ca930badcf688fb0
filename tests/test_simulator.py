"""The simulator: its truth closes by itself, its text is what the formats print, and both are repeatable.

Whether a tracker agrees with the truth is `test_ledger_simulated.py`'s question; here the truth and the text
are held to the state machine and to the format catalogue.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.simulator import (
    PRESETS,
    Act,
    Player,
    contents,
    demo,
    emissions,
    logs,
    moments,
    observe,
    play,
    preset,
    simulate,
    truth,
    write,
)
from tests.simulator.__main__ import main
from tests.simulator.live import Player as LivePlayer
from tests.simulator.machine import SECOND, Run
from tests.simulator.sight import SIGHTS
from tests.simulator.truth import BUCKETS

assert LivePlayer is Player

NAMES = [name for name in PRESETS if name != "demo"]
ITERATION = re.compile(
    rb"^\s*(?:\[(?P<ts>[^\]]+)\]\s*)?iteration\s+(?P<step>\d+)/\s*(?P<of>\d+) \|(?P<rest>.*)", re.MULTILINE
)
"""The catalogue's pattern that matched every real Megatron line, prefixes taken off before."""
PREFIX = re.compile(rb"^(?: *\d+: |\[(?:default|rank)\d+\]:)", re.MULTILINE)


@pytest.fixture(scope="module")
def bundled() -> Run:
    """The bundled run."""
    return demo.demo()


# -- the truth ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(1, 6))
def test_the_truth_closes_at_every_moment(name: str, seed: int) -> None:
    """Buckets sum to the allocation, none is negative, and what is retained was executed."""
    run = simulate(preset(name, seed=seed))
    for moment in [*moments(run, 40), run.now_us]:
        answer = truth(run, as_of_us=moment)
        assert sum(answer.total.values()) == answer.allocated
        assert all(answer.total[name] >= 0 for name in BUCKETS)
        assert sum(a.net_steps for a in answer.attempts) + answer.unseen_steps == answer.net_steps
        assert answer.net_steps <= answer.processed_steps
        assert 0 <= answer.at_risk_steps <= answer.net_steps


@pytest.mark.parametrize("name", NAMES)
def test_time_only_adds_to_what_was_allocated_and_processed(name: str) -> None:
    """Later moments know no less: allocation and processed steps never shrink."""
    run = simulate(preset(name, seed=2))
    answers = [truth(run, as_of_us=moment) for moment in moments(run, 40)]
    assert [a.allocated for a in answers] == sorted(a.allocated for a in answers)
    assert [a.processed_steps for a in answers] == sorted(a.processed_steps for a in answers)


def test_a_finished_run_has_every_step_exactly_once() -> None:
    """All presets that end have their target as net steps, whatever was thrown away on the way."""
    for name in ("steady", "llama_like", "ramp", "rollback", "elastic", "clockless", "finished"):
        run = simulate(preset(name, seed=3))
        answer = truth(run)
        assert answer.state == "finished"
        assert answer.inherited_steps + answer.net_steps == run.parameters.total_steps
        assert answer.at_risk_steps == 0


def test_a_run_without_noise_is_worked_by_hand() -> None:
    """100 steps of 4 s, a save of 20 s after 50 and 100, a crash after 73: every bucket is known."""
    still: dict[str, Any] = {
        "noise": 0.0,
        "slow_share": 0.0,
        "skip_share": 0.0,
        "eval_interval": 0,
        "first_step_s": 0.0,
    }
    run = simulate(
        preset(
            "steady",
            total_steps=100,
            save_interval=50,
            save_s=20.0,
            startup_spread=0.0,
            exit_after_h=None,
            acts=(Act(step=73, what="crash", cause="gpu_hbm"),),
            **still,
        )
    )
    answer = truth(run)
    first, second = answer.attempts
    gpus = 256
    assert first.buckets["startup"] == gpus * round((35 + 45 + 30 + 6 + 12) * SECOND)
    assert first.buckets["productive"] == gpus * 50 * 4 * SECOND
    assert first.buckets["lost"] == gpus * 20 * 4 * SECOND  # the line at 70 is the last sign
    assert (first.last_step, second.resumed_from, second.last_step) == (70, 50, 100)
    assert second.buckets["startup"] == gpus * round((35 + 45 + 30 + 60 + 12) * SECOND)
    assert second.buckets["productive"] == gpus * 50 * 4 * SECOND
    assert second.buckets["lost"] == 0
    tokens = 512 * 4096
    assert answer.net_tokens == 100 * tokens
    assert answer.processed_tokens == 120 * tokens
    assert [(i.cause, i.redo_steps) for i in answer.interruptions] == [("gpu_hbm", 20)]
    assert answer.total["other"] == 0


def test_an_asynchronous_save_that_was_not_written_yet_is_lost() -> None:
    """A crash between the blocking part and the end of the write goes back to the save before."""
    made: dict[str, Any] = {
        "total_steps": 400,
        "save_interval": 50,
        "asynchronous": True,
        "async_write_s": 100.0,
    }
    acts = (Act(step=152, what="crash"),)
    run = simulate(preset("steady", noise=0.0, slow_share=0.0, exit_after_h=None, acts=acts, **made))
    assert [a.resume_step for a in run.attempts] == [0, 100]
    assert truth(run).attempts[0].net_steps == 100


def test_a_rejoined_branch_counts_again() -> None:
    """Steps that a rollback threw away come back when the run returns to their branch."""
    run = simulate(preset("rollback", seed=1))
    before, after = run.attempts[3].start_us + 120 * SECOND, run.now_us
    by_attempt = [
        {a.attempt: a.net_steps for a in truth(run, as_of_us=moment).attempts} for moment in (before, after)
    ]
    assert run.attempts[4].resume_step == 800
    assert by_attempt[0][3] == 330  # 500 -> 830, not thrown away yet: the next one has not loaded
    assert by_attempt[1][3] == 300  # 500 -> 800
    assert by_attempt[1][4] == 0  # the branch in between


def test_spares_are_idle_for_as_long_as_they_are_held() -> None:
    """GPUs beyond the world size are billed and train nothing."""
    answer = truth(simulate(preset("elastic", seed=1)))
    assert {a.gpus - a.world for a in answer.attempts} == {8}
    for attempt in answer.attempts:
        assert attempt.end_us is not None
        assert attempt.buckets["idle"] == 8 * (attempt.end_us - attempt.start_us)


def test_a_stalled_run_has_tail_and_nothing_pending() -> None:
    """Three times the usual interval after the last sign, waiting becomes loss."""
    run = simulate(preset("stalled", seed=1))
    dead = run.attempts[-1].death_us
    assert dead is not None
    soon, late = truth(run, as_of_us=dead + 30 * SECOND), truth(run)
    assert (soon.state, soon.total["pending"] > 0) == ("running", True)
    assert (late.state, late.total["pending"]) == ("stalled", 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"eval_interval": 15}, "multiple of the log interval", id="evaluation-off-the-lines"),
        pytest.param({"gpus": 100}, "multiple of tensor x pipeline", id="world-size-that-cannot-be"),
    ],
)
def test_parameters_that_cannot_be_are_refused(changes: dict[str, int], message: str) -> None:
    """A run that the rules of truth do not cover is no run."""
    with pytest.raises(ValueError, match=message):
        preset("steady", **changes)


def test_a_run_that_never_gets_on_is_refused() -> None:
    """Failures faster than the start-up end in an error, not in an endless loop."""
    with pytest.raises(ValueError, match="still not done"):
        simulate(preset("steady", mtbf_h=0.005, in_job_share=0.0, queue_s=1.0))


# -- the same again ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_is_the_same_run(name: str) -> None:
    """Text, facts and truth are a function of the parameters; another seed is another run."""
    first, again, other = (simulate(preset(name, seed=seed)) for seed in (5, 5, 6))
    assert contents(first) == contents(again) != contents(other)
    assert observe(first) == observe(again)
    assert truth(first) == truth(again)


def test_what_was_written_does_not_change_later() -> None:
    """The files at a moment are the beginning of the files later (none of them rotates here)."""
    run = simulate(preset("llama_like", seed=3))
    early = logs(run, until_us=run.parameters.start_us + 3600 * SECOND)
    late = logs(run)
    assert early
    assert all(late[name].startswith(body) for name, body in early.items())


def test_emissions_come_in_order_of_time() -> None:
    """A player needs to look at the next one only."""
    for name in NAMES:
        times = [e.at_us for e in emissions(simulate(preset(name, seed=4)))]
        assert times == sorted(times)


# -- the words -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", [style for style in SIGHTS if style != "jsonl"])
def test_every_training_line_has_the_catalogue_s_shape(style: str) -> None:
    """As many lines as the state machine logged steps, each with step, samples and a step time."""
    run = simulate(preset("ramp", seed=2, style=style))
    facts = observe(run)[0]
    for name, body in logs(run).items():
        found = list(ITERATION.finditer(PREFIX.sub(b"", body)))
        expected = [record for record in facts[name] if isinstance(record, tuple)]
        assert [int(m["step"]) for m in found] == [record.step for record in expected]
        for match, record in zip(found, expected, strict=True):
            fields = dict(
                part.strip().rsplit(b": ", 1) for part in match["rest"].split(b"|") if b": " in part
            )
            assert int(fields[b"consumed samples"]) == record.samples
            assert int(fields[b"global batch size"]) == record.batch
            unit = b"s" if style == "bloom" else b"ms"
            elapsed = float(fields[b"elapsed time per iteration (%s)" % unit])
            assert record.step_time_us is not None
            assert elapsed == pytest.approx(record.step_time_us / (1e6 if unit == b"s" else 1e3), abs=0.06)
            assert (match["ts"] is None) == (SIGHTS[style].stamp_us is None)


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        pytest.param("llama_like", rb"Watchdog caught collective operation timeout: WorkNCCL\(", id="hang"),
        pytest.param("llama_like", rb"CUDA error: uncorrectable ECC error encountered", id="memory-error"),
        pytest.param("llama_like", rb"name=\[InJob\] state=handling stage=starting", id="restart-in-job"),
        pytest.param("llama_like", rb"scheduled an async checkpoint save at iteration +\d+", id="async-save"),
        pytest.param("elastic", rb"CANCELLED AT [-\dT:]+ DUE TO PREEMPTION \*\*\*", id="preemption"),
        pytest.param("finished", rb"CANCELLED AT [-\dT:]+ DUE TO TIME LIMIT \*\*\*", id="time-limit"),
        pytest.param("rollback", rb"CANCELLED AT [-\dT:]+ \*\*\*", id="cancelled-by-hand"),
        pytest.param("steady", rb"\[exiting program after [\d.]+ minutes\] datetime: ", id="planned-exit"),
        pytest.param("steady", rb"\[after training is done\] datetime: ", id="done"),
    ],
)
def test_each_way_to_end_has_its_words(name: str, pattern: bytes) -> None:
    """What the catalogue's event lines look like is in the text of some seed."""
    texts = (b"".join(logs(simulate(preset(name, seed=seed))).values()) for seed in range(1, 30))
    assert any(re.search(pattern, text) for text in texts)


def test_the_scheduler_knows_what_it_could_know() -> None:
    """At any moment a job that ends later is running, and one not started is pending or unheard of."""
    run = simulate(preset("finished", seed=1))
    job = run.jobs[0]
    assert job.end_us is not None
    rows = {}
    for moment in (job.start_us - SECOND, job.start_us + SECOND, job.end_us):
        text = contents(run, until_us=moment)["sacct.txt"].decode()
        head, *lines = text.splitlines()
        names = head.split("|")
        found = [dict(zip(names, line.split("|"), strict=True)) for line in lines]
        rows[moment] = next(row for row in found if row["JobID"] == job.job_id)
    states = [row["State"] for row in rows.values()]
    assert states == ["PENDING", "RUNNING", job.state]
    assert [row["End"] == "Unknown" for row in rows.values()] == [True, True, False]


# -- on a disk -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rotation", ["rename", "copytruncate", "gzip"])
def test_a_played_run_ends_as_a_written_one(tmp_path: Path, rotation: str) -> None:
    """Torn writes and rotations, whatever their kind, leave the same bytes behind."""
    run = simulate(preset("finished", seed=1, chatter=2.0))
    player = Player(run, tmp_path / "played", seed=3, torn_share=0.9, rotation=rotation)  # type: ignore[arg-type]
    moment, torn = run.parameters.start_us, 0
    while not player.over:
        moment += 61 * SECOND
        player.advance(moment)
        torn += player.torn > 0
    write(run, tmp_path / "written")
    assert torn > 20
    assert _all_bytes(tmp_path / "played" / "logs") == _all_bytes(tmp_path / "written" / "logs")
    assert len(list((tmp_path / "written" / "logs").iterdir())) > 1


def test_live_play_keeps_time(tmp_path: Path) -> None:
    """A thousand simulated seconds to a second: the waits add up to the run's length over the speed."""
    run = simulate(preset("young", seed=1))
    clock = [0.0]

    def wait(seconds: float) -> None:
        clock[0] += seconds

    play(run, tmp_path, speed=1000.0, wait=wait, monotonic=lambda: clock[0])
    written = emissions(run)
    assert clock[0] == pytest.approx((written[-1].at_us - written[0].at_us) / 1e9, abs=1e-6)
    assert (tmp_path / "sacct.txt").read_bytes() == contents(run)["sacct.txt"]


def test_the_command_writes_logs_config_and_truth(tmp_path: Path) -> None:
    """One command gives a folder that the tracker can be pointed at."""
    assert main(["--preset", "young", "--seed", "7", "--out", str(tmp_path)]) == 0
    answer = json.loads((tmp_path / "truth.json").read_text())
    assert answer["net_steps"] > 0
    assert {path.name for path in tmp_path.iterdir()} == {"run.toml", "truth.json", "sacct.txt", "logs"}


def _all_bytes(folder: Path) -> bytes:
    import gzip

    def age(path: Path) -> int:
        number = re.search(r"\.log\.(\d+)", path.name)
        return -int(number[1]) if number else 0

    paths = sorted(folder.iterdir(), key=age)
    return b"".join(gzip.decompress(p.read_bytes()) if p.suffix == ".gz" else p.read_bytes() for p in paths)


# -- the bundled run -----------------------------------------------------------------------------------


def test_the_bundled_run_is_what_the_simulator_writes(bundled: Run) -> None:
    """`python -m tests.simulator.demo` changes nothing: the package's data are made, not edited."""
    made = demo.files(bundled)
    found = {
        str(path.relative_to(demo.FOLDER)): path.read_bytes()
        for path in demo.FOLDER.rglob("*")
        if path.is_file() and path.suffix in {".log", ".toml", ".txt"}
    }
    assert sorted(found) == sorted(made)
    assert all(found[name] == made[name] for name in made), "run `python -m tests.simulator.demo`"


def test_the_bundled_run_shows_what_a_run_can_meet(bundled: Run) -> None:
    """It runs, was rolled back, restarted inside a job, stopped as planned; and it is small."""
    answer = truth(bundled)
    assert answer.state == "running"
    kinds = {(i.kind, i.cause) for i in answer.interruptions}
    assert {kind for kind, _ in kinds} >= {"failed", "operator", "time_limit"}
    assert {cause for _, cause in kinds} >= {"gpu", "gpu_hbm", "network", "software", "node"}
    assert any(attempt.in_job for attempt in bundled.attempts)
    assert all(answer.total[name] > 0 for name in BUCKETS if name != "other")
    assert sum(len(body) for body in demo.files(bundled).values()) < 500_000


def test_the_bundled_run_says_that_it_is_simulated(bundled: Run) -> None:
    """Whoever finds the files knows that no GPU ran for them."""
    made = demo.files(bundled)
    assert b"SIMULATED" in made["run.toml"].splitlines()[0]
    assert b"SIMULATED" in made["README.txt"].splitlines()[0]
    assert b"simulated" in made["run.toml"].split(b"[model]")[0].split(b"name = ")[1]


def test_a_hundred_thousand_steps_can_be_asked_for() -> None:
    """A long run is simulated step by step, and its truth is exact at its end."""
    parameters = replace(preset("steady"), total_steps=100_000, exit_after_h=20.0, log_interval=100)
    run = simulate(replace(parameters, eval_interval=5000))
    assert truth(run).net_steps == 100_000

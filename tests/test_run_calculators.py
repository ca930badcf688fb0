"""The calculators' commands on a run's store: a small run, and two published ones told as facts."""

from __future__ import annotations

import csv
import datetime as dt
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.test_glm_real import NOMINAL_STEP_S, _records, _time
from tracker.cli import root

pytestmark = pytest.mark.slow
"""Whole processes and long histories: not what one runs before each commit."""

AS_OF = ("--as-of", "2026-01-05T12:00:00Z")
CONFIG = """
[run]
name = "pilot"
[model]
active_params = 13e9
sequence_length = 8192
global_batch_size = 1024
[hardware]
gpu = "h100-sxm"
[[source]]
collector = "jsonl"
path = "facts.jsonl"
"""
PLAN = """
[plan]
tokens = 4e12
start = 2026-01-05T08:00:00Z
currency = "EUR"
facility_overhead = 1.2
[plan.sources]
mfu = "pilot of December"
[plan.failures]
per_day = 8
restart_min = 10
checkpoint_interval_min = 30
checkpoint_stall_min = 0.5
[plan.conversion]
from = "a100-sxm"
ratio = 3.17
[[plan.price]]
gpu_hour_price = 2.0
[[plan.price]]
gpu_hour_price = 3.0
from = 2026-01-05T10:00:00Z
[reservation]
end = 2026-01-08T00:00:00Z
"""


def at(minute: float) -> str:
    return (dt.datetime(2026, 1, 5, 8, tzinfo=dt.UTC) + dt.timedelta(minutes=minute)).isoformat()


def pilot() -> Iterator[dict[str, Any]]:
    """Two attempts of 1,024 GPUs: 120 steps, a save after 60 and a failure; 60 steps again, and on."""
    yield {"kind": "attempt", "start": at(0), "gpus": 1024, "resumed_from": 0, "precision": "bf16"}
    yield {"kind": "event", "at": at(10), "event": "train_start"}
    for step in range(10, 121, 10):
        if step == 70:
            yield {"kind": "event", "at": at(70), "event": "checkpoint_start", "step": 60}
            yield {"kind": "event", "at": at(71), "event": "checkpoint_end", "step": 60}
        yield {"kind": "reading", "at": at(10 + step + (1 if step > 60 else 0)), "step": step}
    yield {"kind": "end", "at": at(140), "end_kind": "failed", "cause": "gpu_hbm"}
    yield {"kind": "attempt", "start": at(150), "gpus": 1024, "resumed_from": 60}
    yield {"kind": "event", "at": at(160), "event": "train_start"}
    for step in range(70, 131, 10):
        yield {"kind": "reading", "at": at(100 + step), "step": step}


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Call the command line in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRACKER_CONFIG", raising=False)
    runner = CliRunner()

    def run(*words: str) -> Result:
        done = runner.invoke(root, words)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done

    return run


Told = Callable[..., Result]


def tell(call: Told, folder: Path, records: Any, config: str = CONFIG + PLAN) -> None:
    """Write a run's facts and its config, and read them in."""
    (folder / "pilot.toml").write_text(config)
    (folder / "facts.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    assert call("ingest", "--config", "pilot.toml", "--final").exit_code == 0


@pytest.fixture
def told(call: Told, tmp_path: Path) -> Told:
    """The pilot run, ingested, beside a plan."""
    tell(call, tmp_path, pilot())
    return call


def document(call: Told, *words: str) -> dict[str, Any]:
    done = call(*words, "--json")
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.stdout))


# -- plan ---------------------------------------------------------------------------------------------


def test_the_plan_of_a_config_is_checked_with_all_it_says(told: Told) -> None:
    """Reservation, failures, conversion, sources; each assumption without a source is listed."""
    got = document(told, "plan", "--config", "pilot.toml", *AS_OF)

    assert [w["code"] for w in got["warnings"]] == [
        "goodput_unreachable", "spec_sheet_conversion", "after_reservation",
    ]  # fmt: skip
    assert got["assumed"] == ["goodput", "attn_overhead", "later_stages", "rnd_multiplier"]
    assert got["currency"] == "EUR"
    assert got["energy_mwh"] == pytest.approx(got["final_gpu_hours"] * 700 * 1.2 / 1e6)
    assert [c["kind"] for c in got["chain"]] == ["plan", "run"]


def test_the_run_is_set_against_its_plan_in_parts_that_sum(told: Told) -> None:
    """Exactly, and each part names its biggest cause."""
    got = document(told, "plan", "--config", "pilot.toml", *AS_OF)["variance"]["to_date"]

    assert sum(p["gpu_us"] for p in got["parts"]) == got["gpu_us"]
    assert sum(p["wall_us"] for p in got["parts"]) == got["wall_us"]
    causes = {p["name"]: p["cause"] for p in got["parts"]}
    assert causes["redo"] == "gpu_hbm: 100% of redone work"
    assert causes["mfu"].startswith("MFU 0.")
    page = told("plan", "--config", "pilot.toml", *AS_OF).stdout
    assert "Against the plan, for the tokens so far" in page
    assert "gpu_hbm: 100% of redone work" in page


def test_flags_beside_a_config_ask_what_if(told: Told) -> None:
    """They replace its values; a source that stood beside one goes with it."""
    base = document(told, "plan", "--config", "pilot.toml", *AS_OF)
    got = document(told, "plan", "--config", "pilot.toml", "--mfu", "0.4", "--gpus", "2048", *AS_OF)

    assert got["final_gpu_hours"] == pytest.approx(base["final_gpu_hours"] * 0.35 / 0.4)
    assert got["gpus"] == 2048
    assert "mfu" in got["assumed"]
    cut = document(told, "plan", "--config", "pilot.toml", "--peak-tflops", "1979", *AS_OF)
    assert cut["warnings"][0]["code"] == "sparse_peak"


def test_a_plan_from_a_run_says_where_each_value_is_from(told: Told) -> None:
    """Measured, config, flag, default: and the hours per 1e12 tokens are the run's."""
    realised = document(told, "status", "--config", "pilot.toml", *AS_OF)["gpu_hours_per_trillion_tokens"]
    words = ("plan", "--from-run", "pilot.toml", "--gpus", "1024", "--later-stages", "0", *AS_OF)
    got = document(told, *words)

    assert got["gpu_hours_per_trillion_tokens"] == pytest.approx(realised["realised"])
    where = {v["name"]: v["where"] for v in got["measured"]["values"]}
    assert where == {
        "active_params": "config", "tokens": "config", "peak": "config", "gpus": "flag",
        "sequence_length": "config", "attention": "default", "mfu": "measured", "goodput": "measured",
        "later_stages": "flag", "rnd_multiplier": "default",
    }  # fmt: skip
    assert got["measured"]["run"] == "pilot"
    page = told(*words).stdout
    assert "Taken from pilot" in page
    assert "measured on pilot, " in page


def test_another_peak_does_not_move_the_hours_of_a_measured_run(told: Told) -> None:
    """Its MFU is restated against it: a sparse peak halves the MFU printed, and costs no hour."""
    words = ("plan", "--from-run", "pilot.toml", *AS_OF)
    got, sparse = document(told, *words), document(told, *words, "--peak-tflops", "1979")
    warning = next(w for w in sparse["warnings"] if w["code"] == "sparse_peak")

    assert sparse["final_gpu_hours"] == pytest.approx(got["final_gpu_hours"])
    assert warning["factor"] == 1.0
    assert "the hours stand" in warning["message"]


def test_a_config_without_a_plan_can_still_be_planned_from_its_run(call: Told, tmp_path: Path) -> None:
    """The pilot needs no [plan]; the target comes from a flag."""
    tell(call, tmp_path, pilot(), CONFIG)

    assert document(call, "plan", "--from-run", "pilot.toml", "--tokens", "4T", *AS_OF)["final_gpu_hours"] > 0
    lacking = call("plan", "--from-run", "pilot.toml", *AS_OF)
    assert (lacking.exit_code, "missing --tokens" in lacking.output) == (2, True)
    assert "pilot.toml has no [plan]" in " ".join(lacking.output.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param("plan --config pilot.toml --from-run pilot.toml", "not both", id="config-and-run"),
        pytest.param("plan --tokens 4T --as-of 2026-01-05", "--as-of needs --config", id="a-moment-alone"),
        pytest.param("plan --config none.toml", "does not exist", id="no-such-config"),
        pytest.param("plan --config pilot.toml --mfu 35", "write 0.35 for 35 %", id="per-cent"),
        pytest.param("plan --from-run pilot.toml --as-of 2025-01-01", "no attempt seen yet", id="before-it"),
        pytest.param("goodput --nominal-step-s 5", "--nominal-step-s needs --definitions", id="nominal"),
        pytest.param("goodput --definitions --nominal-step-s 0 --config pilot.toml", "seconds above 0",
                     id="no-step"),
        pytest.param("goodput --definitions", "no config: give --config", id="definitions-of-nothing"),
        pytest.param("mtbf --config pilot.toml --days 3", "--days: a run brings its own", id="flags-and-run"),
        pytest.param("references points --chain", "not `points`", id="two-sections"),
        pytest.param("references --as-of 2026-01-05", "--as-of needs --config", id="references-of-when"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_told(words: str, said: str, told: Told) -> None:
    """Status 2 and a sentence."""
    done = told(*words.split())

    assert done.exit_code == 2, done.output
    assert said in " ".join(done.output.split())


# -- goodput, mtbf, references ------------------------------------------------------------------------


def test_advice_comes_from_the_runs_own_figures(told: Told) -> None:
    """One save of a minute in 190 minutes of steps, one failure; money in the plan's currency."""
    got = document(told, "goodput", "--config", "pilot.toml", *AS_OF)

    assert got["checkpoint_stall_min"] == pytest.approx(1.0)
    assert got["checkpoint_interval_min"] == pytest.approx(190.0)
    assert got["restart_min"] == pytest.approx(9 + 10)
    assert got["best_checkpoint_interval_min"] == pytest.approx(got["young_min"], rel=1e-3)
    assert got["currency"] == "EUR"
    assert got["gpu_hours_are"] == "to go"
    assert got["gain_ratio_ci90"][0] <= got["gain_ratio"] <= got["gain_ratio_ci90"][1]
    assert got["money_saved"] > 0
    assert got["measured_goodput_ratio"] == pytest.approx(130 / (140 + 80))
    page = told("goodput", "--config", "pilot.toml", *AS_OF).stdout
    assert "money saved, EUR" in page


def test_a_figure_given_replaces_the_runs(told: Told) -> None:
    """What if the plan's failures came, or the interval were an hour?"""
    words = (
        "goodput",
        "--config",
        "pilot.toml",
        "--failures-per-day",
        "8",
        "--checkpoint-interval-min",
        "60",
    )
    got = document(told, *words, *AS_OF)

    assert (got["failures_per_day"], got["checkpoint_interval_min"], got["mtbf_min_ci90"]) == (8, 60, None)


def test_before_a_failure_only_a_bound_is_told(told: Told) -> None:
    """After 130 minutes without one: no gain, no hours, no money, no "never"; at least sqrt(2 s M)."""
    early = ("--as-of", "2026-01-05T10:10:00Z")
    got = document(told, "goodput", "--config", "pilot.toml", *early)

    for key in ("goodput_ratio", "best_checkpoint_interval_min", "best_goodput_ratio", "gain_ratio",
                "gain_ratio_ci90", "gpu_hours_saved", "money_saved", "mtbf_min"):  # fmt: skip
        assert got[key] is None, key
    low, high = got["best_checkpoint_interval_min_ci90"]
    assert low == pytest.approx((2 * 1.0 * 130 / 2.9957) ** 0.5, rel=1e-3)
    assert high is None
    page = told("goodput", "--config", "pilot.toml", *early).stdout
    assert "never" not in page
    assert "only a bound" in page


def test_an_interval_given_beyond_the_mtbf_is_refused_with_a_config_too(told: Told) -> None:
    """As from flags; the run's own would be advised on."""
    done = told("goodput", "--config", "pilot.toml", "--checkpoint-interval-min", "2000", *AS_OF)

    assert done.exit_code == 2
    assert "at most the mean time between failures" in " ".join(done.output.split())


def test_what_if_flags_leave_the_runs_own_row_alone(told: Told) -> None:
    """Another device, power or price in the plan changes nothing that the run has drawn or paid."""
    words = ("plan", "--config", "pilot.toml", *AS_OF)
    was = document(told, *words)["chain"][1]
    for flags in (("--gpu", "b200"), ("--gpu-power-w", "1"), ("--gpu-hour-price", "9"),
                  ("--facility-overhead", "2")):  # fmt: skip
        assert document(told, *words, *flags)["chain"][1] == was, flags


def test_without_saves_there_is_no_advice_and_a_reason(call: Told, tmp_path: Path) -> None:
    """Nulls, and status 0."""
    tell(call, tmp_path, [r for r in pilot() if "checkpoint" not in r.get("event", "")])
    got = document(call, "goodput", "--config", "pilot.toml", *AS_OF)

    assert got["best_checkpoint_interval_min"] is None
    assert got["measured_goodput_ratio"] is not None
    assert "no save is told by its log" in call("goodput", "--config", "pilot.toml", *AS_OF).stdout


def test_a_run_that_has_not_begun_is_nulls(call: Told, tmp_path: Path) -> None:
    """Before the first line, in every command: status 0."""
    tell(call, tmp_path, [])

    assert document(call, "goodput", "--config", "pilot.toml")["goodput_ratio"] is None
    assert document(call, "mtbf", "--config", "pilot.toml")["device_hours"] is None
    assert document(call, "plan", "--config", "pilot.toml")["variance"] is None
    assert document(call, "goodput", "--definitions", "--config", "pilot.toml")["attempts"] == []
    for words in ("goodput", "goodput --definitions", "mtbf", "plan", "references chain", "ledger --by-day"):
        assert call(*words.split(), "--config", "pilot.toml").exit_code == 0, words


def test_mtbf_of_a_run_with_projection_and_causes(told: Told) -> None:
    """The figure of the status, beside the published table."""
    status = document(told, "status", "--config", "pilot.toml", *AS_OF)["mtbf"]
    got = document(told, "mtbf", "--config", "pilot.toml", "--project-gpus", "4096", *AS_OF)

    assert got["device_hours"] == status["device_hours"]
    assert got["device_hours_ci90"] == status["device_hours_ci90"]
    assert got["projections"][0]["hours"] == pytest.approx(got["job_hours"] / 4)
    assert [r["cause"] for r in got["causes"]["rows"] if r["count"]] == ["gpu_hbm"]
    assert got["gaps"] is None
    page = told("mtbf", "--config", "pilot.toml", *AS_OF).stdout
    assert "MTBF of pilot: 1 unexpected interruption in" in page
    assert "Root causes of pilot beside the published table" in page


def test_plan_run_and_references_stand_in_one_chain(told: Told) -> None:
    """By the section and by its flag; the rows say how they differ from the run."""
    words = ("references", "--config", "pilot.toml", *AS_OF)
    page = told(*words[:1], "chain", *words[1:]).stdout
    got = document(told, *words)

    assert page == told(*words, "--chain").stdout
    rows = [line.split("  ")[0] for line in page.splitlines()]
    assert rows.index("plan") < rows.index("pilot") < rows.index("Llama 3.1 405B")
    assert [c["kind"] for c in got["chain"][:3]] == ["plan", "run", "reference"]
    assert got["operating_point"]["global_batch"] == 1024 * 8192
    ultra = next(p for p in got["operating_points"] if p["name"] == "Ultra-128E")
    assert "gpu: h100-sxm here, b300 there" in ultra["differs"]
    assert "Root causes of pilot" in told(words[0], "causes", *words[1:]).stdout


# -- money in status, ledger, interruptions -----------------------------------------------------------


def test_costs_by_attempt_day_and_stop_sum(told: Told) -> None:
    """2.0 until ten o'clock, 3.0 from then on; 120 minutes of the first attempt are cheap."""
    words = ("--config", "pilot.toml", *AS_OF)
    ledger, status = document(told, "ledger", *words), document(told, "status", *words)
    stops = json.loads(told("interruptions", *words, "--json").stdout)

    first = 1024 * (120 * 2.0 + 20 * 3.0) / 60
    assert ledger["attempts"][0]["cost"] == pytest.approx(first)
    assert ledger["cost"]["total"] == pytest.approx(sum(a["cost"] for a in ledger["attempts"]))
    assert ledger["cost"]["total"] == pytest.approx(sum(d["cost"] for d in ledger["days"]))
    assert ledger["cost"]["total"] == status["cost"]["so_far"]
    assert sum(d["gpu_hours"] for d in ledger["days"]) == pytest.approx(ledger["total"]["allocated"])
    assert status["cost"]["currency"] == "EUR"
    assert status["energy"]["power_from"] == "TDP"
    assert stops[0]["cost"] == pytest.approx(1024 * (9 + 60 + 10) / 60 * 3.0)
    assert stops[0]["gpu_hours"] == pytest.approx(1024 * 79 / 60)


def test_people_see_cost_and_plan_in_two_lines(told: Told) -> None:
    """Money, energy, ahead or behind, and the biggest part of it."""
    page = told("status", "--config", "pilot.toml", *AS_OF).stdout

    assert "EUR so far" in page
    assert "MWh (at TDP)" in page
    assert "than planned for these tokens" in page
    by_day = told("ledger", "--by-day", "--config", "pilot.toml", *AS_OF).stdout
    assert "2026-01-05" in by_day.split("By day (UTC)")[1]


# -- published runs told as facts ---------------------------------------------------------------------


def test_glm_130b_by_the_nominal_step(call: Told, tmp_path: Path, shared_data: Path) -> None:
    """Each interval is the table's within 0.002; 2.349 stands with its reason, ours never exceeds 1."""
    with (shared_data / "glm130b" / "attempts.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    tell(call, tmp_path, _records(rows), CONFIG.replace("13e9", "130e9").replace("8192", "2048"))
    words = ("goodput", "--definitions", "--config", "pilot.toml", "--nominal-step-s", str(NOMINAL_STEP_S),
             "--as-of", _time(rows[-1]["to"]).isoformat())  # fmt: skip
    got = document(call, *words)

    for share, row in zip(got["attempts"], rows, strict=True):
        assert share["nominal_ratio"] == pytest.approx(float(row["goodput"]), abs=0.002)
        assert 0 <= share["ours_ratio"] <= 1
        assert bool(share["reason"]) == (share["nominal_ratio"] > 1)
    assert got["attempts"][0]["reason"].startswith("batch warm-up: faster than the nominal step")
    whole = next(d for d in got["definitions"] if d["name"] == "nominal_step_time")
    assert whole["ratio"] == pytest.approx(0.8999, abs=0.002)
    assert "2.349" in call(*words).stdout


def test_opt_175b_took_33_days_of_work_in_56(call: Told, tmp_path: Path, shared_data: Path) -> None:
    """0.589 of wall clock, by net steps at the ideal step time."""
    truth = json.loads((shared_data / "opt175b" / "truth.json").read_text())
    start, steps = dt.datetime(2021, 11, 11, tzinfo=dt.UTC), 140_000
    end = start + dt.timedelta(days=truth["wall_days_12xx"])
    records = [
        {"kind": "attempt", "start": start.isoformat(), "gpus": 1024, "resumed_from": 0},
        {"kind": "reading", "at": end.isoformat(), "step": steps},
    ]
    tell(call, tmp_path, records, CONFIG)
    nominal = truth["ideal_days"] * 86_400 / steps
    got = document(
        call, "goodput", "--definitions", "--config", "pilot.toml", "--nominal-step-s", str(nominal),
        "--as-of", end.isoformat(),
    )  # fmt: skip

    whole = next(d for d in got["definitions"] if d["name"] == "nominal_step_time")
    assert whole["ratio"] == pytest.approx(truth["goodput_vs_ideal"], abs=1e-4)
    assert round(whole["ratio"], 3) == 0.589

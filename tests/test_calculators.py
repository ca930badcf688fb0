"""The calculators' commands: contract keys, printed figures, and bad values told without a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from tracker.cli import COMMANDS, root
from tracker.cli.calculators import backsolve, convert, goodput, mtbf, plan, references

NAMES = ("plan", "references", "backsolve", "convert", "goodput", "mtbf")

PLAN = (
    "--active-params 13e9 --tokens 4e12 --peak-tflops 989 --mfu 0.35 --goodput 0.9 --attn-overhead 0.05 "
    "--later-stages 0.08 --rnd-multiplier 1.5 --gpus 1024"
)
BACKSOLVE = "--active-params 405e9 --tokens 15.6e12 --gpu-hours 30.84e6 --peak-tflops 989"
GOODPUT = "--failures-per-day 8 --restart-min 10 --checkpoint-interval-min 30 --checkpoint-stall-min 0.5"
MTBF = "--days 54 --gpus 16384 --interruptions 419 --project-gpus 1024,131072"


def run(command: click.Command, line: str) -> Result:
    """Run a command as a shell would, with simple words."""
    return CliRunner().invoke(command, line.split())


def document(command: click.Command, line: str) -> dict[str, Any]:
    """Its JSON; nothing else may stand on stdout."""
    result = run(command, f"{line} --json")
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout))


def test_the_worked_plan() -> None:
    """315,470 and 473,205 H100-hours, 12.84 days, no warning."""
    got = document(plan, PLAN)

    assert got["schema"] == 1
    assert got["model_flop"] == pytest.approx(3.276e23)
    assert got["ideal_gpu_hours"] == pytest.approx(got["step_gpu_hours"] * 0.35)
    assert round(got["final_gpu_hours"]) == 315470
    assert round(got["programme_gpu_hours"]) == 473205
    assert round(got["days"], 2) == 12.84
    assert got["warnings"] == []
    assert got["assumed"] == ["mfu", "goodput", "attn_overhead", "later_stages", "rnd_multiplier"]


def test_warnings_have_code_and_message_and_leave_the_status_alone() -> None:
    """A sparse peak is a warning, not a failure."""
    got = document(plan, PLAN.replace("989", "1979"))

    assert [w["code"] for w in got["warnings"]] == ["sparse_peak"]
    assert "Use 989" in got["warnings"][0]["message"]


@pytest.mark.parametrize(
    ("peak", "said"),
    [
        pytest.param("989", "989 TFLOP/s dense bf16, given by the user", id="dense"),
        pytest.param("989 --precision fp8", "989 TFLOP/s, a dense bf16 peak beside fp8 training", id="wide"),
        pytest.param("1979", "1,979 TFLOP/s bf16 with sparsity", id="sparse"),
        pytest.param("1979 --precision fp8", "1,979 TFLOP/s dense fp8", id="dense-in-fp8"),
    ],
)
def test_the_page_says_what_a_given_peak_is(peak: str, said: str) -> None:
    """No table figure is called dense at a precision where it is not."""
    assert said in run(plan, PLAN.replace("989", peak)).stdout


def test_a_peak_given_beside_a_device_keeps_the_devices_power() -> None:
    """The peak is the user's, 700 W is the table's; the check still knows the device."""
    got = document(plan, f"{PLAN.replace('989', '1979')} --gpu h100-sxm")

    assert (got["peak_tflop_per_s"], got["power_w"]) == (1979, 700)
    assert [w["code"] for w in got["warnings"]] == ["sparse_peak"]


def test_a_plan_with_everything() -> None:
    """Stages, dates, money, energy, carbon, failures, sources, a conversion."""
    got = CliRunner().invoke(
        plan,
        [
            "--active-params", "13B", "--tokens", "4T", "--gpu", "NVIDIA H100 80GB HBM3", "--gpus", "1024",
            "--layers", "40", "--hidden-size", "5120", "--sequence-length", "8192",
            "--stage", "pre-training=3.2T", "--stage", "extension=0.8T@131072x2048",
            "--start", "2026-01-05T08:00:00Z", "--reservation-end", "2026-01-10", "--deadline", "2026-01-12",
            "--gpu-hour-price", "2", "--budget", "1,000", "--facility-overhead", "1.3",
            "--carbon-kg-per-mwh", "400", "--failures-per-day", "8", "--restart-min", "10",
            "--checkpoint-interval-min", "30", "--checkpoint-stall-min", "0.5", "--converted-from", "a100",
            "--conversion-ratio", "3.17", "--source", "mfu=measured on 64 GPUs", "--mfu", "0.51",
            "--chain", "--json",
        ],
    )  # fmt: skip
    assert got.exit_code == 0, got.output
    doc = json.loads(got.stdout)

    assert [s["name"] for s in doc["stages"]] == ["pre-training", "extension"]
    assert doc["flop_method"] == "6N+attention_full", "as PaLM counts, unless --causal is given"
    assert doc["carbon_t"] == pytest.approx(doc["energy_mwh"] * 0.4)
    assert doc["energy_mwh"] == pytest.approx(doc["final_gpu_hours"] * 700 * 1.3 / 1e6)
    assert doc["finish_at"].endswith("Z")
    assert [w["code"] for w in doc["warnings"]] == [
        "goodput_unreachable", "spec_sheet_conversion", "after_reservation", "after_deadline", "over_budget",
    ]  # fmt: skip
    assert doc["chain"][0]["kind"] == "plan"
    assert len(doc["chain"]) > 20


def test_the_chain_puts_plan_and_published_runs_in_one_table() -> None:
    """The 405B's billed hours stand under the plan's."""
    out = run(plan, f"{PLAN} --chain").stdout

    assert "rows are not ranked" in out
    assert "30,840,000" in out
    assert "292,102" in out


def test_back_solving_from_flags() -> None:
    """341 TFLOP/s, 34.5 %."""
    got = document(backsolve, BACKSOLVE)

    assert round(got["delivered_tflop_per_s"]) == 341
    assert round(got["mfu_ratio"], 3) == 0.345
    assert round(got["gpu_hours_per_trillion_tokens"]) == 1_976_923


@pytest.mark.parametrize(
    ("line", "codes"),
    [
        pytest.param(BACKSOLVE, [], id="published"),
        pytest.param(BACKSOLVE.replace("30.84e6", "1.69e6"), ["above_peak"], id="mfu-of-628-per-cent"),
        pytest.param(BACKSOLVE.replace("989", "1979"), ["sparse_peak"], id="sparse"),
        pytest.param(BACKSOLVE.replace("--peak-tflops 989", "").replace("30.84e6", "1e3"), ["above_peak"],
                     id="without-a-peak"),
        pytest.param(f"{BACKSOLVE.replace('989', '1979')} --precision fp8", [], id="dense-in-fp8"),
    ],
)  # fmt: skip
def test_what_cannot_be_true_is_said_beside_a_back_solved_rate(line: str, codes: list[str]) -> None:
    """In the document and on the page; the status stays 0."""
    assert [w["code"] for w in document(backsolve, line)["warnings"]] == codes
    page = run(backsolve, line).stdout
    assert all(f"- {code}: " in page for code in codes)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        pytest.param("--deadline 2026-01-12", "the deadline, for want of start", id="deadline"),
        pytest.param(
            "--reservation-end 2026-01-10", "the reservation's end, for want of start", id="reservation"
        ),
        pytest.param("--budget 1e6", "the budget, for want of gpu_hour_price", id="budget"),
    ],
)
def test_a_limit_that_cannot_be_checked_is_named(flags: str, said: str) -> None:
    """With what is missing; not passed over."""
    assert document(plan, f"{PLAN} {flags}")["not_checked"] == [said]
    assert f"Not checked: {said}." in " ".join(run(plan, f"{PLAN} {flags}").stdout.split())
    assert document(plan, PLAN)["not_checked"] == []


def test_no_failure_seen_is_a_bound_from_flags_too() -> None:
    """Seen zero times in ten days: no gain. Zero given as a rate: never."""
    tail = "--restart-min 10 --checkpoint-interval-min 30 --checkpoint-stall-min 0.5 --gpu-hours 1e6"
    seen = document(goodput, f"--interruptions 0 --days 10 {tail}")
    stated = document(goodput, f"--failures-per-day 0 {tail}")

    assert [seen[k] for k in ("goodput_ratio", "best_goodput_ratio", "gain_ratio", "gpu_hours_saved")] == [
        None
    ] * 4
    assert seen["best_checkpoint_interval_min_ci90"][1] is None
    assert "never" not in run(goodput, f"--interruptions 0 --days 10 {tail}").stdout
    assert (stated["goodput_ratio"], stated["best_goodput_ratio"]) == (pytest.approx(1 - 0.5 / 30), 1.0)
    assert "without failures, never" in run(goodput, f"--failures-per-day 0 {tail}").stdout


def test_a_best_goodput_belongs_to_its_gain() -> None:
    """Where the simple model says 0, best, current and gain are all the exponential model's."""
    got = document(goodput, "--failures-per-day 140 --restart-min 10 --checkpoint-interval-min 8 "
                            "--checkpoint-stall-min 1")  # fmt: skip

    assert got["model"] == "exponential"
    assert 0 < got["goodput_ratio"] <= got["best_goodput_ratio"]
    assert got["gain_ratio"] == pytest.approx(got["best_goodput_ratio"] / got["goodput_ratio"] - 1)


@pytest.mark.parametrize(
    ("written", "number"),
    [("1,024", 1024), ("1_024", 1024), ("1e3", 1000), ("16,384", 16384)],
)
def test_whole_numbers_may_be_written_in_groups(written: str, number: int) -> None:
    """As the page promises, for GPUs too."""
    assert document(plan, PLAN.replace("1024", written))["gpus"] == number
    assert document(plan, PLAN.replace("989", "1,979"))["peak_tflop_per_s"] == 1979
    assert document(plan, PLAN.replace("4e12", "4,000,000,000,000"))["model_flop"] == pytest.approx(3.276e23)


def test_gaps_no_more_bunched_than_chance_widen_nothing() -> None:
    """A variation of 0.5 leaves the interval; the page does not say that it was widened."""
    page = run(mtbf, f"{MTBF} --gap-cv 0.5").stdout

    assert "is not widened" in page
    assert "is widened" not in page


def test_back_solving_without_flags_prints_the_published_table() -> None:
    """341, 250, 137, 343 and 136, with their caveats."""
    runs = {r["key"]: r for r in document(backsolve, "")["runs"]}
    keys = ("llama-3.1-405b", "llama-3.1-70b", "llama-3.1-8b", "deepseek-v3", "llama-2-70b")

    assert [round(runs[key]["delivered_tflop_per_s"]) for key in keys] == [341, 250, 137, 343, 136]
    assert round(runs["llama-2-70b"]["mfu_ratio"], 3) == 0.435
    assert runs["llama-3.1-405b"]["energy_mwh"] == pytest.approx(21_588)
    assert all(r["mark"] and r["caveat"] and r["source"]["title"] for r in runs.values())
    out = run(backsolve, "").stdout
    assert "no ranking" in out
    assert "H800-hours are not H100-hours" in " ".join(out.split())


def test_goodput_from_flags() -> None:
    """0.844, and what the best interval would give."""
    got = document(goodput, GOODPUT)

    assert round(got["goodput_ratio"], 3) == 0.844
    assert got["best_checkpoint_interval_min"] == pytest.approx(13.416, abs=1e-3)
    assert round(got["best_goodput_ratio"], 3) == 0.870
    assert got["losses"]["restart_ratio"] == pytest.approx(80 / 1440)


def test_goodput_from_failures_seen_brings_the_uncertainty() -> None:
    """419 in 54 days: the best interval within a few per cent."""
    got = document(goodput, "--interruptions 419 --days 54 --restart-min 10 --checkpoint-stall-min 0.5")
    low, high = got["best_checkpoint_interval_min_ci90"]

    assert got["goodput_ratio"] is None, "no interval was given"
    assert low < got["best_checkpoint_interval_min"] < high
    assert high / low == pytest.approx(1.085, abs=0.01)


def test_mtbf_from_flags() -> None:
    """50,677 h per device, 3.09 h for the job; 49.5 h and 62 a day elsewhere."""
    got = document(mtbf, MTBF)
    low, high = got["device_hours_ci90"]

    assert round(got["device_hours"]) == 50677
    assert low < got["device_hours"] < high
    assert round(got["job_hours"], 2) == 3.09
    assert [(p["gpus"], round(p["hours"], 3)) for p in got["projections"]] == [
        (1024, 49.489),
        (131072, 0.387),
    ]
    assert round(got["projections"][1]["per_day"]) == 62
    assert got["warnings"][0]["code"] == "projected"


def test_mtbf_of_no_failure_is_a_bound() -> None:
    """Null, and a lower end."""
    got = document(mtbf, "--days 10 --gpus 64 --interruptions 0 --project-gpus 1024")

    assert got["device_hours"] is None
    assert got["device_hours_ci90"][0] == pytest.approx(10 * 24 * 64 / 2.9957, rel=1e-4)
    assert got["device_hours_ci90"][1] is None
    assert got["projections"][0]["hours"] is None
    assert "at least" in run(mtbf, "--days 10 --gpus 64 --interruptions 0").stdout


def test_bunched_failures_widen_the_interval() -> None:
    """A variation of 1.76 makes it 1.8 times as wide."""
    plain, wide = document(mtbf, MTBF), document(mtbf, f"{MTBF} --gap-cv 1.76")

    def width(got: dict[str, Any]) -> float:
        low, high = got["device_hours_ci90"]
        return float(high - low)

    assert width(wide) / width(plain) == pytest.approx(1.76, abs=0.05)


def test_root_causes_stand_beside_the_published_ones() -> None:
    """With the share that needed a person."""
    line = "--days 30 --gpus 512 --causes gpu_hbm=3,network=1 --manual 1"
    got = document(mtbf, line)
    out = " ".join(run(mtbf, line).stdout.split())

    assert got["causes"]["gpu_share"] == 0.75
    assert got["causes"]["published"]["gpu_share_by_count"] == pytest.approx(268 / 419)
    assert "Needed a person: 1 of 4; published 3 of 419." in out


def test_conversion_from_flags() -> None:
    """By rates, and by references with the spec-sheet ratio beside."""
    by_rate = document(convert, "--gpu-hours 1e6 --from-tflops 136 --to-tflops 341")
    by_name = document(convert, "--gpu-hours 1e6 --from a100 --to h100-sxm")

    assert round(by_rate["ratio"], 2) == 2.51
    assert round(by_rate["gpu_hours"]) == 398827
    assert by_rate["spec_sheet_ratio"] is None
    assert round(by_name["ratio"], 1) == 2.5
    assert round(by_name["spec_sheet_ratio"], 1) == 3.2
    assert by_name["energy_mwh"]["from"] == pytest.approx(400)


def test_a_conversion_by_peaks_is_warned_of() -> None:
    """312 and 989 are spec sheets."""
    got = document(convert, "--gpu-hours 1e6 --from-tflops 312 --to-tflops 989")

    assert [w["code"] for w in got["warnings"]] == ["spec_sheet_conversion"]


def test_references_hold_every_section() -> None:
    """With marks, sources, caveats; the two disagreeing shares both."""
    got = document(references, "")

    assert set(got) >= {
        "runs", "operating_points", "failures", "root_causes", "timings", "reconciliation", "flop_methods",
        "hardware", "marks",
    }  # fmt: skip
    assert len(got["operating_points"]) >= 8
    assert got["root_causes"]["stated_gpu_share"] == 0.587
    assert round(got["root_causes"]["gpu_share_by_count"], 3) == 0.640
    assert round(got["reconciliation"]["billed_gpu_hours"] / 1e6, 1) == 29.3


def test_references_say_what_differs_from_mine() -> None:
    """GPU, precision, sequence: no silent ranking."""
    got = document(references, "--gpu h100-sxm --precision bf16 --sequence-length 8192 --routing learned")
    tiny = next(p for p in got["operating_points"] if p["name"] == "Tiny-64E")

    assert tiny["differs"] == [
        "gpu: h100-sxm here, b300 there",
        "routing: learned here, random, top-4 + 1 shared expert there",
    ]
    assert "Differs: gpu: h100-sxm here" in " ".join(run(references, "points --gpu h100-sxm").stdout.split())


@pytest.mark.parametrize(
    "section", ["runs", "points", "failures", "causes", "timings", "chain", "flop", "hardware", ""]
)
def test_every_section_prints_for_people(section: str) -> None:
    """Aligned text, ending with what the marks mean."""
    result = run(references, section)

    assert result.exit_code == 0, result.output
    assert "read through a third party's extract" in result.stdout


@pytest.mark.parametrize("name", NAMES)
def test_help_shows_an_example_and_the_overviews_line(name: str) -> None:
    """The first line is the one `tracker --help` prints."""
    result = CliRunner().invoke(root, [name, "--help"])

    assert result.exit_code == 0
    assert f"tracker {name}" in result.stdout
    assert COMMANDS[name].summary in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("command", "line", "message"),
    [
        pytest.param(
            plan,
            PLAN.replace("0.35", "35"),
            "mfu = 35.0: expected a ratio above 0 and up to 1. It "
            "looks like a percentage: write 0.35 for 35 %",
            id="mfu-in-per-cent",
        ),
        pytest.param(
            plan,
            PLAN.replace("989", "989e12"),
            "--peak-tflops = 989000000000000.0: expected a peak in "
            "TFLOP/s. It looks like FLOP/s: write 989 for",
            id="peak-in-flop",
        ),
        pytest.param(plan, PLAN.replace("989", "-1"), "expected a peak above 0", id="negative-peak"),
        pytest.param(plan, PLAN.replace("989", "nan"), "expected a peak above 0", id="nan-peak"),
        pytest.param(plan, PLAN.replace("1024", "0"), "plan.gpus = 0", id="no-gpus"),
        pytest.param(plan, PLAN.replace("4e12", "-4e12"), "plan.tokens = -4", id="negative-tokens"),
        pytest.param(plan, PLAN.replace("4e12", "4e400"), "plan.tokens = inf", id="too-many-tokens"),
        pytest.param(
            plan, PLAN.replace("4e12", "lots"), "is no number. Write it as 13e9, 13B or 4T", id="words"
        ),
        pytest.param(plan, "--active-params 13e9", "missing --tokens, --gpu or --peak-tflops", id="missing"),
        pytest.param(plan, f"{PLAN} --precision fp9", "precision = 'fp9'", id="unknown-precision"),
        pytest.param(
            plan, "--active-params 1e9 --tokens 1e9 --gpu h100-smx", "Nearest: h100-sxm", id="unknown-gpu"
        ),
        pytest.param(
            plan, "--active-params 1e9 --tokens 1e9 --gpu h100", "may be h100-sxm", id="ambiguous-gpu"
        ),
        pytest.param(
            plan, f"{PLAN} --stage a=1T --stage b=2T", "expected stages that sum to plan.tokens", id="sum"
        ),
        pytest.param(plan, f"{PLAN} --stage nonsense", "expected NAME=TOKENS", id="stage-form"),
        pytest.param(plan, f"{PLAN} --stage a=1T@x", "expected NAME=TOKENS", id="stage-sequence"),
        pytest.param(plan, f"{PLAN} --source mfu", "expected KEY=TEXT", id="source-form"),
        pytest.param(
            plan, f"{PLAN} --failures-per-day 8", "also needs --restart-min", id="half-a-failure-model"
        ),
        pytest.param(
            plan,
            f"{PLAN} --failures-per-day 8 --restart-min 10 --checkpoint-interval-min 300",
            "at most the mean time between failures, 180 min",
            id="interval-beyond-mtbf",
        ),
        pytest.param(plan, f"{PLAN} --converted-from a100", "a conversion needs", id="half-a-conversion"),
        pytest.param(
            plan, PLAN.replace("13e9", "1,3e9"), "parts groups of three digits", id="comma-quantity"
        ),
        pytest.param(plan, PLAN.replace("989", "98,9"), "parts groups of three digits", id="comma-float"),
        pytest.param(plan, PLAN.replace("1024", "10,24"), "parts groups of three digits", id="comma-whole"),
        pytest.param(plan, PLAN.replace("1024", "10.5"), "is not a valid integer", id="no-whole-number"),
        pytest.param(
            plan,
            "--active-params 1e9 --tokens 1e9 --gpu h100-sxm --precision fp4",
            "(known for it: bf16, fp16, fp32, fp8, tf32). Use one of these",
            id="a-precision-that-device-lacks",
        ),
        pytest.param(plan, f"{PLAN} --source muf=pilot", "did you mean 'mfu'?", id="source-key"),
        pytest.param(plan, f"{PLAN} --gpu=", "--gpu = '': expected some text", id="empty-gpu"),
        pytest.param(plan, f"{PLAN} --precision=", "--precision = ''", id="empty-precision"),
        pytest.param(plan, f"{PLAN} --currency=", "--currency = ''", id="empty-currency"),
        pytest.param(
            plan, f"{PLAN} --experts 8 --experts-per-token 16", "expected at most experts = 8", id="experts"
        ),
        pytest.param(mtbf, "--days 1 --gpus 8 --causes gup=4", "did you mean 'gpu'?", id="mtbf-cause-name"),
        pytest.param(mtbf, f"{MTBF} --manual 1", "--manual needs --causes", id="mtbf-manual-alone"),
        pytest.param(
            mtbf, MTBF.replace("1024,131072", "1,024"), "whole numbers parted", id="mtbf-size-comma"
        ),
        pytest.param(
            mtbf,
            "--days 1 --gpus 8 --interruptions 1 --project-gpus=",
            "--project-gpus = ''",
            id="mtbf-empty",
        ),
        pytest.param(
            references, "points --sequence-length -5", "--sequence-length = -5", id="their-sequence"
        ),
        pytest.param(references, "points --global-batch -1", "--global-batch = -1", id="their-batch"),
        pytest.param(goodput, f"{GOODPUT} --gpu-hour-price -2", "--gpu-hour-price = -2", id="goodput-price"),
        pytest.param(goodput, f"{GOODPUT} --gpu-hour-price nan", "--gpu-hour-price = nan", id="goodput-nan"),
        pytest.param(
            convert,
            "--gpu-hours 1 --from-tflops 136e12 --to-tflops 341",
            "looks like FLOP/s",
            id="convert-flop",
        ),
        pytest.param(plan, f"{PLAN} --start soon", "expected ISO 8601", id="no-date"),
        pytest.param(
            plan, "--active-params 1e300 --tokens 1e300 --peak-tflops 989", "not finite", id="overflow"
        ),
        pytest.param(
            backsolve, "--tokens 1e12", "missing --active-params, --gpu-hours", id="backsolve-parts"
        ),
        pytest.param(backsolve, "--gpu h100-sxm", "missing --active-params", id="backsolve-gpu-alone"),
        pytest.param(backsolve, BACKSOLVE.replace("30.84e6", "0"), "gpu_hours = 0", id="backsolve-no-hours"),
        pytest.param(
            backsolve, f"{BACKSOLVE} --facility-overhead 0.5", "expected a ratio from 1", id="overhead"
        ),
        pytest.param(
            goodput,
            GOODPUT.replace("30", "300"),
            "at most the mean time between failures, 180 min at 8 a day",
            id="goodput-interval",
        ),
        pytest.param(
            goodput, GOODPUT.replace("0.5", "31"), "expected at most the interval", id="goodput-stall"
        ),
        pytest.param(
            goodput,
            GOODPUT.replace("--failures-per-day 8", "--failures-per-day -8"),
            "failures_per_day = -8",
            id="goodput-negative",
        ),
        pytest.param(goodput, f"{GOODPUT} --days 3", "not both", id="goodput-two-rates"),
        pytest.param(goodput, "--restart-min 10", "missing --failures-per-day", id="goodput-no-rate"),
        pytest.param(
            goodput, "--restart-min 1 --interruptions 1 --days 0", "--days = 0", id="goodput-no-days"
        ),
        pytest.param(mtbf, "--days 54", "missing --gpus, --interruptions", id="mtbf-parts"),
        pytest.param(mtbf, MTBF.replace("16384", "0"), "--gpus = 0", id="mtbf-no-gpus"),
        pytest.param(mtbf, MTBF.replace("54", "-1"), "--days = -1", id="mtbf-negative-days"),
        pytest.param(mtbf, MTBF.replace("419", "-1"), "--interruptions = -1", id="mtbf-negative-count"),
        pytest.param(mtbf, MTBF.replace("1024,", "x,"), "whole numbers parted by commas", id="mtbf-sizes"),
        pytest.param(mtbf, MTBF.replace("1024,", "0,"), "gpus = 0", id="mtbf-zero-size"),
        pytest.param(
            mtbf, f"{MTBF} --causes gpu=3", "causes that sum to --interruptions = 419", id="mtbf-causes"
        ),
        pytest.param(mtbf, "--days 1 --gpus 8 --causes gpu", "expected CAUSE=N", id="mtbf-cause-form"),
        pytest.param(
            convert, "--gpu-hours 1e6 --from a100", "Give --to-tflops, or --to", id="convert-one-side"
        ),
        pytest.param(
            convert, "--gpu-hours -1 --from-tflops 1 --to-tflops 1", "gpu_hours = -1", id="convert-hours"
        ),
        pytest.param(
            convert, "--gpu-hours 1 --from a100 --to b300", "a published run on file", id="convert-no-run"
        ),
        pytest.param(references, "nothing", "'nothing' is not one of", id="references-section"),
        pytest.param(references, "points --gpu xyz", "no accelerator 'xyz' on file", id="references-gpu"),
    ],
)
def test_bad_values_are_usage_errors(command: click.Command, line: str, message: str) -> None:
    """Exit status 2, the sentence on stderr, nothing on stdout, no traceback."""
    for flags in (line, f"{line} --json"):
        result = run(command, flags)
        told = " ".join(result.stderr.split())

        assert result.exit_code == 2, result.output
        assert message in told
        assert "Traceback" not in result.output
        assert result.stdout == ""


NUMBER = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True).map(repr),
    st.integers(-(10**20), 10**20).map(str),
    st.sampled_from(["", "x", "1e9", "0.5", "13B", "∞", "1,000"]),
)


@settings(max_examples=150, deadline=None)
@given(values=st.lists(NUMBER, min_size=9, max_size=9), as_json=st.booleans())
def test_no_number_makes_a_traceback(values: list[str], as_json: bool) -> None:
    """Status 0 or 2 for anything at all, and never NaN in JSON."""
    flags = [
        "--active-params", "--tokens", "--peak-tflops", "--mfu", "--goodput", "--attn-overhead",
        "--later-stages", "--rnd-multiplier", "--gpus",
    ]  # fmt: skip
    words = [f"{flag}={value}" for flag, value in zip(flags, values, strict=True)]
    result = CliRunner().invoke(plan, [*words, *(["--json"] if as_json else [])])

    assert result.exit_code in (0, 2), result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    if as_json and result.exit_code == 0:
        json.loads(result.stdout, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(a=NUMBER, b=NUMBER, c=NUMBER, d=NUMBER)
def test_no_number_makes_a_traceback_in_the_failure_calculators(a: str, b: str, c: str, d: str) -> None:
    """Goodput, MTBF, conversion and back-solving likewise."""
    lines = {
        goodput: [f"--failures-per-day={a}", f"--restart-min={b}", f"--checkpoint-interval-min={c}",
                  f"--checkpoint-stall-min={d}"],
        convert: [f"--gpu-hours={a}", f"--from-tflops={b}", f"--to-tflops={c}"],
        backsolve: [f"--active-params={a}", f"--tokens={b}", f"--gpu-hours={c}", f"--peak-tflops={d}"],
    }  # fmt: skip
    for command, words in lines.items():
        for flags in (words, [*words, "--json"]):
            result = CliRunner().invoke(command, flags)

            assert result.exit_code in (0, 2), (command.name, flags, result.output)
            assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info


def test_the_calculators_load_nothing_heavy() -> None:
    """No pandas, numpy, matplotlib or rich until a terminal asks for it."""
    code = (
        "import sys; from tracker.cli.calculators import plan; from click.testing import CliRunner; "
        f"CliRunner().invoke(plan, {PLAN.split()!r}); "
        "bad = {'pandas', 'numpy', 'matplotlib', 'rich', 'sqlite3'} & set(sys.modules); "
        "sys.exit(f'loaded {bad}' if bad else 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr

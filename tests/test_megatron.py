"""Megatron-LM and Megatron-DeepSpeed on real logs, and that the short cut reads what the rules read."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from collectors import detect, megatron, megatron_deepspeed
from collectors._iterations import GATE, ITERATION, WRAPPED, Iterations
from collectors._lines import Reader, rule
from collectors._megatron import family
from collectors._megatron_start import ARGUMENTS, argument
from tracker.core.records import Event, Flag, Kind, Reading, Record
from tracker.interfaces import Context

LOGS = Path(__file__).parent / "logs"
LINE = (
    b" [2026-03-02 10:%02d:%02d.%06d] iteration %8d/ 1000000 | consumed samples: %12d |"
    b" elapsed time per iteration (ms): %s | throughput per GPU (TFLOP/s/GPU): 412.3 |"
    b" learning rate: 1.0E-04 |"
    b" global batch size:  1024 | lm loss: %s | loss scale: 1.0 | grad norm: 0.174 |"
    b" number of skipped iterations:   %d | number of nan iterations:   %d |\n"
)


def reader(*, short_cut: bool) -> Reader:
    iterations = Iterations(includes=None)
    return Reader(
        (rule(GATE, ITERATION, iterations.line), *family("Megatron-LM", "x")),
        followers={WRAPPED: iterations.wrapped, ARGUMENTS: argument},
        hot=iterations if short_cut else None,
    )


def line(
    step: int, *, ms: bytes = b"1043.2", loss: bytes = b"2.463556E+00", skipped: int = 0, nan: int = 0
) -> bytes:
    seconds = step % 3600
    return LINE % (seconds // 60, seconds % 60, step % 10**6, step, step * 1024, ms, loss, skipped, nan)


def parsed(one: Reader, content: bytes, size: int = 1 << 30) -> list[Record]:
    records: list[Record] = []
    context = Context()
    start = 0
    while start < len(content):
        end = content.rfind(b"\n", start, start + size) + 1 or len(content)
        context.offset = start
        records += one.parse(content[start:end], context)
        start = end
    return records


def test_the_short_cut_reads_what_the_rules_read() -> None:
    """Usual lines and every kind of unusual one among them: the same records, whatever is learnt when."""
    lines = [line(step) for step in range(1, 400)]
    lines[20] = line(21, ms=b"0.0")
    lines[40] = line(41, ms=b"-1.0")
    lines[60] = line(61, loss=b"nan")
    lines[80] = line(81, skipped=1)
    lines[100] = line(101, nan=1)
    lines[120] = line(121).replace(b"10:", b"30:")
    lines[121] = line(122).replace(b"2026-", b"1970-")
    lines[122] = line(123).replace(b"2026-03-02", b"2026-W10-1")
    lines[140] = line(141)[:150] + b"\n"
    lines[160] = line(161) + line(161)
    lines[180] = b"[default7]:" + line(181)
    lines[200] = line(201).replace(b" | loss scale", b" | mtp loss: 1.0E+00 | loss scale")
    lines[220] = line(221).replace(b"grad norm: 0.174", b"grad norm: nan")
    lines[240] = line(241)[:-1] + line(242)
    lines[260] = line(261)[:-1] + b"\r\n"
    lines[280] = line(281).replace(b".", b",", 1)
    lines[300] = b"saving checkpoint at iteration     301 to /ckpt\n" + line(301)
    lines[320] = line(321).replace(b"consumed samples:", b"consumed samples: 9999999999999999999")
    lines[340] = line(341).replace(b"1043.2", b"1_043.2")
    content = b"".join(lines)
    expected = parsed(reader(short_cut=False), content)

    assert len([record for record in expected if isinstance(record, Reading)]) > 380
    for size in (1 << 30, 4096, 300):
        warm = reader(short_cut=True)
        assert parsed(warm, content, size) == expected
        assert parsed(warm, content, size) == expected  # with all layouts known from the start


@pytest.mark.parametrize("name", ["megatron", "megatron_deepspeed"])
def test_what_was_read_before_changes_nothing(name: str) -> None:
    """Shapes learnt from one log are no memory: another log reads the same before and after."""
    module = {"megatron": megatron, "megatron_deepspeed": megatron_deepspeed}[name]
    contents = [path.read_bytes() for path in sorted((LOGS / name).iterdir())]
    first = [list(module.READER.parse(content, Context())) for content in contents]
    list(module.READER.parse(b"".join(line(step) for step in range(1, 50)), Context()))
    second = [list(module.READER.parse(content, Context())) for content in contents]

    assert first == second


def test_a_line_of_another_writer_among_usual_ones_is_seen() -> None:
    """A block full of known lines still shows the one that is not."""
    lines = [line(step) for step in range(1, 300)]
    lines[150] = b"[exiting program at iteration 150] datetime: 2026-03-02 11:00:00\n"
    kinds = [
        record.kind for record in parsed(reader(short_cut=True), b"".join(lines)) if isinstance(record, Event)
    ]

    assert kinds == [Kind.EXIT]


def rows(shared_data: Path, name: str) -> list[dict[str, str]]:
    with (shared_data / "bloom" / "lines.csv").open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["file"] == f"raw/{name}"]


@pytest.mark.parametrize(
    ("name", "collector"),
    [
        ("gpt2-meg-ds-3d-old__meg_ds_3d_gpt2_perf_n16.out", "megatron_deepspeed"),
        ("gpt2-meg-ds-3d__meg_ds_3d_gpt2_perf_n16-ds-on.out", "megatron_deepspeed"),
        ("gpt2-meg__meg_gpt2_base_n64_dp1_tp4_pp64-1809655.out", "megatron"),
        ("gpt2-meg__meg_gpt2_perf_n16.out", "megatron"),
    ],
    ids=[
        "DeepSpeed of May 2021",
        "DeepSpeed pipeline engine",
        "256 GPUs, time limit",
        "all iterations skipped",
    ],
)
def test_real_iteration_lines_have_the_values_that_were_extracted(
    shared_data: Path, name: str, collector: str
) -> None:
    """Each line of BLOOM's experiments, value by value, against an independent script's table."""
    content = (shared_data / "bloom" / "raw" / name).read_bytes()
    found = detect(content)
    assert found.collector is not None, found.text
    assert found.collector.name == collector
    records = list(found.collector.parse(content, Context()))
    readings = [record for record in records if isinstance(record, Reading)]
    wanted = rows(shared_data, name)

    assert len(readings) == len(wanted) > 0
    for reading, row in zip(readings, wanted, strict=True):
        assert reading.step == int(row["iteration"])
        assert reading.step_time_us == round(float(row["elapsed_s"]) * 1e6)
        assert reading.samples == (int(float(row["samples"])) if row["samples"] else None)
        assert reading.batch == (int(float(row["gbs"])) if row["gbs"] else None)
        assert reading.flags & Flag.STEP_TIME_INCLUDES
        assert not reading.flags & Flag.NAN
        assert reading.at_us is None
    assert sum(isinstance(record, Event) and record.kind is Kind.LAUNCH for record in records) == 1


def test_lines_quoted_in_a_chronicle_have_the_values_that_were_extracted(shared_data: Path) -> None:
    """BLOOM-176B's own lines, rebuilt from the table: hardware FLOP, seconds, tokens."""
    with (shared_data / "bloom" / "lines.csv").open(newline="") as file:
        wanted = [row for row in csv.DictReader(file) if row["file"].startswith("chron") and row["tflops"]]
    text = "".join(
        f" iteration {int(row['iteration']):8d}/{int(row['total']):8d} |"
        f" consumed samples: {float(row['samples']):12.0f} | consumed tokens: {float(row['tokens']):12.0f} |"
        f" elapsed time per iteration (s): {row['elapsed']} | learning rate: 5.969E-05 |"
        f" global batch size: {float(row['gbs']):5.0f} | lm loss: {float(row['loss']):.6E} |"
        f" grad norm: 0.174 | num zeros: 0.0 | number of skipped iterations:   0 |"
        f" number of nan iterations:   0 |"
        f" samples per second: {row['sps']} | TFLOPs: {row['tflops']} |\n"
        for row in wanted
    )
    readings = [
        record
        for record in megatron_deepspeed.READER.parse(text.encode(), Context())
        if isinstance(record, Reading)
    ]
    by_step = {reading.step: reading for reading in readings}
    assert len(wanted) > 20
    for row in {row["iteration"]: row for row in reversed(wanted)}.values():  # the first of each step is kept
        reading = by_step[int(row["iteration"])]
        assert reading.tokens == int(float(row["tokens"]))
        assert reading.step_time_us == round(float(row["elapsed"]) * 1e6)
        assert reading.reported_flop_per_s == pytest.approx(float(row["tflops"]) * 1e12)
        assert reading.flags == Flag.STEP_TIME_INCLUDES | Flag.REPORTED_HARDWARE


def test_a_start_cut_at_any_line_is_one_launch() -> None:
    """The banner and the dump belong together, wherever the file had been read to."""
    content = (LOGS / "megatron" / "core_v0_8_completed.log").read_bytes()
    content = b"".join(one for one in content.splitlines(True) if not one.startswith((b"#=", b"# ", b"#!")))
    for end in range(len(content)):
        if content[end - 1 : end] != b"\n":
            continue
        context = Context()
        records = list(megatron.READER.parse(content[:end], context))
        context.offset = end
        records += megatron.READER.parse(content[end:], context)
        assert sum(isinstance(record, Event) and record.kind is Kind.LAUNCH for record in records) == 1


@pytest.mark.slow
def test_the_two_collectors_never_tie(shared_data: Path) -> None:
    """However little of a log is there, at most one of them has the stronger claim, and says why."""
    paths = [path for folder in ("megatron", "megatron_deepspeed") for path in (LOGS / folder).iterdir()]
    paths += (shared_data / "bloom" / "raw").glob("*meg*")
    for path in paths:
        content = path.read_bytes()
        for end in range(0, min(len(content), 200_000), max(len(content) // 20, 1)):
            found = detect(content[:end])
            assert found.tied == (), (path, end, found.text)
            assert all(claim.evidence.text for claim in found.claims)

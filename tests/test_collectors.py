"""What holds for every collector: annotated logs, pieces of any size, hostile bytes, one list of all."""

from __future__ import annotations

import importlib
import json
import random
import re
import time
import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import collectors
from collectors import BUILTIN, Detection, detect, named
from collectors._events import EVENTS
from collectors._lines import Reader
from collectors._text import clean, segments
from tracker.core.errors import InvalidValue
from tracker.core.records import (
    CAUSES,
    END_KINDS,
    EVIDENCE_CHARS,
    SETTINGS,
    Event,
    Flag,
    Kind,
    Reading,
    Record,
    Reject,
    SchedulerRow,
)
from tracker.interfaces import Collector, Context, Evidence

LOGS = Path(__file__).parent / "logs"
STATE_BYTES = 64 * 1024  # "small": it is written with every block

# --------------------------------------------------------------------------------------------------------
# Annotated logs. A line `#= {...}` or `#= reject: reason` says what the next line must yield; several such
# lines say several records; a line without them must yield nothing. `#! {...}` before the first line sets the
# context (zone, file_name, options). `# ...` at the start of a line is a remark. None of these is in the log.
#
# A reading is {"step": 10, "at": "2026-03-02T09:00:28Z", "flags": "WHOLE_SECOND EXCLUDES"}: all fields that
# are set and no others. An event is {"event": "launch", ...}: likewise, but of `data` only what is stated is
# compared.


@dataclass
class Expected:
    """A log without its annotations, and what each of its lines must yield."""

    path: Path
    content: bytes = b""
    context: dict[str, Any] = field(default_factory=dict)
    wanted: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    """Offset of a line -> (number of the annotation's line, its text)."""
    places: list[tuple[int, int]] = field(default_factory=list)
    """(offset, line number in the annotated file) of each line of the log."""

    def new_context(self) -> Context:
        zone = zoneinfo.ZoneInfo(self.context.get("zone", "UTC"))
        return Context(
            zone=zone,
            file_name=self.context.get("file_name", self.path.name),
            options=self.context.get("options", {}),
        )

    def line_of(self, offset: int) -> tuple[int, int]:
        """Return (offset, line number) of the line that holds a place."""
        best = self.places[0]
        for place in self.places:
            if place[0] <= offset:
                best = place
        return best


def load(path: Path) -> Expected:
    found = Expected(path)
    parts: list[bytes] = []
    pending: list[tuple[int, str]] = []
    length = 0
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if line.startswith(b"#!"):
            found.context = json.loads(line[2:])
        elif line.startswith(b"#="):
            pending.append((number, line[2:].decode().strip()))
        elif line.startswith(b"# "):
            continue
        else:
            line = line.replace(b"\\r", b"\r").replace(b"\\e", b"\x1b")
            found.places.append((length, number))
            if pending:
                found.wanted[length] = pending
                pending = []
            parts.append(line)
            length += len(line) + 1
    assert not pending, f"{path}: an annotation without a line"
    found.content = b"\n".join(parts)
    return found


def fixtures() -> list[Path]:
    known = {one.name for one in BUILTIN}  # a folder of nobody has a test of its own
    found = (path for path in LOGS.glob("*/*") if path.is_file() and path.parent.name in known)
    return sorted(path for path in found if path.suffix not in (".md", ".tmp"))


def collector_of(path: Path) -> Collector:
    return named(path.parent.name)


ANNOTATED = [path for path in fixtures() if collector_of(path).kind == "log"] if BUILTIN else []
by_file = pytest.mark.parametrize("path", ANNOTATED, ids=lambda path: f"{path.parent.name}/{path.name}")
by_collector = pytest.mark.parametrize("collector", BUILTIN, ids=lambda one: one.name)
by_log_collector = pytest.mark.parametrize(
    "collector", [one for one in BUILTIN if one.kind == "log"], ids=lambda one: one.name
)


def iso(at_us: int) -> str:
    seconds, micros = divmod(at_us, 1_000_000)
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{text}.{micros:06d}".rstrip("0") + "Z" if micros else f"{text}Z"


def shown(record: Record) -> dict[str, Any]:
    """Return a record as its annotation would say it."""
    if isinstance(record, Reject):
        return {"reject": record.reason}
    out: dict[str, Any] = {}
    if isinstance(record, Event):
        out["event"] = str(record.kind)
        for name in ("step", "duration_us"):
            if (value := getattr(record, name)) is not None:
                out[name] = value
        out["data"] = dict(record.data)
    elif isinstance(record, Reading):
        out |= {
            name: value
            for name, value in record._asdict().items()
            if value not in (None, 0) and name not in ("offset", "at_us", "flags")
        }
        out["step"] = record.step
        if record.flags:
            out["flags"] = " ".join(
                flag.name.removeprefix("STEP_TIME_") for flag in Flag(record.flags) if flag.name
            )
    if not isinstance(record, SchedulerRow) and record.at_us is not None:
        out["at"] = iso(record.at_us)
    return out


def agrees(wanted: dict[str, Any], got: dict[str, Any]) -> bool:
    if set(wanted) - {"data"} != set(got) - {"data"}:
        return False
    for name, value in wanted.items():
        other = got.get(name)
        if name == "data":
            other = {key: other.get(key) for key in value}
        if isinstance(value, float) and isinstance(other, float):
            if abs(value - other) > 1e-9 * abs(value):
                return False
        elif value != other:
            return False
    return True


def parse_whole(collector: Collector, content: bytes, context: Context) -> list[Record]:
    return list(collector.parse(content, context))


@by_file
def test_each_line_of_an_annotated_log_yields_what_is_stated(path: Path) -> None:
    """The log carries its own expectation: what no line announces must not come."""
    expected = load(path)
    got: dict[int, list[Record]] = {}
    for record in parse_whole(collector_of(path), expected.content, expected.new_context()):
        got.setdefault(expected.line_of(record.offset)[0], []).append(record)
    problems = []
    for offset, number in expected.places:
        wanted = expected.wanted.get(offset, [])
        found = [shown(record) for record in got.get(offset, [])]
        asked = []
        for _, text in wanted:
            asked.append({"reject": text[8:].strip()} if text.startswith("reject:") else json.loads(text))
        if len(asked) != len(found) or not all(agrees(w, f) for w, f in zip(asked, found, strict=True)):
            problems.append(
                f"\n{path}:{number}\n  expected {json.dumps(asked)}\n  got      {json.dumps(found)}"
            )
    assert not problems, "".join(problems)


@by_file
def test_an_annotated_log_is_read_by_the_collector_of_its_folder(path: Path) -> None:
    """Detection finds the folder's collector, and says why."""
    expected = load(path)
    if expected.context.get("detect", True) is False:
        pytest.skip("the log says itself that its head does not show what it is")
    found = detect(expected.content)
    assert found.collector is not None, found.text
    assert found.collector.name == path.parent.name, found.text


def in_pieces(collector: Collector, content: bytes, cuts: list[int], context: Context) -> list[Record]:
    records: list[Record] = []
    for start, end in zip([0, *cuts], [*cuts, len(content)], strict=True):
        context.offset = start
        records += collector.parse(content[start:end], context)
        context.state = json.loads(json.dumps(context.state))  # stored and read again between two blocks
    return records


def line_ends(content: bytes) -> list[int]:
    return [match.end() for match in re.finditer(rb"\n", content) if match.end() < len(content)]


@by_file
def test_records_do_not_depend_on_where_a_log_is_cut(path: Path) -> None:
    """Cut at any one line, and at every line, with the state stored in between: the same records."""
    expected = load(path)
    collector = collector_of(path)
    reference = parse_whole(collector, expected.content, expected.new_context())
    ends = line_ends(expected.content)
    assert in_pieces(collector, expected.content, ends, expected.new_context()) == reference
    for cut in ends:
        got = in_pieces(collector, expected.content, [cut], expected.new_context())
        assert got == reference, f"cut before line {expected.line_of(cut)[1]}"


@by_file
def test_records_are_ordered_bounded_and_of_known_words(path: Path) -> None:
    """File order, evidence kept short, only causes, end kinds and settings that the core knows."""
    expected = load(path)
    context = expected.new_context()
    records = parse_whole(collector_of(path), expected.content, context)
    assert [record.offset for record in records] == sorted(record.offset for record in records)
    for record in records:
        if isinstance(record, Event):
            check_event(record)
    assert len(json.dumps(context.state)) <= STATE_BYTES


def check_event(event: Event) -> None:
    assert len(event.text) <= EVIDENCE_CHARS
    json.dumps(dict(event.data), allow_nan=False)
    if event.kind is Kind.SETTING:
        assert set(event.data) <= SETTINGS, set(event.data) - SETTINGS
        assert event.data, "a setting that says nothing"
    if event.kind is Kind.FAILURE:
        assert event.data["cause"] in CAUSES
        confidence = event.data["confidence"]
        assert isinstance(confidence, float), confidence
        assert 0 < confidence <= 1
    if event.kind is Kind.EXIT:
        assert event.data["end_kind"] in END_KINDS
        assert event.data.get("cause", "unknown") in CAUSES


def mutated(content: bytes, seed: int) -> bytes:
    """Return a log with bytes changed, lines cut, doubled, glued and swapped."""
    chance = random.Random(seed)
    data = bytearray(content)
    for _ in range(chance.randrange(1, 30)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    lines = bytes(data).split(b"\n")
    for _ in range(chance.randrange(8)):
        i, j = chance.randrange(len(lines)), chance.randrange(len(lines))
        match chance.randrange(5):
            case 0:
                lines[i], lines[j] = lines[j], lines[i]
            case 1:
                lines[i] += lines[j]
            case 2:
                lines[i] = lines[i][: chance.randrange(len(lines[i]) + 1)]
            case 3:
                lines.insert(i, lines[j])
            case _:
                lines[i] = re.sub(rb"\d+", lambda m: m[0] * 30, lines[i], count=2)
    return b"\n".join(lines)


@by_file
def test_a_damaged_log_is_data_and_cuts_do_not_change_it(path: Path) -> None:
    """Bytes changed, lines glued and cut: no exception, nothing unknown, the same records in pieces."""
    expected = load(path)
    collector = collector_of(path)
    for seed in range(12):
        content = mutated(expected.content, seed)
        context = expected.new_context()
        reference = parse_whole(collector, content, context)
        assert len(json.dumps(context.state)) <= STATE_BYTES
        for record in reference:
            if isinstance(record, Event):
                check_event(record)
        assert in_pieces(collector, content, line_ends(content), expected.new_context()) == reference


@by_collector
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(content=st.binary(max_size=400))
def test_no_bytes_make_a_parser_raise(collector: Collector, content: bytes) -> None:
    """Binary data in, records or nothing out."""
    for record in collector.parse(content, Context()):
        assert isinstance(record, Reading | Event | Reject | SchedulerRow)
    collector.detect(content)


def test_modules_registry_and_fixture_folders_are_the_same_list() -> None:
    """A collector without a log, a module that nobody registered, a folder of nobody: none of them."""
    folder = Path(collectors.__file__).parent
    modules = {path.stem for path in folder.glob("[!_]*.py")}
    logs = {path.name for path in LOGS.iterdir() if path.is_dir() and any(path.iterdir())}
    assert modules == {one.name for one in BUILTIN} == logs
    assert len({one.name for one in BUILTIN}) == len(BUILTIN)


@by_collector
def test_a_collector_says_what_it_reads(collector: Collector) -> None:
    """Name, framework with versions, and what it knows are there for people."""
    assert re.fullmatch(r"[a-z][a-z0-9_]*", collector.name)
    assert collector.framework
    assert collector.version >= 1
    assert collector.knows


def readers() -> dict[str, Reader]:
    """Return the readers that collectors are made of, by the collector's name."""
    found = {}
    for one in BUILTIN:
        reader = getattr(importlib.import_module(f"collectors.{one.name}"), "READER", None)
        if isinstance(reader, Reader):
            found[one.name] = reader
    return found


def cleaned_lines(folder: str) -> list[bytes]:
    return [
        clean(piece).text
        for path in ANNOTATED
        if folder in ("", path.parent.name)
        for line in load(path).content.split(b"\n")
        for _, piece in segments(line, 0)
    ]


def test_each_rule_of_a_collector_has_a_line_in_its_logs() -> None:
    """A pattern that no line matches is not tested, and perhaps matches nothing. Families share rules."""
    users: dict[bytes, list[str]] = {}
    for name, reader in readers().items():
        for one in reader.rules:
            if one not in EVENTS:
                users.setdefault(one.pattern.pattern, []).append(name)
    lines = {name: cleaned_lines(name) for name in readers()}
    idle = [
        (names, pattern)
        for pattern, names in users.items()
        if not any(re.search(pattern, line) for name in names for line in lines[name])
    ]
    assert idle == []


def test_each_event_pattern_has_a_line_in_some_log() -> None:
    """Events are shared by all text collectors: one log that shows it is enough."""
    lines = cleaned_lines("")
    idle = [one.pattern.pattern for one in EVENTS if not any(one.pattern.search(line) for line in lines)]
    assert idle == []


@pytest.mark.parametrize("name", readers(), ids=str)
def test_each_gate_is_in_the_lines_that_its_pattern_wants(name: str) -> None:
    """A line is found by `within` and handed on by `gate`: without them a pattern is never asked."""
    for line in cleaned_lines(name):
        for one in readers()[name].rules:
            if one.pattern.search(line):
                assert one.gate in line, (one.pattern.pattern, line)
                assert one.within in line, (one.within, line)


# --------------------------------------------------------------------------------------------------------
# Detection


def claimant(name: str, score: int) -> Collector:
    return Collector(
        name=name,
        framework=name,
        version=1,
        parse=lambda block, context: (),
        detect=lambda head: Evidence(score=score, text=f"words of {name}"),
    )


def test_a_tie_is_refused_and_names_both_evidences() -> None:
    """Two equal claims: no choice, and the user reads both reasons."""
    found: Detection = detect(b"x", [claimant("a", 70), claimant("b", 70), claimant("c", 60)])
    assert found.collector is None
    assert [claim.collector.name for claim in found.tied] == ["a", "b"]
    assert "words of a" in found.text
    assert "words of b" in found.text


def test_the_stronger_claim_wins() -> None:
    """The highest score reads the file; the others are still listed."""
    found = detect(b"x", [claimant("a", 60), claimant("b", 70)])
    assert found.collector is not None
    assert found.collector.name == "b"
    assert len(found.claims) == 2


@pytest.mark.parametrize(
    "head", [b"", b"\x00\x01\x02" * 100, b"hello\nworld\n"], ids=["empty", "binary", "text"]
)
def test_what_nobody_knows_is_claimed_by_nobody(head: bytes) -> None:
    """No collector claims what shows no words of its own."""
    found = detect(head)
    assert found.claims == ()
    assert "no collector recognises it" in found.text


def test_an_unknown_name_suggests_the_nearest() -> None:
    """A misspelt collector is told what was meant."""
    with pytest.raises(InvalidValue, match="did you mean 'megatron'"):
        named("megatorn", [claimant("megatron", 1)])


# --------------------------------------------------------------------------------------------------------
# Time


def adversaries(collector: Collector) -> Iterator[tuple[str, bytes]]:
    """Yield long lines made of what patterns look for."""
    for path in ANNOTATED:
        if path.parent.name != collector.name:
            continue
        lines = [line for line in load(path).content.split(b"\n") if line]
        longest = max(lines, key=len, default=b"x")
        yield f"{path.parent.name}/{path.name} repeated in one line", longest * (1_000_000 // len(longest))
    for unit in (
        b" ",
        b"[",
        b"0",
        b"|",
        b": ",
        b"a.",
        b"Error: ",
        b"iteration ",
        b"CANCELLED AT ",
        b"\r",
        b"\x1b[1m",
    ):
        yield f"{unit!r} repeated", unit * (1_000_000 // len(unit))
        yield (
            f"{unit!r} repeated after words",
            b" iteration 1/2 |" + unit * (1_000_000 // len(unit)) + b"rror",
        )


@pytest.mark.slow
@by_log_collector
def test_a_line_of_a_megabyte_takes_linear_time(collector: Collector) -> None:
    """No pattern backtracks its way into minutes, whatever the line holds."""
    for name, line in adversaries(collector):
        began = time.process_time()
        list(collector.parse(line + b"\n", Context()))
        assert time.process_time() - began < 3, name

"""The user's own patterns: checked before anything is read, and never slow, with google-re2 or without."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from collectors import BUILTIN, pattern
from collectors._patterns import GUARDED_BYTES, Pattern, Unfit, engine
from tracker.config import ConfigError
from tracker.config.load import parse as parse_config
from tracker.core.records import Reading
from tracker.interfaces import Context

GOOD: dict[str, Any] = {
    "pattern": r"it (?P<step>\d+) took (?P<step_time_ms>\d+)",
    "examples": ["it 5 took 80"],
}
with_and_without_re2 = pytest.mark.parametrize("with_re2", [True, False], ids=["re2", "re"])


def problems(**changes: Any) -> list[str]:
    return list(pattern.check({key: value for key, value in (GOOD | changes).items() if value is not None}))


def test_a_sound_source_has_no_problem() -> None:
    """The example is read."""
    assert problems() == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param({"pattern": None}, "pattern: missing", id="no-pattern"),
        pytest.param({"examples": None}, "examples: missing", id="no-example"),
        pytest.param(
            {"examples": ["it five"]}, "examples[1] = 'it five': no pattern matches it", id="no-match"
        ),
        pytest.param({"pattern": "it (?P<step>"}, "no usable regular expression", id="no-expression"),
        pytest.param({"pattern": r"it (\d+) took"}, "no group is called step", id="no-step"),
        pytest.param(
            {"pattern": r"it (?P<step>\d+) took (?P<tokns>\d+)"},
            "did you mean 'tokens'",
            id="a-group-of-nothing",
        ),
        pytest.param(
            {"pattern": r"it (?P<step>\S+) took", "examples": ["it x took"]},
            "step is not a whole number",
            id="a-step-that-is-none",
        ),
        pytest.param({"units": {"step_time": "hours"}}, "units.step_time = 'hours'", id="no-unit"),
        pytest.param({"first_step": 2}, "first_step = 2: expected 0 or 1", id="no-base"),
        pytest.param({"step_time": "mean"}, "step_time = 'mean'", id="covers-nothing"),
        pytest.param({"rate": "all"}, "rate = 'all'", id="no-rate"),
        pytest.param({"events": {"lunch": "x"}}, "Did you mean 'launch'", id="no-event"),
        pytest.param({"events": {"launch": "("}}, "events.launch = '('", id="no-event-expression"),
    ],
)
def test_a_wrong_option_is_told_by_its_key(changes: dict[str, Any], said: str) -> None:
    """What it is, what was expected."""
    assert any(said in text for text in problems(**changes)), problems(**changes)


def test_the_config_is_refused_when_an_example_does_not_match() -> None:
    """At the start, with the place in the file; a good one is taken."""
    text = """
        [run]
        name = "r"
        [[source]]
        collector = "pattern"
        path = "x.log"
        pattern = 'it (?P<step>\\d+)'
        examples = ["{}"]
    """
    known = {one.name: one for one in BUILTIN}

    with pytest.raises(ConfigError, match=r"source\[1\]\.examples\[1\] = 'step 5': no pattern matches it"):
        parse_config(text.format("step 5"), path=Path("run.toml"), collectors=lambda: known)
    config = parse_config(text.format("it 5"), path=Path("run.toml"), collectors=lambda: known)
    assert config.sources[0].options["examples"] == ["it 5"]


def test_a_pattern_collector_without_its_options_is_refused() -> None:
    """Naming it is not enough."""
    known = {one.name: one for one in BUILTIN}
    with pytest.raises(ConfigError, match="pattern: missing"):
        parse_config(
            '[run]\nname="r"\n[[source]]\ncollector="pattern"\npath="x"',
            path=Path("run.toml"),
            collectors=lambda: known,
        )


@with_and_without_re2
def test_both_engines_read_the_same(with_re2: bool) -> None:
    """Groups that took part, by name."""
    one = Pattern(r"it (?P<step>\d+)(?: of (?P<total>\d+))?", with_re2=with_re2)

    assert one.linear == (with_re2 and engine() is not None)
    assert one.search(b"x it 10 of 20") == {"step": b"10", "total": b"20"}
    assert one.search(b"it 7") == {"step": b"7"}
    assert one.search(b"nothing") is None
    assert one.literal == b"it "


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (r"(\w+\s?)*x", "repeats a repetition"),
        (r"(a*)*", "repeats a repetition"),
        (r"(?:(?:a+)b)+", "repeats a repetition"),
        (r"((a{1,100})){2}", "repeats a repetition"),
        (r"(a)\1", "refers back"),
        (r"(a|aa)+b", "repeats a repetition"),
        (r"(a?){30}a", "repeats a repetition"),
        (r".*a.*b\S+c[^x]*d", r"4 repetitions such as \.\*"),
    ],
)
def test_what_python_may_take_for_ever_for_is_refused_without_re2(text: str, why: str) -> None:
    """Nested and many open repetitions; with google-re2 they are no danger."""
    with pytest.raises(Unfit, match=why):
        Pattern(text, with_re2=False)


@pytest.mark.parametrize(
    "text",
    [
        r"step (\d+) of .* took ([\d.]+) ms",
        r"[*+(){}]+ (?P<step>\d{1,20})",
        r"(?P<step>\d+)?",
        r"a\+\*b+",
        "x{3}",
    ],
)
def test_what_is_harmless_is_taken_without_re2(text: str) -> None:
    """Quantifiers in classes and escaped ones are none."""
    Pattern(text, with_re2=False)


@with_and_without_re2
def test_no_line_takes_long(with_re2: bool) -> None:
    """A megabyte that nearly matches: below a second with either engine."""
    one = Pattern(r"a.*b.*c(?P<step>\d+)", with_re2=with_re2)
    line = b"ab" * 500_000
    began = time.process_time()

    assert one.search(line) is None

    assert time.process_time() - began < 1
    assert len(line) > GUARDED_BYTES


def test_a_second_start_in_one_file_is_a_launch() -> None:
    """The line that says so comes again after training: another process."""
    options = GOOD | {"events": {"launch": "^start"}}
    body = b"start\nit 1 took 80\nit 2 took 80\nstart\nit 1 took 80\n"

    records = list(pattern.parse(body, Context(options=options)))

    assert [type(one).__name__ for one in records] == ["Event", "Reading", "Reading", "Event", "Reading"]
    assert [one.step for one in records if isinstance(one, Reading)] == [1, 2, 1]


def test_the_page_on_patterns_shows_a_config_that_is_taken() -> None:
    """docs/pattern.md: its example is read as it stands, and it names every key and event."""
    page = (Path(__file__).resolve().parents[1] / "docs" / "pattern.md").read_text(encoding="utf-8")
    config = parse_config(
        page.split("```toml\n")[1].split("```")[0],
        path=Path("run.toml"),
        collectors=lambda: {one.name: one for one in BUILTIN},
    )
    (source,) = config.sources

    records = list(
        pattern.parse(str(source.options["examples"][0]).encode() + b"\n", Context(options=source.options))  # type: ignore[index]
    )

    (reading,) = records
    assert isinstance(reading, Reading)
    assert (reading.step, reading.step_time_us, reading.tokens) == (10, 803_100, 5_242_880)
    assert reading.at_us is not None
    assert all(f"`{name}`" in page for name in (*pattern.COLLECTOR.options, *pattern.EVENT_NAMES))

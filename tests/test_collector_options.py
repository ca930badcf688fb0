"""What a [[source]] says to its collector: a wrong value stops at the start, and never means "left out"."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import collectors
from tracker.config.check import ConfigError
from tracker.config.load import parse

BY_NAME = {one.name: one for one in collectors.BUILTIN}
PATTERN = "pattern = '(?P<step>\\d+) s'\nexamples = \"7 s\"\n"

GOOD = {
    "composer": ['time_unit = "minutes"'],
    "csv": ['keys = { step = "updates" }', 'rate = "device"', 'step_time = "includes"'],
    "events": ["year = 2026"],
    "huggingface": ["logging_steps = 10"],
    "jsonl": ['keys = { step = "opt/updates", tokens = "n" }', 'rate = "cluster"', 'step_time = "sample"'],
    "kernel": ["boot = 2026-01-05T08:00:00Z", 'boot = "2026-01-05 08:00:00"', "year = 2026"],
    "lightning": ["accumulate = 4"],
    "lightning_csv": ["gradient_accumulation = 4"],
    "maxtext": ["year = 2026"],
    "nanotron": ["year = 2026"],
    "pattern": [
        "first_step = 0",
        'rate = "device"',
        'units = { step_time = "ms" }',
        "events = { resume = 'on' }",
    ],
    "slurm": [
        'delimiter = "|"',
        'delimiter = "\\t"',
        'fields = ["JobID%20", "State", "Start", "End"]',
        'fields = "jobidraw,start,end"',
    ],
    "tensorboard": ["first_step = 0", "first_step = 1"],
}
WRONG = {
    "time_unit": ["3", '""', '"hour"', '["hours"]'],
    "keys": ["3", '"step"', '{ bogus = "x" }', "{ step = 1 }", '{ step = "" }', '["step"]'],
    "rate": ['"foo"', "1", '["device"]', "{}", '""'],
    "step_time": ["1", '"foo"', '["includes"]', '{ a = "includes" }'],
    "logging_steps": ["0", "-1", '"ten"', '"10"', "1.5", "true", "nan"],
    "accumulate": ["0", '"4"', "[4]", "true"],
    "gradient_accumulation": ["0", '"4"', "{}", "1.5"],
    "boot": ["3", '"yesterday"', "2026-01-05", "08:00:00", "true"],
    "year": ['"2026"', "26", "2026.5", "true", "2026-01-05"],
    "delimiter": ["3", '""', '"\\n"', '["|"]', "true"],
    "fields": ["7", '""', "[]", "[1]", '["JobID", ""]', '["JobID", "End"]', '["Start"]', "{ a = 1 }"],
    "first_step": ["2", '"0"', "true", "0.0", "[0]"],
    "pattern": ["3", "[3]", "{ a = 1 }"],
    "examples": ["3", "[3]"],
    "units": ["3", '{ step_time = "h" }', '{ step_time = ["s"] }'],
    "events": ["3", "{ resume = 3 }", '{ bogus = "x" }'],
}


def problems(collector: str, *lines: str) -> tuple[str, ...]:
    """Return the faults of a config whose one source says this."""
    said = {line.split()[0] for line in lines}
    ready = [line for line in PATTERN.splitlines() if line.split()[0] not in said]
    more = "\n".join([*(ready if collector == "pattern" else []), *lines])
    text = f'[run]\nname = "t"\n[[source]]\ncollector = "{collector}"\npath = "x"\n{more}\n'
    try:
        parse(text, path=Path("run.toml"), collectors=lambda: BY_NAME)
    except ConfigError as error:
        return error.problems
    return ()


def options() -> list[Any]:
    return [
        pytest.param(one.name, option, id=f"{one.name}.{option}")
        for one in collectors.BUILTIN
        for option in one.options
    ]


@pytest.mark.parametrize(("name", "option"), options())
def test_every_option_refuses_what_it_cannot_use(name: str, option: str) -> None:
    """Each error names the key by its path, the value, what was expected; and most say what to write."""
    for value in WRONG[option]:
        found = problems(name, f"{option} = {value}")
        mine = [p for p in found if p.startswith(f"source[1].{option}")]

        assert mine, (value, found)
        assert " = " in mine[0]
        assert ": expected " in mine[0]
        assert len(mine[0]) < 700
        assert mine[0].isprintable()


@pytest.mark.parametrize("name", [pytest.param(n, id=n) for n, one in BY_NAME.items() if one.options])
def test_every_option_takes_what_it_is_for(name: str) -> None:
    """And every option of every collector stands in the table of good values."""
    said = {line.split()[0] for line in GOOD[name]}
    assert said | ({"pattern", "examples", "step_time"} if name == "pattern" else set()) == set(
        BY_NAME[name].options
    )
    for line in GOOD[name]:
        assert problems(name, line) == ()


def test_a_wrong_value_and_an_unknown_key_are_told_together() -> None:
    """A person who edits by hand wants all faults at once."""
    found = problems("slurm", "delimiter = 3", "feilds = 7", "fields = 7")

    assert [p.partition(":")[0].partition(" =")[0] for p in found] == [
        "source[1].feilds",
        "source[1].delimiter",
        "source[1].fields",
    ]


def test_an_option_of_an_unknown_collector_is_no_second_fault() -> None:
    """What it may say depends on the name."""
    assert len(problems("slrum", "delimiter = 3")) == 1


def test_an_option_beside_auto_must_be_one_that_some_collector_takes() -> None:
    """`auto` may find any of those that have it."""
    assert problems("auto", 'rate = "device"', "year = 2026", "first_step = 0") == ()
    assert [p.partition(":")[0] for p in problems("auto", 'rate = "foo"', 'year = "2026"')] == [
        "source[1].rate = 'foo'",
        "source[1].year = '2026'",
    ]


def test_the_remedy_is_what_to_write() -> None:
    """Whole sentences, word for word."""
    assert problems("jsonl", 'rate = "devise"') == (
        "source[1].rate = 'devise': expected one of \"cluster\", \"device\". Did you mean 'device'?",
    )
    assert problems("jsonl", "keys = { step = 1 }") == (
        "source[1].keys.step = 1: expected a key of the records, as text. "
        'Write keys = { step = "opt/updates" }',
    )
    assert problems("kernel", 'year = "2026"') == (
        "source[1].year = '2026': expected a whole number from 2000 to 2099. "
        "Write it without quotes: year = 2026",
    )
    assert problems("slurm", 'delimiter = ""') == (
        "source[1].delimiter = '': expected the text between two fields. "
        'Write delimiter = "|", or leave it out',
    )

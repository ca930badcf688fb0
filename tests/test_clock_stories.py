"""What clocks do to a run's logs, end to end: printed by a node, read by the real collectors, as a ledger.

Each story is a run whose truth is known: steps of ten seconds, a line every sixty of them, so that every
hour is 3,600 s of work. What the node's clock printed is another matter.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from tests.hands import Hands
from tracker import app
from tracker.core.snapshot import Snapshot

pytestmark = pytest.mark.slow

CONFIG = """
[run]
name = "clocks"
timezone = "{zone}"
[model]
active_params = 1e9
sequence_length = 2048
[hardware]
gpu = "h100-sxm"
gpus = 8
[[source]]
path = "logs/*.log"
"""
LINE_S = 600
BERLIN = ZoneInfo("Europe/Berlin")
DAY = dt.datetime(2026, 6, 1, tzinfo=dt.UTC)
Printed = Callable[[dt.datetime], str]
"""What a node's clock prints at a true moment (UTC)."""


def utc(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


def plain(moment: dt.datetime) -> str:
    """A clock that is right, in UTC."""
    return f"{moment.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S.%f}"


def local(zone: ZoneInfo) -> Printed:
    """A clock that is right, in a zone."""
    return lambda moment: f"{moment.astimezone(zone):%Y-%m-%d %H:%M:%S.%f}"


def off(hours: Callable[[dt.datetime], float], at: Printed = plain) -> Printed:
    """A clock that is wrong by so many hours at a moment."""
    return lambda moment: at(moment + dt.timedelta(hours=hours(moment)))


def slip(hours: float, *lines: int) -> Printed:
    """A clock that is ahead by so many hours at some lines of `log(DAY, ...)`, and right at all others."""
    return off(lambda at: hours if (at - DAY).total_seconds() / LINE_S in lines else 0.0)


def log(
    begun: dt.datetime, hours: float, clock: Printed = plain, *, since: int = 0, interval_s: float = LINE_S
) -> str:
    """Return the log of so many hours of work: a line at each end of sixty steps."""
    lines = ["using world size: 8, data-parallel size: 8, tensor-model-parallel size: 1\n"]
    if since:
        lines.append(f"  successfully loaded checkpoint from /ckpt [ t 0, p 0 ] at iteration {since}\n")
    for number in range(1, round(hours * 3600 / LINE_S) + 1):
        step = since + number * 60
        lines.append(
            f" [{clock(begun + dt.timedelta(seconds=interval_s * number))}] iteration {step:8d}/ 100000 |"
            f" consumed samples: {step * 64:12d} | elapsed time per iteration (ms):"
            f" {interval_s / 60 * 1000:.4f} |"
            " learning rate: 1.0E-05 | global batch size:    64 | lm loss: 1.0E+01 | loss scale: 1.0 |"
            " grad norm: 1.1 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
        )
    return "".join(lines)


@dataclass(frozen=True)
class Story:
    """A run, and what is true of it."""

    logs: Mapping[str, str]
    productive_h: float
    attempts: int = 1
    lost_h: float = 0.0
    other_h: float = 0.0
    zone: str = "UTC"
    warns: tuple[str, ...] = ()
    """Words of a warning that there must be; without any, no warning may speak of a clock."""
    config: str = ""
    rows: tuple[tuple[int, dt.datetime, dt.datetime], ...] = ()
    """Job, start, end of what the scheduler tells."""
    within_s: float = 2.0
    as_of: dt.datetime = field(default_factory=lambda: utc("2027-01-01"))


AUTUMN = utc("2026-10-24T22:00:00")
SPRING = utc("2026-03-28T22:00:00")
NEW_YEAR = utc("2016-12-31T12:00:00")


def smear(moment: dt.datetime) -> str:
    """From noon to noon a second is worth 86,401 / 86,400 of itself."""
    into_s = (moment - NEW_YEAR).total_seconds()
    return plain(moment - dt.timedelta(seconds=min(max(into_s / 86_400, 0.0), 1.0)))


def sixtieth(moment: dt.datetime) -> str:
    """A clock that prints the leap second itself."""
    if moment == utc("2017-01-01T00:00:00"):
        return "2016-12-31 23:59:60.000000"
    return plain(moment)


STORIES = [
    pytest.param(
        Story({"a.log": log(AUTUMN, 8, local(BERLIN))}, 8, zone="Europe/Berlin"),
        id="the-hour-that-comes-twice-in-autumn-is-two-hours",
    ),
    pytest.param(
        Story({"a.log": log(SPRING, 8, local(BERLIN))}, 8, zone="Europe/Berlin"),
        id="the-hour-that-never-comes-in-spring-costs-nothing",
    ),
    pytest.param(
        Story(
            {"a.log": log(DAY, 6, lambda at: f"{at.astimezone(BERLIN):%Y-%m-%d %H:%M:%S%z}")}, 6, zone="UTC"
        ),
        id="a-zone-in-the-line-itself-counts-more-than-the-config",
    ),
    pytest.param(
        Story(
            {
                "a.log": log(DAY, 3),
                "b.log": log(DAY + dt.timedelta(hours=3), 3, local(BERLIN), since=1080),
            },
            6,
            attempts=2,
            config='\n[[source]]\npath = "berlin/*.log"\ntimezone = "Europe/Berlin"\n',
        ),
        id="two-nodes-in-two-zones-each-with-a-source-of-its-own",
    ),
    pytest.param(
        Story({"a.log": log(NEW_YEAR, 26, smear, interval_s=LINE_S)}, 26, as_of=utc("2017-02-01")),
        id="a-leap-second-smeared-over-a-day-is-a-second-at-most",
    ),
    pytest.param(
        Story({"a.log": log(NEW_YEAR, 16, sixtieth)}, 16, as_of=utc("2017-02-01")),
        id="a-leap-second-that-is-printed-as-23-59-60-is-no-gap",
    ),
    pytest.param(
        Story(
            {"a.log": log(DAY, 6, off(lambda at: -1.0 if at > utc("2026-06-01T03:00:00") else 0.0))},
            6,
            warns=("attempt 1: the log's clock was set back by 3600 s",),
        ),
        id="a-clock-set-back-an-hour-takes-no-hour",
    ),
    pytest.param(
        Story(
            {
                "a.log": log(
                    DAY, 6, off(lambda at: -1.0 if 2 * 3600 < (at - DAY).total_seconds() < 4 * 3600 else 0.0)
                )
            },
            6,
            warns=("set back by 3600 s, and was right again later",),
        ),
        id="a-clock-set-back-an-hour-and-right-again-gives-none-either",
    ),
    pytest.param(
        Story(
            {"a.log": log(DAY, 6, off(lambda at: 1.0 if at > utc("2026-06-01T03:00:00") else 0.0))},
            6,
            other_h=1.0,
        ),
        id="a-clock-set-forward-cannot-be-told-from-an-hour-of-silence",
    ),
    pytest.param(
        Story(
            {"a.log": log(DAY, 6, slip(24, 12))}, 6, warns=("set forward at step 720, and was right again",)
        ),
        id="one-line-a-day-ahead-takes-no-day",
    ),
    pytest.param(
        Story({"a.log": log(DAY, 6, slip(64 * 8766, 12))}, 6, warns=("1 line is dated far ahead",)),
        id="one-line-of-the-year-2090",
    ),
    pytest.param(
        Story({"a.log": log(DAY, 6, slip(24, 12, 13))}, 6, warns=("2 lines are dated far ahead",)),
        id="two-lines-in-a-row-a-day-ahead",
    ),
    pytest.param(
        Story(
            {"a.log": log(DAY, 3, slip(24, 12)), "b.log": log(DAY + dt.timedelta(hours=3), 3, since=1080)},
            6,
            attempts=2,
            warns=("attempt 1: the log's clock was set forward at step 720",),
        ),
        id="one-line-a-day-ahead-and-another-launch",
    ),
    pytest.param(
        Story(
            {
                "a.log": log(DAY, 3),
                "b.log": log(
                    DAY + dt.timedelta(hours=3, seconds=30), 3, off(lambda at: -40 / 3600), since=1080
                ),
            },
            6,
            attempts=2,
            within_s=45.0,
        ),
        id="the-next-nodes-clock-is-forty-seconds-behind",
    ),
    pytest.param(
        Story(
            {"a.log": log(DAY, 3), "b.log": log(DAY + dt.timedelta(hours=2), 3, since=720)},
            5,
            attempts=2,
            lost_h=1.0,
            rows=(
                (1, DAY, DAY + dt.timedelta(hours=3)),
                (2, DAY + dt.timedelta(hours=2), DAY + dt.timedelta(hours=5)),
            ),
        ),
        id="two-jobs-that-overlap-in-time-both-cost-what-they-held",
    ),
    pytest.param(
        Story(
            {"a.log": log(DAY, 3), "b.log": log(DAY + dt.timedelta(hours=2), 3, since=720)},
            5,
            attempts=2,
            lost_h=1.0,
        ),
        id="logs-that-overlap-in-time-and-no-scheduler",
    ),
]


def told(story: Story, folder: Path) -> Snapshot:
    """Read the story's logs in the real way; return the run."""
    (folder / "run.toml").write_text(CONFIG.format(zone=story.zone) + story.config)
    for name, text in story.logs.items():
        place = folder / ("berlin" if story.config and name == "b.log" else "logs")
        place.mkdir(exist_ok=True)
        (place / name).write_text(text)
    if story.rows:
        lines = ["JobID|JobName|State|Submit|Start|End|NNodes|NCPUS|AllocTRES"]
        for job, begun, ended in story.rows:
            at = f"{begun:%Y-%m-%dT%H:%M:%S}"
            lines.append(f"{job}|train|COMPLETED|{at}|{at}|{ended:%Y-%m-%dT%H:%M:%S}|1|8|gres/gpu=8")
        (folder / "sacct.txt").write_text("\n".join(lines) + "\n")
        with (folder / "run.toml").open("a") as out:
            out.write('[[source]]\ncollector = "slurm"\npath = "sacct.txt"\n')
    config = app.load_config(folder / "run.toml")
    app.ingest_once(config, final=True)
    return app.snapshot_now(config, as_of_us=round(story.as_of.timestamp() * 1e6))


@pytest.mark.parametrize("story", STORIES)
def test_the_ledger_of_a_run_whose_clocks_are_not_what_they_should_be(story: Story, tmp_path: Path) -> None:
    """The work is counted once and whole, nothing is negative, attempts are in order, and a skew is named."""
    run = told(story, tmp_path)

    assert run.wall_us["productive"] / 1e6 == pytest.approx(story.productive_h * 3600, abs=story.within_s)
    assert run.wall_us["lost"] / 1e6 == pytest.approx(story.lost_h * 3600, abs=story.within_s)
    assert run.wall_us["other"] / 1e6 == pytest.approx(story.other_h * 3600, abs=story.within_s)
    for line in run.attempts:
        spans = {name: value for name, value in line.wall_us.items() if name != "allocated"}
        assert min(spans.values()) >= 0
        assert sum(spans.values()) == line.wall_us["allocated"]
    assert len(run.attempts) == story.attempts
    assert [line.start_us for line in run.attempts] == sorted(line.start_us for line in run.attempts)
    spoken = [text for text in run.warnings if "clock" in text]
    assert len(spoken) == len(story.warns)
    for words in story.warns:
        assert any(words in text for text in spoken)


@pytest.mark.parametrize(
    ("lead", "words"),
    [
        pytest.param(dt.timedelta(hours=2), ("2 h 00 min after now", "zone"), id="a-zone-that-is-another"),
        pytest.param(dt.timedelta(seconds=400), ("400 s after now", "clock"), id="a-clock-that-is-ahead"),
        pytest.param(dt.timedelta(seconds=50), (), id="nodes-that-differ-by-seconds"),
    ],
)
def test_the_sidecar_says_that_a_logs_clock_is_ahead_of_the_hosts(
    lead: dt.timedelta, words: tuple[str, ...], tmp_path: Path
) -> None:
    """What lies in the future does not count yet; the problems name by how much, and the likely cause."""
    (tmp_path / "run.toml").write_text(CONFIG.format(zone="UTC"))
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text(log(DAY, 4))
    now = DAY + dt.timedelta(hours=4) - lead
    clock = Hands(round(now.timestamp() * 1e6))
    with app.open_work(app.load_config(tmp_path / "run.toml"), clock) as work:
        work.read()
        run = work.snapshot(as_of_us=clock.now_us())
        problems = work.vitals().problems

    assert run.steps.last is not None
    assert run.steps.last <= (now - DAY).total_seconds() // 10
    assert len(problems) == bool(words)
    for word in words:
        assert word in problems[0]


@pytest.mark.parametrize(
    ("hours", "bad"),
    [
        pytest.param(24, (12,), id="a-day"),
        pytest.param(64 * 8766, (12,), id="the-year-2090"),
        pytest.param(24, (12, 13), id="two-in-a-row"),
        pytest.param(24, (12, 15), id="twice"),
        pytest.param(24, (18,), id="the-last-line"),
    ],
)
def test_a_live_run_goes_on_after_a_line_that_is_dated_ahead(
    hours: float, bad: tuple[int, ...], tmp_path: Path
) -> None:
    """It waits for the next line, and says why; then all counts, as for a reader who comes later."""
    (tmp_path / "run.toml").write_text(CONFIG.format(zone="UTC"))
    (tmp_path / "logs").mkdir()
    lines = log(DAY, 3, slip(hours, *bad)).splitlines(keepends=True)
    clock = Hands(round(DAY.timestamp() * 1e6))
    config = app.load_config(tmp_path / "run.toml")
    live = {}
    with app.open_work(config, clock) as work:
        for number, line in enumerate(lines):
            clock.us = round(DAY.timestamp() * 1e6) + number * LINE_S * 1_000_000 + 1_000_000
            with (tmp_path / "logs" / "a.log").open("a") as out:
                out.write(line)
            work.read()
            run = live[clock.us] = work.snapshot(as_of_us=clock.now_us())
            problems = work.vitals().problems
            known = max((n for n in range(number + 1) if n not in bad), default=0)
            assert run.steps.last == (known * 60 if known else None)
            assert bool(problems) == (number in bad)
            assert not problems or "after now" in problems[0]
    told = [text for text in run.warnings if "set forward" in text]
    assert len(told) == (bad != (18,))

    fresh = tmp_path / "later"
    fresh.mkdir()
    (fresh / "run.toml").write_text(CONFIG.format(zone="UTC"))
    (tmp_path / "logs").rename(fresh / "logs")
    config = app.load_config(fresh / "run.toml")
    app.ingest_once(config, final=True)
    for as_of_us, then in list(live.items())[1:]:  # a banner alone is known with the line after it
        assert app.snapshot_now(config, as_of_us=as_of_us) == then


def test_the_sidecar_says_that_a_logs_clock_is_behind_the_hosts(tmp_path: Path) -> None:
    """Each line that is read as it comes says that it is an hour old: told with its cause."""
    (tmp_path / "run.toml").write_text(CONFIG.format(zone="UTC"))
    (tmp_path / "logs").mkdir()
    lines = log(DAY, 2).splitlines(keepends=True)
    path = tmp_path / "logs" / "a.log"
    path.write_text("".join(lines[:3]))
    clock = Hands(round((DAY + dt.timedelta(hours=1, minutes=20)).timestamp() * 1e6))
    problems = []
    with app.open_work(app.load_config(tmp_path / "run.toml"), clock) as work:
        for line in lines[3:10]:
            work.read()
            work.snapshot(as_of_us=clock.now_us())
            problems.append(work.vitals().problems)
            clock.us += 60_000_000
            work.read()
            work.snapshot(as_of_us=clock.now_us())
            clock.us += 60_000_000 - 50_000_000
            with path.open("a") as out:
                out.write(line.replace(line[2:28], plain(_us(clock.us) - dt.timedelta(hours=1))))

    assert problems[0] == ()
    assert "come 1 h 00 min after the time they carry" in problems[-1][0]
    assert "zone" in problems[-1][0]


def _us(moment: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(moment / 1e6, dt.UTC)

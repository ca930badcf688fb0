"""What wraps a line, what its numbers and stamps mean, and how the lines that matter are found."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors._clock import short_us, stamp_us, wall_us, whole_second
from collectors._container import joined
from collectors._lines import Hit, Reader, fresh, rule, started
from collectors._scan import Scanner
from collectors._text import clean, real, scaled, seconds_us, segments, whole
from tracker.core.records import Kind, Reading, Record
from tracker.interfaces import Context

BERLIN = ZoneInfo("Europe/Berlin")


def naive(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


def utc_us(text: str) -> int:
    moment = dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


# -- prefixes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "text", "label"),
    [
        (b"  0: step: 1", b"step: 1", b"0"),
        (b"1023: step: 1", b"step: 1", b"1023"),
        (b"[default7]: step: 1", b"step: 1", b"default7"),
        (b"[default7]:step: 1", b"step: 1", b"default7"),
        (b"[rank0]:[titan] step: 1", b"[titan] step: 1", b"rank0"),
        (b"i.pretrain/0 [rank4]:step: 1", b"step: 1", b"rank4"),
        (b"slurm_procid 0 : step: 1", b"step: 1", b"0"),
        (b"[1,12]<stdout>:step: 1", b"step: 1", b"12"),
        (b" 3: [rank3]: [1,3]<stderr>: step: 1", b"step: 1", b"3"),
        (b"\x1b[32mstep: 1\x1b[0m", b"step: 1", b""),
        (b"[31mstep:  1[0m", b"step:  1", b""),
        (b" step: 1", b" step: 1", b""),
        (b"12: 34: 56: 78: four", b"78: four", b"56"),
        (b"1/100 loss: 2", b"1/100 loss: 2", b""),
        (b"[5 m] is no colour", b"[5 m] is no colour", b""),
        (b"arr[1] = 2", b"arr[1] = 2", b""),
        (b"step: 1\r", b"step: 1", b""),
    ],
    ids=lambda value: value.decode() if isinstance(value, bytes) and value.count(b" ") else "",
)
def test_what_a_launcher_puts_before_a_line_is_taken_off(line: bytes, text: bytes, label: bytes) -> None:
    """Up to three prefixes, the innermost label kept; what only looks like one stays."""
    found = clean(line, 5)

    assert (found.text, found.label, found.offset) == (text, label, 5)


@pytest.mark.parametrize(
    ("line", "stamp"),
    [
        (b"2025-11-05T00:40:00.149897031+07:00 step: 1", b"2025-11-05T00:40:00.149897031+07:00"),
        (b"2019-04-30T02:12:41.8443515Z stdout F step: 1", b"2019-04-30T02:12:41.8443515Z"),
        (b"2019-04-30T02:12:41Z stderr P step: 1", b"2019-04-30T02:12:41Z"),
    ],
    ids=["kubectl", "container", "piece"],
)
def test_a_stamp_with_its_zone_before_a_line_is_its_time(line: bytes, stamp: bytes) -> None:
    """Only containers and kubectl know the real offset: their stamp is kept beside the text."""
    found = clean(line)

    assert (found.text, found.stamp) == (b"step: 1", stamp)


def test_a_progress_bar_is_one_segment_for_each_time_it_was_drawn() -> None:
    """Each segment knows its own place in the file."""
    assert list(segments(b"a\rbc\r\rd", 10)) == [(10, b"a"), (12, b"bc"), (16, b"d")]


@given(st.binary(max_size=300))
def test_any_line_can_be_cleaned(line: bytes) -> None:
    """Whatever bytes come, cleaning never raises and never makes a line longer."""
    assert len(clean(line).text) <= len(line)


def test_pieces_of_a_container_line_come_together() -> None:
    """A line of 16 KiB pieces is one line, placed at its last piece, whatever else is printed between."""
    block = b"".join([
        b"2026-01-01T00:00:00Z stdout P one \n",
        b"2026-01-01T00:00:01Z stderr F other\n",
        b"2026-01-01T00:00:02Z stdout P two \n",
        b"2026-01-01T00:00:03Z stdout F three\n",
    ])
    text, places = joined(block, Context(offset=1000))

    assert text == b"2026-01-01T00:00:01Z other\n2026-01-01T00:00:00Z one two three\n"
    assert places.at(0) == 1000 + block.index(b"2026-01-01T00:00:01Z")
    assert places.at(30) == 1000 + block.index(b"2026-01-01T00:00:03Z")


# -- numbers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [b"", b"-1", b"1.0", b"1_000", b"x", b"9" * 19, None], ids=repr)
def test_what_is_no_count_is_none(text: bytes | None) -> None:
    """A torn or absurd count is not guessed at."""
    assert whole(text) is None


@pytest.mark.parametrize("text", [b"nan", b"inf", b"-inf", b"1e400", b"", b"N/A", None], ids=repr)
def test_what_is_no_finite_number_is_none(text: bytes | None) -> None:
    """NaN and infinity are not values."""
    assert real(text) is None
    assert seconds_us(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"1.258B", (1_258_000_000, True)),
        (b"85.8G", (85_800_000_000, True)),
        (b"11.5K", (11_500, True)),
        (b"2.147T", (2_147_000_000_000, True)),
        (b"20,155,564,032", (20_155_564_032, False)),
        (b"0.84", (1, True)),
        (b"1e308", None),
        (b"99999E", None),
    ],
    ids=lambda value: value.decode() if isinstance(value, bytes) else "",
)
def test_a_suffix_means_that_print_rounded_the_count(text: bytes, value: tuple[int, bool] | None) -> None:
    """1.258B is not an odometer to take differences of, and says so."""
    assert scaled(text) == value


# -- stamps ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stamp", "expected"),
    [
        (b"2026-03-02 10:00:28", "2026-03-02T09:00:28"),
        (b"2026-03-02 10:00:28.123456", "2026-03-02T09:00:28.123456"),
        (b"2026-03-02 10:00:28,123", "2026-03-02T09:00:28.123"),
        (b"2026-03-02T10:00:28", "2026-03-02T09:00:28"),
        (b"2026-03-02_10:00:28", "2026-03-02T09:00:28"),
        (b"2026-03-02T10:00:28Z", "2026-03-02T10:00:28"),
        (b"2026-03-02T10:00:28.149897031+07:00", "2026-03-02T03:00:28.149897"),
        (b"2026-03-02T10:00:28-0330", "2026-03-02T13:30:28"),
        (b"2026-07-02 10:00:28", "2026-07-02T08:00:28"),
    ],
    ids=lambda value: value.decode() if isinstance(value, bytes) else "",
)
def test_a_stamp_without_a_zone_is_local_time(stamp: bytes, expected: str) -> None:
    """The context's zone holds where the stamp has none; winter and summer differ."""
    assert stamp_us(stamp, Context(zone=BERLIN)) == utc_us(expected)


@pytest.mark.parametrize(
    "stamp",
    [
        b"1970-01-01 00:00:10",
        b"1999-12-31 23:59:59",
        b"2100-01-01 00:00:00",
        b"2106-02-07 06:28:15",
        b"2026-13-01 00:00:00",
        b"2026-02-30 00:00:00",
        b"2026-01-01 24:00:01",
        b"2026-01-01 00:00:60",
        b"1970-01-01T00:00:10Z",
        b"0000-00-00 00:00:00",
    ],
    ids=bytes.decode,
)
def test_a_time_that_cannot_be_is_none(stamp: bytes) -> None:
    """Clocks that were never set, and dates that no calendar has."""
    context = Context()

    assert stamp_us(stamp, context) is None
    assert "clock" not in context.state


def test_the_hour_that_exists_twice_goes_by_the_stamp_before_it() -> None:
    """Read in order, times never go back by an hour when summer time ends."""
    context = Context(zone=BERLIN)
    stamps = [b"01:50:00", b"02:10:00", b"02:50:00", b"02:05:00", b"02:55:00", b"03:10:00"]
    times = [stamp_us(b"2025-10-26 " + stamp, context) for stamp in stamps]

    assert times == [
        utc_us(f"2025-10-{day}:00")
        for day in ("25T23:50", "26T00:10", "26T00:50", "26T01:05", "26T01:55", "26T02:10")
    ]


def test_writers_that_lag_a_little_do_not_jump_an_hour() -> None:
    """Within the double hour, a stamp a few seconds behind the last one is of the same hour."""
    context = Context(zone=BERLIN)
    first = stamp_us(b"2025-10-26 02:10:05", context)
    second = stamp_us(b"2025-10-26 02:10:03", context)

    assert first is not None
    assert second == first - 2_000_000


def test_the_hour_that_never_exists_is_read_with_the_offset_before_it() -> None:
    """02:30 on the night when clocks go forward: a clock that was not moved, thirty minutes after 02:00."""
    context = Context(zone=BERLIN)

    assert stamp_us(b"2026-03-29 02:30:00", context) == utc_us("2026-03-29T01:30:00")


@given(
    st.datetimes(min_value=naive("2000-01-02"), max_value=naive("2037-12-30")),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"]),
)
@settings(deadline=None)
def test_stamping_agrees_with_the_standard_library(moment: dt.datetime, zone: str) -> None:
    """However a stamp is read, fast or slow, the time is the zone's (first of two where there are two)."""
    expected = moment.replace(tzinfo=ZoneInfo(zone), fold=0)
    text = moment.strftime("%Y-%m-%d %H:%M:%S.%f").encode()
    since = expected - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

    assert stamp_us(text, Context(zone=ZoneInfo(zone))) == since // dt.timedelta(microseconds=1)


@given(st.lists(st.datetimes(naive("2025-10-25T12"), naive("2025-10-26T22")), min_size=2, max_size=40))
@settings(deadline=None)
def test_times_read_in_order_do_not_go_back(moments: list[dt.datetime]) -> None:
    """UTC moments printed as local wall time over the change come back in order, none before the last."""
    context = Context(zone=BERLIN)
    real_times = sorted(moment.replace(tzinfo=dt.UTC) for moment in moments)
    printed = [moment.astimezone(BERLIN).strftime("%Y-%m-%d %H:%M:%S").encode() for moment in real_times]
    read = [stamp_us(text, context) for text in printed]

    assert all(a is not None and b is not None and b >= a - 120_000_000 for a, b in itertools.pairwise(read))


@pytest.mark.parametrize(
    ("month", "day", "expected"),
    [(6, 2, "2026-06-02T11:18:53.865680"), (12, 31, None), (5, 31, None), (2, 30, None)],
    ids=["same day", "too far ahead", "before", "no such day"],
)
def test_a_stamp_without_a_year_takes_the_year_of_the_one_before(
    month: int, day: int, expected: str | None
) -> None:
    """The C++ logger prints E602 11:18:53: known only where another stamp came before."""
    context = Context()
    assert short_us(month, day, b"11:18:53.865680", context) is None
    stamp_us(b"2026-06-02 10:00:00", context)

    found = short_us(month, day, b"11:18:53.865680", context)

    assert found == (None if expected is None else utc_us(expected))


def test_the_year_turns_between_two_stamps() -> None:
    """In January the stamp without a year is of the new year."""
    context = Context()
    stamp_us(b"2025-12-31 23:59:50", context)

    assert short_us(1, 1, b"00:00:10", context) == utc_us("2026-01-01T00:00:10")


def test_whole_seconds_are_seen() -> None:
    """Only a printed fraction makes a stamp exact."""
    assert whole_second(b"2026-07-01 12:00:00")
    assert not whole_second(b"2026-07-01 12:00:00.0")
    assert wall_us(b"2026-07-01 12:00:00") == utc_us("2026-07-01T12:00:00")


# -- finding lines ---------------------------------------------------------------------------------------

_GATES = [b"rror", b"CANCELLED AT", b"Xid (", b"datetime: ", b"iteration ", b"Watchdog caught"]
_WORDS = st.sampled_from(
    b"rror/error 17/CANCELLED/ AT/CANCELLED AT/Xid (/iteration 12/iteration/NCCL INFO/0x1f3a/12/foo/r r o r/"
    b"Watchdog/ caught/datetime:/ ".split(b"/")
)


@given(st.lists(st.lists(_WORDS, max_size=5).map(b" ".join), max_size=200), st.integers(1, 4), st.booleans())
@settings(deadline=None, max_examples=60)
def test_the_scan_finds_what_a_look_at_each_line_finds(lines: list[bytes], pieces: int, few: bool) -> None:
    """Shapes, gates, blocks of any size, a memory of dull shapes: the same lines in the same order."""
    gates = _GATES[:2] if few else _GATES
    scanner = Scanner(gates)
    for part in range(pieces):
        mine = lines[part::pieces]
        block = b"\n".join(mine) + b"\n"
        expected, at = {}, 0
        for line in mine:
            held = [gate for gate in gates if gate in line]
            if held:
                expected[at] = held
            at += len(line) + 1
        found = scanner.lines(block)
        assert list(found) == list(expected)
        assert [sorted(held) for held in found.values()] == [sorted(held) for held in expected.values()]


def test_a_scan_of_text_that_never_repeats_still_finds_all() -> None:
    """Where learning shapes does not pay, they are not learnt, and nothing is missed."""
    lines = [
        b"word%s zq%s" % (bytes([97 + i % 26, 97 + i // 26 % 26]), b"xyz"[i % 3 :] * (i % 50))
        for i in range(3000)
    ]
    lines[1500] = b"slurmstepd: error: *** CANCELLED AT"
    scanner = Scanner(_GATES)
    for _ in range(20):
        assert len(scanner.lines(b"\n".join(lines))) == 1


# -- reading ---------------------------------------------------------------------------------------------


def _reading(step: int, at_s: float | None, offset: int) -> Reading:
    return Reading(offset, None if at_s is None else 1_767_225_600_000_000 + round(at_s * 1e6), step)


def test_a_record_of_many_ranks_is_kept_once() -> None:
    """Also where the ranks' lines come out of order; the others are counted."""
    state: dict[str, object] = {}
    kept = [
        fresh(state, _reading(step, at_s, offset))
        for step, at_s, offset in [
            (1, 0, 0),
            (1, 0.5, 100),
            (2, 3, 200),
            (1, 1, 300),
            (2, 3.5, 400),
            (3, 6, 500),
        ]
    ]

    assert kept == [True, False, True, False, False, True]
    assert state["copies"] == 3


def test_a_step_done_again_is_news() -> None:
    """Much later by the clock, far away in a log without one, or after a start."""
    state: dict[str, object] = {}
    assert fresh(state, _reading(5, 0, 0))
    assert fresh(state, _reading(5, 60, 100))
    assert fresh(state, _reading(6, None, 200))
    assert not fresh(state, _reading(6, None, 300))
    assert fresh(state, _reading(6, None, 300_000))
    started(state)
    assert fresh(state, _reading(6, None, 300_100))


def test_a_record_of_several_lines_goes_on_over_blocks() -> None:
    """Lines asked for come whatever they hold, also in the next block, and no more of them than asked."""

    def begin(hit: Hit) -> list[Record]:
        hit.open("more", 2)
        return [hit.event(Kind.NOTE)]

    def more(hit: Hit) -> list[Record]:
        return [hit.event(Kind.NOTE, text_of=hit.text.decode())]

    reader = Reader((rule(b"BEGIN", rb"BEGIN", begin),), followers={"more": more})
    context = Context()
    blocks = [b"a\nBEGIN\n", b"b\n", b"c\nd\n"]
    found = []
    for block in blocks:
        found += [(event.offset, event.data.get("text_of")) for event in reader.parse(block, context)]  # type: ignore[union-attr]
        context.offset += len(block)
        context.state = json.loads(json.dumps(context.state))

    assert found == [(2, None), (8, "b"), (10, "c")]
    assert context.state.get("open") is None


@pytest.mark.parametrize("month", range(1, 13))
def test_the_year_of_a_source_dates_its_first_stamp(month: int) -> None:
    """Any month of it, and the next year once the log has gone on past its end."""
    from collectors._process import with_year

    context = Context(options={"year": 2026})
    with_year(context)

    first = short_us(month, 3, b"11:18:53.865680", context)

    assert first == int(dt.datetime(2026, month, 3, 11, 18, 53, tzinfo=dt.UTC).timestamp()) * 10**6 + 865_680

"""The ledger against the truth of simulated runs: the whole path from text to buckets, format by format.

Text comes from the simulator, records from the real collectors, the ledger from the real core; what it
must say comes from the state machine and the design's words (tests/simulator/truth.py), never from the text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from collectors import named
from tests.factories import ListFacts, facts_from, facts_from_logs
from tests.simulator import PRESETS, Run, Truth, contents, moments, observe, preset, simulate, truth, written
from tests.simulator.configure import COLLECTORS
from tests.simulator.machine import SECOND
from tests.simulator.parameters import START_US, Style
from tests.simulator.sight import SIGHTS
from tests.simulator.truth import BUCKETS, AttemptTruth
from tracker.core.book import Book
from tracker.core.documents import interruptions_document, ledger_document, status_document
from tracker.core.ledger import AttemptLine
from tracker.core.records import END_KINDS, Event, Flag, Kind, Reading, SchedulerRow
from tracker.core.settings import Hardware, Model, Reservation, Settings, SourceSettings
from tracker.core.snapshot import Snapshot
from tracker.core.summary import snapshot

pytestmark = pytest.mark.slow
"""Whole processes and long histories: not what one runs before each commit."""

NAMES = [name for name in PRESETS if name != "demo"]
SEEDS = range(1, 21)
CLOCKED: tuple[Style, ...] = ("megatron", "megatron_0_8", "jsonl")
"""Formats whose training lines carry a stamp."""
WORK = {"productive", "lost"}
"""What a window's time is, whatever became of its steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Within:
    """How far a ledger may be from the truth, in wall microseconds of one attempt."""

    boundary_us: int
    """For a bucket: what the places where its spans meet may be off by."""
    share: float = 0.0
    """Of a bucket: what the rounding of printed step times adds up to."""


EXACT = Within(boundary_us=10_000)
SECONDS = Within(boundary_us=1_100_000)


def settings_of(run: Run) -> Settings:
    """Return what the run's config would say."""
    p = run.parameters
    return Settings(
        run="simulated",
        model=Model(active_params=p.active_params, sequence_length=p.sequence_length),
        hardware=Hardware(gpu="h100-sxm", peak_flop_per_s=p.peak_flop_per_s, gpus=p.gpus),
        sources=(SourceSettings(), SourceSettings(job_name="pretrain")),
    )


def read(run: Run, *, until_us: int | None = None) -> ListFacts:
    """Return the facts that the real collectors read from the run's text, as it stands at a moment."""
    files = contents(run, until_us=until_us)
    logs = {name.removeprefix("logs/"): body for name, body in files.items() if name.startswith("logs/")}
    scheduler = {name: body for name, body in files.items() if name == "sacct.txt"}
    return facts_from_logs(
        logs,
        named(COLLECTORS[run.parameters.style]),
        scheduler,
        named("slurm"),
        written_us=written(run, until_us=until_us),
    )


def told(run: Run, *, until_us: int | None = None) -> ListFacts:
    """Return the facts that a perfect collector would read, with no text between."""
    files, rows = observe(run, until_us=until_us)
    return facts_from(files, rows)


def answer(run: Run, facts: ListFacts, as_of_us: int) -> Snapshot:
    """Return the tracker's answer."""
    return snapshot(Book(settings_of(run)), facts, as_of_us=as_of_us)


@cache
def played(name: str, seed: int, style: Style) -> tuple[Run, ListFacts]:
    """Return a run and the facts read from its text."""
    run = simulate(preset(name, seed=seed, style=style))
    return run, read(run)


def differences(
    got: Snapshot, right: Truth, within: Within, *, merge: Iterable[set[str]] = (), tokens: bool = True
) -> list[str]:
    """Return every bucket of every attempt that lies outside; those of a `merge` count together."""
    found = []
    if len(got.attempts) != len(right.attempts):
        found.append(f"{len(got.attempts)} attempts, expected {len(right.attempts)}")
    for line, row in zip(got.attempts, right.attempts, strict=False):
        found += _attempt(line, row, within, list(merge))
        if tokens and line.tokens_net != row.net_tokens:
            found.append(f"attempt {row.attempt} net tokens: {line.tokens_net} for {row.net_tokens}")
    return found


def _attempt(line: AttemptLine, row: AttemptTruth, within: Within, merge: list[set[str]]) -> list[str]:
    assert line.gpu_us is not None
    found = []
    if abs(line.gpu_us["allocated"] - row.allocated) > within.boundary_us * row.gpus:
        found.append(f"attempt {row.attempt} allocated: {line.gpu_us['allocated']} for {row.allocated}")
    groups = [*merge, *({name} for name in BUCKETS if not any(name in group for group in merge))]
    for group in groups:
        got = sum(line.gpu_us[name] for name in group) / row.gpus
        right = sum(row.buckets[name] for name in group) / row.gpus
        if abs(got - right) > within.boundary_us + within.share * right + 0.25 * row.guessed_us:
            name = "+".join(sorted(group))
            found.append(f"attempt {row.attempt} {name}: {got / SECOND:.3f} s for {right / SECOND:.3f} s")
    return found


def within_of(style: Style) -> Within:
    """Return how near a format allows."""
    return EXACT if SIGHTS[style].stamp_us == 1 else SECONDS


def shown(found: dict[str, list[str]]) -> str:
    """Return differences by run as a text that a failure can show."""
    return "\n".join(f"{key}: {'; '.join(bad[:6])}" for key, bad in found.items() if bad)


# -- at the end of the observation -----------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("style", CLOCKED)
def test_every_bucket_of_every_attempt_is_true(style: Style, name: str) -> None:
    """Text in, ledger out: each bucket as near to what happened as the stamps are fine, tokens exact.

    A save with a stamp is a reading: what a resume throws away begins there, to the millisecond.
    """
    found = {}
    for seed in SEEDS if style == "megatron" else SEEDS[:10]:
        run, facts = played(name, seed, style)
        got, right = answer(run, facts, run.now_us), truth(run)
        bad = differences(got, right, within_of(style))
        bad += [f"reject: {reject.reason}" for reject in facts.rejects]
        if got.gpu_us is not None and got.gpu_us["other"] > 0.005 * got.gpu_us["allocated"]:
            bad.append(f"other: {got.gpu_us['other']} of {got.gpu_us['allocated']}")
        found[f"seed {seed}"] = bad
    assert not shown(found)


@pytest.mark.parametrize("name", NAMES)
def test_counts_are_exact(name: str) -> None:
    """Steps and tokens, retained, processed, unseen, inherited: no rounding anywhere."""
    for seed in SEEDS:
        run, facts = played(name, seed, "megatron")
        got, right = answer(run, facts, run.now_us), truth(run)
        assert got.steps.net == right.net_steps
        assert got.steps.processed == right.processed_steps
        assert got.steps.unseen == right.unseen_steps
        assert got.steps.inherited == right.inherited_steps
        assert got.tokens.net == right.net_tokens
        assert got.tokens.processed == right.processed_tokens
        assert got.tokens.inherited == right.inherited_tokens
        assert got.state == right.state


@pytest.mark.parametrize("style", ["megatron_old", "bloom"])
def test_without_a_clock_the_work_is_nearly_true(style: Style) -> None:
    """Step times that hold everything, in a log without stamps: work within 2 %, the allocation exact."""
    found = {}
    for seed in SEEDS:
        run, facts = played("clockless", seed, style)
        got, right = answer(run, facts, run.now_us), truth(run)
        loose = Within(boundary_us=2_000_000, share=0.02)
        around = [{"startup", "tail", "pending", "other"}, WORK | {"evaluation"}]
        found[f"seed {seed}"] = differences(got, right, loose, merge=around)
    assert not shown(found)


CAUSE = {"node": "unknown", None: "unknown"}
"""What can be known of a cause of the simulator where that is less: a silent host tells nothing."""


@pytest.mark.parametrize("name", NAMES)
def test_interruptions_cost_what_they_cost(name: str) -> None:
    """Each end that was not the end of training: when, how, why, and how long until steps were done again."""
    found = []
    for seed in SEEDS:
        run, facts = played(name, seed, "megatron")
        stops, right = answer(run, facts, run.now_us).interruptions, truth(run).interruptions
        assert [stop.attempt for stop in stops] == [true.attempt for true in right]
        for stop, true in zip(stops, right, strict=True):
            silent = run.attempts[true.attempt - 1].first_line_us is None and true.kind == "failed"
            cause = "unknown" if silent else CAUSE.get(true.cause, true.cause)
            cause = cause if true.kind in ("failed", "preempted") else stop.cause
            restart_s = None if true.restart_us is None else true.restart_us / SECOND
            told_us = stop.at_us, stop.kind == "planned", stop.cause, stop.redo_steps
            if told_us != (true.at_us, true.planned, cause, true.redo_steps):
                found.append(
                    f"seed {seed}: {told_us} for {(true.at_us, true.planned, cause, true.redo_steps)}"
                )
            assert stop.restart_s == (None if restart_s is None else pytest.approx(restart_s, abs=0.01))
            if true.detect_us and stop.detect_s is not None:
                assert stop.detect_s == pytest.approx(true.detect_us / SECOND, abs=0.01)
    assert not found


@pytest.mark.parametrize("name", NAMES)
def test_laws_hold_on_ledgers_that_come_out_of_logs(name: str) -> None:
    """MFU over the allocation is MFU of the work times goodput; with the price, the run drops out."""
    for seed in SEEDS[:6]:
        run, facts = played(name, seed, "megatron")
        got = answer(run, facts, run.now_us)
        if not got.tokens.seen:
            continue
        eff, price = got.mfu, got.per_trillion.realised
        assert eff.allocated_ratio is not None
        assert eff.productive_ratio is not None
        assert eff.flop_per_token is not None
        assert got.goodput_ratio is not None
        assert price is not None
        assert eff.allocated_ratio == pytest.approx(eff.productive_ratio * got.goodput_ratio, rel=1e-12)
        law = 1e12 * eff.flop_per_token / (3600 * run.parameters.peak_flop_per_s)
        assert price * eff.allocated_ratio == pytest.approx(law, rel=1e-12)
        right = truth(run)
        assert got.goodput_ratio == pytest.approx(right.goodput, rel=1e-4)
        assert eff.six_n_productive_ratio == pytest.approx(right.mfu(run), rel=1e-4)


# -- at any other moment ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("style", ["megatron", "jsonl"])
def test_the_ledger_is_true_at_every_moment(style: Style, name: str) -> None:
    """Asked in mid-run, from all the text, it says what was true then."""
    found = {}
    for seed in SEEDS[:3]:
        run, facts = played(name, seed, style)
        book = Book(settings_of(run))
        for moment in moments(run, 15):
            got, right = snapshot(book, facts, as_of_us=moment), truth(run, as_of_us=moment)
            bad = differences(got, right, within_of(style))
            if got.state != right.state:
                bad.append(f"state {got.state} for {right.state}")
            if got.steps.net != right.net_steps:
                bad.append(f"net steps {got.steps.net} for {right.net_steps}")
            found[f"seed {seed} at {(moment - START_US) / SECOND:.0f} s"] = bad
    assert not shown(found)


@pytest.mark.parametrize("name", NAMES)
def test_what_no_checkpoint_covers_is_at_risk(name: str) -> None:
    """Steps above the lineage's last durable checkpoint, at any moment; all of them before the first save."""
    found = []
    for seed in SEEDS[:3]:
        run = simulate(preset(name, seed=seed, style="jsonl", asynchronous=False))
        facts = told(run)
        book = Book(settings_of(run))
        for moment in moments(run, 15):
            got = snapshot(book, facts, as_of_us=moment).steps.at_risk
            then = truth(run, as_of_us=moment)
            if then.last_step is not None and got != then.at_risk_steps:
                at = (moment - START_US) / SECOND
                found.append(f"seed {seed} at {at:.0f} s: {got} for {then.at_risk_steps}")
    assert not found


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("style", ["megatron", "megatron_0_8", "jsonl"])
def test_what_comes_later_changes_nothing(style: Style, name: str) -> None:
    """As of a moment, the whole text gives what the text of that moment gave, to the letter."""
    run = simulate(preset(name, seed=4, style=style))
    facts = read(run)
    for moment in moments(run, 6):
        moment = moment // SECOND * SECOND + 999_999
        now, then = answer(run, facts, moment), answer(run, read(run, until_us=moment), moment)
        assert status_document(now) == status_document(then)
        assert ledger_document(now) == ledger_document(then)
        assert interruptions_document(now) == interruptions_document(then)


@pytest.mark.parametrize("name", ["clockless", "elastic"])
def test_without_a_clock_no_more_is_retained_than_was_done(name: str) -> None:
    """Asked about a moment in mid-run, a log without stamps gives steps that fit together."""
    run, facts = played(name, 2, "bloom")
    for moment in moments(run, 10):
        steps = answer(run, facts, moment).steps
        assert steps.net - steps.unseen <= steps.processed


# -- any sequence at all ---------------------------------------------------------------------------------

MOMENT = st.integers(0, 4_000_000_000).map(lambda us: START_US + us)
STAMP = st.one_of(st.none(), MOMENT)
STEP = st.integers(0, 300)
LENGTH = st.one_of(st.none(), st.integers(0, 500_000_000))
FLAGS = st.sampled_from([
    0,
    int(Flag.STEP_TIME_EXCLUDES),
    int(Flag.STEP_TIME_INCLUDES),
    int(Flag.STEP_TIME_SAMPLE),
    int(Flag.STEP_TIME_EXCLUDES | Flag.WHOLE_SECOND),
    int(Flag.STEP_TIME_EXCLUDES | Flag.EXTRA),
    int(Flag.STEP_TIME_INCLUDES | Flag.NAN),
])
READING = st.builds(
    Reading,
    st.just(0),
    STAMP,
    STEP,
    st.one_of(st.none(), st.integers(1, 60_000_000)),
    samples=st.one_of(st.none(), st.integers(0, 10**6)),
    tokens=st.one_of(st.none(), st.integers(0, 10**9)),
    batch=st.one_of(st.none(), st.integers(0, 4096)),
    skipped=st.integers(0, 3),
    flags=FLAGS,
)
EVENT = st.builds(
    lambda kind, at_us, step, length, asynchronous, end_kind, gpus: Event(
        offset=0,
        kind=kind,
        at_us=at_us,
        step=step,
        duration_us=length,
        data={"async": asynchronous, "end_kind": end_kind, "gpus": gpus, "cause": "gpu", "fatal": True},
    ),
    st.sampled_from([kind for kind in Kind if kind is not Kind.SETTING]),
    STAMP,
    st.one_of(st.none(), STEP),
    LENGTH,
    st.booleans(),
    st.sampled_from(END_KINDS),
    st.integers(1, 64),
)
SETTING = st.builds(
    lambda gpus, length: Event(
        offset=0, kind=Kind.SETTING, data={"gpus": gpus, "sequence_length": length, "global_batch_size": 8}
    ),
    st.integers(1, 64),
    st.integers(1, 4096),
)
ROW = st.builds(
    lambda job, start, length, gpus, state: SchedulerRow(
        job_id=str(job),
        start_us=start // SECOND * SECOND,
        end_us=None if length is None else start // SECOND * SECOND + length,
        name="pretrain",
        state=state,
        gpus=gpus,
    ),
    st.integers(1, 3),
    MOMENT,
    LENGTH,
    st.one_of(st.none(), st.integers(1, 64)),
    st.sampled_from(["RUNNING", "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "PREEMPTED"]),
)


def _laid(records: list[Reading | Event], ordered: bool) -> list[Reading | Event]:
    """Return records with offsets as in a file, their stamps in order where that is asked for."""
    stamps = sorted(r.at_us for r in records if r.at_us is not None) if ordered else []
    laid: list[Reading | Event] = []
    for number, record in enumerate(records):
        at_us = stamps.pop(0) if ordered and record.at_us is not None else record.at_us
        if isinstance(record, Reading):
            laid.append(record._replace(offset=number * 10, at_us=at_us))
        else:
            laid.append(
                Event(
                    offset=number * 10,
                    kind=record.kind,
                    at_us=at_us,
                    step=record.step,
                    duration_us=record.duration_us,
                    data=record.data,
                )
            )
    return laid


FILE = st.builds(
    _laid, st.lists(st.one_of(READING, READING, EVENT, EVENT, SETTING), max_size=25), st.booleans()
)
ANYTHING = st.builds(
    lambda files, rows: facts_from({f"f{n}.log": own for n, own in enumerate(files)}, rows),
    st.lists(FILE, min_size=1, max_size=3),
    st.lists(ROW, max_size=3, unique_by=lambda row: (row.job_id, row.start_us)),
)


@limits(max_examples=300, deadline=None)
@given(facts=ANYTHING, as_of=MOMENT, reserved=st.booleans())
def test_the_ledger_closes_whatever_it_is_told(facts: ListFacts, as_of: int, reserved: bool) -> None:
    """Buckets of every attempt and of the run sum to the allocation exactly, in integers; none is below 0."""
    settings = Settings(
        run="any",
        billing="reservation" if reserved else "attempt",
        model=Model(active_params=1e9, sequence_length=128),
        hardware=Hardware(gpus=16, peak_flop_per_s=1e15),
        reservation=Reservation(start_us=START_US, gpus=32) if reserved else Reservation(),
        sources=(SourceSettings(job_name="pretrain"),),
    )
    got = snapshot(Book(settings), facts, as_of_us=as_of)
    for line in got.attempts:
        for held in (line.gpu_us, line.wall_us):
            assert held is not None
            parts = [held[name] for name in BUCKETS if name in held]
            assert all(isinstance(part, int) and part >= 0 for part in parts)
            assert sum(parts) == held["allocated"]
        assert line.steps_net >= 0
        assert line.steps_lost >= 0
    if got.gpu_us is not None:
        assert sum(got.gpu_us[name] for name in BUCKETS) == got.gpu_us["allocated"]
        assert all(got.gpu_us[name] >= 0 for name in BUCKETS)
    if got.goodput_ratio is not None:
        assert 0 <= got.goodput_ratio <= 1
    if got.mfu.allocated_ratio is not None and got.mfu.productive_ratio is not None:
        assert got.goodput_ratio is not None
        assert got.mfu.allocated_ratio == pytest.approx(got.mfu.productive_ratio * got.goodput_ratio)

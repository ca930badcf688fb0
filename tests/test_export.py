"""The history as OpenMetrics: what the page would have shown, at every moment, through real Prometheus."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.history_help import page_at, stored
from tests.tsdb_help import prometheus, samples
from tracker.cli import root
from tracker.config import Config
from tracker.core.errors import InvalidValue
from tracker.export import openmetrics
from tracker.export.history import RUN_FAMILIES, STEP_FAMILIES, History, Span, checked_labels
from tracker.export.source import history
from tracker.store import Reader

MINUTE_US = 60_000_000


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return stored(tmp_path_factory.mktemp("run"), run_name='odd "run"\\ ü')


def call(*words: str, check: int = 0) -> Result:
    done = CliRunner().invoke(root, words)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == check, done.output
    return done


def collected(run: Config, **changes: int) -> dict[tuple[tuple[str, str], ...], dict[int, float]]:
    """Return all samples of the history by series and millisecond."""
    found: dict[tuple[tuple[str, str], ...], dict[int, float]] = {}
    with history(run, {}) as past:
        span = past.span(since_us=None, until_us=None, now_us=2**60, every_s=60)
        assert span is not None
        for block in past.blocks(span):
            for line in block.lines:
                key = tuple(sorted([("__name__", line.family.name), *(p for p in line.labels if p[1])]))
                own = found.setdefault(key, {})
                for at_ms, value in zip(line.times_ms, line.values, strict=True):
                    assert at_ms not in own, "no moment twice"
                    assert not own or at_ms > max(list(own)[-1:]), "in order"
                    own[at_ms] = float(value)
    return found


@pytest.fixture(scope="module")
def told(run: Config) -> dict[tuple[tuple[str, str], ...], dict[int, float]]:
    return collected(run)


def test_a_sample_at_a_moment_is_what_the_page_showed_at_that_moment(
    run: Config, told: dict[tuple[tuple[str, str], ...], dict[int, float]]
) -> None:
    """Every family, every label: on the grid, not one more and not one less."""
    grid = sorted(next(own for key, own in told.items() if dict(key)["__name__"] == "training_goodput_ratio"))
    chance = random.Random(5)
    for at_ms in chance.sample(grid, 12):
        then = {key: own[at_ms] for key, own in told.items() if at_ms in own}

        assert then == page_at(run, at_ms * 1000)


def test_between_the_grid_each_reading_has_its_samples(
    run: Config, told: dict[tuple[tuple[str, str], ...], dict[int, float]]
) -> None:
    """Step, net tokens, processed tokens and step time stand at the readings too, and nothing else does."""
    between = {dict(key)["__name__"]: [at_ms for at_ms in own if at_ms % 60_000] for key, own in told.items()}
    assert {name for name, moments in between.items() if moments} == set(STEP_FAMILIES)
    with Reader(run.store) as reader:
        stamps = {
            -(-reading.at_us // 1000)
            for stream in reader.streams()
            for reading in reader.readings(stream.stream_id)
            if reading.at_us is not None
        }
    steps = {at for key, own in told.items() if dict(key)["__name__"] == "training_step" for at in own}
    assert stamps <= steps
    chance = random.Random(6)
    for at_ms in chance.sample(sorted(stamps), 10):
        page = page_at(run, at_ms * 1000)
        for key, own in told.items():
            if dict(key)["__name__"] in STEP_FAMILIES:
                assert own[at_ms] == page[key]


def test_a_history_from_the_middle_equals_the_middle_of_the_whole(
    run: Config, told: dict[tuple[tuple[str, str], ...], dict[int, float]]
) -> None:
    """--since and --until cut, and change no value."""
    moments = sorted({at for own in told.values() for at in own})
    since, until = moments[len(moments) // 3] * 1000 + 1, moments[2 * len(moments) // 3] * 1000
    with history(run, {}) as past:
        span = past.span(since_us=since, until_us=until, now_us=2**60, every_s=60)
        assert span is not None
        some = {
            (line.family.name, line.labels, at_ms): float(value)
            for block in past.blocks(span)
            for line in block.lines
            for at_ms, value in zip(line.times_ms, line.values, strict=True)
        }
    last_on_grid = until // MINUTE_US * MINUTE_US
    expected = {
        (dict(key)["__name__"], at_ms): value
        for key, own in told.items()
        for at_ms, value in own.items()
        if since <= at_ms * 1000 <= last_on_grid and dict(key)["__name__"] in STEP_FAMILIES
    }
    assert {(n, at): v for (n, _, at), v in some.items() if n in STEP_FAMILIES} == expected


def test_it_ends_the_linger_time_after_the_last_fact(run: Config) -> None:
    """By default; later the sidecar's own page is there."""
    with history(run, {}) as past:
        span = past.span(since_us=None, until_us=None, now_us=2**60, every_s=60)
        assert span is not None
        assert past.replay.ends_us is not None
        assert span.until_us == past.replay.ends_us + 3600 * 1_000_000
        assert list(span.moments()) == [m for m in span.moments() if m % MINUTE_US == 0]
        now = past.replay.ends_us - 5
        sooner = past.span(since_us=None, until_us=None, now_us=now, every_s=60)
    assert sooner is not None
    assert sooner.until_us == now, "never beyond now"


def test_the_text_is_what_the_reference_parser_reads(run: Config, tmp_path: Path) -> None:
    """Family after family, HELP and TYPE for each, counters and infos by their OpenMetrics names."""
    out = tmp_path / "run.om"

    done = call("export", "--config", str(run.path), "--openmetrics", str(out), "--every", "600",
                "--label", "job=training")  # fmt: skip

    text = out.read_text()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert len(families) == len(RUN_FAMILIES)
    assert text.endswith("# EOF\n")
    sample = families["training_processed_tokens"].samples[0]
    assert sample.labels == {"run": 'odd "run"\\ ü', "job": "training"}
    assert "samples" in done.output
    assert not list(tmp_path.glob(".*")), "nothing half written is left"


@pytest.mark.slow
@pytest.mark.prometheus
def test_prometheus_serves_the_blocks_and_answers_with_the_stores_values(
    run: Config, tmp_path: Path, promtool: str, told: dict[tuple[tuple[str, str], ...], dict[int, float]]
) -> None:
    """promtool makes blocks of the file, a real Prometheus serves them: exactly equal, sample by sample."""
    out = tmp_path / "run.om"
    call("export", "--config", str(run.path), "--openmetrics", str(out))
    subprocess.run(
        [promtool, "tsdb", "create-blocks-from", "openmetrics", str(out), str(tmp_path / "data")],
        check=True,
        capture_output=True,
    )
    moments = sorted({at for own in told.values() for at in own})

    with prometheus(tmp_path) as url:
        found = samples(url, '{__name__=~"training_.+"}', moments[0] * 1000, moments[-1] * 1000)

    assert found == told


def test_every_millisecond_survives_readers_that_cut_and_that_round() -> None:
    """Prometheus cuts seconds x 1000 to an integer; others round."""
    chance = random.Random(1)
    for _ in range(3000):
        at_ms = chance.randrange(946_684_800_000, 4_102_444_800_000)
        text = openmetrics.seconds(at_ms)
        assert int(float(text) * 1000) == at_ms
        assert round(float(text) * 1000) == at_ms


BAD: list[tuple[str, list[str], int, str]] = [
    ("neither history nor table is asked for", [], 2, "give --openmetrics FILE, or --table NAME"),
    ("both are", ["--openmetrics", "x", "--table", "ledger"], 2, "give --openmetrics FILE"),
    ("the history has no --as-of", ["--openmetrics", "x", "--as-of", "2026-01-05"], 2, "--since and --until"),
    ("a table has no --since", ["--table", "ledger", "--since", "2026-01-05"], 2, "takes --as-of"),
    ("an unknown table is named", ["--table", "losses"], 2, "losses"),
    ("a label without a value", ["--openmetrics", "x", "--label", "job"], 1, "NAME=VALUE"),
    ("a label of ours", ["--openmetrics", "x", "--label", "run=other"], 1, "no metric of ours uses itself"),
    ("a grid of no seconds", ["--openmetrics", "x", "--every", "0"], 2, "--every"),
    ("a folder that is not there", ["--table", "ledger", "--out", "no/such/x.csv"], 1,
     "no/such/x.csv: No such file"),
    ("a history that ends before it begins",
     ["--openmetrics", "x", "--since", "2026-01-06", "--until", "2026-01-05"], 1, "a moment before --until"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "status", "told"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_what_is_wrong_is_said(
    run: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], status: int, told: str
) -> None:
    monkeypatch.chdir(tmp_path)

    done = call("export", "--config", str(run.path), *words, check=status)

    assert told in done.output
    assert not list(tmp_path.iterdir()), "nothing is left behind"


def test_without_a_store_it_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('[run]\nname = "r"\n')

    done = call("export", "--config", str(tmp_path / "run.toml"), "--table", "ledger", check=1)

    assert "no store there yet. Run `tracker ingest" in done.output


def test_labels_are_checked() -> None:
    assert checked_labels(["job=training", "instance=n:9109"]) == {"job": "training", "instance": "n:9109"}
    for bad in ("", "=x", "1a=x", "__name__=x", "bucket=x", "a=\n"):
        with pytest.raises(InvalidValue):
            checked_labels([bad])


def test_a_run_that_nothing_is_known_of_has_no_history(tmp_path: Path) -> None:
    """An empty store: a file with headers and the end mark, and a word."""
    (tmp_path / "run.toml").write_text('[run]\nname = "r"\n[[source]]\npath = "*.log"\n')
    call("ingest", "--config", str(tmp_path / "run.toml"))

    done = call("export", "--config", str(tmp_path / "run.toml"), "--openmetrics", str(tmp_path / "x.om"))

    assert "nothing is known of the run yet" in done.output
    assert (tmp_path / "x.om").read_text().endswith("# EOF\n")


def test_kept_forecasts_are_shown_from_their_moment_on(run: Config) -> None:
    """At t the latest forecast made by then; before the first one there is none."""
    from dataclasses import replace

    from tracker.core.forecast.value import Forecast, Quantiles

    with Reader(run.store) as reader, reader.snapshot():
        past = History(settings=run.settings, facts=reader)
        begin = past.replay.begins_us
        assert begin is not None
        finish = Quantiles(p10=None, p50=begin + 10**12, p90=begin + 2 * 10**12)
        made = Forecast(as_of_us=begin + 20 * MINUTE_US, basis="measured", finish_us=finish)
        later = replace(made, as_of_us=begin + 40 * MINUTE_US, finish_us=Quantiles.exact(begin + 3 * 10**12))
        past.forecasts = [made, later]
        span = Span(since_us=begin, until_us=begin + 60 * MINUTE_US)
        medians = {
            at_ms * 1000: value
            for block in past.blocks(span)
            for line in block.lines
            if line.family.name == "training_forecast_finish_timestamp_seconds"
            and ("p", "0.5") in line.labels
            for at_ms, value in zip(line.times_ms, line.values, strict=True)
        }
    for moment in span.moments():
        if moment < made.as_of_us:
            assert moment not in medians
        else:
            expected = begin + (10**12 if moment < later.as_of_us else 3 * 10**12)
            assert medians[moment] == pytest.approx(expected / 1e6, abs=1e-6)


_: Callable[..., object] = history

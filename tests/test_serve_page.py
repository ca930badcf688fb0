"""The metrics page as it is put together: what prometheus_client would write, in the format asked for."""

from __future__ import annotations

import gzip
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from tests.test_exporter import FULL, HOSTILE, VITALS
from tracker.exporter import Exporter, wants_openmetrics
from tracker.families import FAMILIES, Page
from tracker.workings import FAILED, REFUSED, Workings

MODERN = "application/openmetrics-text; version=1.0.0"
BUSY = Workings(
    runs=3,
    configs_ok=False,
    configs_read_us=1_767_614_400_000_000,
    web_config_ok=True,
    web_config_read_us=1_767_614_400_000_000,
    answers={200: 7, 401: 2},
    refused=dict.fromkeys(REFUSED, 1),
    logins_failed=dict.fromkeys(FAILED, 2),
)


def ours(page: bytes) -> list[str]:
    """Return a page without the families of the process, which change from moment to moment."""
    return [line for line in page.decode().splitlines() if "process_" not in line]


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(
    names=st.lists(st.text(max_size=40) | st.sampled_from(HOSTILE), max_size=4, unique=True),
    text=st.text(max_size=40),
    value=st.floats() | st.integers(-(10**18), 10**18),
)
def test_the_page_is_what_prometheus_client_would_write(names: list[str], text: str, value: float) -> None:
    """Byte for byte in both formats, whatever the names, texts and values are."""
    made = Exporter(version="1.2.3", workings=lambda: BUSY)
    for number, name in enumerate(names):
        snapshot = replace(FULL, run=name, step_time_s=value, operating_point={"gpu": text})
        vitals = replace(VITALS, rejects={text: 2}, snapshot_s=value)
        made.publish(Page(name, snapshot if number % 2 == 0 else None, vitals))

    assert ours(made.render()[0]) == ours(generate_latest(made.registry()))
    assert ours(made.render(MODERN)[0]) == ours(generate_openmetrics(made.registry()))


def test_what_a_snapshot_alone_says_is_made_once() -> None:
    """A family of the run depends on its snapshot and name only, so its lines are kept with it."""
    made = Exporter(version="0")
    made.publish(Page("a", FULL, VITALS))
    before = made.render()[0]
    made.publish(Page("a", FULL, replace(VITALS, read_lines=7)))
    assert b'tracker_read_lines_total{run="a"} 7.0' in made.render()[0]
    made.publish(Page("a", FULL, VITALS))
    assert ours(made.render()[0]) == ours(before)

    for family in FAMILIES:
        if family.name.startswith("training_"):
            assert list(family.samples(Page("a", FULL, VITALS))) == list(family.samples(Page("a", FULL)))
    made.publish(Page("a", replace(FULL, step_time_s=99.0), VITALS))
    assert b'training_step_time_seconds{run="a"} 99.0' in made.render()[0]
    made.publish(Page("a", None, VITALS))
    assert b"training_step_time_seconds{" not in made.render()[0]


class Standing:
    """A clock that moves by a step at each look."""

    def __init__(self, step_s: float) -> None:
        self.step_s = step_s
        self.moment_s = 0.0

    def now_us(self) -> int:
        return 0

    def monotonic_s(self) -> float:
        self.moment_s += self.step_s
        return self.moment_s

    def wait(self, seconds: float) -> bool:
        return False


@pytest.mark.parametrize(
    ("step_s", "shared"), [pytest.param(0.1, True, id="dear"), pytest.param(0.001, False, id="cheap")]
)
def test_a_page_that_is_dear_is_shared_for_a_moment(step_s: float, shared: bool) -> None:
    """By everybody who asks within five times what it took; one that is cheap is always made anew."""
    clock = Standing(step_s)
    made = Exporter(version="0", clock=clock)
    made.publish(Page("a", FULL))
    first = made.render()[0]
    made.publish(Page("b", FULL))

    assert (made.render()[0] is first) is shared
    clock.moment_s += 10
    assert b'run="b"' in made.render()[0]


def test_a_packed_page_is_the_page() -> None:
    """Packed by the exporter, once for all who ask."""
    made = Exporter(version="0")
    made.publish(Page("a", FULL, VITALS))
    packed, content_type = made.render(MODERN, packed=True)

    assert ours(gzip.decompress(packed)) == ours(made.render(MODERN)[0])
    assert content_type == made.render(MODERN)[1]


@pytest.mark.parametrize(
    ("accept", "modern"),
    [
        ("", False),
        ("*/*", False),
        ("text/html", False),
        ("text/plain", False),
        ("application/openmetrics-text", True),
        ("APPLICATION/OpenMetrics-Text; Version=1.0.0", True),
        ("application/openmetrics-text;version=0.0.1", False),
        ("application/openmetrics-text;version=2.0.0", False),
        ("application/openmetrics-text;version=x\ty", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=0.1,text/plain;q=0.9", False),
        ("text/plain;q=0.5,application/openmetrics-text;q=0.5", True),
        ("application/openmetrics-text;q=nonsense", False),
        ("application/openmetrics-text;q=nan,*/*;q=0.1", False),
        ("text/*;q=0.4,application/openmetrics-text;version=1.0.0;q=0.5", True),
        (
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
            "application/openmetrics-text;version=0.0.1;q=0.4,"
            "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
            True,
        ),
        (",;=,;;q==,", False),
        ("application/openmetrics-text," * 1000, True),
    ],
)
def test_the_format_is_the_one_that_is_preferred(accept: str, modern: bool) -> None:
    """By weight; where both weigh the same it is OpenMetrics; what nobody can read prefers nothing."""
    assert wants_openmetrics(accept) is modern
    made = Exporter(version="0")
    body, content_type = made.render(accept)
    assert body.endswith(b"# EOF\n") is modern
    assert content_type in {  # nothing of the header comes back
        "application/openmetrics-text; version=1.0.0; charset=utf-8",
        "text/plain; version=0.0.4; charset=utf-8",
    }
    assert content_type.startswith("application/openmetrics-text" if modern else "text/plain")


def test_the_process_tells_of_itself() -> None:
    """Without a run as label, and without a sample for what it does not know."""
    text = Exporter(version="0", workings=lambda: BUSY).render()[0].decode()
    assert "tracker_runs 3.0\n" in text
    assert "tracker_config_last_reload_successful 0.0\n" in text
    assert 'tracker_http_responses_total{code="401"} 2.0\n' in text
    assert 'tracker_http_failed_logins_total{reason="limited"} 2.0\n' in text

    text = Exporter(version="0").render()[0].decode()
    assert "# TYPE tracker_web_config_last_reload_successful gauge\n" in text
    assert "\ntracker_web_config_last_reload_successful " not in text

"""Exact Poisson intervals from our own incomplete gamma, against published tables and laws."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.core.errors import InvalidValue
from tracker.core.poisson import (
    chi_square_quantile,
    count_interval,
    dispersion,
    gamma_p,
    gamma_p_inverse,
    gamma_q,
    normal_count_interval,
)


@pytest.mark.parametrize(
    ("p", "degrees", "quantile"),
    [
        pytest.param(0.95, 1, 3.8415, id="one-degree"),
        pytest.param(0.95, 2, 5.9915, id="two-degrees-is-minus-two-log"),
        pytest.param(0.05, 10, 3.9403, id="lower-tail"),
        pytest.param(0.95, 10, 18.3070, id="ten-degrees"),
        pytest.param(0.975, 30, 46.9792, id="thirty-degrees"),
        pytest.param(0.025, 100, 74.2219, id="hundred-degrees"),
        pytest.param(0.99, 100, 135.8067, id="hundred-degrees-upper"),
        pytest.param(0.005, 5, 0.4117, id="far-tail"),
    ],
)
def test_chi_square_quantiles_are_the_tabulated_ones(p: float, degrees: float, quantile: float) -> None:
    """Four decimals, as statistical tables print them."""
    assert chi_square_quantile(p, degrees) == pytest.approx(quantile, abs=6e-5)


@pytest.mark.parametrize(
    ("n", "low", "high"),
    [
        pytest.param(0, 0.0, 3.689, id="none-seen"),
        pytest.param(1, 0.0253, 5.572, id="one-seen"),
        pytest.param(5, 1.623, 11.668, id="five-seen"),
        pytest.param(10, 4.795, 18.390, id="ten-seen"),
        pytest.param(100, 81.364, 121.627, id="hundred-seen"),
    ],
)
def test_garwood_intervals_are_the_published_ones(n: int, low: float, high: float) -> None:
    """The 95 % limits of Garwood's table (1936)."""
    interval = count_interval(n, confidence=0.95)

    assert interval.low == pytest.approx(low, abs=6e-4)
    assert interval.high == pytest.approx(high, abs=6e-4)


def test_no_event_still_bounds_the_rate() -> None:
    """At 90 % the upper limit is -ln 0.05, three events."""
    interval = count_interval(0)

    assert interval.low == 0
    assert interval.high == pytest.approx(-math.log(0.05))


def test_a_large_count_needs_no_more_than_its_start() -> None:
    """Where the search hands over to the closed form, both agree."""
    below, above = gamma_p_inverse(9.99e6, 0.05), gamma_p_inverse(1.01e7, 0.05)

    assert gamma_p(9.99e6, below) == pytest.approx(0.05, rel=1e-6)
    assert gamma_p(1.01e7, above) == pytest.approx(0.05, rel=1e-4)


def test_p_and_q_sum_to_one() -> None:
    """On both sides of where the method changes."""
    for a, x in ((0.5, 0.1), (3.0, 2.9), (3.0, 4.1), (419.0, 500.0)):
        assert gamma_p(a, x) + gamma_q(a, x) == pytest.approx(1)


def test_half_a_degree_of_freedom_is_the_error_function() -> None:
    """P(1/2, x) = erf(sqrt x)."""
    for x in (0.01, 0.5, 2.0, 9.0):
        assert gamma_p(0.5, x) == pytest.approx(math.erf(math.sqrt(x)), rel=1e-12)


def test_an_integer_shape_is_the_poisson_tail() -> None:
    """Q(n, m) is the chance of fewer than n events of mean m."""
    m = 4.2
    tail = sum(math.exp(-m) * m**k / math.factorial(k) for k in range(7))

    assert gamma_q(7, m) == pytest.approx(tail, rel=1e-12)


@given(a=st.floats(0.01, 1e5), p=st.floats(1e-9, 1 - 1e-9))
def test_the_inverse_inverts(a: float, p: float) -> None:
    """P(a, P^-1(a, p)) = p."""
    x = gamma_p_inverse(a, p)
    if x > 1e-290:
        assert gamma_p(a, x) == pytest.approx(p, rel=1e-6, abs=1e-11)


@given(n=st.integers(0, 10_000), confidence=st.floats(0.5, 0.999))
def test_an_interval_holds_its_count(n: int, confidence: float) -> None:
    """Low below the count, high above it, wider for more confidence."""
    interval = count_interval(n, confidence=confidence)
    assert interval.high is not None
    assert interval.low <= n < interval.high
    wider = count_interval(n, confidence=(1 + confidence) / 2)
    assert wider.high is not None
    assert wider.low <= interval.low
    assert wider.high > interval.high


def test_bunched_events_widen_the_interval_by_about_the_root_of_their_dispersion() -> None:
    """A dispersion of 4 doubles the width of a large count's interval."""
    poisson, bunched = count_interval(400), count_interval(400, dispersion=4)
    assert poisson.high is not None
    assert bunched.high is not None
    ratio = (bunched.high - bunched.low) / (poisson.high - poisson.low)

    assert ratio == pytest.approx(2, abs=0.05)


def test_less_dispersion_than_poisson_never_narrows() -> None:
    """Regular gaps are no proof of a low rate."""
    assert count_interval(10, dispersion=0.25) == count_interval(10)


def test_even_gaps_have_no_variation_and_bunched_ones_much() -> None:
    """Coefficients of variation by hand."""
    even, bunched = dispersion([0, 1, 2, 3, 4]), dispersion([0, 1, 1, 1, 8])
    assert even is not None
    assert bunched is not None

    assert even.coefficient_of_variation == 0
    assert bunched.mean == 2
    assert bunched.coefficient_of_variation == pytest.approx(math.sqrt(8.5) / 2)


@pytest.mark.parametrize("times", [[], [1.0], [1.0, 2.0], [3.0, 3.0, 3.0]])
def test_too_few_events_have_no_dispersion(times: list[float]) -> None:
    """Unknown is None, never 0."""
    assert dispersion(times) is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        pytest.param(
            lambda: count_interval(-1), "n = -1: expected a number of 0 or more", id="negative-count"
        ),
        pytest.param(
            lambda: count_interval(1, confidence=90), "confidence = 90: expected a ratio", id="per-cent"
        ),
        pytest.param(lambda: gamma_p_inverse(1, 1.0), "p = 1.0: expected a probability", id="certainty"),
        pytest.param(lambda: gamma_p(0, 1), "a = 0: expected a number above 0", id="no-shape"),
    ],
)
def test_bad_values_are_told(call: object, message: str) -> None:
    """The message names the value and what was expected."""
    with pytest.raises(InvalidValue, match=message):
        call()  # type: ignore[operator]


def test_the_normal_interval_is_what_papers_print() -> None:
    """584 faults in 139,591.9 node-days: 3.84 to 4.52; the exact one is a little higher."""
    normal, exact = normal_count_interval(584), count_interval(584, confidence=0.95)
    assert normal.high is not None
    assert exact.high is not None

    assert (round(normal.low / 139.5919, 2), round(normal.high / 139.5919, 2)) == (3.84, 4.52)
    assert (round(exact.low / 139.5919, 2), round(exact.high / 139.5919, 2)) == (3.85, 4.54)

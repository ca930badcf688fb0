"""How sure a count makes us: exact Poisson intervals, and how far events are from Poisson.

Pure, and without a statistics library: the regularised incomplete gamma function and its inverse
are here, since a chi-square quantile is one of them.

    n   events seen                      1
    E   exposure                         any unit: hours, device-hours, node-days
    phi dispersion of counts             variance over mean; 1 is Poisson
    P(a, x)   regularised lower incomplete gamma function

    Garwood interval of the mean count:
        low  = chi2(alpha/2, 2n) / 2 = P^-1(n, alpha/2)          0 for n = 0
        high = chi2(1 - alpha/2, 2n + 2) / 2 = P^-1(n + 1, 1 - alpha/2)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from statistics import NormalDist

from tracker.core._checks import finite, not_negative, positive
from tracker.core.errors import InvalidValue

_EPS = 1e-15
_NORMAL = NormalDist()
_WILSON_HILFERTY_ABOVE = 1e7


def gamma_p(a: float, x: float) -> float:
    """Return P(a, x), the chance that a Gamma(a, 1) variable is at most x.

    Series below a + 1, continued fraction above. Source: Abramowitz and Stegun 6.5.29 and 6.5.31.

    Raises InvalidValue for a <= 0 or x < 0.

    >>> round(gamma_p(1.0, 1.0), 12)
    0.632120558829
    """
    positive("a", a)
    not_negative("x", x)
    if x == 0:
        return 0.0
    return _series(a, x) if x < a + 1 else 1.0 - _fraction(a, x)


def gamma_q(a: float, x: float) -> float:
    """Return 1 - P(a, x), accurate where it is small."""
    positive("a", a)
    not_negative("x", x)
    if x == 0:
        return 1.0
    return 1.0 - _series(a, x) if x < a + 1 else _fraction(a, x)


@lru_cache(maxsize=256)
def gamma_p_inverse(a: float, p: float) -> float:
    """Return x with P(a, x) = p.

    Wilson and Hilferty's start, then bisection guarding Newton; above a = 1e7 the start is exact
    to more digits than a count has.

    Raises InvalidValue for a <= 0, or p outside [0, 1).

    >>> round(gamma_p_inverse(1.0, 0.95), 6)
    2.995732
    """
    positive("a", a)
    if not 0 <= finite("p", p) < 1:
        raise InvalidValue("p", p, "a probability from 0 to below 1")
    if p == 0:
        return 0.0
    z = _NORMAL.inv_cdf(p)
    guess = a * (1 - 1 / (9 * a) + z / (3 * math.sqrt(a))) ** 3
    if a > _WILSON_HILFERTY_ABOVE:
        return guess
    if guess <= 0 or a < 1:
        guess = math.exp((math.log(p) + math.lgamma(a + 1)) / a)
        if guess < 1e-300:
            return guess
    low, high = 0.0, max(2 * guess, a, 1.0)
    while gamma_p(a, high) < p:
        low, high = high, 2 * high
    x = min(max(guess, low), high)
    upper = 1 - p
    for _ in range(200):
        error = gamma_p(a, x) - p if p < 0.5 else upper - gamma_q(a, x)
        if error > 0:
            high = x
        else:
            low = x
        slope = math.exp((a - 1) * math.log(x) - x - math.lgamma(a)) if x > 0 else 0.0
        step = x - error / slope if slope > 0 else math.nan
        new = step if low < step < high else (low + high) / 2
        if abs(new - x) <= 1e-14 * x or high - low <= 1e-14 * high:
            return new
        x = new
    return x


def chi_square_quantile(p: float, degrees: float) -> float:
    """Return the p quantile of chi-square, 2 P^-1(degrees / 2, p).

    >>> round(chi_square_quantile(0.95, 10), 3)
    18.307
    """
    return 2 * gamma_p_inverse(degrees / 2, p)


def _series(a: float, x: float) -> float:
    term = total = 1 / a
    n = a
    while True:
        n += 1
        term *= x / n
        total += term
        if term < total * _EPS:
            break
    return total * math.exp(a * math.log(x) - x - math.lgamma(a))


def _fraction(a: float, x: float) -> float:
    tiny = 1e-300
    b = x + 1 - a
    c = 1 / tiny
    d = 1 / b if b else 1 / tiny
    h = d
    i = 0
    while True:
        i += 1
        an = -i * (i - a)
        b += 2
        d = an * d + b
        d = tiny if abs(d) < tiny else d
        c = b + an / c
        c = tiny if abs(c) < tiny else c
        d = 1 / d
        delta = d * c
        h *= delta
        if abs(delta - 1) < _EPS or i > 1_000_000:
            break
    return h * math.exp(a * math.log(x) - x - math.lgamma(a))


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A two-sided interval; a high end of None is unbounded."""

    low: float
    """Lower end."""
    high: float | None
    """Upper end, None for unbounded."""


def count_interval(n: float, *, confidence: float = 0.90, dispersion: float = 1.0) -> Interval:
    """Return the exact interval of the mean of a Poisson count (Garwood 1936).

    With dispersion above 1 the count is worth n / dispersion independent events, and the interval
    widens by about its square root. For n = 0 the low end is 0.

    Raises InvalidValue for a negative count, or a confidence outside (0, 1).

    >>> i = count_interval(0)
    >>> i.low, round(i.high, 3)
    (0.0, 2.996)
    """
    events = not_negative("n", n)
    if not 0 < finite("confidence", confidence) < 1:
        raise InvalidValue("confidence", confidence, "a ratio between 0 and 1, such as 0.90")
    phi = max(1.0, positive("dispersion", dispersion))
    tail = (1 - confidence) / 2
    worth = events / phi
    low = phi * gamma_p_inverse(worth, tail) if worth > 0 else 0.0
    high = phi * gamma_p_inverse(worth + 1, 1 - tail)
    return Interval(low=low, high=high)


def normal_count_interval(n: float, *, confidence: float = 0.95) -> Interval:
    """Return n plus or minus z sqrt(n): what many papers print. Too low at both ends for small n.

    >>> i = normal_count_interval(584)
    >>> round(i.low / 139.5919, 2), round(i.high / 139.5919, 2)
    (3.84, 4.52)
    """
    z = _NORMAL.inv_cdf(0.5 + confidence / 2)
    half = z * math.sqrt(not_negative("n", n))
    return Interval(low=max(0.0, n - half), high=n + half)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispersion:
    """How far the gaps between events are from those of a Poisson process."""

    gaps: int
    """Gaps looked at."""
    mean: float
    """Mean gap, in the unit of the times."""
    coefficient_of_variation: float
    """Standard deviation over mean (population); 1 for Poisson, above 1 for bunched events."""

    @property
    def index(self) -> float:
        """Its square: variance over mean of counts in long windows, for independent gaps."""
        return self.coefficient_of_variation**2

    @property
    def is_over_dispersed(self) -> bool:
        """Whether the coefficient lies beyond twice its spread under Poisson, about 1/sqrt(n)."""
        return self.coefficient_of_variation > 1 + 2 / math.sqrt(self.gaps)


def dispersion(times: Sequence[float]) -> Dispersion | None:
    """Return the dispersion of event times, or None for fewer than three events.

    >>> dispersion([0.0, 1.0, 2.0, 3.0]).coefficient_of_variation
    0.0
    """
    ordered = sorted(finite("time", t) for t in times)
    gaps = [b - a for a, b in pairwise(ordered)]
    if len(gaps) < 2:
        return None
    mean = math.fsum(gaps) / len(gaps)
    if mean == 0:
        return None
    variance = math.fsum((g - mean) ** 2 for g in gaps) / len(gaps)
    return Dispersion(gaps=len(gaps), mean=mean, coefficient_of_variation=math.sqrt(variance) / mean)

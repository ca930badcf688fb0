"""Random numbers that settle quickly.

Pure. numpy comes in as an argument: whoever draws has loaded it.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

_CENTRES: Final[dict[int, Any]] = {}


def normal(rng: Any, np: Any, plays: int) -> Array:
    """Return standard normals at evenly spaced probabilities in random order: less noise than random ones."""
    made: Array = rng.permutation(_centres(np, plays))
    return made


def even(rng: Any, np: Any, plays: int) -> tuple[Array, Array]:
    """Return evenly spaced probabilities in random order, and the standard normal of each."""
    order = rng.permutation(plays)
    return (order + 0.5) / plays, _centres(np, plays)[order]


def _centres(np: Any, plays: int) -> Any:
    if plays not in _CENTRES:
        inverse = NormalDist().inv_cdf
        _CENTRES[plays] = np.asarray([inverse((i + 0.5) / plays) for i in range(plays)])
    return _CENTRES[plays]


def heavy(rng: Any, np: Any, plays: int, freedom: float) -> Array:
    """Return factors that turn normals into Student's t of the same variance."""
    made: Array = np.sqrt((freedom - 2) / rng.chisquare(freedom, plays))
    return made

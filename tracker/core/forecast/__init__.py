"""When the run will finish and what it will have cost: a range that is right as often as it says.

Pure. `state.py` says what was known at a moment, `model.py` plays the rest of the run many times,
`answer.py` reads quantiles, probabilities and causes off the plays. numpy is loaded only inside functions
of `model.py`, `answer.py` and `score.py`: whoever only shows a `Forecast` never loads it.
"""

from __future__ import annotations

from tracker.core.forecast.value import Driver, Forecast, Move, Part, Quantiles

__all__ = ["Driver", "Forecast", "Move", "Part", "Quantiles"]

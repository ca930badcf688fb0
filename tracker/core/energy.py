"""What GPU-hours draw: energy from power, and carbon from energy.

Pure.

    E   energy                           MWh
    h   GPU-hours                        gpu * h
    W   power of one GPU                 W
    k   facility overhead (PUE), >= 1    ratio

    E = h W k / 1e6
"""

from __future__ import annotations

from tracker.core._checks import not_negative, positive
from tracker.core.errors import InvalidValue


def energy_mwh(*, gpu_hours: float, power_w: float, facility_overhead: float = 1.0) -> float:
    """Return the energy of GPU-hours in MWh, h W k / 1e6.

    With power_w the TDP it is an upper bound for the GPUs; measured power is better. The default
    overhead of 1 means GPUs only: hosts, network, storage and cooling come on top.

    Raises InvalidValue for an overhead below 1 (a facility cannot give energy back).

    >>> round(energy_mwh(gpu_hours=30.84e6, power_w=700))
    21588
    """
    hours = not_negative("gpu_hours", gpu_hours)
    watts = positive("power_w", power_w, "a power above 0, in W")
    if watts > 20_000:
        raise InvalidValue("power_w", power_w, "the power of one GPU in W", "Write 700 for 700 W")
    return hours * watts * overhead(facility_overhead) / 1e6


def overhead(facility_overhead: float) -> float:
    """Return a facility overhead, checked: 1 or more, and a ratio, not a percentage."""
    k = positive("facility_overhead", facility_overhead, "a ratio of 1 or more, such as 1.3")
    if k < 1 or k > 5:
        raise InvalidValue(
            "facility_overhead",
            facility_overhead,
            "a ratio from 1 to 5, such as 1.3",
            "It is facility energy over GPU energy, not a percentage",
        )
    return k


def carbon_t(*, mwh: float, kg_per_mwh: float) -> float:
    """Return tonnes of CO2 equivalent for an energy and a grid's intensity.

    >>> round(carbon_t(mwh=21588.0, kg_per_mwh=400.0), 1)
    8635.2
    """
    return not_negative("mwh", mwh) * not_negative("kg_per_mwh", kg_per_mwh) / 1000

"""The plan: what a run was meant to cost, as checked numbers with where each came from.

Pure: a plan is written before any log exists; a moment comes in only as its own start date.

    D   tokens                       F   FLOP per token
    P   dense peak of one GPU        m   MFU         g   goodput
    s   later stages, a fraction     r   research multiplier

    model_flop   = F D
    ideal_hours  = model_flop / (3600 P)
    step_hours   = ideal_hours / m
    billed_hours = step_hours / g
    final_hours  = billed_hours (1 + s)      the run, all its stages
    programme    = final_hours r             with ablations and failed runs
    hours per 1e12 tokens = 1e12 F / (3600 P m g)    of the main stage only
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from tracker.core._checks import count, not_negative, positive, ratio
from tracker.core.energy import energy_mwh, overhead
from tracker.core.errors import InvalidValue
from tracker.core.flop import FlopPerToken, flop_per_token
from tracker.core.hardware import Peak, lookup
from tracker.core.memo import remembered
from tracker.core.plan_parts import (
    Assumption,
    Estimate,
    PlanFailures,
    PlannedConversion,
    PlanStage,
    StageEstimate,
)
from tracker.core.prices import Prices, PriceStep

__all__ = [
    "Assumption",
    "Estimate",
    "Plan",
    "PlanFailures",
    "PlanStage",
    "PlannedConversion",
    "PriceStep",
    "StageEstimate",
]

S_PER_H: Final = 3600.0
H_PER_DAY: Final = 24.0


class _Default(float):
    """A default that remembers nobody gave it; in every other way a float."""


DEFAULTS: Final[Mapping[str, float]] = {
    "mfu": 0.35,
    "goodput": 0.90,
    "attn_overhead": 0.05,
    "later_stages": 0.08,
    "rnd_multiplier": 1.5,
}
"""The reference estimate's assumptions, used where the plan is silent and then listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What [plan], [model] and [hardware] say together. Unknown parts are None.

    Raises InvalidValue for a value its name does not allow, and for stages whose tokens do not
    sum to the target.
    """

    active_params: float | None = None
    """N: parameters one token passes through (MoE: active, not total)."""
    total_params: float | None = None
    """Parameters stored."""
    tokens: float | None = None
    """Target over all listed stages; the sum of the stages where omitted."""
    peak: Peak | None = None
    """Dense peak of one GPU at the reference precision."""
    gpus: int | None = None
    """GPUs of the run."""
    mfu: float = _Default(DEFAULTS["mfu"])
    """Over productive time."""
    goodput: float = _Default(DEFAULTS["goodput"])
    """Productive over allocated."""
    attn_overhead: float = _Default(DEFAULTS["attn_overhead"])
    """Attention FLOP beyond 6N, as a fraction; unused where `layers` gives them exactly."""
    later_stages: float = _Default(DEFAULTS["later_stages"])
    """Later stages as a fraction of the run; counts 0 where stages are listed and it is omitted."""
    rnd_multiplier: float = _Default(DEFAULTS["rnd_multiplier"])
    """Programme over final run, 1 or more."""
    sequence_length: int | None = None
    """Tokens per sequence of the model."""
    layers: int | None = None
    """Layers; with it attention FLOP are exact."""
    hidden_size: int | None = None
    """Width of the model."""
    heads: int | None = None
    """Attention heads."""
    head_dim: int | None = None
    """Dimension of a head."""
    causal: bool = False
    """Whether the exact attention term counts the causal mask."""
    experts: int | None = None
    """Routed experts of a mixture; None for a dense model or unknown."""
    experts_per_token: int | None = None
    """Routed experts per token."""
    stages: tuple[PlanStage, ...] = ()
    """Listed stages in order of time; empty for one main stage and a fraction."""
    failures: PlanFailures | None = None
    """[plan.failures]."""
    conversion: PlannedConversion | None = None
    """[plan.conversion]: a ratio by which hours of another device were taken over."""
    start: datetime | None = None
    """Planned start, with a zone."""
    deadline: datetime | None = None
    """When it must be done, with a zone."""
    budget: float | None = None
    """Money it may cost, in `currency`."""
    currency: str = "USD"
    """Printed beside every amount."""
    gpu_hour_price: float | None = None
    """Money per GPU-hour where it never changes."""
    prices: tuple[PriceStep, ...] = ()
    """Prices from dates on; use either these or gpu_hour_price."""
    facility_overhead: float = 1.0
    """Facility energy over GPU energy; 1 counts GPUs only."""
    gpu_power_w: float | None = None
    """Power of one GPU in W; the hardware table's TDP where omitted."""
    carbon_kg_per_mwh: float | None = None
    """Grid intensity; no carbon is stated without it."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """[plan.sources]: key -> where its value came from."""

    def __post_init__(self) -> None:
        for name in ("active_params", "total_params", "tokens"):
            value = getattr(self, name)
            if value is not None:
                unit = "tokens" if name == "tokens" else "parameters"
                positive(f"plan.{name}", value, f"a number of {unit} above 0")
        if self.total_params is not None and (self.active_params or 0) > self.total_params:
            raise InvalidValue(
                "plan.active_params",
                self.active_params,
                f"at most total_params = {self.total_params:g}",
                "Active parameters are those one token passes through",
            )
        ratio("plan.mfu", self.mfu)
        ratio("plan.goodput", self.goodput)
        for name in ("attn_overhead", "later_stages"):
            value = not_negative(f"plan.{name}", getattr(self, name), "a fraction of 0 or more, such as 0.05")
            if value >= 5:
                raise InvalidValue(
                    f"plan.{name}",
                    getattr(self, name),
                    "a fraction, such as 0.05",
                    f"It looks like a percentage: write {value / 100:g} for {value:g} %",
                )
        if positive("plan.rnd_multiplier", self.rnd_multiplier) < 1:
            raise InvalidValue(
                "plan.rnd_multiplier",
                self.rnd_multiplier,
                "1 or more",
                "1.0 counts the final run alone; 1.5 adds half again for research",
            )
        for name in ("gpus", "sequence_length", "layers", "hidden_size", "heads", "head_dim"):
            if getattr(self, name) is not None:
                count(f"plan.{name}", getattr(self, name))
        for name in ("experts", "experts_per_token"):
            if getattr(self, name) is not None:
                count(f"plan.{name}", getattr(self, name))
        if self.experts is not None and (self.experts_per_token or 0) > self.experts:
            raise InvalidValue(
                "plan.experts_per_token", self.experts_per_token, f"at most experts = {self.experts}"
            )
        if self.gpu_hour_price is not None:
            not_negative("plan.gpu_hour_price", self.gpu_hour_price)
            if self.prices:
                raise InvalidValue(
                    "plan.gpu_hour_price",
                    self.gpu_hour_price,
                    "either gpu_hour_price or [[plan.price]] steps, not both",
                )
        if self.budget is not None:
            positive("plan.budget", self.budget, "an amount above 0")
        overhead(self.facility_overhead)
        if self.gpu_power_w is not None:
            positive("plan.gpu_power_w", self.gpu_power_w, "a power above 0, in W")
        if self.carbon_kg_per_mwh is not None:
            not_negative("plan.carbon_kg_per_mwh", self.carbon_kg_per_mwh)
        for name in ("start", "deadline"):
            moment = getattr(self, name)
            if moment is not None and moment.tzinfo is None:
                raise InvalidValue(f"plan.{name}", moment, "a time with a zone", "Write 2026-01-05T08:00:00Z")
        _ = self.price_list
        has_width = self.hidden_size is not None or None not in (self.heads, self.head_dim)
        if self.layers is not None and not has_width:
            raise InvalidValue(
                "model.layers",
                self.layers,
                "hidden_size, or heads and head_dim, beside it",
                "Set model.hidden_size, or leave layers out and use plan.attn_overhead",
            )
        self._check_stages()

    def _check_stages(self) -> None:
        if not self.stages or self.tokens is None:
            return
        total = sum(stage.tokens for stage in self.stages)
        if abs(total - self.tokens) > 1e-6 * self.tokens:
            parts = " + ".join(f"{s.name} {s.tokens:g}" for s in self.stages)
            raise InvalidValue(
                "plan.stage",
                f"{parts} = {total:g}",
                f"stages that sum to plan.tokens = {self.tokens:g}",
                f"They differ by {total - self.tokens:+g} tokens: correct one, or leave plan.tokens out",
            )

    @property
    def target_tokens(self) -> float | None:
        """The target: plan.tokens, else the sum of the listed stages."""
        if self.tokens is not None:
            return self.tokens
        return sum(s.tokens for s in self.stages) if self.stages else None

    @property
    def all_tokens(self) -> float | None:
        """Return the target with the later stages on top: what the finish is the finish of."""
        return None if self.target_tokens is None else self.target_tokens * (1 + self.later_fraction)

    @property
    def later_fraction(self) -> float:
        """The later-stages fraction that counts: 0 where stages are listed and it is omitted."""
        if self.stages and isinstance(self.later_stages, _Default):
            return 0.0
        return float(self.later_stages)

    @property
    def price_list(self) -> Prices | None:
        """The prices, None where none is given."""
        if self.prices:
            return Prices(steps=self.prices, currency=self.currency)
        if self.gpu_hour_price is not None:
            return Prices.flat(self.gpu_hour_price, currency=self.currency)
        return None

    @property
    def power_w(self) -> float | None:
        """Power of one GPU in W: given, else the table's TDP, else None."""
        if self.gpu_power_w is not None:
            return self.gpu_power_w
        if self.peak is None or self.peak.gpu is None:
            return None
        tdp = lookup(self.peak.gpu).tdp_w
        return tdp.value if tdp is not None else None

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Every assumption the estimate rests on, with its source; attention only where it counts.

        With listed stages an omitted later-stages fraction is no assumption: the list stands.
        """
        names = [n for n in DEFAULTS if not (n == "attn_overhead" and self.layers is not None)]
        if self.stages and isinstance(self.later_stages, _Default):
            names.remove("later_stages")
        return tuple(
            Assumption(
                name=name,
                value=float(getattr(self, name)),
                source=self.sources.get(name),
                is_default=isinstance(getattr(self, name), _Default),
            )
            for name in names
        )

    @property
    def assumed(self) -> tuple[str, ...]:
        """Names of the assumptions that are defaults or have no source."""
        return tuple(a.name for a in self.assumptions if a.is_assumed)

    @property
    def missing(self) -> tuple[str, ...]:
        """What an estimate still needs."""
        needs = {
            "active_params": self.active_params,
            "tokens": self.target_tokens,
            "peak": self.peak,
        }
        return tuple(name for name, value in needs.items() if value is None)

    def flop(self, sequence_length: int | None = None) -> FlopPerToken | None:
        """Return FLOP per token (at another sequence length, where given); None without N.

        Where layers are known but no sequence length is (a log may bring it later), the
        allowance counts, and the method says so.
        """
        if self.active_params is None:
            return None
        length = sequence_length if sequence_length is not None else self.sequence_length
        return flop_per_token(
            active_params=self.active_params,
            attn_overhead=float(self.attn_overhead),
            layers=self.layers if length is not None else None,
            hidden_size=self.hidden_size,
            heads=self.heads,
            head_dim=self.head_dim,
            sequence_length=length,
            causal=self.causal,
        )

    @remembered
    def estimate(self) -> Estimate | None:
        """Return what the plan comes to, or None while `missing` is not empty.

        >>> from tracker.core.hardware import peak_given
        >>> plan = Plan(active_params=13e9, tokens=4e12, peak=peak_given(989.0), gpus=1024)
        >>> e = plan.estimate()
        >>> round(e.final_gpu_hours), round(e.programme_gpu_hours), round(e.days, 2)
        (315470, 473205, 12.84)
        """
        target = self.target_tokens
        if self.active_params is None or target is None or self.peak is None:
            return None
        listed = self.stages or (PlanStage(name="main", tokens=target),)
        stages = tuple(self._stage(stage, self.peak) for stage in listed)
        main = max(stages, key=lambda s: s.tokens)
        billed = sum(s.billed_gpu_hours for s in stages)
        later = billed * self.later_fraction
        final = billed + later
        days = self._days(stages, main, later)
        finish = None
        if self.start is not None and days is not None:
            try:
                finish = self.start + timedelta(days=days)
            except OverflowError:
                finish = None
        return Estimate(
            stages=stages,
            main=main,
            model_flop=sum(s.model_flop for s in stages),
            six_n_flop=sum(s.flop.six_n * s.tokens for s in stages),
            ideal_gpu_hours=sum(s.ideal_gpu_hours for s in stages),
            step_gpu_hours=sum(s.step_gpu_hours for s in stages),
            billed_gpu_hours=billed,
            later_stages_gpu_hours=later,
            final_gpu_hours=final,
            programme_gpu_hours=final * self.rnd_multiplier,
            gpu_hours_per_trillion_tokens=1e12 * main.billed_gpu_hours / main.tokens,
            days=days,
            finish_at=finish,
        )

    def _stage(self, stage: PlanStage, peak: Peak) -> StageEstimate:
        flop = self.flop(stage.sequence_length)
        assert flop is not None
        model_flop = flop.value * stage.tokens
        ideal = model_flop / (peak.value * S_PER_H)
        step = ideal / (stage.mfu if stage.mfu is not None else self.mfu)
        billed = step / (stage.goodput if stage.goodput is not None else self.goodput)
        gpus = stage.gpus if stage.gpus is not None else self.gpus
        return StageEstimate(
            name=stage.name,
            tokens=stage.tokens,
            flop=flop,
            model_flop=model_flop,
            ideal_gpu_hours=ideal,
            step_gpu_hours=step,
            billed_gpu_hours=billed,
            gpus=gpus,
            days=billed / (gpus * H_PER_DAY) if gpus is not None else None,
        )

    def _days(self, stages: tuple[StageEstimate, ...], main: StageEstimate, later: float) -> float | None:
        if main.gpus is None or any(s.days is None for s in stages):
            return None
        gpus = self.gpus if self.gpus is not None else main.gpus
        return sum(s.days or 0.0 for s in stages) + later / (gpus * H_PER_DAY)

    def model_flop(self) -> float | None:
        """Return FLOP of the target's tokens; None while unknown."""
        e = self.estimate()
        return e.model_flop if e else None

    def ideal_gpu_hours(self) -> float | None:
        """Return GPU-hours at peak; None while unknown."""
        e = self.estimate()
        return e.ideal_gpu_hours if e else None

    def step_gpu_hours(self) -> float | None:
        """Return GPU-hours at the planned MFU; None while unknown."""
        e = self.estimate()
        return e.step_gpu_hours if e else None

    def final_gpu_hours(self) -> float | None:
        """Return GPU-hours of the run with its later stages; None while unknown."""
        e = self.estimate()
        return e.final_gpu_hours if e else None

    def programme_gpu_hours(self) -> float | None:
        """Return GPU-hours with the research multiplier; None while unknown."""
        e = self.estimate()
        return e.programme_gpu_hours if e else None

    def days(self, gpus: int | None = None) -> float | None:
        """Return days of wall clock, on another number of GPUs where given; None while unknown."""
        e = self.estimate()
        if e is None:
            return None
        if gpus is None:
            return e.days
        return e.final_gpu_hours / (count("gpus", gpus) * H_PER_DAY)

    def gpu_hours_per_trillion_tokens(self) -> float | None:
        """Return the main stage's billed GPU-hours per 1e12 tokens; None while unknown.

        It needs no token target: 1e12 F / (3600 P m g).
        """
        e = self.estimate()
        if e is not None:
            return e.gpu_hours_per_trillion_tokens
        flop = self.flop()
        if flop is None or self.peak is None:
            return None
        return 1e12 * flop.value / (S_PER_H * self.peak.value * self.mfu * self.goodput)

    def finish_at(self) -> datetime | None:
        """Return the planned finish, later stages included; None while unknown."""
        e = self.estimate()
        return e.finish_at if e else None

    def cost(self, gpu_hours: float | None = None) -> float | None:
        """Return the money for the final run (or other GPU-hours over its span), or None."""
        e = self.estimate()
        prices = self.price_list
        if e is None or prices is None:
            return None
        hours = e.final_gpu_hours if gpu_hours is None else gpu_hours
        return prices.cost(hours, start=self.start, end=e.finish_at)

    def energy_mwh(self, gpu_hours: float | None = None) -> float | None:
        """Return MWh of the final run (or other GPU-hours) with the facility overhead, or None.

        An upper bound where the power is a TDP.
        """
        e = self.estimate()
        power = self.power_w
        if e is None or power is None:
            return None
        hours = e.final_gpu_hours if gpu_hours is None else gpu_hours
        return energy_mwh(gpu_hours=hours, power_w=power, facility_overhead=self.facility_overhead)

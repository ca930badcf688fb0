"""The daily report: finished numbers of a run -> one page, verdict first.

Pure. What has no data is left out, or told in one sentence. Text of logs is cut to a line here; renderings
clean it.
"""

from __future__ import annotations

import datetime as dt

from reports.daily_charts import finish_figure, speed_figure, tokens_figure
from reports.daily_figures import attempts_figure, waterfall_figure
from reports.daily_finish import finish_blocks, key_figures
from reports.daily_parts import attempts_blocks, ledger_blocks, speed_blocks
from reports.daily_plan import behind_blocks, plan_blocks
from reports.daily_verdict import verdict
from reports.daily_words import dates, short
from reports.numbers import count
from reports.page import Block, Page, Section, shortened
from tracker.core.daily import Daily

_NAME: int = 80


def daily_page(daily: Daily, *, zone: dt.tzinfo = dt.UTC, zone_name: str = "UTC") -> Page:
    """Return the report of a run, with its dates in a zone."""
    s = daily.snapshot
    when = dates(zone, zone_name, s.as_of_us)
    said, tone = verdict(daily, when)
    sections = [
        Section(name="key-figures", title="Key figures", blocks=tuple(key_figures(daily, when))),
        Section(
            name="finish",
            title="When it finishes",
            blocks=_with(
                [finish_figure(daily, when), tokens_figure(daily, when)], finish_blocks(daily, when)
            ),
        ),
        Section(
            name="ledger",
            title="Where the GPU-hours went",
            blocks=_with([waterfall_figure(daily)], ledger_blocks(daily, when)),
        ),
        Section(
            name="speed",
            title="How fast it trains",
            blocks=_with([speed_figure(daily, when)], speed_blocks(daily, when)),
        ),
        Section(
            name="attempts",
            title="Attempts and interruptions",
            blocks=_with([attempts_figure(daily, when)], attempts_blocks(daily, when)),
        ),
        Section(name="plan", title="Cost, and the plan", blocks=tuple(plan_blocks(daily, when))),
        Section(
            name="behind", title="What stands behind these numbers", blocks=tuple(behind_blocks(daily, when))
        ),
    ]
    name = shortened(s.run, _NAME)
    return Page(
        title=f"{name}: daily report",
        run=name,
        as_of_us=s.as_of_us,
        as_of=when.full(s.as_of_us),
        state=s.state,
        verdict=said,
        tone=tone,
        sections=tuple(section for section in sections if section.blocks),
        subtitle=_subtitle(daily),
        compared=when.time(daily.day.start_us) if daily.day is not None else "",
    )


def _with(figures: list[Block | None], blocks: list[Block]) -> tuple[Block, ...]:
    return (*(figure for figure in figures if figure is not None), *blocks)


def _subtitle(daily: Daily) -> str:
    s = daily.snapshot
    said = [s.state]
    settings = s.settings
    if settings is not None and settings.model.active_params is not None:
        model = settings.model
        total = model.total_params
        text = f"{short(model.active_params)} parameters"
        if total is not None and total != model.active_params:
            text = f"{short(model.active_params)} of {short(total)} parameters active"
        said.append(text)
    gpus = next((line.gpus for line in reversed(s.attempts) if line.gpus), None)
    name = s.operating_point.get("gpu") or s.operating_point.get("gpu_name") or ""
    if settings is not None and settings.hardware.gpu is not None:
        name = settings.hardware.gpu
    if gpus is not None:
        said.append(f"{count(gpus)} × {name.upper()}" if name else f"{count(gpus)} GPUs")
    precision = s.operating_point.get("precision")
    if precision:
        said.append(precision)
    return shortened(" · ".join(said), 140)

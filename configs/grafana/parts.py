"""The parts that all dashboards are made of: variables, queries, panels, rows, annotations.

Pure. Every panel has a title, a description, a unit and the dashboard's data source; every query is bound to
the job, the instance and the run that are chosen above.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    prometheus,
    stat,
    statetimeline,
    table,
)
from grafana_foundation_sdk.builders import timeseries as series
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE: Final = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
CHOSEN: Final = 'job=~"$job", instance=~"$instance", run=~"$run"'
HOST: Final = 'job=~"$job", instance=~"$instance"'
BUCKETS: Final = {
    "productive": "green", "lost": "red", "startup": "orange", "checkpoint": "blue", "evaluation": "purple",
    "tail": "dark-red", "pending": "text", "idle": "yellow", "other": "super-light-yellow",
}  # fmt: skip
STATES: Final = {
    "waiting": "text", "starting": "blue", "running": "green", "stalled": "red", "down": "orange",
    "finished": "purple",
}  # fmt: skip
Steps = Sequence[tuple[float | None, str]]


@dataclass(frozen=True, kw_only=True)
class Query:
    """One query of a panel."""

    expr: str
    """With `@` for the matchers of what is chosen above, inside braces."""
    legend: str = ""
    now: bool = False
    """Whether only the present value is asked for."""
    rows: bool = False
    """Whether it is for a table."""

    def made(self, letter: str) -> prometheus.Dataquery:
        """Return it under a letter."""
        made = prometheus.Dataquery().datasource(SOURCE).expr(chosen(self.expr)).ref_id(letter)
        made = made.legend_format(self.legend or "__auto")
        made = made.instant() if self.now else made.range()
        return made.format(PromQueryFormat.TABLE) if self.rows else made


def quantiles(expr: str, *, per: int = 1) -> tuple[Query, ...]:
    """Return the queries of a forecast's range, from an expression that ends with the metric's name.

    `per` is how much of the metric's unit is one of the panel's.
    """
    tail = f" / {per}" if per != 1 else ""
    return tuple(Query(expr=f'{expr}{{@, p="0.{n}"}}{tail}', legend=f"P{n}0") for n in (1, 5, 9))


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One panel, before it has a place."""

    kind: Literal["stat", "lines", "bars", "states", "table"]
    title: str
    says: str
    """Its description: what the number means, and what to do with it."""
    unit: str
    queries: tuple[Query, ...]
    wide: int = 8
    tall: int = 8
    steps: Steps = ()
    """Colours from values on."""
    mappings: tuple[models.ValueMapping, ...] = ()
    colours: dict[str, str] = field(default_factory=dict)
    """By the name of a series."""
    dashed: str = ""
    """A regular expression of series that are limits or plans, not measured."""
    band: tuple[str, str] | None = None
    """Names of the upper and the lower series of a range."""
    stacked: Literal["", "percent", "normal"] = ""
    log: bool = False
    """Whether the axis is logarithmic."""
    low: float | None = None
    high: float | None = None
    decimals: int | None = None
    named: bool = False
    """Whether a stat shows the name of its series instead of the value."""
    columns: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Of a table: field -> (heading, unit)."""
    hidden: tuple[str, ...] = ()
    """Fields that a table leaves out."""
    sort: str = ""
    """The heading that a table is sorted by, largest first."""


def chosen(expr: str) -> str:
    """Return an expression bound to what is chosen above.

    >>> chosen('up{@host}')
    'up{job=~"$job", instance=~"$instance"}'
    """
    return expr.replace("@host", HOST).replace("@", CHOSEN)


def paint(steps: Steps) -> dashboard.ThresholdsConfig:
    """Return thresholds; the first step has no value."""
    made = [models.Threshold(value=value, color=colour) for value, colour in steps]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(made)


def words(said: dict[str, tuple[str, str]]) -> models.ValueMap:
    """Return what is shown instead of a value: text and colour."""
    options = {
        value: models.ValueMappingResult(text=text, color=colour, index=place)
        for place, (value, (text, colour)) in enumerate(said.items())
    }
    return models.ValueMap(options=options)


def fixed(colour: str) -> models.DynamicConfigValue:
    """Return a property that fixes a colour."""
    return models.DynamicConfigValue(id_val="color", value={"mode": "fixed", "fixedColor": colour})


def draw(panel: Panel, *, number: int, x: int, y: int) -> Any:
    """Return a panel's builder at its place."""
    kinds: dict[str, Any] = {
        "stat": stat.Panel,
        "lines": series.Panel,
        "bars": bargauge.Panel,
        "states": statetimeline.Panel,
        "table": table.Panel,
    }
    made = kinds[panel.kind]()
    made.id(number).title(panel.title).description(panel.says).unit(panel.unit).datasource(SOURCE)
    made.grid_pos(models.GridPos(h=panel.tall, w=panel.wide, x=x, y=y))
    for letter, query in zip("ABCDEFGHIJKLMNOP", panel.queries, strict=False):
        made.with_target(query.made(letter))
    made.thresholds(paint(panel.steps or [(None, "green")]))
    if panel.mappings:
        made.mappings(list(panel.mappings))
    if panel.low is not None:
        made.min(panel.low)
    if panel.high is not None:
        made.max(panel.high)
    if panel.decimals is not None:
        made.decimals(panel.decimals)
    for name, colour in panel.colours.items():
        made.override_by_name(name, [fixed(colour)])
    _STYLE[panel.kind](made, panel)
    return made


def _stat(made: Any, panel: Panel) -> None:
    last = common.ReduceDataOptions().calcs(["lastNotNull"]).values(False)
    made.reduce_options(last)
    made.text_mode(shapes.BigValueTextMode.NAME if panel.named else shapes.BigValueTextMode.AUTO)
    made.color_mode(shapes.BigValueColorMode.BACKGROUND if panel.steps else shapes.BigValueColorMode.VALUE)
    made.graph_mode(shapes.BigValueGraphMode.NONE)


def _lines(made: Any, panel: Panel) -> None:
    legend = common.VizLegendOptions().show_legend(True).calcs(["lastNotNull"])
    made.legend(legend.display_mode(shapes.LegendDisplayMode.LIST).placement(shapes.LegendPlacement.BOTTOM))
    made.tooltip(common.VizTooltipOptions().mode(shapes.TooltipDisplayMode.MULTI))
    made.fill_opacity(70 if panel.stacked else 0).line_width(1 if panel.stacked else 2)
    if panel.log:
        scale = common.ScaleDistributionConfig().type(shapes.ScaleDistribution.LOG).log(10)
        made.scale_distribution(scale)
    if panel.stacked:
        mode = shapes.StackingMode.PERCENT if panel.stacked == "percent" else shapes.StackingMode.NORMAL
        made.stacking(common.StackingConfig().mode(mode).group("A"))
    if panel.dashed:
        dash = {"fill": "dash", "dash": [8, 6]}
        made.override_by_regexp(
            panel.dashed,
            [
                models.DynamicConfigValue(id_val="custom.lineStyle", value=dash),
                models.DynamicConfigValue(id_val="custom.lineWidth", value=1),
            ],
        )
    if panel.band is not None:
        upper, lower = panel.band
        made.override_by_name(
            upper,
            [
                models.DynamicConfigValue(id_val="custom.fillBelowTo", value=lower),
                models.DynamicConfigValue(id_val="custom.fillOpacity", value=15),
                models.DynamicConfigValue(id_val="custom.lineWidth", value=0),
            ],
        )
        made.override_by_name(lower, [models.DynamicConfigValue(id_val="custom.lineWidth", value=0)])


def _bars(made: Any, panel: Panel) -> None:
    made.orientation(shapes.VizOrientation.HORIZONTAL)
    made.display_mode(shapes.BarGaugeDisplayMode.BASIC).value_mode(shapes.BarGaugeValueMode.TEXT)
    made.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))


def _states(made: Any, panel: Panel) -> None:
    made.show_value(shapes.VisibilityMode.NEVER).row_height(0.85).fill_opacity(80)
    made.legend(common.VizLegendOptions().show_legend(False))


def _table(made: Any, panel: Panel) -> None:
    hide = {name: True for name in ("Time", "__name__", *panel.hidden)}
    names = {name: heading for name, (heading, _) in panel.columns.items()}
    order = {name: place for place, name in enumerate(panel.columns)}
    if len(panel.queries) > 1:
        merge = models.DataTransformerConfig(id_val="merge", options={})
        made.with_transformation(merge)
    for number in range(1, len(panel.queries) + 1):
        hide[f"Time {number}"] = True
    made.with_transformation(
        models.DataTransformerConfig(
            id_val="organize",
            options={"excludeByName": hide, "renameByName": names, "indexByName": order},
        )
    )
    for heading, unit in panel.columns.values():
        if unit:
            made.override_by_name(heading, [models.DynamicConfigValue(id_val="unit", value=unit)])
    if panel.sort:
        made.sort_by([common.TableSortByFieldState().display_name(panel.sort).desc(True)])


_STYLE: Final = {"stat": _stat, "lines": _lines, "bars": _bars, "states": _states, "table": _table}


def variables(*, runs: bool = True) -> list[Any]:
    """Return the choices above a dashboard: data source, job, instance, run."""
    metric = "tracker_ready"
    found: list[Any] = [
        dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"),
    ]
    asked = [("job", "Job", f"label_values({metric}, job)")]
    asked.append(("instance", "Instance", f'label_values({metric}{{job=~"$job"}}, instance)'))
    if runs:
        asked.append(("run", "Run", f"label_values({metric}{{{HOST}}}, run)"))
    for name, label, query in asked:
        found.append(
            dashboard
            .QueryVariable(name)
            .label(label)
            .datasource(SOURCE)
            .query({"query": query, "refId": f"variable-{name}"})
            .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(models.VariableSort.ALPHABETICAL_ASC)
            .multi(True)
            .include_all(True)
            .all_value(".+")
            .current(models.VariableOption(selected=True, text=["All"], value=["$__all"]))
        )
    return found


@dataclass(frozen=True, kw_only=True)
class Mark:
    """An event that is drawn over all graphs: where a query gives something."""

    name: str
    colour: str
    expr: str
    title: str


@dataclass(frozen=True, kw_only=True)
class Board:
    """One dashboard."""

    uid: str
    title: str
    says: str
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]
    marks: tuple[Mark, ...] = ()
    since: str = "now-2d"

    def document(self) -> dict[str, Any]:
        """Return it as classic JSON: what Grafana 10 to 13 loads from a file."""
        made = (
            dashboard
            .Dashboard(self.title)
            .uid(self.uid)
            .description(self.says)
            .tags(["training", "run-telemetry"])
            .readonly()
            .tooltip(models.DashboardCursorSync.CROSSHAIR)
            .time(self.since, "now")
            .refresh("1m")
            .timezone("browser")
            .variables(variables())
            .link(
                dashboard
                .DashboardLink("Training")
                .type(models.DashboardLinkType.DASHBOARDS)
                .tags(["run-telemetry"])
                .as_dropdown(True)
                .keep_time(True)
                .include_vars(True)
            )
        )
        y, number = 0, 0
        for title, panels in self.rows:
            number += 1
            made.with_row(dashboard.Row(title).id(number).grid_pos(models.GridPos(h=1, w=24, x=0, y=y)))
            x, y, tallest = 0, y + 1, 0
            for panel in panels:
                if x + panel.wide > 24:
                    x, y, tallest = 0, y + tallest, 0
                number += 1
                made.with_panel(draw(panel, number=number, x=x, y=y))
                x, tallest = x + panel.wide, max(tallest, panel.tall)
            y += tallest
        document: dict[str, Any] = json.loads(JSONEncoder(sort_keys=False).encode(made.build()))
        document["annotations"] = {"list": [annotation(mark) for mark in self.marks]}
        for variable in document["templating"]["list"]:
            for name in ("auto", "auto_count", "auto_min"):
                variable.pop(name, None)  # of an interval variable only, and Grafana's own types refuse them
        return document


def annotation(mark: Mark) -> dict[str, Any]:
    """Return an event's query as Grafana's Prometheus data source takes it.

    By hand: the builder knows `expr` only, and Grafana reads `target`.
    """
    return {
        "name": mark.name,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "enable": True,
        "hide": False,
        "iconColor": mark.colour,
        "target": {"refId": "Anno", "expr": chosen(mark.expr), "interval": "", "range": True},
        "step": "60s",
        "titleFormat": mark.title,
    }

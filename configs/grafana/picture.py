"""Draws the main queries of the Run dashboard with matplotlib, from the answers of a Prometheus.

Edge: asks a Prometheus over HTTP, writes a PNG. It is for the documentation only, and shows what the queries
give, not what Grafana draws:

    python configs/grafana/picture.py http://127.0.0.1:9090 RUN START END docs/grafana.png

START and END are seconds since 1970.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Final

import matplotlib

matplotlib.use("agg")
from matplotlib import dates, ticker
from matplotlib.figure import Figure

HERE: Final = Path(__file__).parent
SHOWN: Final = (
    "Tokens against the plan",
    "Forecast of the finish",
    "MFU",
    "Goodput",
    "GPU-hours for 1e12 tokens",
    "Where the last day's GPU-hours went",
    "Mean time between failures of the job",
    "Training since the last checkpoint",
    "Cost",
)
COLOURS: Final = {
    "green": "#56a64b", "red": "#e02f44", "orange": "#ff9830", "blue": "#3274d9", "purple": "#a352cc",
    "dark-red": "#c4162a", "text": "#888888", "yellow": "#f2cc0c", "super-light-yellow": "#ffee52",
}  # fmt: skip
"""Grafana's names."""


def ask(server: str, path: str, **asked: object) -> list[dict[str, Any]]:
    """Return the result of a query."""
    url = f"{server}/api/v1/{path}?{urllib.parse.urlencode(asked)}"
    with urllib.request.urlopen(url, timeout=60) as answer:
        found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return found


def named(legend: str, labels: dict[str, str]) -> str:
    """Return a legend with its labels filled in."""
    for name, value in labels.items():
        legend = legend.replace("{{" + name + "}}", value)
    return legend


def draw(server: str, run: str, start: float, end: float) -> Figure:
    """Return the picture."""
    board = json.loads((HERE / "dashboards" / "training-run.json").read_text())
    panels = {panel["title"]: panel for panel in board["panels"]}
    figure = Figure(figsize=(13.5, 9.4), dpi=80, layout="constrained")
    axes = figure.subplots(3, 3)
    for axis, title in zip(axes.flat, SHOWN, strict=True):
        panel = panels[title]
        fixed = {
            override["matcher"]["options"]: COLOURS.get(
                override["properties"][0]["value"].get("fixedColor", "")
            )
            for override in panel["fieldConfig"]["overrides"]
            if override["properties"][0]["id"] == "color"
        }
        stacked: list[tuple[str, list[float], list[float]]] = []
        is_stacked = (
            panel["fieldConfig"]["defaults"].get("custom", {}).get("stacking", {}).get("mode") == "percent"
        )
        for target in panel["targets"]:
            expr = target["expr"].replace("$run", run).replace("$job", ".+").replace("$instance", ".+")
            found = ask(
                server, "query_range", query=expr, start=start, end=end, step=max(15, (end - start) / 400)
            )
            for one in found:
                label = named(target["legendFormat"], one["metric"])
                times = [dt.datetime.fromtimestamp(float(at), dt.UTC) for at, _ in one["values"]]
                values = [float(value) for _, value in one["values"]]
                if panel["fieldConfig"]["defaults"]["unit"] == "dateTimeAsIso":
                    values = [dates.date2num(dt.datetime.fromtimestamp(v / 1000, dt.UTC)) for v in values]
                if is_stacked:
                    stacked.append((label, times, values))
                    continue
                plan = any(
                    word in label for word in ("plan", "limit", "usual", "due", "target", "best", "budget")
                )
                axis.plot(
                    times, values, label=label, color=fixed.get(label), linewidth=1.2 if plan else 1.6,
                    linestyle="--" if plan else "-", alpha=0.6 if label in {"P10", "P90"} else 1,
                )  # fmt: skip
        if stacked:
            whole = {
                at: sum(dict(zip(t, v, strict=True)).get(at, 0.0) for _, t, v in stacked)
                for at in stacked[0][1]
            }
            rows = [
                [100 * dict(zip(t, v, strict=True)).get(at, 0.0) / (whole[at] or 1.0) for at in whole]
                for _, t, v in stacked
            ]
            axis.stackplot(
                list(whole),
                rows,
                labels=[n for n, _, _ in stacked],
                colors=[fixed.get(n) for n, _, _ in stacked],
            )
            axis.set_ylim(0, 100)
            axis.yaxis.set_major_formatter(ticker.PercentFormatter(decimals=0))
        custom = panel["fieldConfig"]["defaults"].get("custom", {})
        if custom.get("scaleDistribution", {}).get("type") == "log":
            axis.set_yscale("log")
        unit = panel["fieldConfig"]["defaults"]["unit"]
        if unit == "dateTimeAsIso":
            axis.yaxis_date()
            axis.yaxis.set_major_formatter(dates.DateFormatter("%d %b %H h"))
        elif unit == "percentunit":
            axis.yaxis.set_major_formatter(ticker.PercentFormatter(1.0, decimals=0))
        elif unit == "s":
            axis.yaxis.set_major_formatter(lambda v, _: f"{v / 3600:.3g} h")
        elif not stacked:
            axis.yaxis.set_major_formatter(ticker.EngFormatter(sep=""))
        axis.set_title(title, fontsize=10, loc="left", fontweight="bold")
        axis.xaxis.set_major_locator(dates.AutoDateLocator(maxticks=5))
        axis.xaxis.set_major_formatter(dates.ConciseDateFormatter(axis.xaxis.get_major_locator()))
        axis.tick_params(labelsize=8)
        axis.grid(alpha=0.25)
        axis.legend(fontsize=6.5, loc="best", framealpha=0.7)
    figure.suptitle(
        f"The Run dashboard's queries, answered by Prometheus for {run}, a simulated run. "
        "Drawn by matplotlib, not by Grafana.",
        fontsize=10,
    )
    return figure


def main(server: str, run: str, start: str, end: str, out: str) -> int:
    """Write the picture."""
    draw(server, run, float(start), float(end)).savefig(out, metadata={"Software": None})
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))

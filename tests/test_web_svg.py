"""Figures as SVG: every number is where it belongs, words hide no others, nothing hostile gets through."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.page import Axis, Band, Bar, Drawing, Figure, Line, Mark, Panel, Rule, Tick
from reports.svg import NARROW, WIDE, svg
from reports.svg_words import width_of

SVG = "{http://www.w3.org/2000/svg}"


def figure(panel: Panel, **more: object) -> Figure:
    return Figure(
        name="f",
        alt="What it says.",
        caption="A figure",
        drawing=Drawing(panels=(panel,), **more),  # type: ignore[arg-type]
    )


def drawn(panel: Panel, width: int = WIDE) -> ET.Element:
    """The drawing, parsed: so it is well-formed."""
    text = svg(figure(panel), width=width).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return ET.fromstring(text)


def axes(**more: object) -> Panel:
    return Panel(x=Axis(low=0, high=10), y=Axis(low=0, high=100), **more)  # type: ignore[arg-type]


def numbers(path: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+\.?\d*", path)]


def test_a_line_goes_through_its_points() -> None:
    """Twice the value is twice as far from the axis."""
    root = drawn(axes(lines=(Line(points=((0, 0), (5, 50), (10, 100)), role="run"),)))
    path = next(p.get("d", "") for p in root.iter(f"{SVG}path") if "line" in p.get("class", ""))
    (x0, y0), (x1, y1), (x2, y2) = zip(numbers(path)[::2], numbers(path)[1::2], strict=True)

    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.1)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.1)
    assert y0 > y2


def test_a_bar_is_as_long_as_its_value() -> None:
    """Three times the value, three times the length."""
    rows = (Bar(x0=0, x1=3, y0=0, y1=1, role="productive"), Bar(x0=0, x1=9, y0=1, y1=2, role="lost"))
    panel = Panel(x=Axis(low=0, high=10), y=Axis(low=0, high=2, flipped=True), bars=rows)
    paths = [p.get("d", "") for p in drawn(panel).iter(f"{SVG}path") if p.get("class", "").startswith("f ")]
    short, long = (numbers(path)[2] for path in paths)

    assert long == pytest.approx(3 * short, abs=0.2)


def test_many_bars_say_the_same_in_fewer_words() -> None:
    """A thousand of them end where the last one ends, in a tenth of the text."""
    many = tuple(
        Bar(x0=n / 100, x1=n / 100 + 0.006, y0=20, y1=60, role=("productive", "lost")[n % 2], hint="attempt")
        for n in range(1000)
    )  # fmt: skip
    panel = axes(bars=many)
    group = next(drawn(panel).iter(f"{SVG}g"))
    ends = []
    for path in group:
        pen = 0.0
        for dx, length in re.findall(r"m(-?\d+) -?\d+h(\d+)", path.get("d", "")):
            pen += float(dx) + float(length)
        ends.append(pen / 10)
    lone = drawn(axes(bars=many[-1:]))
    x, _, width, *_ = numbers(
        next(p for p in lone.iter(f"{SVG}path") if p.get("class") == "f lost").get("d", "")
    )

    assert max(ends) == pytest.approx(x + width, abs=0.2)
    assert len(svg(figure(panel))) < 20_000


def waterfall(title: str, names: Sequence[str]) -> Panel:
    """Rows as those of GPU-hours, each with a long label at a short bar."""
    return Panel(
        title=title,
        x=Axis(low=0, high=13),
        y=Axis(
            low=-0.6,
            high=len(names) - 0.4,
            flipped=True,
            ticks=tuple(Tick(at=float(n), text=name) for n, name in enumerate(names)),
        ),
        bars=tuple(
            Bar(x0=9 - n, x1=10 - n, y0=n - 0.36, y1=n + 0.36, role="lost", label="14,033 · 64.7 %")
            for n in range(len(names))
        ),
    )


@pytest.mark.parametrize("width", [WIDE, NARROW], ids=["on a desk", "on a phone"])
def test_each_row_has_its_name_and_its_whole_label(width: int) -> None:
    """Of two panels side by side the first has the names; one under the other both have."""
    names = ["allocated", *(f"part {n}" for n in range(8))]
    panels = (waterfall("Last day", names), waterfall("Whole run", [""] * len(names)))
    one = Figure(
        name="f", alt="a", caption="c", drawing=Drawing(panels=panels, beside=True, height_ratio=0.3)
    )
    said = re.findall(
        r'<text x="([0-9.]+)" y="[0-9.]+"( text-anchor="end")?[^>]*>([^<]*)<', svg(one, width=width)
    )
    labels = [(float(x), bool(end)) for x, end, text in said if "%" in text]
    size = width_of("14,033 · 64.7 %")

    assert [text for *_, text in said].count("part 3") == (1 if width == WIDE else 2)
    assert len(labels) == 2 * len(names)
    assert all(x - size >= 0 if end else x + size <= width for x, end in labels)


def test_words_never_lie_on_each_other() -> None:
    """Names of lines that end together, of marks and of rules give way, or are left out."""
    panel = axes(
        lines=tuple(Line(points=((0, 0), (9, 90 + n / 10)), role="run", label=f"line {n}") for n in range(4)),
        marks=(Mark(x=9, y=90, role="problem", label="here"),),
        rules=(
            Rule(at=9, across="x", role="plan", label="plan"),
            Rule(at=91, across="y", role="plan", label="goal"),
        ),
    )
    for width in (WIDE, NARROW):
        places = []
        for text in drawn(panel, width).iter(f"{SVG}text"):
            size = width_of(text.text or "")
            left = float(text.get("x", 0)) - {"end": size, "middle": size / 2}.get(
                text.get("text-anchor", ""), 0
            )
            places.append((left, float(text.get("y", 0)), size))
        assert len(places) > 4
        for (left, y, size), (other, other_y, other_size) in combinations(places, 2):
            apart = left + size <= other + 0.2 or other + other_size <= left + 0.2
            assert apart or abs(y - other_y) >= 11


def test_ticks_thin_out_where_there_is_no_room() -> None:
    """Every second, every third: never half a word over another."""
    ticks = tuple(Tick(at=n / 2, text=f"{n} January") for n in range(21))
    panel = Panel(x=Axis(low=0, high=10, ticks=ticks), y=Axis(low=0, high=1))

    assert (
        len(list(drawn(panel, NARROW).iter(f"{SVG}text")))
        < len(list(drawn(panel, WIDE).iter(f"{SVG}text")))
        < 21
    )


def test_hostile_words_are_text() -> None:
    """In labels, hints and the description."""
    evil = "</text><script>alert(1)</script>\" onload='x' \u202e"
    panel = axes(marks=(Mark(x=5, y=50, role="lost", label=evil, hint=evil),))
    made = svg(Figure(name="f", alt=evil, caption="", drawing=Drawing(panels=(panel,))))

    assert "<script" not in made
    assert "\u202e" not in made
    assert {part.tag for part in drawn(panel).iter()} <= {
        SVG + n for n in ("svg", "path", "text", "title", "g")
    }


FLOATS = st.floats(allow_nan=True, allow_infinity=True, width=64)


@given(x=FLOATS, y=FLOATS, z=FLOATS)
def test_no_number_breaks_a_drawing(x: float, y: float, z: float) -> None:
    """Not one that is none, not one without end, not one far outside."""
    made = svg(figure(axes(
        lines=(Line(points=((0, 0), (x, y), (10, z)), role="run", label="a"),),
        bands=(Band(points=((0, 0, 1), (x, y, z)), role="forecast"),),
        bars=(Bar(x0=x, x1=y, y0=z, y1=1, role="lost", label="b"),),
        marks=(Mark(x=x, y=y, role="run", label="c"),),
        rules=(Rule(at=x, across="x", role="plan", label="d"), Rule(at=y, across="y", role="plan")),
    )))  # fmt: skip

    assert "nan" not in made
    assert "inf" not in made
    assert len(made) < 20_000


def test_an_axis_without_length_draws_nothing() -> None:
    """Instead of dividing by nothing."""
    assert "<path" not in svg(figure(Panel(x=Axis(low=1, high=1), y=Axis(low=0, high=1))))


@pytest.mark.parametrize("beside", [True, False], ids=["side by side", "one below the other"])
def test_panels_stand_one_below_the_other_on_a_phone(beside: bool) -> None:
    """However they stand on a desk."""
    one = axes(title="one", lines=(Line(points=((0, 0), (10, 100)), role="run"),))
    two = Figure(name="f", alt="", caption="", drawing=Drawing(panels=(one, one), beside=beside))
    titles = re.findall(r'<text x="([\d.]+)" y="([\d.]+)"[^>]*>one', svg(two, width=NARROW))

    assert titles[0][0] == titles[1][0]
    assert titles[0][1] != titles[1][1]

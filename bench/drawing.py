"""Plots as SVG, in the reader's light or dark: lines over a logarithmic axis, and bars."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 760, 76, 76, 56, 56
ROW, LABELS, ROOM_FOR_TEXT = 34, 300, 60
COLOURS = 4
STYLE = """
.ground { fill: #ffffff } text { fill: #24292f; font: 13px system-ui, sans-serif }
.title { font-weight: 600; font-size: 15px } .axis { fill: #57606a } .grid { stroke: #d8dee4 }
.c0 { color: #0969da } .c1 { color: #bc4c00 } .c2 { color: #1a7f37 } .c3 { color: #8250df }
.line { fill: none; stroke: currentColor; stroke-width: 2 } .dot, .bar { fill: currentColor }
.whisker { stroke: currentColor; stroke-width: 1.5 } .on-bar { stroke: #24292f; stroke-width: 1.5 }
.goal { stroke: currentColor; stroke-width: 1.5; stroke-dasharray: 6 5 } .of-goal { fill: currentColor }
.mark { stroke: #cf222e; stroke-width: 2.5 } .of-mark { fill: #cf222e }
@media (prefers-color-scheme: dark) {
.ground { fill: #0d1117 } text { fill: #e6edf3 } .axis { fill: #9198a1 } .grid { stroke: #30363d }
.c0 { color: #4493f8 } .c1 { color: #f0883e } .c2 { color: #3fb950 } .c3 { color: #ab7df8 }
.on-bar { stroke: #e6edf3 } .mark { stroke: #ff7b72 } .of-mark { fill: #ff7b72 }
}
"""


@dataclass(frozen=True, slots=True)
class Point:
    """A median, and the least and the most of its rounds."""

    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Series:
    """A line; `goal` is drawn in its colour, and said."""

    name: str
    points: Sequence[Point]
    goal: float | None = None


@dataclass(frozen=True, slots=True)
class Bar:
    """One row; `goal` is a mark on it, `text` stands at its end."""

    name: str
    value: float
    text: str
    low: float
    high: float
    colour: int = 0
    goal: float | None = None
    goal_text: str = ""


def lines(title: str, x_label: str, y_label: str, series: Sequence[Series]) -> str:
    """Lines over a logarithmic x; y begins at 0. Where goals are, they are dashed."""
    height = 430 + 20 * ((len(series) + 1) // 2)
    floor = height - BOTTOM - 20 * ((len(series) + 1) // 2)
    xs = sorted({point.x for one in series for point in one.points})
    if not xs:
        return _empty(title)
    most = max([point.high for one in series for point in one.points] + [one.goal or 0.0 for one in series])
    ticks = _ticks(most)
    first, last = math.log(xs[0]), math.log(xs[-1])

    def across(x: float) -> float:
        share = (math.log(x) - first) / (last - first) if last > first else 0.5
        return LEFT + 24 + share * (WIDTH - LEFT - RIGHT - 48)

    def up(y: float) -> float:
        return floor - y / ticks[-1] * (floor - TOP)

    drawn = [_text(LEFT - 60, 26, title, "title")]
    for tick in ticks:
        drawn.append(_line(LEFT, up(tick), WIDTH - RIGHT, up(tick), "grid"))
        drawn.append(_text(LEFT - 8, up(tick) + 4, f"{tick:,g}", "axis", "end"))
    for x in xs:
        drawn.append(_text(across(x), floor + 20, f"{x:,g}", "axis", "middle"))
    drawn.append(_text((LEFT + WIDTH - RIGHT) / 2, floor + 42, x_label, "axis", "middle"))
    drawn.append(
        f'<text class="axis" text-anchor="middle" transform="translate(18 {(floor + TOP) / 2:.0f})'
        f' rotate(-90)">{escape(y_label)}</text>'
    )
    for place, one in enumerate(series):
        drawn.append(f'<g class="c{place % COLOURS}">')
        if one.goal is not None:
            drawn.append(_line(LEFT, up(one.goal), WIDTH - RIGHT, up(one.goal), "goal"))
            drawn.append(_text(WIDTH - RIGHT + 6, up(one.goal) + 4, f"goal {one.goal:g}", "of-goal"))
        path = " ".join(f"{across(point.x):.1f},{up(point.y):.1f}" for point in one.points)
        drawn.append(f'<polyline class="line" points="{path}"/>')
        for point in one.points:
            at = across(point.x)
            drawn.append(_line(at, up(point.low), at, up(point.high), "whisker"))
            drawn.append(f'<circle class="dot" cx="{at:.1f}" cy="{up(point.y):.1f}" r="4"/>')
        column, row = place % 2, place // 2
        x, y = LEFT + column * 330, floor + 66 + row * 20
        drawn.append(f'<circle class="dot" cx="{x}" cy="{y - 4}" r="5"/>')
        drawn.append(_text(x + 12, y, one.name))
        drawn.append("</g>")
    return _svg(height, title, drawn)


def bars(title: str, x_label: str, rows: Sequence[Bar]) -> str:
    """One bar a row, from 0; a goal is a mark across its bar."""
    if not rows:
        return _empty(title)
    height = TOP + ROW * len(rows) + BOTTOM
    floor = TOP + ROW * len(rows)
    ticks = _ticks(max(max(one.value, one.high, one.goal or 0.0) for one in rows))

    def along(value: float) -> float:
        return LABELS + value / ticks[-1] * (WIDTH - LABELS - 90)

    drawn = [_text(16, 26, title, "title")]
    for tick in ticks:
        drawn.append(_line(along(tick), TOP - 6, along(tick), floor, "grid"))
        drawn.append(_text(along(tick), floor + 18, f"{tick:,g}", "axis", "middle"))
    drawn.append(_text((LABELS + WIDTH - 90) / 2, floor + 40, x_label, "axis", "middle"))
    for place, one in enumerate(rows):
        y = TOP + place * ROW
        middle = y + 11
        drawn.append(_text(LABELS - 10, middle + 5, one.name, "", "end"))
        drawn.append(f'<g class="c{one.colour}">')
        width = along(one.value) - LABELS
        drawn.append(f'<rect class="bar" x="{LABELS}" y="{y}" width="{width:.1f}" height="22"/>')
        drawn.append("</g>")
        if one.high > one.low:
            drawn.append(_line(along(one.low), middle, along(one.high), middle, "on-bar"))
        end = max(one.value, one.high)
        if one.goal is not None:
            if 0 <= along(one.goal) - along(end) < ROOM_FOR_TEXT:
                end = one.goal
            drawn.append(_line(along(one.goal), y - 5, along(one.goal), y + 27, "mark"))
        drawn.append(_text(along(end) + 7, middle + 5, one.text))
    goals = [one.goal_text for one in rows if one.goal_text]
    if goals:
        drawn.append(_text(WIDTH - 16, 26, f"| {goals[0]}", "of-mark", "end"))
    return _svg(height, title, drawn)


def _ticks(most: float) -> list[float]:
    """From 0 to above `most` in four to eight round steps."""
    step = 10 ** math.floor(math.log10(most / 4)) if most > 0 else 1.0
    step = next(step * times for times in (1, 2, 5, 10) if most / (step * times) <= 7)
    return [round(step * place, 10) for place in range(math.ceil(most / step * 1.02) + 1)]


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _line(x: float, y: float, to_x: float, to_y: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"/>'


def _empty(title: str) -> str:
    return _svg(80, title, [_text(16, 26, title, "title"), _text(16, 54, "not measured yet", "axis")])


def _svg(height: float, title: str, drawn: Iterable[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
    ground = f'<rect class="ground" width="{WIDTH}" height="{height}"/>'
    inside = [f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>", ground, *drawn]
    return "\n".join([head, *inside, "</svg>"]) + "\n"

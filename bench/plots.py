"""The plots of docs/performance.md, drawn from the results alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.drawing import Bar, Point, Series, bars, lines
from bench.goals import FLAT_TO, GOALS, Results, figures_of

FITS = (
    ("fit-best-one", "best nodes, one container"),
    ("fit-best-four", "best nodes, four containers"),
    ("fit-verdicts-one", "every node's verdict, one container"),
    ("fit-verdicts-four", "every node's verdict, four containers"),
)
CLAIMS = (
    ("claims-spread", "hamiacct, spread over the cards"),
    ("claims-one-card", "hamiacct, one card"),
    ("placement-spread", "Placement, spread over the cards"),
    ("placement-one-card", "Placement, one card"),
)
CLIENTS = (1, 4, 16, 64)
PEAKS = (
    ("snapshot-pods-memory", "web, while a full list of pods is read"),
    ("burst-memory-worker", "worker, in a burst of events"),
    ("replay-memory", "manage.py replay"),
    ("placement-memory", "a process of Placement, same cards"),
)


def drawn(results: Results) -> dict[str, str]:
    """File name to SVG."""
    return {
        "fit.svg": fit(results),
        "claims.svg": claims(results),
        "events.svg": events(results),
        "memory.svg": memory(results),
    }


def fit(results: Results) -> str:
    """The multiple of the empty view over the size of the fleet."""
    series = []
    for key, name in FITS:
        goal = next(one.limit for one in GOALS if one.figure == key and one.field == "ratio")
        points = []
        for nodes in map(int, results["fleets"]):
            figure = figures_of(results, nodes).get(key)
            if figure:
                pairs = zip(figure["rounds"], figure["yardstick_rounds"], strict=True)
                ratios = [one / other for one, other in pairs]
                points.append(Point(nodes, figure["ratio"], min(ratios), max(ratios)))
        series.append(Series(name, points, goal))
    title = "Fit over HTTP, by the size of the fleet"
    return lines(title, "nodes of 8 cards (logarithmic)", "times the empty view's median", series)


def claims(results: Results) -> str:
    """Claims a second over the number of clients."""
    found = figures_of(results, FLAT_TO)
    series = []
    for key, name in CLAIMS:
        points = [
            Point(clients, one["median"], min(one["rounds"]), max(one["rounds"]))
            for clients in CLIENTS
            if (one := found.get(f"{key}-{clients}"))
        ]
        series.append(Series(name, points))
    return lines(
        "Claims beside OpenStack Placement, same cards, same PostgreSQL",
        "clients at once (logarithmic)",
        "claims a second",
        [one for one in series if one.points],
    )


def events(results: Results) -> str:
    """Events applied and pgbench's transactions a second."""
    found = figures_of(results, FLAT_TO)
    rows = []
    pgbench = found.get("pgbench-8")
    if pgbench:
        rows.append(_bar("pgbench -N, 8 clients: transactions", pgbench, 3))
    for key, name in (
        ("events-call", "events, call to applied"),
        ("events-stored", "events, stored to applied"),
    ):
        figure = found.get(key)
        if figure:
            times = next(one.limit for one in GOALS if one.figure == key)
            median = sorted(figure["yardstick_rounds"])[len(figure["yardstick_rounds"]) // 2]
            goal = times * median
            rows.append(_bar(name, figure, 0, goal=goal, goal_text="goal: 1 x and 2.5 x pgbench"))
    return bars("Events applied by two workers, beside pgbench", "a second", rows)


def memory(results: Results) -> str:
    """The most that a process of each kind has held."""
    rows = []
    for nodes in map(int, results["fleets"]):
        figure = figures_of(results, nodes).get("memory")
        if figure:
            goal = {"goal": 150.0, "goal_text": "goal: 150 MiB at 40,000 cards"} if nodes == FLAT_TO else {}
            rows.append(
                Bar(
                    f"web, {nodes * 8:,} cards", figure["median"], f"{figure['median']:,.0f}", 0, 0, 0, **goal
                )
            )
    found = figures_of(results, FLAT_TO)
    for place, (key, name) in enumerate(PEAKS):
        if key in found:
            rows.append(_bar(name, found[key], 3 if place == 3 else 1))
    return bars("The most that one process held", "MiB", rows)


def _bar(name: str, figure: Mapping[str, Any], colour: int, **goal: Any) -> Bar:
    rounds = figure["rounds"]
    return Bar(name, figure["median"], f"{figure['median']:,.0f}", min(rounds), max(rounds), colour, **goal)

"""The goals, and what the results say to each; they stand here once, whatever is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Results = Mapping[str, Any]
FLAT_FROM, FLAT_TO = 100, 5_000


@dataclass(frozen=True, slots=True)
class Goal:
    """What `field` of a figure must be on the fleet of so many nodes."""

    scenario: str
    """Of the table of goals: those of one scenario follow each other."""
    figure: str
    field: str
    limit: float
    words: str
    at_least: bool = False
    nodes: int = 5_000
    unit: str = "x"

    def is_met(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit

    @property
    def bound(self) -> str:
        sign = "at least" if self.at_least else "at most"
        return f"{sign} {self.limit:,g} {self.unit}"


FIT = "fit over HTTP, best nodes"
VERDICTS = "fit with every node's verdict and reasons"
EVENTS = "events, two workers, beside pgbench"
HOT = "reservations on one hot card"
PEER = "reservation beside Placement's PUT of an allocation, 16 clients"

GOALS: Sequence[Goal] = (
    Goal(FIT, "fit-best-one", "ratio", 4, "one container: median, of the empty view's"),
    Goal(FIT, "fit-best-one", "p99_ratio", 10, "one container: p99, of the empty view's median"),
    Goal(FIT, "fit-best-four", "ratio", 5, "sidecar, init and two apps: median, of the empty view's"),
    Goal(FIT, "flat-one", "median", 1.5, "one container: at 5,000 nodes of at 100"),
    Goal(FIT, "flat-four", "median", 1.5, "four containers: at 5,000 nodes of at 100"),
    Goal(FIT, "stale", "median", 0, "answers older than the last commit, eight writers", unit="answers"),
    Goal(VERDICTS, "fit-verdicts-one", "ratio", 6, "one container: median, of the empty view's"),
    Goal(VERDICTS, "fit-verdicts-four", "ratio", 15, "four containers: median, of the empty view's"),
    Goal("160,000 cards in one process", "in-process", "median", 1, "best node", nodes=20_000, unit="ms"),
    Goal("quota check over HTTP", "quota-check", "ratio", 2, "median, of the empty view's"),
    Goal(
        "fit and reserve over HTTP, one client", "fit-and-reserve", "ratio", 8, "median, of the empty view's"
    ),
    Goal(EVENTS, "events-stored", "ratio", 2.5, "from stored to applied, batches of 500", at_least=True),
    Goal(EVENTS, "events-call", "ratio", 1, "from the call to applied", at_least=True),
    Goal(HOT, "hot-16", "ratio", 0.8, "16 clients, of the rate at 4", at_least=True),
    Goal(HOT, "hot-64", "ratio", 0.8, "64 clients, of the rate at 4", at_least=True),
    Goal(
        HOT,
        "hot-64",
        "p99_ms",
        2_000,
        "64 clients: p99, within the 2 s that a request may wait for its turn",
        unit="ms",
    ),
    Goal(PEER, "claims-spread-16", "ratio", 10, "spread over the cards", at_least=True),
    Goal(PEER, "claims-one-card-16", "ratio", 10, "all on one card", at_least=True),
    Goal(
        "memory of one web process, 40,000 cards",
        "memory",
        "median",
        150,
        "the most it ever held",
        unit="MiB",
    ),
    Goal("first fit after a process starts, 40,000 cards", "first-fit", "median", 0.5, "median", unit="s"),
)


def figures_of(results: Results, nodes: int) -> dict[str, dict[str, Any]]:
    """The figures of a fleet by key, and those that follow from others."""
    fleet = results["fleets"].get(str(nodes), {})
    found = {figure["key"]: figure for figure in fleet.get("figures", ())}
    found |= {figure["key"]: figure for figure in _derived(results, nodes, fleet)}
    return found


def _derived(results: Results, nodes: int, fleet: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The memory of a web process, over everything but full lists; and how flat fit is."""
    made = []
    peaks = {name: one["web"] for name, one in fleet.get("peaks_mib", {}).items() if name != "load"}
    if peaks:
        most = max(peaks, key=lambda name: peaks[name])
        made.append({"key": "memory", "median": peaks[most], "unit": "MiB", "note": f"in {most}"})
    if nodes == FLAT_TO:
        for shape in ("one", "four"):
            ends = [
                one["ratio"]
                for fleet_nodes in (FLAT_FROM, FLAT_TO)
                for one in results["fleets"].get(str(fleet_nodes), {}).get("figures", ())
                if one["key"] == f"fit-best-{shape}"
            ]
            if len(ends) == 2:
                ratio = float(f"{ends[1] / ends[0]:.4g}")
                made.append({"key": f"flat-{shape}", "median": ratio, "unit": "x", "note": ""})
    return made


def judged(results: Results) -> list[dict[str, Any]]:
    """Every goal with what was measured: met, missed, or not measured."""
    return [_judged(goal, figures_of(results, goal.nodes).get(goal.figure)) for goal in GOALS]


def _judged(goal: Goal, figure: Mapping[str, Any] | None) -> dict[str, Any]:
    value = None if figure is None else figure.get(goal.field)
    verdict = "not measured" if value is None else "met" if goal.is_met(value) else "missed"
    spread = None if figure is None or goal.field != "ratio" else figure["ratio_spread"]
    return {
        "scenario": goal.scenario,
        "figure": goal.figure,
        "words": goal.words,
        "nodes": goal.nodes,
        "bound": goal.bound,
        "value": value,
        "unit": goal.unit,
        "spread": spread,
        "verdict": verdict,
    }

"""What a run has measured, beside what it is measured against, and beside the goal."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Goal:
    """At most, or at least, so many times the yardstick."""

    ratio: float
    at_least: bool = False

    def is_met(self, ratio: float) -> bool:
        return ratio >= self.ratio if self.at_least else ratio <= self.ratio


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure: of several rounds the median, the 99th of a hundred, and how far the rounds were apart."""

    name: str
    unit: str
    median: float
    p99: float | None = None
    spread: float = 0.0
    yardstick: str = ""
    ratio: float | None = None
    goal: Goal | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        if self.goal is None or self.ratio is None:
            return ""
        return "met" if self.goal.is_met(self.ratio) else "missed"

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": self.verdict}


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@dataclass(slots=True)
class Report:
    """The figures of one run, and the yardsticks by name, in the figure's unit."""

    yardsticks: dict[str, float] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)

    def latency(
        self,
        name: str,
        rounds: Sequence[Sequence[float]],
        yardstick: str = "",
        goal: Goal | None = None,
        note: str = "",
    ) -> Figure:
        """Seconds of calls, in rounds; shown in milliseconds."""
        medians = [statistics.median(one) * 1000 for one in rounds]
        every = [second * 1000 for one in rounds for second in one]
        return self._add(
            name, "ms", statistics.median(medians), percentile(every, 0.99), medians, yardstick, goal, note
        )

    def rate(
        self,
        name: str,
        rounds: Sequence[float],
        yardstick: str = "",
        goal: Goal | None = None,
        *,
        p99_ms: float | None = None,
        note: str = "",
    ) -> Figure:
        """So many a second, in rounds."""
        return self._add(name, "/s", statistics.median(rounds), p99_ms, rounds, yardstick, goal, note)

    def amount(
        self, name: str, unit: str, value: float, limit: float | None = None, note: str = ""
    ) -> Figure:
        """A figure with a goal of its own: at most `limit`."""
        goal = None if limit is None else Goal(1.0)
        ratio = None if limit is None else value / limit
        figure = Figure(
            name,
            unit,
            value,
            yardstick=f"{limit:g} {unit}" if limit else "",
            ratio=ratio,
            goal=goal,
            note=note,
        )
        self.figures.append(figure)
        return figure

    def _add(
        self,
        name: str,
        unit: str,
        median: float,
        p99: float | None,
        rounds: Sequence[float],
        yardstick: str,
        goal: Goal | None,
        note: str,
    ) -> Figure:
        spread = (max(rounds) - min(rounds)) / median if median else 0.0
        ratio = median / self.yardsticks[yardstick] if yardstick else None
        figure = Figure(name, unit, median, p99, spread, yardstick, ratio, goal, note)
        self.figures.append(figure)
        return figure

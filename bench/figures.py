"""What was measured, round by round, beside a yardstick that was taken in the same round."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure.

    `rounds` are in `unit`: of calls each is a round's median, and `p99s` are the 99th of a hundred of each
    round in milliseconds. `yardsticks` is what `yardstick` took or did beside each round, in the same unit.
    """

    scenario: str
    key: str
    name: str
    unit: str
    rounds: tuple[float, ...]
    p99s: tuple[float, ...] = ()
    yardstick: str = ""
    yardsticks: tuple[float, ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        assert self.rounds, self.key
        assert not self.yardsticks or len(self.yardsticks) == len(self.rounds), self.key

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def spread(self) -> float:
        """How far the rounds were apart, as a share of their median."""
        return spread(self.rounds)

    @property
    def p99(self) -> float | None:
        return statistics.median(self.p99s) if self.p99s else None

    @property
    def ratios(self) -> tuple[float, ...]:
        """The multiple of the yardstick in each round: what disturbed one disturbed the other."""
        return tuple(one / other for one, other in zip(self.rounds, self.yardsticks, strict=False))

    @property
    def ratio(self) -> float | None:
        return statistics.median(self.ratios) if self.yardsticks else None

    @property
    def p99_ratio(self) -> float | None:
        """The 99th of a hundred as a multiple of the yardstick's median."""
        pairs = zip(self.p99s, self.yardsticks, strict=False)
        found = [one / other for one, other in pairs]
        return statistics.median(found) if found else None

    def as_json(self) -> dict[str, Any]:
        """All of it, and what follows from it, so that whoever reads the file need not reckon."""
        return {
            "scenario": self.scenario,
            "key": self.key,
            "name": self.name,
            "unit": self.unit,
            "median": shown(self.median),
            "spread": shown(self.spread),
            "p99_ms": shown(self.p99),
            "yardstick": self.yardstick,
            "ratio": shown(self.ratio),
            "ratio_spread": shown(spread(self.ratios)),
            "p99_ratio": shown(self.p99_ratio),
            "rounds": [shown(one) for one in self.rounds],
            "p99s_ms": [shown(one) for one in self.p99s],
            "yardstick_rounds": [shown(one) for one in self.yardsticks],
            "note": self.note,
        }


def spread(rounds: Sequence[float]) -> float:
    """The width of some rounds, as a share of their median."""
    middle = statistics.median(rounds) if rounds else 0.0
    return (max(rounds) - min(rounds)) / middle if middle else 0.0


def shown(value: float | None) -> float | None:
    """Four digits that mean something."""
    return None if value is None else float(f"{value:.4g}")


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def median_ms(seconds: Sequence[float]) -> float:
    return statistics.median(seconds) * 1000


def p99_ms(seconds: Sequence[float]) -> float:
    return percentile(seconds, 0.99) * 1000

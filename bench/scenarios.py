"""What is tried, in this order, and on which fleets when nobody says otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from bench import claims, events, freshness, questions, starts
from bench.trial import Trial

SCENARIOS: Mapping[str, Callable[[Trial], None]] = MappingProxyType(
    {
        "empty": questions.empty,
        "fit": questions.fit,
        "capacity": questions.capacity,
        "quota-check": questions.quota_check,
        "admission": questions.admission,
        "reserve": claims.one_client,
        "spread": claims.spread,
        "hot-card": claims.hot_card,
        "events": events.applied_per_second,
        "stream": events.stream,
        "burst": events.burst,
        "reads": questions.reads,
        "stale": freshness.stale_answers,
        "peers": claims.beside_placement,
        "replay": events.replay,
        "first-answer": starts.first_answer,
        "in-process": starts.in_process,
    }
)
LOAD = "load"
"""Before all others, on every fleet."""

SMALL = ("empty", "fit", "quota-check", "reserve")
PODS: Mapping[int, int] = MappingProxyType({100: 1_000, 1_000: 20_000, 5_000: 100_000, 20_000: 100_000})
OF_FLEET: Mapping[int, tuple[str, ...]] = MappingProxyType(
    {
        100: SMALL,
        1_000: (*SMALL, "capacity", "admission", "spread", "hot-card", "events", "first-answer"),
        5_000: tuple(SCENARIOS),
        20_000: (*SMALL, "first-answer", "in-process"),
    }
)


def pods_of(nodes: int) -> int:
    return PODS.get(nodes, nodes * 20)


def of_fleet(nodes: int) -> tuple[str, ...]:
    return OF_FLEET.get(nodes, tuple(SCENARIOS))

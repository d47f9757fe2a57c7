"""How news of a cluster reach the books: late, twice, out of order, not at all, or as a full list."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.model.books import Event, NodeView, View
from tests.model.lives import ANY, Cluster, Profile, manifest

KINDS = ("Node", "ResourceQuota", "Pod")


@dataclass(frozen=True)
class Call:
    """One call of POST /events."""

    events: Sequence[Event]


@dataclass(frozen=True)
class FullList:
    """One call of POST /snapshots."""

    kind: str
    version: int | None
    views: Sequence[View]
    namespace: str = ""
    new_history: bool = False

    def body(self) -> dict[str, Any]:
        """The list as it is sent."""
        metadata = {} if self.version is None else {"resourceVersion": str(self.version)}
        items = [manifest(view) for view in self.views]
        return {"kind": f"{self.kind}List", "apiVersion": "v1", "metadata": metadata, "items": items}


Step = Call | FullList


def deliveries(seed: int, *, steps: int, profile: Profile = ANY, biggest: int = 30) -> Iterator[Step]:
    """The calls that tell of a cluster's life, the last of them full lists of everything."""
    rng = random.Random(f"delivery {seed}")
    cluster = Cluster(seed, profile)
    on_the_way: list[Event] = []
    sent: list[Event] = []
    owed = False
    backup = None
    for step in range(steps):
        happened = [cluster.step() for _ in range(rng.choice((1, 3, 10, biggest)))]
        lost = [event for event in happened if rng.random() < 0.04]
        owed = owed or bool(lost)
        on_the_way += [event for event in happened if event not in lost]
        _shake(rng, on_the_way)
        batch, on_the_way = _some(rng, on_the_way, biggest)
        batch += rng.choices(batch, k=rng.randrange(3)) if batch else []
        batch += rng.choices(sent, k=rng.randrange(4)) if sent else []
        if rng.random() < 0.3:
            rng.shuffle(batch)
        sent += batch
        yield Call(batch)
        if owed and rng.random() < 0.3:
            owed = False
            yield from _lists(rng, cluster)
        elif rng.random() < 0.04:
            yield _mistaken_list(rng, cluster)
            owed = True
        elif rng.random() < 0.05:
            namespace = rng.choice(("team-a", "team-b"))
            yield FullList("Pod", cluster.version, cluster.views("Pod", namespace), namespace)
        if backup is None and step > steps // 4:
            backup = cluster.checkpoint()
        elif backup is not None and rng.random() < 0.04:
            # What was on its way from the cluster that is no more never comes.
            cluster.restore(backup)
            backup, on_the_way, sent, owed = None, [], [], False
            yield from _lists(rng, cluster, new_history=True)
    yield Call(on_the_way)
    yield from _lists(rng, cluster)


def _shake(rng: random.Random, events: list[Event]) -> None:
    """News overtake each other, mostly by a little."""
    for place in range(len(events) - 1):
        if rng.random() < 0.25:
            other = min(len(events) - 1, place + rng.choice((1, 1, 2, 8)))
            events[place], events[other] = events[other], events[place]


def _some(rng: random.Random, events: list[Event], biggest: int) -> tuple[list[Event], list[Event]]:
    """What arrives now, and what is still on its way."""
    size = rng.choice((1, 2, 5, biggest, len(events)))
    return events[:size], events[size:]


def _lists(rng: random.Random, cluster: Cluster, *, new_history: bool = False) -> Iterator[FullList]:
    for kind in KINDS:
        views = cluster.views(kind)
        rng.shuffle(views)
        # A list without a version counts as its highest item's; it is older than what was lost after it.
        version = cluster.version if new_history or rng.random() < 0.8 else None
        yield FullList(kind, version, views, new_history=new_history)


def _mistaken_list(rng: random.Random, cluster: Cluster) -> FullList:
    """A list that forgot something: of one namespace sent as if it were of all, or plainly shortened."""
    kind = rng.choice(KINDS)
    views = cluster.views(kind)
    if rng.random() < 0.5:
        views = [view for view in views if isinstance(view, NodeView) or view.namespace == "team-a"]
    else:
        views = rng.sample(views, k=len(views) // 2)
    return FullList(kind, cluster.version, views)

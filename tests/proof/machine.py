"""The whole service in two kinds of history: beside a cluster that is only read, and as its scheduler."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import MultipleResults, initialize, multiple

from tests.model.books import Event
from tests.proof.binds import Binds
from tests.proof.desk import NAMESPACES, news
from tests.proof.fleet import CARDS, LIMITS, Fleet
from tests.proof.holds import Holds
from tests.proof.lists import Lists
from tests.proof.pods import BIRTHS, Pods
from tests.proof.upkeep import Upkeep

born = st.fixed_dictionaries({name: one for name, one in BIRTHS.items() if name != "is_told"})


class Accounts(Pods, Fleet, Lists, Holds, Upkeep):
    """Events, lists, reservations, quotas, upkeep: everything but a cluster that is written to."""

    @initialize(
        target=news,
        cards=st.sampled_from(("two", "two", "small", "one", "none")),
        limits=st.sampled_from(("", "", "little", "much")),
        pods=st.lists(born, min_size=1, max_size=3),
        is_looked_at=st.sampled_from((False,) * 9 + (True,)),
    )
    def a_town_begins(
        self, cards: str, limits: str, pods: list[dict[str, Any]], is_looked_at: bool
    ) -> MultipleResults[Event]:
        """A node, a few pods, perhaps a quota; whether every window is looked through at the end."""
        self.is_looked_at = is_looked_at
        events = [self.town.register("n1", registers={"NVIDIA": CARDS[cards]} if CARDS[cards] else {})]
        if limits:
            events += [self.town.limit(namespace, "gpu", hard=LIMITS[limits]) for namespace in NAMESPACES]
        events += [self.birth(**facts) for facts in pods]
        self.hear(events)
        return multiple(*events)


class Scheduler(Binds, Accounts):
    """The same, and the service binds the pods itself."""

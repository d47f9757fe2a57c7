"""The kinds of histories: all of the accounts, claims alone, and as the scheduler of a cluster."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import MultipleResults, initialize, multiple

from tests.model.books import Event
from tests.model.service import InTheRequest, Pair
from tests.proof.binds import Binds
from tests.proof.desk import NAMESPACES, news
from tests.proof.fleet import CARDS, LIMITS, Fleet
from tests.proof.holds import Holds
from tests.proof.lists import Lists
from tests.proof.pods import BIRTHS, Births, Pods
from tests.proof.upkeep import Upkeep

born = st.fixed_dictionaries({name: one for name, one in BIRTHS.items() if name != "is_told"})


class Town(Births):
    """What every history begins with."""

    is_looked_at = False

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

    def at_the_end(self) -> None:
        if self.is_looked_at:
            Pair(InTheRequest(self.api), self.books).agree()
        else:
            self.audit()


class Accounts(Town, Pods, Fleet, Lists, Holds, Upkeep):
    """Events, lists, reservations, quotas, upkeep: everything but a cluster that is written to."""


class Claims(Town, Fleet, Holds):
    """Pods that come and go, and much asking for room."""


class Scheduler(Binds, Accounts):
    """Everything, and the service binds the pods itself."""

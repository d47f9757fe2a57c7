"""Nodes that register cards, and the quotas of namespaces."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition

from tests.model.books import Event
from tests.proof.desk import NAMESPACES, NODES, Desk, news, one_of_the, step
from tests.proof.pods import told

CARDS = {
    "two": {"NVIDIA-0": (10, 24576, 100), "NVIDIA-1": (10, 24576, 100)},
    "one": {"NVIDIA-0": (10, 24576, 100)},
    "the other": {"NVIDIA-1": (2, 8000, 100)},
    "small": {"NVIDIA-0": (2, 8000, 100), "NVIDIA-1": (1, 24576, 100)},
    "none": {},
    "unreadable": None,
}
UNITS = (None, 64, 304)
LIMITS = {
    "nothing": {},
    "no memory": {"limits.nvidia.com/gpumem": 0},
    "little": {"limits.nvidia.com/gpumem": 9000, "limits.nvidia.com/gpucores": 60},
    "much": {"limits.nvidia.com/gpumem": 40000},
    "of others": {"limits.amd.com/gpucores": 50, "limits.cambricon.com/mlu.smlu.vmemory": 10},
}
SCOPES: dict[str, dict[str, Any]] = {
    "everybody": {},
    "batch": {"classes": ("In", frozenset(("batch",)))},
    "not batch": {"classes": ("NotIn", frozenset(("batch",)))},
    "with a deadline": {"terminating": True},
    "without a deadline": {"terminating": False},
}


class Fleet(Desk):
    """What happens to nodes and quotas."""

    @step(
        target=news,
        node=st.sampled_from(NODES),
        cards=st.sampled_from(sorted(CARDS)),
        units=st.sampled_from(UNITS),
        ill=st.sampled_from(((), (), ("NVIDIA-0",))),
        cordoned=st.sampled_from(((), (), ("NVIDIA-1",))),
        is_told=told,
    )
    def a_node_registers(
        self, node: str, cards: str, units: int | None, ill: Any, cordoned: Any, is_told: bool
    ) -> Event:
        """Cards come, go, come back, and are of other sizes than before."""
        registers: dict[str, Any] = {"NVIDIA": CARDS[cards]} if CARDS[cards] != {} else {}
        if units is not None:
            registers["AMD"] = {f"AMD-{number}": (10, 16000, units) for number in range(2)}
        event = self.town.register(
            node, registers=registers, ill=frozenset(ill), cordoned=frozenset(cordoned)
        )
        return self.told(event, is_told)

    @precondition(lambda self: self.town.nodes)
    @step(target=news, node=one_of_the(lambda self: sorted(self.town.nodes)), is_told=told)
    def a_node_is_gone(self, node: str, is_told: bool) -> Event:
        """Its cards are offered to nobody; what is held of them stays held."""
        return self.told(self.town.lose_node(node), is_told)

    @step(
        target=news,
        namespace=st.sampled_from(NAMESPACES),
        name=st.sampled_from(("gpu", "more")),
        limits=st.sampled_from(sorted(LIMITS)),
        scope=st.sampled_from(sorted(SCOPES)),
        is_told=told,
    )
    def a_quota_is_set(self, namespace: str, name: str, limits: str, scope: str, is_told: bool) -> Event:
        """New, or with other limits or other scopes."""
        event = self.town.limit(namespace, name, hard=LIMITS[limits], **SCOPES[scope])
        return self.told(event, is_told)

    @precondition(lambda self: self.town.quotas)
    @step(target=news, quota=one_of_the(lambda self: sorted(self.town.quotas)), is_told=told)
    def a_quota_is_gone(self, quota: tuple[str, str], is_told: bool) -> Event:
        """Nothing is limited by it any more."""
        return self.told(self.town.lose_quota(*quota), is_told)

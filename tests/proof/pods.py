"""Pods that are born, get devices, run, break, and die; and what of it reaches the books."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition

from tests.model.books import APP, INIT, SIDECAR, SUCCEEDED, VENDORS, Allocation, Ask, Event, Groups, PodView
from tests.proof.desk import NAMES, NAMESPACES, NODES, Desk, living, news, one_of_the, step

SHAPES = {
    "app": (APP,),
    "init app": (INIT, APP),
    "sidecar app": (SIDECAR, APP),
    "sidecar init app": (SIDECAR, INIT, APP),
    "init sidecar app": (INIT, SIDECAR, APP),
    "init sidecar init app app": (INIT, SIDECAR, INIT, APP, APP),
}
ASKS = (
    (),
    (Ask(1, 4000),),
    (Ask(1, 4000, 25),),
    (Ask(1),),
    (None, Ask(1, 8000, 50)),
    (Ask(2, 1000),),
    (Ask(1, 6000), Ask(1, 4000), Ask(1, 2000, 10)),
    (Ask(1, 0, 100), Ask(1, 20000)),
    (Ask(1, 8000), Ask(2, 8000), Ask(1, 1000, 100)),
)
OTHERS = ("AMD", "MLU", "AWSNeuron", "Enflame", "Biren", "DCU")
HOW_FAR = ("unscheduled", "unscheduled", "claimed", "bound", "bound")
CARDS = 2
MEMORY = (0, 1000, 8000)
CORES = (0, 25, 100)

told = st.sampled_from((True, True, True, False))


def rows() -> st.SearchStrategy[tuple[int, int, int]]:
    """The number of a card, memory and cores."""
    return st.tuples(st.integers(0, CARDS - 1), st.sampled_from(MEMORY), st.sampled_from(CORES))


# Of each container, by position, what it is given; cut to the pod's containers.
given = st.lists(st.lists(rows(), max_size=2), min_size=1, max_size=5)
vendors = st.sampled_from(("NVIDIA",) * 6 + OTHERS)
layouts = st.sampled_from(("full", "full", "full", "apps alone", "short"))


def groups_of(
    view: PodView, vendor: str, given: Sequence[Sequence[tuple[int, int, int]]], layout: str
) -> Groups:
    """The groups of an annotation, by position."""
    length = {"full": len(view.kinds), "apps alone": view.kinds.count(APP), "short": 1}[layout]
    is_neuron = vendor == "AWSNeuron"  # which has no memory, and sets of cores
    return tuple(
        tuple(
            (f"{vendor}-{card}", 0 if is_neuron else memory, cores % 7 + 1 if is_neuron else cores)
            for card, memory, cores in (given[position] if position < len(given) else given[-1])
        )
        for position in range(length)
    )


FACTS = (("", None), ("", None), ("batch", None), ("", 600), ("batch", 0))
BIRTHS: dict[str, Any] = {
    "namespace": st.sampled_from(NAMESPACES),
    "name": st.sampled_from(NAMES),
    "shape": st.sampled_from(sorted(SHAPES)),
    "asks": st.sampled_from(ASKS),
    "how_far": st.sampled_from(HOW_FAR),
    "node": st.sampled_from(NODES),
    "vendor": vendors,
    "given": given,
    "layout": layouts,
    "facts": st.sampled_from(FACTS),
    "is_told": told,
}


class Births(Desk):
    """Pods that come and go."""

    @step(target=news, **BIRTHS)
    def a_pod_is_born(self, **facts: Any) -> Event:
        """A pod as it is first seen: perhaps with devices already, perhaps bound already."""
        is_told = facts.pop("is_told")
        return self.told(self.birth(**facts), is_told)

    def birth(
        self,
        namespace: str,
        name: str,
        shape: str,
        asks: tuple[Ask | None, ...],
        how_far: str,
        node: str,
        vendor: str,
        given: Any,
        layout: str,
        facts: tuple[str, int | None],
    ) -> Event:
        """What the apiserver would say of it."""
        kinds = SHAPES[shape]
        event = self.town.bear(
            namespace, name, kinds, asks=asks[: len(kinds)], priority_class=facts[0], deadline=facts[1]
        )
        view = event.view
        assert isinstance(view, PodView)
        if how_far != "unscheduled":
            allocation = Allocation(groups_of(view, vendor, given, layout))
            view = replace(view, claimed=node, allocations={vendor: allocation})
            view = replace(view, bound=node if how_far == "bound" else "")
            self.town.pods[view.uid] = view
        return Event("ADDED", view)

    @precondition(living)
    @step(target=news, pod=one_of_the(living), node=st.sampled_from(("as annotated", *NODES)), is_told=told)
    def a_pod_is_bound(self, pod: str, node: str, is_told: bool) -> Event:
        """By somebody else than the service, where its annotation says or elsewhere."""
        view = self.town.pods[pod]
        where = (view.claimed or "n1") if node == "as annotated" else node
        return self.told(self.town.change(pod, bound=where), is_told)

    @precondition(living)
    @step(
        target=news,
        pod=one_of_the(living),
        how=st.sampled_from(("terminating", "Succeeded", "Failed", "dead", "dead")),
        is_told=told,
    )
    def a_pod_ends(self, pod: str, how: str, is_told: bool) -> Event:
        """It is being deleted, or has come to its end, or is no more."""
        if how == "dead":
            return self.told(self.town.kill(pod), is_told)
        change = {"terminating": True} if how == "terminating" else {"phase": how}
        return self.told(self.town.change(pod, **change), is_told)

    @step(events=st.lists(news, min_size=1, max_size=4))
    def news_arrive(self, events: list[Event]) -> None:
        """Any news in any order, late or once more."""
        self.hear(events)

    @precondition(living)
    @step(target=news, pod=one_of_the(living), is_told=told)
    def a_pod_is_seen_again(self, pod: str, is_told: bool) -> Event:
        """Nothing of what counts has changed: a label, a condition, a resync."""
        return self.told(self.town.change(pod), is_told)

    @precondition(living)
    @step(
        target=news,
        pod=one_of_the(living),
        node=st.sampled_from(NODES),
        vendor=vendors,
        given=given,
        layout=layouts,
        slots=st.sampled_from((1, 1, 3)),
        is_added=st.booleans(),
        is_told=told,
    )
    def devices_are_written_to_a_pod(
        self,
        pod: str,
        node: str,
        vendor: str,
        given: Any,
        layout: str,
        slots: int,
        is_added: bool,
        is_told: bool,
    ) -> Event:
        """A scheduler's doing, the first time or again: other devices, another node, another vendor too."""
        view = self.town.pods[pod]
        allocation = Allocation(
            groups_of(view, vendor, given, layout), slots if VENDORS[vendor].slots_annotation else 1
        )
        kept = dict(view.allocations) if is_added else {}
        event = self.town.change(pod, claimed=node, allocations={**kept, vendor: allocation})
        return self.told(event, is_told)


class Pods(Births):
    """What happens to pods."""

    @precondition(living)
    @step(
        target=news,
        pod=one_of_the(living),
        exits=st.lists(
            st.sampled_from((SUCCEEDED, SUCCEEDED, 1, "waiting", "running", None)), min_size=1, max_size=3
        ),
        is_told=told,
    )
    def containers_go_on(self, pod: str, exits: list[Any], is_told: bool) -> Event:
        """Init containers wait, run, exit with 0 or not, run again; sidecars come and go."""
        view = self.town.pods[pod]
        places = len(view.exits)
        return self.told(self.town.change(pod, exits=tuple((exits * places)[:places])), is_told)

    @precondition(living)
    @step(target=news, pod=one_of_the(living), is_told=told)
    def all_inits_are_done(self, pod: str, is_told: bool) -> Event:
        """The gate opens: sidecars run, the others have exited with 0."""
        view = self.town.pods[pod]
        exits = tuple("running" if kind == SIDECAR else SUCCEEDED for kind in view.kinds[: len(view.exits)])
        return self.told(self.town.change(pod, exits=exits, phase="Running"), is_told)

    @precondition(living)
    @step(
        target=news,
        pod=one_of_the(living),
        how=st.sampled_from(
            ("no node", "no allocation", "unreadable", "outside the pod", "another deadline")
        ),
        is_told=told,
    )
    def a_manifest_is_spoiled(self, pod: str, how: str, is_told: bool) -> Event:
        """Somebody writes to a pod what takes nothing from what it holds."""
        view = self.town.pods[pod]
        vendor = sorted(view.allocations)[0] if view.allocations else "NVIDIA"
        others = {key: one for key, one in view.allocations.items() if key != vendor}
        changes: dict[str, Any] = {
            "no node": {"claimed": ""},
            "no allocation": {"allocations": others},
            "unreadable": {"allocations": {**others, vendor: Allocation(None)}},
            "outside the pod": {"allocations": {**others, vendor: Allocation(None, outside_pod=True)}},
            "another deadline": {"deadline": 30 if view.deadline is None else None},
        }[how]
        return self.told(self.town.change(pod, **changes), is_told)

    @precondition(living)
    @step(pod=one_of_the(living))
    def an_event_nobody_can_read(self, pod: str) -> None:
        """It is refused and kept; the pod in the cluster is as it was."""
        view = replace(self.town.pods[pod], version=self.town.tick(), readable=False)
        self.hear([Event("MODIFIED", view)])

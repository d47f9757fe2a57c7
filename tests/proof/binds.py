"""Binds, with an API server that fails at any call; and what beat finds out afterwards (decision 30)."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from django.db import connection
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import multiple, precondition

from api import bind, telling
from hamiacct import tasks
from tests.kubeapi.server import ApiServer, Fault
from tests.kubeapi.store import Backup
from tests.model.books import VENDORS, Allocation, Event, Groups, PodView
from tests.model.lives import groups_text, manifest
from tests.model.room import Question
from tests.proof import tally
from tests.proof.desk import NODES, news, one_of_the, step
from tests.proof.holds import Holds, asking
from tests.proof.pods import told
from tests.scheduling import MUTEX, seconds_ago

TTL_SECONDS = 900
NODE_KEY, ALLOCATED = "hami.io/vgpu-node", VENDORS["NVIDIA"].annotation
CALLS = 12
faults = st.dictionaries(st.integers(0, CALLS), st.sampled_from(list(Fault)), max_size=2)


class Binds(Holds):
    """What kube-scheduler asks of an extender, and what comes of it in the cluster."""

    cluster: ClassVar[ApiServer]
    empty: ClassVar[Backup]

    def __init__(self) -> None:
        super().__init__()
        self.cluster.heal()
        self.cluster.restore(self.empty)
        self.locks: dict[str, str] = {}

    # --- the cluster ---

    def _to_the_cluster(self) -> None:
        """What the town has is what the API server has."""
        store = self.cluster.store
        with store.changed:
            store.objects = {key: one for key, one in store.objects.items() if key[0] not in ("Pod", "Node")}
            for pod in self.town.pods.values():
                store.objects["Pod", pod.namespace, pod.name] = manifest(pod)
            for node in self.town.nodes.values():
                written = manifest(node)
                if node.name in self.locks:
                    written["metadata"]["annotations"][MUTEX] = self.locks[node.name]
                store.objects["Node", "", node.name] = written
            store.version = self.town.version

    def _from_the_cluster(self) -> None:
        """What the service wrote there is what the town has."""
        self._wait_for_the_teller()
        for uid, view in list(self.town.pods.items()):
            self.town.pods[uid] = self._seen(view)
        for name, node in list(self.town.nodes.items()):
            metadata = self.cluster.get("Node", name)["metadata"]
            self.town.nodes[name] = replace(node, version=int(metadata["resourceVersion"]))
            lock = metadata["annotations"].get(MUTEX)
            self.locks.pop(name, None)
            if lock is not None:
                self.locks[name] = lock
        self.town.version = max(self.town.version, self.cluster.store.version)

    def _seen(self, view: PodView) -> PodView:
        live = self.cluster.get("Pod", view.name, view.namespace)
        annotations = dict(live["metadata"].get("annotations") or {})
        version = int(live["metadata"]["resourceVersion"])
        if version == view.version:
            return view
        claimed, text = annotations.pop(NODE_KEY, ""), annotations.pop(ALLOCATED, None)
        allocations = {}
        if text is not None:
            allocations["NVIDIA"] = Allocation(_groups(text))
        known = {vendor.annotation for vendor in VENDORS.values()} | {"enflame.com/gcu-request-size"}
        assert not annotations.keys() & known, "a placement of another vendor was left"
        return replace(
            view,
            version=version,
            claimed=claimed,
            bound=live["spec"].get("nodeName", ""),
            allocations=allocations,
            marks=tuple(sorted(annotations.items())),
        )

    def _wait_for_the_teller(self) -> None:
        sent = threading.Event()
        if telling._teller._queue(partial(sent.set)):
            assert sent.wait(30)

    # --- filter ---

    @precondition(asking)
    @step(pod=one_of_the(asking), nodes=st.sampled_from((["n1"], ["n2"], ["n1", "n2"], ["n2", "n9"])))
    def kube_scheduler_filters(self, pod: str, nodes: list[str]) -> None:
        """One node holds the pod, or every node says why it does not."""
        asked = self.town.pods[pod]
        answer = self.post("/extender/filter", {"Pod": manifest(asked), "NodeNames": nodes})
        self._wait_for_the_teller()
        assert answer.status_code == 200
        found = answer.json()
        if asked.asks_for_nothing:
            assert found["NodeNames"] == nodes
            return
        tally.answers[f"a filter {'chose' if found['NodeNames'] else 'refused'}"] += 1
        if found["NodeNames"]:
            self.is_judged(asked, 201, nodes)
            told_of = self.api.get(f"/api/v1/reservations/{pod}").json()
            assert found["NodeNames"] == [told_of["node"]]
            self.is_held(asked, told_of, nodes, TTL_SECONDS)
            return
        self.books.expire()
        if found["Error"]:
            assert self.books.conflict(asked) or not self.has_cards, found["Error"]
            return
        assert found["FailedNodes"].keys() == set(nodes)
        assert not self.books.conflict(asked), "a pod that is bound was asked about"
        assert not any(Question(self.books, asked).cannot_fail(node) for node in nodes), found
        account = self.books.pods.get(pod)
        if account is not None and account.is_held:
            self.books.give_back(pod)

    # --- bind ---

    @precondition(asking)
    @step(
        target=news,
        pod=one_of_the(asking),
        node=st.sampled_from(("as held", "as held", "as held", *NODES)),
        faults=faults,
        lock=st.sampled_from(("free", "free", "as left", "held", "stale")),
        is_told=told,
    )
    def kube_scheduler_binds(
        self, pod: str, node: str, faults: dict[int, Fault], lock: str, is_told: bool
    ) -> Event:
        """Some calls of the bind meet a fault; then it is bound, or nothing of it is left, or beat asks."""
        view = self.town.pods[pod]
        account = self.books.pods.get(pod)
        if node == "as held":
            node = account.hold.node if account is not None and account.hold is not None else "n1"
        self._set_lock(node, lock)
        self._to_the_cluster()
        before = self._reservation(pod)
        bind._rival._seen = None
        error = self._bind(view, node, faults)
        self._from_the_cluster()
        tally.answers[f"a bind {'failed' if error else 'done'}"] += 1
        note(f"    {error or 'bound'}")
        self._book(view, node, error, before)
        return self.told(Event("MODIFIED", self.town.pods[pod]), is_told)

    def _set_lock(self, node: str, lock: str) -> None:
        if lock == "free":
            self.locks.pop(node, None)
        elif lock == "held":  # by a pod that is on its way, and stays so
            self.locks[node] = seconds_ago(1)
        elif lock == "stale":
            self.locks[node] = seconds_ago(1000, "team-a,who-knows")

    def _bind(self, view: PodView, node: str, faults: dict[int, Fault]) -> str:
        calls = 0

        def meet(method: str, path: str) -> None:
            nonlocal calls
            if path.endswith("/events"):
                return
            if (fault := faults.get(calls)) is not None:
                self.cluster.fail(method, path, fault)
            calls += 1

        body = {"PodName": view.name, "PodNamespace": view.namespace, "PodUID": view.uid, "Node": node}
        self.cluster.before = meet
        try:
            answer = self.post("/extender/bind", body)
        finally:
            self.cluster.before = lambda method, path: None
            self.cluster.heal()
        assert answer.status_code == 200, answer.content
        error: str = answer.json()["Error"]
        return error

    def _reservation(self, uid: str) -> tuple[str, Any] | None:
        """The state of the last hold, and when it was made."""
        with connection.cursor() as cursor:
            cursor.execute("SELECT state, created_at FROM hamiacct_reservation WHERE pod_uid = %s", [uid])
            found: tuple[str, Any] | None = cursor.fetchone()
        return found

    def _book(self, view: PodView, node: str, error: str, before: tuple[str, Any] | None) -> None:
        """What the answer and the cluster say is what the model takes over, if it may be."""
        uid, live = view.uid, self.town.pods[view.uid]
        is_bound = live.bound == node and not view.bound
        assert is_bound or error, "an empty Error, and the pod is not bound"
        if view.asks_for_nothing:
            return
        after = self._reservation(uid)
        if self._are_due_ones_gone():
            self.books.expire()
        if after is not None and (before is None or after[1] != before[1]):
            # The hold had run out, or there was none: one was made on the way.
            assert not self.books.conflict(view), "a hold was made for a pod that is bound"
            told_of = self.api.get(f"/api/v1/reservations/{uid}").json()
            self.is_held(view, told_of, [node], TTL_SECONDS)
        account = self.books.pods.get(uid)
        hold = account.hold if account is not None else None
        if hold is None or after is None:
            assert error
            assert after is None
            return
        if before is not None and before[0] in ("binding", "bound", "confirmed"):
            assert error
            assert after == before
            return
        state = after[0]
        if is_bound:
            assert state in ("bound", "binding"), "bound, and what it holds may be given away"
        if state == "bound":
            assert is_bound
            assert hold.node == node
            self._carries_the_placement(live, hold.groups["NVIDIA"], node)
            self.books.mark_bound(uid)
        elif state == "binding":
            assert error
            hold.state = "binding"
        elif state == "released" and hold.stands:
            self.books.give_back(uid)
        if state in ("held", "released", "expired"):
            assert _placement(live) == _placement(view), "something of the attempt was left"
            ours = f",{view.namespace},{view.name}"
            assert not self.locks.get(node, "").endswith(ours), "the lock was left"

    def _are_due_ones_gone(self) -> bool:
        due = [uid for uid, one in self.books.pods.items() if one.hold is not None and one.hold.is_due]
        return any((found := self._reservation(uid)) is None or found[0] == "expired" for uid in due)

    def _carries_the_placement(self, live: PodView, groups: Groups, node: str) -> None:
        written = self.cluster.get("Pod", live.name, live.namespace)["metadata"]["annotations"]
        text = groups_text("NVIDIA", groups)
        assert written[ALLOCATED].rstrip(";") == text.rstrip(";")
        assert (written[NODE_KEY], written["hami.io/bind-phase"]) == (node, "allocating")

    @step(target=news, is_told=told)
    def beat_settles_bindings(self, is_told: bool) -> Any:
        """Whoever is on his way for long is bound, or is not and never will be."""
        self._to_the_cluster()
        tasks.settle_bindings()
        self._from_the_cluster()
        events = []
        for uid, account in self.books.pods.items():
            hold = account.hold
            if hold is None or hold.state != "binding":
                continue
            found = self._reservation(uid)
            assert found is not None
            live = self.town.pods.get(uid)
            is_bound = live is not None and live.bound == hold.node
            assert found[0] == ("bound" if is_bound else "released")
            tally.answers[f"a binding settled: {found[0]}"] += 1
            if is_bound:
                self.books.mark_bound(uid)
            else:
                self.books.give_back(uid)
            if live is not None:
                events.append(Event("MODIFIED", live))
        if events and is_told:
            self.hear(events)
        return multiple(*events)


def _placement(view: PodView) -> tuple[Any, ...]:
    return view.claimed, view.bound, dict(view.allocations), view.marks


def _groups(text: str) -> Groups:
    """What an allocation annotation of ours says."""
    return tuple(
        tuple(
            (uuid, int(memory), int(cores))
            for uuid, _, memory, cores in (entry.split(",") for entry in group.split(":") if entry)
        )
        for group in text.removesuffix(";").split(";")
    )

"""HAMi's cases of collapse, steady, gate, events, quota-cache and node-usage, asked of the service itself.

Where HAMi and the right answer differ, the right one counts. Names, versions and what else shorthand leaves
out is added here.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from hamiacct import config
from hamiacct.accounting.pods import ContainerClass
from hamiacct.kube import manifests
from tests import cases, watch
from tests.conversations.books import Books, Held, complete

NODE_KEY = "hami.io/vgpu-node"
VENDORS = config.read_vendors(None)
MEMORY, CORES = "nvidia.com/gpumem", "nvidia.com/gpucores"
Case = Mapping[str, Any]

# What fit will know of a card with MIG: whether the placements of its pods can be told, and which.
OF_FIT = frozenset({"healthy", "placementsInUse"})


def on_node(manifest: dict[str, Any], node: str = "n-1", *, bound: bool = True) -> dict[str, Any]:
    """The object on a node: annotated by the scheduler and, if bound, with `spec.nodeName`."""
    annotations = {NODE_KEY: node, **manifest["metadata"]["annotations"]}
    spec = {**manifest["spec"], **({"nodeName": node} if bound else {})}
    return complete({**manifest, "spec": spec}, annotations=annotations)


def held(entries: list[dict[str, Any]] | None) -> dict[str, Held]:
    """Results of the cases as what a pod holds, by device; `null` and none are nothing."""
    return {one["uuid"]: Held(one.get("slots", 1), one["mem"], one["cores"]) for one in entries or []}


def of_all_vendors(expected: Case) -> dict[str, Held]:
    return held([entry for entries in expected.values() for entry in entries])


def with_every_init(manifest: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    """The object with this state for every init container."""
    statuses = [{"name": one["name"], "state": state} for one in manifest["spec"]["initContainers"]]
    return {**manifest, "status": {"phase": "Running", "initContainerStatuses": statuses}}


DONE = {"terminated": {"exitCode": 0}}

# --- collapse, steady ----------------------------------------------------------------------------


@pytest.mark.parametrize(("case", "expected"), cases.of_kind("collapse"))
def test_a_new_pod_holds_its_effective_usage(books: Books, case: Case, expected: Any) -> None:
    books.applied(on_node(case["pod"]), type_="ADDED")
    if "error" in expected:
        [finding] = books.pod("pod-1")["findings"]
        assert finding["code"] == "row-outside-pod"
        assert expected["error"] in finding["detail"]
        assert books.held_by("pod-1") == {}
        return
    assert books.held_by("pod-1") == of_all_vendors(expected)
    for uuid, amount in of_all_vendors(expected).items():
        assert books.used("n-1", uuid) == amount
    # The cases leave out what the containers asked for.
    assert {*books.findings_of("pod-1")} <= {"allocation-not-requested"}


@pytest.mark.parametrize("first_seen", ["with inits done", "while inits run"])
@pytest.mark.parametrize(("case", "expected"), cases.of_kind("steady"))
def test_a_pod_whose_inits_are_done_holds_its_steady_usage(
    books: Books, case: Case, expected: Any, first_seen: str
) -> None:
    if first_seen == "while inits run":
        books.applied(on_node(with_every_init(case["pod"], {"running": {}})), type_="ADDED")
    books.applied(on_node(with_every_init(case["pod"], DONE)))
    assert books.held_by("pod-1") == of_all_vendors(expected)
    pod = books.pod("pod-1")
    assert pod["state"] == "steady"
    assert pod["inits_released"] is bool(case["pod"]["spec"]["initContainers"])


# --- gate ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("first_seen", [True, False], ids=["first seen so", "seen before"])
@pytest.mark.parametrize(("case", "is_open"), cases.of_kind("gate"))
def test_the_gate_decides_what_is_charged(books: Books, case: Case, is_open: bool, first_seen: bool) -> None:
    """An init holds 5000, a sidecar 100, an app 1000; the cases themselves have no allocation."""
    amounts = {ContainerClass.INIT: 5000, ContainerClass.SIDECAR: 100, ContainerClass.APP: 1000}
    kinds = [one.kind for one in manifests.pod_from_manifest(case["pod"], VENDORS).containers]
    text = "".join(f"GPU-aa00,NVIDIA,{amounts[kind]},0:;" for kind in kinds)
    pod = {**case["pod"], "metadata": {"annotations": {watch.ALLOCATED: text}}}
    sidecars_before = [kinds[:place].count(ContainerClass.SIDECAR) for place in range(len(kinds))]
    steady = sum(amounts[kind] for kind in kinds if kind is not ContainerClass.INIT)
    peaks = [
        amounts[kind] + 100 * before
        for kind, before in zip(kinds, sidecars_before, strict=True)
        if kind is ContainerClass.INIT
    ]
    if not first_seen:
        books.applied(on_node({**pod, "status": {}}), type_="ADDED")
        assert books.used("n-1", "GPU-aa00").memory_mib == max([*peaks, steady])
    books.applied(on_node(pod))
    assert books.pod("pod-1")["inits_released"] is is_open
    assert books.used("n-1", "GPU-aa00").memory_mib == (steady if is_open else max([*peaks, steady]))


# --- events --------------------------------------------------------------------------------------

EVENT_TYPES = {"add": "ADDED", "update": "MODIFIED", "delete": "DELETED"}


@pytest.mark.parametrize("bound", [True, False], ids=["bound", "claimed"])
@pytest.mark.parametrize(("case", "expected"), cases.of_kind("events"))
def test_each_step_of_a_pods_life(books: Books, case: Case, expected: list[Any], bound: bool) -> None:
    for number, (step, state) in enumerate(zip(case["steps"], expected, strict=True)):
        pod = complete(step["pod"])
        if bound:
            pod["spec"] = {**pod["spec"], "nodeName": "n-1"}
        books.applied(pod, type_=EVENT_TYPES[step["event"]])
        assert_state(books, case["namespace"], cases.correct(state), f"step {number}")


def assert_state(books: Books, namespace: str, expected: Case, where: str) -> None:
    assert books.held_by("pod-1") == held(expected["stored"]), where
    if expected["released"] is not None:
        assert books.pod("pod-1")["inits_released"] is expected["released"], where
    if expected["stored"] is None and "flag" not in expected:
        assert books.pod("pod-1")["state"] == "ended", where
    for resource in (MEMORY, CORES):
        used = expected["quotaUsed"].get(resource, 0)
        assert books.quota_used(namespace, resource) == used, where
    if "flag" in expected:
        assert expected["flag"] == "undecodable annotation recorded as a fault on the pod"
        assert books.findings_of("pod-1") == ["undecodable-annotation"], where


# --- quota-cache ---------------------------------------------------------------------------------


class Quotas:
    """The steps of a quota-cache case as objects: each `add` is an object of its own, known by its `hard`."""

    def __init__(self, books: Books, namespace: str) -> None:
        self.books = books
        self.namespace = namespace
        self.hard: dict[str, dict[str, str]] = {}
        self.outcomes: list[str] = []

    def add(self, step: Case) -> None:
        name = f"quota-{len(self.hard)}"
        self.hard[name] = step["hard"]
        self.send(name, "ADDED")

    def update(self, step: Case) -> None:
        name = self.named(step["old"])
        self.hard[name] = step["new"]
        self.send(name, "MODIFIED")

    def delete(self, step: Case) -> None:
        name = self.named(step["hard"])
        self.send(name, "DELETED")
        del self.hard[name]

    def use(self, step: Case) -> None:
        self.pod(step["usage"], "ADDED")

    def release(self, step: Case) -> None:
        self.pod(step["usage"], "DELETED")

    def named(self, hard: Case) -> str:
        return next(name for name, own in self.hard.items() if own == hard)

    def send(self, name: str, type_: str) -> None:
        quota = watch.quota(name, namespace=self.namespace, hard=self.hard[name])
        self.outcomes.append(self.books.event(quota, type_)["outcome"])

    def pod(self, usage: Case, type_: str) -> None:
        rows = f"GPU-aa00 {usage.get(MEMORY, 0)} {usage.get(CORES, 0)}"
        pod = watch.pod("user", rows, namespace=self.namespace, node="n-1")
        self.outcomes.append(self.books.event(pod, type_)["outcome"])


@pytest.mark.parametrize(("case", "expected"), cases.of_kind("quota-cache"))
def test_limits_and_usage_of_a_namespace(books: Books, case: Case, expected: Case) -> None:
    quotas = Quotas(books, case["namespace"])
    for step in case["steps"]:
        getattr(quotas, step["op"])(step)
    found = books.quota(case["namespace"])
    if "error" in expected:
        assert expected["error"].startswith("a second release finds nothing to release")
        assert quotas.outcomes == ["applied", "applied", "stale"]
        assert all(found[name]["used"] == 0 for name in case["managedNames"])
        return
    assert set(quotas.outcomes) == {"applied"}
    for resource, limit in expected.get("effectiveLimit", {}).items():
        assert found[resource]["hard"] == limit
    for resource in expected.keys() - {"effectiveLimit"}:
        state = expected[resource]
        shown = found.get(resource, {"used": 0, "hard": None})
        assert shown["used"] == state["used"]
        assert shown["hard"] == (state["limit"] if state["limitSet"] else None)


# --- node-usage ----------------------------------------------------------------------------------


def node(name: str, inventory: list[Any]) -> dict[str, Any]:
    """A node that registers these cards: ids, or fields of a registration."""
    cards = [{"id": one} if isinstance(one, str) else one for one in inventory]
    return watch.node(name, *(watch.card(**{"uuid": one["id"], **one}) for one in cards))


def stored_pod(stored: Case, annotations: Case) -> dict[str, Any]:
    """A pod that holds exactly this: each slot of a card is a container's, the first has all the rest."""
    groups: list[str] = []
    for entry in stored["devices"]:
        slots = entry.get("slots", 1)
        groups.append(f"{entry['uuid']} {entry['mem']} {entry['cores']}")
        groups += [f"{entry['uuid']} 0 0"] * (slots - 1)
    pod = watch.pod(stored["uid"], *groups, node=stored["node"], uid=stored["uid"])
    pod["metadata"]["annotations"] |= annotations
    return pod


def registered_usage(books: Books) -> dict[str, Held]:
    """What is used of the cards that nodes register."""
    items = books.get("/api/v1/devices?registered=true")["items"]
    return {one["uuid"]: Held(*(one[name]["used"] for name in Held._fields)) for one in items}


IN_STEPS = [case for case in cases.of_kind("node-usage") if "steps" in case.values[0]]
AT_ONCE = [case for case in cases.of_kind("node-usage") if "steps" not in case.values[0]]


@pytest.mark.parametrize(("case", "expected"), AT_ONCE)
def test_usage_of_the_cards_of_a_node(books: Books, case: Case, expected: Any) -> None:
    books.applied(node(case["node"], case["inventory"]), type_="ADDED")
    stored = [stored_pod(one, case.get("podAnnotations", {})) for one in case["storedPods"]]
    books.applied(*stored, type_="ADDED")
    assert expected.keys() <= {"usage"} | OF_FIT
    if "usage" in expected:
        assert registered_usage(books) == usage_of(expected)
    for one in case["storedPods"]:
        assert books.held_by(one["uid"]) == held(one["devices"])


def usage_of(expected: Case) -> dict[str, Held]:
    """The usage of cards as the cases write it."""
    return {uuid: Held(one["slots"], one["mem"], one["cores"]) for uuid, one in expected["usage"].items()}


@pytest.mark.parametrize(("case", "expected"), IN_STEPS)
def test_usage_through_a_nodes_absence(books: Books, case: Case, expected: list[Case]) -> None:
    books.applied(node("n-1", ["GPU-aa00"]), type_="ADDED")
    for step, state in zip(case["steps"], expected, strict=True):
        if step["event"] == "pod add":
            books.applied(stored_pod(step["stored"], {}), type_="ADDED")
        elif step["event"] == "node delete":
            books.applied(node(step["node"], ["GPU-aa00"]), type_="DELETED")
        else:
            assert step["event"] == "node registered again"
            books.applied(node(step["node"], step["inventory"]), type_="ADDED")
        assert registered_usage(books) == usage_of(state)
        assert books.quota_used("team-a", MEMORY) == state["quotaUsed"]["mem"]
        assert books.quota_used("team-a", CORES) == state["quotaUsed"]["cores"]

"""HAMi's scheduler and this service never place pods on the same nodes: neither start nor bind beside it."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from api import bind
from hamiacct import server
from tests.kubeapi.server import Fault
from tests.scheduling import World

HAMI = "hami-scheduler-7d9_c708d8f6"
HELD = f"{HAMI} holds the lease kube-system/hami-scheduler"
LEASE = ("GET", "/leases/hami-scheduler")


def settle(settings: Any, **changes: Any) -> None:
    settings.HAMIACCT = dataclasses.replace(settings.HAMIACCT, **changes)


def test_beside_hamis_scheduler_nothing_is_bound(world: World) -> None:
    world.add_lease(holder=HAMI)
    world.add_pod()
    assert HELD in server.rival()
    assert HELD in world.bind()
    world.is_untouched("held")
    assert [(type_, reason) for type_, reason, _ in world.events()] == [("Warning", "BindingFailed")]


@pytest.mark.parametrize(("holder", "seconds_ago"), [(HAMI, 16), ("", 0)], ids=["run out", "given back"])
def test_once_it_is_gone_pods_are_bound(world: World, holder: str, seconds_ago: float) -> None:
    world.add_lease(holder=holder, seconds_ago=seconds_ago)
    world.add_pod()
    assert server.rival() == ""
    assert world.bind() == ""
    world.is_bound()


def test_without_such_a_lease_there_is_no_such_scheduler(world: World, settings: Any) -> None:
    world.add_lease(holder=HAMI)
    settle(settings, hami_lease=("gpu", "hami-scheduler"))
    world.add_pod()
    assert server.rival() == ""
    assert world.bind() == ""
    assert ("GET", "/apis/coordination.k8s.io/v1/namespaces/gpu/leases/hami-scheduler") in world.cluster.calls
    world.is_bound()


def test_where_the_nodes_are_divided_both_may_schedule(world: World, settings: Any) -> None:
    world.add_lease(holder=HAMI)
    world.add_pod()
    settle(settings, node_selector=(("pool", "ours"),))
    assert server.rival() == ""
    assert world.bind() == ""
    world.is_bound()


def test_a_service_that_only_reads_starts_beside_it(world: World, settings: Any) -> None:
    world.add_lease(holder=HAMI)
    settle(settings, scheduler_mode=False)
    world.cluster.calls.clear()
    assert server.rival() == ""
    assert world.cluster.calls == []


@pytest.mark.parametrize(
    "fault", [Fault.FORBIDDEN, Fault.UNAUTHORIZED, Fault.FAILED_BEFORE, Fault.CUT_BEFORE]
)
def test_where_nobody_can_tell_it_neither_starts_nor_binds(world: World, fault: Fault) -> None:
    world.add_pod()
    world.cluster.fail(*LEASE, fault, times=2)
    assert "cannot be told (lease kube-system/hami-scheduler)" in server.rival()
    assert "leases/hami-scheduler" in world.bind()
    world.is_untouched("held")


def test_a_lease_that_cannot_be_read_counts_as_held(world: World) -> None:
    world.add_lease(holder=HAMI)
    world.cluster.change("Lease", "hami-scheduler", {"spec": {"renewTime": None}}, "kube-system")
    world.add_pod()
    assert "does not say until when it holds" in server.rival()
    assert "does not say until when it holds" in world.bind()
    world.is_untouched("held")


def test_without_a_cluster_there_is_nobody_to_ask(world: World, settings: Any) -> None:
    settle(settings, kubeconfig=None)
    assert server.rival() == ""


def test_a_kubeconfig_that_cannot_be_used_stops_the_start(
    world: World, settings: Any, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("{")
    settle(settings, kubeconfig=bad)
    assert "bad.yaml cannot be used" in server.rival()


def test_it_is_looked_for_now_and_then_not_at_each_bind(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("p", "q", "r"):
        world.add_pod(name)
    looks = []

    def count(method: str, path: str) -> None:
        if path.endswith(LEASE[1]):
            looks.append(path)

    world.cluster.before = count
    assert world.bind("p") == ""
    world.cluster.change("Pod", "p", {"status": {"phase": "Succeeded"}}, "team-a")
    world.add_lease(holder=HAMI)
    assert world.bind("q") == "", "the last look is good for a while"
    assert len(looks) == 1
    monkeypatch.setattr(bind, "RIVAL_SECONDS", 0)
    assert HELD in world.bind("r")
    assert world.state("r") == "held"

"""Bind: the answer is the API server's, and after a failure nothing of the attempt is left (decision 30)."""

import dataclasses
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from rest_framework.test import APIClient

from api import bind, extender
from hamiacct import config, models, tasks
from hamiacct.accounting.words import Role
from hamiacct.kube import binding, client, patches
from hamiacct.kube.binding import TRIES
from hamiacct.operations import reservations
from hamiacct.queries import holds
from tests import cases, watch
from tests.kubeapi.server import ApiServer, Fault
from tests.scheduling import MUTEX, NOW, OURS, World, seconds_ago, tell

NODE = ("PATCH", "/nodes/n1")
POD = ("PATCH", "/pods/p")
BINDING = ("POST", "/binding")
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/hami-scheduler"


# --- the cases -----------------------------------------------------------------------------------


@pytest.mark.parametrize("with_cluster", [True, False], ids=["with a cluster", "without one"])
@pytest.mark.parametrize(("given", "expected"), cases.of_kind("extender-bind"))
def test_case(
    world: World,
    settings: Any,
    given: dict[str, Any],
    expected: dict[str, Any],
    with_cluster: bool,
) -> None:
    world.add_node("n-1", watch.card("GPU-c"))
    body = given["body"]
    world.add_pod(hold=False)
    world.cluster.change("Pod", "p", {"metadata": {"uid": body["PodUID"]}}, "team-a")
    assert given["reservationBefore"]
    world.hold(node="n-1")
    if given.get("nodeLockedByOther"):
        world.add_pod("other", hold=False)
        world.set_lock(seconds_ago(1, "team-a,other"), "n-1")
    if not with_cluster:
        settings.HAMIACCT = dataclasses.replace(settings.HAMIACCT, kubeconfig=None)
    answer = world.client.post("/extender/bind", body)
    assert answer.status_code == expected["status"]
    assert bool(answer.json()["Error"]) is expected["errorNotEmpty"]
    is_kept = cases.correct(expected["reservationAfter"]) is not False
    state = models.Reservation.objects.get(pod_uid=body["PodUID"]).state
    assert state == ("held" if is_kept else "released")
    reservations.expire(at=datetime.now(UTC) + timedelta(seconds=901))
    assert models.Reservation.objects.get(pod_uid=body["PodUID"]).state in ("expired", "released")
    world.books_agree()


# --- what a bind writes --------------------------------------------------------------------------


def test_a_bound_pod_carries_its_placement_and_the_node_its_lock(world: World) -> None:
    world.add_pod()
    assert world.bind() == ""
    metadata = world.pod()["metadata"]
    (uuid,) = models.UsageEntry.objects.values_list("device__uuid", flat=True)
    told = metadata["annotations"]
    text = f"{uuid},NVIDIA,3000,0:;"
    assert told.pop("hami.io/vgpu-time") == told.pop("hami.io/bind-time")
    assert told == {
        "mine": "kept",
        "hami.io/vgpu-node": "n1",
        "hami.io/vgpu-devices-allocated": text,
        "hami.io/vgpu-devices-to-allocate": text,
        "hami.io/bind-phase": "allocating",
    }
    assert metadata["labels"] == {"hami.io/vgpu-node": "n1"}
    assert world.events() == [("Normal", "BindingSucceed", "Successfully binding node [n1] to team-a/p")]
    world.is_bound()


def test_the_steps_are_in_order_and_each_is_sent_once(world: World) -> None:
    world.add_pod()
    world.cluster.calls.clear()
    assert world.bind() == ""
    world.events()
    pod, node = "/api/v1/namespaces/team-a/pods/p", "/api/v1/nodes/n1"
    assert world.cluster.calls == [
        ("GET", pod),
        ("GET", node),
        ("GET", LEASE),
        ("GET", node),
        ("PATCH", node),
        ("PATCH", pod),
        ("POST", f"{pod}/binding"),
        ("POST", "/api/v1/namespaces/team-a/events"),
    ]


def test_an_init_container_alone_needs_the_lock(world: World) -> None:
    world.add_pod(inits=1)
    assert world.bind() == ""
    world.is_bound()


def test_a_lock_may_be_a_time_alone(world: World) -> None:
    capacity = {"cambricon.com/mlu.smlu.vcore": "100", "cambricon.com/mlu.smlu.vmemory": "80"}
    world.add_node("n2", status={"allocatable": capacity, "capacity": capacity})
    asked = {"cambricon.com/vmlu": "1", "cambricon.com/mlu.smlu.vmemory": "4"}
    world.add_pod(hold=False, **asked)
    world.hold(node="n2")
    assert world.bind(node="n2") == ""
    assert world.lock("n2") is None
    datetime.fromisoformat(world.lock("n2", "cambricon.com/dsmlu.lock") or "")
    world.is_bound(node="n2", lock=None)


def test_a_vendor_without_a_lock_needs_none(world: World) -> None:
    capacity = {"metax-tech.com/gpu": "2"}
    world.add_node("n2", status={"allocatable": capacity, "capacity": capacity})
    world.add_pod(hold=False, **{"metax-tech.com/gpu": "1"})
    world.hold(node="n2")
    world.set_lock(seconds_ago(1), "n2")
    assert world.bind(node="n2") == ""
    world.is_bound(node="n2", lock=None)


def test_what_an_earlier_placement_left_is_removed(world: World) -> None:
    world.add_pod()
    assert world.bind() == ""
    written = set(world.pod()["metadata"]["annotations"])
    world.add_pod("q")
    left = dict.fromkeys(patches.keys_of_placements(config.vendors()), "left")
    left |= {"hami.io/bind-phase": "failed", "hami.io/dcu-devices-allocated": "DCU-1,DCU,100,10:;"}
    world.cluster.change("Pod", "q", {"metadata": {"annotations": left}}, "team-a")
    world.cluster.change("Pod", "p", {"status": {"phase": "Succeeded"}}, "team-a")
    assert world.bind("q") == ""
    assert set(world.pod("q")["metadata"]["annotations"]) == written
    world.is_bound("q", lock=None)


def test_the_label_of_an_earlier_placement_goes_where_the_new_one_can_have_none(world: World) -> None:
    name = "n" * 64
    world.add_node(name, watch.card("GPU-c"))
    world.add_pod(hold=False)
    world.cluster.change("Pod", "p", {"metadata": {"labels": {"hami.io/vgpu-node": "n9"}}}, "team-a")
    world.hold(node=name)
    assert world.bind(node=name) == ""
    assert not world.pod()["metadata"].get("labels")
    world.is_bound(node=name)


def test_a_node_name_too_long_for_a_label_is_an_annotation_alone(world: World) -> None:
    name = "n" * 64
    world.add_node(name, watch.card("GPU-c"))
    world.add_pod(hold=False)
    world.hold(node=name)
    assert world.bind(node=name) == ""
    assert not world.pod()["metadata"].get("labels")
    assert models.Finding.objects.filter(code="label-too-long", uid="uid-p").exists()
    world.is_bound(node=name)
    assert models.Finding.objects.filter(code="label-too-long", uid="uid-p").exists()


def test_the_place_on_a_mig_card_is_written_too(world: World) -> None:
    profile = {"name": "1g.5gb", "memoryMB": 4864, "core": 14, "sliceCount": 1}
    profile["placements"] = [{"start": start, "size": 1} for start in range(7)]
    world.add_node("n2", watch.card("GPU-m", mode="mig", migProfiles=[profile]))
    world.add_pod(hold=False)
    world.hold(node="n2")
    assert world.bind(node="n2") == ""
    (place,) = json.loads(world.pod()["metadata"]["annotations"]["hami.io/vgpu-mig-allocations"])
    assert (place["gpuUUID"], place["profile"]) == ("GPU-m", "1g.5gb")
    world.is_bound(node="n2")


def test_a_pod_that_asks_for_nothing_is_bound_and_no_more(world: World) -> None:
    world.add_pod(hold=False, cpu="1")
    assert world.bind() == ""
    assert world.pod()["spec"]["nodeName"] == "n1"
    assert world.pod()["metadata"]["annotations"] == {"mine": "kept"}
    assert world.lock() is None
    assert world.state() is None


@pytest.mark.parametrize("fault", [Fault.CUT_AFTER, Fault.FAILED_AFTER])
def test_of_a_pod_that_asks_for_nothing_a_lost_answer_is_looked_up_too(world: World, fault: Fault) -> None:
    world.add_pod(hold=False, cpu="1")
    world.cluster.fail(*BINDING, fault)
    assert world.bind() == ""
    assert world.pod()["spec"]["nodeName"] == "n1"


# --- the lock of the node ------------------------------------------------------------------------


HOLDERS: dict[str, dict[str, Any]] = {
    "running": {"status": {"phase": "Running"}},
    "allocating": {"metadata": {"annotations": {"hami.io/bind-phase": "allocating"}}},
    "finished": {"status": {"phase": "Succeeded"}},
    "failed": {"status": {"phase": "Failed"}},
    "allocated": {"metadata": {"annotations": {"hami.io/bind-phase": "success"}}},
    "not allocated": {"metadata": {"annotations": {"hami.io/bind-phase": "failed"}}},
}


@pytest.mark.parametrize("holder", ["running", "allocating"])
def test_a_living_pod_keeps_its_lock_and_the_hold_waits(world: World, holder: str) -> None:
    world.add_pod()
    world.add_pod("other", hold=False)
    world.cluster.change("Pod", "other", HOLDERS[holder], "team-a")
    lock = seconds_ago(290, "team-a,other")
    world.set_lock(lock)
    expires = models.Reservation.objects.get().expires_at
    assert "is held by team-a/other" in world.bind()
    world.is_untouched("held", lock=lock)
    assert models.Reservation.objects.get().expires_at == expires
    assert world.events()[0][:2] == ("Warning", "BindingFailed")
    decision = models.Decision.objects.get()
    assert (decision.question, decision.verdict, decision.pod_uid) == ("bind", "refused", "uid-p")
    # When the other is through, the same hold is bound.
    world.set_lock(None)
    assert world.bind() == ""
    world.is_bound()


@pytest.mark.parametrize("holder", ["finished", "failed", "allocated", "not allocated"])
def test_a_pod_that_needs_it_no_more_loses_its_lock(world: World, holder: str) -> None:
    world.add_pod()
    world.add_pod("other", hold=False)
    world.cluster.change("Pod", "other", HOLDERS[holder], "team-a")
    world.set_lock(seconds_ago(1, "team-a,other"))
    assert world.bind() == ""
    world.is_bound()


@pytest.mark.parametrize(
    "lock",
    [
        pytest.param(seconds_ago(1, "team-a,gone"), id="of a pod that is gone"),
        pytest.param(seconds_ago(1, "../../nodes,n1"), id="of what can be no pod"),
        pytest.param(seconds_ago(301, "team-a,other"), id="expired"),
        pytest.param(seconds_ago(301), id="expired, nobody's"),
        pytest.param(seconds_ago(1, "team-a,p"), id="our own"),
    ],
)
def test_a_lock_that_nobody_holds_is_taken_over(world: World, lock: str) -> None:
    world.add_pod()
    world.add_pod("other", hold=False)
    world.set_lock(lock)
    assert world.bind() == ""
    world.is_bound()
    assert world.lock() != lock


@pytest.mark.parametrize(
    "made",
    [
        lambda: seconds_ago(1),  # when the test runs: a lock may be minutes younger than the run
        lambda: "nonsense",
        lambda: "",
        lambda: seconds_ago(1, "team-a"),
        lambda: seconds_ago(900).replace("Z", ""),
    ],
    ids=["no holder", "no time", "empty", "half a holder", "no zone"],
)
def test_a_lock_of_nobody_knows_whom_is_left_alone(world: World, made: Callable[[], str]) -> None:
    lock = made()
    world.add_pod()
    world.set_lock(lock)
    assert MUTEX in world.bind()
    world.is_untouched("held", lock=lock)


def test_a_lock_that_is_given_back_in_time_is_waited_for(world: World, settings: Any) -> None:
    settings.HAMIACCT = dataclasses.replace(settings.HAMIACCT, bind_lock_wait_seconds=30.0)
    world.add_pod()
    world.add_pod("other", hold=False)
    world.set_lock(seconds_ago(1, "team-a,other"))
    looks = []

    def give_back_at_the_third_look(method: str, path: str) -> None:
        if (method, path) == ("GET", "/api/v1/namespaces/team-a/pods/other"):
            looks.append(path)
            if len(looks) == 3:
                world.set_lock(None)

    world.cluster.before = give_back_at_the_third_look
    assert world.bind() == ""
    assert len(looks) == 3
    world.is_bound()


def test_a_node_that_changes_between_look_and_patch_is_looked_at_again(world: World, settings: Any) -> None:
    settings.HAMIACCT = dataclasses.replace(settings.HAMIACCT, bind_lock_wait_seconds=30.0)
    world.add_pod()
    world.cluster.fail(*NODE, Fault.CONFLICT, times=2)
    assert world.bind() == ""
    world.is_bound()


def test_a_lock_that_another_takes_between_look_and_patch_is_his(world: World) -> None:
    world.add_pod()
    world.add_pod("other", hold=False)
    lock = seconds_ago(1, "team-a,other")

    def be_faster(method: str, path: str) -> None:
        if method == "PATCH":
            world.set_lock(lock)

    world.cluster.before = be_faster
    assert "changed just now" in world.bind()
    world.is_untouched("held", lock=lock)


def test_of_two_locks_the_first_is_given_back_when_the_second_is_held(world: World) -> None:
    capacity = {"cambricon.com/mlu.smlu.vcore": "100", "cambricon.com/mlu.smlu.vmemory": "80"}
    world.add_node("n2", watch.card("GPU-c"), status={"allocatable": capacity, "capacity": capacity})
    asked = {"cambricon.com/vmlu": "1", "cambricon.com/mlu.smlu.vmemory": "4", "nvidia.com/gpu": "1"}
    world.add_pod(hold=False, **asked)
    world.hold(node="n2")
    lock = seconds_ago(1)
    world.set_lock(lock, "n2")
    assert MUTEX in world.bind(node="n2")
    assert world.lock("n2") == lock
    assert world.lock("n2", "cambricon.com/dsmlu.lock") is None
    assert world.state() == "held"
    world.books_agree()


# --- the API server fails ------------------------------------------------------------------------


FAULTS = list(Fault)
NOT_DONE = [fault for fault in FAULTS if not fault.is_done]
DONE = [fault for fault in FAULTS if fault.is_done]


@pytest.mark.parametrize("fault", NOT_DONE)
@pytest.mark.parametrize("step", [POD, BINDING], ids=["placement", "binding"])
def test_a_step_that_fails_is_undone_and_so_are_those_before(
    world: World, step: tuple[str, str], fault: Fault
) -> None:
    world.add_pod()
    # A pod that merely changed meanwhile is written to as it is now, some times.
    world.cluster.fail(*step, fault, times=TRIES if (step, fault) == (POD, Fault.CONFLICT) else 1)
    assert world.bind() != ""
    world.is_untouched("released")
    # And the next attempt finds nothing in its way.
    assert world.bind() == ""
    world.is_bound()


@pytest.mark.parametrize("fault", [fault for fault in NOT_DONE if fault is not Fault.CONFLICT])
def test_a_lock_that_cannot_be_taken_ends_the_attempt(world: World, fault: Fault) -> None:
    world.add_pod()
    world.cluster.fail(*NODE, fault)
    assert world.bind() != ""
    world.is_untouched("released")


@pytest.mark.parametrize("fault", DONE)
@pytest.mark.parametrize("step", [NODE, POD, BINDING], ids=["lock", "placement", "binding"])
def test_a_step_whose_answer_is_lost_is_looked_up(world: World, step: tuple[str, str], fault: Fault) -> None:
    world.add_pod()
    world.cluster.fail(*step, fault)
    assert world.bind() == ""
    world.is_bound()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("path", ["/pods/p", "/nodes/n1", "/leases/hami-scheduler"])
def test_without_a_look_nothing_is_begun(world: World, path: str, fault: Fault) -> None:
    world.add_pod()
    world.add_lease(holder="")
    world.cluster.fail("GET", path, fault)
    assert world.bind() != ""
    world.is_untouched("held")


@pytest.mark.parametrize("fault", [Fault.CUT_AFTER, Fault.FAILED_AFTER, Fault.CUT_BEFORE, Fault.CONFLICT])
@pytest.mark.parametrize("step", [POD, NODE], ids=["placement", "lock"])
def test_an_undo_whose_answer_is_lost_is_looked_up_too(
    world: World, step: tuple[str, str], fault: Fault
) -> None:
    world.add_pod()
    world.cluster.fail(*BINDING, Fault.FAILED_BEFORE)

    def fail_the_undo(method: str, path: str) -> None:
        if method == "POST" and path.endswith("/binding"):
            world.cluster.fail(*step, fault)

    world.cluster.before = fail_the_undo
    assert world.bind() != ""
    world.is_untouched("released")


def test_a_binding_that_comes_through_during_the_undo_stands(world: World) -> None:
    world.add_pod()
    world.cluster.fail(*BINDING, Fault.CUT_BEFORE)
    patched = []

    def come_late(method: str, path: str) -> None:
        if (method, path[-7:]) == ("PATCH", "/pods/p"):
            patched.append(path)
            if len(patched) == 2:  # the undo, after its look
                world.cluster.change("Pod", "p", {"spec": {"nodeName": "n1"}}, "team-a")

    world.cluster.before = come_late
    assert world.bind() == ""
    world.is_bound()


def test_after_an_undo_a_late_binding_is_refused(world: World) -> None:
    world.add_pod()
    sent: list[dict[str, Any]] = []

    def take_note(method: str, path: str) -> None:
        if path.endswith("/binding"):
            sent.append(world.pod()["metadata"])

    world.cluster.before = take_note
    world.cluster.fail(*BINDING, Fault.CUT_BEFORE)
    assert world.bind() != ""
    assert sent[0]["resourceVersion"] != world.pod()["metadata"]["resourceVersion"]
    world.is_untouched("released")


@pytest.mark.parametrize("step", [NODE, POD, BINDING], ids=["lock", "placement", "binding"])
def test_a_call_that_comes_after_the_undo_changes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, step: tuple[str, str]
) -> None:
    """The time limit ended it here, not there."""
    monkeypatch.setitem(client.Client._call.__kwdefaults__, "seconds", 0.3)
    world.add_pod()
    late = world.cluster.hold(*step)
    assert "no answer" in world.bind()
    assert late.reached.is_set()
    world.is_untouched("released")
    stood = world.cluster.store.version
    late.go.set()
    assert late.over.wait(10)
    assert world.cluster.store.version == stood
    world.is_untouched("released")


def test_a_pod_that_another_binds_during_such_an_undo_keeps_nothing_of_it(world: World) -> None:
    world.add_pod()
    world.cluster.fail(*POD, Fault.CUT_BEFORE)
    patched = []

    def bind_elsewhere(method: str, path: str) -> None:
        if (method, path[-7:]) == POD:
            patched.append(path)
            if len(patched) == 3:  # the placement; the mark; its end
                world.cluster.change("Pod", "p", {"spec": {"nodeName": "n9"}}, "team-a")

    world.cluster.before = bind_elsewhere
    assert world.bind() != ""
    assert len(patched) == 4
    assert world.pod()["metadata"]["annotations"] == {"mine": "kept"}
    assert world.state() == "released"
    assert world.lock() is None


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("step", [NODE, POD, BINDING], ids=["lock", "placement", "binding"])
def test_a_process_that_slept_until_beat_had_settled_changes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, step: tuple[str, str]
) -> None:
    world.add_pod()
    asleep = []

    def sleep(method: str, path: str) -> None:
        if not asleep and method == step[0] and path.endswith(step[1]):
            asleep.append(path)
            monkeypatch.setattr(holds, "LEFT_OVER_SECONDS", 0)  # so long it slept
            monkeypatch.setattr(binding, "FORWARD_SECONDS", 0)
            try:
                assert tasks.settle_bindings() == 1
            finally:
                connection.close()

    world.cluster.before = sleep
    assert world.bind() != ""
    world.is_untouched("released")


def test_an_attempt_takes_no_step_that_beat_might_undo() -> None:
    assert binding.FORWARD_SECONDS + client.CONNECT_SECONDS + client.ANSWER_SECONDS < holds.LEFT_OVER_SECONDS


def test_of_two_pods_of_one_second_one_does_not_give_back_the_lock_of_the_other(
    world: World, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a lock is a time alone."""
    settings.HAMIACCT = dataclasses.replace(settings.HAMIACCT, bind_lock_wait_seconds=0)
    capacity = {"cambricon.com/mlu.smlu.vcore": "100", "cambricon.com/mlu.smlu.vmemory": "80"}
    world.add_node("n2", status={"allocatable": capacity, "capacity": capacity})
    asked = {"cambricon.com/vmlu": "1"} | {
        f"cambricon.com/mlu.smlu.v{what}": "4" for what in ("core", "memory")
    }
    second, ticks = timezone.now().replace(microsecond=0), itertools.count(1)
    monkeypatch.setattr(timezone, "now", lambda: second + timedelta(microseconds=next(ticks)))
    for name in ("p", "q"):
        world.add_pod(name, hold=False, **asked)
        world.hold(name, node="n2")
    assert world.bind("p", node="n2") == ""
    lock = world.lock("n2", "cambricon.com/dsmlu.lock")
    assert "is held since" in world.bind("q", node="n2")
    assert world.lock("n2", "cambricon.com/dsmlu.lock") == lock is not None


def test_a_placement_that_another_wrote_meanwhile_is_left_alone(world: World) -> None:
    world.add_pod()
    theirs = {
        "hami.io/vgpu-node": "n9",
        "hami.io/vgpu-time": "1",
        "hami.io/vgpu-devices-allocated": "X,Y,1,1:;",
    }

    def write_over_it(method: str, path: str) -> None:
        if path.endswith("/binding"):
            world.cluster.change("Pod", "p", {"metadata": {"annotations": theirs}}, "team-a")

    world.cluster.before = write_over_it
    assert "409" in world.bind()
    told = world.pod()["metadata"]["annotations"]
    assert {key: told[key] for key in theirs} == theirs
    assert world.lock() is None
    assert world.state() == "released"
    world.books_agree()


def test_a_pod_that_another_binds_elsewhere_keeps_nothing_of_ours(world: World) -> None:
    world.add_pod()

    def bind_elsewhere(method: str, path: str) -> None:
        if path.endswith("/binding"):
            world.cluster.change("Pod", "p", {"spec": {"nodeName": "n9"}}, "team-a")

    world.cluster.before = bind_elsewhere
    assert world.bind() != ""
    assert world.pod()["metadata"]["annotations"] == {"mine": "kept"}
    assert world.lock() is None
    assert world.state() == "released"
    world.books_agree()


def test_a_pod_that_another_places_and_binds_meanwhile_keeps_what_it_has(world: World) -> None:
    world.add_pod()
    theirs = {
        "hami.io/vgpu-node": "n9",
        "hami.io/vgpu-time": "1",
        "hami.io/vgpu-devices-allocated": "X,NVIDIA,1,1:;",
        "hami.io/bind-phase": "success",
    }

    def be_faster(method: str, path: str) -> None:
        if (method, path[-7:]) == POD:
            placed = {"metadata": {"annotations": theirs}, "spec": {"nodeName": "n9"}}
            world.cluster.change("Pod", "p", placed, "team-a")

    world.cluster.before = be_faster
    assert "409" in world.bind()
    assert world.pod()["metadata"]["annotations"] == {"mine": "kept", **theirs}
    assert world.lock() is None
    assert world.state() == "released"
    world.books_agree()


def test_a_pod_that_merely_changes_meanwhile_is_bound_all_the_same(world: World) -> None:
    world.add_pod()
    changes = iter(range(3))

    def change(method: str, path: str) -> None:
        if (method, path[-7:]) == POD and (number := next(changes, None)) is not None:
            told = {"metadata": {"annotations": {"mine": f"changed {number}"}}}
            world.cluster.change("Pod", "p", told, "team-a")

    world.cluster.before = change
    assert world.bind() == ""
    assert world.pod()["metadata"]["annotations"]["mine"] == "changed 2"
    world.is_bound()


def test_a_pod_that_took_over_the_name_meanwhile_is_not_written_to(world: World) -> None:
    world.add_pod()

    def take_over(method: str, path: str) -> None:
        if (method, path[-7:]) == POD:
            world.cluster.change("Pod", "p", {"metadata": {"uid": "uid-2"}}, "team-a")

    world.cluster.before = take_over
    assert "the object has been modified" in world.bind()
    world.is_untouched("released")


def test_a_pod_that_is_deleted_meanwhile_leaves_no_lock(world: World) -> None:
    world.add_pod()

    def delete(method: str, path: str) -> None:
        if path.endswith("/binding"):
            world.cluster.delete("Pod", "p", "team-a")

    world.cluster.before = delete
    assert world.bind() != ""
    assert world.lock() is None
    assert world.state() == "released"
    world.books_agree()


# --- what cannot be told in the request ----------------------------------------------------------


def fail_from_the_binding_on(world: World, fault: Fault) -> None:
    """The Binding meets the fault, and after that the API server answers nothing."""
    world.cluster.fail(*BINDING, fault)

    def go_away(method: str, path: str) -> None:
        if path.endswith("/binding"):
            world.cluster.fail("GET", "", Fault.CUT_BEFORE, times=100)
            world.cluster.fail("PATCH", "", Fault.CUT_BEFORE, times=100)

    world.cluster.before = go_away


def come_back(world: World) -> None:
    world.cluster.before = lambda method, path: None
    world.cluster.heal()


@pytest.mark.parametrize("fault", [Fault.CUT_AFTER, Fault.CUT_BEFORE])
def test_beat_settles_what_could_not_be_told(
    world: World, settings: Any, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    world.add_pod()
    fail_from_the_binding_on(world, fault)
    assert "cannot be told" in world.bind()
    assert world.state() == "binding"
    world.books_agree()
    world.cluster.calls.clear()
    assert tasks.settle_bindings() == 0
    assert world.cluster.calls == [], "it is given a minute"
    monkeypatch.setattr(holds, "LEFT_OVER_SECONDS", 0)
    assert tasks.settle_bindings() == 0, "the API server is still away"
    assert world.state() == "binding"
    come_back(world)
    in_earnest = settings.HAMIACCT
    settings.HAMIACCT = dataclasses.replace(in_earnest, scheduler_mode=False)
    assert tasks.settle_bindings() == 0, "the cluster is only read"
    settings.HAMIACCT = in_earnest
    assert tasks.settle_bindings() == 1
    assert tasks.settle_bindings() == 0
    if fault.is_done:
        world.is_bound()
    else:
        world.is_untouched("released")


def test_a_pod_whose_bind_nobody_can_tell_of_is_not_bound_again_meanwhile(world: World) -> None:
    world.add_pod()
    fail_from_the_binding_on(world, Fault.CUT_BEFORE)
    world.bind()
    come_back(world)
    world.events()
    world.cluster.calls.clear()
    assert "is binding already" in world.bind()
    world.events()
    assert {method for method, _ in world.cluster.calls} == {"GET", "POST"}
    assert not [path for _, path in world.cluster.calls if path.endswith("/binding")]
    assert world.state() == "binding"


@contextmanager
def hold_of_another_session(world: World, path_end: str) -> Iterator[None]:
    """From this call on another database session holds the reservation's row."""
    other = connection.copy()
    other.inc_thread_sharing()

    def take(method: str, path: str) -> None:
        if path.endswith(path_end) and other.connection is None:
            other.set_autocommit(False)
            with other.cursor() as cursor:
                cursor.execute("SELECT 1 FROM hamiacct_reservation FOR UPDATE")

    world.cluster.before = take
    try:
        yield
    finally:
        other.close()
        world.cluster.before = lambda method, path: None


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_refused", [False, True], ids=["bound", "not bound"])
def test_what_could_not_be_written_down_is_settled_by_beat(
    world: World, monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    world.add_pod()
    if is_refused:
        world.cluster.fail(*BINDING, Fault.FORBIDDEN)
    with hold_of_another_session(world, "/binding"):
        assert bool(world.bind()) is is_refused, "the answer is the API server's"
    assert world.state() == "binding"
    monkeypatch.setattr(holds, "LEFT_OVER_SECONDS", 0)
    assert tasks.settle_bindings() == 1
    if is_refused:
        world.is_untouched("released")
    else:
        world.is_bound()


@pytest.mark.django_db(transaction=True)
def test_an_attempt_that_beat_has_settled_does_nothing_to_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add_pod()
    monkeypatch.setattr(holds, "LEFT_OVER_SECONDS", 0)

    def settle_and_hold_again(method: str, path: str) -> None:
        if path.endswith("/binding"):
            try:
                assert tasks.settle_bindings() == 1
                world.hold()
            finally:
                connection.close()

    world.cluster.before = settle_and_hold_again
    assert "409" in world.bind()
    world.is_untouched("held")
    world.cluster.before = lambda method, path: None
    assert world.bind() == ""
    world.is_bound()


def test_a_lock_that_could_not_be_given_back_is_given_back_by_beat(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add_pod()
    world.cluster.fail(*BINDING, Fault.FORBIDDEN)

    def fail_to_unlock(method: str, path: str) -> None:
        if path.endswith("/binding"):
            world.cluster.fail(*NODE, Fault.THROTTLED, times=100)

    world.cluster.before = fail_to_unlock
    assert world.bind() != ""
    assert OURS.fullmatch(world.lock() or "")
    assert world.state() == "binding"
    come_back(world)
    monkeypatch.setattr(holds, "LEFT_OVER_SECONDS", 0)
    assert tasks.settle_bindings() == 1
    world.is_untouched("released")


def test_beat_leaves_to_the_device_plugin_what_is_its_own(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add_pod()
    fail_from_the_binding_on(world, Fault.CUT_AFTER)
    world.bind()
    come_back(world)
    done = {"hami.io/bind-phase": "success", "hami.io/vgpu-devices-to-allocate": ";"}
    world.cluster.change("Pod", "p", {"metadata": {"annotations": done}}, "team-a")
    monkeypatch.setattr(holds, "LEFT_OVER_SECONDS", 0)
    assert tasks.settle_bindings() == 1
    told = world.pod()["metadata"]["annotations"]
    assert {key: told[key] for key in done} == done
    assert OURS.fullmatch(world.lock() or "")
    assert world.state() == "bound"


# --- holds ---------------------------------------------------------------------------------------


def end_the_hold() -> None:
    assert reservations.expire(at=datetime.now(UTC) + timedelta(days=1)) == 1


def test_an_expired_hold_is_taken_again_where_it_was(world: World) -> None:
    world.add_pod()
    (before,) = models.UsageEntry.objects.values_list("device__uuid", flat=True)
    end_the_hold()
    world.books_agree()
    tell(watch.pod("neighbour", f"{before} 1000 0"))  # a new pod would rather go to the other card now
    assert world.bind() == ""
    (after,) = models.UsageEntry.objects.filter(pod_id="uid-p").values_list("device__uuid", flat=True)
    assert after == before
    world.is_bound()


def test_a_hold_whose_time_is_up_is_expired_though_nobody_swept_it(world: World) -> None:
    world.add_pod()
    models.Reservation.objects.update(expires_at=datetime.now(UTC) - timedelta(seconds=1))
    assert world.bind() == ""
    assert models.Reservation.objects.get().expires_at > datetime.now(UTC)
    rules = models.LedgerEntry.objects.order_by("seq").values_list("rule", flat=True)
    assert list(rules) == ["reserved", "expired", "reserved"]
    world.is_bound()


def test_where_its_place_is_taken_it_gets_another_on_the_same_node(world: World) -> None:
    world.add_pod()
    (before,) = models.UsageEntry.objects.values_list("device__uuid", flat=True)
    end_the_hold()
    tell(watch.pod("thief", f"{before} 24000 0"))
    assert world.bind() == ""
    (after,) = models.UsageEntry.objects.filter(pod_id="uid-p").values_list("device__uuid", flat=True)
    assert after != before
    world.is_bound()


@pytest.mark.parametrize("had_one", [True, False], ids=["expired", "missing"])
def test_where_there_is_no_room_left_the_answer_says_why(world: World, had_one: bool) -> None:
    world.add_pod(hold=had_one)
    if had_one:
        end_the_hold()
    tell(watch.pod("thief", "GPU-a 24000 0 + GPU-b 24000 0"))
    world.add_node("n2", watch.card("GPU-c"))  # room elsewhere does not help
    assert "no node takes the pod: 2/2 CardInsufficientMemory (n1)" in world.bind()
    assert "nodeName" not in world.pod()["spec"]
    assert world.pod()["metadata"]["annotations"] == {"mine": "kept"}
    assert world.lock() is None
    assert not models.UsageEntry.objects.filter(pod_id="uid-p").exists()
    decision = models.Decision.objects.get()
    assert (decision.question, decision.verdict) == ("bind", "no-fit")
    assert decision.reasons == {"CardInsufficientMemory": ["n1"]}
    world.books_agree()


def test_a_missing_hold_is_made_up_for(world: World) -> None:
    world.add_pod(hold=False)
    assert world.bind() == ""
    world.is_bound()


def test_a_hold_for_another_node_is_no_hold_for_this_one(world: World) -> None:
    world.add_node("n2", watch.card("GPU-c"))
    world.add_pod()
    assert "on n1, not on n2" in world.bind(node="n2")
    world.is_untouched("held")
    assert world.bind() == ""
    world.is_bound()


def test_the_hold_of_a_pod_that_is_gone_is_given_up(world: World) -> None:
    world.add_pod()
    world.cluster.delete("Pod", "p", "team-a")
    assert "404" in world.bind()
    assert world.state() == "released"
    assert world.lock() is None
    world.books_agree()


def test_another_pod_of_the_name_is_another_pod(world: World) -> None:
    world.add_pod()
    world.cluster.change("Pod", "p", {"metadata": {"uid": "uid-2"}}, "team-a")
    assert "another one now" in world.bind()
    world.is_untouched("released")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"spec": {"nodeName": "n1"}}, "bound to n1 already"),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, "being deleted"),
        ({"status": {"phase": "Failed"}}, "is Failed"),
    ],
)
def test_a_pod_that_cannot_be_bound_is_not(world: World, changes: dict[str, Any], word: str) -> None:
    world.add_pod()
    world.cluster.change("Pod", "p", changes, "team-a")
    assert word in world.bind()
    assert world.pod()["metadata"]["annotations"] == {"mine": "kept"}
    assert (world.lock(), world.state()) == (None, "held")
    world.books_agree()


def test_a_pod_that_is_bound_already_is_not_bound_again(world: World) -> None:
    world.add_pod()
    assert world.bind() == ""
    assert "bound to n1 already" in world.bind()
    world.is_bound()


def test_books_that_are_not_complete_bind_nothing(world: World) -> None:
    world.add_pod()
    world.add_pod("q", hold=False, cpu="1")
    models.Feed.objects.update(listed_at=None, declared_complete_at=None)
    assert "no full list" in world.bind()
    world.is_untouched("held")
    assert world.bind("q") == "", "it asks for nothing that the books are about"


# --- twice at once -------------------------------------------------------------------------------


def at_once(calls: list[Callable[[], str]]) -> list[str]:
    """Calls in threads of their own, begun together."""
    gate = threading.Barrier(len(calls))

    def run(call: Callable[[], str]) -> str:
        try:
            gate.wait(10)
            return call()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


@pytest.mark.django_db(transaction=True)
def test_of_two_binds_of_one_pod_at_once_one_binds(world: World) -> None:
    for number in range(5):
        name = f"p{number}"
        world.add_pod(name)
        assert sorted(bool(error) for error in at_once([lambda name=name: world.bind(name)] * 2)) == [
            False,
            True,
        ]
        assert world.pod(name)["spec"]["nodeName"] == "n1"
        assert world.state(name) == "bound"
        bindings = [path for _, path in world.cluster.calls if path.endswith(f"/{name}/binding")]
        assert len(bindings) == 1
        world.cluster.change(
            "Pod", name, {"metadata": {"annotations": {"hami.io/bind-phase": "success"}}}, "team-a"
        )
    world.books_agree()


@pytest.mark.django_db(transaction=True)
def test_of_two_pods_at_once_on_one_node_one_is_bound_and_the_other_waits(world: World) -> None:
    world.add_pod("p")
    world.add_pod("q")
    errors = at_once([lambda: world.bind("p"), lambda: world.bind("q")])
    assert sorted(map(bool, errors)) == [False, True]
    first, second = ("q", "p") if errors[0] else ("p", "q")
    assert (world.state(first), world.state(second)) == ("bound", "held")
    assert "nodeName" not in world.pod(second)["spec"]
    assert world.pod(second)["metadata"]["annotations"] == {"mine": "kept"}
    assert (world.lock() or "").endswith(f",team-a,{first}")
    world.books_agree()


@pytest.mark.django_db(transaction=True)
def test_as_many_as_have_seats_may_wait_in_bind_and_no_more(world: World) -> None:
    assert bind.AT_ONCE == 2
    for name in ("p", "q", "r"):
        world.add_pod(name)
    inside, may_go = threading.Semaphore(0), threading.Event()

    def stand_still(method: str, path: str) -> None:
        if method == "GET" and "/pods/" in path and not may_go.is_set():
            inside.release()
            may_go.wait(10)

    world.cluster.before = stand_still
    with ThreadPoolExecutor(2) as pool:
        two = [pool.submit(at_once, [lambda name=name: world.bind(name)]) for name in ("p", "q")]
        assert inside.acquire(timeout=10)
        assert inside.acquire(timeout=10)
        assert "ask again" in world.bind("r")
        may_go.set()
        assert sorted(bool(one.result()[0]) for one in two) == [False, True]
    assert world.state("r") == "held"
    world.books_agree()


# --- who may ask, and in what words --------------------------------------------------------------


def test_without_a_cluster_the_answer_says_so(world: World, settings: Any) -> None:
    world.add_pod()
    settings.HAMIACCT = dataclasses.replace(settings.HAMIACCT, kubeconfig=None)
    assert "HAMIACCT_KUBECONFIG" in world.bind()
    world.is_untouched("held")


def test_a_cluster_that_is_only_read_is_not_written_to(world: World, settings: Any) -> None:
    world.add_pod()
    settings.HAMIACCT = dataclasses.replace(settings.HAMIACCT, scheduler_mode=False)
    world.cluster.calls.clear()
    assert "HAMIACCT_SCHEDULER_MODE" in world.bind()
    assert world.cluster.calls == []
    world.is_untouched("held")


@pytest.mark.parametrize("text", ["", "{", "clusters: []", "clusters: {}\ncontexts: []", "\0"])
def test_a_kubeconfig_that_cannot_be_used_is_named(
    world: World, settings: Any, tmp_path: Path, text: str
) -> None:
    world.add_pod()
    bad = tmp_path / "bad.yaml"
    bad.write_text(text)
    settings.HAMIACCT = dataclasses.replace(settings.HAMIACCT, kubeconfig=bad)
    assert "bad.yaml cannot be used" in world.bind()
    world.is_untouched("held")


def test_a_cluster_that_cannot_be_reached_is_an_error(world: World, settings: Any, tmp_path: Path) -> None:
    world.add_pod()
    away = ApiServer()
    away._http.server_close()
    folder = tmp_path / "away"
    folder.mkdir()
    settings.HAMIACCT = dataclasses.replace(settings.HAMIACCT, kubeconfig=away.kubeconfig(folder))
    assert "cannot be reached" in world.bind()
    world.is_untouched("held")


BODY = {"PodName": "p", "PodNamespace": "team-a", "PodUID": "uid-p", "Node": "n1"}


NO_BODIES = [b"", b"{", b"null", b"[]", b"{}", b"x" * (extender.MAX_BODY_BYTES + 1)]
NO_NAMES = (None, "", 7, {}, "a" * 300, "../../../nodes/n1", "a/b", "..", "a\0b")


def bodies_with_bad(field: str) -> list[bytes]:
    return [json.dumps({**BODY, field: value}).encode() for value in NO_NAMES]


@pytest.mark.parametrize(
    "bodies",
    [NO_BODIES, *map(bodies_with_bad, BODY)],
    ids=["no arguments", *(f"bad {field}" for field in BODY)],
)
def test_a_body_that_cannot_be_meant_is_an_error(world: World, bodies: list[bytes]) -> None:
    world.add_pod()
    for body in bodies:
        answer = world.client.generic("POST", "/extender/bind", body, content_type="application/json")
        assert answer.status_code == 200
        assert answer.json()["Error"], body[:80]
    looked_at = {"/api/v1/namespaces/team-a/pods/p", "/api/v1/nodes/n1", LEASE}
    calls = {(method, path) for method, path in world.cluster.calls if not path.endswith("/events")}
    assert calls <= {("GET", path) for path in looked_at}
    assert world.lock() is None
    world.books_agree()


@pytest.mark.parametrize("word", [str.lower, str.upper])
def test_names_of_fields_are_read_whatever_their_case(world: World, word: Callable[[str], str]) -> None:
    world.add_pod()
    answer = world.client.post("/extender/bind", {word(field): value for field, value in BODY.items()})
    assert answer.json() == {"Error": ""}
    world.is_bound()


@pytest.mark.parametrize(
    ("role", "status"), [(Role.VIEWER, 403), (Role.INGESTER, 403), (Role.SCHEDULER, 200)]
)
def test_schedulers_may_bind(
    world: World, api_as: Callable[[Role], APIClient], role: Role, status: int
) -> None:
    assert api_as(role).post("/extender/bind", BODY).status_code == status


def test_nobody_else_may(world: World) -> None:
    assert APIClient().post("/extender/bind", BODY).status_code == 401


def test_every_key_that_a_bind_writes_is_one_that_it_would_remove(world: World) -> None:
    world.add_pod()
    assert world.bind() == ""
    written = set(world.pod()["metadata"]["annotations"]) - {"mine"}
    of_binding = set(patches.of_binding(NOW))
    assert written - of_binding <= patches.keys_of_placements(config.vendors())

"""An operator takes pods from the books; anything newer brings them back (decision 36)."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from hamiacct import models
from hamiacct.accounting.errors import Conflict
from hamiacct.accounting.words import ReservationState
from hamiacct.kube import manifests
from hamiacct.operations import audit, inbox, pods, snapshots, sweeping
from hamiacct.queries import explanations, quotas
from tests import watch
from tests.model.books import APP, INIT, SIDECAR, Allocation, Event, PodView
from tests.model.delivery import Call, FullList
from tests.model.service import InTheRequest, Pair
from tests.operations.test_reservations import reserve

NOW = datetime(2026, 1, 1, tzinfo=UTC)

pytestmark = pytest.mark.django_db


def told(*objects: dict[str, Any], type_: str = "MODIFIED") -> list[str]:
    """The outcomes, in the order sent."""
    receipt = inbox.receive([{"type": type_, "object": one} for one in objects], at=NOW)
    assert not receipt.rejected
    inbox.settle([event_id for _, event_id in receipt.stored], at=NOW)
    snapshots.declare_complete(at=NOW)
    ids = [event_id for _, event_id in receipt.stored]
    states = dict(models.Event.objects.filter(pk__in=ids).values_list("pk", "state"))
    return [states[event_id] for event_id in ids]


def listed(version: int, *objects: dict[str, Any]) -> snapshots.SnapshotResult:
    body = {"kind": "PodList", "metadata": {"resourceVersion": str(version)}, "items": list(objects)}
    return snapshots.apply(manifests.list_items(body), at=NOW)


def used(uuid: str = "GPU-a") -> int:
    return models.Device.objects.get(uuid=uuid).memory_mib_used


def rules(uid: str) -> list[str]:
    return list(models.LedgerEntry.objects.filter(pod_uid=uid).order_by("seq").values_list("rule", flat=True))


def books_agree() -> None:
    assert audit.audit().discrepancies == ()


def test_what_it_held_is_given_back_under_a_rule_of_its_own() -> None:
    sizes = (1000, 2000, 3000)
    told(
        watch.node("n1", watch.card("GPU-a")),
        watch.quota("gpu", hard={"limits.nvidia.com/gpumem": "10000"}),
        *(watch.pod(f"p{size}", f"GPU-a {size} 0") for size in sizes),
    )
    assert len(pods.release(["uid-p1000", "uid-p2000"], by="ada", at=NOW)) == 2
    assert used() == 3000
    assert models.Device.objects.get(uuid="GPU-a").slots_used == 1
    (memory,) = [
        one for one in quotas.of_namespace("team-a").resources if one.resource == "nvidia.com/gpumem"
    ]
    assert (memory.used, memory.headroom) == (3000, 7000)
    assert rules("uid-p1000") == ["charged", "released"]
    assert models.LedgerEntry.objects.filter(rule="released").first().reason == "taken from the books by ada"
    assert set(models.Pod.objects.filter(state="ended").values_list("rule", flat=True)) == {"released"}
    assert "it was released" in explanations.of_pod("uid-p1000").sentence
    books_agree()


def test_what_has_ended_and_what_nobody_knows_stays_as_it_is() -> None:
    told(watch.node("n1", watch.card("GPU-a")), pod := watch.pod("web", "GPU-a 1000 0"))
    told(pod, type_="DELETED")
    assert len(pods.release(["uid-web", "unheard-of"], at=NOW)) == 0
    assert models.Pod.objects.get().rule == "deleted"
    assert len(pods.release([], at=NOW)) == 0
    books_agree()


def test_a_newer_event_revives_it_an_old_one_does_not() -> None:
    old = watch.pod("web", "GPU-a 1000 0")
    told(watch.node("n1", watch.card("GPU-a")), old)
    for memory in (500, 700):
        pods.release(["uid-web"], at=NOW)
        assert len(pods.release(["uid-web"], at=NOW)) == 0
        assert (used(), told(old)) == (0, ["stale"])
        old = watch.pod("web", f"GPU-a {memory} 0")
        assert told(old) == ["applied"]
        assert used() == memory
        books_agree()
    assert rules("uid-web") == ["charged", "released", "revived", "released", "revived"]


def test_inits_that_were_done_are_done_when_it_comes_back() -> None:
    done = {"initContainerStatuses": [{"name": "c0", "state": {"terminated": {"exitCode": 0}}}]}
    pod = watch.pod("web", "GPU-a 9000 0", "GPU-a 1000 0", inits=1)
    pod["status"] |= done
    told(watch.node("n1", watch.card("GPU-a")), pod)
    pods.release(["uid-web"], at=NOW)
    told(watch.pod("web", "GPU-a 9000 0", "GPU-a 1000 0", inits=1))
    assert used() == 1000
    books_agree()


def test_a_list_that_holds_it_revives_it_and_one_from_before_does_not() -> None:
    pod, other = watch.pod("web", "GPU-a 1000 0"), watch.pod("other", "GPU-a 1 0")
    told(watch.node("n1", watch.card("GPU-a")), pod, other)
    version = int(other["metadata"]["resourceVersion"])
    for later in (0, 5):
        pods.release(["uid-web"], at=NOW)
        assert listed(version + later, pod, other).added == 1
        assert used() == 1001
    pods.release(["uid-web"], at=NOW)
    assert listed(version + 6, other).ended == 0
    assert used() == 1
    books_agree()


def test_a_deletion_that_was_heard_of_afterwards_is_final() -> None:
    pod = watch.pod("web", "GPU-a 1000 0")
    told(watch.node("n1", watch.card("GPU-a")), pod)
    pods.release(["uid-web"], at=NOW)
    assert told(pod, type_="DELETED") == ["applied"]
    assert told(watch.pod("web", "GPU-a 1000 0")) == ["stale"]
    assert used() == 0
    books_agree()


def test_its_hold_ends_and_another_may_be_taken() -> None:
    told(watch.node("n1", watch.card("GPU-a")))
    reserve("p", 3000)
    assert len(pods.release(["uid-p"], at=NOW)) == 1
    assert (used(), models.Reservation.objects.get().state) == (0, ReservationState.RELEASED)
    reserve("p", 2000)
    assert (used(), models.Pod.objects.get().ended_by) == (2000, "")
    books_agree()
    models.Reservation.objects.update(state=ReservationState.BINDING)
    assert len(pods.release(["uid-p"], at=NOW)) == 0
    assert used() == 2000


def test_a_pod_that_is_bound_is_still_not_held_again() -> None:
    told(watch.node("n1", watch.card("GPU-a")), watch.pod("p", "GPU-a 1000 0"))
    pods.release(["uid-p"], at=NOW)
    with pytest.raises(Conflict, match="is bound to n1"):
        reserve("p", 3000)


def test_it_is_forgotten_like_others_that_ended() -> None:
    told(watch.node("n1", watch.card("GPU-a")), watch.pod("web", "GPU-a 1000 0"))
    pods.release(["uid-web"], at=NOW)
    later = datetime(2026, 3, 1, tzinfo=UTC)
    sweeping.forget_the_old(keep_days=7, at=later)
    assert models.Pod.objects.exists()
    listed(10**6)
    sweeping.forget_the_old(keep_days=7, at=later)
    assert not models.Pod.objects.exists()


def test_thousands_go_in_a_constant_number_of_statements_a_page() -> None:
    def statements(number: int) -> int:
        uids = [f"uid-{number}-{one}" for one in range(number)]
        made = [watch.pod(f"{number}-{one}", "GPU-a 1 0") for one in range(number)]
        told(*made)
        with CaptureQueriesContext(connection) as ran:
            assert len(pods.release(uids, at=NOW)) == number
        return len(ran)

    told(watch.node("n1", watch.card("GPU-a", memory=10**6, slots=10**3)))
    few = statements(10)
    assert few <= 30
    assert statements(500) <= few + 2
    assert statements(1100) <= 3 * (few + 2)
    assert used() == 0
    books_agree()


def view(version: int, **more: Any) -> PodView:
    """A bound pod of a sidecar, an init and an app, in the model's words."""
    groups = tuple((("NVIDIA-0", memory, 10),) for memory in (2048, 20480, 10240))
    given: dict[str, Any] = {
        "kinds": (SIDECAR, INIT, APP),
        "exits": (None, None),
        "claimed": "n1",
        "bound": "n1",
    }
    given |= {"allocations": {"NVIDIA": Allocation(groups)}, **more}
    return PodView("uid-web", "team-a", "web", version, **given)


def test_the_model_agrees_after_each_release_and_each_revival(api: APIClient) -> None:
    pair = Pair(InTheRequest(api))
    exited = ("running", 0)
    lives = (
        [Call([Event("ADDED", view(10))])],
        [Call([Event("MODIFIED", view(10))]), Call([Event("MODIFIED", view(11, exits=exited))])],
        [FullList("Pod", 11, [view(11, exits=exited)])],
        [FullList("Pod", 40, [view(12)]), Call([Event("MODIFIED", view(41))])],
        [FullList("Pod", 42, []), Call([Event("MODIFIED", view(42))])],
        [Call([Event("DELETED", view(50))]), Call([Event("MODIFIED", view(51))])],
    )
    for steps in lives:
        pair.follow(steps)
        pods.release(["uid-web"], at=NOW)
        pair.books.release("uid-web")
        pair.agree()


def at_once(*calls: Callable[[], object]) -> None:
    """Each in a thread of its own, begun together."""
    start = threading.Barrier(len(calls))

    def one(call: Callable[[], object]) -> None:
        try:
            start.wait()
            call()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(calls)) as pool:
        list(pool.map(one, calls))


@pytest.mark.django_db(transaction=True)
def test_races_with_events_of_the_same_pods_end_as_one_after_the_other() -> None:
    names = [f"p{number}" for number in range(8)]
    uids = [f"uid-{name}" for name in names]
    told(watch.node("n1", watch.card("GPU-a")), *(watch.pod(name, "GPU-a 100 0") for name in names))
    for memory in (200, 300, 400, 500):
        newer = [watch.pod(name, f"GPU-a {memory} 0") for name in names]
        at_once(
            partial(told, *newer),
            partial(pods.release, uids, at=NOW),
            partial(pods.release, uids[::-1], at=NOW),
        )
        held = dict(models.UsageEntry.objects.values_list("pod_id", "memory_mib"))
        assert set(held.values()) <= {memory}
        assert used() == sum(held.values())
        books_agree()
        told(*(watch.pod(name, f"GPU-a {memory} 0") for name in names))
        assert used() == memory * len(names)
        books_agree()

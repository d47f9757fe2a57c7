"""Holds: check and charge in one transaction, and how they end (decisions 26 to 28)."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from hamiacct import config, models
from hamiacct.accounting.errors import AccountingError, Conflict, NoRoom, QuotaExceeded
from hamiacct.accounting.words import ReservationState
from hamiacct.kube import manifests
from hamiacct.operations import audit, bindings, inbox, reservations, snapshots
from hamiacct.queries import fits
from hamiacct.queries import reservations as holds
from tests import watch

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def told(*objects: dict) -> None:
    events = [{"type": "ADDED", "object": one} for one in objects]
    receipt = inbox.receive(events, at=NOW)
    assert not receipt.rejected
    inbox.settle([event_id for _, event_id in receipt.stored], at=NOW)
    snapshots.declare_complete(at=NOW)


def asking(name: str, memory: int, *, count: int = 1, namespace: str = "team-a") -> fits.Question:
    limits = {"nvidia.com/gpu": str(count), "nvidia.com/gpumem": str(memory)}
    manifest = {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
    }
    return fits.question_of(manifests.pod_from_manifest(manifest, config.vendors()))


def reserve(name: str, memory: int, **more) -> reservations.Held:
    return reservations.reserve(asking(name, memory, **more), ttl_seconds=900, at=NOW)


def used(uuid: str) -> int:
    return models.Device.objects.get(uuid=uuid).memory_mib_used


def books_agree() -> None:
    assert audit.audit().discrepancies == ()


@pytest.mark.django_db
def test_a_hold_is_charged_at_once_and_given_back_when_released() -> None:
    told(watch.node("n1", watch.card("GPU-a")))
    held = reserve("p", 3000)
    assert (held.placement.node, used("GPU-a")) == ("n1", 3000)
    books_agree()
    reservations.release("uid-p", at=NOW)
    assert used("GPU-a") == 0
    assert models.Reservation.objects.get(pod_uid="uid-p").state == ReservationState.RELEASED
    books_agree()


@pytest.mark.django_db
def test_a_second_call_gives_the_first_hold_back() -> None:
    told(watch.node("n1", watch.card("GPU-a", memory=10000)))
    reserve("p", 6000)
    reserve("p", 7000)
    assert used("GPU-a") == 7000
    books_agree()


@pytest.mark.django_db
@pytest.mark.parametrize("released", [False, True])
def test_a_second_call_with_other_containers_is_held_for_those(released: bool) -> None:
    told(watch.node("n1", watch.card("GPU-a")))
    reserve("p", 3000)
    if released:
        reservations.release("uid-p", at=NOW)
    containers = [
        {"name": f"c{number}", "resources": {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": memory}}}
        for number, memory in enumerate(("500", "7000", "2000"))
    ]
    containers[0]["restartPolicy"] = "Always"
    manifest = {
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "team-a", "uid": "uid-p"},
        "spec": {"initContainers": containers[:2], "containers": containers[2:]},
    }
    question = fits.question_of(manifests.pod_from_manifest(manifest, config.vendors()))
    reservations.reserve(question, ttl_seconds=900, at=NOW)
    assert used("GPU-a") == 7500
    books_agree()
    assert [one.name for one in holds.of_pod("uid-p").containers] == ["c0", "c1", "c2"]
    reservations.release("uid-p", at=NOW)
    assert used("GPU-a") == 0
    books_agree()


@pytest.mark.django_db
def test_when_no_room_is_found_the_old_hold_is_gone() -> None:
    told(watch.node("n1", watch.card("GPU-a", memory=10000)))
    reserve("p", 6000)
    with pytest.raises(NoRoom):
        reserve("p", 10001)
    assert used("GPU-a") == 0
    books_agree()


@pytest.mark.django_db
def test_a_hold_that_a_bind_has_by_now_is_not_given_up_for_want_of_room() -> None:
    told(watch.node("n1", watch.card("GPU-a")))
    reserve("p", 3000)
    assert bindings.begin("uid-p", "n1", at=datetime.now(UTC))
    reservations._give_up(asking("p", 3000).pod)
    assert models.Reservation.objects.get(pod_uid="uid-p").state == ReservationState.BINDING
    assert used("GPU-a") == 3000
    books_agree()


@pytest.mark.django_db
def test_a_quota_refuses_what_would_fit_without_it() -> None:
    hard = {"limits.nvidia.com/gpumem": "5000"}
    told(watch.node("n1", watch.card("GPU-a")), watch.quota("gpu", hard=hard))
    reserve("p", 4000)
    with pytest.raises(QuotaExceeded):
        reserve("q", 1001)
    reserve("r", 1000)
    with pytest.raises(NoRoom):
        reserve("s", 30000)
    books_agree()


@pytest.mark.django_db
def test_events_of_the_unbound_pod_do_not_touch_the_hold() -> None:
    told(watch.node("n1", watch.card("GPU-a")))
    reserve("p", 3000)
    unbound = watch.pod("p", uid="uid-p", phase="Pending")
    unbound["spec"].pop("nodeName", None)
    told(unbound)
    assert used("GPU-a") == 3000
    assert models.Pod.objects.get(uid="uid-p").state == "reserved"
    books_agree()


@pytest.mark.django_db
def test_the_bound_pod_with_the_same_rows_confirms() -> None:
    told(watch.node("n1", watch.card("GPU-a")))
    reserve("p", 3000)
    told(watch.pod("p", "GPU-a 3000 0", uid="uid-p"))
    assert models.Reservation.objects.get(pod_uid="uid-p").state == ReservationState.CONFIRMED
    assert used("GPU-a") == 3000
    books_agree()


@pytest.mark.django_db
def test_another_placement_wins_over_the_hold() -> None:
    told(watch.node("n1", watch.card("GPU-a"), watch.card("GPU-b")))
    held = reserve("p", 3000)
    (key,) = held.placement.charge
    other = "GPU-b" if key.uuid == "GPU-a" else "GPU-a"
    told(watch.pod("p", f"{other} 2000 0", uid="uid-p"))
    assert (used(key.uuid), used(other)) == (0, 2000)
    assert models.Finding.objects.filter(code="placement-differs", uid="uid-p").exists()
    books_agree()


@pytest.mark.django_db
def test_a_hold_runs_out() -> None:
    told(watch.node("n1", watch.card("GPU-a")))
    reserve("p", 3000)
    assert reservations.expire(at=datetime.now(UTC) + timedelta(seconds=800)) == 0
    assert reservations.expire(at=datetime.now(UTC) + timedelta(seconds=1000)) == 1
    assert used("GPU-a") == 0
    books_agree()


@pytest.mark.django_db
def test_a_list_without_the_pod_does_not_end_its_hold() -> None:
    told(watch.node("n1", watch.card("GPU-a")))
    reserve("p", 3000)
    empty = manifests.list_items({"kind": "PodList", "metadata": {"resourceVersion": "999999"}, "items": []})
    assert snapshots.apply(empty, at=NOW).ended == 0
    assert used("GPU-a") == 3000
    books_agree()


@pytest.mark.django_db
def test_a_bound_pod_is_not_held_again() -> None:
    told(watch.node("n1", watch.card("GPU-a")), watch.pod("p", "GPU-a 3000 0", uid="uid-p"))
    with pytest.raises(Conflict):
        reserve("p", 3000)
    assert used("GPU-a") == 3000


def race(names: list[str], memory: int) -> int:
    """How many of the names got a hold, all at once."""
    start = threading.Barrier(len(names))

    def one(name: str) -> bool:
        try:
            start.wait()
            reserve(name, memory)
        except AccountingError:
            return False
        finally:
            connection.close()
        return True

    with ThreadPoolExecutor(len(names)) as pool:
        return sum(pool.map(one, names))


@pytest.mark.django_db(transaction=True)
def test_sixteen_race_for_a_card_that_holds_two() -> None:
    told(watch.node("n1", watch.card("GPU-a", memory=10000)))
    for round_ in range(5):
        names = [f"p{round_}-{number}" for number in range(16)]
        assert race(names, 5000) == 2
        assert used("GPU-a") == 10000
        books_agree()
        for name in names:
            if models.Reservation.objects.filter(pod_uid=f"uid-{name}", state="held").exists():
                reservations.release(f"uid-{name}", at=NOW)
    assert used("GPU-a") == 0


@pytest.mark.django_db(transaction=True)
def test_sixteen_race_for_a_quota_with_room_for_one() -> None:
    hard = {"limits.nvidia.com/gpumem": "1500"}
    cards = [watch.card(f"GPU-{number}") for number in range(8)]
    told(watch.node("n1", *cards), watch.quota("gpu", hard=hard))
    assert race([f"p{number}" for number in range(16)], 1000) == 1
    books_agree()

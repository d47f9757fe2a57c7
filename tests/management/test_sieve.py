"""What is dropped before the inbox tells the books nothing (decision 33)."""

from datetime import UTC, datetime
from typing import Any

import pytest

from hamiacct import models
from hamiacct.accounting.words import Kind
from hamiacct.management.sieve import Sieve
from hamiacct.operations import inbox
from tests import watch

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def stored(sieve: Sieve, *events: Any, applied: bool = True) -> list[tuple[str, str]]:
    """What goes through the sieve into the inbox, and, unless workers are slow, into the books."""
    sifted = sieve.batch(events)
    inbox.receive(sifted.events, at=NOW)
    sieve.stored(sifted)
    if applied:
        inbox.drain(at=NOW)
    return [(event["type"], event["object"]["metadata"]["resourceVersion"]) for event in sifted.events]  # type: ignore[index]


def ours(version: int, type_: str = "MODIFIED", memory_mib: int = 1024) -> dict[str, Any]:
    return watch.event(watch.pod("p", f"GPU-a {memory_mib} 10", version=version), type_)


def foreign(version: int, type_: str = "MODIFIED", uid: str = "uid-p") -> dict[str, Any]:
    return watch.event(watch.pod("p", uid=uid, version=version), type_)


@pytest.fixture
def pods() -> Sieve:
    return Sieve(Kind.POD)


def test_what_the_books_hold_just_so_is_dropped(pods: Sieve) -> None:
    assert stored(pods, ours(10, "ADDED")) == [("ADDED", "10")]
    assert stored(pods, ours(11), ours(12)) == []
    assert stored(pods, ours(13, memory_mib=2048), ours(14, memory_mib=2048)) == [
        ("MODIFIED", "13"),
        ("MODIFIED", "14"),  # it is not in the books yet
    ]
    assert stored(pods, ours(15)) == [("MODIFIED", "15")]


def test_a_repetition_is_no_repetition_for_books_that_lost_it(pods: Sieve) -> None:
    stored(pods, ours(10, "ADDED"))
    models.Pod.objects.update(resource_version=9)  # restored from a backup, say
    assert stored(pods, ours(11)) == [("MODIFIED", "11")]
    models.Pod.objects.update(ended_by="released")
    assert stored(pods, ours(12)) == [("MODIFIED", "12")]


def test_a_deletion_is_never_dropped(pods: Sieve) -> None:
    assert stored(pods, foreign(10, "ADDED"), foreign(11, "DELETED")) == [("DELETED", "11")]
    stored(pods, ours(12, "ADDED"))
    assert stored(pods, ours(13, "DELETED")) == [("DELETED", "13")]


def test_what_carries_nothing_of_ours_is_dropped_unless_it_is_known(pods: Sieve) -> None:
    assert stored(pods, foreign(10, "ADDED"), foreign(11)) == []
    stored(pods, ours(12))
    pods.forget()
    assert stored(pods, foreign(13)) == [("MODIFIED", "13")]


def test_what_waits_is_known(pods: Sieve) -> None:
    stored(pods, ours(10, "ADDED"), applied=False)
    assert stored(pods, foreign(11), applied=False) == [("MODIFIED", "11")]
    pods.forget()
    kept, seen = pods.page([foreign(12)["object"], foreign(12, uid="uid-q")["object"]])
    assert [item["metadata"]["uid"] for item in kept] == ["uid-p", "uid-q"]  # news wait by name
    assert seen == []


def test_of_a_list_the_books_see_what_is_ours_or_known(pods: Sieve) -> None:
    stored(pods, ours(10, "ADDED"))
    other = watch.pod("q", uid="uid-q", version=11)
    mine = watch.pod("r", "GPU-a 1 1", uid="uid-r", version=12)
    unreadable = {"kind": "Pod", "metadata": {}}
    kept, seen = pods.page([foreign(13)["object"], other, mine, unreadable])
    assert sorted(item["metadata"].get("uid", "") for item in kept) == ["", "uid-p", "uid-r"]
    assert seen == ["uid-q"]


def test_what_cannot_be_read_is_judged_where_it_is_stored(pods: Sieve) -> None:
    events = [{"type": "ADDED", "object": {"kind": "Pod", "metadata": {}}}, 3, watch.event(watch.node("n"))]
    assert pods.batch(events).events == events


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        (Kind.NODE, lambda **more: watch.node("n", watch.card("GPU-a"), **more)),
        (Kind.QUOTA, lambda **more: watch.quota("q", hard={"limits.nvidia.com/gpumem": "5"}, **more)),
    ],
)
def test_nodes_and_quotas_are_told_once(kind: Kind, make: Any) -> None:
    sieve = Sieve(kind)
    assert stored(sieve, watch.event(make(version=10))) == [("ADDED", "10")]
    assert stored(sieve, watch.event(make(version=11), "MODIFIED")) == []
    assert sieve.page([make(version=12)])[1] == []

"""GET /api/v1/ledger"""

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from tests.watch import card, node, pod

pytestmark = pytest.mark.django_db
Listed = Callable[[str], list[Any]]


@pytest.fixture
def _a_life(send: Callable[..., Any]) -> None:
    """One pod on two cards that grows, moves its namespace's neighbour, and ends."""
    send(node("n1", card("GPU-a"), card("GPU-b")))
    send(pod("web", "GPU-a 1000 10", version=1000))
    send(pod("web", "GPU-a 1500 10 + GPU-b 500 0", version=1001), type_="MODIFIED")
    send(pod("other", "GPU-b 1 1", namespace="team-b", version=1002))
    send(pod("web", version=1003), type_="DELETED")


def lines(items: list[Any]) -> list[tuple[Any, ...]]:
    return [(one["device"], one["rule"], one["slots"], one["memory_mib"], one["cores"]) for one in items]


def test_every_change_is_a_signed_difference(listed: Listed, _a_life: None) -> None:
    found = listed("/api/v1/ledger?pod=uid-web")
    assert lines(found) == [
        ("GPU-a", "charged", 1, 1000, 10),
        ("GPU-a", "replaced", 0, 500, 0),
        ("GPU-b", "replaced", 1, 500, 0),
        ("GPU-a", "deleted", -1, -1500, -10),
        ("GPU-b", "deleted", -1, -500, 0),
    ]
    assert [one["resource_version"] for one in found] == [1000, 1001, 1001, 1003, 1003]
    assert {one["pod_uid"] for one in found} == {"uid-web"}


def test_sequences_go_up(listed: Listed, _a_life: None) -> None:
    sequences = [one["seq"] for one in listed("/api/v1/ledger")]
    assert sequences == sorted(set(sequences))


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("device=GPU-a", 3),
        ("node=n1", 6),
        ("node=n2", 0),
        ("namespace=team-b", 1),
        ("pod=uid-web&device=GPU-b", 2),
    ],
)
def test_filters_are_all_to_hold(listed: Listed, _a_life: None, query: str, count: int) -> None:
    assert len(listed(f"/api/v1/ledger?{query}")) == count


def test_a_reader_follows_from_where_it_was(listed: Listed, _a_life: None) -> None:
    everything = listed("/api/v1/ledger")
    seen = everything[3]["seq"]
    assert listed(f"/api/v1/ledger?after={seen}") == everything[4:]
    assert listed(f"/api/v1/ledger?after={2**63 - 1}") == []


@pytest.mark.parametrize("after", ["x", "-1", "1.5", str(2**63)])
def test_a_sequence_that_is_none_is_malformed(api: APIClient, after: str) -> None:
    assert api.get(f"/api/v1/ledger?after={after}").status_code == 400

"""Whose a node's lock is, how old, and which locks a pod needs (semantics 2.8, decision 30)."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from hamiacct import config
from hamiacct.accounting.errors import UnreadableAnnotation
from hamiacct.accounting.pods import Allocation, Phase, Pod, Row
from hamiacct.kube import node_locks
from hamiacct.kube.node_locks import LockKind, NodeLock, Standing
from tests import cases

NOW = datetime(2026, 8, 21, 10, 0, 0, tzinfo=UTC)
MUTEX = LockKind("hami.io/mutex.lock", True, 300)
DSMLU = LockKind("cambricon.com/dsmlu.lock", False, 120)


@pytest.mark.parametrize(("given", "expected"), cases.of_kind("node-lock"))
def test_case(given: dict[str, Any], expected: dict[str, Any]) -> None:
    text = given["annotations"][MUTEX.key]
    if "error" in expected:
        with pytest.raises(UnreadableAnnotation, match=expected["error"]):
            node_locks.parse(text)
        return
    lock = node_locks.parse(text)
    assert (lock.namespace, lock.name) == (expected["namespace"], expected["name"])
    assert lock.at == datetime.fromisoformat(expected["time"])


@pytest.mark.parametrize(
    ("text", "lock"),
    [
        ("2026-08-21T10:00:00Z,team-a,web-0", NodeLock(NOW, "team-a", "web-0")),
        ("2026-08-21T18:00:00+08:00,team-a,web-0", NodeLock(NOW, "team-a", "web-0")),
        ("2026-08-21T10:00:00.000000000Z", NodeLock(NOW)),
        ("2026-08-21T10:00:00Z,,", NodeLock(NOW)),
    ],
)
def test_a_lock_is_a_time_and_maybe_its_holder(text: str, lock: NodeLock) -> None:
    assert node_locks.parse(text) == lock


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-08-21T10:00:00",
        "2026-08-21",
        "20260821T100000Z",
        "2026-08-21 10:00:00Z",
        "2026-13-21T10:00:00Z",
        "2026-08-21T10:00:00Z,a,b,c",
        "2026-08-21T10:00:00Z,team-a",
        "٢٠٢٦-08-21T10:00:00Z",
        " 2026-08-21T10:00:00Z",
        "1787270400",
    ],
)
def test_anything_else_is_malformed(text: str) -> None:
    with pytest.raises(UnreadableAnnotation):
        node_locks.parse(text)


def test_a_lock_is_written_in_utc_as_its_kind_has_it() -> None:
    at = (NOW + timedelta(milliseconds=900)).astimezone(timezone(timedelta(hours=8)))
    assert node_locks.text_of(MUTEX, "team-a", "web-0", at) == "2026-08-21T10:00:00Z,team-a,web-0"
    assert node_locks.text_of(DSMLU, "team-a", "web-0", at) == "2026-08-21T10:00:00.900000Z"


@pytest.mark.parametrize("kind", [MUTEX, DSMLU])
def test_what_is_written_can_be_read(kind: LockKind) -> None:
    text = node_locks.text_of(kind, "team-a", "web-0", NOW)
    assert node_locks.parse(text).at == NOW


def test_two_of_one_second_can_be_told_apart_by_name_or_by_time() -> None:
    one, other = ("team-a", "web-0", NOW), ("team-a", "web-1", NOW + timedelta(microseconds=1))
    for kind in (MUTEX, DSMLU):
        assert node_locks.text_of(kind, *one) != node_locks.text_of(kind, *other)


@pytest.mark.parametrize(
    ("kind", "text", "standing"),
    [
        (MUTEX, None, Standing.FREE),
        (MUTEX, "2026-08-21T10:00:00Z,team-a,web-0", Standing.OURS),
        (MUTEX, "2025-08-21T10:00:00Z,team-a,web-0", Standing.OURS),
        (MUTEX, "2026-08-21T10:00:00Z,team-b,web-0", Standing.HELD),
        (MUTEX, "2026-08-21T09:55:00Z,team-b,web-0", Standing.HELD),
        (MUTEX, "2026-08-21T09:54:59Z,team-b,web-0", Standing.EXPIRED),
        (MUTEX, "2026-08-21T09:55:00Z", Standing.HELD),
        (MUTEX, "2026-08-21T09:54:59Z", Standing.EXPIRED),
        (MUTEX, "2027-08-21T09:54:59Z", Standing.HELD),
        (MUTEX, "nonsense", Standing.MALFORMED),
        (MUTEX, "", Standing.MALFORMED),
        (DSMLU, "2026-08-21T09:58:00Z", Standing.HELD),
        (DSMLU, "2026-08-21T09:57:59Z", Standing.EXPIRED),
    ],
)
def test_how_a_lock_stands_to_a_pod_that_wants_it(
    kind: LockKind, text: str | None, standing: Standing
) -> None:
    assert node_locks.standing(kind, text, "team-a", "web-0", NOW) is standing


def holder(phase: Phase = Phase.PENDING, bind_phase: str = "") -> Pod:
    return Pod("u", "team-b", "web-0", 1, phase=phase, bind_phase=bind_phase)


@pytest.mark.parametrize(
    ("pod", "has_let_go"),
    [
        (None, True),
        (holder(Phase.SUCCEEDED), True),
        (holder(Phase.FAILED, "allocating"), True),
        (holder(bind_phase="success"), True),
        (holder(bind_phase="failed"), True),
        (holder(bind_phase="allocating"), False),
        (holder(Phase.RUNNING, "allocating"), False),
        (holder(), False),
    ],
)
def test_a_holder_lets_go_when_it_is_gone_or_over_or_past_allocating(
    pod: Pod | None, has_let_go: bool
) -> None:
    assert node_locks.has_let_go(pod) is has_let_go


def rows(vendor: str, *groups: int) -> dict[str, Allocation]:
    """So many rows per position."""
    made = tuple(tuple(Row(f"d-{n}", vendor, 1, 1) for n in range(count)) for count in groups)
    return {vendor: Allocation(vendor, "n1", made)}


@pytest.mark.parametrize(
    ("allocations", "keys"),
    [
        ({}, []),
        (rows("NVIDIA", 0, 1), ["hami.io/mutex.lock"]),
        (rows("NVIDIA", 1, 0), ["hami.io/mutex.lock"]),  # an init alone
        (rows("NVIDIA", 0, 0), []),
        (rows("NVIDIA"), []),
        (rows("MLU", 1), ["cambricon.com/dsmlu.lock"]),
        (rows("NVIDIA", 1) | rows("DCU", 1), ["hami.io/mutex.lock"]),
        (rows("NVIDIA", 1) | rows("MLU", 1), ["cambricon.com/dsmlu.lock", "hami.io/mutex.lock"]),
        (rows("Mthreads", 1), []),
        (rows("Enflame", 1) | rows("XPU", 1), ["hami.io/mutex.lock"]),
    ],
)
def test_a_pod_needs_the_locks_of_the_vendors_that_have_a_row(
    allocations: dict[str, Allocation], keys: list[str]
) -> None:
    assert [kind.key for kind in node_locks.kinds_of(allocations, config.vendors())] == keys


def test_every_vendor_with_a_lock_says_all_of_it() -> None:
    for vendor in config.vendors():
        for kind in node_locks.kinds_of(rows(vendor.key, 1), [vendor]):
            assert kind in (MUTEX, DSMLU)

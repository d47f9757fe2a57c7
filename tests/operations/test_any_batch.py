"""A batch of events leaves the books as its events do one by one, whatever the mix."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection, transaction
from hypothesis import given, settings
from hypothesis import strategies as st

from hamiacct.operations import inbox
from tests import watch

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BOOKS = (
    "SELECT to_jsonb(pod) FROM hamiacct_pod AS pod ORDER BY uid",
    (
        "SELECT pod_id, node, uuid, entry.vendor, slots, memory_mib, cores, core_set, quota_cores"
        " FROM hamiacct_usageentry AS entry JOIN hamiacct_device AS device ON device.id = entry.device_id"
        " ORDER BY pod_id, node, uuid"
    ),
    "SELECT node, uuid, slots_used, memory_mib_used, cores_used FROM hamiacct_device ORDER BY node, uuid",
    (
        "SELECT namespace, vendor, slots, memory_mib, cores FROM hamiacct_namespaceusage"
        " WHERE slots + memory_mib + cores > 0 ORDER BY namespace, vendor"
    ),
    (
        "SELECT quota_id, vendor, memory_mib, cores FROM hamiacct_quotausage"
        " WHERE memory_mib + cores > 0 ORDER BY quota_id, vendor"
    ),
    "SELECT to_jsonb(finding) - 'id' FROM hamiacct_finding AS finding ORDER BY subject, code, key",
    (
        "SELECT namespace, name, uid, type, resource_version, state, rule, detail FROM hamiacct_event"
        " ORDER BY namespace, name, resource_version, uid, type"
    ),
    (
        "SELECT pod_uid, node, device, vendor, rule, reason, slots, memory_mib, cores, quota_cores,"
        " resource_version FROM hamiacct_ledgerentry ORDER BY seq"
    ),
)

pytestmark = pytest.mark.django_db


def kept() -> list[Any]:
    """What the books hold."""
    with connection.cursor() as cursor:
        return [cursor.execute(book).fetchall() for book in BOOKS]  # type: ignore[attr-defined]


def told(events: Sequence[dict[str, Any]], *, at_once: bool) -> list[Any]:
    """The books after these events, which are as they were afterwards."""
    with transaction.atomic():
        for some in [events] if at_once else [[one] for one in events]:
            receipt = inbox.receive(some, at=NOW)
            inbox.settle([event_id for _, event_id in receipt.stored], at=NOW)
        books = kept()
        transaction.set_rollback(True)
    return books


GROUPS = ("GPU-a 100 10", "GPU-b 50 0 + GPU-a 10 1", "", "GPU-x 7 7")
STATUSES: Sequence[dict[str, Any]] = (
    {},
    {"initContainerStatuses": [{"name": "c0", "state": {"running": {}}}]},
    {"initContainerStatuses": [{"name": "c0", "state": {"terminated": {"exitCode": 0}}}]},
)


@st.composite
def objects(draw: st.DrawFn, version: int) -> dict[str, Any]:
    """A pod of few names and few UIDs, which may take each other's; some cannot be read."""
    name = draw(st.sampled_from(("p", "q")))
    groups = draw(st.lists(st.sampled_from(GROUPS), max_size=3))
    made = watch.pod(
        name,
        *groups,
        inits=draw(st.integers(0, 1)) if groups else 0,
        node=draw(st.sampled_from(("n1", "n2"))),
        namespace=draw(st.sampled_from(("team-a", "team-b"))),
        uid=draw(st.sampled_from((f"{name}-1", f"{name}-2", "shared"))),
        version=version,
        phase=draw(st.sampled_from(("Running", "Running", "Pending", "Failed", "Odd"))),
        priorityClassName=draw(st.sampled_from(("", "high"))),
    )
    made["status"] |= draw(st.sampled_from(STATUSES))
    annotations = made["metadata"]["annotations"]
    if annotations and draw(st.integers(0, 5)) == 0:
        annotations[watch.ALLOCATED] = "cut,off"
    return made


@st.composite
def mixes(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Events in the order in which a batch applies them: by name, each name's by version."""
    kinds = draw(st.lists(st.sampled_from(("ADDED", "MODIFIED", "MODIFIED", "DELETED")), max_size=8))
    drawn = [watch.event(draw(objects(1000 + number)), kind) for number, kind in enumerate(kinds)]
    return sorted(
        drawn, key=lambda one: [one["object"]["metadata"][field] for field in ("namespace", "name")]
    )


@pytest.fixture(scope="module")
def cluster() -> list[dict[str, Any]]:
    """Two nodes that have cards of the same names, and a quota that selects some pods."""
    cards = [watch.card(uuid, memory=10**4, slots=100, cores=100) for uuid in ("GPU-a", "GPU-b")]
    scoped = watch.quota(
        "some",
        version=5,
        hard={"limits.nvidia.com/gpumem": "120"},
        scopeSelector={
            "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]
        },
    )
    whole = watch.quota("all", version=6, hard={"limits.nvidia.com/gpumem": "10k"})
    nodes = [watch.node(name, *cards, version=place) for place, name in enumerate(("n1", "n2"), start=1)]
    return [watch.event(one) for one in (*nodes, scoped, whole)]


def test_a_batch_of_any_mix_is_its_events_one_by_one(cluster: list[dict[str, Any]]) -> None:
    receipt = inbox.receive(cluster, at=NOW)
    inbox.settle([event_id for _, event_id in receipt.stored], at=NOW)

    @settings(max_examples=40, deadline=None)
    @given(mixes())
    def holds(events: list[dict[str, Any]]) -> None:
        assert told(events, at_once=True) == told(events, at_once=False)

    holds()

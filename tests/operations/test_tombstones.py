"""What is gone is forgotten after the days, once a newer list has outlived it; what lives is not touched."""

from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from django.contrib.sessions.models import Session
from django.utils import timezone
from rest_framework.test import APIClient

from hamiacct import models
from hamiacct.accounting.words import ReservationState
from hamiacct.operations import audit, sweeping
from tests import watch
from tests.asking import asking
from tests.live import database_url
from tests.operations.test_claims_together import SOON
from tests.waiting import in_a_thread, somebody_waits_for, until

pytestmark = pytest.mark.django_db

LATER = datetime.now(UTC) + timedelta(days=8)


def show(api: APIClient, *objects: object, type_: str = "ADDED") -> None:
    assert api.post("/api/v1/events", watch.events(*objects, type_=type_)).status_code == 200


def send_list(api: APIClient, kind: str, *items: object) -> None:
    version = str(next(watch.versions))
    body = {"kind": f"{kind}List", "apiVersion": "v1", "metadata": {"resourceVersion": version}}
    answer = api.post("/api/v1/snapshots", body | {"items": list(items)})
    assert answer.status_code == 200, answer.content


def sweep(at: datetime = LATER) -> int:
    swept = sweeping.forget_the_old(keep_days=7, at=at)
    assert audit.audit().ok
    return swept


@pytest.fixture
def nodes(api: APIClient) -> dict[str, dict[str, object]]:
    made = {name: watch.node(name, watch.card(f"GPU-{name}")) for name in ("n1", "n2", "n3")}
    send_list(api, "Node", *made.values())
    return made


def names() -> set[str]:
    return set(models.Node.objects.values_list("name", flat=True))


def test_a_node_goes_with_its_cards(api: APIClient, nodes: dict[str, dict[str, object]]) -> None:
    show(api, watch.node("n2"), type_="DELETED")
    send_list(api, "Node", nodes["n1"], nodes["n3"])
    sweep(timezone.now())
    assert names() == {"n1", "n2", "n3"}, "gone since a moment"
    sweep()
    assert names() == {"n1", "n3"}
    assert set(models.Device.objects.values_list("node", flat=True)) == {"n1", "n3"}


def test_a_node_that_a_list_did_not_hold_goes(api: APIClient, nodes: dict[str, dict[str, object]]) -> None:
    send_list(api, "Node", nodes["n1"])
    send_list(api, "Node", nodes["n1"])
    sweep()
    assert names() == {"n1"}


def test_a_node_waits_for_a_newer_list(api: APIClient, nodes: dict[str, dict[str, object]]) -> None:
    show(api, watch.node("n2"), type_="DELETED")
    sweep()
    assert names() == {"n1", "n2", "n3"}


def test_a_node_stays_while_a_pod_holds_its_card(api: APIClient, nodes: dict[str, dict[str, object]]) -> None:
    show(api, watch.pod("holds", "GPU-n2 100 0", node="n2"))
    show(api, watch.node("n2"), type_="DELETED")
    send_list(api, "Node", nodes["n1"], nodes["n3"])
    sweep()
    assert names() == {"n1", "n2", "n3"}
    show(api, watch.pod("holds", "GPU-n2 100 0", node="n2"), type_="DELETED")
    sweep()
    assert names() == {"n1", "n3"}


def test_a_node_that_came_back_stays(api: APIClient, nodes: dict[str, dict[str, object]]) -> None:
    show(api, watch.node("n2"), type_="DELETED")
    show(api, watch.node("n2", watch.card("GPU-n2")))
    send_list(api, "Node", nodes["n1"], watch.node("n2", watch.card("GPU-n2")), nodes["n3"])
    sweep()
    assert names() == {"n1", "n2", "n3"}


def test_what_older_code_saw_go_goes_some_days_after_it_was_found(
    api: APIClient, nodes: dict[str, dict[str, object]]
) -> None:
    show(api, watch.node("n2"), type_="DELETED")
    models.Node.objects.update(deleted_at=None)
    send_list(api, "Node", nodes["n1"], nodes["n3"])
    sweep()
    assert names() == {"n1", "n2", "n3"}
    sweep(LATER + timedelta(days=8))
    assert names() == {"n1", "n3"}


def test_a_quota_goes_with_what_it_counted(api: APIClient) -> None:
    hard = {"limits.nvidia.com/gpumem": "1000"}
    kept = watch.quota("kept", hard=hard)
    show(api, kept, watch.quota("gone", hard=hard))
    show(api, watch.quota("gone", hard=hard), type_="DELETED")
    send_list(api, "ResourceQuota", kept)
    sweep()
    assert list(models.ResourceQuota.objects.values_list("name", flat=True)) == ["kept"]


def test_a_hold_that_ended_goes_with_its_pod(api: APIClient, nodes: dict[str, dict[str, object]]) -> None:
    for kind in ("ResourceQuota", "Pod"):
        send_list(api, kind)
    for name in ("stands", "over"):
        assert api.post("/api/v1/reservations", {"pod": asking(name, gpumem=100)}).status_code == 201
    assert api.delete("/api/v1/reservations/uid-over").status_code == 204
    sweep()
    assert models.Reservation.objects.count() == 2, "its pod is known"
    send_list(api, "Pod")
    send_list(api, "Pod")
    sweep(LATER + timedelta(days=1))
    assert models.Reservation.objects.filter(state=ReservationState.RELEASED).count() == 0
    assert models.Pod.objects.filter(uid="uid-over").count() == 0


def test_totals_of_nothing_go_where_no_pod_is(api: APIClient, nodes: dict[str, dict[str, object]]) -> None:
    show(api, watch.pod("here", "GPU-n1 100 0"), watch.pod("gone", "GPU-n1 100 0", namespace="team-z"))
    done = watch.pod("done", "GPU-n1 100 0", namespace="team-y")
    show(api, done)
    show(api, watch.pod("done", "GPU-n1 100 0", namespace="team-y", phase="Succeeded"))
    show(api, watch.pod("gone", "GPU-n1 100 0", namespace="team-z"), type_="DELETED")
    done = watch.pod("done", "GPU-n1 100 0", namespace="team-y", phase="Succeeded")
    send_list(api, "Pod", watch.pod("here", "GPU-n1 100 0"), done)
    sweep()
    assert set(models.NamespaceUsage.objects.values_list("namespace", flat=True)) == {"team-a", "team-y"}


def test_sessions_that_have_run_out_go(api: APIClient) -> None:
    Session.objects.create(session_key="old", session_data="", expire_date=LATER - timedelta(days=1))
    Session.objects.create(session_key="new", session_data="", expire_date=LATER + timedelta(days=1))
    send_list(api, "Pod")
    sweep()
    assert list(Session.objects.values_list("session_key", flat=True)) == ["new"]


@pytest.mark.django_db(transaction=True)
def test_a_pod_that_somebody_brings_back_meanwhile_stays(api: APIClient) -> None:
    """The sweep finds it as it ended, and whoever brings it back has not committed yet."""
    show(api, watch.pod("back"))
    send_list(api, "Pod")
    send_list(api, "Pod")
    with psycopg.connect(database_url()) as another:
        another.execute(
            "UPDATE hamiacct_pod SET ended_by = '', ended_at = NULL, state = 'unscheduled'"
            " WHERE uid = 'uid-back'"
        )
        swept = in_a_thread(lambda: sweeping.forget_the_old(keep_days=7, at=LATER))
        until(lambda: swept.done() or somebody_waits_for(another))
    swept.result(SOON)
    assert models.Pod.objects.get(uid="uid-back").ended_by == ""

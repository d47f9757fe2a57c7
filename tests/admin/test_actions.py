"""What operators do in the admin goes through operations: the books follow, and who did it is noted."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from hamiacct import models
from hamiacct.accounting.words import EventState, PodState, ReservationState, Role, Rule
from hamiacct.operations import audit, inbox, tokens
from hamiacct.queries import tokens as found_tokens
from tests import watch
from tests.admin.conftest import text_of

PODS = "/admin/hamiacct/pod/"
EVENTS = "/admin/hamiacct/event/"
HOLDS = "/admin/hamiacct/reservation/"
TOKENS = "/admin/hamiacct/apitoken/"
AUDIT, REPAIR = "/admin/hamiacct/ledgerentry/audit/", "/admin/hamiacct/ledgerentry/repair/"
LIMIT = {"limits.nvidia.com/gpumem": "10000"}

Send = Callable[..., None]


@pytest.fixture
def send(db: None, api: APIClient) -> Send:
    """Sends objects as events; every one must be applied."""

    def send(*objects: Any, type_: str = "ADDED") -> None:
        body = api.post("/api/v1/events", watch.events(*objects, type_=type_)).json()
        assert {result["outcome"] for result in body["results"]} == {"applied"}, body

    return send


@pytest.fixture
def team(send: Send) -> None:
    """Three pods of a namespace with a quota, on one card."""
    send(
        watch.node("n1", watch.card("GPU-a")),
        watch.quota("gpu", hard=LIMIT),
        *(watch.pod(f"p{memory}", f"GPU-a {memory} 0") for memory in (1000, 2000, 3000)),
    )


def do(client: Client, where: str, action: str, *chosen: object, **more: object) -> Any:
    return client.post(where, {"action": action, "_selected_action": chosen, **more}, follow=True)


def used() -> tuple[int, int, int]:
    """What is held of the card: memory, cores, slots."""
    card = models.Device.objects.get(uuid="GPU-a")
    return card.memory_mib_used, card.cores_used, card.slots_used


def books_agree() -> bool:
    return audit.audit().ok


# --- pods ---


def test_pods_deleted_in_the_list_give_back_what_they_hold(team: None, boss: Client, api: APIClient) -> None:
    """Field report BR-36."""
    asked = do(boss, PODS, "delete_selected", "uid-p1000", "uid-p2000")
    assert "team-a/p1000" in text_of(asked)
    assert used() == (6000, 0, 3)
    do(boss, PODS, "delete_selected", "uid-p1000", "uid-p2000", post="yes")
    assert used() == (3000, 0, 1)
    assert models.QuotaUsage.objects.get().memory_mib == 3000
    assert models.LedgerEntry.objects.filter(rule=Rule.RELEASED).count() == 2
    assert LogEntry.objects.count() == 2
    for memory, allowed in ((7000, True), (7001, False)):
        requests = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(memory)}
        pod = watch.pod("new", requests=[requests])
        answer = api.post("/api/v1/quota/check", {"pod": pod, "namespace": "team-a"})
        assert answer.json()["allowed"] is allowed
    assert books_agree()


def test_one_pod_deleted_on_its_page_is_revived_by_a_newer_event(
    team: None, boss: Client, send: Send
) -> None:
    """Decision 36."""
    page = boss.get(f"{PODS}uid-p3000/delete/")
    assert "team-a/p3000" in text_of(page)
    answer = boss.post(f"{PODS}uid-p3000/delete/", {"post": "yes"}, follow=True)
    assert "it was released" in text_of(answer)
    assert used() == (3000, 0, 2)
    assert models.Pod.objects.get(pk="uid-p3000").state == PodState.ENDED
    send(watch.pod("p3000", "GPU-a 3000 0"), type_="MODIFIED")
    assert used() == (6000, 0, 3)
    assert books_agree()


def test_a_pod_that_stays_as_it_is_is_not_called_released(team: None, boss: Client) -> None:
    """One that is being bound, and one that has ended already: not in the messages, nor in the log."""
    now = timezone.now()
    models.Reservation.objects.create(
        pod_uid="uid-p1000", namespace="team-a", name="p1000", node="n1", state=ReservationState.BINDING,
        created_at=now, expires_at=now, changed_at=now, allocations={}, annotations={}, labels={}, score=0,
    )  # fmt: skip
    alone = text_of(boss.post(f"{PODS}uid-p1000/delete/", {"post": "yes"}, follow=True))
    assert "team-a/p1000: not released" in alone
    assert "released from the books" not in alone
    for _ in ("once", "twice"):
        chosen = ("uid-p1000", "uid-p2000")
        both = text_of(do(boss, PODS, "delete_selected", *chosen, post="yes"))
        assert "uccessfully" not in both
    assert "2 pods: not released" in both
    assert list(LogEntry.objects.values_list("object_id", flat=True)) == ["uid-p2000"]
    assert used() == (4000, 0, 2)


@pytest.mark.parametrize("across", [True, False], ids=["the whole list", "row by row"])
def test_more_pods_than_a_form_has_fields(send: Send, boss: Client, across: bool) -> None:
    number = 120
    send(watch.node("n1", watch.card("GPU-a", memory=100_000, slots=2000)))
    send(*(watch.pod(f"p{place}", "GPU-a 10 0") for place in range(number)))
    assert used() == (number * 10, 0, number)
    uids = [f"uid-p{place}" for place in range(1200)]  # most of them are swept meanwhile
    if across:
        page = text_of(do(boss, PODS, "delete_selected", uids[0], select_across="1"))
        assert f"Release {number} pods" in page
        assert page.count("_selected_action") == 1
        do(boss, PODS, "delete_selected", uids[0], select_across="1", post="yes")
    else:
        do(boss, PODS, "delete_selected", *uids, post="yes")
    assert used() == (0, 0, 0)
    assert LogEntry.objects.count() == number


def test_a_pods_page_tells_why(team: None, boss: Client, send: Send) -> None:
    send(watch.pod("web", "GPU-a 2048 0", "GPU-a 20480 0", "GPU-a 10240 0", inits=2))
    page = text_of(boss.get(f"{PODS}uid-web/change/"))
    assert "set by apps and sidecars together" in page or "set by an init container" in page
    assert page.count("<tr>") >= 5
    card = models.Device.objects.get(uuid="GPU-a")
    page = text_of(boss.get(f"/admin/hamiacct/device/{card.pk}/change/"))
    assert f"{PODS}uid-web/change/" in page
    assert "comes back" in page or "come back" in page


# --- quotas ---


def test_a_quota_below_its_use_says_by_how_much(db: None, boss: Client, send: Send) -> None:
    """Field report BR-35."""
    send(
        watch.node("n1", watch.card("GPU-a")),
        watch.quota("gpu", hard=LIMIT),
        watch.pod("r0", "GPU-a 3000 0"),
        watch.pod("r1", "GPU-a 3000 0"),
    )
    send(watch.quota("gpu", hard={"limits.nvidia.com/gpumem": "4000"}), type_="MODIFIED")
    page = text_of(boss.get("/admin/hamiacct/resourcequota/"))
    row = page[page.index('class="data-row') :]
    for name, number in (("used", 6000), ("hard", 4000), ("remaining", 0), ("over_by", 2000)):
        cell = row[row.index(f"field-{name}") :]
        assert f">{number}<" in cell[: cell.index("</td>")], name


# --- events ---


@pytest.fixture
def refused(team: None) -> int:
    """An event whose containers cannot be read."""
    broken = watch.pod("web", "GPU-a 100 0")
    del broken["spec"]["containers"][0]["name"]
    inbox.receive([watch.event(broken)], at=datetime.now(UTC))
    inbox.drain(at=datetime.now(UTC))
    event = models.Event.objects.get(state=EventState.REFUSED)
    return event.pk


def test_a_refused_event_is_replayed(refused: int, boss: Client) -> None:
    again = text_of(do(boss, EVENTS, "replay", refused, from_page="1"))
    assert "was refused again" in again
    event = models.Event.objects.get(pk=refused)
    event.body["spec"]["containers"][0]["name"] = "c0"
    event.save(update_fields=["body"])
    do(boss, EVENTS, "replay", refused)
    assert models.Event.objects.get(pk=refused).state == EventState.APPLIED
    assert used() == (6100, 0, 4)
    assert {entry.change_message for entry in LogEntry.objects.all()} == {"replayed"}
    assert "is not refused" in text_of(do(boss, EVENTS, "replay", refused))


def test_a_refused_event_is_dismissed(refused: int, boss: Client) -> None:
    do(boss, EVENTS, "dismiss", refused)
    assert models.Event.objects.get(pk=refused).state == EventState.DISMISSED
    assert used() == (6000, 0, 3)


# --- reservations ---


def test_a_reservation_is_released(team: None, boss: Client, api: APIClient) -> None:
    api.post("/api/v1/snapshots?complete=1")
    pod = watch.pod("later", requests=[{"nvidia.com/gpu": "1", "nvidia.com/gpumem": "500"}])
    pod["spec"]["nodeName"] = ""
    pod["status"] = {}
    assert api.post("/api/v1/reservations", {"pod": pod}).status_code == 201
    assert used()[0] == 6500
    page = text_of(boss.get(f"{HOLDS}uid-later/change/"))
    assert 'value="release"' in page
    do(boss, HOLDS, "release", "uid-later")
    assert used()[0] == 6000
    assert models.Reservation.objects.get().state == ReservationState.RELEASED
    assert books_agree()


# --- tokens ---


def test_a_token_is_shown_once(boss: Client) -> None:
    assert "Make the token" in text_of(boss.get(f"{TOKENS}add/"))
    made = boss.post(f"{TOKENS}add/", {"name": "ci", "role": "ingester", "days": "30"})
    assert "no-store" in made.headers["Cache-Control"]
    page = text_of(made)
    plain = page[page.index('id="token">') + 11 :].partition("<")[0].lstrip(">")
    token = found_tokens.find(plain.encode())
    assert token is not None
    assert (token.name, token.role) == ("ci", Role.INGESTER)
    for again in (boss.get(TOKENS), boss.get(f"{TOKENS}{token.id}/change/")):
        assert plain not in text_of(again)
        assert models.ApiToken.objects.get().digest not in text_of(again)
    twice = text_of(boss.post(f"{TOKENS}add/", {"name": "ci", "role": "ingester"}))
    assert "there is, or was, a token named ci" in twice
    assert "required" in text_of(boss.post(f"{TOKENS}add/", {"name": "", "role": "ingester"}))


def test_a_token_is_revoked(boss: Client) -> None:
    plain = tokens.create("ci", Role.VIEWER, at=datetime.now(UTC))
    do(boss, TOKENS, "revoke", models.ApiToken.objects.get().pk)
    token = found_tokens.find(plain.encode())
    assert token is not None
    assert token.is_revoked


# --- the audit ---


def test_the_audit_says_that_the_books_agree(team: None, boss: Client) -> None:
    assert "Run the audit" in text_of(boss.get(AUDIT))
    page = text_of(boss.post(AUDIT))
    assert "The books agree" in page
    assert "Repair" not in page


def test_a_repair_is_shown_before_it_is_made(team: None, boss: Client) -> None:
    models.Device.objects.filter(uuid="GPU-a").update(memory_mib_used=5)
    assert "The books disagree" in text_of(boss.post(AUDIT))
    asked = text_of(boss.post(REPAIR))
    assert "n1/GPU-a" in asked
    assert used()[0] == 5
    shown = asked[asked.index('name="confirm" value="') + 22 :].partition('"')[0]
    models.Device.objects.filter(uuid="GPU-a").update(memory_mib_used=6)
    moved = text_of(boss.post(REPAIR, {"confirm": shown}))
    assert "the books have moved" in moved
    assert used()[0] == 6
    shown = moved[moved.index('name="confirm" value="') + 22 :].partition('"')[0]
    done = text_of(boss.post(REPAIR, {"confirm": shown}))
    assert "1 place was put right" in done
    assert used()[0] == 6000
    assert books_agree()
    assert models.LedgerEntry.objects.filter(rule=Rule.REPAIRED).count() == 1
    assert LogEntry.objects.get().change_message == "repaired 1 place"


# --- who may ---


@pytest.mark.parametrize(
    ("where", "action", "permissions"),
    [
        (EVENTS, "replay", ["change_event"]),
        (EVENTS, "dismiss", ["change_event"]),
        (HOLDS, "release", ["change_reservation"]),
        (TOKENS, "revoke", ["change_apitoken"]),
        (PODS, "delete_selected", ["delete_pod"]),
    ],
)
def test_actions_need_the_models_permission(
    db: None, sign_in: Callable[..., Client], where: str, action: str, permissions: Sequence[str]
) -> None:
    model = where.split("/")[3]
    seeing = f"view_{model}"
    offered = f'value="{action}"'
    tokens.create("ci", Role.VIEWER, at=datetime.now(UTC))
    now = datetime.now(UTC)
    models.Pod.objects.create(
        uid="u", namespace="a", name="b", state="ended", rule="deleted", resource_version=1, changed_at=now
    )
    models.Event.objects.create(
        received_at=now, kind="Pod", type="ADDED", name="b", resource_version=1, history=1, state="refused"
    )
    models.Reservation.objects.create(
        pod_uid="u",
        namespace="a",
        name="b",
        node="n",
        state="held",
        created_at=now,
        expires_at=now,
        changed_at=now,
    )
    assert offered in text_of(sign_in(seeing, *permissions).get(where))
    onlooker = sign_in(seeing)
    assert offered not in text_of(onlooker.get(where))
    before = row_of(model)
    do(onlooker, where, action, before.pk, post="yes")
    after = row_of(model)
    assert [getattr(after, field.name) for field in after._meta.fields] == [
        getattr(before, field.name) for field in before._meta.fields
    ]
    assert not LogEntry.objects.exists()


def row_of(model: str) -> Any:
    named = {
        "event": models.Event,
        "reservation": models.Reservation,
        "apitoken": models.ApiToken,
        "pod": models.Pod,
    }
    return named[model]._default_manager.get()


def test_the_audit_is_for_those_who_see_the_ledger(db: None, sign_in: Callable[..., Client]) -> None:
    assert sign_in("view_pod").post(AUDIT).status_code == 403
    reader = sign_in("view_ledgerentry")
    assert reader.post(AUDIT).status_code == 200
    assert reader.post(REPAIR, {"confirm": "x"}).status_code == 403
    assert reader.post(f"{TOKENS}add/", {"name": "mine", "role": "operator"}).status_code == 403
    assert sign_in("view_ledgerentry", "change_ledgerentry").post(REPAIR).status_code == 200


def test_a_form_from_elsewhere_is_refused(refused: int, boss: Client) -> None:
    foreign = Client(enforce_csrf_checks=True)
    foreign.cookies = boss.cookies
    assert do(foreign, EVENTS, "dismiss", refused).status_code == 403
    assert models.Event.objects.get(pk=refused).state == EventState.REFUSED

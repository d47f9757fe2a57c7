"""The admin, tried by those who may not: every path, every method, every action, and forms from elsewhere."""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone

from hamiacct import models
from hamiacct.accounting.words import Role
from hamiacct.admin import shown
from hamiacct.operations import inbox, tokens
from tests import watch
from tests.api.test_who_may_call import routes
from tests.hostile.chance import some
from tests.hostile.conftest import Caller, books
from tests.hostile.mutations import VALUES

pytestmark = pytest.mark.django_db

OURS = sorted(
    str(model._meta.model_name) for model in admin.site._registry if model._meta.app_label == "hamiacct"
)
PATHS = sorted({path for path, _ in routes() if path.startswith("admin/")})
ACTIONS = ("replay", "dismiss", "release", "revoke", "delete_selected")
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH")


@pytest.fixture
def filled(caller: Caller) -> dict[str, Any]:
    """One row of all that may be acted on; its key, by model."""
    now = timezone.now()
    tokens.create("ci", Role.VIEWER, at=now)
    events = watch.events(
        watch.node("n1", watch.card("GPU-a")), watch.pod("web", "GPU-a 100 1"), watch.quota("gpu")
    )
    assert caller.api.post("/api/v1/events", events, format="json").status_code == 200
    broken = watch.pod("broken", "GPU-a 1 1")
    broken["spec"]["containers"] = [{"image": "no name"}]
    inbox.receive([watch.event(broken)], at=now)
    inbox.drain(at=now)
    keys = {}
    for model in admin.site._registry:
        if model._meta.app_label == "hamiacct":
            row = model._default_manager.order_by("pk").first()
            keys[str(model._meta.model_name)] = None if row is None else row.pk
    return keys


def somebody(
    name: str, *permissions: str, is_staff: bool = True, is_superuser: bool = False, **more: Any
) -> Client:
    user = User.objects.create_user(name, is_staff=is_staff, is_superuser=is_superuser)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client(raise_request_exception=False, **more)
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return client


def state(keys: dict[str, Any]) -> str:
    return books() + repr(sorted(tokens.models.ApiToken.objects.values_list("pk", "revoked_at", "role")))


def attacks(keys: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Forms that would change something, if they were taken."""
    found: list[tuple[str, dict[str, Any]]] = []
    for model in OURS:
        where = shown.list_address(model)
        key = keys[model]
        for action in ACTIONS:
            found.append((where, {"action": action, "_selected_action": [key], "post": "yes", "index": 0}))
        if key is not None:
            address = shown.address(model, key)
            found.append((address, {"name": "x", "_save": "Save"}))
            found.append((address.removesuffix("change/") + "delete/", {"post": "yes"}))
        found.append((f"{where}add/", {"name": "mine", "role": "operator", "_save": "Save"}))
    found.append(("/admin/hamiacct/ledgerentry/audit/", {}))
    found.append(("/admin/hamiacct/ledgerentry/audit/repair/", {"confirm": "x"}))
    found.append(
        (
            "/admin/auth/user/add/",
            {"username": "eve", "password1": "a-Long-1-Word", "password2": "a-Long-1-Word"},
        )
    )
    return found


def test_who_may_only_look_changes_nothing(filled: dict[str, Any]) -> None:
    onlookers = {
        "stranger": Client(raise_request_exception=False),
        "no staff": somebody("no staff", is_staff=False),
        "no permission": somebody("no permission"),
        "sees all": somebody("sees all", *(f"view_{model}" for model in OURS)),
        "sees and changes another": somebody("another", "view_finding", "change_finding", "delete_finding"),
    }
    before, users = state(filled), User.objects.count()
    for name, client in onlookers.items():
        for where, form in some(attacks(filled), 15, name):
            answer = client.post(where, form)
            assert answer.status_code in (200, 302, 403, 404, 405), (name, where, form, answer.status_code)
        assert state(filled) == before, name
    assert User.objects.count() == users


def test_a_form_of_another_site_is_taken_nowhere(filled: dict[str, Any]) -> None:
    boss = somebody("boss", is_superuser=True, enforce_csrf_checks=True)
    before, users = state(filled), User.objects.count()
    for where, form in some(attacks(filled), 40, "forms"):
        assert boss.post(where, form).status_code in (403, 404), where
        forged = boss.post(
            where, {**form, "csrfmiddlewaretoken": "a" * 64}, HTTP_ORIGIN="http://evil.example"
        )
        assert forged.status_code in (403, 404), where
    assert (state(filled), User.objects.count()) == (before, users)


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("localhost", "http://localhost", 200),
        ("localhost:8443", "https://localhost:8443", 200),
        ("localhost", "https://localhost", 200),
        ("localhost:8443", "https://localhost:9443", 403),
        ("localhost", "https://localhost:8443", 403),
        ("localhost:8443", "https://localhost:8443.evil.example", 403),
        ("localhost:8443", "null", 403),
    ],
)
def test_a_form_from_the_very_place_is_taken_wherever_tls_is_ended(
    db: None, host: str, origin: str, status: int
) -> None:
    client = Client(enforce_csrf_checks=True, headers={"host": host, "origin": origin})
    client.get("/admin/login/")
    form = {"username": "nobody", "password": "x", "csrfmiddlewaretoken": client.cookies["csrftoken"].value}
    assert client.post("/admin/login/", form).status_code == status


def test_every_page_with_every_method_is_no_fault_of_ours(filled: dict[str, Any]) -> None:
    boss = somebody("boss", is_superuser=True)
    for path in some([path for path in PATHS if path != "admin/logout/"], 10, "pages"):
        for method in METHODS:
            answer = boss.generic(method, "/" + path.replace("{", "").replace("}", ""))
            assert answer.status_code < 500, (method, path)


def test_who_sees_one_model_sees_no_other(filled: dict[str, Any]) -> None:
    for model in some(OURS, 2, "models"):
        client = somebody(f"sees {model}", f"view_{model}")
        for other in OURS:
            opened = client.get(shown.list_address(other)).status_code
            assert opened == (200 if other == model else 403), (model, other)
            if filled[other] is not None:
                opened = client.get(shown.address(other, filled[other])).status_code
                assert opened == (200 if other == model else 403), (model, other)


NAMES = (
    *(one for one in VALUES if isinstance(one, str) and one and "\0" not in one and len(one) < 254),
    "a\r\nSet-Cookie: a=b",
    "a\u2028b\u2029c\x85d",
    "/",
    "a/../../b",
    "_0A_2F",
    "?a=b&c#d",
    '"><img src=x onerror=alert(1)>',
    "%0a%00",
    "\x7f\x01\x1f",
    "add",
)


def test_an_object_of_any_name_has_its_pages(caller: Caller) -> None:
    """Kubernetes lets nobody choose such names; an API that is not quite Kubernetes' may."""
    names = [*some(NAMES, 3, "names"), "a\nb", "/"]
    made = []
    for number, name in enumerate(names):
        made += [
            watch.node(name, watch.card(f"GPU-{number}"), watch.card(f"GPU-{number}{name}")),
            watch.pod(name, f"GPU-{number} 1 1", node=name, namespace=name, uid=f"u{name}"),
            watch.quota(name, namespace=name, hard={"limits.nvidia.com/gpumem": "1"}),
        ]
    answer = caller.api.post("/api/v1/events", watch.events(*made), format="json").json()
    assert sum(one["outcome"] == "applied" for one in answer["results"]) > 2 * len(names)
    boss = somebody("boss", is_superuser=True)
    for model in (models.Node, models.Device, models.Pod, models.ResourceQuota, models.UsageEntry):
        name = str(model._meta.model_name)
        for term in some(names, 2, name):
            assert boss.get(shown.list_address(name), {"q": term}).status_code in (200, 302), (name, term)
        for row in model._default_manager.order_by("pk"):
            page = boss.get(shown.address(name, row.pk))
            assert page.status_code == 200, (name, row.pk, page.status_code)
            assert b"<script>alert" not in page.content
            assert b"<img src=x" not in page.content
            assert not re.search(rb"[\r\n]Set-Cookie: a=b", page.serialize_headers())


def test_every_name_is_found_by_the_interface(caller: Caller, sound: Callable[[], None]) -> None:
    """What a path may hold is read as it was written, `/` and line ends included."""
    made = [watch.node(name, watch.card("GPU-a")) for name in NAMES]
    answer = caller.api.post("/api/v1/events", watch.events(*made), format="json").json()
    taken = {NAMES[one["index"]] for one in answer["results"] if one["outcome"] == "applied"}
    assert len(taken) > len(NAMES) / 2
    for name in taken:
        found = caller.get(f"/api/v1/nodes/{quote(name, safe='')}")
        assert (found.status, found.body.get("name")) == (200, name), name

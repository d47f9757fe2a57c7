"""Every path of the service, every role, every method, and those who are nobody."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import URLResolver
from django.urls.resolvers import RoutePattern
from rest_framework.test import APIClient

from hamiacct import models
from hamiacct import urls as site
from hamiacct.accounting.words import Role
from hamiacct.operations import tokens
from tests import watch
from tests.conftest import client_with

pytestmark = pytest.mark.django_db

V, S, I, O = Role.VIEWER, Role.SCHEDULER, Role.INGESTER, Role.OPERATOR  # noqa: E741  # columns of a table
ANYBODY = None

# Who may call what, written down a second time on purpose.
MAY_CALL: dict[tuple[str, str], set[Role] | None] = {
    ("GET", "livez"): ANYBODY,
    ("GET", "readyz"): ANYBODY,
    ("GET", "metrics"): {V, S, O},
    ("GET", "problems/{name}"): ANYBODY,
    ("GET", "api/v1/schema"): {V, S, O},
    ("GET", "api/v1/docs"): {V, S, O},
    ("POST", "api/v1/events"): {I, O},
    ("POST", "api/v1/snapshots"): {I, O},
    ("GET", "api/v1/cluster"): {V, S, O},
    ("GET", "api/v1/nodes"): {V, S, O},
    ("GET", "api/v1/nodes/{node}"): {V, S, O},
    ("GET", "api/v1/nodes/{node}/devices/{uuid}"): {V, S, O},
    ("GET", "api/v1/devices"): {V, S, O},
    ("GET", "api/v1/pods"): {V, S, O},
    ("GET", "api/v1/pods/{uid}"): {V, S, O},
    ("GET", "api/v1/pods/{uid}/explain"): {V, S, O},
    ("GET", "api/v1/namespaces/{namespace}/quota"): {V, S, O},
    ("GET", "api/v1/findings"): {V, S, O},
    ("GET", "api/v1/decisions"): {V, S, O},
    ("GET", "api/v1/ledger"): {V, S, O},
    ("GET", "api/v1/audit"): {V, S, O},
    ("GET", "api/v1/compare"): {V, S, O},
    ("POST", "api/v1/audit/repair"): {O},
    ("POST", "api/v1/explain"): {V, S, O},
    ("POST", "api/v1/quota/check"): {S, O},
    ("POST", "api/v1/fit"): {S, O},
    ("POST", "api/v1/capacity"): {S, O},
    ("POST", "api/v1/reservations"): {S, O},
    ("GET", "api/v1/reservations/{pod_uid}"): {V, S, O},
    ("DELETE", "api/v1/reservations/{pod_uid}"): {S, O},
    ("POST", "api/v1/reservations/{pod_uid}/bound"): {S, O},
    ("POST", "extender/bind"): {S, O},
    ("POST", "extender/filter"): {S, O},
    ("POST", "extender/prioritize"): {S, O},
    ("POST", "webhook"): {S, O},
    ("POST", "webhook/validate"): {S, O},
    ("POST", "webhook/{token}"): {S, O},
    ("POST", "webhook/validate/{token}"): {S, O},
}


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
# Methods that no view has are asked by some.
RARE_METHODS, THEIR_CALLERS = ("HEAD", "PUT", "PATCH", "OPTIONS"), ("nobody", "viewer", "operator")
NEVER_VALID = ("nobody", "an unknown token", "a revoked token", "an expired token", "a session")
PASSWORDLESS_ADMIN = ("admin/login/", "admin/logout/")


def routes(patterns: Iterable[Any] = site.urlpatterns, before: str = "") -> Iterator[tuple[str, Any]]:
    """Every path of the whole service, with a word in the place of each of its parameters; and its view."""
    for pattern in patterns:
        path = before + plain(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from routes(pattern.url_patterns, path)
        else:
            yield path, pattern.callback


def plain(pattern: Any) -> str:
    """The path of a pattern; a parameter is its own name, or a number where only numbers will do."""
    if isinstance(pattern, RoutePattern):
        numbered = re.sub(r"<int:\w+>", "1", str(pattern))
        return re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", numbered)
    text = re.sub(r"\(\?P<url>\.\*\)", "{url}", str(pattern)).removeprefix("^").removesuffix("$")
    return re.sub(r"\(\?P<\w+>([\w|]+)\)", lambda found: found[1].partition("|")[0], text)


def calls() -> Iterator[tuple[str, str]]:
    """Every method of every path but the admin's."""
    for path, callback in routes():
        if path.startswith("admin/"):
            continue
        view = callback.view_class
        for method in METHODS:
            if (
                method != "HEAD"
                and hasattr(view, method.lower())
                and method.lower() in view.http_method_names
            ):
                yield method, path


PATHS = sorted({path for _, path in MAY_CALL})
ADMIN_PATHS = sorted({path for path, _ in routes() if path.startswith("admin/")})


def test_the_table_names_every_call() -> None:
    assert sorted(calls()) == sorted(MAY_CALL)


def called(client: Client, method: str, path: str) -> Any:
    return client.generic(method, "/" + path.replace("{", "").replace("}", ""))


@pytest.fixture
def callers() -> dict[str, Client]:
    """Everybody who may try."""
    now = datetime.now(UTC)
    yesterday = now - timedelta(days=1)
    revoked = tokens.create("revoked", Role.OPERATOR, at=now)
    tokens.revoke("revoked", at=now)
    expired = tokens.create("expired", Role.OPERATOR, at=yesterday, expires_at=yesterday + timedelta(hours=1))
    session = APIClient()
    session.force_login(User.objects.create(username="root", is_staff=True, is_superuser=True))
    return {
        "nobody": APIClient(),
        "an unknown token": client_with("unheard-of"),
        "a revoked token": client_with(revoked),
        "an expired token": client_with(expired),
        "a session": session,
        **{role.value: client_with(tokens.create(role.value, role, at=now)) for role in Role},
    }


@pytest.fixture
def objects(api: APIClient) -> None:
    """What the paths of objects name is there, so that no 404 stands in for a refusal."""
    for made in (watch.node("node", watch.card("uuid")), watch.pod("x", "uuid 1 0", node="node", uid="uid")):
        assert api.post("/api/v1/events", watch.events(made)).status_code == 200
    api.post("/api/v1/snapshots?complete=1")
    limits = {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "100"}}
    held = {
        "kind": "Pod",
        "metadata": {"name": "y", "namespace": "namespace", "uid": "pod_uid"},
        "spec": {"containers": [{"name": "main", "resources": limits}]},
    }
    assert api.post("/api/v1/reservations", {"pod": held}).status_code == 201


def expected(path: str, method: str, caller: str) -> set[int] | None:
    """The statuses that a call may be answered with; None: any, but those that turn somebody away."""
    asked = "GET" if method == "HEAD" else method
    is_open = ("GET", path) in MAY_CALL and MAY_CALL["GET", path] is ANYBODY
    session_reads = caller == "a session" and path in ("api/v1/docs", "api/v1/schema")
    if not is_open and caller in NEVER_VALID and not session_reads:
        return {401}
    if (asked, path) not in MAY_CALL:
        return {405}
    allowed = MAY_CALL[asked, path]
    if allowed is ANYBODY or session_reads or Role(caller) in allowed:
        return None
    return {403}


def fault(response: Any, method: str, statuses: set[int] | None) -> str:
    """What is wrong with an answer; "" where nothing is."""
    status = response.status_code
    if statuses is None:
        return "" if status < 500 and status not in (401, 403, 405) else f"{status}"
    if status not in statuses:
        return f"{status} instead of {statuses}"
    types = {401: "unauthenticated", 403: "forbidden", 405: "method-not-allowed"}
    if method != "HEAD" and response.json()["type"] != f"/problems/{types[status]}":
        return response.content.decode()
    return "" if status != 401 or "Bearer" in response.headers["WWW-Authenticate"] else "no challenge"


def test_everybody_on_every_path_with_every_method(callers: dict[str, Client], objects: None) -> None:
    faults = [
        (caller, method, path, found)
        for path in PATHS
        for caller, client in callers.items()
        for method in METHODS
        if method not in RARE_METHODS or caller in THEIR_CALLERS
        if (found := fault(called(client, method, path), method, expected(path, method, caller)))
    ]
    assert faults == []


def test_the_admin_has_pages_of_objects() -> None:
    assert any("{object_id}/change/" in path for path in ADMIN_PATHS)
    assert len(ADMIN_PATHS) > 20


def test_the_admin_shows_its_login_page_to_whoever_is_not_of_the_staff(callers: dict[str, Client]) -> None:
    stranger, former = APIClient(), APIClient()
    stranger.force_login(User.objects.create(username="stranger"))
    former.force_login(User.objects.create(username="former", is_staff=True, is_superuser=True))
    User.objects.filter(username="former").update(is_active=False)
    outsiders = {name: callers[name] for name in ("nobody", "operator")}
    for name, client in {**outsiders, "no staff": stranger, "no longer active": former}.items():
        for path in set(ADMIN_PATHS) - set(PASSWORDLESS_ADMIN):
            for method in ("GET", "POST") if name == "no staff" else ("GET",):
                response = called(client, method, path)
                said = (name, method, path, response.status_code)
                assert response.status_code == 302, said
                assert response.headers["Location"].startswith("/admin/login/"), said
        assert called(client, "GET", "admin/login/").status_code == 200
        assert called(client, "POST", "admin/logout/").status_code == 302


def test_the_staff_sees_nothing_of_a_model_without_permission() -> None:
    client = APIClient()
    client.force_login(User.objects.create(username="clerk", is_staff=True))
    for path in ADMIN_PATHS:
        if re.match(r"admin/(hamiacct|auth)/", path) and path.count("/") > 2:
            response = called(client, "GET", path)
            # Django sends away from an object that is not there before it asks for permissions.
            assert response.status_code in (302, 403, 404, 405), (path, response.status_code)


def status_with(token: str) -> int:
    return int(client_with(token).get("/api/v1/pods").status_code)


def test_the_bootstrap_token_is_an_operators(api: APIClient) -> None:
    assert api.post("/api/v1/audit/repair").status_code == 200


def test_without_a_bootstrap_token_an_empty_one_is_nobodys(settings: Any) -> None:
    settings.HAMIACCT = replace(settings.HAMIACCT, bootstrap_token="")
    assert status_with("") == 401


@pytest.mark.parametrize(
    "token", ["unheard-of", "é", "\udcff".encode("utf-8", "surrogateescape").decode("latin-1")]
)
def test_a_token_nobody_has_is_no_token(token: str) -> None:
    assert status_with(token) == 401


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic dTpw", "token"])
def test_a_header_that_is_no_bearer_token_is_told_so(header: str) -> None:
    response = APIClient().get("/api/v1/pods", HTTP_AUTHORIZATION=header)
    assert response.status_code == 401


def test_the_scheme_is_read_in_any_case(api: APIClient) -> None:
    token = tokens.create("viewer", Role.VIEWER, at=datetime.now(UTC))
    assert APIClient().get("/api/v1/pods", HTTP_AUTHORIZATION=f"bEARER  {token}").status_code == 200


def test_a_revoked_token_is_refused() -> None:
    token = tokens.create("viewer", Role.VIEWER, at=datetime.now(UTC))
    assert status_with(token) == 200
    tokens.revoke("viewer", at=datetime.now(UTC))
    assert status_with(token) == 401


def test_an_expired_token_is_refused() -> None:
    yesterday = datetime.now(UTC) - timedelta(days=1)
    token = tokens.create("viewer", Role.VIEWER, at=yesterday, expires_at=yesterday + timedelta(hours=1))
    assert status_with(token) == 401


def test_a_tokens_last_use_is_written_at_most_once_a_minute() -> None:
    token = tokens.create("viewer", Role.VIEWER, at=datetime.now(UTC))
    status_with(token)
    first = models.ApiToken.objects.get().last_used_at
    assert first is not None
    status_with(token)
    assert models.ApiToken.objects.get().last_used_at == first
    models.ApiToken.objects.update(last_used_at=first - timedelta(minutes=2))
    status_with(token)
    assert models.ApiToken.objects.get().last_used_at > first


@pytest.mark.parametrize(("is_staff", "status"), [(True, 200), (False, 401)])
def test_the_pages_that_describe_the_interface_open_for_the_staff(is_staff: bool, status: int) -> None:
    client = APIClient()
    client.force_login(User.objects.create(username="somebody", is_staff=is_staff))
    assert client.get("/api/v1/docs").status_code == status
    assert client.get("/api/v1/schema").status_code == status
    assert client.get("/api/v1/pods").status_code == 401

"""Every path, every role, and nobody."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from api import urls
from hamiacct import models
from hamiacct.accounting.words import Role
from hamiacct.operations import tokens
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


def calls() -> Iterator[tuple[str, str]]:
    """Every method of every path."""
    for pattern in urls.urlpatterns:
        view = pattern.callback.view_class
        path = re.sub(r"<\w+:(\w+)>", r"{\1}", pattern.pattern._route)
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            if hasattr(view, method.lower()) and method.lower() in view.http_method_names:
                yield method, path


def test_the_table_names_every_call() -> None:
    assert sorted(calls()) == sorted(MAY_CALL)


def called(client: APIClient, method: str, path: str) -> Any:
    return getattr(client, method.lower())("/" + path.replace("{", "").replace("}", ""))


@pytest.mark.parametrize(("method", "path"), MAY_CALL)
def test_nobody_is_told_to_bring_a_token(method: str, path: str) -> None:
    response = called(APIClient(), method, path)
    if MAY_CALL[method, path] is ANYBODY:
        assert response.status_code in (200, 404)
    else:
        assert response.status_code == 401
        assert response.headers["WWW-Authenticate"].startswith("Bearer")
        assert response.json()["type"] == "/problems/unauthenticated"


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize(("method", "path"), MAY_CALL)
def test_a_role_may_call_what_the_table_says(
    method: str, path: str, role: Role, api_as: Callable[[Role], APIClient]
) -> None:
    response = called(api_as(role), method, path)
    allowed = MAY_CALL[method, path]
    if allowed is ANYBODY or role in allowed:
        assert response.status_code < 500
        assert response.status_code not in (401, 403)
    else:
        assert response.status_code == 403
        assert response.json()["type"] == "/problems/forbidden"


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

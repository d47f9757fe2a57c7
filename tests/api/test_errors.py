"""Whatever goes wrong, the answer is a problem document."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import OperationalError, connection
from rest_framework import exceptions, serializers
from rest_framework.test import APIClient

from api import errors, nodes, problems
from api.errors import Fault
from devservers.pytest_plugin import OPERATOR_TOKEN
from hamiacct.accounting import errors as accounting
from tests.conftest import client_with

pytestmark = pytest.mark.django_db


def assert_problem(response: Any, problem: problems.Problem) -> dict[str, Any]:
    assert response.status_code == problem.status
    assert response.headers["Content-Type"] == problems.MEDIA_TYPE
    body: dict[str, Any] = response.json()
    assert (body["type"], body["title"], body["status"]) == (problem.type, problem.title, problem.status)
    assert body["detail"]
    assert body["instance"] == response.request["PATH_INFO"]
    assert body["request_id"] == response.headers["X-Request-ID"]
    return body


@pytest.mark.parametrize(
    "path", ["/", "/nowhere", "/api/v1", "/api/v1/pods/", "/api/v1/no/such", "/problems/unheard"]
)
def test_an_unknown_path(api: APIClient, path: str) -> None:
    assert_problem(api.get(path), problems.NOT_FOUND)


@pytest.mark.parametrize("path", ["/api/v1/pods/%00", "/api/v1/nodes/a%00b", "/api/v1/namespaces/%00/quota"])
def test_a_path_that_no_database_can_hold(api: APIClient, path: str) -> None:
    assert_problem(api.get(path), problems.NOT_FOUND)


@pytest.mark.parametrize("method", ["put", "patch", "delete", "options", "trace"])
def test_an_unknown_method(api: APIClient, method: str) -> None:
    response = (
        getattr(api, method)("/api/v1/pods") if method != "trace" else api.generic("TRACE", "/api/v1/pods")
    )
    assert_problem(response, problems.METHOD_NOT_ALLOWED)
    assert response.headers["Allow"] == "GET, HEAD"


def test_a_head_is_a_get_without_its_body(api: APIClient) -> None:
    response = api.head("/api/v1/pods")
    assert response.status_code == 200
    assert not response.content


def test_a_foreign_host_name(api: APIClient) -> None:
    assert_problem(api.get("/api/v1/pods", HTTP_HOST="elsewhere.example"), problems.MALFORMED)


def test_what_a_client_accepts_is_not_asked(api: APIClient) -> None:
    response = api.get("/api/v1/pods", HTTP_ACCEPT="text/html")
    assert response.headers["Content-Type"] == "application/json"


def test_a_callers_request_id_comes_back(api: APIClient) -> None:
    assert api.get("/nowhere", HTTP_X_REQUEST_ID="mine-1").json()["request_id"] == "mine-1"


@pytest.fixture
def lost_database() -> Iterator[None]:
    """Every query fails as it does when the server went away."""

    def fail(*_: Any) -> Any:
        raise OperationalError("server closed the connection unexpectedly")

    with connection.execute_wrapper(fail):
        yield


@pytest.mark.parametrize("token", [OPERATOR_TOKEN, "one that the database would have to be asked about"])
def test_a_database_that_went_away(lost_database: None, token: str) -> None:
    response = client_with(token).get("/api/v1/pods")
    assert_problem(response, problems.UNAVAILABLE)
    assert int(response.headers["Retry-After"]) > 0


def test_a_bug_is_a_problem_too(api: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "node_shape", lambda found: 1 / 0)
    monkeypatch.setattr(nodes.usage, "node", lambda name: None)
    response = api.get("/api/v1/nodes/n1")
    assert_problem(response, problems.INTERNAL_ERROR)


def children_of(error: type[BaseException]) -> Iterator[type[BaseException]]:
    for child in error.__subclasses__():
        yield child
        yield from children_of(child)


def test_every_error_of_ours_is_some_problem() -> None:
    for error in children_of(accounting.AccountingError):
        assert any(base in errors.TABLE for base in error.__mro__), error


def test_every_error_of_the_framework_is_some_problem() -> None:
    named = {error for error in vars(exceptions).values() if isinstance(error, type)}
    of_requests = {error for error in named if issubclass(error, exceptions.APIException)}
    of_requests -= {exceptions.APIException, exceptions.NotAcceptable}  # never raised here
    assert all(error in errors.TABLE for error in of_requests)


def test_a_serializers_faults_become_pointers() -> None:
    class Inner(serializers.Serializer[Any]):
        count = serializers.IntegerField()

    class Outer(serializers.Serializer[Any]):
        name = serializers.CharField()
        items = Inner(many=True)

    outer = Outer(data={"items": [{"count": 1}, {"count": "x"}]})
    assert not outer.is_valid()
    found = errors._faults(exceptions.ValidationError(outer.errors))
    assert sorted(fault.pointer for fault in found) == ["/items/1/count", "/name"]


def test_a_pointer_escapes_what_separates_its_parts() -> None:
    assert errors.escaped("nvidia.com/gpu~1") == "nvidia.com~1gpu~01"


def test_faults_are_told_with_pointers(api: APIClient) -> None:
    body = assert_problem(api.get("/api/v1/pods?limit=0&where=x"), problems.MALFORMED)
    assert {fault["pointer"] for fault in body["errors"]} == {"/query/limit", "/query/where"}
    assert Fault(**body["errors"][0])


@pytest.mark.parametrize("problem", problems.ALL, ids=lambda problem: problem.name)
def test_every_problem_is_explained_at_its_type(problem: problems.Problem) -> None:
    found = APIClient().get(problem.type).json()
    assert found["status"] == problem.status
    assert found["explanation"]

"""Every answer in these tests is held against the OpenAPI document: neither says what the other does not."""

import dataclasses
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from api import problems
from api.docs import document
from hamiacct.queries import fleet
from tests import watch
from tests.kubeapi.server import ApiServer
from tests.scheduling import World


@pytest.fixture(autouse=True)
def _answers_as_described(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Client.request

    def request(self: Client, **environ: Any) -> Any:
        response = plain(self, **environ)
        match = response.wsgi_request.resolver_match
        undescribed = (problems.METHOD_NOT_ALLOWED.status, problems.INTERNAL_ERROR.status)
        if match is not None and response.status_code not in undescribed:
            check(match.route, response)
        return response

    monkeypatch.setattr(Client, "request", request)


def check(route: str, response: Any) -> None:
    """Fails where the document does not describe this answer, or the answer has more than it describes."""
    path = "/" + route.replace("<text:", "{").replace(">", "}")
    method = (
        "get" if response.request["REQUEST_METHOD"] == "HEAD" else response.request["REQUEST_METHOD"].lower()
    )
    operation = document()["paths"].get(path, {}).get(method)
    if operation is None:
        return
    status = str(response.status_code)
    assert status in operation["responses"], f"{method} {path} is not described to answer {status}"
    content = operation["responses"][status].get("content")
    if content is None:
        assert not response.content, f"{method} {path} is described to answer {status} without a body"
        return
    media_type = response.headers["Content-Type"].partition(";")[0]
    assert media_type in content, f"{method} {path} is not described to answer {status} as {media_type}"
    if response.content and "json" in media_type:
        validator(path, method, status, media_type).validate(json.loads(response.content))


@cache
def validator(path: str, method: str, status: str, media_type: str) -> jsonschema.Draft202012Validator:
    """Knows one answer. OpenAPI's null is JSON Schema's, and nothing undescribed may be added."""
    schemas = strict(document()["components"])
    schema = strict(document()["paths"][path][method]["responses"][status]["content"][media_type]["schema"])
    return jsonschema.Draft202012Validator({**schema, "components": schemas})


def strict(schema: Any) -> Any:
    """The schema in JSON Schema's own words, closed; problem documents alone have members of their own."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: strict(value) for key, value in schema.items()}
    if found.get("type") == "object" and "properties" in found and "request_id" not in found["properties"]:
        found.setdefault("additionalProperties", False)
    if found.pop("nullable", False):
        return {"anyOf": [found, {"type": "null"}]}
    return found


@pytest.fixture
def send(api: APIClient) -> Callable[..., Any]:
    """Sends objects as events of one type, and sees that each is applied; answers what was answered."""

    def send(*objects: Any, type_: str = "ADDED") -> Any:
        response = api.post("/api/v1/events", watch.events(*objects, type_=type_))
        assert response.status_code == 200, response.content
        body = response.json()
        assert not body["rejected"]
        assert {result["outcome"] for result in body["results"]} == {"applied"}, body
        return body

    return send


@pytest.fixture
def listed(api: APIClient) -> Callable[[str], list[Any]]:
    """Every item of a list, page by page of two, which must be the same as in one page."""

    def listed(path: str) -> list[Any]:
        joint = "&" if "?" in path else "?"
        whole = api.get(f"{path}{joint}limit=1000").json()
        assert whole["next"] is None
        items: list[Any] = []
        cursor = ""
        while cursor is not None:
            page = api.get(f"{path}{joint}limit=2&cursor={cursor}").json()
            assert len(page["items"]) <= 2
            items += page["items"]
            cursor = page["next"]
        assert items == whole["items"]
        return items

    return listed


@pytest.fixture
def complete(api: APIClient, db: None) -> None:
    """The books are complete, as when full lists of everything were applied."""
    assert api.post("/api/v1/snapshots?complete=1").status_code == 200


@pytest.fixture
def used(api: APIClient) -> Callable[..., int]:
    """Memory that is held of a card."""

    def used(uuid: str, node: str = "n1") -> int:
        return int(api.get(f"/api/v1/nodes/{node}/devices/{uuid}").json()["memory_mib"]["used"])

    return used


@pytest.fixture
def decisions(api: APIClient) -> Callable[..., list[Any]]:
    """What was refused, newest first."""

    def decisions(filters: str = "") -> list[Any]:
        return list(api.get(f"/api/v1/decisions?{filters}").json()["items"])

    return decisions


@pytest.fixture
def books_agree(api: APIClient) -> Iterator[None]:
    """At the end of the test every book says the same."""
    yield
    assert api.get("/api/v1/audit").json()["discrepancies"] == []


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets the clock that views read so many seconds ahead."""
    real = timezone.now

    def ahead(seconds: int) -> None:
        monkeypatch.setattr(timezone, "now", lambda: real() + timedelta(seconds=seconds))

    return ahead


@pytest.fixture
def cluster() -> Iterator[ApiServer]:
    """An API server of the test's own."""
    with ApiServer() as server:
        yield server


@pytest.fixture
def world(cluster: ApiServer, api: APIClient, db: None, settings: Any, tmp_path: Path) -> Iterator[World]:
    """A cluster of one node with two cards, and the service in scheduler mode."""
    settings.HAMIACCT = dataclasses.replace(
        settings.HAMIACCT,
        scheduler_mode=True,
        kubeconfig=cluster.kubeconfig(tmp_path),
        bind_lock_wait_seconds=0.0,
    )
    fleet.forget()
    world = World(cluster, api)
    world.add_node("n1", watch.card("GPU-a"), watch.card("GPU-b"))
    yield world
    fleet.forget()

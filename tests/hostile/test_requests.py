"""Requests nobody would write, made from the OpenAPI document: every answer is one that it describes.

Each is sent with an operator's token, and by somebody of another role or by nobody, to books that hold
something. Status, media type, headers and body are held against the document; what is asked is drawn from it
too, half of it right and half of it wrong (schemathesis).
"""

import json
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from hypothesis import HealthCheck, seed, settings
from rest_framework.test import APIClient
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from api.docs import document
from devservers.pytest_plugin import OPERATOR_TOKEN
from hamiacct.accounting.words import Role
from hamiacct.operations import tokens
from tests import watch
from tests.hostile import material
from tests.hostile.chance import SEED, examples

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
OTHERS = (Role.VIEWER, Role.SCHEDULER, Role.INGESTER)


@schemathesis.serializer("application/x-ndjson")
def _one_line(_: object, value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"


@pytest.fixture(autouse=True)
def _one_connection(callers: dict[Role, str]) -> Iterator[None]:
    """Between requests Django drops a connection that is inside a transaction, and here every one is.

    Its test client, which filled the books, sees to that by itself, and afterwards has it dropped again.
    """
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.fixture
def callers(api: APIClient, db: None) -> dict[Role, str]:
    """The token of each role; and complete books with a node, a pod and a quota whose names may be drawn."""
    objects = (
        material.a_node("0", *material.VENDORS[:2]),
        watch.pod("0", "NVIDIA-0 10 1", node="0", namespace="0", uid="0"),
        watch.quota("0", namespace="0", hard={"limits.nvidia.com/gpumem": "5"}),
    )
    assert api.post("/api/v1/events", watch.events(*objects), format="json").status_code == 200
    assert api.post("/api/v1/snapshots?complete=1").status_code == 200
    return {role: tokens.create(f"a {role}", role, at=datetime.now(UTC)) for role in OTHERS}


schema = schemathesis.openapi.from_dict(document())
schema.app = get_wsgi_application()


@schema.parametrize()
@seed(SEED)
@settings(
    max_examples=examples(2),
    deadline=None,
    database=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
    ],
)
def test_any_request(callers: dict[Role, str], case: schemathesis.Case) -> None:
    case.call_and_validate(headers={"Authorization": f"Bearer {OPERATOR_TOKEN}"}, checks=CHECKS)
    # The same case has the same caller whenever it is tried, so that it can be made smaller.
    number = zlib.crc32(repr((case.method, case.path, case.query, case.body)).encode()) % (len(OTHERS) + 1)
    case.headers.pop("Authorization", None)
    named = {"Authorization": f"Bearer {callers[OTHERS[number]]}"} if number < len(OTHERS) else {}
    case.call_and_validate(headers=named, checks=CHECKS)

"""Requests nobody would write: whatever comes, the answer is one that the OpenAPI document describes."""

import json
from collections.abc import Iterator

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from api.docs import document
from devservers.pytest_plugin import OPERATOR_TOKEN

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@schemathesis.serializer("application/x-ndjson")
def _one_line(_: object, value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"


@pytest.fixture(autouse=True)
def _one_connection() -> Iterator[None]:
    """Between requests Django drops a connection that is inside a transaction, and here every one is."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


schema = schemathesis.openapi.from_dict(document())
schema.app = get_wsgi_application()


@pytest.mark.django_db
@schema.parametrize()
@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
    ],
)
def test_any_request(case: schemathesis.Case) -> None:
    case.call_and_validate(headers={"Authorization": f"Bearer {OPERATOR_TOKEN}"}, checks=CHECKS)

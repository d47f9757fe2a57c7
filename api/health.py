"""Live, ready, and how far behind."""

from __future__ import annotations

from typing import Any

from django.db import InterfaceError, OperationalError
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api import errors, problems
from api.cluster import BacklogSerializer
from api.endpoint import Endpoint
from api.parameters import Parameter
from hamiacct.queries import health, inbox


class OpenEndpoint(Endpoint):
    """A view for anybody."""

    authentication_classes = ()
    permission_classes = ()
    any_call = frozenset({problems.MALFORMED})


class LiveSerializer(serializers.Serializer[Any]):
    """The process answers."""

    live = serializers.BooleanField()


class DatabaseSerializer(serializers.Serializer[Any]):
    """The database; without it nothing works."""

    ok = serializers.BooleanField()
    missing_migrations = serializers.ListField(child=serializers.CharField())


class BrokerSerializer(serializers.Serializer[Any]):
    """The broker, null where there is none; without it events are applied later, none is lost."""

    ok = serializers.BooleanField(allow_null=True)


class ChecksSerializer(serializers.Serializer[Any]):
    """What was looked at. The database alone decides; the rest is shown, null where it cannot be read."""

    database = DatabaseSerializer()
    broker = BrokerSerializer()
    inbox = BacklogSerializer(allow_null=True)
    complete = serializers.BooleanField(allow_null=True)


class ReadySerializer(serializers.Serializer[Any]):
    """Whether requests can be served."""

    ready = serializers.BooleanField()
    checks = ChecksSerializer(required=False)


class Live(OpenEndpoint):
    """GET /livez"""

    @extend_schema(summary="Whether the process answers", responses=LiveSerializer)
    def get(self, request: Request) -> Response:
        """Asks nothing else: restarting this process mends no other."""
        return Response({"live": True})


class Ready(OpenEndpoint):
    """GET /readyz"""

    parameters = (Parameter("verbose", "Show what was looked at."),)
    problems = frozenset({problems.UNAVAILABLE})

    @extend_schema(summary="Whether requests can be served", responses=ReadySerializer)
    def get(self, request: Request) -> Response:
        """The database and its migrations decide. `?verbose` shows the rest."""
        database = _database()
        checks = {}
        if "verbose" in request.query_params:
            checks["checks"] = {
                "database": database,
                "broker": {"ok": health.broker_answers()},
                **_books(database),
            }
        if database["ok"]:
            return Response({"ready": True, **checks})
        detail = (
            "the database lacks migrations"
            if database["missing_migrations"]
            else "the database does not answer"
        )
        return errors.answer(request._request, problems.UNAVAILABLE, detail, {"ready": False, **checks})


def _database() -> dict[str, Any]:
    try:
        missing = health.missing_migrations()
    except (OperationalError, InterfaceError):
        return {"ok": False, "missing_migrations": []}
    return {"ok": not missing, "missing_migrations": list(missing)}


def _books(database: dict[str, Any]) -> dict[str, Any]:
    if not database["ok"]:
        return {"inbox": None, "complete": None}
    backlog = inbox.backlog(timezone.now())
    return {
        "inbox": {"waiting": backlog.waiting, "lag_seconds": backlog.lag_seconds},
        "complete": inbox.is_complete(),
    }

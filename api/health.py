"""Live, ready, and how far behind."""

from __future__ import annotations

from typing import Any

from django.db import InterfaceError, OperationalError
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api import errors, fields, problems
from api.cluster import BacklogSerializer
from api.endpoint import Endpoint
from api.parameters import Parameter
from hamiacct.accounting.words import Kind, WatchState
from hamiacct.queries import health, inbox, watching


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


class WatchSerializer(serializers.Serializer[Any]):
    """What the watcher does about one kind. `version` is the last one heard of, 0 before the first."""

    kind = fields.word(Kind)
    state = fields.word(WatchState)
    detail = serializers.CharField(allow_blank=True)
    since = serializers.DateTimeField()
    version = serializers.IntegerField()
    heard_at = serializers.DateTimeField(allow_null=True)


class WatcherSerializer(serializers.Serializer[Any]):
    """Who watches the cluster, since when, and whether he still does; "" where he gave up."""

    holder = serializers.CharField(allow_blank=True)
    since = serializers.DateTimeField(allow_null=True)
    alive = serializers.BooleanField()
    cluster_uid = serializers.CharField(allow_blank=True)
    watches = WatchSerializer(many=True)


class ChecksSerializer(serializers.Serializer[Any]):
    """What was looked at. The database alone decides; the rest is shown, null where it cannot be read."""

    database = DatabaseSerializer()
    broker = BrokerSerializer()
    inbox = BacklogSerializer(allow_null=True)
    complete = serializers.BooleanField(allow_null=True)
    watcher = WatcherSerializer(allow_null=True, help_text="null where none has ever run.")


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
        return {"inbox": None, "complete": None, "watcher": None}
    now = timezone.now()
    backlog = inbox.backlog(now)
    return {
        "inbox": {"waiting": backlog.waiting, "lag_seconds": backlog.lag_seconds},
        "complete": inbox.is_complete(),
        "watcher": _watcher_shape(watching.watcher(now)),
    }


def _watcher_shape(watcher: watching.Watcher | None) -> dict[str, Any] | None:
    if watcher is None:
        return None
    return {
        "holder": watcher.holder,
        "since": watcher.since,
        "alive": watcher.is_alive,
        "cluster_uid": watcher.cluster_uid,
        "watches": [
            {
                "kind": one.kind,
                "state": one.state,
                "detail": one.detail,
                "since": one.since,
                "version": one.version,
                "heard_at": one.heard_at,
            }
            for one in watcher.watches
        ],
    }

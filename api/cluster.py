"""The cluster in one answer."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api import fields
from api.endpoint import Endpoint
from hamiacct.accounting.words import PodState
from hamiacct.queries import inbox, usage


class DeviceCountsSerializer(serializers.Serializer[Any]):
    """How many devices there are; healthy and cordoned ones are counted among the registered."""

    registered = serializers.IntegerField()
    unregistered = serializers.IntegerField()
    healthy = serializers.IntegerField()
    cordoned = serializers.IntegerField()


class ByStateSerializer(serializers.Serializer[Any]):
    """How many pods are in each state."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """One count a state."""
        return {state.value: serializers.IntegerField() for state in PodState}


class PodCountsSerializer(serializers.Serializer[Any]):
    """How many pods there are."""

    by_state = ByStateSerializer()


class BacklogSerializer(serializers.Serializer[Any]):
    """What was received and is not applied yet, and how long the oldest of it has waited."""

    waiting = serializers.IntegerField()
    lag_seconds = serializers.FloatField()


class ClusterSerializer(serializers.Serializer[Any]):
    """The cluster. Rooms are those of registered devices; what is free is free on some card."""

    nodes = serializers.IntegerField()
    devices = DeviceCountsSerializer()
    slots = fields.RoomSerializer()
    memory_mib = fields.RoomSerializer()
    cores = fields.RoomSerializer()
    pods = PodCountsSerializer()
    complete = serializers.BooleanField(help_text="Whether full lists of all kinds were applied.")
    as_of = serializers.DateTimeField()
    inbox = BacklogSerializer()


class Cluster(Endpoint):
    """GET /api/v1/cluster"""

    @extend_schema(summary="The cluster in one answer", responses=ClusterSerializer)
    def get(self, request: Request) -> Response:
        """Totals, and how far the books can be trusted: whether complete, and how far behind."""
        now = timezone.now()
        backlog = inbox.backlog(now)
        found = usage.cluster()
        return Response(
            {
                "nodes": found.nodes,
                "devices": {
                    "registered": found.registered,
                    "unregistered": found.unregistered,
                    "healthy": found.healthy,
                    "cordoned": found.cordoned,
                },
                "slots": fields.room(found.slots),
                "memory_mib": fields.room(found.memory_mib),
                "cores": fields.room(found.cores),
                "pods": {"by_state": dict(found.pods_by_state)},
                "complete": inbox.is_complete(),
                "as_of": now,
                "inbox": {"waiting": backlog.waiting, "lag_seconds": backlog.lag_seconds},
            }
        )

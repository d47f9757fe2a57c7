"""Nodes, and devices with their room."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api import fields, pages, problems
from api.endpoint import Endpoint
from api.findings import FINDING, NoteSerializer, note_shapes
from api.parameters import Flag, Parameter
from hamiacct.accounting.words import PodState
from hamiacct.queries import usage

NODE = Parameter("node", "Only on this node.")


class DeviceSerializer(serializers.Serializer[Any]):
    """A device: one card of one node."""

    node = serializers.CharField()
    uuid = serializers.CharField()
    index = serializers.IntegerField()
    vendor = serializers.CharField()
    model = serializers.CharField(allow_blank=True)
    numa = serializers.IntegerField()
    mode = serializers.CharField(allow_blank=True)
    healthy = serializers.BooleanField()
    cordoned = serializers.BooleanField()
    registered = serializers.BooleanField(help_text="Whether its node registers it now.")
    slots = fields.RoomSerializer()
    memory_mib = fields.RoomSerializer()
    cores = fields.RoomSerializer(help_text="Percent of the device, or the vendor's unit.")
    findings = NoteSerializer(many=True)


class ShareSerializer(serializers.Serializer[Any]):
    """What one pod holds of a device."""

    uid = serializers.CharField()
    namespace = serializers.CharField()
    name = serializers.CharField()
    state = fields.word(PodState)
    slots = serializers.IntegerField()
    memory_mib = serializers.IntegerField()
    cores = serializers.IntegerField()


class DeviceWithPodsSerializer(DeviceSerializer):
    """A device and who holds it."""

    pods = ShareSerializer(many=True)


class NodeSerializer(serializers.Serializer[Any]):
    """A node and its devices."""

    name = serializers.CharField()
    devices = DeviceSerializer(many=True)


def device_shape(found: usage.Device) -> dict[str, Any]:
    """The shape of a device."""
    return {
        "node": found.node,
        "uuid": found.uuid,
        "index": found.index,
        "vendor": found.vendor,
        "model": found.model,
        "numa": found.numa,
        "mode": found.mode,
        "healthy": found.healthy,
        "cordoned": found.cordoned,
        "registered": found.registered,
        "slots": fields.room(found.slots),
        "memory_mib": fields.room(found.memory_mib),
        "cores": fields.room(found.cores),
        "findings": note_shapes(found.findings),
    }


def share_shape(found: usage.Share) -> dict[str, Any]:
    """The shape of one pod's share of a device."""
    return {
        "uid": found.uid,
        "namespace": found.namespace,
        "name": found.name,
        "state": found.state,
        "slots": found.slots,
        "memory_mib": found.memory_mib,
        "cores": found.cores,
    }


def node_shape(found: usage.Node) -> dict[str, Any]:
    """The shape of a node."""
    return {"name": found.name, "devices": [device_shape(one) for one in found.devices]}


class Nodes(Endpoint):
    """GET /api/v1/nodes"""

    parameters = pages.PAGING

    @extend_schema(summary="Every node with its devices", responses=pages.page_of(NodeSerializer, "NodePage"))
    def get(self, request: Request) -> Response:
        """Nodes by name; deleted ones are left out."""
        page = usage.nodes(after=pages.key_of(self.given["cursor"], "nodes"), limit=self.given["limit"])
        return Response(pages.shaped(page, node_shape, "nodes"))


class Node(Endpoint):
    """GET /api/v1/nodes/{node}"""

    problems = frozenset({problems.NOT_FOUND})

    @extend_schema(summary="One node with its devices", responses=NodeSerializer)
    def get(self, request: Request, node: str) -> Response:
        """Also one that is gone, as long as the books hold devices of it."""
        return Response(node_shape(usage.node(node)))


class Devices(Endpoint):
    """GET /api/v1/devices"""

    parameters = (
        NODE,
        Parameter("uuid", "Only this uuid; several nodes may have it."),
        Parameter("vendor", "Only of this vendor key."),
        Flag("registered", "Only devices that their node registers now, or only others."),
        FINDING,
        *pages.PAGING,
    )

    @extend_schema(
        summary="Every device with its room", responses=pages.page_of(DeviceSerializer, "DevicePage")
    )
    def get(self, request: Request) -> Response:
        """Devices by node and uuid."""
        page = usage.devices(
            node=self.given["node"],
            uuid=self.given["uuid"],
            vendor=self.given["vendor"],
            registered=self.given["registered"],
            finding=self.given["finding"],
            after=pages.key_of(self.given["cursor"], "devices"),
            limit=self.given["limit"],
        )
        return Response(pages.shaped(page, device_shape, "devices"))


class Device(Endpoint):
    """GET /api/v1/nodes/{node}/devices/{uuid}"""

    problems = frozenset({problems.NOT_FOUND})

    @extend_schema(summary="One device and the pods that hold it", responses=DeviceWithPodsSerializer)
    def get(self, request: Request, node: str, uuid: str) -> Response:
        """The suffix `[t-p]` of old MIG uuids is ignored."""
        found = usage.device(node, uuid)
        return Response({**device_shape(found), "pods": [share_shape(one) for one in found.shares]})

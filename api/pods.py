"""Pods as charged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api import fields, pages, problems
from api.endpoint import Endpoint
from api.findings import FINDING, NoteSerializer, note_shapes
from api.parameters import Choice, Parameter
from hamiacct.accounting.pods import ContainerClass
from hamiacct.accounting.words import PodState
from hamiacct.queries import usage


class HeldSerializer(serializers.Serializer[Any]):
    """What a pod holds of one device."""

    node = serializers.CharField(allow_blank=True)
    device = serializers.CharField()
    vendor = serializers.CharField()
    slots = serializers.IntegerField()
    memory_mib = serializers.IntegerField()
    cores = serializers.IntegerField()


class PartSerializer(serializers.Serializer[Any]):
    """One device in a container's allocation."""

    uuid = serializers.CharField()
    vendor = serializers.CharField()
    memory_mib = serializers.IntegerField()
    cores = serializers.IntegerField()


class ContainerSerializer(serializers.Serializer[Any]):
    """A container and its allocation; inits come first, as Kubernetes declares them."""

    position = serializers.IntegerField()
    name = serializers.CharField()
    devices = PartSerializer(many=True)

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """The declared fields, and `class`, which Python keeps for itself."""
        return {**super().get_fields(), "class": fields.word(ContainerClass)}


class PodSerializer(serializers.Serializer[Any]):
    """A pod as charged."""

    uid = serializers.CharField()
    namespace = serializers.CharField()
    name = serializers.CharField()
    node = serializers.CharField(
        allow_blank=True, help_text="Where it is bound; while it is not, where it is claimed to go."
    )
    phase = serializers.CharField(allow_blank=True)
    state = fields.word(PodState)
    inits_released = serializers.BooleanField(help_text="Whether the charge has shrunk to the steady usage.")
    usage = HeldSerializer(many=True)
    containers = ContainerSerializer(many=True)
    findings = NoteSerializer(many=True)


def held_shapes(held: Iterable[usage.Held]) -> list[dict[str, Any]]:
    """The shape of what is held."""
    return [
        {
            "node": one.node,
            "device": one.device,
            "vendor": one.vendor,
            "slots": one.slots,
            "memory_mib": one.memory_mib,
            "cores": one.cores,
        }
        for one in held
    ]


def pod_shape(found: usage.Pod) -> dict[str, Any]:
    """The shape of a pod."""
    return {
        "uid": found.uid,
        "namespace": found.namespace,
        "name": found.name,
        "node": found.node,
        "phase": found.phase,
        "state": found.state,
        "inits_released": found.inits_released,
        "usage": held_shapes(found.usage),
        "containers": [_container_shape(container) for container in found.containers],
        "findings": note_shapes(found.findings),
    }


def _container_shape(container: usage.Container) -> dict[str, Any]:
    return {
        "position": container.position,
        "name": container.name,
        "class": container.kind,
        "devices": [
            {"uuid": one.uuid, "vendor": one.vendor, "memory_mib": one.memory_mib, "cores": one.cores}
            for one in container.devices
        ],
    }


class Pods(Endpoint):
    """GET /api/v1/pods"""

    parameters = (
        Parameter("namespace", "Only of this namespace."),
        Parameter("node", "Only bound to this node, or claimed for it."),
        Choice("state", "Only in this state.", PodState),
        FINDING,
        *pages.PAGING,
    )

    @extend_schema(summary="Every pod as charged", responses=pages.page_of(PodSerializer, "PodPage"))
    def get(self, request: Request) -> Response:
        """Pods by uid, ended ones included until they are swept."""
        page = usage.pods(
            namespace=self.given["namespace"],
            node=self.given["node"],
            state=self.given["state"],
            finding=self.given["finding"],
            after=pages.key_of(self.given["cursor"], "pods"),
            limit=self.given["limit"],
        )
        return Response(pages.shaped(page, pod_shape, "pods"))


class Pod(Endpoint):
    """GET /api/v1/pods/{uid}"""

    problems = frozenset({problems.NOT_FOUND})

    @extend_schema(summary="One pod as charged", responses=PodSerializer)
    def get(self, request: Request, uid: str) -> Response:
        """By uid: a name that is used again belongs to another pod."""
        return Response(pod_shape(usage.pod(uid)))

"""Why a pod's charge is what it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api import bodies, fields, problems
from api.auth import VIEWERS
from api.endpoint import OF_BODIES, Endpoint
from api.ledger import LineSerializer, line_shape
from api.pods import HeldSerializer
from hamiacct import config
from hamiacct.accounting import pods
from hamiacct.accounting.errors import Malformed
from hamiacct.accounting.holdings import Held
from hamiacct.accounting.pods import ContainerClass
from hamiacct.accounting.words import Rule
from hamiacct.kube import manifests
from hamiacct.queries import explanations

MAX_BODY_BYTES = 8 * bodies.MIB
UNNAMED = "unnamed"


class StepSerializer(serializers.Serializer[Any]):
    """One container in declaration order: what it uses, and the fold after it."""

    position = serializers.IntegerField()
    name = serializers.CharField()
    usage = HeldSerializer(many=True)
    steady = HeldSerializer(many=True, help_text="What is held for good, after this container.")
    peak = HeldSerializer(many=True, help_text="The worst moment while inits run, after this container.")

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """The declared fields, and `class`, which Python keeps for itself."""
        return {**super().get_fields(), "class": fields.word(ContainerClass)}


class ExplainedPodSerializer(serializers.Serializer[Any]):
    """Which pod is explained."""

    uid = serializers.CharField(allow_blank=True)
    namespace = serializers.CharField(allow_blank=True)
    name = serializers.CharField()


class ExplanationSerializer(serializers.Serializer[Any]):
    """The fold's own intermediate values, what is charged of them, and why."""

    pod = ExplainedPodSerializer()
    steps = StepSerializer(many=True)
    effective = HeldSerializer(many=True)
    steady = HeldSerializer(many=True)
    charged = HeldSerializer(many=True)
    rule = fields.word(Rule, allow_null=True)
    sentence = serializers.CharField(help_text="Why the number is what it is, in one line.")
    ledger = LineSerializer(many=True)


class ManifestExplanationSerializer(ExplanationSerializer):
    """The same for a pod that need not exist."""

    apiserver = serializers.DictField(
        child=serializers.IntegerField(),
        help_text="What the apiserver would charge a ResourceQuota, by `requests.<name>`.",
    )


class ExplainSerializer(serializers.Serializer[Any]):
    """A pod's manifest."""

    pod = serializers.DictField(help_text="A Pod, as Kubernetes writes it.")


def _held(held: Held) -> list[dict[str, Any]]:
    return [
        {
            "node": key.node,
            "device": key.uuid,
            "vendor": key.vendor,
            "slots": amount.slots,
            "memory_mib": amount.memory_mib,
            "cores": amount.cores,
        }
        for key, amount in held.items()
    ]


def _explanation_shape(found: explanations.Explanation) -> dict[str, Any]:
    return {
        "pod": {"uid": found.pod.uid, "namespace": found.pod.namespace, "name": found.pod.name},
        "steps": [
            {
                "position": step.container.position,
                "name": step.container.name,
                "class": step.container.kind,
                "usage": _held(step.usage),
                "steady": _held(step.footprint.steady),
                "peak": _held(step.footprint.peak),
            }
            for step in found.steps
        ],
        "effective": _held(found.effective),
        "steady": _held(found.steady),
        "charged": _held(found.charged),
        "rule": found.rule,
        "sentence": found.sentence,
        "ledger": [line_shape(line) for line in found.ledger],
    }


class PodExplanation(Endpoint):
    """GET /api/v1/pods/{uid}/explain"""

    problems = frozenset({problems.NOT_FOUND})

    @extend_schema(summary="Why a pod's charge is what it is", responses=ExplanationSerializer)
    def get(self, request: Request, uid: str) -> Response:
        """Step by step, from the same fold that charges, and then the ledger lines."""
        return Response(_explanation_shape(explanations.of_pod(uid)))


class Explain(Endpoint):
    """POST /api/v1/explain"""

    callers = {"POST": VIEWERS}
    problems = OF_BODIES

    @extend_schema(
        summary="What a pod would be charged, and why",
        request={bodies.JSON: ExplainSerializer},
        responses={200: ManifestExplanationSerializer},
    )
    def post(self, request: Request) -> Response:
        """The pod need not exist. Its allocation annotation is explained, or else its requests."""
        bodies.media_type(request._request, bodies.JSON)
        document = bodies.parsed(bodies.read(request._request, MAX_BODY_BYTES))
        if not isinstance(document, dict) or not isinstance(document.get("pod"), dict):
            raise Malformed("the body must be an object with a pod, itself an object", "/pod")
        try:
            found = explanations.of_manifest(pod_asked_about(document["pod"]))
        except Malformed as error:
            raise Malformed(error.detail, f"/pod{error.pointer}") from error
        return Response(manifest_answer(found))


def pod_asked_about(manifest: Mapping[str, Any]) -> pods.Pod:
    """The pod of a manifest. One that does not exist yet may lack what only the apiserver gives: a name."""
    metadata = manifest.get("metadata") or {}
    if isinstance(metadata, dict) and not metadata.get("name"):
        manifest = {**manifest, "metadata": {**metadata, "name": UNNAMED}}
    return manifests.pod_from_manifest(manifest, config.vendors())


def manifest_answer(found: explanations.Explanation) -> dict[str, Any]:
    """What is answered about a pod that need not exist."""
    return {**_explanation_shape(found), "apiserver": dict(found.apiserver)}

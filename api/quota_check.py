"""Whether the quotas of a namespace have room for a pod."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api import asking, bodies
from api.auth import SCHEDULERS
from api.endpoint import OF_BODIES, Endpoint
from api.explain import pod_asked_about
from hamiacct.accounting import pods
from hamiacct.accounting.errors import Malformed, UnreadableRequest
from hamiacct.accounting.quota import Check
from hamiacct.accounting.words import Question, Refusal
from hamiacct.kube import fields
from hamiacct.queries import admission

MAX_BODY_BYTES = 8 * bodies.MIB


class CheckSerializer(serializers.Serializer[Any]):
    """One limit on what is asked, in accounted units."""

    resource = serializers.CharField()
    quota = serializers.CharField()
    requested = serializers.IntegerField()
    used = serializers.IntegerField(help_text="What other pods hold that this quota selects.")
    hard = serializers.IntegerField()
    allowed = serializers.BooleanField()


class UndeterminedSerializer(serializers.Serializer[Any]):
    """What has no size before a card is chosen, and so was not judged."""

    container = serializers.CharField()
    detail = serializers.CharField()


class QuotaCheckSerializer(serializers.Serializer[Any]):
    """Whether every limit has room."""

    allowed = serializers.BooleanField()
    stale = serializers.BooleanField(help_text="The books are not complete, or too far behind.")
    as_of = serializers.DateTimeField()
    namespace = serializers.CharField()
    checks = CheckSerializer(many=True)
    undetermined = UndeterminedSerializer(many=True)
    message = serializers.CharField(allow_blank=True, help_text="Why there is no room; empty where there is.")


class QuotaQuestionSerializer(serializers.Serializer[Any]):
    """A pod's manifest, and a namespace that wins over the pod's own."""

    pod = serializers.DictField(help_text="A Pod, as Kubernetes writes it.")
    namespace = serializers.CharField(required=False)


class QuotaCheck(Endpoint):
    """POST /api/v1/quota/check"""

    callers = {"POST": SCHEDULERS}
    problems = OF_BODIES
    question = Question.QUOTA_CHECK

    @extend_schema(
        summary="Whether the quotas have room for a pod",
        request={bodies.JSON: QuotaQuestionSerializer},
        responses={200: QuotaCheckSerializer},
    )
    def post(self, request: Request) -> Response:
        """The pod is read as admission would leave it. Only a question: nothing is counted as used."""
        bodies.media_type(request._request, bodies.JSON)
        pod = _pod_of(bodies.parsed(bodies.read(request._request, MAX_BODY_BYTES)))
        now = timezone.now()
        try:
            found = admission.check_quota(pod, at=now)
        except UnreadableRequest as refusal:
            asking.keep(Question.QUOTA_CHECK, Refusal.ERROR, pod, message=refusal.detail)
            raise Malformed(refusal.detail, f"/pod{refusal.pointer}") from refusal
        checks = [check_shape(check) for check in found.checks]
        if not found.allowed:
            asking.keep(Question.QUOTA_CHECK, Refusal.NO_QUOTA, pod, message=found.message, checks=checks)
        return Response(
            {
                "allowed": found.allowed,
                "stale": found.stale,
                "as_of": found.as_of,
                "namespace": found.namespace,
                "checks": checks,
                "undetermined": [asdict(one) for one in found.undetermined],
                "message": found.message,
            }
        )


def _pod_of(document: object) -> pods.Pod:
    """The pod in a body, in the namespace that is asked about."""
    if not isinstance(document, dict) or not isinstance(document.get("pod"), dict):
        raise Malformed("the body must be an object with a pod, itself an object", "/pod")
    namespace = fields.name(document, "namespace", "")
    try:
        pod = pod_asked_about(document["pod"])
    except Malformed as error:
        raise Malformed(error.detail, f"/pod{error.pointer}") from error
    return replace(pod, namespace=namespace) if namespace else pod


def check_shape(check: Check) -> dict[str, Any]:
    """The shape of one judged limit."""
    return {
        "resource": check.resource,
        "quota": check.quota,
        "requested": check.requested,
        "used": check.used,
        "hard": check.hard,
        "allowed": check.allowed,
    }

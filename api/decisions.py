"""What was refused, and why."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api import fields, pages
from api.endpoint import Endpoint
from api.parameters import Choice, Parameter
from api.quota_check import CheckSerializer
from hamiacct.accounting.words import Question, Refusal
from hamiacct.queries import decisions


class DecisionSerializer(serializers.Serializer[Any]):
    """One refusal: what was asked, for which pod, and why not."""

    at = serializers.DateTimeField()
    question = fields.word(Question)
    namespace = serializers.CharField(allow_blank=True)
    pod = serializers.CharField(allow_blank=True)
    pod_uid = serializers.CharField(allow_blank=True)
    verdict = fields.word(Refusal)
    message = serializers.CharField(allow_blank=True)
    reasons = serializers.DictField(
        child=serializers.ListField(child=serializers.CharField()),
        help_text="The nodes that refused, by reason; at most a hundred of each.",
    )
    checks = CheckSerializer(many=True)


def decision_shape(found: decisions.Decision) -> dict[str, Any]:
    """The shape of a refusal."""
    return {
        "at": found.at,
        "question": found.question,
        "namespace": found.namespace,
        "pod": found.pod,
        "pod_uid": found.pod_uid,
        "verdict": found.verdict,
        "message": found.message,
        "reasons": found.reasons,
        "checks": found.checks,
    }


class Decisions(Endpoint):
    """GET /api/v1/decisions"""

    parameters = (
        Parameter("pod", "Only about this pod, by name or by uid."),
        Parameter("namespace", "Only about pods of this namespace."),
        Choice("verdict", "Only with this verdict.", Refusal),
        *pages.PAGING,
    )

    @extend_schema(
        summary="What was refused, and why", responses=pages.page_of(DecisionSerializer, "DecisionPage")
    )
    def get(self, request: Request) -> Response:
        """Refusals, newest first. Simulations and dry runs leave none; old ones are swept."""
        page = decisions.page(
            pod=self.given["pod"],
            namespace=self.given["namespace"],
            verdict=self.given["verdict"],
            after=pages.key_of(self.given["cursor"], "decisions"),
            limit=self.given["limit"],
        )
        return Response(pages.shaped(page, decision_shape, "decisions"))

"""How many more pods like this one fit."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api import asking, bodies
from api.auth import SCHEDULERS
from api.endpoint import OF_BODIES, Endpoint
from hamiacct.queries import fits

DEFAULT_AT_MOST = 1000
MAX_AT_MOST = 10_000


class CapacityQuestionSerializer(asking.PodQuestionSerializer):
    """A pod, and how far to count."""

    plain = {
        **asking.PodQuestionSerializer.plain,
        "at_most": lambda value: type(value) is int and 1 <= value <= MAX_AT_MOST,
    }
    unsaid = {"at_most": DEFAULT_AT_MOST}

    at_most = serializers.IntegerField(min_value=1, max_value=MAX_AT_MOST, default=DEFAULT_AT_MOST)


class NodeCapacitySerializer(serializers.Serializer[Any]):
    """How many of them one node takes."""

    node = serializers.CharField()
    count = serializers.IntegerField()


class CapacitySerializer(serializers.Serializer[Any]):
    """How many more such pods fit, in all and per node, counted no further than was asked."""

    count = serializers.IntegerField()
    as_of = serializers.DateTimeField()
    by_node = NodeCapacitySerializer(many=True)


class Capacity(Endpoint):
    """POST /api/v1/capacity"""

    callers = {"POST": SCHEDULERS}
    problems = OF_BODIES

    @extend_schema(
        summary="How many more such pods fit",
        request={bodies.JSON: CapacityQuestionSerializer},
        responses={200: CapacitySerializer},
    )
    def post(self, request: Request) -> Response:
        """Placed one after the other, card by card, within the namespace's quotas. Nothing is stored.

        Pods that ask for nothing that is managed here are limited by nothing: `count` is `at_most`.
        """
        asked = asking.asked_in(request, CapacityQuestionSerializer)
        question = asking.question_in(asking.pod_in(asked["pod"]))
        now = timezone.now()
        found = fits.capacity(
            question,
            nodes=asked.get("nodes"),
            at_most=asked["at_most"],
            at=now,
            seen=asking.look(question, at=now),
        )
        return Response(
            {
                "count": found.count,
                "as_of": found.as_of,
                "by_node": [{"node": node, "count": count} for node, count in found.by_node],
            }
        )

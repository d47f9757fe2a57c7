"""Where a pod fits, best first, and why not elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api import asking, bodies
from api.auth import SCHEDULERS
from api.endpoint import OF_BODIES, Endpoint, Part
from api.pods import HeldSerializer, PartSerializer
from hamiacct import config
from hamiacct.accounting import fleet, pods
from hamiacct.accounting.errors import Malformed
from hamiacct.accounting.fit import Misfit, Placement
from hamiacct.accounting.holdings import Held
from hamiacct.accounting.pods import Allocation, Container
from hamiacct.accounting.words import Question, Refusal
from hamiacct.kube import patches
from hamiacct.queries import fits

DEFAULT_LIMIT = 5
MAX_LIMIT = 1000


class PlaceSerializer(serializers.Serializer[Any]):
    """The devices of one container in a placement."""

    position = serializers.IntegerField()
    container = serializers.CharField()
    devices = PartSerializer(many=True)


class CandidateSerializer(serializers.Serializer[Any]):
    """A placement: the devices of each container, what that costs, and what to write on the pod."""

    node = serializers.CharField()
    score = serializers.FloatField(help_text="What nodes are ordered by; which end is best the policy says.")
    allocation = PlaceSerializer(many=True)
    charge = HeldSerializer(many=True)
    annotations = serializers.DictField(
        child=serializers.CharField(allow_null=True),
        help_text="Null removes what an earlier placement left on the pod.",
    )
    labels = serializers.DictField(child=serializers.CharField())


class MisfitSerializer(serializers.Serializer[Any]):
    """A node that does not take the pod: how many cards had which reason."""

    node = serializers.CharField()
    message = serializers.CharField()
    reasons = serializers.DictField(child=serializers.IntegerField())


class FitSerializer(serializers.Serializer[Any]):
    """Where the pod fits, and why not elsewhere. Without verdicts the last two are left out."""

    fits = serializers.BooleanField()
    as_of = serializers.DateTimeField()
    candidates = CandidateSerializer(many=True)
    failed = MisfitSerializer(many=True, required=False)
    reasons = serializers.DictField(
        child=serializers.ListField(child=serializers.CharField()),
        required=False,
        help_text="The failed nodes by each of their reasons.",
    )


class FitQuestionSerializer(asking.PodQuestionSerializer):
    """A pod, how its nodes and devices are to be ordered, and how much is to be told."""

    plain = {
        **asking.PodQuestionSerializer.plain,
        "limit": lambda value: type(value) is int and 1 <= value <= MAX_LIMIT,
        "node_policy": lambda value: value is None or asking.is_plain_text(value),
        "gpu_policy": lambda value: value is None or asking.is_plain_text(value),
        "verdicts": lambda value: type(value) is bool,
    }
    unsaid = {"limit": DEFAULT_LIMIT, "verdicts": True}

    limit = serializers.IntegerField(min_value=1, max_value=MAX_LIMIT, default=DEFAULT_LIMIT)
    node_policy = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    gpu_policy = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    verdicts = serializers.BooleanField(default=True)


def allocation_shape(
    containers: Iterable[Container], allocations: Mapping[str, Allocation]
) -> list[dict[str, Any]]:
    """The rows of every container, as a claim takes them back. Named cores are a bit mask, as in a row."""
    return [
        {
            "position": container.position,
            "container": container.name,
            "devices": [
                {"uuid": row.uuid, "vendor": key, "memory_mib": row.memory, "cores": row.cores}
                for key, allocation in allocations.items()
                for group in allocation.groups[container.position : container.position + 1]
                for row in group
            ],
        }
        for container in containers
    ]


def charge_shape(charge: Held) -> list[dict[str, Any]]:
    """What the books charge, device by device."""
    return [
        {
            "node": key.node,
            "device": key.uuid,
            "vendor": key.vendor,
            "slots": amount.slots,
            "memory_mib": amount.memory_mib,
            "cores": amount.cores,
        }
        for key, amount in charge.items()
    ]


def candidate_shape(placement: Placement, pod: pods.Pod, at: datetime) -> dict[str, Any]:
    """The shape of a placement that could be taken now."""
    annotations, labels = patches.annotations_of(placement, pod, config.vendors(), at)
    return {
        "node": placement.node,
        "score": placement.score,
        "allocation": allocation_shape(pod.containers, placement.allocations),
        "charge": charge_shape(placement.charge),
        "annotations": annotations,
        "labels": labels,
    }


def misfit_shape(misfit: Misfit) -> dict[str, Any]:
    """The shape of a refusal."""
    return {"node": misfit.node, "message": misfit.message, "reasons": _plain(misfit.reasons)}


def _plain(reasons: Mapping[str, int]) -> dict[str, int]:
    """Reasons as mere texts: the quick writer of answers takes no other keys."""
    return {str(reason): count for reason, count in reasons.items()}


class Failed(Part):
    """Every node that refuses, by name. All that refuse alike say the same, which is written once."""

    def __init__(self, refusals: Sequence[fleet.Refusal]) -> None:
        self.refusals = refusals

    def value(self) -> list[dict[str, Any]]:
        """One shape a node."""
        return [misfit_shape(misfit) for misfit in fleet.Judgement((), tuple(self.refusals)).failed]

    def text(self) -> bytes:
        """The same as JSON."""
        names = orjson.dumps([refusal.nodes for refusal in self.refusals])
        if b"\\" in names:  # then a name is not what stands between two quotes
            return orjson.dumps(self.value())
        ends = [
            orjson.dumps({"message": refusal.message, "reasons": _plain(refusal.reasons)})[1:].decode()
            for refusal in self.refusals
        ]
        if len(ends) == 1:
            between = f'",{ends[0]},{{"node":"'
            told = '","'.join(self.refusals[0].nodes).replace('","', between)
            return f'[{{"node":"{told}",{ends[0]}]'.encode()
        end_of: dict[str, str] = {}
        for refusal, end in zip(self.refusals, ends, strict=True):
            end_of.update(dict.fromkeys(refusal.nodes, end))
        told = ",".join([f'{{"node":"{node}",{end_of[node]}' for node in sorted(end_of)])
        return f"[{told}]".encode()


class Fit(Endpoint):
    """POST /api/v1/fit"""

    callers = {"POST": SCHEDULERS}
    problems = OF_BODIES
    question = Question.FIT

    @extend_schema(
        summary="Where a pod fits, and why not elsewhere",
        request={bodies.JSON: FitQuestionSerializer},
        responses={200: FitSerializer},
    )
    def post(self, request: Request) -> Response:
        """Every feasible node up to `limit`, best first. Only a question: nothing is held.

        A pod that asks for nothing that is managed here fits everywhere, and has no candidates.
        """
        asked = asking.asked_in(request, FitQuestionSerializer)
        pod = asking.pod_in(asked["pod"])
        now = timezone.now()
        try:
            question = asking.question_in(
                pod, node_policy=asked.get("node_policy"), gpu_policy=asked.get("gpu_policy")
            )
        except Malformed as fault:
            asking.keep(Question.FIT, Refusal.ERROR, pod, message=fault.detail)
            raise
        found = fits.find(
            question,
            nodes=asked.get("nodes"),
            limit=asked["limit"],
            verdicts=asked["verdicts"],
            at=now,
            seen=asking.look(question, at=now),
        )
        if not found.fits:
            verdict = Refusal.NO_QUOTA if fits.is_about_quota(found.refusals) else Refusal.NO_FIT
            message = "no node takes the pod"
            if asked["verdicts"]:
                message = asking.in_one_text_of((one.message, one.nodes) for one in found.refusals)
            asking.keep(Question.FIT, verdict, pod, message=message, reasons=found.reasons)
        answer: dict[str, Any] = {
            "fits": found.fits,
            "as_of": found.as_of,
            "candidates": [candidate_shape(one, question.pod, now) for one in found.candidates],
        }
        if asked["verdicts"]:
            answer["failed"] = Failed(found.refusals)
            answer["reasons"] = found.reasons
        return Response(answer)

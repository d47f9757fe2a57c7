"""Holds: a place for a pod, checked and charged in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.conf import settings
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api import asking, bodies, errors, fields, problems
from api.auth import SCHEDULERS, VIEWERS
from api.endpoint import OF_BODIES, Endpoint
from api.fit import CandidateSerializer, allocation_shape, charge_shape, misfit_shape
from api.quota_check import check_shape
from hamiacct.accounting import pods
from hamiacct.accounting.errors import Conflict, Malformed, NoRoom, QuotaExceeded
from hamiacct.accounting.fit import Misfit
from hamiacct.accounting.pods import Groups, Row
from hamiacct.accounting.quota import Check
from hamiacct.accounting.words import Question, Refusal, ReservationState
from hamiacct.environment import A_DAY
from hamiacct.kube.annotations import INT32_MAX, MAX_NAME
from hamiacct.kube.fields import MAX_ITEMS
from hamiacct.operations import reservations, rounds
from hamiacct.queries import fits
from hamiacct.queries import reservations as holds

MAX_TTL_SECONDS = 30 * A_DAY
MAX_POSITION = 2 * MAX_ITEMS - 1


class ClaimedDeviceSerializer(serializers.Serializer[Any]):
    """One row of a claim."""

    uuid = serializers.CharField(max_length=MAX_NAME)
    vendor = serializers.CharField(max_length=MAX_NAME)
    memory_mib = serializers.IntegerField(min_value=0, max_value=INT32_MAX)
    cores = serializers.IntegerField(min_value=0, max_value=INT32_MAX)


class ClaimedPlaceSerializer(serializers.Serializer[Any]):
    """The rows of one container, as in a candidate; its name is not looked at."""

    position = serializers.IntegerField(min_value=0, max_value=MAX_POSITION)
    container = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    devices = ClaimedDeviceSerializer(many=True)


class ReservationQuestionSerializer(asking.PodQuestionSerializer):
    """A pod, and where to hold a place for it: anywhere, on one node, or exactly in one place."""

    plain = {
        **asking.PodQuestionSerializer.plain,
        "ttl_seconds": lambda value: value is None or (type(value) is int and 1 <= value <= MAX_TTL_SECONDS),
        "node": lambda value: value is None or (asking.is_plain_text(value) and 0 < len(value) <= MAX_NAME),
        "allocation": lambda value: value is None,
    }

    ttl_seconds = serializers.IntegerField(
        min_value=1,
        max_value=MAX_TTL_SECONDS,
        required=False,
        allow_null=True,
        help_text="HAMIACCT_RESERVATION_TTL_SECONDS without.",
    )
    node = serializers.CharField(required=False, allow_null=True, max_length=MAX_NAME)
    allocation = serializers.ListField(child=ClaimedPlaceSerializer(), required=False, allow_null=True)


class ReservationSerializer(CandidateSerializer):
    """A hold: the placement as a candidate, whose it is, and how it stands."""

    pod_uid = serializers.CharField()
    state = fields.word(ReservationState)
    expires_at = serializers.DateTimeField(help_text="What is binding or bound does not expire.")


def reservation_shape(found: holds.Reservation) -> dict[str, Any]:
    """The shape of a hold."""
    return {
        "node": found.node,
        "score": found.score,
        "allocation": allocation_shape(found.containers, found.allocations),
        "charge": charge_shape(found.charge),
        "annotations": dict(found.annotations),
        "labels": dict(found.labels),
        "pod_uid": found.pod_uid,
        "state": found.state,
        "expires_at": found.expires_at,
    }


def groups_of(allocation: Sequence[Mapping[str, Any]]) -> dict[str, Groups]:
    """A claim's rows by vendor and position. Malformed where a position is given twice."""
    positions = [place["position"] for place in allocation]
    if len(set(positions)) < len(positions):
        raise Malformed("a position is given twice", "/allocation")
    length = max(positions, default=-1) + 1
    rows: dict[str, list[tuple[Row, ...]]] = {}
    for place in allocation:
        for device in place["devices"]:
            row = Row(device["uuid"], device["vendor"], device["memory_mib"], device["cores"])
            groups = rows.setdefault(device["vendor"], [()] * length)
            groups[place["position"]] += (row,)
    return {vendor: tuple(groups) for vendor, groups in rows.items()}


class Reservations(Endpoint):
    """POST /api/v1/reservations"""

    callers = {"POST": SCHEDULERS}
    problems = OF_BODIES | {problems.CONFLICT, problems.INSUFFICIENT_CAPACITY, problems.QUOTA_EXCEEDED}
    question = Question.RESERVATION

    @extend_schema(
        summary="Hold a place for a pod",
        request={bodies.JSON: ReservationQuestionSerializer},
        responses={201: ReservationSerializer},
    )
    def post(self, request: Request) -> Response:
        """Chosen as a fit would choose, or with `allocation` exactly the place sent.

        An earlier hold of the same pod is given back first. Without room for it the pod holds nothing.
        """
        asked = asking.asked_in(request, ReservationQuestionSerializer)
        pod = asking.pod_in(asked["pod"])
        try:
            question = asking.question_in(pod)
            held = _held(question, asked)
        except (NoRoom, QuotaExceeded) as refusal:
            return _refused(request, question, refusal)
        except (Conflict, Malformed) as fault:
            verdict = Refusal.REFUSED if isinstance(fault, Conflict) else Refusal.ERROR
            asking.keep(Question.RESERVATION, verdict, pod, message=fault.detail)
            raise
        return Response(_shape(question.pod, held), status=201)


def _held(question: fits.Question, asked: Mapping[str, Any]) -> rounds.Held:
    now = timezone.now()
    node, allocation = asked.get("node"), asked.get("allocation")
    if allocation is not None and not node:
        raise Malformed("an allocation is on a node: say which", "/node")
    groups = groups_of(allocation or ())
    ttl_seconds = asked.get("ttl_seconds") or settings.HAMIACCT.reservation_ttl_seconds
    if node and allocation is not None:
        return reservations.claim(question, node, groups, ttl_seconds=ttl_seconds, at=now)
    nodes = [node] if node else asked.get("nodes")
    return reservations.reserve(question, nodes=nodes, ttl_seconds=ttl_seconds, at=now)


def _shape(pod: pods.Pod, held: rounds.Held) -> dict[str, Any]:
    placement, row = held.placement, held.reservation
    found = holds.Reservation(
        row.pod_uid,
        row.node,
        row.state,
        row.expires_at,
        row.score,
        pod.containers,
        placement.allocations,
        placement.charge,
        row.annotations,
        row.labels,
    )
    return reservation_shape(found)


def _refused(request: Request, question: fits.Question, refusal: NoRoom | QuotaExceeded) -> Response:
    """No room: why, node by node, and what the quotas say where it is for their sake."""
    failed = failed_of(refusal)
    checks = [check_shape(check) for check in checks_of(question, refusal)]
    keep_refusal(Question.RESERVATION, question, refusal, checks)
    members: dict[str, object] = {
        "failed": [misfit_shape(misfit) for misfit in failed],
        "reasons": fits.reasons_of(failed),
    }
    if isinstance(refusal, QuotaExceeded):
        members["checks"] = checks
    problem = errors.problem_of(refusal)
    assert problem is not None
    return errors.answer(request._request, problem, str(refusal), members)


def failed_of(refusal: NoRoom | QuotaExceeded) -> tuple[Misfit, ...]:
    """The nodes that refused."""
    failed = refusal.numbers.get("failed", ())
    assert isinstance(failed, tuple)
    return failed


def checks_of(question: fits.Question, refusal: NoRoom | QuotaExceeded) -> tuple[Check, ...]:
    """The limits that were judged, where it is they that refused."""
    if isinstance(refusal, QuotaExceeded):
        return holds.checks_against(question, failed_of(refusal))
    return ()


def keep_refusal(
    asked: Question,
    question: fits.Question,
    refusal: NoRoom | QuotaExceeded,
    checks: Sequence[Mapping[str, Any]],
) -> None:
    """Has it kept that there was no room."""
    failed = failed_of(refusal)
    asking.keep(
        asked,
        Refusal.NO_QUOTA if isinstance(refusal, QuotaExceeded) else Refusal.NO_FIT,
        question.pod,
        message=asking.in_one_text(failed),
        reasons=fits.reasons_of(failed),
        checks=checks,
    )


class Reservation(Endpoint):
    """GET and DELETE /api/v1/reservations/{pod_uid}"""

    callers = {"GET": VIEWERS, "DELETE": SCHEDULERS}
    problems = frozenset({problems.NOT_FOUND, problems.CONFLICT})

    @extend_schema(summary="The last hold of a pod", responses=ReservationSerializer)
    def get(self, request: Request, pod_uid: str) -> Response:
        """One that has ended, too, until its pod is forgotten."""
        return Response(reservation_shape(holds.of_pod(pod_uid)))

    @extend_schema(summary="Give a hold back", responses={204: None})
    def delete(self, request: Request, pod_uid: str) -> Response:
        """Also one that has ended already; what is bound is given back by the end of its pod."""
        reservations.release(pod_uid, at=timezone.now())
        return Response(status=204)


class ReservationBound(Endpoint):
    """POST /api/v1/reservations/{pod_uid}/bound"""

    callers = {"POST": SCHEDULERS}
    problems = frozenset({problems.NOT_FOUND, problems.CONFLICT})

    @extend_schema(
        summary="Say that the pod of a hold is bound", request=None, responses={200: ReservationSerializer}
    )
    def post(self, request: Request, pod_uid: str) -> Response:
        """From now on the hold does not expire; the pod's own event will confirm it."""
        now = timezone.now()
        reservations.expire(at=now)
        reservations.mark_bound(pod_uid, at=now)
        return Response(reservation_shape(holds.of_pod(pod_uid)))

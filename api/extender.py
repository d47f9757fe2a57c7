"""kube-scheduler's questions to an extender: which of these nodes take the pod, and which is best.

What went wrong is told in its `Error`, with HTTP 200: another status says no more to it than that something
did. The caller alone is told by 401 and 403.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import structlog
from django.conf import settings
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api import asking, bodies, errors, problems, telling
from api.auth import SCHEDULERS, ExtenderAuthentication
from api.endpoint import Endpoint
from api.explain import pod_asked_about
from api.quota_check import check_shape
from api.reservations import checks_of, failed_of, keep_refusal
from hamiacct import config, metrics
from hamiacct.accounting import devices, reasons
from hamiacct.accounting.errors import Conflict, Malformed, NoRoom, QuotaExceeded, Unavailable
from hamiacct.accounting.words import Question, Refusal
from hamiacct.kube import extender as wire
from hamiacct.kube import registration
from hamiacct.kube.extender import ExtenderArgs
from hamiacct.kube.fields import Manifest
from hamiacct.kube.happenings import Happening, Reason
from hamiacct.operations import reservations, rounds
from hamiacct.queries import fits

log = structlog.get_logger("hamiacct.extender")

MAX_BODY_BYTES = 8 * bodies.MIB
OF_THE_CALLER = (problems.UNAUTHENTICATED, problems.FORBIDDEN, problems.METHOD_NOT_ALLOWED)


class ExtenderArgsSerializer(serializers.Serializer[Any]):
    """ExtenderArgs: the pod, and nodes in one of two forms."""

    Pod = serializers.DictField()
    Nodes = serializers.DictField(
        required=False, allow_null=True, help_text="A NodeList: what if these were the nodes."
    )
    NodeNames = serializers.ListField(child=serializers.CharField(), required=False, allow_null=True)


class FilterResultSerializer(serializers.Serializer[Any]):
    """ExtenderFilterResult."""

    Nodes = serializers.DictField(allow_null=True)
    NodeNames = serializers.ListField(child=serializers.CharField(), allow_null=True)
    FailedNodes = serializers.DictField(child=serializers.CharField(), allow_null=True)
    FailedAndUnresolvableNodes = serializers.DictField(child=serializers.CharField(), allow_null=True)
    Error = serializers.CharField(allow_blank=True)


class HostPrioritySerializer(serializers.Serializer[Any]):
    """One node and its score."""

    Host = serializers.CharField()
    Score = serializers.IntegerField(min_value=0, max_value=wire.HIGHEST_SCORE)


class Extended(Endpoint):
    """A question of kube-scheduler. Bodies are JSON whatever they are called, 8 MiB at most."""

    authentication_classes = (ExtenderAuthentication,)
    callers = {"POST": SCHEDULERS}

    args: ExtenderArgs | None = None

    def read(self, request: Request) -> ExtenderArgs:
        """What is asked."""
        body = bodies.read(request._request, MAX_BODY_BYTES)
        self.args = wire.extender_args(bodies.parsed(body))
        return self.args

    def failure(self, detail: str) -> Any:
        """The protocol's own way to say that there is no answer."""
        raise NotImplementedError

    def handle_exception(self, exc: Exception) -> Response:
        """What has a problem of its own is told in the protocol's words; a bug stays a bug."""
        problem = errors.problem_of(exc)
        if problem is None or problem in OF_THE_CALLER:
            return super().handle_exception(exc)
        detail = errors.in_words(exc)
        metrics.refuse_unless_told(Refusal.ERROR)
        log.warning("no answer", question=type(self).__name__, error=detail)
        bodies.drain(self.request._request)
        return Response(self.failure(detail))


class Filter(Extended):
    """POST /extender/filter"""

    question = Question.FILTER

    @extend_schema(
        summary="Which nodes take a pod; one of them holds it",
        request={bodies.JSON: ExtenderArgsSerializer},
        responses={200: FilterResultSerializer},
    )
    def post(self, request: Request) -> Response:
        """NodeNames: a place is held on the best node, which alone is answered. Nodes: only a question."""
        args = self.read(request)
        pod = pod_asked_about(args.pod)
        if args.nodes is not None:
            return Response(simulated(args.nodes, fits.question_of(pod)))
        try:
            return Response(held(args, fits.question_of(pod)))
        except (Conflict, Malformed, Unavailable) as fault:
            if not isinstance(fault, Unavailable):
                verdict = Refusal.REFUSED if isinstance(fault, Conflict) else Refusal.ERROR
                asking.keep(Question.FILTER, verdict, pod, message=fault.detail)
            if not isinstance(fault, Conflict):  # a pod that is bound or on its way has not failed
                telling.tell(args.pod, [Happening(Reason.FILTERING_FAILED, fault.detail)])
            raise

    def failure(self, detail: str) -> wire.FilterResult:
        """No nodes, and why."""
        return wire.filter_result(error=detail)


def held(args: ExtenderArgs, question: fits.Question) -> wire.FilterResult:
    """One node that holds the pod, or why each does not. A pod that asks for nothing goes anywhere."""
    if question.ask.is_empty:
        return wire.filter_result(node_names=args.node_names)
    now = timezone.now()
    try:
        found = reservations.reserve(
            question,
            nodes=args.node_names,
            ttl_seconds=settings.HAMIACCT.reservation_ttl_seconds,
            verdicts=True,
            at=now,
        )
    except (NoRoom, QuotaExceeded) as refusal:
        checks = [check_shape(check) for check in checks_of(question, refusal)]
        keep_refusal(Question.FILTER, question, refusal, checks)
        failed = {one.node: one.message for one in failed_of(refusal)}
        telling.tell(args.pod, _no_node(failed, len(args.node_names)))
        return wire.filter_result(failed=failed)
    telling.tell(args.pod, _one_node(found, len(args.node_names)))
    return wire.filter_result(node_names=[found.placement.node])


def _no_node(failed: Mapping[str, str], asked_nodes: int) -> Iterator[Happening]:
    """What a pod is told that no node takes: which nodes have each reason, then how many there are."""
    for text in reasons.failure_texts(failed, asked_nodes):
        yield Happening(Reason.FILTERING_FAILED, text)


def _one_node(found: rounds.Held, asked_nodes: int) -> Iterator[Happening]:
    """What a pod is told that is held a place: where, and the scores of the best that would take it."""
    scores = [(one.node, one.score) for one in found.proposed.candidates]
    refused = len(found.proposed.failed)
    text = reasons.success_text(found.placement.node, scores, asked_nodes, refused_nodes=refused)
    yield Happening(Reason.FILTERING_SUCCEED, text)


def simulated(nodes: Mapping[str, Manifest], question: fits.Question) -> wire.FilterResult:
    """All of these nodes that would take the pod, and why the others would not. Nothing is stored."""
    if question.ask.is_empty:
        return wire.filter_result(nodes=nodes.values())
    now = timezone.now()
    reservations.expire(at=now)
    known, failed = _inventories(nodes, now)
    found = fits.simulate(question, known, at=now)
    failed |= {one.node: one.message for one in found.failed}
    taking = [manifest for name, manifest in nodes.items() if name not in failed]
    if not taking:
        verdict = Refusal.NO_QUOTA if fits.is_about_quota(found.failed) else Refusal.NO_FIT
        metrics.refuse(verdict, found.reasons)
    return wire.filter_result(nodes=taking, failed=failed)


def _inventories(nodes: Mapping[str, Manifest], now: datetime) -> tuple[list[devices.Node], dict[str, str]]:
    """What each node registers; one that cannot be read fails alone."""
    vendors, zone, selector = config.vendors(), config.handshake_zone(), config.node_selector()
    known: list[devices.Node] = []
    failed: dict[str, str] = {}
    for name, manifest in nodes.items():
        try:
            known.append(registration.node_from_manifest(manifest, vendors, now, zone).within(selector))
        except Malformed as fault:
            failed[name] = f"node unreadable: {fault.pointer} {fault.detail}"
    return known, failed


class Prioritize(Extended):
    """POST /extender/prioritize"""

    @extend_schema(
        summary="Which node is best for a pod",
        request={bodies.JSON: ExtenderArgsSerializer},
        responses={200: HostPrioritySerializer(many=True)},
    )
    def post(self, request: Request) -> Response:
        """10 for the best, 1 for the last that takes the pod, 0 for others and where nothing can be said."""
        args = self.read(request)
        question = fits.question_of(pod_asked_about(args.pod))
        return Response(wire.host_priorities(args.names, ranked(args, question)))

    def failure(self, detail: str) -> list[wire.HostPriority]:
        """Zeros: nothing speaks for any node."""
        return wire.host_priorities(self.args.names if self.args else (), {})


def ranked(args: ExtenderArgs, question: fits.Question) -> dict[str, float]:
    """The nodes that would take the pod, the larger the better. A pod that asks for nothing has no wishes."""
    if question.ask.is_empty:
        return {}
    now = timezone.now()
    seen = asking.look(question, at=now)
    if args.nodes is not None:
        found = fits.simulate(question, _inventories(args.nodes, now)[0], at=now)
    else:
        names = args.node_names
        found = fits.find(question, nodes=names, limit=max(len(names), 1), verdicts=False, at=now, seen=seen)
    policy = question.ask.node_policy
    return {one.node: policy.rank(one.score) for one in found.candidates}

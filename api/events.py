"""Watch events in: stored before they are answered, one bad one never loses the others."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from django.conf import settings
from django.http import HttpRequest
from django.utils import timezone
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api import bodies, fields
from api.auth import INGESTERS
from api.endpoint import OF_BODIES, Endpoint
from api.errors import TooLarge
from api.parameters import Seconds
from hamiacct.accounting.errors import Malformed
from hamiacct.accounting.words import EventType, Outcome, Rule
from hamiacct.celery import wake
from hamiacct.operations import inbox
from hamiacct.queries import inbox as settled

MAX_EVENTS = 10_000
MAX_BODY_BYTES = 32 * bodies.MIB
MAX_WAIT_SECONDS = 60.0
FIRST_LOOK_SECONDS = 0.02
LONGEST_LOOK_SECONDS = 0.5


class EventSerializer(serializers.Serializer[Any]):
    """One watch event, as Kubernetes sends it."""

    type = fields.word(EventType)
    object = serializers.DictField(help_text="A Pod, Node or ResourceQuota; other kinds are ignored.")


class EventsSerializer(serializers.Serializer[Any]):
    """Watch events, at most 10,000 and 32 MiB."""

    events = EventSerializer(many=True)


class RejectedSerializer(serializers.Serializer[Any]):
    """One thing in the request that cannot be read, and so is not stored."""

    index = serializers.IntegerField()
    code = serializers.CharField()
    pointer = serializers.CharField()
    detail = serializers.CharField()


class ResultSerializer(serializers.Serializer[Any]):
    """What became of one event. `rule` is null for Nodes, ResourceQuotas and stale events."""

    index = serializers.IntegerField()
    outcome = fields.word(Outcome)
    rule = fields.word(Rule, allow_null=True)
    detail = serializers.CharField(allow_blank=True)


class ReceiptSerializer(serializers.Serializer[Any]):
    """What was taken, and what not. `results` are there when the call waited."""

    accepted = serializers.IntegerField()
    ignored = serializers.IntegerField()
    rejected = RejectedSerializer(many=True)
    results = ResultSerializer(many=True, required=False)


class Batch(NamedTuple):
    """The events of one call. A text that is no JSON keeps its place; `unreadable` says why, by index."""

    events: Sequence[object]
    unreadable: Mapping[int, str]


def batch_of(request: HttpRequest) -> Batch:
    """The events in the body. Malformed or TooLarge where the body itself cannot be taken."""
    kind = bodies.media_type(request, bodies.JSON, bodies.LINES, bodies.UNSAID)
    body = bodies.read(request, MAX_BODY_BYTES)
    if kind == bodies.UNSAID:
        return _of_document(body) if _is_document(body) else _of_lines(body)
    return _of_lines(body) if kind == bodies.LINES else _of_document(body)


def _is_document(body: bytes) -> bool:
    """Whether a body of which nothing is said is one object with events in it."""
    try:
        value = bodies.parsed(body)
    except Malformed:
        return False
    return isinstance(value, dict) and "events" in value


def _of_document(body: bytes) -> Batch:
    document = bodies.parsed(body)
    if not isinstance(document, dict):
        raise Malformed("the body must be an object with events")
    events = document.get("events")
    if not isinstance(events, list):
        raise Malformed("events must be a list of watch events", "/events")
    if len(events) > MAX_EVENTS:
        raise TooLarge(f"{len(events)} events in one call, the limit is {MAX_EVENTS}")
    return Batch(events, {})


def _of_lines(body: bytes) -> Batch:
    events: list[object] = []
    unreadable = {}
    for index, text in enumerate(bodies.counted(bodies.texts_of_lines(body), MAX_EVENTS)):
        try:
            events.append(bodies.parsed(text))
        except Malformed as error:
            events.append(None)
            unreadable[index] = error.detail
    return Batch(events, unreadable)


def rejected_shapes(
    rejected: Iterable[inbox.Rejected], unreadable: Mapping[int, str]
) -> list[dict[str, Any]]:
    """The shape of what was rejected."""
    return [
        {
            "index": one.index,
            "code": one.code,
            "pointer": one.pointer,
            "detail": unreadable.get(one.index, one.detail),
        }
        for one in rejected
    ]


def _result_shapes(results: Iterable[settled.Result], ignored: Iterable[int]) -> list[dict[str, Any]]:
    shapes = [
        {"index": one.index, "outcome": one.outcome, "rule": one.rule, "detail": one.detail}
        for one in results
    ]
    shapes += [{"index": index, "outcome": Outcome.IGNORED, "rule": None, "detail": ""} for index in ignored]
    return sorted(shapes, key=lambda shape: shape["index"])


def _results_within(stored: Sequence[tuple[int, int]], seconds: float) -> list[settled.Result]:
    """The results, looked for until they are all there or the time is up."""
    until = time.monotonic() + seconds
    pause = FIRST_LOOK_SECONDS
    while True:
        results = settled.results(stored)
        left = until - time.monotonic()
        if len(results) == len(stored) or left <= 0:
            return results
        time.sleep(min(pause, left))
        pause = min(2 * pause, LONGEST_LOOK_SECONDS)


class Events(Endpoint):
    """POST /api/v1/events"""

    callers = {"POST": INGESTERS}
    parameters = (
        Seconds(
            "wait", "Answer when the events are applied, at most after so many seconds.", MAX_WAIT_SECONDS
        ),
    )
    problems = OF_BODIES

    @extend_schema(
        summary="Send watch events",
        request={bodies.JSON: EventsSerializer, bodies.LINES: EventSerializer},
        responses={
            200: OpenApiResponse(ReceiptSerializer, description="Stored and applied"),
            202: OpenApiResponse(ReceiptSerializer, description="Stored"),
        },
    )
    def post(self, request: Request) -> Response:
        """What `kubectl get pods -A -w -o json --output-watch-events` prints is a body, too.

        Without a broker events are applied in the request. A JSON Lines body is one watch event a line.
        """
        batch = batch_of(request._request)
        receipt = inbox.receive(batch.events, at=timezone.now())
        answer: dict[str, Any] = {
            "accepted": receipt.accepted,
            "ignored": receipt.ignored,
            "rejected": rejected_shapes(receipt.rejected, batch.unreadable),
        }
        has_broker = bool(settings.HAMIACCT.redis_url)
        seconds = self.given["wait"]
        if has_broker:
            wake()
        else:
            inbox.settle([event_id for _, event_id in receipt.stored], at=timezone.now())
        if has_broker and seconds is None:
            return Response(answer, status=202)
        results = _results_within(receipt.stored, seconds or 0.0)
        taken = {index for index, _ in receipt.stored} | {one.index for one in receipt.rejected}
        answer["results"] = _result_shapes(results, set(range(len(batch.events))) - taken)
        return Response(answer, status=200 if len(results) == len(receipt.stored) else 202)

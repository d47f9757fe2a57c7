"""Full lists in: the truth for one kind at its version, behind guards."""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from typing import Any

from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import PolymorphicProxySerializer, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api import bodies, fields, problems
from api.auth import INGESTERS
from api.endpoint import OF_BODIES, Endpoint
from api.events import RejectedSerializer, rejected_shapes
from api.parameters import Choice, Flag, Integer, Parameter
from hamiacct.accounting.errors import Malformed
from hamiacct.accounting.words import Kind
from hamiacct.kube import manifests, texts
from hamiacct.operations import snapshots

MAX_BODY_BYTES = 256 * bodies.MIB


class History(StrEnum):
    """What a list may say of the history its version belongs to."""

    NEW = "new"


class SnapshotSerializer(serializers.Serializer[Any]):
    """What a full list changed, or, with `dry_run`, would change."""

    kind = fields.word(Kind)
    version = serializers.IntegerField(allow_null=True)
    added = serializers.IntegerField()
    changed = serializers.IntegerField()
    unchanged = serializers.IntegerField()
    ended = serializers.IntegerField()
    would_end = serializers.IntegerField(help_text="How many charged pods the list does not hold.")
    rejected = RejectedSerializer(many=True)


class DeclaredSerializer(serializers.Serializer[Any]):
    """The answer to a declaration without a list."""

    complete = serializers.BooleanField()


class Snapshots(Endpoint):
    """POST /api/v1/snapshots"""

    callers = {"POST": INGESTERS}
    parameters = (
        Choice("kind", "The kind of an empty `List`.", Kind),
        Parameter("namespace", "The list is the truth for this namespace alone."),
        Integer("confirm", "Exactly how many charged pods the list may end, where a guard refused it."),
        Flag("dry_run", "Only count."),
        Choice("history", "`new`: versions begin anew, as after the cluster was restored.", History),
        Flag("complete", "The books are complete from now on, whatever lists were applied."),
    )
    problems = OF_BODIES | {problems.SNAPSHOT_REFUSED}

    @extend_schema(
        summary="Send a full list",
        request={bodies.JSON: OpenApiTypes.OBJECT},
        responses={
            200: PolymorphicProxySerializer(
                "SnapshotAnswer", [SnapshotSerializer, DeclaredSerializer], resource_type_field_name=None
            )
        },
    )
    def post(self, request: Request) -> Response:
        """A PodList, NodeList, ResourceQuotaList or List, such as `kubectl get pods -A -o json` prints.

        `?complete=1` needs no body.
        """
        now = timezone.now()
        if self.given["complete"] and not bodies.is_there(request._request):
            snapshots.declare_complete(at=now)
            return Response({"complete": True})
        bodies.media_type(request._request, bodies.JSON, bodies.UNSAID)
        listing = _listing(bodies.read_large(request._request, MAX_BODY_BYTES))
        result = snapshots.apply(
            _of_kind(listing, self.given["kind"]),
            namespace=self.given["namespace"],
            confirm=self.given["confirm"],
            dry_run=bool(self.given["dry_run"]),
            new_history=self.given["history"] is History.NEW,
            complete=bool(self.given["complete"]),
            at=now,
        )
        return Response(
            {
                "kind": result.kind,
                "version": result.version,
                "added": result.added,
                "changed": result.changed,
                "unchanged": result.unchanged,
                "ended": result.ended,
                "would_end": result.would_end,
                "rejected": rejected_shapes(result.rejected, {}),
            }
        )


def _listing(body: bytearray) -> manifests.ListBody:
    """The list in a body, whose items are parsed one by one where that can be.

    A body in which anything is no JSON is parsed whole, for the place of the fault.
    """
    outline = texts.outline(body, bodies.parsed)
    if outline is not None:
        with suppress(texts.Unparsed):  # the whole is parsed below, and tells where the fault is
            return manifests.list_items(outline)
    return manifests.list_items(bodies.parsed(bytes(body)))


def _of_kind(listing: manifests.ListBody, kind: Kind | None) -> manifests.ListBody:
    """The list with its kind, which an empty `List` does not show."""
    if not listing.kind:
        if kind is None:
            raise Malformed("an empty List does not show its kind: name it with ?kind=", "/query/kind")
        return listing._replace(kind=kind.value)
    if kind is not None and kind != listing.kind:
        raise Malformed(f"the list holds {listing.kind}s, not {kind}s", "/kind")
    return listing

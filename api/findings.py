"""What is odd, since when."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api import fields, pages
from api.endpoint import Endpoint
from api.parameters import Choice, Parameter
from hamiacct.accounting.words import FindingCode, SubjectKind
from hamiacct.queries import findings

FINDING = Choice("finding", "Only those with this finding.", FindingCode)


class NoteSerializer(serializers.Serializer[Any]):
    """A finding, beside its subject."""

    code = fields.word(FindingCode)
    detail = serializers.CharField()
    since = serializers.DateTimeField()


class SubjectSerializer(serializers.Serializer[Any]):
    """What a finding is about; what does not apply is empty. A device's name is its uuid."""

    kind = fields.word(SubjectKind)
    node = serializers.CharField(allow_blank=True)
    namespace = serializers.CharField(allow_blank=True)
    name = serializers.CharField(allow_blank=True)
    uid = serializers.CharField(allow_blank=True)


class FindingSerializer(serializers.Serializer[Any]):
    """A finding with its subject."""

    code = fields.word(FindingCode)
    subject = SubjectSerializer()
    detail = serializers.CharField()
    since = serializers.DateTimeField()


def note_shapes(found: Iterable[findings.Note]) -> list[dict[str, Any]]:
    """The shape of findings beside their subject."""
    return [{"code": note.code, "detail": note.detail, "since": note.since} for note in found]


def finding_shape(found: findings.Finding) -> dict[str, Any]:
    """The shape of a finding with its subject."""
    subject = found.subject
    return {
        "code": found.code,
        "subject": {
            "kind": subject.kind,
            "node": subject.node,
            "namespace": subject.namespace,
            "name": subject.name,
            "uid": subject.uid,
        },
        "detail": found.detail,
        "since": found.since,
    }


class Findings(Endpoint):
    """GET /api/v1/findings"""

    parameters = (
        Choice("code", "Only of this code.", FindingCode),
        Parameter("node", "Only about this node, its devices, and pods on it."),
        Parameter("namespace", "Only about this namespace."),
        *pages.PAGING,
    )

    @extend_schema(
        summary="What is odd, since when", responses=pages.page_of(FindingSerializer, "FindingPage")
    )
    def get(self, request: Request) -> Response:
        """Findings, oldest first. Each is raised and cleared by what sees its cause."""
        page = findings.page(
            code=self.given["code"],
            node=self.given["node"],
            namespace=self.given["namespace"],
            after=pages.key_of(self.given["cursor"], "findings"),
            limit=self.given["limit"],
        )
        return Response(pages.shaped(page, finding_shape, "findings"))

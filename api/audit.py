"""Whether the books agree, and their repair."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api import fields
from api.auth import OPERATORS
from api.endpoint import Endpoint
from hamiacct.accounting.words import Book
from hamiacct.operations import audit


class CheckedSerializer(serializers.Serializer[Any]):
    """How many of each were compared."""

    pods = serializers.IntegerField()
    entries = serializers.IntegerField()
    devices = serializers.IntegerField()
    namespaces = serializers.IntegerField()
    quotas = serializers.IntegerField()


class DiscrepancySerializer(serializers.Serializer[Any]):
    """One place where a book does not say what it should."""

    book = fields.word(Book)
    key = serializers.CharField()
    stored = serializers.JSONField()
    expected = serializers.JSONField()


class AuditSerializer(serializers.Serializer[Any]):
    """Whether the books agree."""

    ok = serializers.BooleanField()
    checked = CheckedSerializer()
    discrepancies = DiscrepancySerializer(many=True)


class RepairSerializer(serializers.Serializer[Any]):
    """One place that was put right."""

    book = fields.word(Book)
    key = serializers.CharField()
    was = serializers.JSONField()

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """The declared fields, and `is`, which Python keeps for itself."""
        return {**super().get_fields(), "is": serializers.JSONField()}


class RepairsSerializer(serializers.Serializer[Any]):
    """What was put right."""

    repaired = RepairSerializer(many=True)


class Audit(Endpoint):
    """GET /api/v1/audit"""

    @extend_schema(summary="Whether the books agree", responses=AuditSerializer)
    def get(self, request: Request) -> Response:
        """Replays the ledger, sums the entries, and compares both with every stored total."""
        found = audit.audit()
        return Response(
            {
                "ok": found.ok,
                "checked": dict(found.checked),
                "discrepancies": [
                    {"book": one.book, "key": one.key, "stored": one.stored, "expected": one.expected}
                    for one in found.discrepancies
                ],
            }
        )


class AuditRepair(Endpoint):
    """POST /api/v1/audit/repair"""

    callers = {"POST": OPERATORS}

    @extend_schema(summary="Put the books right", request=None, responses={200: RepairsSerializer})
    def post(self, request: Request) -> Response:
        """Entries are the truth; totals follow them, with a ledger line that says so."""
        repaired = audit.repair(at=timezone.now())
        return Response(
            {
                "repaired": [
                    {"book": one.book, "key": one.key, "was": one.was, "is": one.is_} for one in repaired
                ]
            }
        )

"""The ledger, by sequence."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api import fields, pages
from api.endpoint import Endpoint
from api.nodes import NODE
from api.parameters import Integer, Parameter
from hamiacct.accounting.words import Rule
from hamiacct.queries import ledger


class LineSerializer(serializers.Serializer[Any]):
    """One signed difference of one pod on one device."""

    seq = serializers.IntegerField()
    at = serializers.DateTimeField()
    pod_uid = serializers.CharField(allow_blank=True)
    namespace = serializers.CharField(allow_blank=True)
    node = serializers.CharField(allow_blank=True)
    device = serializers.CharField(allow_blank=True)
    rule = fields.word(Rule)
    reason = serializers.CharField(allow_blank=True)
    slots = serializers.IntegerField()
    memory_mib = serializers.IntegerField()
    cores = serializers.IntegerField()
    resource_version = serializers.IntegerField()


def line_shape(line: ledger.Line) -> dict[str, Any]:
    """The shape of a line."""
    return {
        "seq": line.seq,
        "at": line.at,
        "pod_uid": line.pod_uid,
        "namespace": line.namespace,
        "node": line.node,
        "device": line.device,
        "rule": line.rule,
        "reason": line.reason,
        "slots": line.slots,
        "memory_mib": line.memory_mib,
        "cores": line.cores,
        "resource_version": line.resource_version,
    }


class Ledger(Endpoint):
    """GET /api/v1/ledger"""

    parameters = (
        Parameter("pod", "Only of the pod with this uid."),
        NODE,
        Parameter("device", "Only of this uuid."),
        Parameter("namespace", "Only of this namespace."),
        Integer("after", "Only lines with a higher sequence number."),
        *pages.PAGING,
    )

    @extend_schema(summary="Every change of usage", responses=pages.page_of(LineSerializer, "LedgerPage"))
    def get(self, request: Request) -> Response:
        """Lines by sequence, which is the order of commits: a reader that follows misses none."""
        after = self.given["after"]
        page = ledger.page(
            pod=self.given["pod"],
            node=self.given["node"],
            device=self.given["device"],
            namespace=self.given["namespace"],
            after=pages.key_of(self.given["cursor"], "ledger") or (None if after is None else (after,)),
            limit=self.given["limit"],
        )
        return Response(pages.shaped(page, line_shape, "ledger"))

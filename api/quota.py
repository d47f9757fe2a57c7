"""The quota state of a namespace."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api.endpoint import Endpoint
from api.findings import FindingSerializer, finding_shape
from hamiacct.queries import quotas


class BoundSerializer(serializers.Serializer[Any]):
    """One ResourceQuota's limit on a resource."""

    name = serializers.CharField()
    key = serializers.CharField()
    spec = serializers.CharField(allow_blank=True, help_text="The limit as written.")
    hard = serializers.IntegerField(
        allow_null=True,
        help_text="The limit in accounted units; null where it is no whole number, and so none.",
    )
    used = serializers.IntegerField(help_text="What the pods hold that this quota selects.")
    headroom = serializers.IntegerField(allow_null=True)


class ResourceSerializer(serializers.Serializer[Any]):
    """A resource of a vendor: what the whole namespace holds of it, and every limit on it."""

    resource = serializers.CharField()
    vendor = serializers.CharField()
    used = serializers.IntegerField()
    hard = serializers.IntegerField(allow_null=True, help_text="The tightest limit; null without one.")
    headroom = serializers.IntegerField(allow_null=True, help_text="The smallest of the quotas'.")
    over_by = serializers.IntegerField(help_text="The largest excess; 0 without one.")
    quotas = BoundSerializer(many=True)


class NotEnforcedSerializer(serializers.Serializer[Any]):
    """A key that limits nothing here, and why."""

    quota = serializers.CharField()
    key = serializers.CharField()
    reason = serializers.CharField()
    apiserver_used = serializers.IntegerField(
        allow_null=True, help_text="What the apiserver charges for it; null where it charges nothing."
    )


class NamespaceQuotaSerializer(serializers.Serializer[Any]):
    """The quota state of a namespace."""

    namespace = serializers.CharField()
    resources = ResourceSerializer(many=True)
    not_enforced = NotEnforcedSerializer(many=True)
    findings = FindingSerializer(many=True)


def _resource_shape(found: quotas.Resource) -> dict[str, Any]:
    return {
        "resource": found.resource,
        "vendor": found.vendor,
        "used": found.used,
        "hard": found.hard,
        "headroom": found.headroom,
        "over_by": found.over_by,
        "quotas": [
            {
                "name": quota.name,
                "key": quota.key,
                "spec": quota.spec,
                "hard": quota.hard,
                "used": quota.used,
                "headroom": quota.headroom,
            }
            for quota in found.quotas
        ],
    }


class NamespaceQuota(Endpoint):
    """GET /api/v1/namespaces/{namespace}/quota"""

    @extend_schema(
        summary="What of a namespace is limited, used and exceeded", responses=NamespaceQuotaSerializer
    )
    def get(self, request: Request, namespace: str) -> Response:
        """Namespaces are no objects here: one that nothing is known of has no limits and no usage."""
        found = quotas.of_namespace(namespace)
        return Response(
            {
                "namespace": found.namespace,
                "resources": [_resource_shape(resource) for resource in found.resources],
                "not_enforced": [
                    {
                        "quota": one.quota,
                        "key": one.key,
                        "reason": one.reason,
                        "apiserver_used": one.apiserver_used,
                    }
                    for one in found.not_enforced
                ],
                "findings": [finding_shape(one) for one in found.findings],
            }
        )

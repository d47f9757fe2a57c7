"""HAMi's numbers beside ours."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.conf import settings
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api import fields, scrape
from api.endpoint import Endpoint
from api.parameters import Choice, Flag, Parameter
from hamiacct.accounting import comparison
from hamiacct.accounting.amounts import Amount
from hamiacct.accounting.hami import Formula
from hamiacct.accounting.words import PodState, Whereabouts
from hamiacct.queries import compare, inbox


class ComparedAmountSerializer(serializers.Serializer[Any]):
    """An amount."""

    slots = serializers.IntegerField()
    memory_mib = serializers.IntegerField()
    cores = serializers.IntegerField()


def reported_field() -> serializers.IntegerField:
    """MiB that HAMi's own metrics say; null where they were not read."""
    return serializers.IntegerField(allow_null=True)


class ComparedPodSerializer(serializers.Serializer[Any]):
    """What one pod holds of one card: as the formula books it, as HAMi's metrics say, and as is right."""

    uid = serializers.CharField()
    namespace = serializers.CharField()
    name = serializers.CharField()
    state = fields.word(PodState)
    node = serializers.CharField()
    device = serializers.CharField()
    vendor = serializers.CharField()
    hami = ComparedAmountSerializer()
    reported_memory_mib = reported_field()
    right = ComparedAmountSerializer()


class CardHolderSerializer(serializers.Serializer[Any]):
    """A pod that holds something of a card."""

    uid = serializers.CharField()
    namespace = serializers.CharField()
    name = serializers.CharField()


class ComparedCardSerializer(serializers.Serializer[Any]):
    """A card, and the pods behind its difference. `over_by` is what right usage exceeds its total by.

    `holders` are all pods on it where that is anything.
    """

    node = serializers.CharField()
    uuid = serializers.CharField()
    vendor = serializers.CharField()
    index = serializers.IntegerField()
    registered = serializers.BooleanField()
    total = ComparedAmountSerializer()
    hami = ComparedAmountSerializer()
    reported_memory_mib = reported_field()
    right = ComparedAmountSerializer()
    over_by = ComparedAmountSerializer()
    pods = ComparedPodSerializer(many=True)
    holders = CardHolderSerializer(many=True)


class ComparedNamespaceSerializer(serializers.Serializer[Any]):
    """What a namespace holds of a vendor, in the units quotas are judged in, and the pods behind it."""

    namespace = serializers.CharField()
    vendor = serializers.CharField()
    hami = ComparedAmountSerializer()
    reported_memory_mib = reported_field()
    right = ComparedAmountSerializer()
    pods = ComparedPodSerializer(many=True)


class GonePodSerializer(serializers.Serializer[Any]):
    """What HAMi's metrics say it holds on a card for a pod that holds nothing there."""

    namespace = serializers.CharField()
    name = serializers.CharField()
    node = serializers.CharField()
    device = serializers.CharField()
    memory_mib = serializers.IntegerField()
    whereabouts = fields.word(Whereabouts)


class CardSumSerializer(serializers.Serializer[Any]):
    """How many cards, and what they come to."""

    cards = serializers.IntegerField()
    slots = serializers.IntegerField()
    memory_mib = serializers.IntegerField()
    cores = serializers.IntegerField()


class PodSumSerializer(serializers.Serializer[Any]):
    """How many pods, and what they come to."""

    pods = serializers.IntegerField()
    slots = serializers.IntegerField()
    memory_mib = serializers.IntegerField()
    cores = serializers.IntegerField()


class GoneSumSerializer(serializers.Serializer[Any]):
    """How many pods, and the memory that HAMi holds for them."""

    pods = serializers.IntegerField()
    memory_mib = serializers.IntegerField()


class ComparedTotalsSerializer(serializers.Serializer[Any]):
    """What was compared, how much of it differs, and the four lists in numbers."""

    compared_cards = serializers.IntegerField()
    compared_pods = serializers.IntegerField()
    differing_cards = serializers.IntegerField()
    differing_namespaces = serializers.IntegerField()
    over_total = CardSumSerializer()
    under_counted = PodSumSerializer()
    held_back = PodSumSerializer()
    gone = GoneSumSerializer()


class HamiMetricsSerializer(serializers.Serializer[Any]):
    """Where HAMi's metrics were read, and why they were not; empty where they were."""

    address = serializers.CharField()
    problem = serializers.CharField(allow_blank=True)


class ComparisonSerializer(serializers.Serializer[Any]):
    """What HAMi books and what is right. A pod may be short of one thing and hold back another."""

    formula = fields.word(Formula)
    as_of = serializers.DateTimeField()
    doubt = serializers.CharField(
        allow_blank=True, help_text="Why the books may not tell all; empty: they do."
    )
    hami_metrics = HamiMetricsSerializer(allow_null=True)
    totals = ComparedTotalsSerializer()
    cards = ComparedCardSerializer(many=True)
    under_counted = ComparedPodSerializer(many=True)
    held_back = ComparedPodSerializer(many=True)
    gone = GonePodSerializer(many=True)
    namespaces = ComparedNamespaceSerializer(many=True)


class Compare(Endpoint):
    """GET /api/v1/compare"""

    parameters = (
        Choice("formula", f"The version of HAMi; {compare.DEFAULT_FORMULA} where it is not given.", Formula),
        Parameter("node", "Only what concerns this node."),
        Parameter("namespace", "Only what concerns this namespace."),
        Flag("all", "Also cards and namespaces without a difference."),
    )

    @extend_schema(summary="What HAMi books, and what is right", responses=ComparisonSerializer)
    def get(self, request: Request) -> Response:
        """Every difference names its pods with both numbers; cards over their total come first."""
        now = timezone.now()
        page = scrape.hami(settings.HAMIACCT.hami_metrics_url)
        found = compare.compare(
            self.given["formula"] or compare.DEFAULT_FORMULA,
            page.reported if page else None,
            node=self.given["node"],
            namespace=self.given["namespace"],
            everything=bool(self.given["all"]),
        )
        return Response(comparison_answer(found, page, as_of=now, doubt=inbox.doubt(now)))


def comparison_answer(
    found: comparison.Comparison, page: scrape.Page | None, *, as_of: datetime, doubt: str
) -> dict[str, Any]:
    """The shape of a comparison."""
    return {
        "formula": found.formula,
        "as_of": as_of,
        "doubt": doubt,
        "hami_metrics": {"address": page.source, "problem": page.problem} if page else None,
        "totals": {
            "compared_cards": found.compared_cards,
            "compared_pods": found.compared_pods,
            "differing_cards": found.differing_cards,
            "differing_namespaces": found.differing_namespaces,
            "over_total": {"cards": found.excess.count, **_amount(found.excess.amount)},
            "under_counted": {"pods": found.short.count, **_amount(found.short.amount)},
            "held_back": {"pods": found.over.count, **_amount(found.over.amount)},
            "gone": {"pods": found.for_nobody.count, "memory_mib": found.for_nobody.amount.memory_mib},
        },
        "cards": [_card(card) for card in found.cards],
        "under_counted": _shares(found.under_counted),
        "held_back": _shares(found.held_back),
        "gone": [
            {
                "namespace": one.namespace,
                "name": one.name,
                "node": one.node,
                "device": one.device,
                "memory_mib": one.memory_mib,
                "whereabouts": one.whereabouts,
            }
            for one in found.gone
        ],
        "namespaces": [
            {
                "namespace": one.namespace,
                "vendor": one.vendor,
                "hami": _amount(one.hami),
                "reported_memory_mib": one.reported_mib,
                "right": _amount(one.right),
                "pods": _shares(one.shares),
            }
            for one in found.namespaces
        ],
    }


def _amount(amount: Amount) -> dict[str, int]:
    return {"slots": amount.slots, "memory_mib": amount.memory_mib, "cores": amount.cores}


def _shares(shares: Iterable[comparison.Share]) -> list[dict[str, Any]]:
    return [
        {
            "uid": share.uid,
            "namespace": share.namespace,
            "name": share.name,
            "state": share.state,
            "node": share.node,
            "device": share.device,
            "vendor": share.vendor,
            "hami": _amount(share.hami),
            "reported_memory_mib": share.reported_mib,
            "right": _amount(share.right),
        }
        for share in shares
    ]


def _card(card: comparison.Card) -> dict[str, Any]:
    return {
        "node": card.node,
        "uuid": card.uuid,
        "vendor": card.vendor,
        "index": card.index,
        "registered": card.registered,
        "total": _amount(card.total),
        "hami": _amount(card.hami),
        "reported_memory_mib": card.reported_mib,
        "right": _amount(card.right),
        "over_by": _amount(card.over_by),
        "pods": _shares(card.shares),
        "holders": [holder._asdict() for holder in card.holders],
    }

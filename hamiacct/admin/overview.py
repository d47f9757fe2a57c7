"""The admin's first page: the fleet at a glance, and everything that is not as it should be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString

from hamiacct import models
from hamiacct.admin import drawing, filters, shown
from hamiacct.admin.base import may
from hamiacct.admin.findings import subject
from hamiacct.admin.shown import Segment
from hamiacct.queries import decisions, inbox, overview, watching
from hamiacct.queries.overview import Order

QUOTAS, FINDINGS, REFUSALS, EVENTS, REASONS = 10, 8, 4, 4, 3
LAST_PAGE = 10_000
ORDERS = {
    Order.FULLEST: "fullest first",
    Order.EMPTIEST: "emptiest first",
    Order.ODDEST: "most findings first",
    Order.NAME: "by name",
}


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """What the first page shows, as far as this user may see it: 15 queries, however large the fleet."""
    at = timezone.now()
    context |= {"title": "Overview", "as_of": at}
    if may(request, "view", models.Device):
        found, odd = page_of(request)
        context |= {"totals": totals(), "fleet": found}
    if may(request, "view", models.ResourceQuota):
        context |= {"quotas": quotas(), "quotas_address": shown.list_address("resourcequota")}
        if may(request, "view", models.Finding):
            context |= findings(odd)
    if may(request, "view", models.Decision):
        context |= refusals()
    if may(request, "view", models.Event):
        context |= events(request)
    return context


def totals() -> dict[str, Any]:
    """The cluster in a few numbers."""
    found = overview.totals()
    room = found.memory
    used, total = shown.gib(room.used), shown.gib(room.total)
    within = min(room.used, room.total)
    parts = (
        ("empty", "empty", found.empty),
        ("low", "up to half", found.below_half),
        ("high", "over half", found.above_half),
        ("full", "full", found.full),
        ("over", "overcommitted", found.over),
    )
    told = ", ".join(f"{number} {word}" for _, word, number in parts if number)
    return {
        "found": found,
        "used": used,
        "total": total,
        "free": shown.gib(room.free),
        "percent": round(shown.percent(room.used, room.total)),
        "bar": shown.bar(
            room.total, [Segment("steady", within, "used")], f"{used} of {total} used", height=8
        ),
        "fullness": shown.bar(
            found.cards,
            [Segment(f"level-{look}", number, word) for look, word, number in parts],
            told,
            height=8,
        ),
        "parts": parts,
        "pods": [
            (
                state.value,
                f"{number}+" if number == overview.MOST_COUNTED else number,
                shown.list_address("pod", state=state.value),
            )
            for state, number in found.pods_by_state.items()
        ],
    }


@dataclass(frozen=True, slots=True)
class RackTile:
    """A node with its cards."""

    name: str
    address: str
    tiles: tuple[drawing.Tile, ...]
    badges: tuple[tuple[str, str, str], ...]
    used: str
    total: str
    others: int


def page_of(request: HttpRequest) -> tuple[dict[str, Any], overview.Oddities]:
    """One page of nodes; which one, and in which order, is in the address. And what is odd anywhere."""
    order = _order(request.GET.get("order", ""))
    number = _number(request.GET.get("page", ""))
    node = request.GET.get("node", "").replace(shown.NOWHERE, "").strip()
    vendor = request.GET.get("vendor", "")
    is_odd = request.GET.get("odd", "") == "1"
    vendors = filters.vendor_keys()
    found, odd = overview.page(
        node=node, vendor=vendor if vendor in vendors else "", is_odd=is_odd, order=order, number=number
    )
    asked = {"node": node, "vendor": vendor, "odd": "1" if is_odd else "", "order": order.value}
    asked = {name: value for name, value in asked.items() if value}

    def page(other: int) -> str:
        return f"{reverse('admin:index')}?{urlencode({**asked, 'page': other})}#fleet"

    shown_ = {
        "racks": [_rack(rack) for rack in found.racks],
        "number": number,
        "previous": page(number - 1) if number > 1 else "",
        "next": page(number + 1) if found.has_more else "",
        "orders": [(one.value, label, one is order) for one, label in ORDERS.items()],
        "vendors": [(key, key == vendor) for key in vendors],
        "node": node,
        "is_odd": is_odd,
        "is_narrowed": bool(node or vendor or is_odd),
    }
    return shown_, odd


def _order(text: str) -> Order:
    return Order(text) if text in {order.value for order in Order} else Order.FULLEST


def _number(text: str) -> int:
    return min(max(int(text), 1), LAST_PAGE) if text.isascii() and text.isdigit() and len(text) < 9 else 1


def _rack(rack: overview.Rack) -> RackTile:
    return RackTile(
        rack.name,
        shown.address("node", rack.name),
        tuple(drawing.tile(card) for card in rack.cards),
        tuple((note.code.value, "warn", note.detail) for note in rack.notes),
        shown.gib(sum(card.used_mib for card in rack.cards)),
        shown.gib(sum(card.total_mib for card in rack.cards)),
        rack.others,
    )


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit and its bar."""

    bar: overview.QuotaBar
    drawn: SafeString
    address: str
    numbers: str
    over: str


def quotas() -> list[Quota]:
    """The fullest limits."""

    def words(bar: overview.QuotaBar, amount: int) -> str:
        return shown.gib(amount) if bar.is_memory else f"{amount} cores"

    return [
        Quota(
            bar,
            shown.quota_bar(bar.used, bar.hard),
            shown.address("resourcequota", bar.id),
            f"{words(bar, bar.used)} / {words(bar, bar.hard)}",
            words(bar, bar.over_by) if bar.over_by else "",
        )
        for bar in overview.quota_bars(QUOTAS)
    ]


def findings(odd: overview.Oddities) -> dict[str, Any]:
    """What is odd: how often, and the newest of each code."""
    return {
        "findings": [
            {
                "code": one.newest.code,
                "number": one.number,
                "address": shown.list_address("finding", finding=one.newest.code),
                "subject": subject(one.newest),
                "detail": one.newest.detail,
                "since": one.newest.since,
            }
            for one in odd.by_code[:FINDINGS]
        ],
        "findings_number": odd.number,
        "more_codes": max(0, len(odd.by_code) - FINDINGS),
        "findings_address": shown.list_address("finding"),
    }


def refusals() -> dict[str, Any]:
    """The last refusals with their reasons."""
    found = decisions.page(pod="", namespace="", verdict=None, after=None, limit=REFUSALS)
    return {
        "refusals": [
            {
                "at": one.at,
                "question": one.question.value,
                "verdict": shown.state(one.verdict.value),
                "pod": f"{one.namespace}/{one.pod}".strip("/"),
                "message": one.message,
                "reasons": reasons(one.reasons),
                "address": shown.list_address("decision", q=f"{one.namespace}/{one.pod}") if one.pod else "",
            }
            for one in found.items
        ],
        "refusals_address": shown.list_address("decision"),
    }


def reasons(by_name: Mapping[str, Sequence[str]]) -> list[tuple[str, int]]:
    """Why not, and on how many nodes, the most frequent first."""
    counted = [(name, len(nodes)) for name, nodes in by_name.items()]
    return sorted(counted, key=lambda one: (-one[1], one[0]))[:REASONS]


def events(request: HttpRequest) -> dict[str, Any]:
    """The inbox, whether the books are complete, who watches, and what could not be read."""
    at = timezone.now()
    backlog = inbox.backlog(at)
    refused = overview.refused_events(EVENTS)
    return {
        "backlog": backlog,
        "is_late": backlog.lag_seconds > settings.HAMIACCT.max_lag_seconds,
        "is_complete": inbox.is_complete(),
        "watcher": watching.watcher(at),
        "refused_events": [
            {"event": one, "address": shown.address("event", one.id)} for one in refused[:EVENTS]
        ],
        "more_refused": len(refused) > EVENTS,
        "refused_address": shown.list_address("event", state="refused"),
        "may_replay": may(request, "change", models.Event),
        "events_address": shown.list_address("event"),
    }

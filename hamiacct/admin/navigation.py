"""What the sidebar leads to: what this user may see."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Group, User
from django.db.models import Model
from django.http import HttpRequest
from django.urls import reverse

from hamiacct import models
from hamiacct.admin.base import may

BOOKS: tuple[tuple[type[Model], str, str], ...] = (
    (models.Node, "Nodes", "dns"),
    (models.Device, "Devices", "memory"),
    (models.Pod, "Pods", "deployed_code"),
    (models.UsageEntry, "Usage", "stacked_bar_chart"),
    (models.LedgerEntry, "Ledger", "receipt_long"),
)
LIMITS: tuple[tuple[type[Model], str, str], ...] = (
    (models.ResourceQuota, "Quotas", "speed"),
    (models.Reservation, "Reservations", "event_available"),
    (models.Decision, "Refusals", "block"),
)
WATCH: tuple[tuple[type[Model], str, str], ...] = (
    (models.Finding, "Findings", "warning"),
    (models.Event, "Inbox", "inbox"),
)
PEOPLE: tuple[tuple[type[Model], str, str], ...] = (
    (models.ApiToken, "Tokens", "key"),
    (User, "Users", "person"),
    (Group, "Groups", "group"),
)


def sections(request: HttpRequest) -> list[dict[str, Any]]:
    """The sidebar's sections. The audit stands beside the ledger it reads."""
    books = _items(request, BOOKS)
    if may(request, "view", models.LedgerEntry):
        audit = reverse("admin:hamiacct_audit")
        of_audit = request.path in (audit, reverse("admin:hamiacct_repair"))
        books[-1]["active"] = request.path.startswith(books[-1]["link"]) and not of_audit
        books.append({"title": "Audit", "icon": "balance", "link": audit, "active": of_audit})
    overview = {"title": "Overview", "icon": "grid_view", "link": reverse("admin:index")}
    found: list[dict[str, Any]] = [
        {"title": "", "items": [overview]},
        {"title": "Books", "separator": True, "items": books},
        {"title": "Limits", "separator": True, "items": _items(request, LIMITS)},
        {"title": "Attention", "separator": True, "items": _items(request, WATCH)},
        {"title": "Access", "separator": True, "items": _items(request, PEOPLE)},
    ]
    return [section for section in found if section["items"]]


def _items(request: HttpRequest, shown: tuple[tuple[type[Model], str, str], ...]) -> list[dict[str, Any]]:
    return [
        {
            "title": title,
            "icon": icon,
            "link": reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist"),
        }
        for model, title, icon in shown
        if may(request, "view", model)
    ]

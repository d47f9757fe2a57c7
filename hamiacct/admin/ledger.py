"""The ledger, read only for everybody, and whether the books agree: the audit and the repair."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sized
from dataclasses import dataclass

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.safestring import SafeString
from unfold.decorators import display

from hamiacct import models
from hamiacct.accounting.words import Book, Rule
from hamiacct.admin import filters, shown
from hamiacct.admin.base import BooksAdmin, Rows, may, note
from hamiacct.admin.pods import uids_of
from hamiacct.operations import audit

NEWEST = 500_000
SHOWN_DIFFERENCES = 500


def newest(rows: Rows) -> Rows:
    """The newest half million lines: rules have no index, so that posting is quick."""
    last = models.LedgerHead.objects.values_list("seq", flat=True).first() or 0
    return rows.filter(seq__gt=last - NEWEST)


@admin.register(models.LedgerEntry)
class LedgerAdmin(BooksAdmin):
    """Ledger lines, newest first."""

    plural = "ledger entries"
    list_display = (
        "seq",
        "at",
        "rule_word",
        "pod_link",
        "device_link",
        "slots",
        "memory",
        "cores",
        "reason",
    )
    list_filter = (
        filters.named("pod", filters.equal("pod_uid"), "pod uid"),
        filters.named("namespace", filters.equal("namespace")),
        filters.named("node", filters.equal("node")),
        filters.named("device", filters.equal("device"), "device uuid"),
        filters.chosen(
            "rule", lambda: [rule.value for rule in Rule], lambda rows, value: newest(rows.filter(rule=value))
        ),
    )
    search_fields = ("pod_uid",)
    search_help_text = "a pod's uid, the beginning of its name, or namespace/name"
    ordering = ("-seq",)
    list_before_template = "hamiacct/to_audit.html"
    fields = (
        "seq",
        "at",
        "rule_word",
        "reason",
        "pod_link",
        "pod_uid",
        "namespace",
        "device_link",
        "node",
        "device",
        "vendor",
        "slots",
        "memory_mib",
        "cores",
        "quota_cores",
        "resource_version",
    )
    readonly_fields = fields

    def searched(self, rows: Rows, term: str) -> Rows:
        """By pod; one that was swept from the books is found by its uid."""
        return rows.filter(pod_uid__in=[term, *uids_of(term)])

    def get_urls(self) -> list[URLPattern]:
        """The audit beside the lines."""
        mine = [
            path("audit/", self.admin_site.admin_view(self.audit_view), name="hamiacct_audit"),
            path("repair/", self.admin_site.admin_view(self.repair_view), name="hamiacct_repair"),
        ]
        return [*mine, *super().get_urls()]

    @display(description="rule")
    def rule_word(self, line: models.LedgerEntry) -> SafeString:
        """Why."""
        return shown.badge(line.rule, "good" if line.memory_mib < 0 else "plain")

    @display(description="memory (MiB)")
    def memory(self, line: models.LedgerEntry) -> int:
        """How much more, or less."""
        return line.memory_mib

    @display(description="pod")
    def pod_link(self, line: models.LedgerEntry) -> SafeString | str:
        """Whose."""
        return (
            shown.link(line.pod_uid, shown.address("pod", line.pod_uid)) if line.pod_uid else line.namespace
        )

    @display(description="device")
    def device_link(self, line: models.LedgerEntry) -> SafeString | str:
        """On what."""
        if not line.device:
            return ""
        return shown.link(
            f"{line.node}/{line.device}", shown.list_address("device", q=line.device, node=line.node)
        )

    # --- do the books agree? ---

    def audit_view(self, request: HttpRequest) -> HttpResponse:
        """Offers the audit; runs it when asked to, since it reads everything."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        return self._audit(request) if request.method == "POST" else self._page(request, None)

    def repair_view(self, request: HttpRequest) -> HttpResponse:
        """Shows what a repair would change, and repairs when exactly that is confirmed."""
        if not may(request, "change", models.LedgerEntry):
            raise PermissionDenied
        return self._confirmed(request) if request.method == "POST" else self._page(request, None)

    def _audit(self, request: HttpRequest) -> HttpResponse:
        found = self._look(request)
        return self._page(request, found)

    def _look(self, request: HttpRequest) -> audit.Audit | None:
        try:
            return audit.audit()
        except DatabaseError as fault:
            self.message_user(request, f"the books cannot be read: {fault}", messages.ERROR)
            return None

    def _confirmed(self, request: HttpRequest) -> HttpResponse:
        found = self._look(request)
        if found is None:
            return HttpResponseRedirect(reverse("admin:hamiacct_audit"))
        if request.POST.get("confirm") != fingerprint(found):
            if "confirm" in request.POST:
                text = "the books have moved since that page was made: this is what a repair would change now"
                self.message_user(request, text, messages.WARNING)
            return self._page(request, found, is_asked=True)
        try:
            repaired = audit.repair(at=timezone.now())
        except DatabaseError as fault:
            self.message_user(request, f"nothing was repaired: {fault}", messages.ERROR)
            return HttpResponseRedirect(reverse("admin:hamiacct_audit"))
        head = models.LedgerHead.objects.first()
        if head is not None:
            note(request, [head], f"repaired {places(repaired)}")
        verb = "was" if len(repaired) == 1 else "were"
        self.message_user(request, f"{places(repaired)} {verb} put right", messages.SUCCESS)
        return self._page(request, self._look(request), repaired=would_change(found))

    def _page(
        self,
        request: HttpRequest,
        found: audit.Audit | None,
        *,
        is_asked: bool = False,
        repaired: Iterable[Change] = (),
    ) -> HttpResponse:
        differences = found.discrepancies if found is not None else ()
        changes = would_change(found) if found is not None else []
        context = {
            **self.admin_site.each_context(request),
            "title": "Repair the books" if is_asked else "Do the books agree?",
            "opts": self.opts,
            "found": found,
            "is_asked": is_asked,
            "would_change": changes[:SHOWN_DIFFERENCES],
            "more": max(0, len(changes) - SHOWN_DIFFERENCES),
            "left_alone": [change(one) for one in differences if one.book is Book.ENTRIES][
                :SHOWN_DIFFERENCES
            ],
            "repaired": list(repaired)[:SHOWN_DIFFERENCES],
            "fingerprint": fingerprint(found) if found is not None else "",
            "may_repair": may(request, "change", models.LedgerEntry),
            "audit_address": reverse("admin:hamiacct_audit"),
            "repair_address": reverse("admin:hamiacct_repair"),
        }
        return TemplateResponse(request, "hamiacct/audit.html", context)


def places(repaired: Sized) -> str:
    """How many, in words."""
    return f"{len(repaired)} place" + ("" if len(repaired) == 1 else "s")


@dataclass(frozen=True, slots=True)
class Change:
    """One place, and the amounts that differ there."""

    book: str
    key: str
    amounts: tuple[tuple[str, int, int], ...]


def change(one: audit.Discrepancy) -> Change:
    """What a repair would make of one place: totals follow the entries; the replay gets a line that does."""
    return Change(one.book, one.key, differing(one.stored, one.expected))


def would_change(found: audit.Audit) -> list[Change]:
    """What a repair would change; entries are the truth, so those that differ are left alone."""
    return [change(one) for one in found.discrepancies if one.book is not Book.ENTRIES]


def differing(was: Mapping[str, int], is_: Mapping[str, int]) -> tuple[tuple[str, int, int], ...]:
    """The amounts that are not the same."""
    return tuple((name, was[name], is_[name]) for name in was if was[name] != is_[name])


def fingerprint(found: audit.Audit) -> str:
    """What was shown, so that nothing else is confirmed."""
    return hashlib.sha256(repr(found.discrepancies).encode()).hexdigest()

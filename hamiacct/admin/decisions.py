"""Refusals: why not, with the numbers."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from unfold.decorators import display

from hamiacct import models
from hamiacct.accounting.words import Question, Refusal
from hamiacct.admin import filters, shown
from hamiacct.admin.base import BooksAdmin, Rows


@admin.register(models.Decision)
class DecisionAdmin(BooksAdmin):
    """Refusals, newest first."""

    list_display = ("at", "question", "stands", "namespace", "pod", "told")
    list_filter = (
        filters.named("namespace", filters.equal("namespace")),
        filters.one_of("verdict", Refusal),
        filters.one_of("question", Question),
    )
    search_fields = ("pod",)
    search_help_text = "a pod's name, exactly, or namespace/name"
    ordering = ("-id",)
    fields = (
        "at",
        "question",
        "stands",
        "namespace",
        "pod",
        "pod_link",
        "pod_uid",
        "message",
        "reasons",
        "checks",
    )
    readonly_fields = fields

    def searched(self, rows: Rows, term: str) -> Rows:
        """By the pod."""
        namespace, slash, name = term.partition("/")
        return rows.filter(Q(pod=name, namespace=namespace) if slash else Q(pod=term))

    def get_queryset(self, request: HttpRequest) -> Rows:
        """In the list, without the numbers."""
        return super().get_queryset(request).defer("reasons", "checks")

    @display(description="verdict")
    def stands(self, decision: models.Decision) -> SafeString:
        """How it was refused."""
        return shown.state(decision.verdict)

    @display(description="message")
    def told(self, decision: models.Decision) -> str:
        """What was answered, cut short."""
        return Truncator(decision.message).chars(160)

    @display(description="the pod in the books")
    def pod_link(self, decision: models.Decision) -> SafeString | str:
        """The pod, where a uid was given."""
        if not decision.pod_uid:
            return "no uid was given"
        if not models.Pod.objects.filter(pk=decision.pod_uid).exists():
            return "not in the books"
        return shown.link("pod", shown.address("pod", decision.pod_uid))

"""Tokens of callers: made and shown once, and taken back. Nothing else about one ever changes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.models import ADDITION
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.safestring import SafeString
from unfold.decorators import display
from unfold.widgets import UnfoldAdminIntegerFieldWidget, UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from hamiacct import models
from hamiacct.accounting.errors import AccountingError
from hamiacct.accounting.words import Role
from hamiacct.admin import filters, shown
from hamiacct.admin.base import BooksAdmin, Rows, may, note
from hamiacct.operations import tokens

TEN_YEARS_IN_DAYS = 3650
ROLES = {
    Role.VIEWER: "viewer: reads",
    Role.SCHEDULER: "scheduler: reads, asks and reserves",
    Role.INGESTER: "ingester: sends events and lists",
    Role.OPERATOR: "operator: everything",
}


class NewToken(forms.Form):
    """What is asked about a token before it is made."""

    name = forms.CharField(
        max_length=tokens.NAME_LENGTH,
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"}),
        help_text="who or what will use it; a name is used once",
    )
    role = forms.ChoiceField(
        choices=[(role.value, ROLES[role]) for role in Role], widget=UnfoldAdminSelectWidget()
    )
    days = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=TEN_YEARS_IN_DAYS,
        widget=UnfoldAdminIntegerFieldWidget(),
        label="expires after (days)",
        help_text="empty: never",
    )


@admin.register(models.ApiToken)
class TokenAdmin(BooksAdmin):
    """Tokens of callers. Their texts are stored nowhere."""

    list_display = ("name", "role", "stands", "created_at", "expires_at", "last_used_at")
    list_filter = (
        filters.one_of("role", Role),
        filters.yes_or_no("revoked", lambda rows, value: rows.filter(revoked_at__isnull=not value)),
    )
    search_fields = ("name",)
    search_help_text = "the beginning of a name"
    ordering = ("name",)
    actions = ("revoke",)
    object_actions = (("revoke", "Revoke", True),)
    fields = ("name", "role", "stands", "created_at", "expires_at", "revoked_at", "last_used_at")
    readonly_fields = fields

    def searched(self, rows: Rows, term: str) -> Rows:
        """By name."""
        return rows.filter(name__startswith=term)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Django's own permission to add tokens."""
        return may(request, "add", models.ApiToken)

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Asks, makes, and shows the text once: the page that has it is kept by nobody."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = NewToken(request.POST or None)
        plain = self._made(request, form) if request.method == "POST" and form.is_valid() else None
        context = {
            **self.admin_site.each_context(request),
            "title": "Make a token" if plain is None else "The new token",
            "opts": self.opts,
            "form": form,
            "plain": plain,
            "list_address": shown.list_address("apitoken"),
        }
        answer = TemplateResponse(request, "hamiacct/new_token.html", context)
        answer.headers["Cache-Control"] = "no-store"
        return answer

    def _made(self, request: HttpRequest, form: NewToken) -> str | None:
        given, now = form.cleaned_data, timezone.now()
        expires_at = now + timedelta(days=given["days"]) if given["days"] else None
        try:
            plain = tokens.create(given["name"], Role(given["role"]), at=now, expires_at=expires_at)
        except AccountingError as fault:
            form.add_error("name", str(fault))
            return None
        note(request, [models.ApiToken.objects.get(name=given["name"])], "made", ADDITION)
        return plain

    @admin.action(description="Revoke the chosen tokens", permissions=["act"])
    def revoke(self, request: HttpRequest, queryset: Rows) -> HttpResponse | None:
        """Takes tokens back for ever."""
        return self.act_on_each(request, queryset, self._revoke, "revoked")

    def _revoke(self, token: models.ApiToken) -> None:
        tokens.revoke(token.name, at=timezone.now())

    @display(description="state")
    def stands(self, token: models.ApiToken) -> SafeString:
        """Whether it opens anything."""
        if token.revoked_at is not None:
            return shown.badge("revoked", "bad")
        if token.expires_at is not None and token.expires_at <= timezone.now():
            return shown.badge("expired", "warn")
        return shown.badge("valid", "good")

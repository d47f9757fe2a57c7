"""ResourceQuotas with what their pods hold; a limit below its use says by how much."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Exists, OuterRef
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.decorators import display

from hamiacct import models
from hamiacct.accounting.words import FindingCode, SubjectKind
from hamiacct.admin import filters, shown
from hamiacct.admin.base import BooksAdmin, Rows
from hamiacct.queries import overview

OF_QUOTAS = (FindingCode.LIMIT_BELOW_USE, FindingCode.UNKNOWN_SCOPE)


@admin.register(models.ResourceQuota)
class QuotaAdmin(BooksAdmin):
    """Every limit on a line of its own, in the unit usage is counted in."""

    list_display = ("quota", "namespace", "keys", "used", "hard", "remaining", "over_by", "bars", "findings")
    list_filter = (
        filters.named("namespace", filters.equal("namespace")),
        filters.yes_or_no("deleted", lambda rows, value: rows.filter(deleted=value)),
        filters.chosen(
            "finding",
            lambda: [code.value for code in FindingCode if "quota" in code or code in OF_QUOTAS],
            lambda rows, value: rows.filter(
                Exists(
                    models.Finding.objects.filter(
                        subject_kind=SubjectKind.QUOTA,
                        code=value,
                        namespace=OuterRef("namespace"),
                        name=OuterRef("name"),
                    )
                )
            ),
        ),
    )
    search_fields = ("namespace",)
    search_help_text = "the beginning of a namespace, or namespace/name"
    ordering = ("namespace", "name")
    fields = (
        "namespace",
        "name",
        "keys",
        "used",
        "hard",
        "remaining",
        "over_by",
        "bars",
        "findings",
        "deleted",
        "resource_version",
        "history",
        "limits",
        "requests_keys",
        "not_enforced",
        "requirements",
        "unknown_scopes",
    )
    readonly_fields = fields

    def searched(self, rows: Rows, term: str) -> Rows:
        """By the beginning of the namespace, or of namespace/name."""
        namespace, slash, name = term.partition("/")
        return (
            rows.filter(namespace=namespace, name__startswith=name)
            if slash
            else rows.filter(namespace__startswith=term)
        )

    def get_queryset(self, request: HttpRequest) -> Rows:
        """With the totals, for all of a page in one query."""
        return super().get_queryset(request).prefetch_related("usage")

    @display(description="quota", ordering="name")
    def quota(self, quota: models.ResourceQuota) -> str:
        """Its name."""
        return f"{quota.name} (deleted)" if quota.deleted else quota.name

    @display(description="limit")
    def keys(self, quota: models.ResourceQuota) -> SafeString:
        """What is limited."""
        return shown.lines(bar.key for bar in overview.bars_of(quota))

    @display(description="used")
    def used(self, quota: models.ResourceQuota) -> SafeString:
        """What its pods hold."""
        return shown.lines(bar.used for bar in overview.bars_of(quota))

    @display(description="hard")
    def hard(self, quota: models.ResourceQuota) -> SafeString:
        """The limits."""
        return shown.lines(bar.hard for bar in overview.bars_of(quota))

    @display(description="remaining")
    def remaining(self, quota: models.ResourceQuota) -> SafeString:
        """What is left."""
        return shown.lines(bar.remaining for bar in overview.bars_of(quota))

    @display(description="over by")
    def over_by(self, quota: models.ResourceQuota) -> SafeString:
        """By how much it is exceeded."""
        return shown.lines(
            shown.badge(bar.over_by, "bad") if bar.over_by else 0 for bar in overview.bars_of(quota)
        )

    @display(description="")
    def bars(self, quota: models.ResourceQuota) -> SafeString:
        """How full it is."""
        return shown.lines(shown.quota_bar(bar.used, bar.hard) for bar in overview.bars_of(quota))

    @display(description="findings")
    def findings(self, quota: models.ResourceQuota) -> SafeString:
        """What is odd about it."""
        return shown.link("findings", shown.list_address("finding", namespace=quota.namespace))

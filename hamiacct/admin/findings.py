"""What is odd, since when."""

from __future__ import annotations

from django.contrib import admin
from django.utils.safestring import SafeString
from unfold.decorators import display

from hamiacct import models
from hamiacct.accounting.words import FindingCode, SubjectKind
from hamiacct.admin import filters, shown
from hamiacct.admin.base import BooksAdmin, Rows


@admin.register(models.Finding)
class FindingAdmin(BooksAdmin):
    """Findings, newest first. They come and go with their causes; nobody dismisses one."""

    list_display = ("word", "subject_kind", "subject_link", "detail", "since")
    list_filter = (
        filters.one_of("finding", FindingCode, "code"),
        filters.named("node", filters.equal("node")),
        filters.named("namespace", filters.equal("namespace")),
        filters.one_of("subject", SubjectKind, "subject_kind"),
    )
    search_fields = ("subject",)
    search_help_text = "a pod's uid, or the beginning of the name of a pod, node, device or quota"
    ordering = ("-id",)
    fields = (
        "word",
        "subject_kind",
        "subject_link",
        "node",
        "namespace",
        "name",
        "uid",
        "key",
        "detail",
        "since",
    )
    readonly_fields = fields

    def searched(self, rows: Rows, term: str) -> Rows:
        """By what it is about."""
        return rows.filter(uid=term) | rows.filter(name__startswith=term) | rows.filter(node__startswith=term)

    @display(description="finding")
    def word(self, finding: models.Finding) -> SafeString:
        """Its code."""
        return shown.badge(finding.code, "warn")

    @display(description="subject")
    def subject_link(self, finding: models.Finding) -> SafeString | str:
        """What it is about."""
        return subject(finding)


def subject(finding: models.Finding) -> SafeString | str:
    """What a finding is about, as a link; devices are found by their uuid."""
    match finding.subject_kind:
        case SubjectKind.POD:
            return shown.link(f"{finding.namespace}/{finding.name}", shown.address("pod", finding.uid))
        case SubjectKind.NODE:
            return shown.link(
                finding.node or finding.name, shown.address("node", finding.node or finding.name)
            )
        case SubjectKind.DEVICE:
            return shown.link(f"{finding.node}/{finding.name}", shown.list_address("device", q=finding.name))
        case _:
            return shown.link(
                f"{finding.namespace}/{finding.name}",
                shown.list_address("resourcequota", q=f"{finding.namespace}/{finding.name}"),
            )

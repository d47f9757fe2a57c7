"""Holds, as they stand or ended; one that stands can be given back."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.safestring import SafeString
from unfold.decorators import display

from hamiacct import models
from hamiacct.accounting.words import ReservationState
from hamiacct.admin import filters, shown
from hamiacct.admin.base import BooksAdmin, Rows
from hamiacct.operations import reservations


@admin.register(models.Reservation)
class ReservationAdmin(BooksAdmin):
    """The last hold of each pod."""

    list_display = ("hold", "stands", "node_link", "pod_link", "created_at", "expires_at", "changed_at")
    list_filter = (
        filters.named("namespace", filters.equal("namespace")),
        filters.named("node", filters.equal("node")),
        filters.one_of("state", ReservationState),
    )
    search_fields = ("name",)
    search_help_text = "a pod's uid, the beginning of its name, or namespace/name"
    ordering = ("pod_uid",)
    actions = ("release",)
    object_actions = (("release", "Release", True),)
    fields = (
        "pod_uid",
        "pod_link",
        "namespace",
        "name",
        "node",
        "stands",
        "score",
        "created_at",
        "expires_at",
        "changed_at",
        "allocations",
        "annotations",
        "labels",
    )
    readonly_fields = fields

    def searched(self, rows: Rows, term: str) -> Rows:
        """By the pod."""
        namespace, slash, name = term.partition("/")
        if slash:
            return rows.filter(namespace=namespace, name__startswith=name)
        return rows.filter(pod_uid=term) | rows.filter(name__startswith=term)

    @admin.action(description="Release the chosen reservations", permissions=["act"])
    def release(self, request: HttpRequest, queryset: Rows) -> HttpResponse | None:
        """Gives holds back, as their owners could."""
        return self.act_on_each(
            request, queryset, lambda hold: reservations.release(hold.pk, at=timezone.now()), "released"
        )

    @display(description="reservation")
    def hold(self, hold: models.Reservation) -> str:
        """Whose it is."""
        return f"{hold.namespace}/{hold.name}"

    @display(description="state")
    def stands(self, hold: models.Reservation) -> SafeString:
        """Where it is in its life."""
        return shown.state(hold.state)

    @display(description="node")
    def node_link(self, hold: models.Reservation) -> SafeString:
        """Where it holds."""
        return shown.link(hold.node, shown.list_address("device", node=hold.node))

    @display(description="pod")
    def pod_link(self, hold: models.Reservation) -> SafeString:
        """The pod it is for."""
        return shown.link("pod", shown.address("pod", hold.pod_uid))

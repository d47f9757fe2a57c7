"""Nodes and their devices. A device's own page shows who holds what of it, and why."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Exists, OuterRef
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString
from unfold.decorators import display

from hamiacct import models
from hamiacct.accounting.words import FindingCode
from hamiacct.admin import drawing, filters, shown
from hamiacct.admin.base import BooksAdmin, Rows
from hamiacct.queries import findings, folds


@admin.register(models.Node)
class NodeAdmin(BooksAdmin):
    """Nodes as their last events showed them."""

    list_display = ("name", "stands", "cordoned_devices", "resource_version", "devices", "findings")
    list_filter = (
        filters.yes_or_no("deleted", lambda rows, value: rows.filter(deleted=value)),
        filters.yes_or_no("unschedulable", lambda rows, value: rows.filter(unschedulable=value)),
        filters.chosen(
            "finding",
            lambda: [code.value for code in FindingCode],
            lambda rows, value: rows.filter(
                Exists(models.Finding.objects.filter(node=OuterRef("name"), code=value))
            ),
        ),
    )
    search_fields = ("name",)
    search_help_text = "the beginning of a node's name"
    ordering = ("name",)
    stored = (
        "name",
        "stands",
        "devices",
        "findings",
        "resource_version",
        "history",
        "unschedulable",
        "deleted",
        "cordoned",
        "handshake_expires_at",
        "vendors",
        "pair_scores",
        "labels",
        "annotations",
    )
    fieldsets = (("as stored", {"fields": stored, "classes": ("collapse",)}),)
    readonly_fields = stored

    def searched(self, rows: Rows, term: str) -> Rows:
        """By the beginning of the name."""
        return rows.filter(name__startswith=term)

    def get_queryset(self, request: HttpRequest) -> Rows:
        """Without what only the codec needs."""
        return super().get_queryset(request).defer("manifest")

    @display(description="state")
    def stands(self, node: models.Node) -> SafeString:
        """Whether it is there, and takes pods."""
        if node.deleted:
            return shown.badge("deleted", "bad")
        return shown.badge("unschedulable", "warn") if node.unschedulable else shown.badge("ready", "good")

    @display(description="cordoned devices")
    def cordoned_devices(self, node: models.Node) -> int:
        """How many of its devices take no more pods."""
        return len(node.cordoned)

    @display(description="devices")
    def devices(self, node: models.Node) -> SafeString:
        """The devices of it."""
        return shown.link("devices", shown.list_address("device", node=node.name))

    @display(description="findings")
    def findings(self, node: models.Node) -> SafeString:
        """What is odd there."""
        return shown.link("findings", shown.list_address("finding", node=node.name))


@admin.register(models.Device)
class DeviceAdmin(BooksAdmin):
    """Devices with what is used of them."""

    list_display = ("device", "node_link", "index", "vendor", "model", "memory", "slots", "cores", "stands")
    list_filter = (
        filters.named("node", filters.equal("node")),
        filters.chosen("vendor", filters.vendor_keys, filters.equal("vendor")),
        filters.yes_or_no("registered", lambda rows, value: rows.filter(registered=value)),
        filters.yes_or_no("healthy", lambda rows, value: rows.filter(healthy=value)),
        filters.yes_or_no("cordoned", lambda rows, value: rows.filter(cordoned=value)),
        filters.yes_or_no(
            "in_use",
            lambda rows, value: rows.filter(slots_used__gt=0) if value else rows.filter(slots_used=0),
            "in use",
        ),
        filters.chosen(
            "finding",
            lambda: [code.value for code in FindingCode],
            lambda rows, value: rows.filter(findings.on_device(FindingCode(value))),
        ),
    )
    search_fields = ("node", "uuid")
    search_help_text = "a uuid, or the beginning of a node's name"
    ordering = ("node", "uuid")
    change_form_template = "hamiacct/device.html"
    stored = (
        "node",
        "uuid",
        "index",
        "vendor",
        "model",
        "numa",
        "mode",
        "stands",
        "memory",
        "slots",
        "cores",
        "mig_profiles",
        "custom",
    )
    fieldsets = (("as stored", {"fields": stored, "classes": ("collapse",)}),)
    readonly_fields = stored

    def searched(self, rows: Rows, term: str) -> Rows:
        """By the uuid, or by the beginning of the node's name."""
        return rows.filter(uuid=term) | rows.filter(node__startswith=term)

    def get_queryset(self, request: HttpRequest) -> Rows:
        """Without what only questions need."""
        return super().get_queryset(request).defer("mig_profiles", "custom")

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Who holds what of the card, stacked, and each holder's fold; four queries more."""
        row = self.get_object(request, object_id)
        card = None
        if row is not None and self.has_view_permission(request, row):
            card = drawing.card(folds.on_device(row), findings.of_devices([(row.node, row.uuid)]))
        return super().change_view(request, object_id, form_url, {"card": card, **(extra_context or {})})

    @display(description="device", ordering="uuid")
    def device(self, device: models.Device) -> str:
        """Its uuid."""
        return device.uuid

    @display(description="node", ordering="node")
    def node_link(self, device: models.Device) -> SafeString:
        """Its node."""
        return shown.link(device.node, shown.address("node", device.node))

    @display(description="memory (MiB)")
    def memory(self, device: models.Device) -> SafeString:
        """Used and total."""
        return shown.use(device.memory_mib_used, device.memory_mib_total)

    @display(description="slots")
    def slots(self, device: models.Device) -> SafeString:
        """Used and total."""
        return shown.use(device.slots_used, device.slots_total, "slots")

    @display(description="cores")
    def cores(self, device: models.Device) -> SafeString:
        """Used and total."""
        return shown.use(device.cores_used, device.cores_total, "cores")

    @display(description="state")
    def stands(self, device: models.Device) -> SafeString:
        """What keeps it from being offered."""
        return shown.badges(drawing.condition(device.registered, device.healthy, device.cordoned))

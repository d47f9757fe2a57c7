"""Pods and what they hold. A pod's own page tells why its charge is what it is, and how it came to be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.actions import delete_selected
from django.contrib.admin.models import DELETION
from django.contrib.admin.utils import unquote
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.utils.safestring import SafeString
from unfold.decorators import display

from hamiacct import models
from hamiacct.accounting.words import FindingCode, PodState
from hamiacct.admin import drawing, filters, shown
from hamiacct.admin.base import BooksAdmin, Rows, may, note
from hamiacct.operations import pods
from hamiacct.queries import explanations, findings, folds

FOUND_BY_NAME = 1000
NAMED_AT_ONCE = 50


def by_name(term: str) -> Q:
    """Pods by uid, by namespace/name (the name may be cut short), or by the beginning of their name."""
    namespace, slash, name = term.partition("/")
    if slash:
        return Q(namespace=namespace, name__startswith=name)
    return Q(uid=term) | Q(name__startswith=term)


def uids_of(term: str) -> list[str]:
    """The uids of the pods that a term finds, a thousand at most."""
    return list(models.Pod.objects.filter(by_name(term)).values_list("uid", flat=True)[:FOUND_BY_NAME])


@admin.register(models.Pod)
class PodAdmin(BooksAdmin):
    """Pods as charged. Deleting one releases what it holds; a newer event brings it back (decision 36)."""

    list_display = ("pod", "namespace", "stands", "node_link", "phase", "rule", "memory", "changed_at")
    list_filter = (
        filters.named("namespace", filters.equal("namespace")),
        filters.named("node", lambda rows, value: rows.filter(Q(node=value) | Q(vgpu_node=value))),
        filters.one_of("state", PodState),
        filters.chosen(
            "finding",
            lambda: [code.value for code in FindingCode],
            lambda rows, value: rows.filter(findings.on_pod(FindingCode(value))),
        ),
    )
    search_fields = ("name",)
    search_help_text = "a uid, the beginning of a name, or namespace/name"
    ordering = ("namespace", "name")
    change_form_template = "hamiacct/pod.html"
    delete_selected_confirmation_template = "hamiacct/release_pods.html"
    delete_confirmation_template = "hamiacct/release_pods.html"
    stored = (
        "uid",
        "namespace",
        "name",
        "node",
        "vgpu_node",
        "phase",
        "state",
        "rule",
        "charged_as",
        "inits_released",
        "resource_version",
        "history",
        "changed_at",
        "ended_by",
        "ended_at",
        "deletion_timestamp",
        "scheduler_name",
        "priority_class",
        "bind_phase",
        "allocations",
        "containers",
        "labels",
        "annotations",
    )
    fieldsets = (("as stored", {"fields": stored, "classes": ("collapse",)}),)
    readonly_fields = stored

    def searched(self, rows: Rows, term: str) -> Rows:
        """By uid or name."""
        return rows.filter(by_name(term))

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """The page's rows, each with the memory it holds: one query for all of them."""
        changes = super().get_changelist_instance(request)
        changes.result_list = list(changes.result_list)
        held = folds.memory_of([row.uid for row in changes.result_list])
        for row in changes.result_list:
            row.held_mib = held.get(row.uid, 0)
        return changes

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """The sentence, the fold step by step, and the timeline of charges from the ledger."""
        uid = unquote(object_id)
        context: dict[str, Any] = dict(extra_context or {})
        row = self.get_object(request, object_id)
        if row is not None and self.has_view_permission(request, row):
            entries = row.entries.select_related("device").order_by("device__node", "device__uuid")
            context |= {
                "story": drawing.story(explanations.of_pod(uid)),
                "held": [
                    {"entry": entry, "address": shown.address("device", entry.device_id)} for entry in entries
                ],
                "notes": findings.of_pods([uid]).get(uid, ()),
                "ledger_address": shown.list_address("ledgerentry", pod=uid),
                "hold_address": shown.address("reservation", uid),
                "has_hold": models.Reservation.objects.filter(pod_uid=uid).exists(),
                "may_release": self.has_delete_permission(request, row),
            }
        return super().change_view(request, object_id, form_url, context)

    @display(description="pod", ordering="name")
    def pod(self, pod: models.Pod) -> str:
        """Its name."""
        return pod.name

    @display(description="state")
    def stands(self, pod: models.Pod) -> SafeString:
        """Where it stands in the books."""
        return shown.state(pod.state)

    @display(description="node")
    def node_link(self, pod: models.Pod) -> SafeString | str:
        """Where it is bound, or claimed to go."""
        name = pod.node or pod.vgpu_node
        return shown.link(name, shown.list_address("device", node=name)) if name else ""

    @display(description="memory (MiB)")
    def memory(self, pod: models.Pod) -> int:
        """What it holds, over all its devices."""
        return int(getattr(pod, "held_mib", 0))

    # --- deleting, which releases ---

    def has_delete_permission(self, request: HttpRequest, obj: models.Pod | None = None) -> bool:  # type: ignore[override]
        """Django's own permission to delete pods."""
        return may(request, "delete", models.Pod)

    def get_deleted_objects(
        self, objs: Any, request: HttpRequest
    ) -> tuple[list[str], dict[str, int], set[str], list[str]]:
        """What would go: the pods' charges. The first ones by name, the others as a number."""
        if isinstance(objs, Sequence):
            named, count = [str(one) for one in objs[:NAMED_AT_ONCE]], len(objs)
        else:
            named, count = [str(one) for one in objs[:NAMED_AT_ONCE]], objs.count()
        if count > len(named):
            named.append(f"and {count - len(named)} more")
        return named, {str(self.opts.verbose_name_plural): count}, set(), []

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Deleting the chosen ones, with our answer: Django's counts those that stay as they are, too."""
        actions: dict[str, Any] = super().get_actions(request)
        if "delete_selected" in actions:
            _, name, description = actions["delete_selected"]
            actions[name] = (PodAdmin.release_chosen, name, description)
        return actions

    def release_chosen(self, request: HttpRequest, queryset: Rows) -> HttpResponse | None:
        """Asks first; then releases the chosen pods, however many there are."""
        if not request.POST.get("post"):
            asked: HttpResponse | None = delete_selected(self, request, queryset)
            return asked
        self._release(request, list(queryset.only("uid", "namespace", "name")))
        return None

    def delete_model(self, request: HttpRequest, obj: models.Pod) -> None:
        """Releases one pod."""
        self._release(request, [obj])

    def _release(self, request: HttpRequest, chosen: Sequence[models.Pod]) -> None:
        """Releases, writes down who released which, and says which stay as they are."""
        released = pods.release([pod.uid for pod in chosen], at=timezone.now())
        gone = [pod for pod in chosen if pod.uid in released]
        left = [pod for pod in chosen if pod.uid not in released]
        if gone:
            note(request, gone, "released from the books", DELETION)
            what = str(gone[0]) if len(gone) == 1 else f"{len(gone)} pods"
            self.message_user(request, f"{what}: released from the books", messages.SUCCESS)
        if left:
            what = str(left[0]) if len(left) == 1 else f"{len(left)} pods"
            text = f"{what}: not released; what has ended, or is being bound just now, stays as it is"
            self.message_user(request, text, messages.WARNING)

    def log_deletions(self, request: HttpRequest, queryset: Any) -> None:
        """Not yet: what is released is written down once it is."""

    def response_delete(self, request: HttpRequest, obj_display: str, obj_id: str) -> HttpResponse:
        """Back to the pod, which is still there: ended, with its ledger."""
        return HttpResponseRedirect(shown.address("pod", obj_id))


@admin.register(models.UsageEntry)
class UsageEntryAdmin(BooksAdmin):
    """What one pod holds of one device: the books themselves, read only for everybody."""

    plural = "usage entries"
    list_display = ("entry", "pod_link", "device_link", "vendor", "slots", "memory", "cores")
    list_display_links = ("entry",)
    list_filter = (
        filters.named("node", lambda rows, value: rows.filter(device_id__in=devices_of(value))),
        filters.named("namespace", lambda rows, value: rows.filter(pod__namespace=value)),
        filters.chosen("vendor", filters.vendor_keys, filters.equal("vendor")),
    )
    list_select_related = ("pod", "device")
    search_fields = ("pod",)
    search_help_text = "a pod's uid, the beginning of its name, or namespace/name; or a device's uuid"
    ordering = ("-id",)
    fields = ("pod_link", "device_link", "vendor", "slots", "memory_mib", "cores", "core_set", "quota_cores")
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> Rows:
        """With the names of pod and device, and nothing else of them."""
        rows = super().get_queryset(request).select_related("pod", "device")
        return rows.only(
            "vendor",
            "slots",
            "memory_mib",
            "cores",
            "core_set",
            "quota_cores",
            "pod__namespace",
            "pod__name",
            "device__node",
            "device__uuid",
        )

    def searched(self, rows: Rows, term: str) -> Rows:
        """By pod, or by a device's uuid."""
        devices = list(models.Device.objects.filter(uuid=term).values_list("pk", flat=True)[:FOUND_BY_NAME])
        return rows.filter(Q(pod_id__in=uids_of(term)) | Q(device_id__in=devices))

    @display(description="entry", ordering="id")
    def entry(self, entry: models.UsageEntry) -> int:
        """Its number."""
        return entry.pk

    @display(description="memory (MiB)")
    def memory(self, entry: models.UsageEntry) -> int:
        """How much."""
        return entry.memory_mib

    @display(description="pod")
    def pod_link(self, entry: models.UsageEntry) -> SafeString:
        """The pod."""
        return shown.link(entry.pod, shown.address("pod", entry.pod_id))

    @display(description="device")
    def device_link(self, entry: models.UsageEntry) -> SafeString:
        """The device."""
        return shown.link(entry.device, shown.address("device", entry.device_id))


def devices_of(node: str) -> list[int]:
    """The devices of a node."""
    return list(models.Device.objects.filter(node=node).values_list("pk", flat=True))

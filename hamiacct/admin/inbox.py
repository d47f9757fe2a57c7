"""The inbox: what was received, what became of it, and what could not be read and waits for somebody."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from unfold.decorators import display

from hamiacct import models
from hamiacct.accounting.words import EventState, Kind, Outcome
from hamiacct.admin import filters, shown
from hamiacct.admin.base import BooksAdmin, Rows
from hamiacct.operations import inbox
from hamiacct.queries import inbox as settled

NEWEST = 100_000
INDEXED = (EventState.WAITING, EventState.REFUSED)


def newest(rows: Rows) -> Rows:
    """The newest hundred thousand events: names have no index, so that events arrive quickly."""
    last = models.Event.objects.order_by("-id").values_list("id", flat=True).first() or 0
    return rows.filter(id__gt=last - NEWEST)


def of_state(rows: Rows, value: str) -> Rows:
    """All that wait or were refused; of the others the newest."""
    rows = rows.filter(state=value)
    return rows if value in INDEXED else newest(rows)


@admin.register(models.Event)
class EventAdmin(BooksAdmin):
    """Events, newest first."""

    list_display = (
        "event",
        "received_at",
        "kind",
        "type",
        "object_name",
        "resource_version",
        "stands",
        "rule",
        "told",
    )
    list_filter = (
        filters.chosen("state", lambda: [state.value for state in EventState], of_state),
        filters.chosen(
            "kind", lambda: [kind.value for kind in Kind], lambda rows, value: newest(rows.filter(kind=value))
        ),
        filters.named("namespace", lambda rows, value: newest(rows.filter(namespace=value))),
    )
    search_fields = ("name",)
    search_help_text = "an event's number; or a uid, a name, or namespace/name, among the newest 100,000"
    ordering = ("-id",)
    actions = ("replay", "dismiss")
    object_actions = (("replay", "Replay", False), ("dismiss", "Dismiss", True))
    fields = (
        "event",
        "received_at",
        "kind",
        "type",
        "object_name",
        "pod_link",
        "uid",
        "resource_version",
        "history",
        "stands",
        "rule",
        "detail",
        "replayed",
        "attempts",
        "settled_at",
        "body",
    )
    readonly_fields = fields

    def searched(self, rows: Rows, term: str) -> Rows:
        """By number, or by what it is about."""
        if term.isascii() and term.isdigit() and len(term) < 19:
            return rows.filter(pk=int(term))
        namespace, slash, name = term.partition("/")
        found = Q(namespace=namespace, name=name) if slash else Q(name=term) | Q(uid=term)
        return newest(rows.filter(found))

    def get_queryset(self, request: HttpRequest) -> Rows:
        """In the list, without the objects themselves."""
        return super().get_queryset(request).defer("body")

    @admin.action(description="Replay the chosen refused events", permissions=["act"])
    def replay(self, request: HttpRequest, queryset: Rows) -> HttpResponse | None:
        """Sends refused events through again, whatever came since (decision 11)."""

        def again(event: models.Event) -> str | None:
            inbox.replay(event.pk, at=timezone.now())
            for result in settled.results([(0, event.pk)]):
                if result.outcome is Outcome.REFUSED:
                    return f"was refused again: {result.detail}"
            return None

        return self.act_on_each(request, queryset.order_by("resource_version", "id"), again, "replayed")

    @admin.action(description="Dismiss the chosen refused events", permissions=["act"])
    def dismiss(self, request: HttpRequest, queryset: Rows) -> HttpResponse | None:
        """Lays refused events aside for good."""
        return self.act_on_each(
            request, queryset, lambda event: inbox.dismiss(event.pk, at=timezone.now()), "dismissed"
        )

    @display(description="event")
    def event(self, event: models.Event) -> int:
        """Its number."""
        return event.pk

    @display(description="object")
    def object_name(self, event: models.Event) -> str:
        """What it is about."""
        return f"{event.namespace}/{event.name}".lstrip("/")

    @display(description="pod")
    def pod_link(self, event: models.Event) -> SafeString | str:
        """The pod it is about."""
        if event.kind != Kind.POD or not event.uid:
            return ""
        if not models.Pod.objects.filter(pk=event.uid).exists():
            return "not in the books"
        return shown.link("the pod in the books", shown.address("pod", event.uid))

    @display(description="state")
    def stands(self, event: models.Event) -> SafeString:
        """What became of it."""
        return shown.state(event.state)

    @display(description="detail")
    def told(self, event: models.Event) -> str:
        """Why, cut short."""
        return Truncator(event.detail).chars(120)

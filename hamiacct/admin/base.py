"""What all lists and object pages share: nobody edits the books, and no page grows with a table.

Whoever may view a model sees it. What changes the books are actions, and each goes through one operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, TypeVar

from django.contrib import admin, messages
from django.contrib.admin import helpers
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import AbstractBaseUser
from django.contrib.contenttypes.models import ContentType
from django.db import DatabaseError
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, register_converter
from django.utils import timezone
from unfold.admin import ModelAdmin

from hamiacct.accounting.errors import AccountingError
from hamiacct.admin import shown
from hamiacct.admin.paging import BoundedPaginator

Rows = QuerySet[Any]
Row = TypeVar("Row", bound=Model)
SHOWN_AT_ONCE = 5


class Key:
    """A row's key in a path, line ends included, which Django's own paths of objects leave out."""

    regex = r"[^\x00]+"

    def to_python(self, value: str) -> str:
        """As it is."""
        return value

    def to_url(self, value: str) -> str:
        """As it is."""
        return value


register_converter(Key, "key")


class BooksAdmin(ModelAdmin):
    """A list and object pages that are read only; `searched` is how the search box looks things up.

    `object_actions` are those of the list's actions that an object's own page offers as buttons: the name,
    what the button says, and whether it is dangerous. `plural` is what several rows are called where an "s"
    does not make it.
    """

    paginator = BoundedPaginator
    list_per_page = 50
    list_max_show_all = 0
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_filter_submit = True
    list_fullwidth = True
    list_select_related: ClassVar[Any] = False
    sortable_by: ClassVar[Sequence[str]] = ()
    change_form_template = "hamiacct/object.html"
    object_actions: ClassVar[Sequence[tuple[str, str, bool]]] = ()
    plural: ClassVar[str] = ""

    def __init__(self, model: type[Model], admin_site: admin.AdminSite) -> None:
        super().__init__(model, admin_site)
        # A word for people alone: in the model it would be a migration.
        self.opts.verbose_name_plural = self.plural or self.opts.verbose_name_plural

    def get_urls(self) -> list[URLPattern]:
        """Also a page for an object of any name: the theme's heading links to it by the key as it is."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_change"
        page = path("<key:object_id>/change/", self.admin_site.admin_view(self.change_view), name=name)
        return [*super().get_urls(), page]

    def has_add_permission(self, request: HttpRequest) -> bool:
        """The cluster makes what is in the books."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """What is in the books changes by operations alone."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """And it goes by them alone."""
        return False

    def has_act_permission(self, request: HttpRequest) -> bool:
        """Whether this user may have operations change what is listed here."""
        return may(request, "change", self.model)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """The row of a page; none of a key that nothing can have."""
        return None if shown.NOWHERE in object_id else super().get_object(request, object_id, from_field)

    def get_search_results(self, request: HttpRequest, queryset: Rows, search_term: str) -> tuple[Rows, bool]:
        """Looks up what is typed where an index finds it; never twice the same row."""
        term = search_term.strip()
        return (self.searched(queryset, term) if term else queryset), False

    def searched(self, rows: Rows, term: str) -> Rows:
        """The rows that the term finds."""
        raise NotImplementedError

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """The object's page, with the buttons that this user may press."""
        offered = self.get_actions(request)
        context = {
            "object_actions": [
                {"name": name, "label": label, "is_dangerous": dangerous}
                for name, label, dangerous in self.object_actions
                if name in offered
            ],
            "list_address": shown.list_address(str(self.opts.model_name)),
            **(extra_context or {}),
        }
        answer: HttpResponse = super().change_view(request, object_id, form_url, context)
        return answer

    def act_on_each(
        self, request: HttpRequest, rows: Iterable[Row], act: Callable[[Row], str | None], done: str
    ) -> HttpResponse | None:
        """One operation for each chosen row; what was refused is told with its reason.

        `act` answers what became of it where that is not simply `done`. Back to the object's page when the
        button was pressed there.
        """
        succeeded: list[Row] = []
        for row in rows:
            try:
                said = act(row)
            except AccountingError as fault:
                self.message_user(request, f"{row}: {fault}", messages.ERROR)
                continue
            except DatabaseError as fault:
                self.message_user(request, f"{row}: the database says {fault}; try again", messages.ERROR)
                continue
            succeeded.append(row)
            if said is not None and len(succeeded) <= SHOWN_AT_ONCE:
                self.message_user(request, f"{row}: {said}", messages.WARNING)
        if succeeded:
            note(request, succeeded, done)
            what = (
                str(succeeded[0])
                if len(succeeded) == 1
                else f"{len(succeeded)} {self.opts.verbose_name_plural}"
            )
            self.message_user(request, f"{what}: {done}", messages.SUCCESS)
        return self.back(request)

    def back(self, request: HttpRequest) -> HttpResponse | None:
        """To the object's page when its button was pressed, else to the list (None)."""
        from_page = request.POST.get("from_page")
        chosen = request.POST.getlist(helpers.ACTION_CHECKBOX_NAME)
        if from_page and len(chosen) == 1:
            return HttpResponseRedirect(shown.address(str(self.opts.model_name), chosen[0]))
        return None


def may(request: HttpRequest, verb: str, model: type[Model]) -> bool:
    """Whether the user has Django's permission for this verb (view, change, delete) on a model."""
    user = request.user
    return bool(
        user.is_active
        and user.is_staff
        and user.has_perm(f"{model._meta.app_label}.{verb}_{model._meta.model_name}")
    )


def note(request: HttpRequest, rows: Sequence[Model], done: str, flag: int = CHANGE) -> None:
    """Writes down who did it, in Django's own log of the admin."""
    user = request.user
    assert isinstance(user, AbstractBaseUser)
    kind = ContentType.objects.get_for_model(rows[0])
    LogEntry.objects.bulk_create(
        [
            LogEntry(
                user_id=user.pk,
                content_type=kind,
                object_id=str(row.pk),
                object_repr=str(row)[:200],
                action_flag=flag,
                change_message=done,
                action_time=timezone.now(),
            )
            for row in rows
        ],
        batch_size=1000,
    )

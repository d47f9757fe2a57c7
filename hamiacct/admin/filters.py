"""Filters that an index answers: exact names to type, closed lists to choose from, no DISTINCT anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.contrib.filters.admin import TextFilter

from hamiacct import config
from hamiacct.admin import shown

Rows = QuerySet[Any]
Narrow = Callable[[Rows, str], Rows]


def named(parameter: str, narrow: Narrow, title: str = "") -> type[TextFilter]:
    """A name that is typed, and must be equal."""

    class Named(TextFilter):
        """A field to type in."""

        def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
            """The rows of that name."""
            value = (self.value() or "").strip()
            if shown.NOWHERE in value:
                return queryset.none()
            return narrow(queryset, value) if value else queryset

    Named.parameter_name = parameter
    Named.title = title or parameter
    return Named


def chosen(
    parameter: str, words: Callable[[], Iterable[str]], narrow: Narrow, title: str = ""
) -> type[admin.SimpleListFilter]:
    """One of a list that is known beforehand."""

    class Chosen(admin.SimpleListFilter):
        """Links to choose from."""

        def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
            """The words."""
            return [(word, word) for word in words()]

        def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
            """The rows of that word; none for a word that is not in the list."""
            value = self.value()
            if value is None:
                return queryset
            return narrow(queryset, value) if value in dict(self.lookup_choices) else queryset.none()

    Chosen.parameter_name = parameter
    Chosen.title = title or parameter
    return Chosen


def one_of(
    parameter: str, enum: type[StrEnum], field: str = "", title: str = ""
) -> type[admin.SimpleListFilter]:
    """One of a closed list of the interface, stored as it is."""
    return chosen(parameter, lambda: [word.value for word in enum], equal(field or parameter), title)


def equal(field: str) -> Narrow:
    """The condition that a field has that value."""
    return lambda rows, value: rows.filter(**{field: value})


def vendor_keys() -> list[str]:
    """The vendors that are configured."""
    return [vendor.key for vendor in config.vendors()]


def yes_or_no(
    parameter: str, condition: Callable[[Rows, bool], Rows], title: str = ""
) -> type[admin.SimpleListFilter]:
    """Yes or no."""
    return chosen(
        parameter, lambda: ("yes", "no"), lambda rows, value: condition(rows, value == "yes"), title
    )

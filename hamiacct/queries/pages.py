"""Pages of ordered rows, told apart by the key of the last one: stable while rows come and go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from django.db.models import Model, Q, QuerySet

Item = TypeVar("Item")
Row = TypeVar("Row", bound=Model)
Key = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """Some items in order; `next` is the key after which the following page begins, None at the end."""

    items: tuple[Item, ...]
    next: Key | None


@dataclass(frozen=True, slots=True)
class Rows(Generic[Row]):
    """The rows of one page, before they are shaped."""

    rows: Sequence[Row]
    next: Key | None

    def page(self, items: Sequence[Item]) -> Page[Item]:
        """The page of these items, one or more for each row."""
        return Page(tuple(items), self.next)

    def map(self, shape: Callable[[Row], Item]) -> Page[Item]:
        """The page of one item a row."""
        return self.page([shape(row) for row in self.rows])


def rows_after(rows: QuerySet[Row], fields: Sequence[str], after: Key | None, limit: int) -> Rows[Row]:
    """At most `limit` rows ordered by `fields`, beginning after the key `after`; one query."""
    if after is not None:
        rows = rows.filter(_beyond(fields, after))
    found = list(rows.order_by(*fields)[: limit + 1])
    if len(found) <= limit:
        return Rows(found, None)
    last = found[limit - 1]
    return Rows(found[:limit], tuple(getattr(last, field) for field in fields))


def _beyond(fields: Sequence[str], key: Key) -> Q:
    """`(a, b) > (x, y)`; the redundant first condition lets an index on `fields` be walked."""
    if len(fields) == 1:
        return Q(**{f"{fields[0]}__gt": key[0]})
    rest = Q(**{fields[0]: key[0]}) & _beyond(fields[1:], key[1:])
    return Q(**{f"{fields[0]}__gte": key[0]}) & (Q(**{f"{fields[0]}__gt": key[0]}) | rest)

"""Many rows, fetched some at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from django.db import connection
from django.db.models import QuerySet

T = TypeVar("T")

AT_ONCE = 2000


def rows(found: QuerySet[Any, T], *, at_once: int = AT_ONCE) -> Iterator[T]:
    """The rows of a query; what fails is one of Django's errors, as of every other question.

    Django reads them by a cursor on the server. Where the session is lost meanwhile it closes that cursor,
    too, and what fails then would be the driver's own error, which nobody takes for a database that is away.
    """
    with connection.wrap_database_errors:
        yield from found.iterator(chunk_size=at_once)

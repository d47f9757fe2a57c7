"""Pages of tables of any size: nothing here ever counts a whole table."""

from __future__ import annotations

from functools import cached_property

from django.core.paginator import Paginator
from django.db.models import QuerySet

MOST = 10_000


class BoundedPaginator(Paginator):
    """Counts to 10,000 and no further. Whoever looks for more narrows the list down."""

    template_name = "hamiacct/pagination.html"

    @cached_property
    def _counted(self) -> int:
        rows = self.object_list
        assert isinstance(rows, QuerySet)
        return rows.order_by()[: MOST + 1].count()

    @cached_property
    def count(self) -> int:
        """How many rows there are, or 10,000 where there are more."""
        return min(self._counted, MOST)

    @property
    def has_more(self) -> bool:
        """Whether there are more than were counted."""
        return self._counted > MOST

"""Pages by key."""

import pytest

from hamiacct import models
from hamiacct.queries import pages

pytestmark = pytest.mark.django_db

PLACES = [("n1", "a"), ("n1", "c"), ("n2", "a"), ("n2", "b"), ("n3", "a")]


@pytest.fixture
def _devices() -> None:
    models.Device.objects.bulk_create(
        models.Device(node=node, uuid=uuid, vendor="NVIDIA") for node, uuid in reversed(PLACES)
    )


def walk(limit: int) -> list[pages.Page[tuple[str, str]]]:
    found: list[pages.Page[tuple[str, str]]] = []
    key: pages.Key | None = None
    while not found or key is not None:
        rows = pages.rows_after(models.Device.objects.all(), ("node", "uuid"), key, limit)
        found.append(rows.map(lambda row: (row.node, row.uuid)))
        key = found[-1].next
    return found


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6])
def test_pages_of_any_size_hold_every_row_once_and_in_order(_devices: None, limit: int) -> None:
    found = walk(limit)
    assert [place for page in found for place in page.items] == PLACES
    assert all(len(page.items) <= limit for page in found)


def test_a_full_last_page_has_no_next(_devices: None) -> None:
    assert walk(5)[0].next is None


def test_no_rows_are_one_empty_page() -> None:
    assert walk(5) == [pages.Page((), None)]


def test_a_page_begins_after_a_row_that_is_gone(_devices: None) -> None:
    models.Device.objects.filter(node="n1", uuid="c").delete()
    rows = pages.rows_after(models.Device.objects.all(), ("node", "uuid"), ("n1", "c"), 1)
    assert [(row.node, row.uuid) for row in rows.rows] == [("n2", "a")]

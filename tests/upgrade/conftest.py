"""These tests make databases of their own, and leave none."""

from collections.abc import Iterator

import pytest
from pytest_django import DjangoDbBlocker

from tests.upgrade import databases


@pytest.fixture(scope="package", autouse=True)
def databases_of_their_own(django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    with django_db_blocker.unblock():
        yield
        databases.drop_templates()

"""Conversations with the service over HTTP."""

import pytest
from rest_framework.test import APIClient

from tests.conversations.books import Books, in_process


@pytest.fixture
def books(api: APIClient, db: None) -> Books:
    """The books of a fresh service, events applied in the request."""
    return Books(in_process(api))

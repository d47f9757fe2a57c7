"""Who signs in to the admin, and books worth looking at."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from rest_framework.test import APIClient

from demo import load


@pytest.fixture
def demo(db: None, api: APIClient) -> None:
    """The books of the demonstration's cluster."""
    body = load.RECORDING.read_text()
    answer = api.post("/api/v1/events", body, content_type="application/x-ndjson")
    assert answer.status_code == 200, answer.content


@pytest.fixture
def sign_in(db: None) -> Callable[..., Client]:
    """Makes a client of somebody who is staff and has these permissions ("view_pod"); "*" is a superuser."""

    def client(*permissions: str) -> Client:
        name = "-".join(permissions) or "nobody"
        user = User.objects.create_user(name[:100], is_staff=True)  # no password: hashing one takes long
        if "*" in permissions:
            user.is_superuser = True
            user.save()
        found = Permission.objects.filter(codename__in=permissions)
        assert len(found) == len([one for one in permissions if one != "*"])
        user.user_permissions.set(found)
        signed_in = Client()
        signed_in.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
        return signed_in

    return client


@pytest.fixture
def boss(sign_in: Callable[..., Client]) -> Client:
    """A superuser's browser."""
    return sign_in("*")


def text_of(answer: Any) -> str:
    """The page as text."""
    return str(answer.content.decode())

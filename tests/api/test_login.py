"""Logging in at /admin/: who fails too often waits, whichever web process was asked."""

from datetime import timedelta
from typing import Any

import pytest
from axes.models import AccessAttempt
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client

pytestmark = pytest.mark.django_db

RIGHT, WRONG = "correct horse battery", "battery horse"
LIMIT = 5


@pytest.fixture(autouse=True)
def _ada(settings: Any) -> None:
    settings.PASSWORD_HASHERS = [
        "django.contrib.auth.hashers.MD5PasswordHasher"
    ]  # the others take their time
    User.objects.create_superuser("ada", password=RIGHT)
    User.objects.create_superuser("bob", password=RIGHT)


def login(password: str, *, name: str = "ada", address: str = "192.0.2.1", **headers: str) -> Any:
    """The answer to the form of a browser that comes for the first time."""
    form = {"username": name, "password": password, "next": "/admin/"}
    return Client().post("/admin/login/", form, REMOTE_ADDR=address, **headers)


def lock() -> None:
    assert [login(WRONG).status_code for _ in range(LIMIT)] == [200] * (LIMIT - 1) + [429]


def test_the_right_password_is_let_in() -> None:
    assert [login(WRONG).status_code for _ in range(LIMIT - 1)] == [200] * (LIMIT - 1)
    answer = login(RIGHT)
    assert (answer.status_code, answer.headers["Location"]) == (302, "/admin/")
    assert [login(WRONG).status_code for _ in range(LIMIT - 1)] == [200] * (LIMIT - 1)


def test_who_fails_five_times_waits_even_with_the_right_password() -> None:
    lock()
    answer = login(RIGHT)
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "900")
    assert "sessionid" not in answer.cookies
    assert answer.headers["Content-Security-Policy"]
    assert WRONG not in answer.content.decode()
    assert login(WRONG, name="nobody").status_code == 200


def test_others_and_other_addresses_are_not_held_up() -> None:
    lock()
    assert login(RIGHT, name="bob").status_code == 302
    assert login(RIGHT, address="192.0.2.2").status_code == 302


def test_what_a_header_says_of_the_address_changes_nothing() -> None:
    for number in range(LIMIT):
        login(WRONG, HTTP_X_FORWARDED_FOR=f"198.51.100.{number}", HTTP_USER_AGENT=f"browser {number}")
    assert login(RIGHT, HTTP_X_FORWARDED_FOR="198.51.100.99").status_code == 429


def test_the_wait_ends_however_often_somebody_tries_meanwhile() -> None:
    lock()
    AccessAttempt.objects.update(
        attempt_time=AccessAttempt.objects.get().attempt_time - timedelta(minutes=14)
    )
    assert login(WRONG).status_code == 429
    AccessAttempt.objects.update(attempt_time=AccessAttempt.objects.get().attempt_time - timedelta(minutes=2))
    assert login(RIGHT).status_code == 302


def test_an_operator_may_end_it() -> None:
    lock()
    call_command("axes_reset")
    assert login(RIGHT).status_code == 302


def test_no_password_is_kept() -> None:
    login(WRONG, HTTP_USER_AGENT="x" * 10_000)
    Client().post("/admin/login/?next=%00&password=in-the-query", {"username": "ada", "password": WRONG})
    assert AccessAttempt.objects.count() == 2
    for attempt in AccessAttempt.objects.values():
        assert WRONG not in str(attempt)
        assert "in-the-query" not in str(attempt)


@pytest.mark.parametrize("name", ["a\0b", "x" * 10_000, "", "\ud83d"])
def test_a_name_nobody_can_have_is_no_trouble(name: str) -> None:
    body = f"username={name}&password=x".encode("utf-8", "surrogatepass")
    answer = Client().post("/admin/login/", body, content_type="application/x-www-form-urlencoded")
    assert answer.status_code == 200

"""Tokens: made once, shown once, taken back for ever."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from hamiacct import models
from hamiacct.accounting.errors import Conflict, Malformed, NotFound
from hamiacct.accounting.words import Role
from hamiacct.operations import tokens
from hamiacct.queries import tokens as queries

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_token_is_found_by_its_text_and_its_text_is_stored_nowhere() -> None:
    plain = tokens.create("ci", Role.INGESTER, at=NOW)
    found = queries.find(plain.encode())
    assert found is not None
    assert (found.name, found.role) == ("ci", Role.INGESTER)
    assert plain not in str(models.ApiToken.objects.values_list().get())


def test_a_token_may_stand_in_the_path_of_a_webhooks_service() -> None:
    """The API server refuses a configuration with any other."""
    plain = tokens.create("apiserver", Role.SCHEDULER, at=NOW)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", plain)


def test_a_name_is_used_once() -> None:
    tokens.create("ci", Role.VIEWER, at=NOW)
    tokens.revoke("ci", at=NOW)
    with pytest.raises(Conflict):
        tokens.create("ci", Role.VIEWER, at=NOW)


@pytest.mark.parametrize("name", ["", "x" * 101, "a\nb", "a\x00"])
def test_a_name_can_be_printed(name: str) -> None:
    with pytest.raises(Malformed):
        tokens.create(name, Role.VIEWER, at=NOW)


def test_a_token_cannot_have_expired_before_it_is_made() -> None:
    with pytest.raises(Malformed):
        tokens.create("ci", Role.VIEWER, at=NOW, expires_at=NOW)


def test_a_token_expires_when_its_time_is_over() -> None:
    tomorrow = NOW + timedelta(days=1)
    plain = tokens.create("ci", Role.VIEWER, at=NOW, expires_at=tomorrow)
    found = queries.find(plain.encode())
    assert found is not None
    assert not found.has_expired(tomorrow - timedelta(seconds=1))
    assert found.has_expired(tomorrow)


def test_a_token_taken_back_twice_was_taken_back_the_first_time() -> None:
    tokens.create("ci", Role.VIEWER, at=NOW)
    tokens.revoke("ci", at=NOW)
    tokens.revoke("ci", at=NOW + timedelta(days=1))
    assert models.ApiToken.objects.get().revoked_at == NOW


def test_a_token_nobody_has_cannot_be_taken_back() -> None:
    with pytest.raises(NotFound):
        tokens.revoke("nobody", at=NOW)

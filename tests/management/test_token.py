"""manage.py token"""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from hamiacct.accounting.words import Role
from hamiacct.queries import tokens

pytestmark = pytest.mark.django_db


def run(*words: str) -> str:
    out = StringIO()
    call_command("token", *words, stdout=out)
    return out.getvalue()


def test_create_prints_the_token_alone() -> None:
    plain = run("create", "ci", "--role", "ingester").strip()
    found = tokens.find(plain.encode())
    assert found is not None
    assert found.role is Role.INGESTER


def test_list_shows_every_token_and_no_text() -> None:
    plain = run("create", "ci", "--role", "viewer", "--days", "1").strip()
    run("create", "old", "--role", "viewer")
    run("revoke", "old")
    shown = run("list")
    assert "ci\tviewer\tvalid\tlast used never" in shown
    assert "old\tviewer\trevoked" in shown
    assert plain not in shown


@pytest.mark.parametrize(
    "words",
    [
        ("create", "", "--role", "viewer"),
        ("create", "x", "--role", "king"),
        ("create", "x", "--role", "viewer", "--days", "-1"),
        ("create", "x", "--role", "viewer", "--days", "1e300"),
        ("revoke", "nobody"),
        (),
    ],
)
def test_what_cannot_be_done_is_said(words: tuple[str, ...]) -> None:
    with pytest.raises(CommandError):
        run(*words)

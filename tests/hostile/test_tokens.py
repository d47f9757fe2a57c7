"""Tokens that were tampered with open nothing, others what their role does, and nothing repeats one."""

import base64
import logging
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rest_framework.test import APIClient

from api.docs import document
from hamiacct.accounting.words import Role
from hamiacct.operations import tokens
from hamiacct.operations.tokens import PREFIX
from tests.api.test_who_may_call import ANYBODY, MAY_CALL
from tests.hostile.chance import chances, some

pytestmark = pytest.mark.django_db

LONG = 300_000
LOOKALIKES = str.maketrans("aeco", "\u0430\u0435\u0441\u043e")  # Cyrillic on purpose


@pytest.fixture
def token() -> str:
    """An operator's, so that whatever it opens, it opens."""
    return tokens.create("tampered with", Role.OPERATOR, at=datetime.now(UTC))


def tampered(token: str, rng: random.Random) -> Iterator[str]:
    """Texts that are nearly the token."""
    for place, letter in some(list(enumerate(token)), 12, "places"):
        other = rng.choice([one for one in "0123456789abcdef-" if one != letter])
        yield token[:place] + other + token[place + 1 :]
        yield token[:place] + token[place + 1 :]
        yield token[:place] + letter + token[place:]
    yield from (token[:length] for length in some(range(1, len(token)), 6, "lengths"))
    yield from (
        token.upper(),
        token.title(),
        token.swapcase(),
        token[::-1],
        token * 2,
        token.translate(LOOKALIKES),
    )
    yield from (
        f"{token} {token}",
        f"{token},{token}",
        f"{token};",
        f"'{token}'",
        f'"{token}"',
        f"{token}\0",
        f"\0{token}",
    )
    yield from (
        token.removeprefix(PREFIX),
        PREFIX,
        PREFIX * 2,
        "%",
        "_",
        "*",
        "' OR ''='",
        "null",
        "undefined",
    )
    yield from ("é" * 20, "\u212a", token.encode("utf-16").decode("latin-1"), token + "\u0301")
    yield from ("a" * LONG, token + "a" * LONG, token + " " * 10 + "x")


def status(header: str, path: str = "/api/v1/audit/repair") -> int:
    response = APIClient(raise_request_exception=False).post(path, HTTP_AUTHORIZATION=header)
    if response.status_code == 401:
        assert "Bearer" in response.headers["WWW-Authenticate"]
        assert response.json()["type"] == "/problems/unauthenticated"
    return int(response.status_code)


def test_a_token_that_was_tampered_with_is_nobodys(token: str) -> None:
    found = list(tampered(token, chances("tokens")))
    assert len(found) > 60
    let_in = [one for one in found if one != token and status(f"Bearer {one}") != 401]
    assert let_in == []
    assert status(f"Bearer {token}") == 200


@pytest.mark.parametrize(
    "header",
    [
        "{token}",
        "Token {token}",
        "Bearer{token}",
        "Bearer:{token}",
        "Bearer\x0b{token}",
        "Bearer {token}, Bearer {token}",
        "Bearer {token},Bearer nobodys",
        "Bearer nobodys,Bearer {token}",
        "Bearer nobodys, {token}",
        "Bearer token={token}",
        "Bearer Bearer {token}",
        "Digest {token}",
        "Basic {basic}",
        "Basic {token}",
        "basic {basic}",
    ],
)
def test_a_header_that_says_it_otherwise_is_none(token: str, header: str) -> None:
    basic = base64.b64encode(f"operator:{token}".encode()).decode()
    assert status(header.format(token=token, basic=basic)) == 401


def test_a_token_in_another_place_is_none(token: str) -> None:
    client = APIClient()
    for name in ("token", "access_token", "authorization"):
        assert client.get(f"/api/v1/pods?{name}={token}").status_code == 401
        client.cookies[name] = token
    assert client.get("/api/v1/pods").status_code == 401
    assert client.post("/api/v1/audit/repair", {"token": token}, format="json").status_code == 401
    for name in (
        "X_AUTHORIZATION",
        "X_TOKEN",
        "PROXY_AUTHORIZATION",
        "X_FORWARDED_AUTHORIZATION",
        "X_REMOTE_USER",
    ):
        assert client.get("/api/v1/pods", **{f"HTTP_{name}": f"Bearer {token}"}).status_code == 401
    assert client.get("/api/v1/pods", REMOTE_USER="root").status_code == 401


@pytest.mark.parametrize("path", ["/webhook", "/webhook/validate"])
def test_a_token_in_a_webhooks_path(path: str, token: str) -> None:
    def asked(token: str, **more: Any) -> int:
        return int(APIClient().post(f"{path}/{token}", {}, format="json", **more).status_code)

    now = datetime.now(UTC)
    assert asked(token) == 400  # let in, and told that this is no review
    assert asked(tokens.create("scheduler", Role.SCHEDULER, at=now)) == 400
    assert asked(tokens.create("viewer", Role.VIEWER, at=now)) == 403
    assert asked(tokens.create("ingester", Role.INGESTER, at=now)) == 403
    before = now - timedelta(days=2)
    assert asked(tokens.create("old", Role.OPERATOR, at=before, expires_at=before + timedelta(days=1))) == 401
    taken_back = tokens.create("taken back", Role.OPERATOR, at=now)
    tokens.revoke("taken back", at=now)
    assert asked(taken_back) == 401
    for one in (
        token.upper(),
        token[:-1],
        f"{token}/",
        f"{token}/x",
        f"x/{token}",
        f"{token}%00",
        f"%20{token}",
    ):
        assert asked(one) in (401, 404), one
    # Who shows a token in the header is who he says there.
    assert asked(token, HTTP_AUTHORIZATION="Bearer nobodys") == 401
    assert APIClient().get(f"{path}/{token}").status_code == 405
    assert APIClient().post(f"/api/v1/audit/repair/{token}").status_code == 404


def test_the_document_says_who_must_show_a_token() -> None:
    """Whatever is added to the service is in the table of callers (tests/api), and here."""
    said = {}
    for path, operations in document()["paths"].items():
        for method, operation in operations.items():
            said[method.upper(), path.removeprefix("/")] = bool(operation.get("security"))
    table = {call: allowed is not ANYBODY for call, allowed in MAY_CALL.items() if call[1] != "api/v1/docs"}
    assert said == table


def test_no_answer_and_no_line_of_the_log_repeats_a_token(
    token: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever answers: a view, the table of paths, or whoever looks at the host's name."""
    caplog.set_level(logging.DEBUG)
    wrong = f"{PREFIX}{'0' * 64}"
    paths = [path for _, path in MAY_CALL if "{token}" in path]
    paths += some(sorted({path for _, path in MAY_CALL} - {"api/v1/docs", "api/v1/schema"}), 4, "paths")
    repeated = []
    for secret in (token, wrong):
        asked = ["/" + path.replace("{token}", secret) for path in paths]
        asked += [f"/webhook/{secret}/", f"/webhook/{secret}/a", f"/webhook/validate/{secret}/b/c"]
        for path in asked:
            for method in ("GET", "POST"):
                for more in ({}, {"HTTP_HOST": "evil.example"}, {"HTTP_AUTHORIZATION": f"Bearer {secret}"}):
                    client = APIClient(raise_request_exception=False)
                    answer = client.generic(method, path, b"{", content_type="application/json", **more)
                    told = answer.content.decode() + repr(dict(answer.headers))
                    if secret in told:
                        repeated.append((method, path, more, told))
    assert repeated == []
    assert token not in caplog.text
    assert wrong not in caplog.text
    assert "webhook/<text:token>" in caplog.text

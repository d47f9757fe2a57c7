"""Tokens of callers, found by the SHA-256 of their text."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from hamiacct import models
from hamiacct.accounting.words import Role
from hamiacct.queries.statements import Statement

LAST_USE_RESOLUTION = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Token:
    """A token as stored; its text is known to its holder alone."""

    id: int
    name: str
    role: Role
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None

    @property
    def is_revoked(self) -> bool:
        """Whether it was taken back."""
        return self.revoked_at is not None

    def has_expired(self, at: datetime) -> bool:
        """Whether its time is over."""
        return self.expires_at is not None and self.expires_at <= at

    def is_due(self, at: datetime) -> bool:
        """Whether its last use is old enough to be written anew."""
        return self.last_used_at is None or self.last_used_at <= at - LAST_USE_RESOLUTION


def digest_of(plain: bytes) -> str:
    """What is stored of a token. It is random and long, so one unsalted round is enough."""
    return hashlib.sha256(plain).hexdigest()


# Asked by every request that brings a token.
_FIND = Statement(
    "hamiacct_token",
    "text",
    """
    SELECT id, name, role, created_at, expires_at, revoked_at, last_used_at
    FROM hamiacct_apitoken WHERE digest = $1
    """,
)


def find(plain: bytes) -> Token | None:
    """The token with this text, also when it was revoked or has expired."""
    rows = _FIND.rows(digest_of(plain))
    return _token(*rows[0]) if rows else None


def all_by_name() -> tuple[Token, ...]:
    """Every token ever made, by name."""
    rows = models.ApiToken.objects.order_by("name").values_list(
        "id", "name", "role", "created_at", "expires_at", "revoked_at", "last_used_at"
    )
    return tuple(_token(*row) for row in rows)


def _token(number: int, name: str, role: str, *times: Any) -> Token:
    return Token(number, name, Role(role), *times)

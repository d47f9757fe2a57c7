"""Tokens of callers: made, taken back, marked as used."""

from __future__ import annotations

import secrets
from datetime import datetime

from django.db.models import Q

from hamiacct import models
from hamiacct.accounting.errors import Conflict, Malformed, NotFound
from hamiacct.accounting.words import Role
from hamiacct.queries import tokens

PREFIX = "hamiacct-"  # so that a token found in a log or a repository names where it belongs
NAME_LENGTH = 100
RANDOM_BYTES = 32


def create(name: str, role: Role, *, at: datetime, expires_at: datetime | None = None) -> str:
    """Makes a token and answers its text, which is stored nowhere.

    A name is used once, revoked tokens included, so that a log line names one token for ever: Conflict
    otherwise. Malformed for an empty, long or unprintable name, or an end that is past.
    """
    if not name or len(name) > NAME_LENGTH or not name.isprintable():
        raise Malformed(f"a token's name has 1 to {NAME_LENGTH} printable characters", "/name")
    if expires_at is not None and expires_at <= at:
        raise Malformed("the token would have expired before it was made", "/expires_at")
    # In small letters and digits: the path of a webhook's service may hold nothing else (ADR 0008).
    plain = PREFIX + secrets.token_hex(RANDOM_BYTES)
    _, is_new = models.ApiToken.objects.get_or_create(
        name=name,
        defaults={
            "role": role,
            "digest": tokens.digest_of(plain.encode()),
            "created_at": at,
            "expires_at": expires_at,
        },
    )
    if not is_new:
        raise Conflict(f"there is, or was, a token named {name}")
    return plain


def revoke(name: str, *, at: datetime) -> None:
    """Takes a token back for ever; once more changes nothing. NotFound for a name nobody has."""
    taken_back = models.ApiToken.objects.filter(name=name, revoked_at=None).update(revoked_at=at)
    if not taken_back and not models.ApiToken.objects.filter(name=name).exists():
        raise NotFound(f"there is no token named {name}")


def touch(token_id: int, *, at: datetime) -> None:
    """Marks a token as used, at most once a minute however many requests say so at a time."""
    due = Q(last_used_at=None) | Q(last_used_at__lte=at - tokens.LAST_USE_RESOLUTION)
    models.ApiToken.objects.filter(due, id=token_id).update(last_used_at=at)

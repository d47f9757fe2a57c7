"""The admin: what operators look at and what they may do, a file a noun. Django finds it by its name."""

from hamiacct.admin import (
    accounts,
    decisions,
    findings,
    fleet,
    inbox,
    ledger,
    pods,
    quotas,
    reservations,
    tokens,
)

__all__ = [
    "accounts",
    "decisions",
    "findings",
    "fleet",
    "inbox",
    "ledger",
    "pods",
    "quotas",
    "reservations",
    "tokens",
]

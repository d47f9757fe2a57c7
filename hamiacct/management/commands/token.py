"""`manage.py token create NAME --role ROLE | revoke NAME | list`: who may call the HTTP interface."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from hamiacct.accounting.errors import AccountingError
from hamiacct.accounting.words import Role
from hamiacct.operations import tokens as operations
from hamiacct.queries import tokens


class Command(BaseCommand):
    """Makes, takes back and lists tokens."""

    help = "Make, take back and list the tokens of callers. A token is shown once, when it is made."

    def add_arguments(self, parser: CommandParser) -> None:
        """The three verbs."""
        verbs = parser.add_subparsers(dest="verb", required=True)
        create = verbs.add_parser("create", help="make a token and print it, alone on its line")
        create.add_argument("name")
        create.add_argument("--role", required=True, choices=[role.value for role in Role])
        create.add_argument("--days", type=float, help="expires after so many days (default: never)")
        revoke = verbs.add_parser("revoke", help="take a token back for ever")
        revoke.add_argument("name")
        verbs.add_parser("list", help="every token: role, state and last use")

    def handle(self, *args: Any, **options: Any) -> None:
        """One operation or query, printed."""
        try:
            match options["verb"]:
                case "create":
                    self.create(options["name"], Role(options["role"]), options["days"])
                case "revoke":
                    operations.revoke(options["name"], at=timezone.now())
                case _:
                    self.list()
        except AccountingError as error:
            raise CommandError(str(error)) from error

    def create(self, name: str, role: Role, days: float | None) -> None:
        """Prints the new token and nothing else, so that a script can take it."""
        now = timezone.now()
        try:
            expires_at = None if days is None else now + timedelta(days=days)
        except (OverflowError, ValueError) as error:
            raise CommandError(f"--days {days}: {error}") from error
        self.stdout.write(operations.create(name, role, at=now, expires_at=expires_at))

    def list(self) -> None:
        """One line a token."""
        now = timezone.now()
        for token in tokens.all_by_name():
            state = "revoked" if token.is_revoked else "expired" if token.has_expired(now) else "valid"
            last_used = token.last_used_at.isoformat(timespec="seconds") if token.last_used_at else "never"
            self.stdout.write(f"{token.name}\t{token.role}\t{state}\tlast used {last_used}")

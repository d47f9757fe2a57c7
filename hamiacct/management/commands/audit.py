"""`manage.py audit [--repair]`: do the books agree? The exit status tells cron."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError
from django.utils import timezone
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hamiacct.operations import audit

DISAGREE, UNKNOWN = 1, 2
WIDTH_OF_A_PIPE = 160


class Command(BaseCommand):
    """Compares the books, and puts them right when told to."""

    help = (
        "Replays the ledger, sums the usage entries, and compares both with every stored total. Exit status: "
        "0 the books agree, 1 they disagree, 2 it could not be found out."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """What to do beyond looking."""
        parser.add_argument(
            "--repair",
            action="store_true",
            help="make totals follow the entries, with a ledger line for each; nobody posts meanwhile",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """One operation or two, printed."""
        try:
            repaired = audit.repair(at=timezone.now()) if options["repair"] else ()
            found = audit.audit()
        except DatabaseError as fault:
            raise CommandError(f"the books cannot be read: {fault}", returncode=UNKNOWN) from fault
        self.stdout.write(_page(found, repaired), ending="")
        if not found.ok:
            count = len(found.discrepancies)
            places = "one place" if count == 1 else f"{count} places"
            raise CommandError(f"the books disagree in {places}", returncode=DISAGREE)


def _page(found: audit.Audit, repaired: Iterable[audit.Repair]) -> str:
    """What was compared, what was put right, what differs."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH_OF_A_PIPE, highlight=False)
    with console.capture() as page:
        checked = ", ".join(f"{count} {name}" for name, count in found.checked.items())
        console.print(Text(f"compared {checked}"))
        if repairs := [(one.book, one.key, one.was, one.is_) for one in repaired]:
            console.print(_table("put right", ("was", "is"), repairs))
        if differences := [(one.book, one.key, one.stored, one.expected) for one in found.discrepancies]:
            console.print(_table("the books disagree", ("stored", "expected"), differences))
        else:
            console.print(Text("the books agree", style="green"))
    return page.get()


def _table(
    title: str,
    names: tuple[str, str],
    found: Iterable[tuple[str, str, Mapping[str, int], Mapping[str, int]]],
) -> Table:
    """One row for each amount that differs."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    table.add_column("book")
    table.add_column("of", overflow="fold")
    table.add_column("amount")
    for name in names:
        table.add_column(name, justify="right")
    for book, key, one, other in found:
        for amount in one:
            if one[amount] != other[amount]:
                table.add_row(book, key, amount, str(one[amount]), str(other[amount]))
    return table

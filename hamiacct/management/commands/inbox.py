"""`manage.py inbox [replay|dismiss ID ...]`: the refused events, and what becomes of them."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from hamiacct.accounting.errors import AccountingError
from hamiacct.operations import inbox
from hamiacct.queries import inbox as waiting


class Command(BaseCommand):
    """Lists refused events; sends them through again, or lays them aside."""

    help = "Refused events are kept until somebody replays them (exempt from staleness) or dismisses them."

    def add_arguments(self, parser: CommandParser) -> None:
        """What to do with which."""
        parser.add_argument("action", nargs="?", default="list", choices=("list", "replay", "dismiss"))
        parser.add_argument("ids", nargs="*", type=int, help="the numbers that the list shows")

    def handle(self, *args: Any, **options: Any) -> None:
        """One call an event, printed."""
        if options["action"] == "list":
            for one in waiting.refused():
                self.stdout.write(
                    f"{one.id}  {one.type} {one.kind} {one.name} at {one.version}: {one.detail}"
                )
            return
        act = inbox.replay if options["action"] == "replay" else inbox.dismiss
        for event_id in options["ids"]:
            try:
                act(event_id, at=timezone.now())
            except AccountingError as fault:
                raise CommandError(str(fault)) from fault
            outcome = waiting.results([(event_id, event_id)])
            said = f"{outcome[0].outcome} {outcome[0].detail}".strip() if outcome else "waiting"
            self.stdout.write(f"{event_id}: {said if options['action'] == 'replay' else 'dismissed'}")

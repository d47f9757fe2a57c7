"""`manage.py adopt-cluster`: the books of one cluster become those of another that took its place."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError
from django.utils import timezone

from hamiacct.accounting.errors import AccountingError
from hamiacct.kube import client
from hamiacct.operations import watching as operations
from hamiacct.queries import watching


class Command(BaseCommand):
    """Shows both clusters, asks, adopts."""

    help = (
        "Keep these books of the cluster of HAMIACCT_KUBECONFIG (or of the one this runs in) from now on, "
        "though they were another's. Its next full lists win over everything the books hold. Stop the "
        "watcher before, start it afterwards."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Whether to ask."""
        parser.add_argument("--yes", action="store_true", help="do not ask")

    def handle(self, *args: Any, **options: Any) -> None:
        """One look at the cluster, one question, one operation."""
        try:
            known, found = watching.cluster_uid(), _cluster_uid()
            self.stdout.write(f"these books  {known or 'of no cluster yet'}")
            self.stdout.write(f"the cluster  {found}")
            if known == found:
                self.stdout.write("They are the same; nothing is to be done.")
                return
            if not options["yes"]:
                self.ask()
            operations.adopt_cluster(found, at=timezone.now())
        except AccountingError as fault:
            raise CommandError(str(fault)) from fault
        except DatabaseError as fault:
            raise CommandError(f"the database: {fault}") from fault
        self.stdout.write(self.style.SUCCESS(f"These books are of the cluster {found} from now on."))

    def ask(self) -> None:
        """CommandError unless somebody says yes."""
        self.stdout.write("What the cluster does not hold will end with its next full lists, and be free.")
        try:
            answer = input("Adopt it? [yes/no] ")
        except EOFError:
            answer = ""
        if answer.strip().lower() != "yes":
            raise CommandError("nothing was changed")


def _cluster_uid() -> str:
    cluster = client.connect(settings.HAMIACCT.kubeconfig)
    if cluster is None:
        raise CommandError("set HAMIACCT_KUBECONFIG: this is not a pod of a cluster")
    return cluster.cluster_uid()

"""`manage.py watch`: follows the cluster, and keeps the books right from then on."""

from __future__ import annotations

import logging
import os
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from hamiacct.accounting.errors import Unavailable
from hamiacct.kube import client
from hamiacct.management.watcher import Signals, Watcher

log = logging.getLogger(__name__)


class Command(BaseCommand):
    """Lists, watches, and ends on SIGTERM."""

    help = (
        "Follow Pods, Nodes and ResourceQuotas of the cluster of HAMIACCT_KUBECONFIG, or of the one this "
        "runs in. It only reads. Of several at once one watches, the others stand by and take over "
        "within 15 s. Ends on SIGTERM; with status 1 where these books are kept of another cluster."
    )
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Runs until somebody wants it to end."""
        try:
            if client.connect(settings.HAMIACCT.kubeconfig) is None:
                raise CommandError("set HAMIACCT_KUBECONFIG: this is not a pod of a cluster")
        except Unavailable as fault:  # a kubeconfig that is being written is read again
            log.warning("%s", fault)
        signals = Signals()
        watcher = Watcher(settings.HAMIACCT.kubeconfig, signals.call)
        watcher.start()
        signals.wait()
        watcher.stop()
        if watcher.fault is not None:
            raise CommandError(str(watcher.fault))
        log.info("stopped")
        # Taking the interpreter apart around threads that wait takes up to a second on a busy machine, and
        # serves nobody: what they had open is a transaction.
        logging.shutdown()
        os._exit(0)

"""What pods are told: Events with HAMi's reasons about what was answered to kube-scheduler.

They are sent when the answer is out, by one thread of the process, so no question waits for them and none
fails by them. Bounded: what comes while too many wait is not told. A pending pod is filtered again every few
seconds with the same outcome, so the same words about a pod are told once in a while only.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import structlog
from django.conf import settings
from django.utils import timezone

from api import afterwards
from hamiacct.accounting.errors import AccountingError
from hamiacct.kube import client, happenings
from hamiacct.kube.fields import Manifest
from hamiacct.kube.happenings import Happening

log = structlog.get_logger("hamiacct.telling")

MAX_OUTSTANDING = 500
AGAIN_AFTER_SECONDS = 300
MAX_REMEMBERED = 10_000


def tell(pod: Manifest, happened: Iterable[Happening]) -> None:
    """Has Events recorded on the pod once the current request was answered.

    Nothing where the cluster is only read, or is none. `happened` is walked after the answer, too.
    """
    if settings.HAMIACCT.scheduler_mode:
        afterwards.do(partial(_put, pod, happened))


class _Teller:
    """The Events that wait, and the thread that sends them, which begins with the first."""

    def __init__(self, at_most: int = MAX_OUTSTANDING) -> None:
        self.waiting: queue.Queue[partial[None]] = queue.Queue(at_most)
        self._begin = threading.Lock()
        self._thread: threading.Thread | None = None
        self._told: OrderedDict[tuple[client.Client, str, Happening], float] = OrderedDict()
        self._is_full = False

    def put(self, pod: Manifest, happened: Iterable[Happening]) -> None:
        """Has the Events sent, as many as there is room for."""
        try:
            cluster = client.connect(settings.HAMIACCT.kubeconfig)
            about = happenings.about(pod)
        except AccountingError as fault:
            log.info("no event recorded", error=str(fault))
            return
        if cluster is None:
            return
        scheduler = settings.HAMIACCT.scheduler_name
        for one in happened:
            if not self._is_news(cluster, about, one):
                continue
            event = happenings.event_of(about, one, scheduler=scheduler, at=timezone.now())
            if not self._queue(partial(_send, cluster, event)):
                return

    def _is_news(self, cluster: client.Client, about: Mapping[str, Any], one: Happening) -> bool:
        """Whether this was not told of the pod of late."""
        now, key = time.monotonic(), (cluster, str(about["uid"]), one)
        with self._begin:
            if now - self._told.get(key, -float(AGAIN_AFTER_SECONDS)) < AGAIN_AFTER_SECONDS:
                return False
            self._told[key] = now
            self._told.move_to_end(key)
            while len(self._told) > MAX_REMEMBERED:
                self._told.popitem(last=False)
        return True

    def _queue(self, send: partial[None]) -> bool:
        """Whether there was room for one more."""
        try:
            self.waiting.put_nowait(send)
        except queue.Full:
            if not self._is_full:
                log.warning("too many events wait for the API server; they are no longer recorded")
            self._is_full = True
            return False
        self._is_full = False
        with self._begin:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._send_all, name="teller", daemon=True)
                self._thread.start()
        return True

    def _send_all(self) -> None:
        """Sends what comes, until the process ends."""
        while True:
            self.waiting.get()()


def _send(cluster: client.Client, event: Mapping[str, Any]) -> None:
    """Records one Event, if that can be done; nothing depends on it."""
    try:
        cluster.create_event(event["metadata"]["namespace"], event)
    except AccountingError as fault:
        log.info("no event recorded", reason=event["reason"], error=str(fault))
    except Exception:  # the thread that tells is the only one: the next event is sent all the same
        log.exception("no event recorded")


_teller = _Teller()


def _put(pod: Manifest, happened: Iterable[Happening]) -> None:
    _teller.put(pod, happened)

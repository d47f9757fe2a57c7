"""The watcher as operators see it: who watches, which cluster, and what it does about each kind."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models.functions import Now

from hamiacct import models
from hamiacct.accounting.words import Kind, WatchState


@dataclass(frozen=True, slots=True)
class Watch:
    """What the watcher does about one kind, and since when.

    `version` and `heard_at` are of what the API server sent last, 0 and None before it sent anything;
    `silent_seconds` is how long ago that is.
    """

    kind: Kind
    state: WatchState
    detail: str
    since: datetime
    version: int
    heard_at: datetime | None
    silent_seconds: float | None


@dataclass(frozen=True, slots=True)
class Watcher:
    """`holder` held the lease last ("": it was given up), since `since`; `is_alive` is whether it still does.

    `cluster_uid` is "" where no cluster was seen yet. Kinds of which nothing was noted are left out.
    """

    holder: str
    since: datetime | None
    is_alive: bool
    cluster_uid: str
    watches: tuple[Watch, ...]


def watcher(at: datetime) -> Watcher | None:
    """The watcher; None where none has ever run. The lease is judged by the database's clock."""
    lease = models.WatchLease.objects.first()
    cluster = models.Cluster.objects.first()
    watches = tuple(
        Watch(
            Kind(row.kind),
            WatchState(row.state),
            row.detail,
            row.since,
            row.version,
            row.heard_at,
            None if row.heard_at is None else max((at - row.heard_at).total_seconds(), 0.0),
        )
        for row in models.Watch.objects.order_by("kind")
    )
    if lease is None and cluster is None and not watches:
        return None
    return Watcher(
        lease.holder if lease else "",
        lease.since if lease and lease.holder else None,
        models.WatchLease.objects.filter(expires_at__gt=Now()).exclude(holder="").exists(),
        cluster.uid if cluster else "",
        watches,
    )


def cluster_uid() -> str:
    """The UID of the cluster these books are kept of; "" where none was seen yet."""
    return models.Cluster.objects.values_list("uid", flat=True).first() or ""

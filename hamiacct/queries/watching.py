"""The watcher as operators see it: who watches, which cluster, and what it does about each kind."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db import connection

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
    """The watcher; None where none has ever run. The lease is judged by the database's clock. Two queries."""
    with connection.cursor() as cursor:
        cursor.execute(WHO_AND_WHERE)
        holder, since, is_alive, cluster = cursor.fetchone()
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
    if holder is None and cluster is None and not watches:
        return None
    return Watcher(holder or "", since if holder else None, bool(is_alive), cluster or "", watches)


WHO_AND_WHERE = """
SELECT lease.holder, lease.since, lease.holder <> '' AND lease.expires_at > clock_timestamp(), cluster.uid
FROM (SELECT) AS nothing
LEFT JOIN hamiacct_watchlease AS lease ON true
LEFT JOIN hamiacct_cluster AS cluster ON true
LIMIT 1
"""


def cluster_uid() -> str:
    """The UID of the cluster these books are kept of; "" where none was seen yet."""
    return models.Cluster.objects.values_list("uid", flat=True).first() or ""

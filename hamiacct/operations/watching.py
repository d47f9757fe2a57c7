"""Who watches the cluster, which cluster it is, and what the watcher does just now.

One watcher at a time: it holds a lease in the database, by the database's clock, because two machines'
clocks differ and a lease is nothing but the comparison of two times. The lease alone cannot stop a watcher
that was paused and does not know that its time is up; where that could do harm (`snapshots.begin` of a new
history) it is asked again, under lock, in the same transaction.
"""

from __future__ import annotations

import logging
from datetime import datetime

from django.db import connection, transaction

from hamiacct import models
from hamiacct.accounting.errors import AnotherCluster, Conflict, LeaseLost
from hamiacct.accounting.words import Kind, WatchState
from hamiacct.operations import locks, streams

log = logging.getLogger(__name__)

LEASE_SECONDS = 10
MAX_DETAIL = 1000


def take_lease(holder: str, *, at: datetime) -> bool:
    """Takes the lease for ten seconds; False while another holds it. Who follows already renews it.

    `holder` names one process, not one machine. `at` is only shown: since when this holder has it.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO hamiacct_watchlease AS lease (id, holder, since, expires_at)
            VALUES (1, %(holder)s, %(at)s, clock_timestamp() + make_interval(secs => %(seconds)s))
            ON CONFLICT (id) DO UPDATE SET
                holder = excluded.holder,
                since = CASE WHEN lease.holder = excluded.holder THEN lease.since ELSE excluded.since END,
                expires_at = excluded.expires_at
            WHERE lease.holder IN (excluded.holder, '') OR lease.expires_at <= clock_timestamp()
            """,
            {"holder": holder, "at": at, "seconds": LEASE_SECONDS},
        )
        return cursor.rowcount == 1


def renew_lease(holder: str) -> bool:
    """Holds it for ten seconds more, even where it had run out; False where anybody has had it since."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE hamiacct_watchlease SET expires_at = clock_timestamp() + make_interval(secs => %s)"
            " WHERE holder = %s",
            [LEASE_SECONDS, holder],
        )
        return cursor.rowcount == 1


def give_up_lease(holder: str) -> None:
    """Lets the next watcher begin at once; nothing where this holder lost the lease already."""
    models.WatchLease.objects.filter(holder=holder).update(holder="")


def check_lease(holder: str) -> None:
    """LeaseLost unless `holder` holds the lease, which nobody can take until this transaction ends."""
    assert holder, "nobody holds no lease"
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT FROM hamiacct_watchlease WHERE holder = %s AND expires_at > clock_timestamp() FOR UPDATE",
            [holder],
        )
        if not cursor.rowcount:
            raise LeaseLost(f"{holder} does not hold the watcher's lease any more")


def see_cluster(uid: str, *, at: datetime) -> None:
    """The cluster that the watcher reads. The first one is remembered; AnotherCluster for any other."""
    models.Cluster.objects.get_or_create(id=1, defaults={"uid": uid, "since": at})
    known = models.Cluster.objects.get().uid
    if known != uid:
        raise AnotherCluster(
            f"these books are kept of the cluster {known}, this one is {uid}; "
            "if it took the other's place, run manage.py adopt-cluster",
            known=known,
            found=uid,
        )


def adopt_cluster(uid: str, *, at: datetime) -> None:
    """The books are this cluster's from now on: its versions have nothing to do with the old ones.

    New histories begin, so that its lists win over whatever the books hold; until they have been applied
    the books are not complete (decision 25). Conflict while a watcher follows the cluster it was.
    """
    with transaction.atomic():
        locks.be_patient()
        for kind in sorted(Kind):
            locks.close_stream(kind)
            streams.begin_history(kind)
        _check_nobody_watches()
        models.Feed.objects.update(listed_at=None, declared_complete_at=None)
        models.Watch.objects.update(version=0)
        models.WatchLease.objects.update(holder="")  # one that ran out is not to be renewed by who was paused
        models.Cluster.objects.update_or_create(id=1, defaults={"uid": uid, "since": at})
    log.warning("these books are kept of the cluster %s from now on", uid)


def _check_nobody_watches() -> None:
    """Whoever holds the lease has seen the cluster that it was, and would go on telling of that one."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT holder FROM hamiacct_watchlease"
            " WHERE holder <> '' AND expires_at > clock_timestamp() FOR UPDATE"
        )
        if found := cursor.fetchone():
            raise Conflict(f"{found[0]} watches the cluster that these books are kept of; stop it first")


def note(
    kind: Kind, state: WatchState, *, detail: str = "", version: int = 0, holder: str = "", at: datetime
) -> None:
    """What the watcher does about a kind, to be shown. Nothing where another has the lease of `holder`.

    `since` moves when the state changes. A `version` above 0 says that the API server was heard from.
    """
    heard_at = at if version else None
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO hamiacct_watch AS watch (kind, state, detail, since, version, heard_at)
            SELECT %(kind)s, %(state)s, %(detail)s, %(at)s, %(version)s, %(heard_at)s::timestamptz
            WHERE %(holder)s = '' OR EXISTS (SELECT FROM hamiacct_watchlease WHERE holder = %(holder)s)
            ON CONFLICT (kind) DO UPDATE SET
                state = excluded.state,
                detail = excluded.detail,
                since = CASE WHEN watch.state = excluded.state THEN watch.since ELSE excluded.since END,
                version = CASE WHEN excluded.version > 0 THEN excluded.version ELSE watch.version END,
                heard_at = coalesce(excluded.heard_at, watch.heard_at)
            """,
            {
                "kind": kind,
                "state": state,
                "detail": detail[:MAX_DETAIL],
                "at": at,
                "version": version,
                "heard_at": heard_at,
                "holder": holder,
            },
        )

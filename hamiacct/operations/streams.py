"""Each kind's stream of versions: its history, what was applied of it, its full lists (decision 8)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import orjson
from django.db import connection

from hamiacct import models
from hamiacct.accounting.words import EventType, Kind, ReservationState
from hamiacct.queries.statements import Statement

log = logging.getLogger(__name__)

EVERYWHERE = ""


class Seen(NamedTuple):
    """One thing seen of an object: a watch event, or an item of the full list at `list_version`.

    `uid` is "" for kinds known by name, `namespace` for nodes. `replayed` says an operator sent it again:
    versions do not count then (decision 11).
    """

    type: EventType
    uid: str
    namespace: str
    name: str
    resource_version: int
    history: int
    manifest: Mapping[str, object]
    list_version: int = 0
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Stream:
    """A kind's history, and by scope ("" is the whole cluster) the version of the last full list of it."""

    kind: Kind
    history: int
    applied_version: int
    listed: dict[str, int]

    def listed_version(self, namespace: str) -> int:
        """The version of the last full list that would have held an object of this namespace; 0: none."""
        return max(self.listed.get(EVERYWHERE, 0), self.listed.get(namespace, 0))

    def knows_newer(self, row: models.Node | models.ResourceQuota | None, seen: Seen) -> bool:
        """Whether what the books know of a node or quota is newer than what was seen of it (decision 8).

        Of one they have not heard of in this history, or that went, a full list may have said that it is no
        more, whatever became of it in between.
        """
        if seen.replayed:
            return False
        is_gone = row is None or row.history != self.history or row.deleted
        listed = self.listed_version(seen.namespace)
        if is_gone and listed and not seen.list_version and seen.resource_version <= listed:
            return True
        if row is None or row.history != self.history:
            return False
        if row.deleted and seen.list_version:
            # A list that holds it after all is the truth, though neither its own version nor, where nothing
            # else happened, the list's has moved.
            return seen.list_version < row.resource_version
        return seen.resource_version <= row.resource_version


def of_kind(kind: Kind) -> Stream:
    """The stream as it is now; marks of an older history do not count."""
    history, applied_version, listed = _STREAM.row(kind.value)
    return Stream(kind, history, applied_version, orjson.loads(listed))


_STREAM = Statement(
    "hamiacct_stream",
    "text",
    """
SELECT feed.history, feed.applied_version, (
    SELECT coalesce(json_object_agg(mark.namespace, mark.version), '{}')::text
    FROM hamiacct_listmark AS mark WHERE mark.kind = feed.kind AND mark.history = feed.history)
FROM hamiacct_feed AS feed WHERE feed.kind = $1
""",
)


def histories() -> dict[str, int]:
    """The current history of every kind."""
    return dict(models.Feed.objects.values_list("kind", "history"))


def advance(kind: Kind, versions: Iterable[int]) -> None:
    """Remembers the highest version applied. Called last: every drain of the kind writes this row."""
    highest = max(versions, default=0)
    if highest:
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE hamiacct_feed SET applied_version = %s WHERE kind = %s AND applied_version < %s",
                [highest, kind, highest],
            )


def begin_history(kind: Kind) -> None:
    """A restored cluster: old versions and old tombstones no longer count."""
    log.warning("a new history of %s begins: the cluster was restored", kind)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE hamiacct_feed SET history = history + 1, applied_version = 0 WHERE kind = %s", [kind]
        )
    if kind == Kind.POD:
        # Every list of the new history was taken after what was bound in the old one (decision 26).
        models.Reservation.objects.filter(state=ReservationState.BOUND).update(bound_version=0)


def mark_listed(kind: Kind, namespace: str, version: int, *, at: datetime) -> None:
    """A full list of the scope has been applied at this version."""
    history = models.Feed.objects.get(kind=kind).history
    models.ListMark.objects.update_or_create(
        kind=kind, namespace=namespace, defaults={"history": history, "version": version, "at": at}
    )
    if namespace == EVERYWHERE:
        models.Feed.objects.filter(kind=kind).update(listed_at=at)

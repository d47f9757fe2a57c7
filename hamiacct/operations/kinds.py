"""What a full list needs to know of each kind: how its objects are known, locked, read, applied and ended."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeVar

from django.db.models import Max, Model, QuerySet

from hamiacct import config, models
from hamiacct.accounting.words import Kind, PodState, ReservationState
from hamiacct.kube import fields, manifests, registration
from hamiacct.kube.manifests import Envelope
from hamiacct.operations import locks, node_events, pod_events, quota_events
from hamiacct.operations.pod_events import Verdict
from hamiacct.operations.streams import Seen, Stream
from hamiacct.queries import streamed
from hamiacct.queries.arrays import among
from hamiacct.queries.fleet import STANDING

Row = TypeVar("Row", bound=Model)


class Known(NamedTuple):
    """An object that the books know; `counts` is whether the guard counts its end (decision 33)."""

    id: str
    is_alive: bool
    counts: bool
    resource_version: int
    history: int


class Books(Protocol):
    """One kind. Ids are UIDs of pods, names of nodes, and of quotas namespace and name."""

    def id_of(self, envelope: Envelope) -> str: ...
    def living(self, namespace: str) -> list[Known]: ...
    def among(self, ids: Collection[str]) -> list[Known]: ...
    def applied_version(self, namespace: str, history: int) -> int: ...
    def parse(self, manifest: dict[str, object], at: datetime) -> object: ...
    def apply(self, seen: Sequence[Seen], stream: Stream, *, at: datetime) -> list[Verdict]: ...
    def end(self, ids: Sequence[str], version: int, stream: Stream, at: datetime) -> int: ...


class _Pods:
    """Pods. The guard counts the charged ones; no list ends a hold that was not bound before it."""

    def id_of(self, envelope: Envelope) -> str:
        return envelope.uid

    def living(self, namespace: str) -> list[Known]:
        living = _within(models.Pod.objects.filter(ended_by=""), namespace)
        return self._known(living, _within(models.Reservation.objects.all(), namespace))

    def among(self, ids: Collection[str]) -> list[Known]:
        return self._known(
            models.Pod.objects.filter(uid__in=ids), models.Reservation.objects.filter(pod_uid__in=ids)
        )

    def applied_version(self, namespace: str, history: int) -> int:
        return _highest(_within(models.Pod.objects.filter(history=history), namespace))

    def _known(self, pods: QuerySet[models.Pod], reservations: QuerySet[models.Reservation]) -> list[Known]:
        holds = reservations.filter(state__in=STANDING)
        bound = dict(holds.filter(state=ReservationState.BOUND).values_list("pod_uid", "bound_version"))
        endless = set(holds.values_list("pod_uid", flat=True)) - bound.keys()
        known = pods.values_list("uid", "ended_by", "state", "resource_version", "history")
        return [
            Known(
                uid,
                not ended_by and uid not in endless,
                not ended_by and uid not in endless and state != PodState.UNSCHEDULED,
                max(version, bound[uid] + 1) if uid in bound else version,
                history,
            )
            for uid, ended_by, state, version, history in streamed.rows(known)
        ]

    def parse(self, manifest: dict[str, object], at: datetime) -> object:
        return manifests.pod_from_manifest(manifest, config.vendors())

    def apply(self, seen: Sequence[Seen], stream: Stream, *, at: datetime) -> list[Verdict]:
        locks.take(locks.Space.POD_NAME, {locks.name_key(one.namespace, one.name) for one in seen})
        return pod_events.apply(seen, stream, at=at)

    def end(self, ids: Sequence[str], version: int, stream: Stream, at: datetime) -> int:
        names = models.Pod.objects.filter(uid__in=ids).values_list("namespace", "name")
        locks.take(locks.Space.POD_NAME, {locks.name_key(*name) for name in names})
        return pod_events.end_absent(ids, version, stream, at=at)


class _Nodes:
    """Nodes; they are in no namespace."""

    def id_of(self, envelope: Envelope) -> str:
        return envelope.name

    def living(self, namespace: str) -> list[Known]:
        return self._known(models.Node.objects.filter(deleted=False))

    def among(self, ids: Collection[str]) -> list[Known]:
        return self._known(models.Node.objects.filter(name__in=ids))

    def applied_version(self, namespace: str, history: int) -> int:
        return _highest(models.Node.objects.filter(history=history))

    def _known(self, nodes: QuerySet[models.Node]) -> list[Known]:
        known = nodes.values_list("name", "deleted", "resource_version", "history")
        return [
            Known(name, not deleted, not deleted, version, history)
            for name, deleted, version, history in known
        ]

    def parse(self, manifest: dict[str, object], at: datetime) -> object:
        return registration.node_from_manifest(manifest, config.vendors(), at, config.handshake_zone())

    def apply(self, seen: Sequence[Seen], stream: Stream, *, at: datetime) -> list[Verdict]:
        locks.take(locks.Space.NODE, {one.name for one in seen})
        return node_events.apply(seen, stream, at=at)

    def end(self, ids: Sequence[str], version: int, stream: Stream, at: datetime) -> int:
        locks.take(locks.Space.NODE, ids)
        return node_events.forget(ids, version, stream, at=at)


BETWEEN = "\0"  # a namespace and a name, neither of which can have it


def _quota_id(namespace: str, name: str) -> str:
    return f"{namespace}{BETWEEN}{name}"


class _Quotas:
    """ResourceQuotas."""

    def id_of(self, envelope: Envelope) -> str:
        return _quota_id(envelope.namespace, envelope.name)

    def living(self, namespace: str) -> list[Known]:
        return self._known(_within(models.ResourceQuota.objects.filter(deleted=False), namespace))

    def among(self, ids: Collection[str]) -> list[Known]:
        return self._known(self._rows(ids))

    def applied_version(self, namespace: str, history: int) -> int:
        return _highest(_within(models.ResourceQuota.objects.filter(history=history), namespace))

    def _rows(self, ids: Iterable[str]) -> QuerySet[models.ResourceQuota]:
        names = [id_.split(BETWEEN, 1) for id_ in ids]
        return among(models.ResourceQuota.objects.all(), ("namespace", "name"), names)

    def _known(self, quotas: QuerySet[models.ResourceQuota]) -> list[Known]:
        known = quotas.values_list("namespace", "name", "deleted", "resource_version", "history")
        return [
            Known(_quota_id(space, name), not deleted, not deleted, version, history)
            for space, name, deleted, version, history in known
        ]

    def parse(self, manifest: dict[str, object], at: datetime) -> object:
        return manifests.quota_from_manifest(manifest, config.vendors())

    def apply(self, seen: Sequence[Seen], stream: Stream, *, at: datetime) -> list[Verdict]:
        locks.take(locks.Space.NAMESPACE, {one.namespace for one in seen})
        return quota_events.apply(seen, stream, at=at)

    def end(self, ids: Sequence[str], version: int, stream: Stream, at: datetime) -> int:
        locks.take(locks.Space.NAMESPACE, {id_.split(BETWEEN, 1)[0] for id_ in ids})
        chosen = list(self._rows(ids).values_list("pk", flat=True))
        return quota_events.forget(chosen, version, stream, at=at)


BOOKS: dict[Kind, Books] = {Kind.POD: _Pods(), Kind.NODE: _Nodes(), Kind.QUOTA: _Quotas()}


def identity(kind: Kind, manifest: object) -> str:
    """The id of an object whose envelope may be unreadable, as far as it shows one; "" otherwise."""
    metadata = manifest.get("metadata") if isinstance(manifest, dict) else None
    if not isinstance(metadata, dict):
        return ""
    uid, name, namespace = metadata.get("uid"), metadata.get("name"), metadata.get("namespace")
    if kind is Kind.POD:
        return uid if isinstance(uid, str) else ""
    if not isinstance(name, str) or not name:
        return ""
    if kind is Kind.NODE:
        return name
    space = namespace if isinstance(namespace, str) and namespace else fields.DEFAULT_NAMESPACE
    return _quota_id(space, name)


def _within(rows: QuerySet[Row], namespace: str) -> QuerySet[Row]:
    """The rows of one namespace, or ("") all of them."""
    return rows.filter(namespace=namespace) if namespace else rows


def _highest(rows: QuerySet[Any]) -> int:
    version: int | None = rows.aggregate(highest=Max("resource_version"))["highest"]
    return version or 0

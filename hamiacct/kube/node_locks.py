"""Node locks: the annotation by which binding on a node is serialized, and whose it is (semantics 2.8).

A device plugin finds out which pod it allocates for by looking for the one whose bind-phase is allocating;
so while a pod is on its way to a node, no other of that vendor may be. Key, form and expiry are the
vendor's `lock` table; a vendor without one needs no lock. Everything here is a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from hamiacct.accounting.errors import UnreadableAnnotation
from hamiacct.accounting.pods import Allocation, Pod
from hamiacct.accounting.vendors import Vendor
from hamiacct.kube.patches import ALLOCATING

NAMED = "time,namespace,name"

_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)", re.ASCII)


@dataclass(frozen=True, slots=True)
class LockKind:
    """One kind of lock: its annotation, whether it names its holder, and when it has run out."""

    key: str
    is_named: bool
    expires_seconds: int


@dataclass(frozen=True, slots=True)
class NodeLock:
    """A lock as read. `namespace` and `name` are "" where the text does not say whose it is."""

    at: datetime
    namespace: str = ""
    name: str = ""

    @property
    def has_holder(self) -> bool:
        """Whether it says whose it is."""
        return bool(self.namespace and self.name)


def kinds_of(allocations: Mapping[str, Allocation], vendors: Iterable[Vendor]) -> tuple[LockKind, ...]:
    """The locks that a pod with these rows needs, by key.

    Rows of init containers count like any other: their devices are allocated by the same plugin (G-17).
    """
    found: dict[str, LockKind] = {}
    for vendor in vendors:
        allocation = allocations.get(vendor.key)
        if allocation is not None and any(allocation.groups) and vendor.lock:
            kind = _kind(vendor)
            same = found.setdefault(kind.key, kind)
            assert same == kind, f"two vendors describe the lock {kind.key} differently"
    return tuple(found[key] for key in sorted(found))


def _kind(vendor: Vendor) -> LockKind:
    key, expires = vendor.lock["key"], vendor.lock["expires_seconds"]
    assert isinstance(key, str)
    assert isinstance(expires, int)
    return LockKind(key, vendor.lock["form"] == NAMED, expires)


def text_of(kind: LockKind, namespace: str, name: str, at: datetime) -> str:
    """The lock as this pod takes it, UTC: whole seconds and its name, or the time alone.

    That is to the microsecond: by nothing else could two pods of one second tell whose lock it is.
    """
    time = at.astimezone(UTC)
    if kind.is_named:
        return f"{time:%Y-%m-%dT%H:%M:%SZ},{namespace},{name}"
    return f"{time:%Y-%m-%dT%H:%M:%S.%fZ}"


def parse(text: str) -> NodeLock:
    """The lock of a text of one or three parts. Raises UnreadableAnnotation."""
    time, *holder = text.split(",")
    if len(holder) not in (0, 2):
        raise UnreadableAnnotation(f"malformed lock annotation: {len(holder) + 1} parts, not 1 or 3")
    if not _RFC_3339.fullmatch(time):
        raise UnreadableAnnotation("malformed lock annotation: no RFC 3339 time with a zone")
    try:
        at = datetime.fromisoformat(time)
    except ValueError as error:
        raise UnreadableAnnotation(f"malformed lock annotation: {error}") from error
    return NodeLock(at, *holder)


class Standing(StrEnum):
    """How a lock stands to a pod that wants it."""

    FREE = "free"
    OURS = "ours"
    EXPIRED = "expired"
    HELD = "held"
    MALFORMED = "malformed"


def standing(kind: LockKind, text: str | None, namespace: str, name: str, at: datetime) -> Standing:
    """How the annotation's text (None: there is none) stands to this pod.

    HELD is for whoever looks the holder up to say. Of a text that cannot be read nobody knows how old it
    is or whose: it is not taken over.
    """
    if text is None:
        return Standing.FREE
    try:
        lock = parse(text)
    except UnreadableAnnotation:
        return Standing.MALFORMED
    if (lock.namespace, lock.name) == (namespace, name):
        return Standing.OURS
    if (at - lock.at).total_seconds() > kind.expires_seconds:
        return Standing.EXPIRED
    return Standing.HELD


def has_let_go(holder: Pod | None) -> bool:
    """Whether the pod that a lock names no longer needs it: gone, terminal, or past allocating."""
    if holder is None or holder.phase.is_terminal:
        return True
    return bool(holder.bind_phase) and holder.bind_phase != ALLOCATING

"""Which events are worth storing: most of what happens in a cluster tells the books nothing (decision 33).

DELETED                                        always stored
carries nothing of ours                        dropped, unless the books know the object, or news of it wait
reads the same as the last one stored of it    dropped, if the books hold just that one
anything else, and what cannot be read         stored
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hamiacct import config
from hamiacct.accounting.errors import Malformed
from hamiacct.accounting.words import EventType, Kind
from hamiacct.kube import manifests, relevance
from hamiacct.kube.manifests import Envelope
from hamiacct.queries import known

MAX_REMEMBERED = 200_000
"""Objects of a kind, some 40 MB. Beyond it all are forgotten, so news of each are stored once more."""


class Remembered(NamedTuple):
    """The last event stored of an object: what it said, and its version."""

    digest: bytes
    version: int


class _Event(NamedTuple):
    """An event that was read, reduced to what the codec reads."""

    place: int
    envelope: Envelope
    manifest: dict[str, Any]
    digest: bytes
    is_ours: bool


@dataclass(slots=True)
class Sifted:
    """What is to be stored, and what is to be remembered of it once it is."""

    events: list[object] = field(default_factory=list)
    remembered: dict[str, Remembered | None] = field(default_factory=dict)


class Sieve:
    """The sieve of one kind. What it remembers is a few bytes for each object that is ours."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._remembered: dict[str, Remembered] = {}

    def forget(self) -> None:
        """A list goes through the books, so what was stored before it says nothing of what they hold now."""
        self._remembered.clear()

    def page(self, items: Sequence[Any]) -> tuple[list[Any], list[str]]:
        """The items of a list that the books need to see, and the UIDs of those that they need not.

        Nodes and quotas all go through.
        """
        if self._kind is not Kind.POD:
            return list(items), []
        vendors = config.vendors()
        foreign: list[tuple[Envelope, Any]] = []
        kept: list[Any] = []
        for item in items:
            try:
                envelope = manifests.envelope({"type": EventType.MODIFIED, "object": item})
            except Malformed:
                kept.append(item)
                continue
            if envelope.kind != self._kind or relevance.concerns_us(self._kind, item, vendors):
                kept.append(item)
            else:
                foreign.append((envelope, item))
        held = known.held(self._kind, [envelope for envelope, _ in foreign])
        kept += [item for envelope, item in foreign if envelope in held]
        return kept, [envelope.uid for envelope, _ in foreign if envelope not in held]

    def batch(self, events: Sequence[Any]) -> Sifted:
        """What of these events to store, in their order. Asks the books once, about those it would drop."""
        read = [self._read(place, event) for place, event in enumerate(events)]
        doubtful = [one for one in read if one is not None and self._is_doubtful(one)]
        held = known.held(self._kind, [one.envelope for one in doubtful])
        dropped = {one.place for one in doubtful if self._is_dropped(one, held)}
        sifted = Sifted()
        for place, (event, one) in enumerate(zip(events, read, strict=True)):
            if one is None:
                sifted.events.append(event)
            elif place not in dropped:
                sifted.events.append({"type": one.envelope.type, "object": one.manifest})
                is_gone = one.envelope.type == EventType.DELETED
                sifted.remembered[self._key(one.envelope)] = (
                    None if is_gone else Remembered(one.digest, one.envelope.resource_version)
                )
        return sifted

    def stored(self, sifted: Sifted) -> None:
        """What was to be stored is."""
        for key, remembered in sifted.remembered.items():
            if remembered is None:
                self._remembered.pop(key, None)
            else:
                self._remembered[key] = remembered
        if len(self._remembered) > MAX_REMEMBERED:
            self._remembered.clear()

    def _read(self, place: int, event: Any) -> _Event | None:
        """None where it cannot be read, or is of another kind: that is judged where it is stored."""
        try:
            envelope = manifests.envelope(event)
        except Malformed:
            return None
        if envelope.kind != self._kind:
            return None
        vendors = config.vendors()
        kept = manifests.keep(self._kind, event["object"], vendors)
        is_ours = relevance.concerns_us(self._kind, kept, vendors)
        return _Event(place, envelope, kept, relevance.digest(self._kind, kept, vendors), is_ours)

    def _is_doubtful(self, one: _Event) -> bool:
        if one.envelope.type == EventType.DELETED:
            return False
        return not one.is_ours or self._repeated(one) is not None

    def _is_dropped(self, one: _Event, held: dict[Envelope, int]) -> bool:
        repeated = self._repeated(one)
        if repeated is not None and held.get(one.envelope) == repeated.version:
            return True  # the books hold just this
        return (
            not one.is_ours and one.envelope not in held and self._key(one.envelope) not in self._remembered
        )

    def _repeated(self, one: _Event) -> Remembered | None:
        """The last event stored of the object, if it said the same."""
        last = self._remembered.get(self._key(one.envelope))
        return last if last is not None and last.digest == one.digest else None

    def _key(self, envelope: Envelope) -> str:
        return envelope.uid if self._kind is Kind.POD else f"{envelope.namespace}/{envelope.name}"

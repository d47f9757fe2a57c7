"""The one fold (decision 1; design, "The Core Idea").

    init     steady               peak = max(peak, steady + u)
    sidecar  steady + u           peak
    app      steady + u           peak

Kubernetes declares init containers before apps, so while inits are folded `steady` *is* the sum of
the sidecars declared so far. `effective = max(peak, steady)`; the shrink target is `steady`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic

from hamiacct.accounting.amounts import UNUSED, Key, Usage
from hamiacct.accounting.pods import ContainerClass


@dataclass(frozen=True, slots=True)
class Footprint(Generic[Key]):
    """What a pod holds for good (`steady`) and at its worst moment while inits run (`peak`)."""

    steady: Usage[Key] = UNUSED
    peak: Usage[Key] = UNUSED

    def then(self, kind: ContainerClass, usage: Usage[Key]) -> Footprint[Key]:
        """The footprint after the next container in declaration order."""
        if kind is ContainerClass.INIT:
            return Footprint(self.steady, self.peak.peak(self.steady.plus(usage)))
        if not len(usage):
            return self
        return Footprint(self.steady.plus(usage), self.peak)

    def either(self, other: Footprint[Key]) -> Footprint[Key]:
        """Room enough for two readings of one pod (decision 14)."""
        return Footprint(self.steady.peak(other.steady), self.peak.peak(other.peak))

    def beside(self, other: Footprint[Key]) -> Footprint[Key]:
        """Two footprints over different keys as one."""
        return Footprint(self.steady.plus(other.steady), self.peak.plus(other.peak))

    @property
    def effective(self) -> Usage[Key]:
        """What admission, recording and the apiserver charge."""
        return self.peak.peak(self.steady)


Step = tuple[ContainerClass, Usage[Key]]


def footprints(containers: Iterable[Step[Key]]) -> Iterator[Footprint[Key]]:
    """The footprint after each container, in declaration order; explain prints these."""
    footprint: Footprint[Key] = Footprint()
    for kind, usage in containers:
        footprint = footprint.then(kind, usage)
        yield footprint


def footprint_of(containers: Sequence[Step[Key]]) -> Footprint[Key]:
    """The footprint after all containers."""
    footprint: Footprint[Key] = Footprint()
    for kind, usage in containers:
        footprint = footprint.then(kind, usage)
    return footprint

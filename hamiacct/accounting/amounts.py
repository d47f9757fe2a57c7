"""Amounts of a shared device, and amounts per key.

An `Amount` has three dimensions: slots, memory and cores. They add and peak each on its own.
A `Usage` is an amount per key; it does not know what the key means (a device when pods are
recorded, a vendor when quotas are judged).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Amount:
    """What is held of one device.

    `slots` counts share slots, `memory_mib` is MiB (or the vendor's scaled unit), `cores` is percent
    of one device (or the vendor's unit). Where a vendor hands out *named* cores, `core_set` is their
    bit mask; sets are joined by union and `cores` is their count (decision 2).
    Differences of amounts may be negative; stored amounts never are (decision 13).
    """

    slots: int = 0
    memory_mib: int = 0
    cores: int = 0
    core_set: int = 0

    @classmethod
    def of_core_set(cls, slots: int, memory_mib: int, core_set: int) -> Amount:
        """An amount whose cores are the set bits of `core_set`."""
        return cls(slots, memory_mib, core_set.bit_count(), core_set)

    def plus(self, other: Amount) -> Amount:
        """Both at the same time."""
        core_set = self.core_set | other.core_set
        return Amount(
            self.slots + other.slots,
            self.memory_mib + other.memory_mib,
            core_set.bit_count() if core_set else self.cores + other.cores,
            core_set,
        )

    def minus(self, other: Amount) -> Amount:
        """The signed difference; it has sizes only, no core set."""
        return Amount(self.slots - other.slots, self.memory_mib - other.memory_mib, self.cores - other.cores)

    def peak(self, other: Amount) -> Amount:
        """Room enough for either: the maximum of each dimension, the union of named cores."""
        core_set = self.core_set | other.core_set
        return Amount(
            max(self.slots, other.slots),
            max(self.memory_mib, other.memory_mib),
            core_set.bit_count() if core_set else max(self.cores, other.cores),
            core_set,
        )

    def fits_in(self, room: Amount) -> bool:
        """Whether no dimension exceeds `room`; equality fits."""
        return self.slots <= room.slots and self.memory_mib <= room.memory_mib and self.cores <= room.cores

    @property
    def is_nothing(self) -> bool:
        """Whether nothing at all is held."""
        return not (self.slots or self.memory_mib or self.cores)


NOTHING = Amount()


class Usage(Generic[Key]):
    """An immutable amount per key. A missing key is `NOTHING`; keys with nothing are left out."""

    __slots__ = ("_amounts",)

    def __init__(self, amounts: Mapping[Key, Amount] | Iterable[tuple[Key, Amount]] = ()) -> None:
        self._amounts: dict[Key, Amount] = {
            key: amount for key, amount in dict(amounts).items() if not amount.is_nothing
        }

    def __getitem__(self, key: Key) -> Amount:
        return self._amounts.get(key, NOTHING)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._amounts)

    def __len__(self) -> int:
        return len(self._amounts)

    def __contains__(self, key: object) -> bool:
        return key in self._amounts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Usage) and self._amounts == other._amounts

    def __hash__(self) -> int:
        return hash(frozenset(self._amounts.items()))

    def __repr__(self) -> str:
        return f"Usage({self._amounts!r})"

    def items(self) -> list[tuple[Key, Amount]]:
        """Pairs of key and amount, in the order of the keys where they can be ordered."""
        return sorted(self._amounts.items())

    def plus(self, other: Usage[Key]) -> Usage[Key]:
        """Both at the same time, key by key."""
        if not self._amounts or not other._amounts:
            return self if self._amounts else other
        return Usage({key: self[key].plus(other[key]) for key in (*self, *other)})

    def minus(self, other: Usage[Key]) -> Usage[Key]:
        """Signed differences, key by key; keys without a difference are left out."""
        return Usage({key: self[key].minus(other[key]) for key in (*self, *other)})

    def peak(self, other: Usage[Key]) -> Usage[Key]:
        """Room enough for either, key by key."""
        if not self._amounts or not other._amounts:
            return self if self._amounts else other
        return Usage({key: self[key].peak(other[key]) for key in (*self, *other)})

    @property
    def total(self) -> Amount:
        """The sum over all keys, in sizes."""
        total = NOTHING
        for amount in self._amounts.values():
            total = Amount(
                total.slots + amount.slots,
                total.memory_mib + amount.memory_mib,
                total.cores + amount.cores,
            )
        return total


UNUSED: Usage[Any] = Usage()

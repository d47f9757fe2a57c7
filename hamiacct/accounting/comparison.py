"""HAMi's numbers beside ours, as values: pod by pod and card by card, and the sums one asks for.

Every difference is a pod's, on a card.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from hamiacct.accounting.amounts import NOTHING, Amount
from hamiacct.accounting.hami import Formula
from hamiacct.accounting.words import PodState, Whereabouts


@dataclass(frozen=True, slots=True)
class Share:
    """What one pod holds of one card: as HAMi's formula books it, as HAMi says, and as is right.

    `reported_mib` is None where HAMi's metrics were not given, and 0 where they do not name the pod.
    """

    uid: str
    namespace: str
    name: str
    state: PodState
    node: str
    device: str
    vendor: str
    hami: Amount
    reported_mib: int | None
    right: Amount

    @property
    def differs(self) -> bool:
        """Whether any of the numbers is another."""
        return self.hami_differs or self.reported_mib not in (None, self.right.memory_mib)

    @property
    def hami_differs(self) -> bool:
        """Whether the formula books another amount."""
        return not self.right.minus(self.hami).is_nothing

    @property
    def short(self) -> Amount:
        """What HAMi does not count of it, by its formula or by what it says; never below nothing."""
        return above_nothing(self.right.minus(self._least))

    @property
    def lacks_slots_alone(self) -> bool:
        """Whether HAMi's memory and cores are enough for it."""
        return self.short == Amount(slots=self.short.slots)

    @property
    def over(self) -> Amount:
        """What HAMi counts too much of it, by its formula or by what it says; never below nothing."""
        return above_nothing(self._most.minus(self.right))

    @property
    def _least(self) -> Amount:
        reported = self.hami.memory_mib if self.reported_mib is None else self.reported_mib
        return replace(self.hami, memory_mib=min(self.hami.memory_mib, reported))

    @property
    def _most(self) -> Amount:
        reported = self.hami.memory_mib if self.reported_mib is None else self.reported_mib
        return replace(self.hami, memory_mib=max(self.hami.memory_mib, reported))


class Holder(NamedTuple):
    """A pod that holds something of a card."""

    uid: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Card:
    """A card, and the pods behind its difference. Of one that is not registered no total is known.

    `holders` are all the pods on it where it holds more than it has; of other cards they are not read.
    """

    node: str
    uuid: str
    vendor: str
    index: int
    registered: bool
    total: Amount
    hami: Amount
    reported_mib: int | None
    right: Amount
    shares: tuple[Share, ...]
    holders: tuple[Holder, ...] = ()

    @property
    def over_by(self) -> Amount:
        """By how much right usage exceeds what the card has."""
        return above_nothing(self.right.minus(self.total)) if self.registered else NOTHING

    @property
    def differs(self) -> bool:
        """Whether any of the numbers is another, or those of its pods are and cancel out."""
        return bool(self.shares) or self.reported_mib not in (None, self.right.memory_mib)


@dataclass(frozen=True, slots=True)
class Namespace:
    """What a namespace holds of a vendor, in the units quotas are judged in."""

    namespace: str
    vendor: str
    hami: Amount
    reported_mib: int | None
    right: Amount
    shares: tuple[Share, ...]

    @property
    def differs(self) -> bool:
        """Whether any of the numbers is another, or those of its pods are and cancel out."""
        return bool(self.shares) or self.reported_mib not in (None, self.right.memory_mib)


@dataclass(frozen=True, slots=True)
class Gone:
    """What HAMi says it has booked on a card for a pod that holds nothing of it."""

    namespace: str
    name: str
    node: str
    device: str
    memory_mib: int
    whereabouts: Whereabouts


@dataclass(frozen=True, slots=True)
class Sum:
    """How many of something, and what they come to."""

    count: int
    amount: Amount


@dataclass(frozen=True, slots=True)
class Comparison:
    """Cards and namespaces that are shown, worst first; all pods counted otherwise; what nobody holds.

    A pod may be short of one thing and hold back another: then it is in both lists. `compared_*` is how many
    there are, whatever was asked for.
    """

    formula: Formula
    compared_cards: int
    compared_pods: int
    cards: tuple[Card, ...]
    namespaces: tuple[Namespace, ...]
    under_counted: tuple[Share, ...]
    held_back: tuple[Share, ...]
    gone: tuple[Gone, ...]

    @property
    def over_total(self) -> tuple[Card, ...]:
        """The cards whose right usage exceeds what they have."""
        return tuple(card for card in self.cards if not card.over_by.is_nothing)

    @property
    def excess(self) -> Sum:
        """How many cards hold more than they have, and by how much."""
        return Sum(len(self.over_total), total_of(card.over_by for card in self.over_total))

    @property
    def short(self) -> Sum:
        """How many pods are counted short, and by how much."""
        return sum_short(self.under_counted)

    @property
    def short_of_slots_alone(self) -> tuple[Share, ...]:
        """Those that differ in slots and in nothing else: neither short of room nor holding any back."""
        return tuple(one for one in self.under_counted if one.lacks_slots_alone and one.over.is_nothing)

    @property
    def short_of_room(self) -> tuple[Share, ...]:
        """Those that lack memory or cores: what is promised twice."""
        return tuple(share for share in self.under_counted if not share.lacks_slots_alone)

    @property
    def over(self) -> Sum:
        """How many pods hold room back that would be free, and how much."""
        return Sum(_pods(self.held_back), total_of(share.over for share in self.held_back))

    @property
    def for_nobody(self) -> Sum:
        """For how many pods HAMi says it holds something that they do not hold, and how much."""
        pods = {(one.namespace, one.name) for one in self.gone}
        return Sum(len(pods), Amount(memory_mib=sum(one.memory_mib for one in self.gone)))

    @property
    def differing_cards(self) -> int:
        """How many cards HAMi counts otherwise."""
        return sum(1 for card in self.cards if card.differs)

    @property
    def differing_namespaces(self) -> int:
        """How many namespaces, by vendor, HAMi counts otherwise."""
        return sum(1 for one in self.namespaces if one.differs)

    @property
    def is_nothing(self) -> bool:
        """Whether HAMi and the books say the same, and no card holds more than it has."""
        return not (self.over_total or self.differing_cards or self.differing_namespaces or self.gone)


def above_nothing(amount: Amount) -> Amount:
    """What of a difference is above nothing, each part by itself."""
    return Amount(max(amount.slots, 0), max(amount.memory_mib, 0), max(amount.cores, 0))


def total_of(amounts: Iterable[Amount]) -> Amount:
    """The sum."""
    total = NOTHING
    for amount in amounts:
        total = total.plus(amount)
    return total


def sum_short(shares: Iterable[Share]) -> Sum:
    """How many pods these are, and what they are counted short by."""
    shares = tuple(shares)
    return Sum(_pods(shares), total_of(share.short for share in shares))


def _pods(shares: Iterable[Share]) -> int:
    return len({share.uid for share in shares})

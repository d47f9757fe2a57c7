"""Whether a card, a node, a quota has room for a pod: the model's own answer, plain and exhaustive.

It does not choose as the service does. It says of a given placement whether it may be (`is_allowed`), and of
a node whether every way of choosing card after card ends well (`cannot_fail`) or none does (`cannot_work`).
NVIDIA only, without MIG.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from tests.model.books import (
    APP,
    INIT,
    VENDORS,
    Allocation,
    Ask,
    Books,
    Card,
    Device,
    Groups,
    PodView,
    QuotaView,
    Row,
    Share,
    holding,
)

NVIDIA = VENDORS["NVIDIA"]
WHOLE = 100
Used = Mapping[str, Share]


@dataclass(frozen=True)
class Question:
    """A pod that looks for room in the books; what it holds itself counts as free (decision 28)."""

    books: Books
    pod: PodView

    def cards(self, node: str) -> dict[str, Card]:
        """What the node offers, by uuid."""
        known = self.books.nodes.get(node)
        if known is None or not known.lives:
            return {}
        return {
            uuid: card
            for (place, uuid), card in self.books.cards.items()
            if place == node and card.registered and card.vendor == NVIDIA.key
        }

    def used(self, node: str) -> dict[str, Share]:
        """What others hold of the node's cards."""
        used: dict[str, Share] = {}
        for uid, account in self.books.pods.items():
            if uid != self.pod.uid:
                for device, share in account.held.items():
                    if device.node == node:
                        used[device.uuid] = _plus(used.get(device.uuid, Share(0, 0, 0)), share)
        return used

    # --- one placement ---

    def is_allowed(self, node: str, groups: Groups, *, quotas: bool = True) -> bool:
        """Whether exactly this may be held."""
        cards, used = self.cards(node), self.used(node)
        groups = (*groups, *((),) * (len(self.pod.kinds) - len(groups)))
        if len(groups) > len(self.pod.kinds):
            return False
        for kind, ask, rows in zip(self.pod.kinds, self._asks, groups, strict=True):
            if not is_what_was_asked(ask, rows, cards):
                return False
            after = dict(used)
            for row in rows:
                if not takes(cards[row[0]], after.get(row[0], Share(0, 0, 0)), row):
                    return False
                after[row[0]] = _plus(after.get(row[0], Share(0, 0, 0)), Share(1, row[1], row[2]))
            used = used if kind == INIT else after
        return not quotas or self.is_within_quotas(node, groups)

    @property
    def _asks(self) -> tuple[Ask | None, ...]:
        return (*self.pod.asks, *(None,) * (len(self.pod.kinds) - len(self.pod.asks)))

    def is_within_quotas(self, node: str, groups: Groups) -> bool:
        """Whether each quota that selects the pod has room for the sum that would be posted (decision 18)."""
        shares = holding(self.pod, node, NVIDIA, Allocation(groups), False).values()
        return self.is_within(sum(one.memory for one in shares), sum(one.cores for one in shares))

    def is_within(self, memory: int, cores: int) -> bool:
        """The same of two sums. Only what is asked above 0 is judged (decision 16)."""
        asked = {f"limits.{NVIDIA.memory_name}": memory, f"limits.{NVIDIA.cores_name}": cores}
        return all(
            not asked.get(key) or used + asked[key] <= hard for key, (hard, used) in self._quotas().items()
        )

    def _quotas(self) -> dict[str, tuple[int, int]]:
        """Of the quotas that select the pod the tightest limit by key, with what others hold of it."""
        own = self.books.pods.get(self.pod.uid)
        found: dict[str, tuple[int, int]] = {}
        for one in self.books.quotas.values():
            quota = one.view
            assert isinstance(quota, QuotaView)
            if quota.namespace != self.pod.namespace or not one.lives or not quota.selects(self.pod):
                continue
            for (name, key), (hard, used) in self.books.quotas_of(quota.namespace).items():
                if name != quota.name:
                    continue
                if own is not None and quota.selects(own.view):
                    shares = [share for device, share in own.held.items() if device.vendor == NVIDIA.key]
                    is_memory = key.endswith(NVIDIA.memory_name)
                    if key.removeprefix("limits.") in (NVIDIA.memory_name, NVIDIA.cores_name):
                        used -= sum(share.memory if is_memory else share.cores for share in shares)
                tightest = found.get(key)
                if tightest is None or hard - used < tightest[0] - tightest[1]:
                    found[key] = (hard, used)
        return found

    # --- all of them ---

    def cannot_fail(self, node: str, *, quotas: bool = True) -> bool:
        """Whether whoever takes cards one after the other finds some, whatever was taken before."""
        return bool(self.cards(node)) and all(self._endings(node, quotas=quotas))

    def cannot_work(self, node: str, *, quotas: bool = True) -> bool:
        """Whether there is no placement on the node at all."""
        return not any(self._endings(node, quotas=quotas))

    def _endings(self, node: str, *, quotas: bool) -> Iterator[bool]:
        """Of every way of choosing whether it ends with a placement."""
        cards, used = self.cards(node), self.used(node)

        def go_on(position: int, used: Used, groups: Groups) -> Iterator[bool]:
            if position == len(self.pod.kinds):
                yield True
                return
            ask = self._asks[position]
            if ask is None or ask.count == 0:
                yield from go_on(position + 1, used, (*groups, ()))
                return
            rows = {uuid: (uuid, *resolved(ask, card)) for uuid, card in cards.items()}
            free = [
                row for uuid, row in rows.items() if takes(cards[uuid], used.get(uuid, Share(0, 0, 0)), row)
            ]
            went_on = False
            for chosen in combinations(free, ask.count):
                if quotas and not self.is_within_quotas(node, (*groups, chosen)):
                    continue
                went_on = True
                after = dict(used)
                for uuid, memory, cores in chosen:
                    after[uuid] = _plus(after.get(uuid, Share(0, 0, 0)), Share(1, memory, cores))
                is_init = self.pod.kinds[position] == INIT
                yield from go_on(position + 1, used if is_init else after, (*groups, chosen))
            if not went_on:
                yield False

        yield from go_on(0, used, ())

    # --- what is asked before a card is known ---

    def asked_in_all(self) -> tuple[int, int]:
        """Memory and cores of the pod as admission counts them: what has no size yet is not counted."""
        memory, cores = ([_of(ask, which) for ask in self._asks] for which in (0, 1))
        return _effective(self.pod.kinds, memory), _effective(self.pod.kinds, cores)


def is_what_was_asked(ask: Ask | None, rows: Sequence[Row], cards: Mapping[str, Card]) -> bool:
    """As many different cards as were asked for, with the sizes that were."""
    if len(rows) != (ask.count if ask is not None else 0):
        return False
    uuids = {row[0] for row in rows}
    if len(uuids) < len(rows) or not uuids <= cards.keys():
        return False
    return all(ask is not None and row[1:] == resolved(ask, cards[row[0]]) for row in rows)


def resolved(ask: Ask, card: Card) -> tuple[int, int]:
    """Memory and cores of one card. Whoever names no size has the whole card, for himself."""
    if ask.memory:
        return ask.memory, ask.cores or 0
    # A memory of 0 is as good as none, but it was named.
    alone = WHOLE if ask.memory is None else 0
    return card.total[1], alone if ask.cores is None else ask.cores


def takes(card: Card, used: Share, row: Row) -> bool:
    """Whether the card takes one more (semantics 6.2, checks 1 to 12)."""
    _, memory, cores = row
    slots, total_memory, total_cores = card.total
    if not card.is_offered or slots <= used.slots:
        return False
    if total_memory - used.memory < memory or total_cores - used.cores < cores:
        return False
    if total_cores == WHOLE and cores == WHOLE and used.slots > 0:
        return False
    return not (total_cores != 0 and used.cores == total_cores and cores == 0)


def _of(ask: Ask | None, which: int) -> int:
    if ask is None:
        return 0
    if which == 0:
        return (ask.memory or 0) * ask.count
    alone = WHOLE if ask.memory is None and ask.cores is None else 0
    return (alone if ask.cores is None else ask.cores) * ask.count


def _effective(kinds: Sequence[str], amounts: Sequence[int]) -> int:
    """The formula of the design, on totals of a pod."""
    before, peak = 0, 0
    for kind, amount in zip(kinds, amounts, strict=True):
        if kind == INIT:
            peak = max(peak, before + amount)
        else:
            before += amount
    assert APP in kinds
    return max(peak, before)


def _plus(one: Share, other: Share) -> Share:
    return Share(*(a + b for a, b in zip(one, other, strict=True)))


def device_of(node: str, uuid: str) -> Device:
    """A card of NVIDIA's."""
    return Device(node, uuid, NVIDIA.key)

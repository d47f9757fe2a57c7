"""Binpack, spread and their kin: scores and orderings, as values both fits use (semantics 6.3 to 6.5).

Scores are 32-bit floats in HAMi's order of operations: every step is rounded, so that ties are ties
in both. An ordering is a list of signed keys; the device or node with the largest tuple comes first.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from hamiacct.accounting.errors import Malformed

NODE_POLICY = "hami.io/node-scheduler-policy"
GPU_POLICY = "hami.io/gpu-scheduler-policy"
WEIGHTS = "hami.io/device-scoring-weights"
SCALE = 10.0
INT64_MAX = 2**63 - 1

_FLOAT = struct.Struct("<f")
_THREE_FLOATS = struct.Struct("<3f")
EXACT = 2**24
"""Whole numbers up to here are 32-bit floats as they are."""


def f32(value: float) -> float:
    """The value rounded to 32 bits; beyond their range it is infinite."""
    try:
        rounded: float = _FLOAT.unpack(_FLOAT.pack(value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded


def share(part: int, total: int) -> float:
    """A part of a total as HAMi divides: both become 32-bit floats first."""
    return f32(f32(part) / f32(total))


# --- nodes ---------------------------------------------------------------------------------------


class NodePolicy(StrEnum):
    """Which node is best: the fullest or the emptiest."""

    BINPACK = "binpack"
    SPREAD = "spread"

    def rank(self, score: float) -> float:
        """The larger, the better."""
        return -score if self is NodePolicy.SPREAD else score


def node_policy_of(text: str | None, default: NodePolicy = NodePolicy.BINPACK) -> NodePolicy:
    """The policy an annotation names; none or an empty one is the default. Raises Malformed (decision 23)."""
    name = (text or "").strip()
    if not name:
        return default
    if name not in (policy.value for policy in NodePolicy):
        raise Malformed(f'unknown node policy "{name[:80]}": binpack or spread')
    return NodePolicy(name)


def order_nodes(scores: Iterable[tuple[str, float]], policy: NodePolicy) -> list[str]:
    """Node names, best first; equal scores by name."""
    return [node for node, _ in sorted(scores, key=lambda pair: (-policy.rank(pair[1]), pair[0]))]


class Load(NamedTuple):
    """Totals or usage of one device, or of all of a node's."""

    slots: int
    memory_mib: int
    cores: int


def node_score(used: Load, total: Load) -> float:
    """The base score of a node before the pod, all its devices summed; 0 where a total is 0."""
    if not (total.slots and total.memory_mib and total.cores):
        return 0.0
    parts = f32(share(used.slots, total.slots) + share(used.cores, total.cores))
    return f32(SCALE * f32(parts + share(used.memory_mib, total.memory_mib)))


# --- weights -------------------------------------------------------------------------------------


class Weights(NamedTuple):
    """How much each dimension counts in a device's score."""

    slot: int = 1
    core: int = 1
    memory: int = 1


EVEN = Weights()

_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")


def weights_of(text: str | None) -> Weights:
    """The weights an annotation names: `slot=1,core=2,memory=3` in any order; None is 1, 1, 1.

    Raises Malformed with HAMi's words.
    """
    if text is None:
        return EVEN
    parts = text.split(",")
    if len(parts) != len(Weights._fields):
        raise _bad_weights(text, "expected slot, core, and memory weights")
    found: dict[str, int] = {}
    for part in parts:
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise _bad_weights(text, "expected key=value entries")
        if key in found:
            raise _bad_weights(text, f'duplicate "{key[:80]}" weight')
        if not _INTEGER.fullmatch(value) or not -INT64_MAX - 1 <= int(value) <= INT64_MAX:
            raise _bad_weights(text, f'"{key[:80]}" weight must be an integer')
        if int(value) < 0:
            raise _bad_weights(text, f'"{key[:80]}" weight must not be negative')
        if key not in Weights._fields:
            raise _bad_weights(text, f'unknown weight "{key[:80]}"')
        found[key] = int(value)
    weights = Weights(**found)
    if not any(weights):
        raise _bad_weights(text, "at least one weight must be positive")
    return weights


def _bad_weights(text: str, reason: str) -> Malformed:
    return Malformed(f'invalid {WEIGHTS} annotation "{text[:80]}": {reason}')


# --- devices -------------------------------------------------------------------------------------


class Asked(NamedTuple):
    """What a container's requests of one type come to on a device: how many, and amounts per device."""

    requests: int = 0
    memory_mib: int = 0
    cores: int = 0


def device_score(used: Load, total: Load, asked: Asked, weights: Weights = EVEN) -> float:
    """The load of a device with the request on it; 0 where a total is 0."""
    slots, memory_mib, cores = total
    if not (slots and memory_mib and cores):
        return 0.0
    with_it = asked.requests + used.slots, asked.cores + used.cores, asked.memory_mib + used.memory_mib
    if weights == EVEN and max(*with_it, *total) <= EXACT and min(*with_it, *total) >= 0:
        # The same steps, without those that round what is round already.
        shares = with_it[0] / slots, with_it[1] / cores, with_it[2] / memory_mib
        slot, core, memory = _THREE_FLOATS.unpack(_THREE_FLOATS.pack(*shares))
        return f32(SCALE * f32(f32(slot + core) + memory))
    slot = f32(f32(weights.slot) * share(asked.requests + used.slots, total.slots))
    core = f32(f32(weights.core) * share(asked.cores + used.cores, total.cores))
    memory = f32(f32(weights.memory) * share(asked.memory_mib + used.memory_mib, total.memory_mib))
    return f32(SCALE * f32(f32(slot + core) + memory))


class Word(StrEnum):
    """What a device policy may be made of."""

    BINPACK = "binpack"
    SPREAD = "spread"
    NUMA = "numa"
    MUTEX = "mutex"
    TOPOLOGY_AWARE = "topology-aware"


class By(StrEnum):
    """What devices are ordered by."""

    SCORE = "score"
    NUMA = "numa"
    USED = "used"


Key = tuple[By, int]
"""A key and its sign: +1 tries the largest first, -1 the smallest."""


class Standing(NamedTuple):
    """What the order of a device depends on; `place` is its index on the node."""

    score: float
    numa: int
    used: int
    place: int
    order: int


_CHAINED: dict[Word, Key] = {
    Word.BINPACK: (By.SCORE, 1),
    Word.SPREAD: (By.SCORE, -1),
    Word.NUMA: (By.NUMA, 1),
}


@dataclass(frozen=True, slots=True)
class DevicePolicy:
    """In which order devices are tried, and what keeps them out.

    `words` are in written order, each once; `chained` tells `binpack,numa` (and a bare `numa`) from a
    policy of one word, which falls back on the NUMA node by itself.
    """

    words: tuple[Word, ...] = (Word.SPREAD,)
    chained: bool = False

    @property
    def is_mutex(self) -> bool:
        """Whether only unused devices will do."""
        return Word.MUTEX in self.words

    @property
    def is_topology_aware(self) -> bool:
        """Whether the links between devices choose among those that pass."""
        return Word.TOPOLOGY_AWARE in self.words

    def keys(self, *, numa_bind: bool = False) -> tuple[Key, ...]:
        """The keys of the order in which devices are tried, the table of semantics 6.4."""
        if self.chained:
            return self._chain(numa_bind)
        if self.is_mutex:
            return (By.USED, -1), (By.NUMA, 1)
        if Word.BINPACK in self.words:
            return ((By.NUMA, -1), (By.SCORE, 1)) if numa_bind else ((By.SCORE, 1), (By.NUMA, 1))
        return ((By.NUMA, 1), (By.SCORE, -1)) if numa_bind else ((By.SCORE, -1), (By.NUMA, 1))

    def _chain(self, numa_bind: bool) -> tuple[Key, ...]:
        """Binpack and spread both written: the first decides. No key left is spread."""
        keys: dict[By, Key] = {}
        for word in self.words:
            if word in _CHAINED:
                keys.setdefault(_CHAINED[word][0], _CHAINED[word])
        chain = tuple(keys.values()) or (_CHAINED[Word.SPREAD],)
        if numa_bind and chain[0] != _CHAINED[Word.NUMA]:
            return (_CHAINED[Word.NUMA], *chain)
        return chain

    def rank(self, standing: Standing, *, numa_bind: bool = False) -> tuple[float, ...]:
        """The larger, the sooner tried. Ties: the highest index, then the later registered (decision 23)."""
        return ranked(standing, self.keys(numa_bind=numa_bind))


_COLUMNS = {By.SCORE: 0, By.NUMA: 1, By.USED: 2}


def ranked(standing: Standing, keys: Iterable[Key]) -> tuple[float, ...]:
    """As `DevicePolicy.rank`, by keys that were asked for once."""
    return (*[sign * standing[_COLUMNS[by]] for by, sign in keys], standing.place, standing.order)


SPREAD = DevicePolicy()


def device_policy_of(text: str | None, default: DevicePolicy = SPREAD) -> DevicePolicy:
    """The policy an annotation names: one word or a comma list; none or an empty one is the default.

    Raises Malformed for a word nobody knows (decision 23).
    """
    names = [name.strip() for name in (text or "").split(",")]
    if not any(names):
        return default
    known = {word.value for word in Word}
    for name in names:
        if name and name not in known:
            raise Malformed(f'unknown GPU policy "{name[:80]}": one or several of {", ".join(sorted(known))}')
    words = tuple(dict.fromkeys(Word(name) for name in names if name))
    return DevicePolicy(words, chained=len(names) > 1 or words == (Word.NUMA,))

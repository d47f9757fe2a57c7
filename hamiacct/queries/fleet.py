"""The fleet as a fit sees it: every node with its devices and what is used of them.

Each process keeps the nodes in memory and brings them up to date at the start of every question, by
following two tails that are numbered in commit order under one lock: the ledger's for usage, the
fleet's for inventory. So no answer is older than the last commit that could be seen when it was asked.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import orjson
from django.db.models import Q

from hamiacct import config, models, rows
from hamiacct.accounting import mig
from hamiacct.accounting.amounts import Amount
from hamiacct.accounting.devices import MigProfile
from hamiacct.accounting.errors import UnreadableAnnotation
from hamiacct.accounting.fleet import Fleet, Register
from hamiacct.accounting.fleet.arrays import MAX_CARDS, MAX_NUMA, MAX_TOTAL, Numbers
from hamiacct.accounting.fleet.inventory import NO_CARD, Kind
from hamiacct.accounting.mig import MIG_MODE, CardState, Tenant
from hamiacct.accounting.offers import FitDevice, FitNode
from hamiacct.accounting.vendors import CoresKind
from hamiacct.accounting.words import ReservationState
from hamiacct.kube import annotations as codec
from hamiacct.queries.statements import Statement

MAX_TAIL_LINES = 20_000
STANDING = tuple(state.value for state in ReservationState if state.stands)


# --- what became of it -----------------------------------------------------------------------------

TAIL_TYPES = "bigint, bigint, text[]"


def tail_columns(first: int) -> str:
    """Columns of a statement over the ledger's `head`: a tail, by parameters numbered from `first`.

    These are the two numbers since when, and the vendors that name cores. The numbers are given out under the
    head's lock, which is held until the commit: a snapshot that shows the head shows all that is below it.
    Line by line the devices are looked up by their key, whatever the planner thinks of their number.
    """
    seq, fleet, sets = f"${first}", f"${first + 1}", f"${first + 2}"
    return f"""
    head.seq,
    head.fleet,
    (
        SELECT json_agg(json_build_array(
            device.node, device.uuid, device.slots_used, device.memory_mib_used, device.cores_used,
            CASE WHEN device.vendor = ANY({sets}) THEN (
                SELECT bit_or(core_set) FROM hamiacct_usageentry WHERE device_id = device.id
            ) END
        ))::text
        FROM (
            SELECT DISTINCT node, device FROM hamiacct_ledgerentry
            WHERE seq > {seq} AND seq <= head.seq AND device <> ''
                AND {seq} >= 0 AND head.seq - {seq} <= {MAX_TAIL_LINES}
        ) AS line
        CROSS JOIN LATERAL (
            SELECT * FROM hamiacct_device AS known
            WHERE known.node = line.node AND known.uuid = line.device AND known.registered OFFSET 0
        ) AS device
    ),
    (
        SELECT json_object_agg(name, deleted)::text FROM hamiacct_node
        WHERE fleet_seq > {fleet} AND {fleet} >= 0
    )
"""  # noqa: S608  # numbers of parameters


_OF_HEAD = "FROM hamiacct_ledgerhead AS head"
_TAIL = Statement("hamiacct_tail", TAIL_TYPES, f"SELECT {tail_columns(1)} {_OF_HEAD}")


@dataclass(frozen=True, slots=True)
class Tail:
    """What the ledger and the inventory say beyond two numbers, and the numbers they are at by then.

    `used` is what is used of devices that lines speak of, `nodes` whose inventory changed (is it gone?).
    """

    since: tuple[int, int]
    ledger_seq: int
    fleet_seq: int
    used: Sequence[tuple[str, str, Amount]]
    nodes: Mapping[str, bool]

    @classmethod
    def of(cls, since: tuple[int, int], row: Sequence[Any]) -> Tail:
        """The tail of a row of `tail_columns`."""
        ledger_seq, fleet_seq, used, nodes = row
        return cls(
            since,
            ledger_seq,
            fleet_seq,
            [
                (node, uuid, Amount(slots, memory_mib, cores, core_set or 0))
                for node, uuid, slots, memory_mib, cores, core_set in orjson.loads(used or "[]")
            ],
            orjson.loads(nodes or "{}"),
        )

    @property
    def is_whole(self) -> bool:
        """Whether it tells all there is to tell: not of numbers that went back, nor of very many lines."""
        ledger_seq, fleet_seq = self.since
        return 0 <= self.ledger_seq - ledger_seq <= MAX_TAIL_LINES and 0 <= fleet_seq <= self.fleet_seq


def followed() -> tuple[int, int]:
    """The numbers that this process has followed the ledger and the inventory to."""
    return _kept.numbers


def vendors_of_sets() -> list[str]:
    """The vendors that name the cores they give out."""
    return [key for key, vendor in config.vendor_by_key().items() if vendor.cores_kind is CoresKind.SET]


def tail() -> Tail:
    """What became of the fleet since this process last looked."""
    since = followed()
    return Tail.of(since, _TAIL.row(*since, vendors_of_sets()))


# --- what is kept ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Offer:
    """The fleet at one moment. Of `doubtful` nodes what their pods say of cards is read when it is asked for,
    once: reading it of all takes longer than a question that is answered by others."""

    fleet: Fleet
    doubtful: frozenset[str]
    _seen: dict[str, FitNode | None] = field(default_factory=dict)

    @property
    def instead(self) -> Mapping[str, FitNode]:
        """All doubtful nodes, to be judged as they are given."""
        return self.look(self.doubtful)

    def look(self, names: Collection[str]) -> Mapping[str, FitNode]:
        """These doubtful nodes as they are now, without those that are gone."""
        unseen = [name for name in names if name not in self._seen]
        if unseen:
            found = {node.name: node for node in load(unseen)}
            self._seen.update({name: found.get(name) for name in unseen})
        return {name: node for name in names if (node := self._seen[name]) is not None}

    def node(self, name: str) -> FitNode:
        """A node as it is offered; one that is not known offers nothing."""
        known = self.look([name]).get(name) if name in self.doubtful else self.fleet.node(name)
        return known or FitNode(name)


NEVER = (-1, -1)


@dataclass(slots=True)
class _Kept:
    """What this process keeps between questions; `doubtful` nodes need a look at their pods each time."""

    numbers: tuple[int, int] = NEVER
    fleet: Fleet = field(default_factory=lambda: Fleet.of(()))
    doubtful: frozenset[str] = frozenset()


_kept = _Kept()
_lock = threading.Lock()


def current(seen: Tail | None = None) -> Offer:
    """Every node that is known and not deleted, with its registered devices and what is used of them.

    Not older than `seen`, which is read now where the question has not read it already.
    """
    seen = seen or tail()
    with _lock:
        _follow(_kept, seen)
        fleet, doubtful = _kept.fleet, _kept.doubtful
    return Offer(fleet, doubtful)


def forget() -> None:
    """Drops what is kept, where the database itself was replaced."""
    with _lock:
        _kept.numbers = NEVER


def _follow(kept: _Kept, seen: Tail) -> None:
    """Brings what is kept to the tail's numbers, or leaves it where another thread brought it further.

    A tail that begins beyond what is kept has a gap: what was kept then was dropped since.
    """
    ledger_seq, fleet_seq = kept.numbers
    if seen.since == NEVER and seen.ledger_seq <= ledger_seq and seen.fleet_seq <= fleet_seq:
        return  # another thread has read it all since
    if not seen.is_whole or seen.since[0] > ledger_seq or seen.since[1] > fleet_seq:
        _load_all(kept)
        return
    if seen.fleet_seq > fleet_seq:
        fresh = _loaded_all([name for name, deleted in seen.nodes.items() if not deleted])
        # Also what went since the tail was read: it is kept as it was before what the tail tells of it.
        gone = seen.nodes.keys() - {node.name for node in fresh}
        kept.fleet = kept.fleet.with_nodes(fresh, gone=gone)
        kept.doubtful = (kept.doubtful - seen.nodes.keys()) | {
            node.name for node in fresh if needs_pods(node)
        }
    if seen.ledger_seq > ledger_seq and seen.used:
        kept.fleet, _ = kept.fleet.with_usage(seen.used)
    kept.numbers = max(seen.ledger_seq, ledger_seq), max(seen.fleet_seq, fleet_seq)


def _load_all(kept: _Kept) -> None:
    """Everything anew: plain nodes as columns, by one statement, the others one by one.

    What is committed while those are read is read once more with the next tail.
    """
    numbers, register, others = _register()
    nodes = _loaded_all(others)
    kept.fleet = Fleet.of_register(register).with_nodes(nodes) if nodes else Fleet.of_register(register)
    kept.doubtful = frozenset(node.name for node in nodes if needs_pods(node))
    kept.numbers = numbers


# --- columns, as the database has them ------------------------------------------------------------

# A plain node is one that columns tell all about: `accounting.fleet.inventory` says which are. Whether a
# node is among them changes nothing but the time and the memory it takes, so this may be narrower.
_REGISTER = Statement(
    "hamiacct_register",
    "text[], text",
    f"""
SELECT head.*, known.*, card.*
FROM (SELECT seq, fleet FROM hamiacct_ledgerhead) AS head,
(
    SELECT json_agg(name)::text,
        array_agg((pair_scores = '{{}}' AND labels = '{{}}' AND annotations = '{{}}')::int)::text
    FROM hamiacct_node WHERE NOT deleted
) AS known,
(
    SELECT json_agg(node)::text, json_agg(uuid)::text,
        json_agg(json_build_array(vendor, model, mode, mig_profiles::text)::text)::text,
        array_agg((
            mode <> $2 AND vendor <> ALL($1) AND custom = '{{}}' AND (healthy OR NOT cordoned)
            AND numa BETWEEN -1 AND {MAX_NUMA - 2} AND "order" >= 0 AND index BETWEEN 0 AND {MAX_TOTAL - 1}
            AND GREATEST(slots_total, memory_mib_total, cores_total) < {MAX_TOTAL}
        )::int)::text,
        array_agg(slots_total)::text, array_agg(memory_mib_total)::text, array_agg(cores_total)::text,
        array_agg(slots_used)::text, array_agg(memory_mib_used)::text, array_agg(cores_used)::text,
        array_agg(index)::text, array_agg("order")::text, array_agg(numa)::text,
        array_agg(healthy::int)::text, array_agg(cordoned::int)::text
    FROM hamiacct_device WHERE registered
) AS card
""",  # noqa: S608  # limits of ours
)


def _register() -> tuple[tuple[int, int], Register, list[str]]:
    """The head's numbers, the plain nodes as they are by then, and the names of all others.

    What belongs together is put together here: the database sends its rows as they lie, and sorts nothing.
    """
    peculiar = [
        key
        for key, vendor in config.vendor_by_key().items()
        if vendor.cores_kind is CoresKind.SET or vendor.fit.get("tenants")
    ]
    seq, fleet, names, are_plain, nodes, uuids, kinds, *columns = _REGISTER.row(peculiar, MIG_MODE)
    known = dict(zip(_texts(names), _numbers(are_plain).tolist(), strict=True))
    numbered = {name: number for number, name in enumerate(sorted(known))}
    node = np.array([numbered.get(name, -1) for name in _texts(nodes)], np.int64)
    is_plain, *sizes, index, order, numa, healthy, cordoned = map(_numbers, columns)
    plain = np.array([known[name] for name in numbered], np.bool_)
    here = node >= 0
    plain &= np.bincount(node[here & (is_plain == 0)], minlength=len(plain)) == 0
    number = np.bincount(node[here], minlength=len(plain))
    plain &= number <= MAX_CARDS

    # What is needed for a moment comes before what stays, which then lies in its place.
    different: dict[str, int] = {}
    kind = np.array([different.setdefault(text, len(different) + 1) for text in _texts(kinds)], np.int64)
    uuid_of, cards = _texts(uuids), np.flatnonzero(here)
    kept = _sorted(cards[plain[node[cards]]], node, index, order, uuid_of)
    register = Register(
        names=[name for name, is_one in zip(numbered, plain.tolist(), strict=True) if is_one],
        number=number[plain],
        uuids=[uuid_of[card] for card in kept.tolist()],
        kinds=(NO_CARD, *map(_kind, different)),
        kind=kind[kept],
        totals=np.stack(sizes[:3])[:, kept],
        used=np.stack(sizes[3:])[:, kept],
        indexes=index[kept],
        orders=order[kept],
        numa=numa[kept],
        healthy=healthy[kept] != 0,
        cordoned=cordoned[kept] != 0,
    )
    others = [name for name, is_one in zip(numbered, plain.tolist(), strict=True) if not is_one]
    return (seq, fleet), register, others


def _sorted(cards: Numbers, node: Numbers, index: Numbers, order: Numbers, uuids: Sequence[str]) -> Numbers:
    """Cards node by node, on each by preference among equals (decision 23)."""
    keys = node[cards], -index[cards], -order[cards]
    by_key = np.lexsort(keys[::-1])
    table = np.stack(keys)[:, by_key]
    if not (table[:, 1:] == table[:, :-1]).all(axis=0).any():
        return cards[by_key]
    # Two cards of one node with the same number, at the same place: as made by hand. Then their uuids decide.
    of_cards = zip(*(key.tolist() for key in keys), cards.tolist(), strict=True)
    by_uuid = sorted(of_cards, key=lambda one: uuids[one[-1]], reverse=True)
    return np.array([card for *_, card in sorted(by_uuid, key=lambda one: one[:-1])], np.int64)


def _kind(text: str) -> Kind:
    """A kind of cards as `_REGISTER` writes it."""
    vendor, model, mode, profiles = orjson.loads(text)
    return Kind(vendor, model, mode, _profiles(profiles))


def _texts(array: str | None) -> list[Any]:
    """The values of an array as JSON; of none where there is no array."""
    found: list[Any] = orjson.loads(array or "[]")
    return found


def _numbers(text: str | None) -> Numbers:
    """The whole numbers of an array as PostgreSQL writes it; of none where there is no array."""
    inside = (text or "{}")[1:-1]
    return np.fromstring(inside, np.int64, sep=",") if inside else np.zeros(0, np.int64)


# --- one by one ------------------------------------------------------------------------------------

NODES_AT_ONCE = 500
"""So many nodes are read by one statement: its answer is held beside what is made of it."""

_NAMES = Statement("hamiacct_nodes", "", "SELECT name FROM hamiacct_node WHERE NOT deleted ORDER BY name")
_NODES = Statement(
    "hamiacct_fit_nodes",
    "text[]",
    """
    SELECT name, pair_scores::text, labels::text, annotations::text FROM hamiacct_node
    WHERE NOT deleted AND name = ANY($1)
    """,
)
_DEVICES = Statement(
    "hamiacct_fit_devices",
    "text[]",
    """
    SELECT id, node, uuid, vendor, slots_total, memory_mib_total, cores_total,
        slots_used, memory_mib_used, cores_used, index, "order", model, numa, mode, healthy, cordoned,
        mig_profiles::text, custom::text
    FROM hamiacct_device WHERE registered AND node = ANY($1)
""",
)
_CORE_SETS = Statement(
    "hamiacct_core_sets",
    "bigint[]",
    """
    SELECT device_id, bit_or(core_set) FROM hamiacct_usageentry WHERE device_id = ANY($1) GROUP BY device_id
    """,
)


def load(names: Collection[str] | None, *, apart_from: str = "") -> list[FitNode]:
    """These nodes (None: all) as they are in the database now, some hundred at once.

    What pods say of their cards is told without the pod `apart_from`; the totals have it in. Deleted nodes
    are left out.
    """
    wanted = [name for (name,) in _NAMES.rows()] if names is None else list(names)
    return _with_pods(_loaded_all(wanted), apart_from)


def _loaded_all(names: Sequence[str]) -> list[FitNode]:
    """The same without what pods say of their cards."""
    nodes: list[FitNode] = []
    for start in range(0, len(names), NODES_AT_ONCE):
        nodes += _loaded(names[start : start + NODES_AT_ONCE])
    return nodes


def _loaded(names: Sequence[str]) -> list[FitNode]:
    known = _NODES.rows(names)
    found = _DEVICES.rows(names)
    core_sets = _core_sets(found)
    by_node: dict[str, list[FitDevice]] = {name: [] for name, *_ in known}
    texts: dict[str, str] = {}
    amounts: dict[tuple[int, ...], Amount] = {}
    for (
        number,
        node,
        uuid,
        vendor,
        *sizes,
        index,
        order,
        model,
        numa,
        mode,
        healthy,
        cordoned,
        profiles,
        custom,
    ) in found:
        if node not in by_node:
            continue
        total, used = tuple(sizes[:3]), (*sizes[3:], core_sets.get(number, 0))
        by_node[node].append(
            FitDevice(
                uuid=uuid,
                vendor=texts.setdefault(vendor, vendor),
                total=amounts.get(total) or amounts.setdefault(total, Amount(*total)),
                used=amounts.get(used) or amounts.setdefault(used, Amount(*used)),
                index=index,
                order=order,
                model=texts.setdefault(model, model),
                numa=numa,
                mode=texts.setdefault(mode, mode),
                healthy=healthy,
                cordoned=cordoned,
                mig_profiles=_profiles(profiles),
                custom=_mapping(custom),
            )
        )
    return [
        FitNode(
            name,
            tuple(sorted(by_node[name], key=lambda device: (device.vendor, device.order, device.uuid))),
            _mapping(pair_scores),
            _mapping(labels),
            _mapping(annotations),
        )
        for name, pair_scores, labels, annotations in known
    ]


@lru_cache(maxsize=1000)
def _mapping(text: str) -> Mapping[str, Any]:
    """An object as stored. Those alike are one: nobody changes them."""
    found: dict[str, Any] = orjson.loads(text)
    return found


@lru_cache(maxsize=1000)
def _profiles(text: str) -> tuple[MigProfile, ...]:
    """The profiles of a card as stored."""
    return rows.profiles_of(orjson.loads(text))


def _core_sets(devices: Iterable[Sequence[Any]]) -> dict[int, int]:
    """The union of the named cores that pods hold, per device of a vendor that names them."""
    of_sets = set(vendors_of_sets())
    named = [number for number, _, _, vendor, *_ in devices if vendor in of_sets]
    return dict(_CORE_SETS.rows(named)) if named else {}


def needs_pods(node: FitNode) -> bool:
    """Whether the node's cards cannot be judged by their totals alone: MIG cards, and rules about tenants."""
    vendors = config.vendor_by_key()
    return any(
        device.mode == MIG_MODE or vendors[device.vendor].fit.get("tenants") for device in node.devices
    )


def _with_pods(nodes: Sequence[FitNode], apart_from: str) -> list[FitNode]:
    """The nodes, those whose cards need it with what their pods say: MIG places, and who is on a card."""
    doubtful = {node.name for node in nodes if needs_pods(node)}
    if not doubtful:
        return list(nodes)
    pods = models.Pod.objects.filter(Q(entries__device__node__in=doubtful), ended_by="").prefetch_related(
        "entries__device"
    )
    tenants: dict[str, list[Tenant]] = defaultdict(list)
    words: dict[tuple[str, str], list[str]] = defaultdict(list)
    vendors = config.vendor_by_key()
    holds = dict(
        models.Reservation.objects.filter(node__in=doubtful, state__in=STANDING).values_list(
            "pod_uid", "annotations"
        )
    )
    for pod in pods.exclude(uid=apart_from).distinct():
        pod.annotations = {**pod.annotations, **holds.get(pod.uid, {})}
        by_node: dict[str, set[str]] = defaultdict(set)
        for entry in pod.entries.all():
            by_node[entry.device.node].add(entry.device.uuid)
            key = vendors[entry.vendor].selectors.get(str(vendors[entry.vendor].fit.get("tenants", "")), ())
            words[entry.device.node, entry.device.uuid] += [pod.annotations.get(name, "") for name in key]
        for name, uuids in by_node.items():
            tenants[name].append(_tenant(pod, frozenset(uuids)))
    return [
        _with_tenants(node, tenants[node.name], words) if node.name in doubtful else node for node in nodes
    ]


def _tenant(pod: models.Pod, uuids: frozenset[str]) -> Tenant:
    """A stored pod as MIG placement sees it; an unreadable text is no allocation."""
    try:
        allocations = codec.decode_mig_allocations(pod.annotations.get(codec.MIG_ALLOCATIONS, ""))
    except UnreadableAnnotation:
        allocations = ()
    standing = mig.standing(allocations, rows.containers_of(pod), inits_released=pod.inits_released)
    return Tenant(uuids, tuple(standing))


def _with_tenants(
    node: FitNode, tenants: Iterable[Tenant], words: Mapping[tuple[str, str], Sequence[str]]
) -> FitNode:
    modes = {device.uuid: device.mode for device in node.devices}
    states: Mapping[str, CardState] = mig.card_states(modes, tenants) if MIG_MODE in modes.values() else {}
    plain = CardState()

    def seen(device: FitDevice) -> FitDevice:
        state = states.get(device.uuid, plain)
        return replace(
            device,
            healthy=device.healthy and state.healthy,
            mig_in_use=state.occupied,
            tenants=tuple(words.get((node.name, device.uuid), ())),
        )

    return replace(node, devices=tuple(seen(device) for device in node.devices))

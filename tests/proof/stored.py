"""Everything that is stored of the books, read by one statement, and what it has to say by the model.

The tables are read as they are: nothing of the service stands between them and the model.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from django.db import connection

from tests.model.books import FINDINGS, Books, QuotaView, Share

EVERYTHING = """
PREPARE everything_stored (bigint) AS SELECT json_build_object(
    'pods', (SELECT json_agg(json_build_array(uid, state, inits_released, ended_by)) FROM hamiacct_pod),
    'holds', (SELECT json_agg(json_build_array(pod_uid, state, node)) FROM hamiacct_reservation),
    'entries', (SELECT json_agg(json_build_array(
        e.pod_id, d.node, d.uuid, e.vendor, e.slots, e.memory_mib, e.cores, e.quota_cores))
        FROM hamiacct_usageentry AS e JOIN hamiacct_device AS d ON d.id = e.device_id),
    'devices', (SELECT json_agg(json_build_array(
        node, uuid, vendor, registered, healthy, cordoned,
        slots_total, memory_mib_total, cores_total, slots_used, memory_mib_used, cores_used))
        FROM hamiacct_device),
    'namespaces', (SELECT json_agg(json_build_array(namespace, vendor, slots, memory_mib, cores))
        FROM hamiacct_namespaceusage),
    'quotas', (SELECT json_agg(json_build_array(
        q.namespace, q.name, q.deleted, u.vendor, u.memory_mib, u.cores))
        FROM hamiacct_resourcequota AS q LEFT JOIN hamiacct_quotausage AS u ON u.quota_id = q.id),
    'findings', (SELECT json_agg(DISTINCT jsonb_build_array(uid, code))
        FROM hamiacct_finding WHERE uid <> ''),
    'lines', (SELECT json_agg(json_build_array(
        seq, pod_uid, node, device, vendor, slots, memory_mib, cores, quota_cores) ORDER BY seq)
        FROM hamiacct_ledgerentry WHERE seq > $1),
    'head', (SELECT seq FROM hamiacct_ledgerhead)
)::text
"""

_prepared: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()

Place = tuple[str, str, str, str]  # pod, node, device, vendor


@dataclass
class Stored:
    """What is stored, and what the lines of the ledger add up to as far as they were read."""

    seq: int = field(default=-1)
    replayed: dict[Place, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0, 0, 0]))

    def begin(self) -> None:
        """Lines that are there already are of another story."""
        with connection.cursor() as cursor:
            cursor.execute("SELECT seq FROM hamiacct_ledgerhead")
            (self.seq,) = cursor.fetchone()

    def check(self, books: Books) -> None:
        """Fails where any book says something else than the model, or than another book."""
        with connection.cursor() as cursor:
            if _prepared.get(connection.connection) is None:
                cursor.execute(EVERYTHING)
                _prepared[connection.connection] = True
            cursor.execute("EXECUTE everything_stored (%s)", [self.seq])
            (text,) = cursor.fetchone()
        found: dict[str, list[Any]] = {
            name: rows if name == "head" else rows or [] for name, rows in json.loads(text).items()
        }
        entries = {tuple(one[:4]): tuple(one[4:]) for one in found["entries"]}
        self._replay(found["lines"])
        assert self.seq == found["head"], "the ledger's head is not its last line"
        replayed = {place: tuple(sums) for place, sums in self.replayed.items() if any(sums)}
        same("the ledger's replay", replayed, entries)
        same("entries", entries, _held(books))
        same("states of pods", {one[0]: one[1] for one in found["pods"]}, _states(books))
        same(
            "pods whose inits are released",
            {uid for uid, _, released, ended in found["pods"] if released and not ended},
            {uid for uid, one in books.pods.items() if one.lives and one.released},
        )
        same("holds", _stored_holds(found["holds"], books), _holds(books))
        self._devices(found["devices"], books)
        namespaces = {tuple(one[:2]): tuple(one[2:]) for one in found["namespaces"] if any(one[2:])}
        same("namespaces' totals", namespaces, _namespaces(books))
        quotas = {
            (space, name, vendor): (memory, cores)
            for space, name, _, vendor, memory, cores in found["quotas"]
            if memory or cores
        }
        same("quotas' totals", quotas, _quotas(books))
        living = {(space, name) for space, name, deleted, *_ in found["quotas"] if not deleted}
        same("quotas", living, {place for place, one in books.quotas.items() if one.lives})
        findings = defaultdict(set)
        for uid, code in found["findings"]:
            if code in FINDINGS:
                findings[uid].add(code)
        same(
            "findings", dict(findings), {uid: one.findings for uid, one in books.pods.items() if one.findings}
        )

    def _replay(self, lines: list[list[Any]]) -> None:
        for seq, uid, node, device, vendor, *sizes in lines:
            self.seq += 1
            assert seq == self.seq, f"the ledger has a gap before {seq}"
            if not uid:
                assert not any(sizes), "only what a pod holds has an amount"
                continue
            sums = self.replayed[uid, node, device, vendor]
            for number, size in enumerate(sizes):
                sums[number] += size
                assert sums[number] >= 0, f"line {seq} goes below zero"

    def _devices(self, rows: list[list[Any]], books: Books) -> None:
        used = {tuple(one[:2]): Share(*one[9:]) for one in rows if any(one[9:])}
        same("devices' totals", used, books.device_totals())
        registered = {tuple(one[:2]): (*one[2:3], *one[4:9]) for one in rows if one[3]}
        expected = {
            place: (card.vendor, card.healthy, card.cordoned, *card.total)
            for place, card in books.cards.items()
            if card.registered
        }
        same("registered devices", registered, expected)


def same(what: str, stored: Any, expected: Any) -> None:
    """Fails with what differs alone."""
    if stored == expected:
        return
    if isinstance(stored, Mapping):
        keys = [key for key in {*stored, *expected} if stored.get(key) != expected.get(key)]
        told = [
            f"{key}: stored {stored.get(key)}, right {expected.get(key)}" for key in sorted(keys, key=str)
        ]
    else:
        told = [f"stored and wrong {stored - expected}, right and not stored {expected - stored}"]
    raise AssertionError(f"{what} differ: " + "; ".join(told))


def _held(books: Books) -> dict[Place, tuple[int, ...]]:
    return {
        (uid, *device): (*share, books.quota_share(device, share)[1])
        for uid, account in books.pods.items()
        for device, share in account.held.items()
    }


def _states(books: Books) -> dict[str, str]:
    return {uid: account.state for uid, account in books.pods.items()}


def _stored_holds(rows: list[list[Any]], books: Books) -> dict[str, tuple[str, str]]:
    """Holds of pods that nobody remembers say nothing any more."""
    return {uid: (state, node) for uid, state, node in rows if uid in books.pods and books.pods[uid].hold}


def _holds(books: Books) -> dict[str, tuple[str, str]]:
    return {uid: (one.hold.state, one.hold.node) for uid, one in books.pods.items() if one.hold is not None}


def _namespaces(books: Books) -> dict[tuple[str, str], tuple[int, ...]]:
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for account in books.pods.values():
        for device, share in account.held.items():
            total = sums[account.view.namespace, device.vendor]
            memory, cores = books.quota_share(device, share)
            for number, amount in enumerate((share.slots, memory, cores)):
                total[number] += amount
    return {place: tuple(total) for place, total in sums.items() if any(total)}


def _quotas(books: Books) -> dict[tuple[str, str, str], tuple[int, int]]:
    sums: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for (namespace, name), one in books.quotas.items():
        quota = one.view
        assert isinstance(quota, QuotaView)
        if not one.lives:
            continue
        for account in books.pods.values():
            if account.view.namespace != namespace or not quota.selects(account.view):
                continue
            for device, share in account.held.items():
                total = sums[namespace, name, device.vendor]
                memory, cores = books.quota_share(device, share)
                total[0], total[1] = total[0] + memory, total[1] + cores
    return {place: (memory, cores) for place, (memory, cores) in sums.items() if memory or cores}

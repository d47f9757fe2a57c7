"""Pod events: who lives, what each is charged, and one posting of the differences.

A batch is decided in memory, event by event in the order given, and written in a constant number of
statements. The caller holds the locks of all names in the batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

import orjson
from django.db import connection

from hamiacct import announcements, config, models, rows
from hamiacct.accounting import lifecycle
from hamiacct.accounting.amounts import UNUSED, Amount, Usage
from hamiacct.accounting.errors import Malformed
from hamiacct.accounting.holdings import Held
from hamiacct.accounting.lifecycle import Charge, Clock, Decision, HoldEnd, Policy
from hamiacct.accounting.pods import DeviceKey, Pod, QuotaFacts
from hamiacct.accounting.vendors import Vendor
from hamiacct.accounting.words import (
    EventType,
    FindingCode,
    Outcome,
    PodState,
    ReservationState,
    Rule,
    SubjectKind,
)
from hamiacct.kube import manifests
from hamiacct.operations import bulk, findings, ledger
from hamiacct.operations.findings import Found, Subject
from hamiacct.operations.ledger import Posting
from hamiacct.operations.streams import Seen, Stream
from hamiacct.queries.fleet import STANDING
from hamiacct.queries.statements import Statement
from hamiacct.rows import PodRow

# Raised and cleared by whoever binds; an event has no say in them.
BINDING_CODES = frozenset((FindingCode.LABEL_TOO_LONG,))
TIMED_CODES = frozenset(
    (FindingCode.CLAIM_STALE, FindingCode.ALLOCATE_STUCK, FindingCode.TERMINATING_OVERDUE)
)
POD_CODES = frozenset(FindingCode) - findings.DEVICE_CODES - findings.QUOTA_CODES - BINDING_CODES


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of it. `rule` is None unless it was applied."""

    outcome: Outcome
    rule: Rule | None = None
    detail: str = ""

    @classmethod
    def refused(cls, fault: Malformed) -> Verdict:
        """The verdict on something that cannot be read, with the place and the reason."""
        return cls(
            Outcome.REFUSED, None, f"{fault.pointer}: {fault.detail}" if fault.pointer else fault.detail
        )


STALE = Verdict(Outcome.STALE)

Settle = Callable[[list[Verdict]], None]
"""Writes down what became of what was seen, in the same transaction."""


def leave_unsettled(verdicts: list[Verdict]) -> None:
    """For what was seen in a list: nothing of it waits."""


@dataclass(slots=True)
class _Account:
    """One pod while a batch is worked through: its row, its charge, and whether either changed."""

    row: PodRow
    charge: Charge
    hold: models.Reservation | None = None
    is_new: bool = False
    changed: bool = False
    oddities: tuple[Found, ...] = ()
    was_held: bool = False

    @property
    def is_held(self) -> bool:
        """Whether a hold stands: then it has a say in what is charged."""
        return self.hold is not None and ReservationState(self.hold.state).stands

    @property
    def is_deleted(self) -> bool:
        """Whether its end is final: a DELETED event was seen."""
        return self.row.ended_by == Rule.DELETED


@dataclass(slots=True)
class _Batch:
    """The pods of the names that are locked, and the postings decided so far."""

    stream: Stream
    at: datetime
    accounts: dict[str, _Account] = field(default_factory=dict)
    by_name: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    postings: list[Posting] = field(default_factory=list)
    table: Sequence[Vendor] = field(default_factory=config.vendors)
    vendors: Mapping[str, Vendor] = field(default_factory=config.vendor_by_key)
    policy: Policy = field(default_factory=config.charge_policy)

    def add(self, account: _Account) -> None:
        self.accounts[account.row.uid] = account
        self.by_name[account.row.namespace, account.row.name].add(account.row.uid)


ALL_FIELDS = [one.name for one in fields(PodRow)]
TYPES = {
    one.attname: (one.db_type(connection) or "").partition("(")[0] for one in models.Pod._meta.concrete_fields
}
OF_JSON = tuple(map(ALL_FIELDS.index, ("containers", "allocations", "labels", "annotations")))

# By name and by UID apart, each by its index: anything else may read every pod there is.
_LOAD = Statement(
    "hamiacct_pods_load",
    "jsonb, jsonb",
    f"""
SELECT {", ".join(ALL_FIELDS)} FROM hamiacct_pod
WHERE uid = ANY (ARRAY(
    SELECT jsonb_array_elements_text($2)
    UNION
    SELECT named.uid FROM jsonb_array_elements($1) AS key, LATERAL (
        SELECT uid FROM hamiacct_pod WHERE namespace = key->>0 AND name = key->>1 OFFSET 0) AS named))
ORDER BY uid FOR NO KEY UPDATE
""",  # noqa: S608  # the columns are ours
)
# A row is an array of its values, which is read in half the time of an object.
_VALUES = ", ".join(
    f"row->{place}" if place in OF_JSON else f"(row->>{place})::{TYPES[name]}"
    for place, name in enumerate(ALL_FIELDS)
)
_STORE = Statement(
    "hamiacct_pods_store",
    "jsonb",
    f"""
INSERT INTO hamiacct_pod ({", ".join(ALL_FIELDS)})
SELECT {_VALUES} FROM jsonb_array_elements($1) AS row
ON CONFLICT (uid) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in ALL_FIELDS[1:])}
RETURNING 1
""",  # noqa: S608  # the columns are ours
)
_values_of = attrgetter(*ALL_FIELDS)


def apply(
    seen: Sequence[Seen], stream: Stream, *, at: datetime, settle: Settle = leave_unsettled
) -> list[Verdict]:
    """Applies what was seen, in the order given; one verdict each (decisions 3 to 8, 11, 26, 32).

    One that cannot be read is refused with its reason; the next goes on.
    """
    batch = _load({(one.namespace, one.name) for one in seen}, {one.uid for one in seen}, stream, at)
    verdicts = [_apply_one(batch, one) for one in seen]
    settle(verdicts)
    _write(batch)
    return verdicts


def _load(names: Iterable[tuple[str, str]], uids: Iterable[str], stream: Stream, at: datetime) -> _Batch:
    """The pods of these names and uids with what they hold, locked."""
    batch = _Batch(stream, at)
    for account in _locked(sorted(names), sorted(uids)):
        batch.add(account)
    return batch


def _locked(names: Sequence[tuple[str, str]], uids: Sequence[str]) -> list[_Account]:
    """The pods of these names and uids with what they hold, locked in the order of their uids."""
    locked = [_row_of(stored) for stored in _LOAD.rows(bulk.text(names), bulk.text(uids))]
    if not locked:
        return []
    known = [row.uid for row in locked]
    held, holds = held_by(known), _standing_holds(known)
    return [
        _Account(row, rows.charge_of(row, held.get(row.uid, UNUSED)), holds.get(row.uid)) for row in locked
    ]


def _row_of(stored: tuple[Any, ...]) -> PodRow:
    values = list(stored)
    for place in OF_JSON:
        values[place] = orjson.loads(values[place])
    return PodRow(*values)


def _standing_holds(uids: Sequence[str]) -> dict[str, models.Reservation]:
    """The reservations of these pods that are what they are charged, locked like their pods."""
    if not _HOLDING.rows(bulk.text(uids)):
        return {}
    found = models.Reservation.objects.filter(pod_uid__in=uids, state__in=STANDING)
    return {row.pod_uid: row for row in found.select_for_update(no_key=True).order_by("pod_uid")}


# Few pods have one: the rest of the batch need not be asked for in the mapper's words.
_HOLDING = Statement(
    "hamiacct_pods_holding",
    "jsonb",
    f"""
SELECT FROM hamiacct_reservation
WHERE pod_uid IN (SELECT jsonb_array_elements_text($1)) AND state IN {STANDING} LIMIT 1
""",  # the words are ours
)


def end_holds(
    uids: Sequence[str], state: ReservationState, rule: Rule, stream: Stream, *, at: datetime
) -> int:
    """Ends holds; each pod's charge is computed from the last that was seen of it (decision 27).

    The caller holds the locks of the pods' names. Answers how many ended.
    """
    batch = _Batch(stream, at)
    for account in _locked((), uids):
        row, hold = account.row, account.hold
        if hold is None:
            continue
        batch.add(account)
        decision = lifecycle.after_hold(account.charge, rows.pod_of(row), rule, batch.vendors, batch.policy)
        _post(batch, account, decision, f"the hold on {hold.node} is {state}", row.resource_version)
        _end_hold(account, state, at)
        row.state, row.rule = decision.state, decision.rule
        account.was_held = True
        account.oddities = tuple(Found(one.code, one.detail, one.key) for one in decision.oddities)
    _write(batch)
    return len(batch.accounts)


def held_by(uids: Sequence[str]) -> dict[str, Held]:
    """What the entries of each of these pods hold; pods without entries are left out."""
    if not uids:
        return {}
    entries: dict[str, dict[DeviceKey, Amount]] = defaultdict(dict)
    for uid, node, uuid, vendor, *sizes in _HELD.rows(bulk.text(uids)):
        entries[uid][DeviceKey(node, uuid, vendor)] = Amount(*sizes)
    return {uid: Usage(own) for uid, own in entries.items()}


_HELD = Statement(
    "hamiacct_pods_held",
    "jsonb",
    """
SELECT entry.pod_id, device.node, device.uuid, entry.vendor, entry.slots, entry.memory_mib, entry.cores,
    entry.core_set
FROM hamiacct_usageentry AS entry JOIN hamiacct_device AS device ON device.id = entry.device_id
WHERE entry.pod_id IN (SELECT jsonb_array_elements_text($1))
""",
)


def _apply_one(batch: _Batch, seen: Seen) -> Verdict:
    if seen.history < batch.stream.history:
        return STALE
    account = batch.accounts.get(seen.uid)
    if seen.type is EventType.DELETED:
        return _delete(batch, seen, account)
    if _is_stale(batch.stream, seen, account):
        return STALE
    try:
        pod = manifests.pod_from_manifest(seen.manifest, batch.table)
    except Malformed as fault:
        return Verdict.refused(fault)
    if account is None:
        account = _new_account(batch, seen)
    if _is_succeeded(batch, seen):
        decision = lifecycle.ended(account.charge, Rule.SUPERSEDED)
    else:
        _end_predecessors(batch, seen)
        stored = None if account.is_new else _as_known(account, batch.stream)
        if account.hold is not None and account.is_held:
            decision = _decide_held(batch, account, account.hold, pod)
        else:
            decision = lifecycle.decide(stored, pod, batch.vendors, batch.policy)
    _record(batch, account, seen, decision, pod)
    return Verdict(Outcome.APPLIED, decision.rule)


def _decide_held(batch: _Batch, account: _Account, hold: models.Reservation, pod: Pod) -> Decision:
    """The decision while a hold stands; the hold ends with its pod or when the pod is bound (decision 27)."""
    account.was_held, account.oddities = True, ()
    decision, end = lifecycle.decide_while_held(
        rows.hold_of(hold), account.charge, pod, batch.vendors, batch.policy
    )
    if end is HoldEnd.CONFIRMED:
        _end_hold(account, ReservationState.CONFIRMED, batch.at)
    elif end is HoldEnd.RELEASED:
        _end_hold(account, ReservationState.RELEASED, batch.at)
    return decision


def _end_hold(account: _Account, state: ReservationState, at: datetime) -> None:
    """The hold is over; what its pod is charged is decided elsewhere."""
    if account.hold is not None and ReservationState(account.hold.state).stands:
        account.hold.state, account.hold.changed_at = state, at


def _is_stale(stream: Stream, seen: Seen, account: _Account | None) -> bool:
    """Whether something newer is known already (decisions 7 and 8)."""
    counts = account is not None and account.row.history == stream.history
    if counts and account is not None and account.is_deleted:
        return True
    if seen.replayed:
        return False
    if counts and account is not None:
        row = account.row
        if row.ended_by == Rule.RELEASED and seen.list_version:
            return seen.list_version < row.ended_version
        if row.ended_by == Rule.ABSENT:
            # A list that holds it after all is the truth, though neither the pod's own version nor, where
            # nothing else happened, the list's has moved.
            if seen.list_version:
                return seen.list_version < row.ended_version
            return seen.resource_version <= row.ended_version
        return seen.resource_version <= row.resource_version
    listed = stream.listed_version(seen.namespace)
    # A list tells of a pod as it was at the list's version, however old the pod's own is.
    return seen.list_version < listed if seen.list_version else seen.resource_version <= listed


def _as_known(account: _Account, stream: Stream) -> Charge:
    """The charge an event starts from. A new history forgets that inits were done: the list tells anew."""
    if account.row.history == stream.history:
        return account.charge
    return replace(account.charge, inits_released=False)


def _delete(batch: _Batch, seen: Seen, account: _Account | None) -> Verdict:
    """A pod's DELETED event is final and never stale; a repeated one is (decision 7)."""
    if account is not None and account.is_deleted:
        return STALE
    if account is None:
        account = _new_account(batch, seen)
    decision = lifecycle.ended(account.charge, Rule.DELETED)
    _record(batch, account, seen, decision, None)
    return Verdict(Outcome.APPLIED, Rule.DELETED)


def _new_account(batch: _Batch, seen: Seen) -> _Account:
    """A pod the books have not heard of; its row is written with its first decision, never half-born."""
    row = PodRow(
        uid=seen.uid,
        namespace=seen.namespace,
        name=seen.name,
        resource_version=seen.resource_version,
        history=batch.stream.history,
        changed_at=batch.at,
    )
    account = _Account(row, Charge(), is_new=True)
    batch.add(account)
    return account


def _others(batch: _Batch, seen: Seen) -> list[_Account]:
    """The other pods that have or had this name, in the current history."""
    uids = batch.by_name[seen.namespace, seen.name]
    if not uids - {seen.uid}:
        return []
    return [
        batch.accounts[uid]
        for uid in sorted(uids)
        if uid != seen.uid and batch.accounts[uid].row.history == batch.stream.history
    ]


def _is_succeeded(batch: _Batch, seen: Seen) -> bool:
    """Whether another pod took over the name at a higher version (decision 7)."""
    return any(other.row.resource_version > seen.resource_version for other in _others(batch, seen))


def _end_predecessors(batch: _Batch, seen: Seen) -> None:
    """Ends the living pods whose name this one took over."""
    for other in _others(batch, seen):
        if not other.is_deleted and other.row.ended_by != Rule.SUPERSEDED:
            decision = lifecycle.ended(other.charge, Rule.SUPERSEDED)
            _post(batch, other, decision, f"pod {seen.uid} took over the name", seen.resource_version)
            _end_row(other, decision, seen.resource_version, batch.at)


def end_absent(uids: Sequence[str], version: int, stream: Stream, *, at: datetime) -> int:
    """Ends pods that the full list at `version` does not hold, unless something newer was heard of them.

    Absence never ends a hold, but one that was bound before the list (decision 26). The caller holds the
    locks of their names. Answers how many it ended.
    """
    batch = _Batch(stream, at)
    for account in _locked((), uids):
        row, hold = account.row, account.hold
        if row.ended_by or (row.history == stream.history and row.resource_version > version):
            continue
        if hold is not None and not (hold.state == ReservationState.BOUND and hold.bound_version < version):
            continue
        batch.add(account)
        decision = lifecycle.ended(account.charge, Rule.ABSENT)
        _post(batch, account, decision, f"not in the full list at version {version}", version)
        _end_row(account, decision, version, at)
        _enter_history(row, stream, 0)
    _write(batch)
    return len(batch.accounts)


def end_by_hand(uids: Sequence[str], stream: Stream, *, by: str, at: datetime) -> list[str]:
    """Ends pods because an operator says so, holds included, until something newer is seen (decision 36).

    A hold on its way to a node is left to the bind that has it. The caller holds the locks of the pods'
    names. Answers which it ended.
    """
    batch = _Batch(stream, at)
    for account in _locked((), uids):
        row, hold = account.row, account.hold
        if row.ended_by or (hold is not None and hold.state == ReservationState.BINDING):
            continue
        batch.add(account)
        decision = lifecycle.ended(account.charge, Rule.RELEASED)
        _post(batch, account, decision, f"taken from the books by {by}", row.resource_version)
        # A list that is not older than what is applied now, and holds it, is newer than the operator's word.
        _end_row(account, decision, stream.applied_version, at)
        _enter_history(row, stream, 0)
    _write(batch)
    return list(batch.accounts)


def _record(batch: _Batch, account: _Account, seen: Seen, decision: Decision, pod: Pod | None) -> None:
    """Moves the account on to the decision; `pod` is None where the event shows nothing that counts."""
    if decision.charge.ended_by is not None:
        old = rows.quota_facts_of(account.row)
        if pod is not None:
            _show(account.row, pod, seen, batch)
        _post(batch, account, decision, _reason(seen), seen.resource_version, old)
        _end_row(account, decision, seen.resource_version, batch.at)
        _enter_history(account.row, batch.stream, seen.resource_version)
        return
    assert pod is not None
    row, old = account.row, rows.quota_facts_of(account.row)
    charged_for = row.containers
    _show(row, pod, seen, batch)
    if len(decision.charge.usage) and _is_same_charge(decision.charge, account.charge):
        # What is charged stays, so what it is charged for stays beside it, whatever an event shows now.
        row.containers = with_shape_of(charged_for, row.containers)
    _post(batch, account, decision, _reason(seen), seen.resource_version, old)
    row.state, row.rule = decision.state, decision.rule
    row.ended_by, row.ended_version, row.ended_at = "", 0, None
    timed, look_again = lifecycle.timed_oddities(_clock_of(row), batch.at.timestamp())
    row.look_again_at = datetime.fromtimestamp(look_again, UTC) if look_again is not None else None
    # That a pod is elsewhere than was held is told by the event that ended the hold, and stays so.
    differs = tuple(one for one in account.oddities if one.code is FindingCode.PLACEMENT_DIFFERS)
    found = tuple(Found(one.code, one.detail, one.key) for one in (*decision.oddities, *timed))
    account.oddities = (*found, *differs)


def _is_same_charge(one: Charge, other: Charge) -> bool:
    """Whether both say that the same is held, by the same reading of the same allocations."""
    return (one.usage, one.charged_as, one.allocations) == (other.usage, other.charged_as, other.allocations)


def with_shape_of(known: list[dict[str, Any]], shown: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The containers as shown where they are the known ones. Kubernetes changes neither names nor classes."""
    known_shape, shape = ([(one["name"], one["class"]) for one in some] for some in (known, shown))
    return shown if shape == known_shape else known


def _reason(seen: Seen) -> str:
    """What made the books look at the pod."""
    if seen.list_version:
        return f"full list at {seen.list_version}, version {seen.resource_version}"
    again = " replayed" if seen.replayed else ""
    return f"{seen.type} event{again}, version {seen.resource_version}"


def _enter_history(row: PodRow, stream: Stream, version: int) -> None:
    """The row belongs to this history now; a version of an older one says nothing in it (decision 8).

    `version` is the one it was seen at in this history, 0 where it was not.
    """
    if row.history != stream.history:
        row.history, row.resource_version = stream.history, version


def _end_row(account: _Account, decision: Decision, version: int, at: datetime) -> None:
    row = account.row
    _end_hold(account, ReservationState.RELEASED, at)
    row.state, row.rule = PodState.ENDED, decision.rule
    row.ended_by, row.ended_version, row.ended_at = decision.rule, version, at
    row.look_again_at = None
    account.oddities = ()


def _show(row: PodRow, pod: Pod, seen: Seen, batch: _Batch) -> None:
    """Copies what was seen into the row."""
    facts = pod.quota_facts
    row.resource_version = (
        max(row.resource_version, seen.resource_version)
        if row.history == batch.stream.history
        else seen.resource_version
    )
    row.history = batch.stream.history
    row.node, row.vgpu_node, row.vgpu_time = pod.node_name, pod.vgpu_node, pod.vgpu_time
    row.phase = pod.phase
    row.deletion_timestamp = pod.deletion_timestamp
    row.deletion_grace_seconds = pod.deletion_grace_seconds
    row.containers = rows.containers_json(pod.containers)
    row.priority_class = facts.priority_class
    row.active_deadline_seconds = facts.active_deadline_seconds
    row.best_effort = facts.best_effort
    row.cross_namespace_affinity = facts.cross_namespace_affinity
    row.bind_phase, row.bind_time = pod.bind_phase[:63], pod.bind_time
    row.scheduler_name = pod.scheduler_name
    row.labels, row.annotations = pod.labels, pod.annotations


def _post(
    batch: _Batch,
    account: _Account,
    decision: Decision,
    reason: str,
    version: int,
    old_facts: QuotaFacts | None = None,
) -> None:
    """Takes the decided charge over, and remembers the difference to be posted.

    `old_facts` are what quotas saw of the pod before, where that may differ from its row by now.
    """
    row, charge = account.row, decision.charge
    new_facts = rows.quota_facts_of(row)
    batch.postings.append(
        Posting(
            row.uid,
            row.namespace,
            account.charge.usage,
            charge.usage,
            decision.rule,
            reason,
            version,
            old_facts or new_facts,
            new_facts,
        )
    )
    if charge.allocations != account.charge.allocations:
        row.allocations = rows.allocations_json(charge.allocations)
    row.inits_released, row.charged_as = charge.inits_released, charge.charged_as
    row.changed_at = batch.at
    account.charge, account.changed, account.is_new = charge, True, False


def _clock_of(row: models.Pod | PodRow) -> Clock:
    """The times a stored pod carries."""
    deletion = None
    if row.deletion_timestamp:
        deletion = datetime.fromisoformat(row.deletion_timestamp).timestamp()
    return Clock(PodState(row.state), row.vgpu_time, row.bind_phase, row.bind_time, deletion)


def _write(batch: _Batch) -> None:
    """Writes the changed rows and what is odd of them, then the postings."""
    changed = [account for _, account in sorted(batch.accounts.items()) if account.changed]
    if not changed:
        return
    _STORE.rows(bulk.text([_values_of(account.row) for account in changed]))
    holds = [account.hold for account in changed if account.hold is not None]
    if holds:
        models.Reservation.objects.bulk_update(holds, ["state", "changed_at"])
        ended = [state for hold in holds if not (state := ReservationState(hold.state)).stands]
        announcements.tell(announcements.holds_moved_on, ended)
    _find(changed, at=batch.at)
    # Last: it takes the locks that all who apply wait for.
    ledger.post(batch.postings, at=batch.at)


def _find(changed: Sequence[_Account], *, at: datetime) -> None:
    """What is odd about the pods: nothing any more of those that have ended.

    That a pod is elsewhere than was held is judged while the hold stands, and stays when it has ended.
    """
    wanted: dict[frozenset[FindingCode], dict[Subject, tuple[Found, ...]]] = defaultdict(dict)
    for account in changed:
        codes = POD_CODES if account.was_held else POD_CODES - {FindingCode.PLACEMENT_DIFFERS}
        if account.charge.ended_by is not None:
            codes = POD_CODES | BINDING_CODES
        wanted[codes][subject_of(account.row)] = account.oddities
    for codes, found in wanted.items():
        findings.sync(found, codes, at=at)


def subject_of(row: models.Pod | PodRow) -> Subject:
    """A pod as the subject of findings."""
    return Subject(
        SubjectKind.POD,
        row.uid,
        node=row.vgpu_node or row.node,
        namespace=row.namespace,
        name=row.name,
        uid=row.uid,
    )


def look_again(*, at: datetime, limit: int) -> int:
    """Raises and clears what only time tells, for pods whose time has come; answers how many it looked at."""
    due = models.Pod.objects.filter(look_again_at__lte=at, ended_by="").order_by("uid")
    looked = list(due.select_for_update(no_key=True, skip_locked=True)[:limit])
    wanted: dict[Subject, tuple[Found, ...]] = {}
    for row in looked:
        timed, again = lifecycle.timed_oddities(_clock_of(row), at.timestamp())
        row.look_again_at = datetime.fromtimestamp(again, UTC) if again is not None else None
        wanted[subject_of(row)] = tuple(Found(one.code, one.detail, one.key) for one in timed)
    models.Pod.objects.bulk_update(looked, ["look_again_at"])
    findings.sync(wanted, TIMED_CODES, at=at)
    return len(looked)

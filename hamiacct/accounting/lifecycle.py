"""What a pod is charged, and why: one pure function of what is stored and what is seen.

A charge is nothing when the pod is terminal or deleted, `steady` once its inits are released, else
`effective` (decision 3). Each event recomputes it; the ledger posts the difference. So add, update,
re-add, resync, a changed allocation and a changed node are one rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from hamiacct.accounting.amounts import UNUSED
from hamiacct.accounting.holdings import (
    Held,
    Layout,
    Vendors,
    device_uuid,
    footprint_of_pod,
    is_ambiguous,
)
from hamiacct.accounting.pods import (
    Allocation,
    AnnotationFault,
    Container,
    ContainerClass,
    FaultCode,
    Pod,
    Row,
    Run,
)
from hamiacct.accounting.words import ChargedAs, FindingCode, PodState, Rule

NODE_KEY = "hami.io/vgpu-node"
CLAIM_STALE_SECONDS = 600
ALLOCATE_STUCK_SECONDS = 300
TERMINATING_OVERDUE_SECONDS = 300
END_OF_TIME = 32_503_680_000  # the year 3000: what is due later is not waited for


@dataclass(frozen=True, slots=True)
class Policy:
    """What an operator may settle about charging."""

    layout: Layout = Layout.AUTO
    recharge_on_init_rerun: bool = False


class Oddity(NamedTuple):
    """A finding about a pod, before it is stored; `key` tells two of one code apart (a vendor)."""

    code: FindingCode
    key: str
    detail: str


@dataclass(frozen=True, slots=True)
class Charge:
    """What the books hold for one pod.

    `usage` is what is charged, `allocations` the last good allocation per vendor (kept after the
    end, for explanations), `ended_by` the rule that ended the pod, None while it lives.
    """

    usage: Held = UNUSED
    charged_as: ChargedAs = ChargedAs.NOTHING
    inits_released: bool = False
    allocations: Mapping[str, Allocation] = field(default_factory=dict)
    ended_by: Rule | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The charge from now on, the rule that says so, the pod's state, and what is odd about it."""

    rule: Rule
    charge: Charge
    state: PodState
    oddities: tuple[Oddity, ...] = ()


def gate_is_open(containers: Sequence[Container]) -> bool:
    """The shrink gate (design, "Shrink Rules"; semantics 7.2).

    Open when there are init containers and every *regular* one has a status of its name that
    terminated with exit code 0. Sidecars are not looked at: one may exit 0 between two restarts.
    """
    inits = [container for container in containers if container.kind is not ContainerClass.APP]
    return bool(inits) and all(
        container.run is Run.SUCCEEDED for container in inits if container.kind is ContainerClass.INIT
    )


def ended(stored: Charge | None, rule: Rule) -> Decision:
    """The decision for a pod that is no more: deleted, absent from a full list, superseded."""
    before = stored or Charge()
    charge = replace(before, usage=UNUSED, charged_as=ChargedAs.NOTHING, ended_by=rule)
    return Decision(rule, charge, PodState.ENDED)


def decide(stored: Charge | None, pod: Pod, vendors: Vendors, policy: Policy = Policy()) -> Decision:
    """What `pod`, as just seen, is charged (decisions 3 to 6, 11, 12, 14).

    `stored` is what the books hold for its UID, None when it is new to them.
    """
    before = stored or Charge()
    if pod.phase.is_terminal:
        return ended(replace(before, allocations=_merged(before, pod)), Rule.TERMINAL)
    if pod.is_terminating and len(before.usage):
        # Containers may run through the grace period; HAMi keeps the amounts as they are, so do we.
        return Decision(
            Rule.TERMINATING, before, _state(pod, before), _oddities(before, pod, before, vendors, policy)
        )
    charge = _charge(before, pod, vendors, policy)
    rule = _rule(stored, before, charge)
    return Decision(rule, charge, _state(pod, charge), _oddities(before, pod, charge, vendors, policy))


@dataclass(frozen=True, slots=True)
class Hold:
    """A reservation that stands: the rows it holds, per vendor, on its node (decision 26)."""

    node: str
    allocations: Mapping[str, Allocation]


class HoldEnd(StrEnum):
    """What an event of its pod does to a hold."""

    STAYS = "stays"
    CONFIRMED = "confirmed"
    RELEASED = "released"


def decide_while_held(
    hold: Hold, stored: Charge, pod: Pod, vendors: Vendors, policy: Policy = Policy()
) -> tuple[Decision, HoldEnd]:
    """What `pod` is charged while a hold stands, and what becomes of the hold (decision 27).

    Only a bound pod that carries an allocation of ours has a say: the same one confirms the hold,
    another one wins over it. Everything else is remembered, and the hold stays what is charged.
    """
    if pod.phase.is_terminal:
        return decide(stored, pod, vendors, policy), HoldEnd.RELEASED
    if not pod.is_bound or not pod.vgpu_node or not pod.allocations:
        charge = replace(stored, allocations=_merged(stored, pod), charged_as=ChargedAs.HELD)
        # What is charged is the hold's, so that the pod itself carries nothing is no loss.
        oddities = tuple(
            one
            for one in _oddities(stored, pod, charge, vendors, policy)
            if one.code is not FindingCode.VANISHED_ANNOTATION
        )
        if pod.is_bound:
            detail = f"bound to {pod.node_name} without an allocation; held on {hold.node}"
            oddities = (*oddities, Oddity(FindingCode.PLACEMENT_DIFFERS, "", detail))
        rule = Rule.TERMINATING if pod.is_terminating else Rule.UNCHANGED
        return Decision(rule, charge, PodState.RESERVED, oddities), HoldEnd.STAYS
    charge = _charge(stored, pod, vendors, policy)
    oddities = _oddities(stored, pod, charge, vendors, policy)
    if pod.node_name == hold.node and _same_rows(hold.allocations, pod.allocations):
        return Decision(Rule.CONFIRMED, charge, _state(pod, charge), oddities), HoldEnd.CONFIRMED
    detail = f"bound to {pod.node_name} with another allocation than the one held on {hold.node}"
    oddities = (*oddities, Oddity(FindingCode.PLACEMENT_DIFFERS, "", detail))
    return Decision(Rule.REPLACED, charge, _state(pod, charge), oddities), HoldEnd.RELEASED


def after_hold(stored: Charge, pod: Pod, rule: Rule, vendors: Vendors, policy: Policy = Policy()) -> Decision:
    """The charge when a hold has ended by `rule`: computed from the last that was seen of the pod."""
    before = replace(
        stored, usage=UNUSED
    )  # what was charged was the hold's, so nothing of the pod's vanished
    charge = _charge(before, pod, vendors, policy)
    return Decision(rule, charge, _state(pod, charge), _oddities(before, pod, charge, vendors, policy))


def _same_rows(held: Mapping[str, Allocation], seen: Mapping[str, Allocation]) -> bool:
    """Whether two allocations hold the same; types and empty groups at the end do not count."""

    def amounts(allocations: Mapping[str, Allocation]) -> dict[str, list[tuple[str, list[Row]]]]:
        plain: dict[str, list[tuple[str, list[Row]]]] = {}
        for key, allocation in allocations.items():
            groups = [[row._replace(type="") for row in rows] for rows in allocation.groups]
            while groups and not groups[-1]:
                groups.pop()
            if groups:
                plain[key] = [(allocation.node, rows) for rows in groups]
        return plain

    return amounts(held) == amounts(seen)


def _charge(before: Charge, pod: Pod, vendors: Vendors, policy: Policy) -> Charge:
    """The charge of a living pod."""
    if not pod.vgpu_node:
        if pod.is_bound and len(before.usage):
            return before
        return replace(before, usage=UNUSED, charged_as=ChargedAs.NOTHING, ended_by=None)
    allocations = _merged(before, pod)
    footprint = footprint_of_pod(pod.containers, allocations, vendors, policy.layout)
    all_decoded = bool(allocations) and allocations.keys() <= pod.allocations.keys()
    released = before.inits_released or (all_decoded and gate_is_open(pod.containers))
    peak_again = policy.recharge_on_init_rerun and any(_rerunning(pod.containers))
    if released and not peak_again:
        return Charge(footprint.steady, ChargedAs.STEADY, released, allocations)
    return Charge(footprint.effective, ChargedAs.EFFECTIVE, released, allocations)


def _merged(before: Charge, pod: Pod) -> dict[str, Allocation]:
    """Per vendor the allocation just decoded, else the last good one (decision 11).

    A last good one that names a device which another vendor's readable annotation names now is dropped:
    one device is held for one vendor.
    """
    if not pod.vgpu_node:
        return dict(before.allocations)
    if before.allocations.keys() <= pod.allocations.keys():
        return dict(pod.allocations)
    named = {place for allocation in pod.allocations.values() for place in _places(allocation)}
    kept = {
        key: allocation
        for key, allocation in before.allocations.items()
        if key in pod.allocations or named.isdisjoint(_places(allocation))
    }
    return {**kept, **pod.allocations}


def _places(allocation: Allocation) -> set[tuple[str, str]]:
    """The devices an allocation names, without vendors."""
    return {(allocation.node, device_uuid(row.uuid)) for rows in allocation.groups for row in rows}


def _rerunning(containers: Sequence[Container]) -> list[str]:
    """Names of regular inits whose status says waiting or running; a missing status is no evidence."""
    return [
        container.name
        for container in containers
        if container.kind is ContainerClass.INIT and container.run in (Run.WAITING, Run.RUNNING)
    ]


def _rule(stored: Charge | None, before: Charge, charge: Charge) -> Rule:
    """Which rule turned the one charge into the other."""
    if before.ended_by is not None:
        return Rule.REVIVED
    if charge.usage == before.usage:
        return Rule.UNCHANGED
    if stored is None or not len(before.usage):
        return Rule.CHARGED
    if charge.inits_released and not before.inits_released:
        return Rule.SHRUNK
    if before.inits_released and before.charged_as is not charge.charged_as:
        return Rule.RECHARGED if charge.charged_as is ChargedAs.EFFECTIVE else Rule.SHRUNK
    return Rule.REPLACED


def _state(pod: Pod, charge: Charge) -> PodState:
    """Where a living pod stands."""
    if not len(charge.usage):
        return PodState.UNSCHEDULED
    if not pod.is_bound:
        return PodState.CLAIMED
    if charge.charged_as is ChargedAs.STEADY:
        return PodState.STEADY
    has_inits = any(container.kind is not ContainerClass.APP for container in pod.containers)
    return PodState.PEAK if has_inits else PodState.STEADY


def _oddities(
    before: Charge, pod: Pod, charge: Charge, vendors: Vendors, policy: Policy
) -> tuple[Oddity, ...]:
    """What an operator should know about a living pod, apart from what only time tells."""
    found = [_fault_oddity(fault) for fault in pod.faults]
    faulty = {fault.vendor for fault in pod.faults}
    if not pod.vgpu_node and pod.is_bound and len(before.usage):
        found.append(Oddity(FindingCode.VANISHED_ANNOTATION, "", f"{NODE_KEY} is gone; the charge is kept"))
    if pod.vgpu_node:
        for key in before.allocations:
            if key not in pod.allocations and key not in faulty:
                name = vendors[key].allocated_key
                found.append(
                    Oddity(
                        FindingCode.VANISHED_ANNOTATION, key, f"{name} is gone; the last good amount is kept"
                    )
                )
    if policy.layout is Layout.AUTO:
        for key, allocation in charge.allocations.items():
            if len(charge.usage) and is_ambiguous(allocation, pod.containers):
                found.append(_layout_oddity(key, allocation, pod.containers))
    if charge.inits_released and (names := _rerunning(pod.containers)):
        found.append(
            Oddity(
                FindingCode.INIT_RERUN_AFTER_SHRINK,
                "",
                f"init container {', '.join(names)} runs again after its memory was given back",
            )
        )
    if pod.bind_phase == "failed":
        found.append(
            Oddity(
                FindingCode.ALLOCATE_FAILED, "", "the device plugin failed to allocate (bind-phase failed)"
            )
        )
    found.extend(_not_requested(pod, vendors))
    return tuple(found)


def _fault_oddity(fault: AnnotationFault) -> Oddity:
    """An annotation fault as a finding: key, offset and reason."""
    codes = {
        FaultCode.UNDECODABLE: FindingCode.UNDECODABLE_ANNOTATION,
        FaultCode.VANISHED: FindingCode.VANISHED_ANNOTATION,
        FaultCode.OUTSIDE_POD: FindingCode.ROW_OUTSIDE_POD,
    }
    return Oddity(codes[fault.code], fault.vendor, f"{fault.key} at offset {fault.offset}: {fault.reason}")


def _layout_oddity(key: str, allocation: Allocation, containers: Sequence[Container]) -> Oddity:
    """The two readings of decision 14, in words."""
    return Oddity(
        FindingCode.AMBIGUOUS_LAYOUT,
        key,
        f"{len(allocation.groups)} groups for {len(containers)} containers: "
        "one group per app container may mean the layout without inits; the larger of both is charged",
    )


def _not_requested(pod: Pod, vendors: Vendors) -> list[Oddity]:
    """Allocations on containers whose resources name nothing of that vendor (semantics G-18)."""
    found = []
    for key, allocation in pod.allocations.items():
        if is_ambiguous(allocation, pod.containers):
            continue
        names = vendors[key].names
        unasked = [
            container.name
            for container, rows in zip(pod.containers, allocation.groups, strict=False)
            if rows and names.isdisjoint(container.limits) and names.isdisjoint(container.requests)
        ]
        if unasked:
            detail = (
                f"{vendors[key].allocated_key} gives devices to {', '.join(unasked)}, which asked for none"
            )
            found.append(Oddity(FindingCode.ALLOCATION_NOT_REQUESTED, key, detail))
    return found


@dataclass(frozen=True, slots=True)
class Clock:
    """The times a pod carries, in seconds since 1970; None where there is none."""

    state: PodState
    vgpu_time: float | None = None
    bind_phase: str = ""
    bind_time: float | None = None
    deletion_time: float | None = None


_CLAIM_STALE = Oddity(FindingCode.CLAIM_STALE, "", "annotated over ten minutes ago and still not bound")
_ALLOCATE_STUCK = Oddity(FindingCode.ALLOCATE_STUCK, "", "bind-phase allocating for over five minutes")
_TERMINATING_OVERDUE = Oddity(
    FindingCode.TERMINATING_OVERDUE, "", "still here over five minutes after it should be gone"
)


def timed_oddities(clock: Clock, now: float) -> tuple[tuple[Oddity, ...], float | None]:
    """What only time tells about a living pod, and when to look again (None: never by time alone)."""
    if clock.state is PodState.ENDED:
        return (), None
    due: list[tuple[float, Oddity]] = []
    if clock.vgpu_time is not None and clock.state is PodState.CLAIMED:
        due.append((clock.vgpu_time + CLAIM_STALE_SECONDS, _CLAIM_STALE))
    if clock.bind_time is not None and clock.bind_phase == "allocating":
        due.append((clock.bind_time + ALLOCATE_STUCK_SECONDS, _ALLOCATE_STUCK))
    if clock.deletion_time is not None:
        due.append((clock.deletion_time + TERMINATING_OVERDUE_SECONDS, _TERMINATING_OVERDUE))
    found = tuple(oddity for moment, oddity in due if moment <= now)
    return found, min((moment for moment, _ in due if now < moment < END_OF_TIME), default=None)

"""Why a pod's charge is what it is: the fold's own steps, then the ledger's lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hamiacct import config, models, rows
from hamiacct.accounting import admission, quota
from hamiacct.accounting.amounts import Usage
from hamiacct.accounting.errors import NotFound
from hamiacct.accounting.footprint import Footprint
from hamiacct.accounting.holdings import Held, Step, steps_of_pod
from hamiacct.accounting.lifecycle import Decision, decide, gate_is_open
from hamiacct.accounting.pods import Container, ContainerClass, DeviceKey, Pod
from hamiacct.accounting.quota import Undetermined
from hamiacct.accounting.words import ChargedAs, FindingCode, PodState, Rule, SubjectKind
from hamiacct.queries import ledger
from hamiacct.queries.ledger import Line
from hamiacct.queries.quotas import apiserver_charge
from hamiacct.queries.requests import as_allocations, counting_cores

LEDGER_LINES = 1000
UNREAD = (FindingCode.UNDECODABLE_ANNOTATION, FindingCode.VANISHED_ANNOTATION, FindingCode.ROW_OUTSIDE_POD)
"""What is odd about a pod whose allocation could not be read, or not all of it."""


@dataclass(frozen=True, slots=True)
class PodName:
    """Which pod is explained."""

    uid: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The fold step by step, its two readings, which of them is charged, and why.

    `apiserver` is what a ResourceQuota would be charged by the apiserver, by `requests.<name>`.
    """

    pod: PodName
    steps: tuple[Step, ...]
    effective: Held
    steady: Held
    charged: Held
    rule: Rule | None
    sentence: str
    ledger: tuple[Line, ...] = ()
    apiserver: Mapping[str, int] = field(default_factory=dict)


def of_pod(uid: str) -> Explanation:
    """The explanation of a stored pod. NotFound where the books do not know it."""
    row = models.Pod.objects.filter(uid=uid).first()
    if row is None:
        raise NotFound(f"no pod with uid {uid}")
    containers, allocations = rows.containers_of(row), rows.allocations_of(row)
    if row.charged_as == ChargedAs.HELD:
        hold = models.Reservation.objects.filter(pod_uid=uid).first()
        allocations = dict(rows.hold_of(hold).allocations) if hold is not None else allocations
    steps = steps_of_pod(containers, allocations, config.vendor_by_key(), config.annotation_layout())
    footprint: Footprint[DeviceKey] = steps[-1].footprint if steps else Footprint()
    charged = rows.held_of(row.entries.select_related("device"))
    lines = tuple(
        ledger.line_of(line)
        for line in reversed(models.LedgerEntry.objects.filter(pod_uid=uid).order_by("-seq")[:LEDGER_LINES])
    )
    odd = models.Finding.objects.filter(subject_kind=SubjectKind.POD, uid=uid, code__in=UNREAD)
    sentence = _sentence(
        containers,
        footprint,
        Rule(row.rule),
        PodState(row.state),
        ChargedAs(row.charged_as),
        row.inits_released,
        tuple(odd.order_by("id").values_list("detail", flat=True)),
    )
    return Explanation(
        PodName(row.uid, row.namespace, row.name),
        steps,
        footprint.effective,
        footprint.steady,
        charged,
        Rule(row.rule),
        sentence,
        lines,
    )


def of_manifest(pod: Pod) -> Explanation:
    """The explanation of a pod that need not exist: by its allocation if it has one, else by its requests.

    Requests are read, and what the apiserver charges for them is, as admission would leave them. Malformed
    names the container, the key and the value that cannot be granted.
    """
    if not pod.allocations and not pod.faults:
        return _of_requests(pod)
    vendors, policy = config.vendor_by_key(), config.charge_policy()
    decision: Decision = decide(None, pod, vendors, policy)
    steps = steps_of_pod(pod.containers, pod.allocations, vendors, policy.layout)
    footprint: Footprint[DeviceKey] = steps[-1].footprint if steps else Footprint()
    sentence = _sentence(
        pod.containers,
        footprint,
        decision.rule,
        decision.state,
        decision.charge.charged_as,
        decision.charge.inits_released,
        tuple(oddity.detail for oddity in decision.oddities if oddity.code in UNREAD),
    )
    return Explanation(
        PodName(pod.uid, pod.namespace, pod.name),
        steps,
        footprint.effective,
        footprint.steady,
        decision.charge.usage,
        decision.rule,
        sentence,
        (),
        _apiserver(pod),
    )


def _of_requests(pod: Pod) -> Explanation:
    """The explanation of a pod without allocation."""
    found = admission.admitted(pod, config.vendors())
    seen = as_allocations(found, config.vendors())
    vendors = counting_cores(config.vendor_by_key())
    steps = steps_of_pod(seen.containers, seen.allocations, vendors, config.annotation_layout())
    footprint: Footprint[DeviceKey] = steps[-1].footprint if steps else Footprint()
    unsized = quota.undetermined(seen.containers, found.requests, config.vendor_by_key())
    return Explanation(
        PodName(pod.uid, pod.namespace, pod.name),
        steps,
        footprint.effective,
        footprint.steady,
        footprint.effective,
        None,
        _sentence_of_requests(seen.containers, footprint, unsized),
        (),
        _apiserver(seen),
    )


def _apiserver(pod: Pod) -> dict[str, int]:
    """What a ResourceQuota would be charged by the apiserver, by key."""
    return {f"requests.{name}": amount for name, amount in apiserver_charge(pod.containers).items()}


def _amounts(held: Held) -> str:
    """Totals in words."""
    total = held.total
    return f"{total.memory_mib} MiB, {total.cores} cores and {total.slots} slots"


def _winner(footprint: Footprint[DeviceKey]) -> str:
    """Which term of the formula is the larger one, in memory."""
    peak, steady = footprint.peak.total.memory_mib, footprint.steady.total.memory_mib
    if not len(footprint.peak):
        return "apps and sidecars together"
    if peak > steady:
        return "an init container with the sidecars declared before it"
    if peak < steady:
        return "apps and sidecars together"
    return "inits at their peak and apps with sidecars alike"


def _sentence_of_requests(
    containers: tuple[Container, ...], footprint: Footprint[DeviceKey], unsized: tuple[Undetermined, ...]
) -> str:
    """The sentence of a pod without allocation. What has no size yet is said, never taken for nothing."""
    if not len(footprint.effective):
        return "It asks for nothing that is managed here."
    sentence = f"It would be charged {_amounts(footprint.effective)}, set by {_winner(footprint)}"
    if any(container.kind is ContainerClass.INIT for container in containers):
        sentence += f"; once its inits are done, {_amounts(footprint.steady)}"
    if unsized:
        more = "; ".join(f"{one.container}: {one.detail}" for one in unsized)
        return f"{sentence}. Yet to be added: {more}."
    return f"{sentence}."


_ENDED = {
    Rule.TERMINAL: "its phase is terminal",
    Rule.DELETED: "it was deleted",
    Rule.ABSENT: "a full list did not hold it",
    Rule.SUPERSEDED: "another pod took over its name",
    Rule.RELEASED: "it was released",
}


def _sentence(
    containers: tuple[Container, ...],
    footprint: Footprint[DeviceKey],
    rule: Rule,
    state: PodState,
    charged_as: ChargedAs,
    inits_released: bool,
    unread: tuple[str, ...],
) -> str:
    """In one line why the number is what it is; `unread` is what could not be read of its allocation."""
    if state is PodState.ENDED:
        return f"Nothing is charged: {_ENDED.get(rule, 'it ended')}."
    told = _of_charge(containers, footprint, rule, charged_as, inits_released, bool(unread))
    return f"{told} Of its annotations: {'; '.join(unread)}." if unread else told


def _of_charge(
    containers: tuple[Container, ...],
    footprint: Footprint[DeviceKey],
    rule: Rule,
    charged_as: ChargedAs,
    inits_released: bool,
    is_unread: bool,
) -> str:
    """Why a living pod is charged what it is."""
    if is_unread and not len(footprint.effective):
        return "Nothing is charged: no allocation of it could ever be read."
    if charged_as is ChargedAs.NOTHING or not len(footprint.effective):
        return "Nothing is charged: it carries no allocation on a node."
    if charged_as is ChargedAs.HELD:
        return f"Charged {_amounts(footprint.effective)}: held for it by a reservation until it is bound."
    if charged_as is ChargedAs.STEADY:
        why = "apps and sidecars; every regular init container exited 0 and its memory was given back"
        if all(container.kind is not ContainerClass.INIT for container in containers):
            why = "apps and sidecars; no init container runs to completion"
        sentence = f"Charged {_amounts(footprint.steady)}: {why}."
    else:
        sentence = f"Charged {_amounts(footprint.effective)}, set by {_winner(footprint)}"
        if rule is not Rule.TERMINATING and any(
            container.kind is ContainerClass.INIT for container in containers
        ):
            sentence += _holding(containers, footprint, inits_released)
        sentence += "."
    if rule is Rule.TERMINATING:
        sentence += " It is being deleted and keeps its charge until it is gone."
    return sentence


def _holding(containers: tuple[Container, ...], footprint: Footprint[DeviceKey], inits_released: bool) -> str:
    """What the charge waits for, and what comes back then."""
    if inits_released:
        return "; an init container runs again"
    back: Held = Usage(footprint.effective.minus(footprint.steady).items())
    waits = ", ".join(
        f"{container.name} ({container.run})"
        for container in containers
        if container.kind is ContainerClass.INIT and container.run != "succeeded"
    )
    if gate_is_open(containers):
        return "; an annotation that cannot be read holds the shrink"
    return f"; held until {waits} exits 0, then {back.total.memory_mib} MiB come back"

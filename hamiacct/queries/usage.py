"""Who holds what of which card: the cluster, its nodes, devices and pods."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from django.db.models import Count, F, Q, QuerySet, Sum
from django.db.models.functions import Greatest

from hamiacct import config, models, rows
from hamiacct.accounting.errors import NotFound
from hamiacct.accounting.holdings import Layout, Vendors, device_uuid, readings
from hamiacct.accounting.pods import ContainerClass
from hamiacct.accounting.vendors import Vendor
from hamiacct.accounting.words import ChargedAs, FindingCode, PodState
from hamiacct.queries import findings, pages, streamed
from hamiacct.queries.fleet import STANDING

DIMENSIONS = ("slots", "memory_mib", "cores")
# Without the fields that only questions need: JSON costs more to read than all the others together.
DEVICES = models.Device.objects.defer("mig_profiles", "custom")


class Room(NamedTuple):
    """One dimension of a device or a cluster. Usage may exceed the total; then nothing is free."""

    total: int
    used: int
    free: int

    @classmethod
    def of(cls, total: int, used: int) -> Room:
        """What is left of `total`, never less than nothing (decision 13)."""
        return cls(total, used, max(0, total - used))


@dataclass(frozen=True, slots=True)
class Share:
    """What one pod holds of a device."""

    uid: str
    namespace: str
    name: str
    state: PodState
    slots: int
    memory_mib: int
    cores: int


@dataclass(frozen=True, slots=True)
class Device:
    """A device with its room. `shares` are read for a single device alone."""

    node: str
    uuid: str
    index: int
    vendor: str
    model: str
    numa: int
    mode: str
    healthy: bool
    cordoned: bool
    registered: bool
    slots: Room
    memory_mib: Room
    cores: Room
    findings: tuple[findings.Note, ...]
    shares: tuple[Share, ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """A node and its devices, in the order of their indexes."""

    name: str
    devices: tuple[Device, ...]


@dataclass(frozen=True, slots=True)
class Cluster:
    """The whole cluster. Rooms are those of registered devices on nodes that exist (decision 10)."""

    nodes: int
    registered: int
    unregistered: int
    healthy: int
    cordoned: int
    slots: Room
    memory_mib: Room
    cores: Room
    pods_by_state: Mapping[PodState, int]


@dataclass(frozen=True, slots=True)
class Held:
    """What a pod holds of one device."""

    node: str
    device: str
    vendor: str
    slots: int
    memory_mib: int
    cores: int


@dataclass(frozen=True, slots=True)
class Part:
    """One device in a container's allocation."""

    uuid: str
    vendor: str
    memory_mib: int
    cores: int


@dataclass(frozen=True, slots=True)
class Container:
    """A container and what its allocation gives it."""

    position: int
    name: str
    kind: ContainerClass
    devices: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod as charged. `node` is where it is bound, or claimed to go while it is not."""

    uid: str
    namespace: str
    name: str
    node: str
    phase: str
    state: PodState
    inits_released: bool
    usage: tuple[Held, ...]
    containers: tuple[Container, ...]
    findings: tuple[findings.Note, ...]


def cluster() -> Cluster:
    """The totals of the cluster; four queries."""
    alive = models.Node.objects.filter(deleted=False)
    registered = models.Device.objects.filter(registered=True, node__in=alive.values("name"))
    sums = {
        f"sum_{one}_{what}": Sum(f"{one}_{what}", default=0)
        for one in DIMENSIONS
        for what in ("total", "used")
    }
    free = {
        f"sum_{one}_free": Sum(Greatest(F(f"{one}_total") - F(f"{one}_used"), 0), default=0)
        for one in DIMENSIONS
    }
    found = registered.aggregate(
        count=Count("id"),
        count_healthy=Count("id", filter=Q(healthy=True)),
        count_cordoned=Count("id", filter=Q(cordoned=True)),
        **sums,
        **free,
    )
    slots, memory_mib, cores = (
        Room(*(int(found[f"sum_{one}_{what}"]) for what in Room._fields)) for one in DIMENSIONS
    )
    by_state = dict(models.Pod.objects.values_list("state").annotate(count=Count("uid")).order_by())
    return Cluster(
        nodes=alive.count(),
        registered=found["count"],
        unregistered=models.Device.objects.filter(registered=False).count(),
        healthy=found["count_healthy"],
        cordoned=found["count_cordoned"],
        slots=slots,
        memory_mib=memory_mib,
        cores=cores,
        pods_by_state={state: by_state.get(state, 0) for state in PodState},
    )


def nodes(*, after: pages.Key | None, limit: int) -> pages.Page[Node]:
    """Nodes by name, deleted ones left out; three queries."""
    found = pages.rows_after(models.Node.objects.filter(deleted=False).only("name"), ("name",), after, limit)
    by_node: dict[str, list[Device]] = defaultdict(list)
    on_them = DEVICES.filter(node__in=[row.name for row in found.rows])
    for device in _devices(on_them.order_by(*IN_A_NODE)):
        by_node[device.node].append(device)
    return found.map(lambda row: Node(row.name, tuple(by_node[row.name])))


IN_A_NODE = ("node", "vendor", "index", "uuid")


def node(name: str) -> Node:
    """One node. NotFound unless it exists or the books still hold devices of it."""
    devices = _devices(DEVICES.filter(node=name).order_by(*IN_A_NODE))
    if not devices and not models.Node.objects.filter(name=name, deleted=False).exists():
        raise NotFound(f"the books know no node {name}")
    return Node(name, tuple(devices))


def devices(
    *,
    node: str,
    uuid: str,
    vendor: str,
    registered: bool | None,
    finding: FindingCode | None,
    after: pages.Key | None,
    limit: int,
) -> pages.Page[Device]:
    """Devices by node and uuid; an empty filter selects all; two queries."""
    wanted = {"node": node, "uuid": uuid and device_uuid(uuid), "vendor": vendor}
    selected = DEVICES.filter(**{field: value for field, value in wanted.items() if value})
    if registered is not None:
        selected = selected.filter(registered=registered)
    if finding:
        selected = selected.filter(findings.on_device(finding))
    found = pages.rows_after(selected, ("node", "uuid"), after, limit)
    return found.page(_devices(found.rows))


def device(node: str, uuid: str) -> Device:
    """One device and the pods that hold it; three queries. NotFound where the books know none such."""
    row = models.Device.objects.filter(node=node, uuid=device_uuid(uuid)).first()
    if row is None:
        raise NotFound(f"the books know no device {uuid} on node {node}")
    holders = (
        models.UsageEntry.objects.filter(device=row)
        .select_related("pod")
        .order_by("pod__namespace", "pod__name", "pod_id")
    )
    shares = tuple(
        Share(
            entry.pod_id,
            entry.pod.namespace,
            entry.pod.name,
            PodState(entry.pod.state),
            entry.slots,
            entry.memory_mib,
            entry.cores,
        )
        for entry in holders
    )
    return _device(row, findings.of_devices([(row.node, row.uuid)]), shares)


def _devices(selected: QuerySet[models.Device] | Sequence[models.Device]) -> list[Device]:
    found = list(selected)
    notes = findings.of_devices([(row.node, row.uuid) for row in found])
    return [_device(row, notes) for row in found]


def _device(
    row: models.Device,
    notes: Mapping[findings.Place, tuple[findings.Note, ...]],
    shares: tuple[Share, ...] = (),
) -> Device:
    return Device(
        row.node,
        row.uuid,
        row.index,
        row.vendor,
        row.model,
        row.numa,
        row.mode,
        row.healthy,
        row.cordoned,
        row.registered,
        Room.of(row.slots_total, row.slots_used),
        Room.of(row.memory_mib_total, row.memory_mib_used),
        Room.of(row.cores_total, row.cores_used),
        notes.get((row.node, row.uuid), ()),
        shares,
    )


def pods(
    *,
    namespace: str,
    node: str,
    state: PodState | None,
    finding: FindingCode | None,
    after: pages.Key | None,
    limit: int,
) -> pages.Page[Pod]:
    """Pods by uid; an empty filter selects all; three queries, four where a pod is held."""
    selected = models.Pod.objects.all()
    if namespace:
        selected = selected.filter(namespace=namespace)
    if node:
        selected = selected.filter(Q(node=node) | Q(vgpu_node=node))
    if state:
        selected = selected.filter(state=state)
    if finding:
        selected = selected.filter(findings.on_pod(finding))
    found = pages.rows_after(selected.only(*SHOWN_OF_A_POD), ("uid",), after, limit)
    return found.page(_pods(found.rows))


SHOWN_OF_A_POD = (
    "uid",
    "namespace",
    "name",
    "node",
    "vgpu_node",
    "phase",
    "state",
    "inits_released",
    "containers",
    "allocations",
    "charged_as",
)


CHARGED_AT_ONCE = 1000


def charged() -> Iterable[Pod]:
    """Every pod that is charged, without what is odd about it; containers whose charge is over hold nothing.

    Two queries. Inits that were given back are over.
    """
    vendors, layout = config.vendor_by_key(), config.annotation_layout()
    holds = {hold.pod_uid: hold for hold in models.Reservation.objects.filter(state__in=STANDING)}
    found = models.Pod.objects.exclude(charged_as=ChargedAs.NOTHING).only(*SHOWN_OF_A_POD).order_by("uid")
    for row in streamed.rows(found, at_once=CHARGED_AT_ONCE):
        hold = holds.get(row.uid) if row.charged_as == ChargedAs.HELD else None
        node = hold.node if hold is not None else row.vgpu_node or row.node
        containers = tuple(
            replace(container, devices=())
            if container.kind is ContainerClass.INIT and row.charged_as == ChargedAs.STEADY
            else container
            for container in _containers(row, hold, vendors, layout)
        )
        yield Pod(
            row.uid,
            row.namespace,
            row.name,
            node,
            row.phase,
            PodState(row.state),
            row.inits_released,
            (),
            containers,
            (),
        )


def pod(uid: str) -> Pod:
    """One pod; three queries, four where it is held. NotFound for a uid the books do not hold (any more)."""
    found = _pods(list(models.Pod.objects.filter(uid=uid).only(*SHOWN_OF_A_POD)))
    if not found:
        raise NotFound(f"the books know no pod {uid}")
    return found[0]


def _pods(found: Sequence[models.Pod]) -> list[Pod]:
    vendors, layout = config.vendor_by_key(), config.annotation_layout()
    uids = [row.uid for row in found]
    notes = findings.of_pods(uids)
    held: dict[str, list[Held]] = defaultdict(list)
    entries = models.UsageEntry.objects.filter(pod_id__in=uids).order_by("device__node", "device__uuid")
    for uid, node_, uuid, vendor, slots, memory_mib, cores in entries.values_list(
        "pod_id", "device__node", "device__uuid", "vendor", "slots", "memory_mib", "cores"
    ):
        held[uid].append(Held(node_, uuid, vendor, slots, memory_mib, cores))
    by_hold = [row.uid for row in found if row.charged_as == ChargedAs.HELD]
    holds = {hold.pod_uid: hold for hold in models.Reservation.objects.filter(pod_uid__in=by_hold)}
    return [
        Pod(
            row.uid,
            row.namespace,
            row.name,
            row.node or row.vgpu_node,
            row.phase,
            PodState(row.state),
            row.inits_released,
            tuple(held[row.uid]),
            tuple(_containers(row, holds.get(row.uid), vendors, layout)),
            notes.get(row.uid, ()),
        )
        for row in found
    ]


def _containers(
    row: models.Pod, hold: models.Reservation | None, vendors: Vendors, layout: Layout
) -> Iterable[Container]:
    """Containers with the rows of their position, those of the hold where it is what is charged.

    Of two readings of a layout, the positional one.
    """
    containers = rows.containers_of(row)
    allocations = rows.allocations_of(row) if hold is None else rows.hold_of(hold).allocations
    parts: list[list[Part]] = [[] for _ in containers]
    for allocation in allocations.values():
        # One that is configured no more still names its charge; its rows are read as they are written.
        vendor = vendors.get(allocation.vendor) or Vendor(allocation.vendor, family="")
        for position, group in enumerate(readings(allocation, containers, layout)[0]):
            for entry in group:
                amount = vendor.amount_of(entry)
                parts[position].append(
                    Part(device_uuid(entry.uuid), vendor.key, amount.memory_mib, amount.cores)
                )
    for container, devices_of_it in zip(containers, parts, strict=True):
        yield Container(container.position, container.name, container.kind, tuple(devices_of_it))

"""An independent model of the books, written from the design and the decisions alone.

Nothing of the product is imported. The model is told what a generator of lives knows about each event
(a `PodView`, a `NodeView`, a `QuotaView`), never the JSON that the service reads; so it can neither
share a mistake of the rules nor one of the reading. It is slow and plain: sums are computed anew each
time from what every pod holds, and the formula is written as the design writes it, not as a fold.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

INIT, SIDECAR, APP = "init", "sidecar", "app"
SUCCEEDED = 0

Row = tuple[str, int, int]  # uuid, memory, cores
Groups = tuple[tuple[Row, ...], ...]


class Vendor(NamedTuple):
    """How a vendor is written, and what its numbers mean."""

    key: str
    annotation: str
    memory_name: str = ""
    cores_name: str = ""
    factor: int = 1
    cores_are_a_set: bool = False
    cores_are_units: bool = False
    slots_annotation: str = ""


VENDORS = {
    vendor.key: vendor
    for vendor in (
        Vendor("NVIDIA", "hami.io/vgpu-devices-allocated", "nvidia.com/gpumem", "nvidia.com/gpucores"),
        Vendor(
            "MLU",
            "hami.io/cambricon-mlu-devices-allocated",
            "cambricon.com/mlu.smlu.vmemory",
            "cambricon.com/mlu.smlu.vcore",
            factor=256,
        ),
        Vendor("DCU", "hami.io/dcu-devices-allocated", "hygon.com/dcumem", "hygon.com/dcucores"),
        Vendor(
            "Ascend910B4",
            "hami.io/Ascend910B4-devices-allocated",
            "huawei.com/Ascend910B4-memory",
            "huawei.com/Ascend910B4-core",
        ),
        Vendor(
            "Enflame",
            "hami.io/enflame-vgpu-devices-allocated",
            "enflame.com/gcu-memory",
            "enflame.com/gcu-core",
            slots_annotation="enflame.com/gcu-request-size",
        ),
        Vendor(
            "AWSNeuron",
            "hami.io/aws-neuron-devices-allocated",
            cores_name="aws.amazon.com/neuroncore",
            cores_are_a_set=True,
        ),
        Vendor(
            "AMD",
            "hami.io/amd-devices-allocated",
            "amd.com/gpumem",
            "amd.com/gpucores",
            cores_are_units=True,
        ),
        Vendor("Biren", "hami.io/Biren-devices-allocated"),
    )
}


class Device(NamedTuple):
    """A device is a uuid on a node (decision 9)."""

    node: str
    uuid: str
    vendor: str


class Share(NamedTuple):
    """What one pod holds of a device."""

    slots: int
    memory: int
    cores: int


Holding = dict[Device, Share]


@dataclass(frozen=True)
class Allocation:
    """What one vendor's annotation says; `groups` is None where nobody can read it."""

    groups: Groups | None
    slots: int = 1
    outside_pod: bool = False


class Ask(NamedTuple):
    """What a container asks of NVIDIA: cards, and of each memory (None: the whole card) and cores."""

    count: int
    memory: int | None = None
    cores: int | None = None


@dataclass(frozen=True)
class PodView:
    """A pod at one version, as the cluster knows it.

    `exits` says of each init container how it stands: None for no status, "waiting", "running", or an
    exit code. `claimed` is the node of the vgpu-node annotation, `bound` the one of spec.nodeName.
    `asks` is what each container asks for, by position; nobody asks for anything without it. `marks` are
    annotations that say nothing of what is held.
    """

    uid: str
    namespace: str
    name: str
    version: int
    kinds: tuple[str, ...]
    exits: tuple[int | str | None, ...]
    phase: str = "Pending"
    terminating: bool = False
    claimed: str = ""
    bound: str = ""
    allocations: Mapping[str, Allocation] = field(default_factory=dict)
    priority_class: str = ""
    deadline: int | None = None
    readable: bool = True
    asks: tuple[Ask | None, ...] = ()
    marks: tuple[tuple[str, str], ...] = ()

    @property
    def asks_for_nothing(self) -> bool:
        """Whether no container asks for a card."""
        return not any(self.asks)


@dataclass(frozen=True)
class NodeView:
    """A node at one version. A vendor's register is its cards, or None for a text nobody can read.

    Of the cards, by uuid, the `ill` ones are registered as unhealthy; the `cordoned` ones an operator names.
    """

    name: str
    version: int
    registers: Mapping[str, Mapping[str, tuple[int, int, int]] | None] = field(default_factory=dict)
    ill: frozenset[str] = frozenset()
    cordoned: frozenset[str] = frozenset()


@dataclass(frozen=True)
class QuotaView:
    """A ResourceQuota at one version. `classes` selects priority classes, `terminating` deadlines."""

    namespace: str
    name: str
    version: int
    hard: Mapping[str, int] = field(default_factory=dict)
    classes: tuple[str, frozenset[str]] | None = None
    terminating: bool | None = None

    def selects(self, pod: PodView) -> bool:
        """Whether the quota counts the pod: all its scopes must match (decision 16)."""
        if self.classes is not None:
            operator, names = self.classes
            inside = pod.priority_class in names
            if (operator == "In" and not inside) or (operator == "NotIn" and inside):
                return False
        return self.terminating is None or self.terminating == (pod.deadline is not None)


View = PodView | NodeView | QuotaView


class Event(NamedTuple):
    """One watch event as sent."""

    type: str
    view: View


# --- the formula -----------------------------------------------------------------------------------


def effective(kinds: Sequence[str], amounts: Sequence[int]) -> int:
    """max( max over non-sidecar init_i ( init_i + sidecars declared before ), apps + all sidecars )."""
    peaks = [
        amount + sum(amounts[j] for j in range(i) if kinds[j] == SIDECAR)
        for i, amount in enumerate(amounts)
        if kinds[i] == INIT
    ]
    return max(max(peaks, default=0), steady(kinds, amounts))


def steady(kinds: Sequence[str], amounts: Sequence[int]) -> int:
    """Apps and sidecars: what is left to hold once the others have succeeded."""
    return sum(amount for kind, amount in zip(kinds, amounts, strict=True) if kind in (SIDECAR, APP))


def _held(view: PodView, vendor: Vendor, groups: Groups, slots: int, released: bool) -> dict[str, Share]:
    """One vendor's charge by uuid, with the groups at their positions."""
    groups = (*groups, *((),) * (len(view.kinds) - len(groups)))
    reading = steady if released else effective
    shares: dict[str, Share] = {}
    for uuid in {row[0] for group in groups for row in group}:
        per_container = [[row for row in group if row[0] == uuid] for group in groups]
        counts = [slots * len(rows) for rows in per_container]
        memory = [sum(row[1] for row in rows) for rows in per_container]
        if vendor.cores_are_a_set:
            mask = 0
            for kind, rows in zip(view.kinds, per_container, strict=True):
                for row in rows:
                    mask |= row[2] if not released or kind != INIT else 0
            cores = bin(mask).count("1")
        else:
            cores = reading(view.kinds, [sum(row[2] for row in rows) for rows in per_container])
        share = Share(reading(view.kinds, counts), reading(view.kinds, memory), cores)
        if share.slots:
            shares[uuid] = share
    return shares


def is_ambiguous(view: PodView, groups: Groups) -> bool:
    """As many groups as apps although there are inits: perhaps the layout without inits (decision 14).

    Where nothing is given, either reading gives nothing.
    """
    apps = view.kinds.count(APP)
    return any(groups) and len(groups) == apps and len(view.kinds) > apps


def holding(view: PodView, node: str, vendor: Vendor, allocation: Allocation, released: bool) -> Holding:
    """What an allocation charges."""
    assert allocation.groups is not None
    readings = [allocation.groups]
    if is_ambiguous(view, allocation.groups):
        inits = len(view.kinds) - view.kinds.count(APP)
        readings.append((*((),) * inits, *allocation.groups))
    larger: Holding = {}
    for groups in readings:
        for uuid, share in _held(view, vendor, groups, allocation.slots, released).items():
            device = Device(node, uuid, vendor.key)
            other = larger.get(device, Share(0, 0, 0))
            larger[device] = Share(*map(max, share, other))
    return larger


# --- the books -------------------------------------------------------------------------------------


@dataclass
class Hold:
    """A reservation: the rows it holds on its node, by vendor (decision 26).

    `seconds_left` is the time until it runs out, `bound_at` the pods' applied version when it was bound, and
    `history` the history that version belongs to.
    """

    node: str
    groups: Mapping[str, Groups]
    seconds_left: int
    state: str = "held"
    bound_at: int = 0
    history: int = 0

    @property
    def stands(self) -> bool:
        """Whether it is what its pod is charged."""
        return self.state in ("held", "binding", "bound")

    @property
    def is_due(self) -> bool:
        """Whether its time is up."""
        return self.state == "held" and self.seconds_left <= 0


@dataclass
class Account:
    """What is remembered of one pod; `shrunk` says that what it holds is the steady amount.

    `differs` says that the pod was seen elsewhere than its hold, or bound without what was held for it.
    """

    view: PodView
    history: int
    held: Holding = field(default_factory=dict)
    released: bool = False
    shrunk: bool = False
    good: dict[str, tuple[str, Allocation]] = field(default_factory=dict)
    ended: str = ""
    ended_at: int = 0
    version: int = 0
    hold: Hold | None = None
    differs: bool = False

    @property
    def lives(self) -> bool:
        return not self.ended

    @property
    def is_held(self) -> bool:
        return self.hold is not None and self.hold.stands

    @property
    def state(self) -> str:
        if self.ended:
            return "ended"
        if self.is_held:
            return "reserved"
        if not self.held:
            return "unscheduled"
        if not self.view.bound:
            return "claimed"
        has_inits = any(kind != APP for kind in self.view.kinds)
        return "peak" if has_inits and not self.shrunk else "steady"

    @property
    def findings(self) -> set[str]:
        """What an operator must be told of, as far as the model looks."""
        if self.ended:
            return set()
        view, found = self.view, {"placement-differs"} if self.differs else set()
        for allocation in view.allocations.values():
            if allocation.groups is None:
                found.add("row-outside-pod" if allocation.outside_pod else "undecodable-annotation")
        # While a hold is what is charged, that the pod itself carries nothing is no loss.
        if view.claimed and self.good.keys() - view.allocations.keys() and not self.is_held:
            found.add("vanished-annotation")
        if not view.claimed and view.bound and self.held and not self.is_held:
            found.add("vanished-annotation")
        if self.held and any(is_ambiguous(view, one.groups or ()) for _, one in self.good.values()):
            found.add("ambiguous-layout")
        reruns = (INIT, "waiting"), (INIT, "running")
        if self.released and any(pair in reruns for pair in zip(view.kinds, view.exits, strict=False)):
            found.add("init-rerun-after-shrink")
        return found


FINDINGS = {
    "undecodable-annotation",
    "row-outside-pod",
    "vanished-annotation",
    "ambiguous-layout",
    "init-rerun-after-shrink",
    "placement-differs",
}


class Refused(Exception):
    """A list that must be refused; `would_end` where a number can be confirmed."""

    def __init__(self, would_end: int | None = None) -> None:
        self.would_end = would_end


@dataclass
class Card:
    """What a node says, or said, of a device."""

    vendor: str
    total: tuple[int, int, int]
    registered: bool
    healthy: bool = True
    cordoned: bool = False

    @property
    def is_offered(self) -> bool:
        """Whether a pod may be given it."""
        return self.registered and self.healthy and not self.cordoned


@dataclass
class Object:
    """A node or a quota, by name. `version` says nothing (-1) of what an older history knew at `seen_at`."""

    view: NodeView | QuotaView
    version: int
    lives: bool = True
    seen_at: int = 0


@dataclass
class Books:
    """The whole model. `apply` takes one call's events, `take_list` a full list."""

    pods: dict[str, Account] = field(default_factory=dict)
    nodes: dict[str, Object] = field(default_factory=dict)
    quotas: dict[tuple[str, str], Object] = field(default_factory=dict)
    cards: dict[tuple[str, str], Card] = field(default_factory=dict)
    history: int = 0
    applied: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("Pod", "Node", "ResourceQuota"), 0)
    )
    # By kind and scope, "" being the whole cluster: the version of the last full list.
    listed: dict[tuple[str, str], int] = field(default_factory=dict)

    # --- events ---

    def apply(self, events: Sequence[Event]) -> list[str]:
        """The outcome of each event of a call. One name's events are applied by version, then arrival."""
        outcomes = [""] * len(events)
        order = sorted(range(len(events)), key=lambda index: (events[index].view.version, index))
        for index in order:
            outcomes[index] = self._apply_one(events[index])
        return outcomes

    def replay(self, event: Event) -> str:
        """An operator sends a refused event again: versions do not count then (decision 11)."""
        return self._apply_one(event, replayed=True)

    def _apply_one(self, event: Event, *, replayed: bool = False) -> str:
        view = event.view
        if isinstance(view, PodView):
            outcome = self._pod_event(event.type, view, replayed=replayed)
        else:
            outcome = self._named_event(event.type, view)
        if outcome == "applied":
            kind = kind_of(view)
            self.applied[kind] = max(self.applied[kind], view.version)
        return outcome

    def _pod_event(
        self, type_: str, view: PodView, listed_at: int | None = None, *, replayed: bool = False
    ) -> str:
        account = self.pods.get(view.uid)
        known = account if account and account.history == self.history else None
        if type_ == "DELETED":
            if account and account.ended == "deleted":
                return "stale"
            account = account or self._open(view)
            account.version = view.version if known is None else max(known.version, view.version)
            account.history = self.history
            self._end(account, "deleted", view.version)
            return "applied"
        is_gone = known is not None and known.ended == "deleted"
        if is_gone or (not replayed and self._is_stale(view, known, listed_at)):
            return "stale"
        if not view.readable:
            return "refused"
        account = account or self._open(view)
        if account.history < self.history:
            # A restored cluster: what was true of the inits there has to be seen again.
            account.released, account.version = False, 0
        rivals = [
            other
            for other in self.pods.values()
            if other is not account
            and other.history == self.history
            and (other.view.namespace, other.view.name) == (view.namespace, view.name)
        ]
        account.history, account.version = self.history, max(account.version, view.version)
        if any(rival.version > view.version for rival in rivals):
            account.view = view
            self._end(account, "superseded", view.version)
            return "applied"
        for rival in rivals:
            if rival.ended not in ("deleted", "superseded"):
                self._end(rival, "superseded", view.version)
        if account.is_held:
            self._see_held(account, view)
        else:
            self._charge(account, view)
        return "applied"

    def _is_stale(self, view: PodView, known: Account | None, listed_at: int | None) -> bool:
        if known is None:
            return listed_at is None and view.version <= self._listed_version("Pod", view.namespace)
        if known.ended == "absent":
            # A list is the truth at its version: what it holds lives, whatever an earlier list forgot.
            return view.version <= known.ended_at if listed_at is None else listed_at < known.ended_at
        if known.ended == "released" and listed_at is not None:
            return listed_at < known.ended_at
        return view.version <= known.version

    def release(self, uid: str) -> None:
        """An operator takes a pod from the books; anything newer brings it back (decision 36)."""
        account = self.pods[uid]
        if account.lives and not (account.hold is not None and account.hold.state == "binding"):
            self._end(account, "released", self.applied["Pod"])
            self._enter_history(account)

    def _enter_history(self, account: Account) -> None:
        """It was looked at in this history; a version of an older one says nothing in it (decision 8)."""
        if account.history != self.history:
            account.history, account.version = self.history, 0

    def _listed_version(self, kind: str, namespace: str) -> int:
        """The version of the last full list that would have held an object of the namespace."""
        return max(self.listed.get((kind, ""), 0), self.listed.get((kind, namespace), 0))

    def forget_tombstones(self) -> set[str]:
        """Time has gone by: whom a full list of the cluster has outlived is forgotten (decision 35)."""
        final = ("deleted", "absent", "superseded", "released")
        listed = self.listed.get(("Pod", ""), 0)
        gone = {uid for uid, one in self.pods.items() if one.ended in final and one.ended_at < listed}
        for uid in gone:
            del self.pods[uid]
        for name in self._outlived("Node", self.nodes):
            del self.nodes[name]
            used = self.device_totals()
            for place in [place for place in self.cards if place[0] == name and place not in used]:
                del self.cards[place]
        for place in self._outlived("ResourceQuota", self.quotas):
            del self.quotas[place]
        return gone

    def _outlived(self, kind: str, store: Mapping[Any, Object]) -> list[Any]:
        listed = self.listed.get((kind, ""), 0)
        return [name for name, one in store.items() if not one.lives and one.seen_at < listed]

    def _open(self, view: PodView) -> Account:
        account = self.pods[view.uid] = Account(view, self.history)
        return account

    def _end(self, account: Account, how: str, version: int) -> None:
        account.held, account.ended, account.ended_at, account.differs = {}, how, version, False
        if account.hold is not None and account.hold.stands:
            account.hold.state = "released"

    def _charge(self, account: Account, view: PodView) -> None:
        """Decisions 3 to 6 and 11, one after the other."""
        account.view = view
        if view.phase in ("Succeeded", "Failed"):
            self._end(account, "terminal", view.version)
            return
        account.ended, account.ended_at = "", 0
        if view.terminating and account.held:
            return
        self._compute(account)

    def _compute(self, account: Account) -> None:
        """What a living pod is charged, by the last that was seen of it."""
        view = account.view
        if not view.claimed:
            if not (view.bound and account.held):
                account.held = {}
            return
        for key, allocation in view.allocations.items():
            if allocation.groups is not None:
                account.good[key] = (view.claimed, allocation)
        decoded = {key for key, one in view.allocations.items() if one.groups is not None}
        if account.good and account.good.keys() <= decoded and gate_is_open(view):
            account.released = True
        account.held, account.shrunk = {}, account.released
        for key, (node, allocation) in account.good.items():
            account.held |= holding(view, node, VENDORS[key], allocation, account.released)

    # --- holds ---

    def _see_held(self, account: Account, view: PodView) -> None:
        """Only a bound pod that carries an allocation has a say while a hold stands (decision 27)."""
        hold = account.hold
        assert hold is not None
        account.view, account.differs = view, False
        if view.phase in ("Succeeded", "Failed"):
            self._end(account, "terminal", view.version)
            return
        decoded = {key: one.groups for key, one in view.allocations.items() if one.groups is not None}
        if view.bound and view.claimed and decoded:
            is_the_same = (view.bound, view.claimed) == (hold.node, hold.node) and _plain(decoded) == _plain(
                hold.groups
            )
            hold.state, account.differs = ("confirmed", False) if is_the_same else ("released", True)
            self._compute(account)
            return
        account.differs = bool(view.bound)
        if view.claimed:
            for key, allocation in view.allocations.items():
                if allocation.groups is not None:
                    account.good[key] = (view.claimed, allocation)

    def conflict(self, asked: PodView) -> bool:
        """Whether a call for a hold must be refused whatever room there is: the pod is bound or over."""
        account = self.pods.get(asked.uid)
        if account is None:
            return False
        is_over = account.ended not in ("", "released")
        is_on_its_way = account.hold is not None and account.hold.state in ("binding", "bound")
        return is_over or is_on_its_way or bool(account.view.bound)

    def hold(self, asked: PodView, node: str, groups: Groups, seconds: int) -> None:
        """A place is held for a pod, instead of whatever it held before (decisions 26 and 28)."""
        account = self.pods.get(asked.uid)
        if account is None:
            bare = replace(asked, claimed="", bound="", allocations={}, version=0, terminating=False)
            account = self._open(bare)
        account.ended, account.ended_at = "", 0
        account.hold = Hold(node, {"NVIDIA": groups}, seconds)
        vendor, allocation = VENDORS["NVIDIA"], Allocation(groups)
        account.held = holding(account.view, node, vendor, allocation, False)

    def give_back(self, uid: str, how: str = "released") -> None:
        """A hold ends; its pod's charge is computed from the last that was seen of it."""
        account = self.pods[uid]
        assert account.hold is not None
        assert account.hold.stands
        account.hold.state, account.held, account.differs = how, {}, False
        self._compute(account)

    def mark_bound(self, uid: str) -> None:
        """The pod is bound, as who bound it says."""
        hold = self.pods[uid].hold
        assert hold is not None
        hold.state, hold.bound_at, hold.history = "bound", self.applied["Pod"], self.history

    def time_goes_by(self, seconds: int) -> None:
        """For those who only wait; nobody looks at the clock."""
        for account in self.pods.values():
            if account.hold is not None:
                account.hold.seconds_left -= seconds

    def expire(self) -> int:
        """Ends the holds whose time is up."""
        due = [uid for uid, one in self.pods.items() if one.hold is not None and one.hold.is_due]
        for uid in due:
            self.give_back(uid, "expired")
        return len(due)

    # --- nodes and quotas ---

    def _named_event(self, type_: str, view: NodeView | QuotaView, listed_at: int | None = None) -> str:
        store, name = self._shelf(view)
        known = store.get(name)
        if listed_at is None and (known is None or known.version < 0 or not known.lives):
            # Whatever a full list of this history did not hold was gone by then.
            space = view.namespace if isinstance(view, QuotaView) else ""
            if view.version <= self._listed_version(kind_of(view), space):
                return "stale"
        if known is not None and view.version <= known.version:
            forgotten = listed_at is not None and not known.lives and known.version <= listed_at
            if not forgotten:
                return "stale"
        store[name] = Object(view, view.version, type_ != "DELETED", view.version)
        if isinstance(view, NodeView):
            self._register(view, gone=type_ == "DELETED")
        return "applied"

    def _shelf(self, view: NodeView | QuotaView) -> tuple[dict[Any, Object], Any]:
        if isinstance(view, NodeView):
            return self.nodes, view.name
        return self.quotas, (view.namespace, view.name)

    def _register(self, view: NodeView, *, gone: bool) -> None:
        """A list replaces a vendor's cards on the node, an unreadable one keeps them (decision 10)."""
        said = {} if gone else view.registers
        cordoned = frozenset() if gone else view.cordoned
        for (node, uuid), card in self.cards.items():
            if node == view.name:
                card.registered = card.registered and said.get(card.vendor, {}) is None
                card.cordoned = uuid in cordoned
        for vendor, cards in said.items():
            for uuid, total in (cards or {}).items():
                self.cards[view.name, uuid] = Card(
                    vendor, total, True, uuid not in view.ill, uuid in cordoned
                )

    # --- full lists ---

    def take_list(
        self,
        kind: str,
        version: int | None,
        views: Sequence[View],
        *,
        namespace: str = "",
        confirm: int | None = None,
        new_history: bool = False,
    ) -> int:
        """How many a list ends; Refused where a guard stops it (decisions 7, 8, 33)."""
        if version is None and views:
            version = max(view.version for view in views)
        if version is not None and not new_history and version < self._applied_in(kind, namespace):
            raise Refused
        self._guard(kind, self._absent(kind, version, views, namespace, new_history), namespace, confirm)
        if new_history:
            self._begin_history(kind)
        self.take_page(kind, version, views)
        return self._end_list(kind, version, views, namespace)

    def count_absent(self, kind: str, version: int, views: Sequence[View]) -> int:
        """How many a list of the whole cluster does not hold, as long as nobody takes it in."""
        if version < self.applied[kind]:
            raise Refused
        return len(self._absent(kind, version, views, "", False))

    def begin_list(self, kind: str, version: int) -> None:
        """A list of the whole cluster that comes in pages: from here on older ones are refused."""
        if version < self.applied[kind]:
            raise Refused
        self.applied[kind] = max(self.applied[kind], version)

    def take_page(self, kind: str, version: int | None, views: Sequence[View]) -> None:
        """What a list holds, or a page of it, is as it says."""
        for view in sorted(views, key=lambda view: view.version):
            if isinstance(view, PodView):
                outcome = self._pod_event("MODIFIED", view, version or 0)
            else:
                outcome = self._named_event("MODIFIED", view, version or 0)
            if outcome == "applied":
                self.applied[kind] = max(self.applied[kind], view.version)

    def finish_list(
        self, kind: str, version: int, views: Sequence[View], believed: frozenset[str] = frozenset()
    ) -> int:
        """All pages of the list were taken: ends what none of them held."""
        absent = self._absent(kind, version, views, "", False)
        self._guard(kind, absent, "", None, believed)
        return self._end_list(kind, version, views, "")

    def _guard(
        self,
        kind: str,
        absent: Sequence[Account | Object],
        namespace: str,
        confirm: int | None,
        believed: frozenset[str] = frozenset(),
    ) -> None:
        """No list ends many charged pods unless somebody says how many (decision 33)."""
        if kind != "Pod":
            return
        charged = [one for one in self.pods.values() if one.held and namespace in ("", one.view.namespace)]
        ending = [one.view.uid for one in absent if isinstance(one, Account) and one.held]
        doubtful = [uid for uid in ending if uid not in believed]
        if len(doubtful) > max(20, len(charged) * 20 // 100) and confirm != len(ending):
            raise Refused(len(ending))

    def _end_list(self, kind: str, version: int | None, views: Sequence[View], namespace: str) -> int:
        if version is None:
            return 0
        absent = self._absent(kind, version, views, namespace, False)
        for one in absent:
            if isinstance(one, Account):
                self._end(one, "absent", version)
                self._enter_history(one)
            else:
                one.lives, one.version, one.seen_at = False, version, version
                if isinstance(one.view, NodeView):
                    self._register(one.view, gone=True)
        self.listed[kind, namespace] = version
        self.applied[kind] = max(self.applied[kind], version)
        return len(absent)

    def _applied_in(self, kind: str, namespace: str) -> int:
        """The highest version applied in a list's scope."""
        if not namespace:
            return self.applied[kind]
        if kind == "Pod":
            versions = [
                one.version
                for one in self.pods.values()
                if (one.history, one.view.namespace) == (self.history, namespace)
            ]
        else:
            versions = [one.version for (space, _), one in self.quotas.items() if space == namespace]
        return max([0, *versions, self._listed_version(kind, namespace)])

    def _absent(
        self, kind: str, version: int | None, views: Sequence[View], namespace: str, new_history: bool
    ) -> list[Account | Object]:
        """What lives, is not in the list, and is not newer than it."""
        if version is None:
            return []
        if kind == "Pod":
            seen = {view.uid for view in views if isinstance(view, PodView)}
            return [
                account
                for uid, account in self.pods.items()
                if account.lives
                and uid not in seen
                and namespace in ("", account.view.namespace)
                and self._may_be_absent(account, version, new_history)
            ]
        store: Mapping[Any, Object] = self.nodes if kind == "Node" else self.quotas
        names = {self._shelf(view)[1] for view in views if not isinstance(view, PodView)}
        return [
            one
            for name, one in store.items()
            if one.lives
            and name not in names
            and (not namespace or name[0] == namespace)
            and (new_history or one.version <= version)
        ]

    def _may_be_absent(self, account: Account, version: int, new_history: bool) -> bool:
        """Nothing newer was heard. No list ends a hold, but one that was bound before it (decision 26)."""
        hold = account.hold
        if hold is not None and hold.stands:
            if hold.state != "bound":
                return False
            if hold.history == self.history and not new_history and hold.bound_at >= version:
                return False
        return new_history or account.history < self.history or account.version <= version

    def _begin_history(self, kind: str) -> None:
        """Old versions and old tombstones no longer count (decision 8)."""
        self.applied[kind] = 0
        self.listed = {place: version for place, version in self.listed.items() if place[0] != kind}
        if kind == "Pod":
            self.history += 1
        for one in (
            self.nodes if kind == "Node" else self.quotas if kind == "ResourceQuota" else {}
        ).values():
            one.version = -1

    # --- sums ---

    def device_totals(self) -> dict[tuple[str, str], Share]:
        """Per device what all pods hold; devices that nothing is held of are left out."""
        sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
        for account in self.pods.values():
            for device, share in account.held.items():
                total = sums[device.node, device.uuid]
                for place, amount in enumerate(share):
                    total[place] += amount
        return {place: Share(*total) for place, total in sums.items()}

    def quota_share(self, device: Device, share: Share) -> tuple[int, int]:
        """Memory and cores as quotas judge them: AMD's units in percent of the card, rounded up."""
        card = self.cards.get((device.node, device.uuid))
        if VENDORS[device.vendor].cores_are_units and card is not None:
            return share.memory, -(-share.cores * 100 // card.total[2])
        return share.memory, share.cores

    def _sum(self, accounts: Iterable[Account]) -> dict[str, int]:
        """Used amounts by resource name."""
        used: dict[str, int] = defaultdict(int)
        for account in accounts:
            for device, share in account.held.items():
                vendor = VENDORS[device.vendor]
                memory, cores = self.quota_share(device, share)
                if vendor.memory_name:
                    used[vendor.memory_name] += memory
                if vendor.cores_name:
                    used[vendor.cores_name] += cores
        return used

    def namespace_used(self, namespace: str) -> dict[str, int]:
        """What the pods of a namespace hold, by resource name."""
        return self._sum(one for one in self.pods.values() if one.view.namespace == namespace)

    def quotas_of(self, namespace: str) -> dict[tuple[str, str], tuple[int, int]]:
        """Per living quota and key: the limit in accounted units, and what the pods it selects hold."""
        found = {}
        for one in self.quotas.values():
            quota = one.view
            assert isinstance(quota, QuotaView)
            if quota.namespace != namespace or not one.lives:
                continue
            selected = [
                account
                for account in self.pods.values()
                if account.view.namespace == namespace and quota.selects(account.view)
            ]
            used = self._sum(selected)
            for key, limit in quota.hard.items():
                resource = key.removeprefix("limits.")
                factor = max((v.factor for v in VENDORS.values() if v.memory_name == resource), default=1)
                found[quota.name, key] = (limit * factor, used.get(resource, 0))
        return found


def _plain(allocations: Mapping[str, Groups]) -> dict[str, list[tuple[Row, ...]]]:
    """Allocations by what they give; groups without anything at the end say nothing."""
    plain: dict[str, list[tuple[Row, ...]]] = {}
    for key, groups in allocations.items():
        told = [tuple(group) for group in groups]
        while told and not told[-1]:
            told.pop()
        if told:
            plain[key] = told
    return plain


def gate_is_open(view: PodView) -> bool:
    """Every init container that is no sidecar has exited with 0; a pod without inits has no gate."""
    inits = [kind for kind in view.kinds if kind != APP]
    return bool(inits) and all(
        exit_ == SUCCEEDED for kind, exit_ in zip(inits, view.exits, strict=True) if kind == INIT
    )


def kind_of(view: View) -> str:
    """The Kubernetes kind of a view."""
    names = {PodView: "Pod", NodeView: "Node", QuotaView: "ResourceQuota"}
    return names[type(view)]

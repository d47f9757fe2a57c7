"""Vendors as data. One `Vendor` per table of `vendors.toml`; no rule asks for a vendor by name.

A vendor that needs more than data names a rule in its table (`cores_kind`, `slots_annotation`,
`inventory.form`, later the request rule); each rule has one place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hamiacct.accounting.amounts import Amount
from hamiacct.accounting.pods import Row


class CoresKind(StrEnum):
    """What the cores field of an allocation row means (decision 2)."""

    PERCENT = "percent"
    SET = "set"
    DEVICE_UNITS = "device-units"


@dataclass(frozen=True, slots=True)
class Inventory:
    """How a vendor's devices are made known by a Node object (semantics 2.4, 3.3).

    `form` names a reader of `kube.registration`; `annotation` is the register key; `handshake` the
    handshake key; `capacity_name` the status resource that is read or that proves the plugin alive.
    `switches` are annotations of the node that change how devices are given out, not which there are.
    The rest are the parameters of capacity forms: one card per `per_card` units, with `slots` (0: one
    per core), `memory_mib` or its share of `memory_capacity_name` in units of `unit_mib`, and `cores`
    or its share of `cores_capacity_name`. `forced_cores` overrides what a register says.
    """

    form: str = ""
    annotation: str = ""
    handshake: str = ""
    capacity_name: str = ""
    pair_scores: str = ""
    switches: tuple[str, ...] = ()
    memory_capacity_name: str = ""
    cores_capacity_name: str = ""
    id_word: str = ""
    per_card: int = 0
    slots: int = 0
    memory_mib: int = 0
    cores: int = 0
    unit_mib: int = 0
    forced_cores: int = 0
    numa_halves: bool = False


_TO_EVERYBODY = ("overwrite_env", "core_policy")
"""Parameters of request rules by which admission writes into containers that ask for nothing."""


@dataclass(frozen=True, slots=True)
class Vendor:
    """One device vendor. `key` is HAMi's vendor key, `family` the section of device-config.yaml.

    Resource names may be empty where the vendor has none. `memory_factor` below 1 means 1.
    `memory_is_mib` is false where what is called memory is a share of a card, which are no bytes. `word` is
    the part of names and keys that tells the entries of one family apart. `selectors` names the user
    annotations by what they choose ("use_uuid", "nouse_type", ...); where several keys choose the
    same, all of them must pass.
    `request` holds the parameters of the vendor's request rule (semantics 3), as data; `fit` those of its
    fit: its `rule` and `score` where it has its own (`accounting.fitting.rules`), and their switches;
    `patch` the `rule` that writes its annotations of a placement (`kube.patches`), and their keys.
    `names` are the resource names, to be looked up; admission `tells_everybody` something where it writes
    into containers that ask for nothing, too.
    """

    key: str
    family: str
    word: str = ""
    count_name: str = ""
    memory_name: str = ""
    cores_name: str = ""
    memory_percentage_name: str = ""
    priority_name: str = ""
    memory_factor: int = 1
    allocated_key: str = ""
    to_allocate_key: str = ""
    slots_annotation: str = ""
    cores_kind: CoresKind = CoresKind.PERCENT
    quota_memory: bool = True
    quota_cores: bool = True
    memory_is_mib: bool = True
    fit_quota: bool = False
    inventory: Inventory = Inventory()
    selectors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    extra_annotations: tuple[str, ...] = ()
    lock: Mapping[str, object] = field(default_factory=dict)
    request: Mapping[str, object] = field(default_factory=dict)
    fit: Mapping[str, object] = field(default_factory=dict)
    patch: Mapping[str, object] = field(default_factory=dict)
    names: frozenset[str] = field(init=False, repr=False, compare=False)
    tells_everybody: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", frozenset(self.resource_names))
        object.__setattr__(self, "tells_everybody", any(map(self.request.get, _TO_EVERYBODY)))

    def __hash__(self) -> int:
        """By key, so that a table of vendors can be a cache key although it holds mappings."""
        return hash(self.key)

    @property
    def resource_names(self) -> tuple[str, ...]:
        """Every resource name a container may use to ask for this vendor."""
        names = (
            self.count_name,
            self.memory_name,
            self.cores_name,
            self.memory_percentage_name,
            self.priority_name,
        )
        return tuple(name for name in names if name)

    @property
    def pod_annotations(self) -> tuple[str, ...]:
        """Every annotation of pods that this vendor's plugin or users write, the allocation aside."""
        chosen = [key for keys in self.selectors.values() for key in keys]
        return tuple(key for key in (self.to_allocate_key, *chosen, *self.extra_annotations) if key)

    def amount_of(self, row: Row, slots: int = 1) -> Amount:
        """What one allocation row holds of its device."""
        if self.cores_kind is CoresKind.SET:
            return Amount.of_core_set(slots, row.memory, row.cores)
        return Amount(slots, row.memory, row.cores)

    def quota_cores_of(self, cores: int, device_cores_total: int) -> int:
        """`cores` in the unit quotas are judged in: AMD's units become percent of a card, rounded up.

        A card whose total is not known (never registered) is taken to have 100 units.
        """
        if self.cores_kind is CoresKind.DEVICE_UNITS and device_cores_total > 0:
            return -(-cores * 100 // device_cores_total)
        return cores

    def scaled_limit(self, limit: int) -> int:
        """A memory limit as written, in the scaled unit usage is stored in (decision 17)."""
        return limit * max(self.memory_factor, 1)

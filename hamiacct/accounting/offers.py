"""What a node offers: its registered devices with their totals, usage and peculiarities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hamiacct.accounting.amounts import NOTHING, Amount
from hamiacct.accounting.devices import MigProfile, Placement


@dataclass(frozen=True, slots=True)
class FitDevice:
    """One registered device as a fit sees it.

    `used` is what pods and holds have of it; where a vendor gives out named cores its `core_set` is the
    union of theirs. `order` is its place in the register, `model` the register's type. `mig_in_use` are
    the occupied places of a MIG card; a card that `mig.card_states` doubts is not `healthy`. `tenants`
    holds, for vendors whose rule asks (`tenants` in its fit table), one word per pod on the device.
    """

    uuid: str
    vendor: str
    total: Amount
    used: Amount = NOTHING
    index: int = 0
    order: int = 0
    model: str = ""
    numa: int = 0
    mode: str = ""
    healthy: bool = True
    cordoned: bool = False
    mig_profiles: tuple[MigProfile, ...] = ()
    mig_in_use: tuple[Placement, ...] = ()
    tenants: tuple[str, ...] = ()
    custom: Mapping[str, object] = field(default_factory=dict)

    @property
    def free(self) -> Amount:
        """What is left of it; below zero where it is overcommitted."""
        return self.total.minus(self.used)


@dataclass(frozen=True, slots=True)
class FitNode:
    """A node that is known and not deleted, with what it has registered.

    `pair_scores` is uuid -> uuid -> score; `labels` and `annotations` are those vendors' rules read.
    """

    name: str
    devices: tuple[FitDevice, ...] = ()
    pair_scores: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

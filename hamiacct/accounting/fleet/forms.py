"""Which vendors' rules the columns know (`accounting.fitting`), and which checks each of them makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hamiacct.accounting.asks import Ask
from hamiacct.accounting.fitting import ascend, rules
from hamiacct.accounting.vendors import Vendor


class Form(NamedTuple):
    """Which checks a rule makes beside health, cordons and uuids; its walk is the shared one."""

    by_type: bool = True
    has_slot: bool = True
    is_unused: bool = False
    has_memory: bool = True
    has_cores: bool = True
    is_whole: bool = True


UNITS, SLOTS = "units", "slots"
FORMS: Mapping[str, Form] = {
    rules.PLAIN: Form(),
    "same-device": Form(),
    "ascend": Form(by_type=False),
    UNITS: Form(is_whole=False),
    SLOTS: Form(has_memory=False, has_cores=False, is_whole=False),
    "unused": Form(has_slot=False, is_unused=True, has_cores=False, is_whole=False),
}


def adds_scores(ask: Ask) -> bool:
    """Whether vendors add to a node's score what depends on the choice."""
    return any(map(adds_score, ask.vendors.values()))


def adds_score(vendor: Vendor) -> bool:
    """Whether this vendor does."""
    score = vendor.fit.get("score")
    return bool(score) and not (score == "networks" and not ascend.has_networks(vendor))


def is_drawn(ask: Ask) -> bool:
    """Whether placements follow from what the walk picks: no rule of a vendor's own, links or scores."""
    by_links = ask.device_policy.is_topology_aware
    return all(
        rules.rule_name(vendor) == rules.PLAIN
        and not (by_links and vendor.fit.get("topology") is True)
        and not adds_score(vendor)
        for vendor in ask.vendors.values()
    )

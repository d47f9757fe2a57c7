"""The vendors' request rules, by the name that a vendor's table gives (`request.rule`).

A rule reads what a container asks, and says what admission makes of it. No rule asks for a vendor by
name, and a vendor whose rule is here already is data alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from hamiacct.accounting.pods import Container
from hamiacct.accounting.requests import Asked, DeviceRequest, Effect
from hamiacct.accounting.rules import (
    amd,
    ascend,
    enflame_drs,
    metax_sgpu,
    mthreads,
    neuron,
    nvidia,
    scaled,
    sized,
    whole_cards,
)
from hamiacct.accounting.vendors import Vendor


@dataclass(frozen=True, slots=True)
class RequestRule:
    """`read` gives the request, None where nothing is asked; `admit` the effect of admission, given the
    pod's annotations. Both raise UnreadableRequest."""

    read: Callable[[Asked], DeviceRequest | None]
    admit: Callable[[Asked, Mapping[str, str]], Effect] = whole_cards.admit


RULES: Mapping[str, RequestRule] = {
    "nvidia": RequestRule(nvidia.read, nvidia.admit),
    "scaled": RequestRule(scaled.read, scaled.admit),
    "mthreads": RequestRule(mthreads.read, mthreads.admit),
    "whole-cards": RequestRule(whole_cards.read),
    "metax-sgpu": RequestRule(metax_sgpu.read, metax_sgpu.admit),
    "sized": RequestRule(sized.read, sized.admit),
    "enflame-drs": RequestRule(enflame_drs.read, enflame_drs.admit),
    "neuron": RequestRule(neuron.read, neuron.admit),
    "amd": RequestRule(amd.read),
    "ascend": RequestRule(ascend.read, ascend.admit),
}


def rule_of(vendor: Vendor) -> RequestRule:
    """The rule that a vendor's table names."""
    return RULES[str(vendor.request["rule"])]


def concerned(container: Container, vendors: Iterable[Vendor]) -> list[Vendor]:
    """The vendors whose rules may have something to say of a container, in their order.

    A rule reads what is written under its vendor's own resource names; where nothing is, it asks nothing and
    writes nothing, but for what it tells everybody.
    """
    named = {**container.limits, **container.requests}
    return [vendor for vendor in vendors if vendor.tells_everybody or not vendor.names.isdisjoint(named)]


def requests_of(container: Container, vendors: Iterable[Vendor]) -> tuple[DeviceRequest, ...]:
    """What a container asks of each vendor, in their order; nothing of those it does not ask.

    UnreadableRequest names the container, the key and the value that cannot be granted (decision 21).
    """
    asked = (rule_of(vendor).read(Asked(container, vendor)) for vendor in concerned(container, vendors))
    return tuple(request for request in asked if request is not None)

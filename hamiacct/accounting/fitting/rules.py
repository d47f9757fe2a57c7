"""The rules and scores that a vendor's table may name (`fit.rule`, `fit.score`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from hamiacct.accounting.fitting import (
    ascend,
    metax,
    neuron,
    profiles,
    same_device,
    sgpu,
    shared,
    slots,
    units,
    unused,
    wings,
)
from hamiacct.accounting.fitting.scene import Outcome, Placed, Scene
from hamiacct.accounting.offers import FitDevice
from hamiacct.accounting.requests import DeviceRequest
from hamiacct.accounting.vendors import Vendor

PLAIN = "shared"

RULES: Mapping[str, Callable[[Scene], Outcome]] = {
    PLAIN: shared.take,
    "same-device": same_device.take,
    "sgpu": sgpu.take,
    "wings-cards": wings.take_cards,
    "wings-slices": wings.take_slices,
    "unused": unused.take,
    "profiles": profiles.take,
    "neuron": neuron.take,
    "units": units.take,
    "slots": slots.take,
    "dies": slots.take_dies,
    "ascend": ascend.take,
}

SCORES: Mapping[str, Callable[[Placed], float]] = {
    "metax": metax.score,
    "sgpu": sgpu.score,
    "wings": wings.score,
    "dies": slots.score_dies,
    "networks": ascend.score_networks,
}

_ROW_SLOTS: Mapping[str, Callable[[Iterable[DeviceRequest], Iterable[FitDevice]], int]] = {
    "profiles": profiles.slots_per_row,
}

_RESOLVED: Mapping[str, Callable[[DeviceRequest, Sequence[FitDevice]], DeviceRequest]] = {
    "neuron": neuron.resolved,
}


def rule_name(vendor: Vendor) -> str:
    """The rule that places the vendor's requests."""
    return str(vendor.fit.get("rule", PLAIN))


def resolved(vendor: Vendor, request: DeviceRequest, devices: Sequence[FitDevice]) -> DeviceRequest:
    """The request as it comes to on a node with these devices: the same for all but one vendor."""
    rule = _RESOLVED.get(rule_name(vendor))
    return rule(request, devices) if rule else request


def take(scene: Scene) -> Outcome:
    """The devices for the request, by the vendor's own rule."""
    return RULES[rule_name(scene.vendor)](scene)


def score(placed: Placed) -> float:
    """What the vendor adds to the score of a node; 0 for most."""
    name = placed.vendor.fit.get("score")
    return SCORES[str(name)](placed) if name else 0.0


def slots_per_row(vendor: Vendor, requests: Iterable[DeviceRequest], devices: Iterable[FitDevice]) -> int:
    """What one row of the vendor takes in slots in a pod with these requests: 1 for all but one vendor."""
    rule = _ROW_SLOTS.get(rule_name(vendor))
    return rule(requests, devices) if rule else 1

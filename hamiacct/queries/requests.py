"""What a pod without allocation asks for, laid out as an allocation on cards yet to be chosen.

Whole cards, percentages and shares have no size before a card is chosen, so they show as 0 MiB.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from hamiacct.accounting.admission import Admitted
from hamiacct.accounting.errors import Malformed
from hamiacct.accounting.pods import Allocation, Pod, Row
from hamiacct.accounting.requests import DeviceRequest
from hamiacct.accounting.vendors import CoresKind, Vendor

MAX_CARDS = 1024
CARD = "card"
ANYWHERE = "to be chosen"


def as_allocations(found: Admitted, vendors: Sequence[Vendor]) -> Pod:
    """A pod as admission would leave it, with an allocation per vendor it asks for.

    Malformed where it asks for more cards than can be laid out.
    """
    allocations = {}
    for vendor in vendors:
        asked = [_of(requests, vendor) for requests in found.requests]
        if any(asked):
            groups = tuple(_rows(request) if request else () for request in asked)
            slots = max(_slots(request) for request in asked if request)
            allocations[vendor.key] = Allocation(vendor.key, ANYWHERE, groups, slots)
    return replace(found.pod, vgpu_node=ANYWHERE if allocations else "", allocations=allocations)


def counting_cores(vendors: Mapping[str, Vendor]) -> dict[str, Vendor]:
    """The vendors as such rows are read: no card was chosen, so cores have numbers and no names."""
    return {key: replace(vendor, cores_kind=CoresKind.PERCENT) for key, vendor in vendors.items()}


def _of(requests: Iterable[DeviceRequest], vendor: Vendor) -> DeviceRequest | None:
    return next((request for request in requests if request.vendor == vendor.key), None)


def _rows(request: DeviceRequest) -> tuple[Row, ...]:
    """One row per card."""
    if request.count > MAX_CARDS:
        raise Malformed(f"{request.count} cards of {request.vendor} are more than {MAX_CARDS}")
    memory_mib, cores = (0, 0) if request.card_decides else (request.memory_mib, request.cores)
    cards = (f"{request.vendor} {CARD} {number}" for number in range(request.count))
    return tuple(Row(card, request.vendor, memory_mib, cores) for card in cards)


def _slots(request: DeviceRequest) -> int:
    size = request.extra.get("profile_size", 1)
    assert isinstance(size, int)
    return size

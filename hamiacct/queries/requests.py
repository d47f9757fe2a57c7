"""What a pod without allocation asks for, laid out as an allocation on cards yet to be chosen.

The common reading of semantics 3.1: per name the limit, else the request; a vendor is asked only by
its count. Whole cards and percentages have no size before a card is chosen, so they show as 0 MiB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hamiacct.accounting import quantities
from hamiacct.accounting.errors import Malformed
from hamiacct.accounting.pods import Allocation, Container, Pod, Row
from hamiacct.accounting.vendors import Vendor

MAX_CARDS = 1024
CARD = "card"
ANYWHERE = "to be chosen"


def as_allocations(pod: Pod, vendors: Sequence[Vendor]) -> Pod:
    """The pod with an allocation per vendor it asks for. Malformed names container, key and value."""
    allocations = {}
    for vendor in vendors:
        groups = tuple(_rows(container, vendor) for container in pod.containers)
        if any(groups):
            allocations[vendor.key] = Allocation(vendor.key, ANYWHERE, groups)
    return replace(pod, vgpu_node=ANYWHERE if allocations else "", allocations=allocations)


def _rows(container: Container, vendor: Vendor) -> tuple[Row, ...]:
    """One row per card a container asks of a vendor."""
    count = _amount(container, vendor.count_name)
    if count > MAX_CARDS:
        raise Malformed(f"container {container.name}: {vendor.count_name} {count} is more than {MAX_CARDS}")
    memory = _amount(container, vendor.memory_name) * max(vendor.memory_factor, 1)
    cores = _amount(container, vendor.cores_name)
    return tuple(Row(f"{vendor.key} {CARD} {number}", vendor.key, memory, cores) for number in range(count))


def _amount(container: Container, name: str) -> int:
    """The limit, else the request, of one resource name; 0 where there is none."""
    text = container.limits.get(name, container.requests.get(name)) if name else None
    if text is None:
        return 0
    try:
        amount = quantities.whole(text)
    except Malformed as fault:
        raise Malformed(f"container {container.name}: {name} {text!r}: {fault.detail}") from fault
    if amount < 0:
        raise Malformed(f"container {container.name}: {name} {text!r} is negative")
    return amount

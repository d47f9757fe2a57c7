"""The formula as the design writes it: sums and maxima per device and field, no fold.

effective[uuid] = max( max over non-sidecar init_i ( init_i[uuid] + sidecar_sum_so_far[uuid] ),
                       app_sum[uuid] + sidecar_sum[uuid] )
"""

from collections.abc import Sequence
from typing import NamedTuple

from hamiacct.accounting.pods import Container, ContainerClass, Groups, Row

FIELDS = ("slots", "memory_mib", "cores")


class Used(NamedTuple):
    """A container's class and its rows."""

    kind: ContainerClass
    rows: Sequence[Row]

    def of(self, uuid: str, field: str) -> int:
        """What it uses of one device: its rows there, added; each row is a slot."""
        own = [row for row in self.rows if row.uuid == uuid]
        return {
            "slots": len(own),
            "memory_mib": sum(row.memory for row in own),
            "cores": sum(row.cores for row in own),
        }[field]


def used_by(containers: Sequence[Container], groups: Groups) -> list[Used]:
    """The containers with the rows of their positions."""
    return [Used(container.kind, rows) for container, rows in zip(containers, groups, strict=True)]


def steady(containers: Sequence[Used], uuid: str, field: str) -> int:
    """sum(apps) + sum(all sidecars)"""
    app_sum = sum(one.of(uuid, field) for one in containers if one.kind is ContainerClass.APP)
    sidecar_sum = sum(one.of(uuid, field) for one in containers if one.kind is ContainerClass.SIDECAR)
    return app_sum + sidecar_sum


def effective(containers: Sequence[Used], uuid: str, field: str) -> int:
    """The formula; its first term is 0 without a non-sidecar init container."""
    init_terms = [
        init.of(uuid, field)
        + sum(one.of(uuid, field) for one in containers[:place] if one.kind is ContainerClass.SIDECAR)
        for place, init in enumerate(containers)
        if init.kind is ContainerClass.INIT
    ]
    return max(max(init_terms, default=0), steady(containers, uuid, field))

"""Pages of the ledger, in the order of commits."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from hamiacct import models
from hamiacct.accounting.words import Rule
from hamiacct.queries import pages


@dataclass(frozen=True, slots=True)
class Line:
    """One signed difference of one pod on one device, memory in MiB, cores in the device's unit."""

    seq: int
    at: datetime
    pod_uid: str
    namespace: str
    node: str
    device: str
    rule: Rule
    reason: str
    slots: int
    memory_mib: int
    cores: int
    resource_version: int


def page(
    *, pod: str, node: str, device: str, namespace: str, after: pages.Key | None, limit: int
) -> pages.Page[Line]:
    """Ledger lines by sequence; an empty filter selects all."""
    wanted = {"pod_uid": pod, "node": node, "device": device, "namespace": namespace}
    rows = models.LedgerEntry.objects.filter(**{field: value for field, value in wanted.items() if value})
    return pages.rows_after(rows, ("seq",), after, limit).map(line_of)


def line_of(row: models.LedgerEntry) -> Line:
    """A stored line."""
    return Line(
        row.seq,
        row.at,
        row.pod_uid,
        row.namespace,
        row.node,
        row.device,
        Rule(row.rule),
        row.reason,
        row.slots,
        row.memory_mib,
        row.cores,
        row.resource_version,
    )

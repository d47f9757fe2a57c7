"""Leader leases: who leads now, by what the API server holds of it (coordination.k8s.io/v1).

HAMi's kube-scheduler elects its leader by one lease, which its extender only looks at; the chart calls it
after the scheduler and keeps it in the namespace that HAMi is installed in.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from hamiacct.accounting.errors import Malformed, NotFound
from hamiacct.kube import fields
from hamiacct.kube.client import Client, Manifest


class LeaseName(NamedTuple):
    """Which lease is meant."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def holder_of(lease: Manifest, at: datetime) -> str:
    """Who holds a lease; "" where nobody does: it was given back, or was not renewed in time.

    Malformed where it names a holder and does not say until when.
    """
    spec = fields.mapping(lease, "spec", "")
    holder = fields.text(spec, "holderIdentity", "/spec")
    if not holder:
        return ""
    renewed = fields.timestamp(spec, "renewTime", "/spec")
    seconds = fields.integer(spec, "leaseDurationSeconds", "/spec")
    if not renewed or seconds is None:
        raise Malformed(f"the lease of {holder} does not say until when it holds", "/spec")
    return holder if (at - datetime.fromisoformat(renewed)) < timedelta(seconds=seconds) else ""


def holder_now(client: Client, lease: LeaseName, at: datetime) -> str:
    """Who holds the lease by a live look; "" where nobody does, or where there is no such lease."""
    try:
        return holder_of(client.lease(lease.namespace, lease.name), at)
    except NotFound:
        return ""

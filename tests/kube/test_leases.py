"""Who holds a lease, by its fields and the time."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hamiacct.accounting.errors import Malformed
from hamiacct.kube import leases

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
HOLDER = "hami-scheduler-7d9_c708d8f6"


def lease(**spec: Any) -> dict[str, Any]:
    whole = {"holderIdentity": HOLDER, "leaseDurationSeconds": 15, "renewTime": "2026-12-01T12:00:00.000000Z"}
    return {"kind": "Lease", "metadata": {"name": "hami-scheduler"}, "spec": {**whole, **spec}}


@pytest.mark.parametrize("seconds", [-3600, 0, 14.999])
def test_a_renewed_lease_is_held(seconds: float) -> None:
    assert leases.holder_of(lease(), NOW + timedelta(seconds=seconds)) == HOLDER


@pytest.mark.parametrize("seconds", [15, 3600])
def test_one_that_is_not_renewed_in_time_is_not(seconds: float) -> None:
    assert leases.holder_of(lease(), NOW + timedelta(seconds=seconds)) == ""


@pytest.mark.parametrize(
    "given",
    [
        lease(holderIdentity=""),
        lease(holderIdentity=None),
        lease(holderIdentity="", renewTime=None, leaseDurationSeconds=1),
        {"kind": "Lease", "metadata": {"name": "never-held"}},
        {"kind": "Lease", "spec": None},
    ],
)
def test_one_that_was_given_back_or_never_taken_is_held_by_nobody(given: dict[str, Any]) -> None:
    assert leases.holder_of(given, NOW) == ""


def test_the_zone_of_the_time_counts() -> None:
    assert leases.holder_of(lease(renewTime="2026-12-01T13:00:10+01:00"), NOW) == HOLDER


@pytest.mark.parametrize(
    "spec",
    [
        {"renewTime": None},
        {"renewTime": "12:00"},
        {"renewTime": "2026-12-01T12:00:00"},
        {"leaseDurationSeconds": None},
        {"leaseDurationSeconds": "15"},
        {"holderIdentity": 7},
    ],
)
def test_one_that_does_not_say_until_when_is_an_error(spec: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        leases.holder_of(lease(**spec), NOW)

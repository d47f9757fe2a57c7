"""Every planted fault is found: in FAULT_HISTORIES (default 0: nothing is tried) histories at most."""

import os

import pytest

from tests.proof import tally
from tests.proof.faults import FAULTS, Fault
from tests.proof.machine import Accounts, Claims, Scheduler
from tests.proof.test_histories import desk, run, scheduler

HISTORIES = int(os.environ.get("FAULT_HISTORIES", "0"))
AT_ONCE = 40
KINDS = {"accounts": Accounts, "claims": Claims, "scheduler": Scheduler}

__all__ = ["desk", "scheduler"]


def test_every_fault_can_be_planted() -> None:
    """What it changes still reads as it did."""
    for fault in FAULTS:
        with fault.planted():
            pass


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(not HISTORIES, reason="FAULT_HISTORIES says in how many histories a fault is to be found")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_a_planted_fault_is_found(scheduler: None, fault: Fault) -> None:
    try:
        with fault.planted():
            assert is_found(fault), f"not found in {HISTORIES} histories"
    finally:
        tally.forget()  # histories of a service that does wrong prove nothing


def is_found(fault: Fault) -> bool:
    """Whether some history fails; the same ones go well without the fault."""
    for start in range(0, HISTORIES, AT_ONCE):
        try:
            run(KINDS[fault.kind], start + 7, AT_ONCE, shrink=False)
        except AssertionError:
            return True
    return False

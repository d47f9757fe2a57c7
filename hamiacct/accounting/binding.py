"""A pod on its way to its node (decision 30)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from hamiacct.accounting.fit import Placement


@dataclass(frozen=True, slots=True)
class Binding:
    """One attempt to bind a pod, begun at `at`, with what is held for it on the node.

    What is written on the cluster for it follows from this alone, its time included.
    """

    uid: str
    namespace: str
    name: str
    node: str
    at: datetime
    placement: Placement

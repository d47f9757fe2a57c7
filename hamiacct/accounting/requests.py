"""What one container asks of one vendor's devices (semantics 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PERCENT_NOT_GIVEN = 101


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """A request, read: `count` devices of `vendor`, each with the same amounts.

    `memory_mib` is in the unit usage is stored in (scaled once, decision 17), 0 where it is not given;
    `memory_percent` is of a card's memory, PERCENT_NOT_GIVEN where it is not given; `cores` are in the
    vendor's request unit (percent of a device for most). `extra` holds what only the vendor's own rule
    understands (a profile, a quality of service).
    """

    vendor: str
    count: int
    memory_mib: int = 0
    memory_percent: int = PERCENT_NOT_GIVEN
    cores: int = 0
    extra: Mapping[str, object] = field(default_factory=dict)

    def memory_on(self, device_memory_mib: int) -> int:
        """The memory asked of a device with so much: the amount, else the percentage, rounded down."""
        if self.memory_mib > 0:
            return self.memory_mib
        if self.memory_percent != PERCENT_NOT_GIVEN:
            return device_memory_mib * self.memory_percent // 100
        return 0

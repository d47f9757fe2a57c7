"""What one container asks of one vendor's devices (semantics 3), and what admission makes of it.

`accounting.rules` reads requests, vendor by vendor; this module has the words its rules share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hamiacct.accounting import quantities
from hamiacct.accounting.errors import UnreadableQuantity, UnreadableRequest
from hamiacct.accounting.pods import Container
from hamiacct.accounting.vendors import Vendor

PERCENT_NOT_GIVEN = 101
INT32_MAX = 2**31 - 1
MAX_SHOWN = 40


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """A request, read: `count` devices of `vendor`, each with the same amounts.

    `memory_mib` is in the unit usage is stored in (scaled once, decision 17), 0 where it is not given;
    `memory_percent` is of a card's memory, PERCENT_NOT_GIVEN where it is not given; `cores` are in the
    vendor's request unit (percent of a device for most). With `card_decides` the amounts are what to look
    for among the shares a card can be cut into, and no sizes yet. `extra` holds what only the vendor's own
    rule understands: `profile_size` (Enflame: a share by its size), `cores_total` (AWS Neuron: where cores
    were asked for and not devices).
    """

    vendor: str
    count: int
    memory_mib: int = 0
    memory_percent: int = PERCENT_NOT_GIVEN
    cores: int = 0
    extra: Mapping[str, object] = field(default_factory=dict)
    card_decides: bool = False

    def memory_on(self, device_memory_mib: int) -> int:
        """The memory asked of a device with so much: the amount if given, else the percentage, rounded down.

        With 0 percent and no amount a request means the whole card (AMD writes it so).
        """
        if self.memory_mib > 0:
            return self.memory_mib
        if self.memory_percent == 0:
            return device_memory_mib
        if self.memory_percent != PERCENT_NOT_GIVEN:
            return device_memory_mib * self.memory_percent // 100
        return 0


@dataclass(frozen=True, slots=True)
class Effect:
    """What a vendor's admission step does to one container.

    `has_device` says whether the container asks for the vendor's devices. `limits` and `requests` are
    written over the container's own, `env` is appended to it; `annotations` and the `runtime_class` are
    the pod's.
    """

    has_device: bool = False
    limits: Mapping[str, str] = field(default_factory=dict)
    requests: Mapping[str, str] = field(default_factory=dict)
    env: tuple[tuple[str, str], ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    runtime_class: str = ""


NO_EFFECT = Effect()


@dataclass(frozen=True, slots=True)
class Asked:
    """One container's resources, read for one vendor: per name the limit, else the request (semantics 3.1).

    Whatever is written and cannot be meant raises UnreadableRequest.
    """

    container: Container
    vendor: Vendor

    # --- what is written ---

    def text(self, name: str) -> str | None:
        """The value as written; None where the name is unknown to the vendor or not there."""
        if not name:
            return None
        limit = self.container.limits.get(name)
        if limit is not None or self.flag("limits_only"):
            return limit
        return self.container.requests.get(name)

    def in_limits(self, name: str) -> bool:
        """Whether the name is among the limits."""
        return bool(name) and name in self.container.limits

    def whole(self, name: str, least: int, most: int) -> int | None:
        """A whole number from `least` to `most`; None where nothing is written."""
        text = self.text(name)
        if text is None:
            return None
        try:
            number = quantities.whole(text)
        except UnreadableQuantity:
            number = least - 1
        if not least <= number <= most:
            raise self.unreadable(name, text, f"must be an integer between {least} and {most}")
        return number

    def count(self) -> int:
        """How many devices; 0 where none."""
        return self.whole(self.vendor.count_name, 0, INT32_MAX) or 0

    def memory(self) -> int:
        """Memory per device as written, not yet scaled; 0 is the same as none (decision 21)."""
        factor = max(self.vendor.memory_factor, 1)
        return self.whole(self.vendor.memory_name, 0, INT32_MAX // factor) or 0

    def cores(self, most: int = 100) -> int:
        """Cores per device; the vendor's default where none are written."""
        cores = self.whole(self.vendor.cores_name, 0, most)
        return self.number("default_cores") if cores is None else cores

    # --- the parameters of the vendor's rule ---

    def number(self, parameter: str) -> int:
        """A number among the parameters; 0 where it is not there."""
        value = self.vendor.request.get(parameter, 0)
        assert isinstance(value, int), parameter
        return value

    def flag(self, parameter: str) -> bool:
        """A truth value among the parameters; false where it is not there."""
        return self.vendor.request.get(parameter) is True

    def word(self, parameter: str) -> str:
        """A text among the parameters; empty where it is not there."""
        value = self.vendor.request.get(parameter, "")
        assert isinstance(value, str), parameter
        return value

    def several(self, parameter: str) -> tuple[object, ...]:
        """A list among the parameters; empty where it is not there."""
        value = self.vendor.request.get(parameter, ())
        assert isinstance(value, tuple), parameter
        return value

    # --- what is said and written ---

    def unreadable(self, name: str, value: object, reason: str) -> UnreadableRequest:
        """The refusal of a value: key, value, container and reason."""
        shown = str(value)
        shown = shown if len(shown) <= MAX_SHOWN else shown[: MAX_SHOWN - 3] + "..."
        return self.refused(f"invalid {name} value {shown}", reason)

    def refused(self, what: str, reason: str) -> UnreadableRequest:
        """The refusal in other words, for texts that are known."""
        detail = f"{what} in container {self.container.name}: {reason}"
        return UnreadableRequest(detail, self.container.position)

    def writes(self, amounts: Mapping[str, int], *, both: bool = False) -> Effect:
        """The effect of asking for devices and writing these limits.

        Requests of the same name follow: for resources that are not shared out Kubernetes takes no other.
        With `both` they are written even where the container has none.
        """
        limits = {name: str(amount) for name, amount in amounts.items()}
        requests = {name: text for name, text in limits.items() if both or name in self.container.requests}
        return Effect(True, limits, requests)

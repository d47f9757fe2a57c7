"""What users choose by annotations: devices by uuid and type, a mode, one NUMA node (semantics 2.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hamiacct.accounting.vendors import Vendor

TRUE_WORDS = frozenset(("1", "t", "T", "true", "TRUE", "True"))
FALSE_WORDS = frozenset(("0", "f", "F", "false", "FALSE", "False"))


@dataclass(frozen=True, slots=True)
class Choice:
    """What a pod's annotations say of one vendor's devices.

    A device must be in every one of `use_uuids` and `use_types` and in none of the others; types are
    lower-case parts of a model's name. `mode` is None where no mode is asked. `words` are the values
    of the vendor's own selectors, by selector.
    """

    use_uuids: tuple[frozenset[str], ...] = ()
    nouse_uuids: frozenset[str] = frozenset()
    use_types: tuple[tuple[str, ...], ...] = ()
    nouse_types: tuple[str, ...] = ()
    numa_bind: bool = False
    mode: str | None = None
    words: Mapping[str, str] = field(default_factory=dict)

    def allows_uuid(self, uuid: str) -> bool:
        """Whole and case-sensitive; the nouse list wins."""
        return uuid not in self.nouse_uuids and all(uuid in members for members in self.use_uuids)

    def allows_type(self, model: str) -> bool:
        """Members are parts of the model's name, whatever the case (G-28: `A10` is in `A100`)."""
        name = model.lower()
        if any(member in name for member in self.nouse_types):
            return False
        return all(any(member in name for member in members) for members in self.use_types)

    def allows_mode(self, mode: str) -> bool:
        """A device's mode must be part of the value, so a device without one always passes."""
        return self.mode is None or mode in self.mode


ANYTHING = Choice()

_COMMON = frozenset(("use_uuid", "nouse_uuid", "use_type", "nouse_type", "numa_bind", "mode"))


def choice_of(annotations: Mapping[str, str], vendor: Vendor) -> Choice:
    """What the annotations choose among the vendor's devices; of several keys for the same, all count."""

    def values(selector: str) -> list[str]:
        return [annotations[key] for key in vendor.selectors.get(selector, ()) if key in annotations]

    return Choice(
        use_uuids=tuple(frozenset(_members(text)) for text in values("use_uuid") if text.strip()),
        nouse_uuids=frozenset(uuid for text in values("nouse_uuid") for uuid in _named(text)),
        use_types=tuple(_lowered(text) for text in values("use_type") if text.strip()),
        nouse_types=tuple(member for text in values("nouse_type") for member in _lowered(text)),
        numa_bind=any(is_true(text) for text in values("numa_bind")),
        mode=next(iter(values("mode")), None),
        words={name: text for name in vendor.selectors if name not in _COMMON for text in values(name)[:1]},
    )


def is_true(text: str) -> bool:
    """Whether Go's boolean parser takes the text as true; unreadable is false."""
    return text in TRUE_WORDS


def unreadable_booleans(annotations: Mapping[str, str], vendors: Iterable[Vendor]) -> list[str]:
    """Keys of switches whose values are no booleans; admission refuses them (semantics 2.5)."""
    keys = [key for vendor in vendors for key in vendor.selectors.get("numa_bind", ())]
    return [key for key in keys if annotations.get(key, "false") not in TRUE_WORDS | FALSE_WORDS]


def _members(text: str) -> list[str]:
    return [member.strip() for member in text.split(",")]


def _named(text: str) -> list[str]:
    return [member for member in _members(text) if member]


def _lowered(text: str) -> tuple[str, ...]:
    return tuple(member.lower() for member in _named(text))

"""What is configured: the vendors, and the settings of the environment that rules depend on.

The vendors come from `vendors.toml`, with the names, factors and lists of HAMi's own
device-config.yaml in their place where `HAMIACCT_DEVICE_CONFIG` names one (semantics 3.4). Read
once per file. `accounting` and `kube` never call this module: they are handed vendors.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

import yaml
from django.conf import settings

from hamiacct.accounting.holdings import Layout
from hamiacct.accounting.lifecycle import Policy
from hamiacct.accounting.vendors import CoresKind, Inventory, Vendor

VENDORS_TOML = Path(__file__).with_name("vendors.toml")
MAX_NAME = 253
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
INT32_MAX = 2**31 - 1


class BadDeviceConfig(Exception):
    """The vendors are not described in a way that can be used; the message names file and key."""


# --- what the rest of the shell asks -------------------------------------------------------------


def vendors() -> tuple[Vendor, ...]:
    """Every vendor, in the order in which annotations are judged."""
    return read_vendors(settings.HAMIACCT.device_config)


def vendor_by_key() -> Mapping[str, Vendor]:
    """The vendors by HAMi's vendor key."""
    return _by_key(settings.HAMIACCT.device_config)


def vendor_by_resource() -> Mapping[str, Vendor]:
    """The vendors by each of their resource names."""
    return _by_resource(vendors())


def annotation_layout() -> Layout:
    """How ambiguous allocation texts are read (decision 14)."""
    return Layout(settings.HAMIACCT.annotation_layout)


def charge_policy() -> Policy:
    """What an operator has settled about charging (decisions 12 and 14)."""
    return Policy(annotation_layout(), settings.HAMIACCT.recharge_on_init_rerun)


def node_selector() -> Mapping[str, str]:
    """The labels of the nodes whose devices are given out here; none: all nodes."""
    return dict(settings.HAMIACCT.node_selector)


def handshake_zone() -> ZoneInfo:
    """The zone in which HAMi's scheduler writes its handshakes."""
    zone: ZoneInfo = settings.HAMIACCT.handshake_time_zone
    return zone


class _Vendors(dict[str, Vendor]):
    """A vendor that the table lost while pods still hold its devices is counted plainly, not forgotten."""

    def __missing__(self, key: str) -> Vendor:
        return Vendor(key=key, family="", allocated_key=f"the annotation of {key}")


@lru_cache(maxsize=8)
def _by_key(device_config: Path | None) -> Mapping[str, Vendor]:
    return MappingProxyType(_Vendors({vendor.key: vendor for vendor in read_vendors(device_config)}))


@lru_cache(maxsize=8)
def _by_resource(table: tuple[Vendor, ...]) -> Mapping[str, Vendor]:
    return MappingProxyType({name: vendor for vendor in table for name in vendor.resource_names})


# --- reading the tables --------------------------------------------------------------------------

Table = dict[str, Any]


@lru_cache(maxsize=8)
def read_vendors(device_config: Path | None = None) -> tuple[Vendor, ...]:
    """The vendors of `vendors.toml`, as the device-config.yaml at `device_config` replaces them.

    Raises BadDeviceConfig with the file and the key at fault.
    """
    entries: Table = tomllib.loads(VENDORS_TOML.read_text(encoding="utf-8"))
    families: dict[str, Table] = entries.pop("families")
    if device_config is not None:
        entries = _replaced(entries, families, _Source(device_config))
    table = tuple(_vendor(key, _inherited(entry, families)) for key, entry in entries.items())
    _check_names(table, device_config or VENDORS_TOML)
    return table


def _inherited(entry: Table, families: Mapping[str, Table]) -> Table:
    """An entry with what its family says where it is silent itself."""
    shared = families.get(entry["family"], {})
    merged = {**shared, **entry}
    for field, value in shared.items():
        if isinstance(value, dict):
            merged[field] = {**value, **entry.get(field, {})}
    return merged


def _vendor(key: str, entry: Table) -> Vendor:
    """A `Vendor` of an entry: `{word}` and the names of other fields filled in, everything frozen."""
    words = {"word": entry.get("word", key)}
    words |= {field: _filled(value, words) for field, value in entry.items() if isinstance(value, str)}
    entry = {field: _filled(value, words) for field, value in entry.items() if field != "device_config"}
    entry["inventory"] = Inventory(**entry.get("inventory", {}))
    entry["cores_kind"] = CoresKind(entry.get("cores_kind", CoresKind.PERCENT))
    return Vendor(key=key, **entry)


def _filled(value: Any, words: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return value.format_map(words) if "{" in value else value
    if isinstance(value, list):
        return tuple(_filled(item, words) for item in value)
    if isinstance(value, dict):
        return {field: _filled(item, words) for field, item in value.items()}
    return value


def _check_names(table: Sequence[Vendor], path: Path) -> None:
    """No two vendors may share a resource name or an annotation: amounts would be counted twice."""
    owners: dict[str, str] = {}
    for vendor in table:
        for name in (*vendor.resource_names, vendor.allocated_key):
            if owners.setdefault(name, vendor.key) != vendor.key:
                raise BadDeviceConfig(f"{path}: {name} belongs to both {owners[name]} and {vendor.key}")


# --- device-config.yaml --------------------------------------------------------------------------


class _Source:
    """HAMi's device-config.yaml; every fault is told with the file and the key."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise BadDeviceConfig(f"{path}: cannot be read: {error}") from error
        if content is None:
            raise BadDeviceConfig(f"{path}: is empty")
        self.content = self.of_type(content, dict, "the file")

    def of_type(self, value: Any, wanted: type[Any], where: str) -> Any:
        """The value, which must be of the wanted type; a truth value is no number."""
        if isinstance(value, bool) != (wanted is bool) or not isinstance(value, wanted):
            words = {
                dict: "a mapping",
                list: "a list",
                str: "a text",
                int: "a whole number",
                bool: "true or false",
            }
            raise BadDeviceConfig(f"{self.path}: {where} must be {words[wanted]}, not {value!r:.60}")
        if wanted is int and not 0 <= value <= INT32_MAX:
            raise BadDeviceConfig(f"{self.path}: {where} must be from 0 to {INT32_MAX}, not {value}")
        if wanted is str and (len(value) > MAX_NAME or not value.isprintable() or "{" in value):
            raise BadDeviceConfig(f"{self.path}: {where} is no usable text: {value!r:.60}")
        return value

    def section(self, name: str, wanted: type) -> Any:
        """A section of the file; None where it is left out or empty."""
        value = self.content.get(name)
        return None if value is None else self.of_type(value, wanted, name)


def _replaced(entries: Table, families: Mapping[str, Table], source: _Source) -> Table:
    """The entries with what the file says in the place of what the table says."""
    replaced: Table = {}
    done: set[str] = set()
    for key, entry in entries.items():
        family = entry["family"]
        if family not in families:
            section = source.section(family, dict)
            replaced[key] = entry if section is None else _overlaid(entry, section, {}, source, family)
        elif family not in done:
            done.add(family)
            own = {name: it for name, it in entries.items() if it["family"] == family}
            listed = _listed(family, families[family], source, taken=entries.keys() - own.keys())
            replaced |= own if listed is None else dict(listed)
    return replaced


def _listed(
    family: str, shared: Table, source: _Source, taken: Collection[str]
) -> Iterator[tuple[str, Table]] | None:
    """The entries of a list section, by vendor key; None where the file has no such section.

    A chip's word is its vendor key; it must not be one of the keys `taken` by other families.
    """
    keys = shared["device_config"]
    path = keys["list"]
    section = source.section(family, dict if path else list)
    if section is None:
        return None
    chips = section.get(path[0]) if path else section
    where = ".".join((family, *path))
    chips = source.of_type([] if chips is None else chips, list, where)

    def entries() -> Iterator[tuple[str, Table]]:
        seen = set(taken)
        for number, raw in enumerate(chips):
            at = f"{where}[{number}]"
            chip = source.of_type(raw, dict, at)
            word_at = f"{at}.{keys['word'][0]}"
            word = source.of_type(chip.get(keys["word"][0]), str, word_at)
            if not _WORD.fullmatch(word) or word in seen:
                raise BadDeviceConfig(f"{source.path}: {word_at} is taken already, or no word: {word!r:.60}")
            seen.add(word)
            entry = {"family": family, "word": word, "request": dict(shared["request"])}
            beside = section if path else {}
            yield word, _overlaid({**shared, **entry}, chip, beside, source, at)

    return entries()


def _overlaid(entry: Table, section: Table, beside: Table, source: _Source, where: str) -> Table:
    """An entry with the fields that the section gives. Null leaves the default, as Go's YAML does."""
    overlaid = {**entry, "request": dict(entry.get("request", {}))}
    for field, keys in entry["device_config"].items():
        if field in ("list", "word"):
            continue
        for key in keys:
            holder, name = (beside, key[1:]) if key.startswith("^") else (section, key)
            if holder.get(name) is None:
                continue
            group, _, parameter = field.rpartition(".")
            target = overlaid[group] if group else overlaid
            target[parameter] = _checked(holder[name], target.get(parameter, ""), source, f"{where}.{name}")
            break
    return overlaid


def _checked(value: Any, default: Any, source: _Source, where: str) -> Any:
    if isinstance(default, list):
        return _templates(value, source, where)
    return source.of_type(value, type(default), where)


def _templates(value: Any, source: _Source, where: str) -> list[Table]:
    """Ascend's templates, smallest memory first."""
    templates = []
    for number, raw in enumerate(source.of_type(value, list, where)):
        at = f"{where}[{number}]"
        template = source.of_type(raw, dict, at)
        kinds = {"name": str, "memory": int, "aiCore": int, "aiCPU": int}
        templates.append(
            {
                key: source.of_type(template[key], kind, f"{at}.{key}")
                for key, kind in kinds.items()
                if template.get(key) is not None
            }
        )
        if "name" not in templates[-1] or "memory" not in templates[-1]:
            raise BadDeviceConfig(f"{source.path}: {at} needs a name and a memory")
    return sorted(templates, key=lambda template: template["memory"])

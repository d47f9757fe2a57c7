"""Field and label selectors, as an API server reads them."""

import re
from typing import Any

Object = dict[str, Any]

FIELDS = {
    "Pod": {
        "metadata.name", "metadata.namespace", "spec.nodeName", "spec.restartPolicy", "spec.schedulerName",
        "spec.serviceAccountName", "status.phase", "status.podIP", "status.nominatedNodeName",
    },
    "Node": {"metadata.name", "spec.unschedulable"},
    "Event": {"metadata.name", "metadata.namespace", "reason", "type", "involvedObject.uid"},
}  # fmt: skip
FIELDS_OF_ANY = {"metadata.name", "metadata.namespace"}

SET = re.compile(r"(?P<key>\S+)\s+(?P<operator>in|notin)\s+\((?P<values>[^)]*)\)")
# A comma ends a requirement, but not between the parentheses of a set.
COMMA = re.compile(r",(?![^(]*\))")


class BadSelector(ValueError):
    """Nobody can tell what is selected."""


class Selector:
    """What a request asked for; without selectors, everything."""

    def __init__(self, kind: str, fields: str, labels: str) -> None:
        self.is_narrow = bool(fields or labels)
        self._fields = [_field(kind, part) for part in fields.split(",") if part]
        self._labels = [_label(part.strip()) for part in COMMA.split(labels) if part.strip()]

    def __call__(self, item: Object) -> bool:
        labels = item["metadata"].get("labels") or {}
        return all(
            (_value(item, path) == wanted) is is_wanted for path, wanted, is_wanted in self._fields
        ) and all((labels.get(key) in values) is is_wanted for key, values, is_wanted in self._labels)


def _field(kind: str, part: str) -> tuple[tuple[str, ...], str, bool]:
    found = re.fullmatch(r"([^!=]+)(!=|==|=)(.*)", part)
    if found is None:
        raise BadSelector(f'invalid field selector: "{part}"')
    path, sign, wanted = found.groups()
    if path not in FIELDS.get(kind, FIELDS_OF_ANY):
        raise BadSelector(f"field label not supported: {path}")
    return tuple(path.split(".")), wanted, sign != "!="


def _value(item: Object, path: tuple[str, ...]) -> str:
    value: Any = item
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return str(value).lower()
    return value or ""


class _Any(frozenset[str]):
    """Holds every label there is."""

    def __contains__(self, value: object) -> bool:
        return value is not None


def _label(part: str) -> tuple[str, frozenset[Any], bool]:
    """The key, the values it may have, and whether it must or must not."""
    if found := SET.fullmatch(part):
        values = frozenset(value.strip() for value in found["values"].split(","))
        return found["key"], values, found["operator"] == "in"
    if found := re.fullmatch(r"([^!=\s]+)\s*(!=|==|=)\s*(\S*)", part):
        key, sign, value = found.groups()
        return key, frozenset({value}), sign != "!="
    if found := re.fullmatch(r"(!?)\s*([^!=\s]+)", part):
        return found[2], _Any(), not found[1]
    raise BadSelector(f'unable to parse requirement: "{part}"')

"""What kube-scheduler asks of nodes, extender protocol version 1: messages in and out, with Go's field names.

Go's decoder takes field names in any case and null for whatever may be left out; so does this. Nothing is
judged here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from hamiacct.accounting.errors import Malformed
from hamiacct.kube import fields
from hamiacct.kube.fields import Manifest

MISSING_POD = "extender args missing pod"
MISSING_NODES = "extender args missing nodes"
MAX_NODES = 20_000
HIGHEST_SCORE = 10
LARGEST_RANK = 1e30
"""What lies beyond, infinity too, has no distances."""


@dataclass(frozen=True, slots=True)
class ExtenderArgs:
    """What filter and prioritize are asked: a pod, and nodes in one of two forms.

    `nodes` are whole Node objects by name: what if these were the nodes. Without them `node_names` are of
    nodes that the scheduler takes to be known here.
    """

    pod: Manifest
    nodes: Mapping[str, Manifest] | None
    node_names: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes asked about, in the form asked or the other."""
        return self.node_names if self.nodes is None else tuple(self.nodes)


@dataclass(frozen=True, slots=True)
class BindingArgs:
    """What bind is asked: which pod is to go to which node."""

    namespace: str
    name: str
    uid: str
    node: str

    @property
    def pod(self) -> str:
        """The pod for people."""
        return f"{self.namespace}/{self.name}"


class FilterResult(TypedDict):
    """ExtenderFilterResult; what is not set is null."""

    Nodes: Manifest | None
    NodeNames: list[str] | None
    FailedNodes: dict[str, str] | None
    FailedAndUnresolvableNodes: dict[str, str] | None
    Error: str


class HostPriority(TypedDict):
    """One node and its score, 0 to 10."""

    Host: str
    Score: int


# --- in ------------------------------------------------------------------------------------------


def _of_any_case(document: object, pointer: str, names: Collection[str]) -> dict[str, Any]:
    """The wanted fields of an object, by their own names; the exact spelling is preferred, null is absent."""
    given = fields.object_of(document, pointer)
    folded = {key.lower(): value for key, value in given.items() if isinstance(key, str)}
    found = {name: given[name] if name in given else folded.get(name.lower()) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def extender_args(document: object) -> ExtenderArgs:
    """ExtenderArgs of a parsed body. Malformed where a pod or the nodes are missing, or are none."""
    given = _of_any_case(document, "", ("Pod", "Nodes", "NodeNames"))
    if "Pod" not in given:
        raise Malformed(MISSING_POD, "/Pod")
    pod = fields.object_of(given["Pod"], "/Pod")
    if "Nodes" in given:
        return ExtenderArgs(pod, _nodes(given["Nodes"]))
    if "NodeNames" not in given:
        raise Malformed(MISSING_NODES, "/NodeNames")
    return ExtenderArgs(pod, None, _names(given["NodeNames"]))


def binding_args(document: object) -> BindingArgs:
    """ExtenderBindingArgs of a parsed body. Malformed where one of the four is missing, or is no name."""
    given = _of_any_case(document, "", ("PodNamespace", "PodName", "PodUID", "Node"))
    return BindingArgs(
        fields.required_name(given, "PodNamespace", ""),
        fields.required_name(given, "PodName", ""),
        fields.required_name(given, "PodUID", ""),
        fields.required_name(given, "Node", ""),
    )


def _nodes(value: object) -> dict[str, Manifest]:
    """The items of a NodeList by name; of two with one name the first counts."""
    items = _bounded(_of_any_case(value, "/Nodes", ("items",)).get("items", []), "/Nodes/items")
    nodes: dict[str, Manifest] = {}
    for number, item in enumerate(items):
        pointer = f"/Nodes/items/{number}"
        metadata = fields.object_of(fields.object_of(item, pointer).get("metadata"), f"{pointer}/metadata")
        nodes.setdefault(fields.required_name(metadata, "name", f"{pointer}/metadata"), item)
    return nodes


def _names(value: object) -> tuple[str, ...]:
    """Names of nodes, each once."""
    named = {str(number): name for number, name in enumerate(_bounded(value, "/NodeNames"))}
    return tuple(dict.fromkeys(fields.required_name(named, number, "/NodeNames") for number in named))


def _bounded(value: object, pointer: str) -> Sequence[Any]:
    if not isinstance(value, list):
        raise Malformed(f"must be a list, not {fields.type_word(value)}", pointer)
    if len(value) > MAX_NODES:
        raise Malformed(f"holds more than {MAX_NODES} items", pointer)
    return value


# --- out -----------------------------------------------------------------------------------------


def filter_result(
    *,
    nodes: Iterable[Manifest] | None = None,
    node_names: Iterable[str] | None = None,
    failed: Mapping[str, str] | None = None,
    error: str = "",
) -> FilterResult:
    """The answer to filter."""
    return {
        "Nodes": None if nodes is None else {"metadata": {}, "items": list(nodes)},
        "NodeNames": None if node_names is None else list(node_names),
        "FailedNodes": dict(failed) if failed else None,
        "FailedAndUnresolvableNodes": None,
        "Error": error,
    }


def host_priorities(names: Iterable[str], ranks: Mapping[str, float]) -> list[HostPriority]:
    """The answer to prioritize. `ranks` are of the nodes that take the pod, the larger the better.

    Those score 1 to 10, in the distance of their ranks; all others 0.
    """
    bounded = {name: max(-LARGEST_RANK, min(rank, LARGEST_RANK)) for name, rank in ranks.items()}
    lowest, highest = min(bounded.values(), default=0.0), max(bounded.values(), default=0.0)

    def score(name: str) -> int:
        if name not in bounded:
            return 0
        if lowest == highest:
            return HIGHEST_SCORE
        return 1 + round((HIGHEST_SCORE - 1) * (bounded[name] - lowest) / (highest - lowest))

    return [{"Host": name, "Score": score(name)} for name in names]

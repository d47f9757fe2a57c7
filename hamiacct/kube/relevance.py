"""What of a cluster concerns the books at all (decision 33).

Most pods of a cluster carry nothing of ours, and most of what happens to the others changes nothing that is
read here. Both can be told from the object alone; what the books know already, they are asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import orjson

from hamiacct.accounting.vendors import Vendor
from hamiacct.kube import manifests

DIGEST_BYTES = 8


def concerns_us(kind: str, manifest: object, vendors: Sequence[Vendor]) -> bool:
    """Whether an object can matter to the books: nodes and quotas do; of pods those that carry something.

    That is an annotation or label of HAMi's or of a vendor, or a managed resource that any container asks
    for. What cannot be read is not judged here, so it does.
    """
    if kind != "Pod":
        return True
    kept = manifests.keep(kind, manifest, vendors)
    metadata, spec = kept.get("metadata"), kept.get("spec")
    if not isinstance(metadata, dict) or not isinstance(spec, dict):
        return True
    if metadata.get("annotations") or metadata.get("labels"):  # only ours were kept
        return True
    managed = _managed(tuple(vendors))
    containers = [*_items(spec, "initContainers"), *_items(spec, "containers")]
    return any(not isinstance(one, dict) or _asks(one.get("resources"), managed) for one in containers)


def _items(spec: Mapping[str, Any], field: str) -> list[Any]:
    """The containers of a field; one that is no list stands for one that cannot be read."""
    found = spec.get(field) or []
    return found if isinstance(found, list) else [found]


def _asks(resources: Any, managed: frozenset[str]) -> bool:
    if not isinstance(resources, dict):
        return resources is not None
    amounts = [resources.get("limits"), resources.get("requests")]
    return any(bool(one) if not isinstance(one, dict) else not managed.isdisjoint(one) for one in amounts)


@lru_cache(maxsize=8)
def _managed(vendors: tuple[Vendor, ...]) -> frozenset[str]:
    return frozenset(name for vendor in vendors for name in vendor.resource_names)


def digest(kind: str, manifest: object, vendors: Sequence[Vendor]) -> bytes:
    """A few bytes that are equal for two states of an object in which the codec reads the same."""
    kept = manifests.keep(kind, manifest, vendors)
    metadata = kept.get("metadata")
    if isinstance(metadata, dict):
        # Labels of which none is ours are like no labels.
        told = {name: value for name, value in metadata.items() if value or value == 0}
        kept["metadata"] = {name: value for name, value in told.items() if name != "resourceVersion"}
    text = orjson.dumps(kept, option=orjson.OPT_SORT_KEYS)
    return blake2b(text, digest_size=DIGEST_BYTES).digest()

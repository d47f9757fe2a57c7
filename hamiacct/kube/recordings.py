"""What kubectl prints, text by text: watch events, objects, lists (`kubectl get ... -o json`).

It prints a watch event in one line, and anything else over several lines, indented by four. With
`--output-watch-events` a watch is a sequence of the former; without, of bare objects, in which a deletion
looks like any other change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from hamiacct.accounting.errors import Malformed
from hamiacct.accounting.vendors import Vendor
from hamiacct.kube import fields, manifests

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
LIST = "List"
INDENT = b"    "
ITEMS = INDENT + b'"items": ['
TYPED_LIST = re.compile(rb'^    "kind": "(\w+)List"', re.MULTILINE)


class Text(NamedTuple):
    """One JSON text, and the number of the line it begins in, from 1.

    `item_of` is the beginning of the list that the text is an item of, b"" for a text that stands by itself.
    """

    line: int
    text: bytes
    item_of: bytes = b""


class Sort(StrEnum):
    """What a text of a recording is."""

    EVENT = "watch event"
    EVENTS = "watch events"
    OBJECT = "object"
    LIST = "list"
    OTHER = "of another kind"


def texts_of(lines: Iterable[bytes], *, items_apart: bool = False) -> Iterator[Text]:
    """The JSON texts in these lines: one a line, or objects over several lines as kubectl prints them.

    An object over several lines begins with a line that opens it in the first column and goes on while
    lines are indented, to the line that closes it in the first column; the next may begin right there. So a
    text that was cut off takes no other with it.

    With `items_apart` the items of a list that kubectl laid out come one by one, and then the list, empty:
    however long it is, no more than an item of it is held.
    """
    opened: list[bytes] = []
    item: list[bytes] = []
    in_items = False
    began = item_began = 0
    for number, line in enumerate(lines, 1):
        if number == 1:
            line = line.removeprefix(BYTE_ORDER_MARK)
        line = line.rstrip(b"\n")
        bare = line.strip()
        if in_items and (not bare or line.startswith(INDENT * 2)):
            item_began = item_began if item else number
            item.append(line)
            if line.startswith((INDENT * 2 + b"}", INDENT * 2 + b"{}")):
                text = b"\n".join(item).rstrip(b", \r")
                yield Text(item_began, text, b"\n".join(opened))
                item = []
            continue
        if in_items:
            # Whatever was begun and not ended spoils the list, which is no truth without it.
            opened, item, in_items = [*opened, *item], [], False
        if opened and (not bare or line[:1] in (b" ", b"\t", b"}", b"]")):
            if line[:1] != b"}":
                opened.append(line)
                in_items = items_apart and line.rstrip() == ITEMS
                continue
            rest = bare[1:].lstrip()
            follows = rest.startswith(b"{")
            yield Text(began, b"\n".join([*opened, b"}" if follows else line]))
            opened = []
            if not follows:
                continue
            line = bare = rest
        if opened:
            yield Text(began, b"\n".join(opened))
            opened = []
        if not bare:
            continue
        if bare.startswith(b"{") and not bare.endswith(b"}"):
            opened, began = [line], number
        else:
            yield Text(number, bare)
    if opened:
        yield Text(began, b"\n".join([*opened, *item]))


def kind_in(item_of: bytes) -> str:
    """The kind of the items of a list that begins so; "" where the beginning does not tell."""
    found = TYPED_LIST.search(item_of)
    return found[1].decode() if found else ""


def smaller(item: object, kind: str, vendors: Sequence[Vendor]) -> object:
    """An item of a list without what nobody reads; of a kind that nobody reads only that."""
    if not isinstance(item, dict):
        return item
    own = item.get("kind", kind)
    if own not in manifests.KINDS or item.get("apiVersion", "v1") != "v1":
        return {name: item[name] for name in ("kind", "apiVersion") if name in item}
    return manifests.keep(own, item, vendors)


def sort_of(value: object) -> Sort:
    """What the JSON value of a text is. Malformed where it is nothing that kubectl prints, or its error."""
    document = fields.object_of(value, "")
    if document.get("type") == "ERROR":
        raise _broken(document.get("object"))
    if "type" in document and "object" in document:
        return Sort.EVENT
    if "kind" not in document:
        if isinstance(document.get("events"), list):
            return Sort.EVENTS
        raise Malformed("neither a watch event nor an object nor a list of Kubernetes", "/kind")
    kind = fields.required_name(document, "kind", "")
    if kind == "Status":
        raise _broken(document)
    if kind == LIST or kind in (f"{one}{LIST}" for one in manifests.KINDS):
        return Sort.LIST
    return Sort.OBJECT if kind in manifests.KINDS else Sort.OTHER


def _broken(status: object) -> Malformed:
    """What the API server said when the watch ended; what happened from there on is not in the recording."""
    said = status.get("message") if isinstance(status, dict) else None
    return Malformed(f"the watch ended here with an error: {said or 'without a message'}")


def lists_of(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A list as lists of one kind: `kubectl get pods,nodes -o json` prints one of both.

    Kinds that nobody reads are left out, and so is an empty `List`, which says nothing of any.
    """
    items = value.get("items")
    if value.get("kind") != LIST or not isinstance(items, list):
        yield value
        return
    by_kind: dict[object, list[Any]] = {}
    for item in items:
        by_kind.setdefault(item.get("kind") if isinstance(item, dict) else None, []).append(item)
    # What does not show its kind may be any of them: no list is whole without it.
    anything = by_kind.pop(None, [])
    found = [kind for kind in manifests.KINDS if kind in by_kind]
    for kind in found:
        yield {**value, "items": [*by_kind[kind], *anything]}
    if anything and not found:
        yield {**value, "items": anything}


def namespace_of(listing: manifests.ListBody, folder: str) -> str:
    """The namespace that a list of pods or quotas in this folder of a cluster dump is of; "" for all of them.

    `kubectl cluster-info dump` lays the pods of each namespace in a folder of its name.
    """
    if not folder or listing.kind == "Node":
        return ""
    named = {_namespace(item) for item in listing.items}
    return folder if named <= {folder} else ""


def _namespace(item: object) -> object:
    metadata = item.get("metadata") if isinstance(item, dict) else None
    return metadata.get("namespace") if isinstance(metadata, dict) else None

"""What kubectl prints, text by text: watch events, objects, lists (`kubectl get ... -o json`).

It prints a watch event in one line, and anything else over several lines, indented by four. With
`--output-watch-events` a watch is a sequence of the former; without, of bare objects, in which a deletion
looks like any other change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, NamedTuple

from hamiacct.accounting.errors import Malformed
from hamiacct.kube import fields, manifests

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
LIST = "List"


class Text(NamedTuple):
    """One JSON text, and the number of the line it begins in, from 1."""

    line: int
    text: bytes


class Sort(StrEnum):
    """What a text of a recording is."""

    EVENT = "watch event"
    EVENTS = "watch events"
    OBJECT = "object"
    LIST = "list"
    OTHER = "of another kind"


def texts_of(lines: Iterable[bytes]) -> Iterator[Text]:
    """The JSON texts in these lines: one a line, or objects over several lines as kubectl prints them.

    An object over several lines begins with a line that opens it in the first column and goes on while
    lines are indented, to the line that closes it in the first column; the next may begin right there. So a
    text that was cut off takes no other with it.
    """
    opened: list[bytes] = []
    began = 0
    for number, line in enumerate(lines, 1):
        if number == 1:
            line = line.removeprefix(BYTE_ORDER_MARK)
        bare = line.strip()
        if opened and (not bare or line[:1] in (b" ", b"\t", b"}", b"]")):
            if line[:1] != b"}":
                opened.append(line.rstrip(b"\n"))
                continue
            rest = bare[1:].lstrip()
            follows = rest.startswith(b"{")
            yield Text(began, b"\n".join([*opened, b"}" if follows else line.rstrip(b"\n")]))
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
            opened, began = [line.rstrip(b"\n")], number
        else:
            yield Text(number, bare)
    if opened:
        yield Text(began, b"\n".join(opened))


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
    for kind in (*manifests.KINDS, None):
        if kind in by_kind:
            yield {**value, "items": by_kind[kind]}


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

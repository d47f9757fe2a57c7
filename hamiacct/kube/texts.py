"""Objects as the texts they came in: each is parsed when somebody looks at it, and gone when nobody does.

A full list of a large cluster takes many times the memory of its text once all of it is parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

import msgspec

from hamiacct.accounting.errors import Malformed

Parse = Callable[[bytes], object]


class Unparsed(Malformed):
    """An item among many that is no JSON; where it is in the whole, only who parses the whole can say."""


class Texts(Sequence[Any]):
    """The items of a list. An object that does not say its `kind` is of the list's."""

    __slots__ = ("_parse", "_texts", "kind")

    def __init__(self, texts: Sequence[msgspec.Raw], parse: Parse, kind: str = "") -> None:
        self._texts, self._parse, self.kind = texts, parse, kind

    def of_kind(self, kind: str) -> Texts:
        """The same items, of this kind where they do not say theirs."""
        return Texts(self._texts, self._parse, kind)

    def __len__(self) -> int:
        return len(self._texts)

    @overload
    def __getitem__(self, place: int) -> Any: ...
    @overload
    def __getitem__(self, place: slice) -> list[Any]: ...
    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        try:
            item = self._parse(bytes(self._texts[place]))
        except Malformed as fault:
            raise Unparsed(fault.detail, fault.pointer) from fault
        return with_kind(item, self.kind)


def with_kind(item: Any, kind: str) -> Any:
    """An object with its kind, which the API server leaves out in lists."""
    if kind and isinstance(item, dict) and item.get("kind") is None:
        return {**item, "kind": kind}
    return item


def outline(body: bytearray, parse: Parse) -> dict[str, Any] | None:
    """The object in a body, its `items` as texts; None where it is none, or they are no list."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        items = msgspec.json.decode(fields.pop("items", b""), type=list[msgspec.Raw])
        return {**{name: parse(bytes(text)) for name, text in fields.items()}, "items": Texts(items, parse)}
    except (msgspec.MsgspecError, Malformed, RecursionError):
        return None

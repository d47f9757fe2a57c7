"""A list whose items are parsed one by one is the list parsed whole."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api import bodies
from hamiacct.accounting.errors import Malformed
from hamiacct.kube import manifests, texts
from tests import watch

POD = {**watch.pod("p", "GPU-a 1 1", version=7)}
KINDLESS = {name: value for name, value in POD.items() if name != "kind"}
NODE = watch.node("n1", version=8)
ITEMS: list[Any] = [
    POD,
    KINDLESS,
    NODE,
    {**POD, "apiVersion": "apps/v1"},
    {**POD, "kind": 5},
    {},
    5,
    None,
    [],
]


def told(listed: manifests.ListBody) -> tuple[Any, ...]:
    return listed.kind, listed.version, list(listed.items), listed.meta


def outcome(body: Any) -> tuple[Any, ...]:
    """The list, or why it is none."""
    try:
        return told(manifests.list_items(body))
    except Malformed as fault:
        return fault.pointer, fault.detail


@given(
    st.sampled_from(("PodList", "NodeList", "List", "Pods", "", None)),
    st.lists(st.sampled_from(ITEMS), max_size=4),
    st.sampled_from(({}, {"resourceVersion": "9"}, {"resourceVersion": "x"}, 5, None)),
)
def test_a_list_says_the_same_whether_it_is_parsed_whole_or_not(
    kind: Any, items: list[Any], meta: Any
) -> None:
    text = json.dumps({"kind": kind, "metadata": meta, "items": items}).encode()
    outline = texts.outline(bytearray(text), bodies.parsed)
    assert outline is not None
    assert isinstance(outline["items"], texts.Texts)
    assert outcome(outline) == outcome(bodies.parsed(text))


@pytest.mark.parametrize(
    "text",
    [
        '{"items": null}',
        '{"items": {}}',
        '{"kind": "PodList"}',
        "[]",
        "5",
        "",
        '{"items": [1',
        '{"kind": }',
        "[" * 9999,
    ],
)
def test_what_holds_no_list_of_items_is_parsed_whole(text: str) -> None:
    assert texts.outline(bytearray(text.encode()), bodies.parsed) is None


@pytest.mark.parametrize("item", [rb'{"kind": "Pod", "x": "\ud800"}', b'{"kind": "Pod", "x": "\xff"}'])
def test_an_item_that_is_no_json_is_told_as_such(item: bytes) -> None:
    body = bytearray(b'{"kind": "PodList", "items": [{"kind": "Pod"}, %s]}' % item)
    outline = texts.outline(body, bodies.parsed)
    if outline is not None:
        with pytest.raises(texts.Unparsed):
            manifests.list_items(outline)


def test_a_slice_of_items_is_a_list_of_objects() -> None:
    outline = texts.outline(bytearray(b'{"kind": "PodList", "items": [{}, {}, 5]}'), bodies.parsed)
    assert outline is not None
    assert manifests.list_items(outline).items[1:] == [{"kind": "Pod"}, 5]

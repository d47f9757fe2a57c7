"""kube-scheduler's messages, as Go writes and reads them."""

import math
from typing import Any

import pytest

from hamiacct.accounting.errors import Malformed
from hamiacct.kube import extender

POD = {"metadata": {"name": "p"}}


def node(name: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}}


@pytest.mark.parametrize("pod", ["Pod", "pod", "POD", "pOD"])
@pytest.mark.parametrize("names", ["NodeNames", "nodenames", "nodeNames"])
def test_field_names_are_read_in_any_case(pod: str, names: str) -> None:
    args = extender.extender_args({pod: POD, names: ["n1", "n2"], "Nodes": None})
    assert (args.pod, args.nodes, args.names) == (POD, None, ("n1", "n2"))


def test_the_exact_spelling_is_preferred() -> None:
    args = extender.extender_args({"nodenames": ["n1"], "NodeNames": ["n2"], "Pod": POD, "pod": {}})
    assert (args.names, args.pod) == (("n2",), POD)


@pytest.mark.parametrize("items", ["items", "Items"])
def test_whole_nodes_are_the_form_that_counts(items: str) -> None:
    args = extender.extender_args({"Pod": POD, "Nodes": {items: [node("n1"), node("n2")]}, "NodeNames": None})
    assert args.nodes == {"n1": node("n1"), "n2": node("n2")}
    assert args.names == ("n1", "n2")


@pytest.mark.parametrize("nodes", [{}, {"items": None}, {"items": []}])
def test_no_nodes_is_a_form_too(nodes: Any) -> None:
    assert extender.extender_args({"Pod": POD, "Nodes": nodes}).nodes == {}


def test_a_node_named_twice_is_one() -> None:
    assert extender.extender_args({"Pod": POD, "NodeNames": ["n1", "n2", "n1"]}).names == ("n1", "n2")
    other = {**node("n1"), "spec": {"unschedulable": True}}
    args = extender.extender_args({"Pod": POD, "Nodes": {"items": [node("n1"), other]}})
    assert args.nodes == {"n1": node("n1")}


@pytest.mark.parametrize(
    ("document", "detail", "pointer"),
    [
        ({"NodeNames": ["n1"]}, "extender args missing pod", "/Pod"),
        ({"Pod": None, "NodeNames": ["n1"]}, "extender args missing pod", "/Pod"),
        ({"Pod": POD}, "extender args missing nodes", "/NodeNames"),
        ({"Pod": POD, "Nodes": None, "NodeNames": None}, "extender args missing nodes", "/NodeNames"),
        ({"Pod": [], "NodeNames": []}, "must be an object", "/Pod"),
        ({"Pod": POD, "NodeNames": "n1"}, "must be a list", "/NodeNames"),
        ({"Pod": POD, "NodeNames": [7]}, "must be a text", "/NodeNames/0"),
        ({"Pod": POD, "NodeNames": ["n1", ""]}, "missing", "/NodeNames/1"),
        ({"Pod": POD, "Nodes": [node("n1")]}, "must be an object", "/Nodes"),
        ({"Pod": POD, "Nodes": {"items": {}}}, "must be a list", "/Nodes/items"),
        ({"Pod": POD, "Nodes": {"items": [node("n1"), {}]}}, "must be an object", "/Nodes/items/1/metadata"),
        ({"Pod": POD, "Nodes": {"items": [node("")]}}, "missing", "/Nodes/items/0/metadata/name"),
        ([], "must be an object", ""),
        (None, "must be an object", ""),
    ],
)
def test_what_is_missing_or_none_is_told(document: Any, detail: str, pointer: str) -> None:
    with pytest.raises(Malformed, match=detail) as caught:
        extender.extender_args(document)
    assert caught.value.pointer == pointer


def test_what_is_not_set_is_null() -> None:
    assert extender.filter_result() == {
        "Nodes": None,
        "NodeNames": None,
        "FailedNodes": None,
        "FailedAndUnresolvableNodes": None,
        "Error": "",
    }


@pytest.mark.parametrize(
    ("ranks", "scores"),
    [
        ({}, [0, 0, 0]),
        ({"n2": 5.0}, [0, 10, 0]),
        ({"n1": 1.0, "n2": 1.0}, [10, 10, 0]),
        ({"n1": 0.0, "n2": 3.0, "n3": 9.0}, [1, 4, 10]),
        ({"n1": -30.0, "n2": 0.0, "n3": -15.0}, [1, 10, 5]),
        ({"n1": math.inf, "n2": -math.inf, "n3": 0.0}, [10, 1, 5]),
    ],
)
def test_scores_keep_distances_and_tell_who_does_not_fit(ranks: dict[str, float], scores: list[int]) -> None:
    found = extender.host_priorities(["n1", "n2", "n3"], ranks)
    assert [one["Host"] for one in found] == ["n1", "n2", "n3"]
    assert [one["Score"] for one in found] == scores

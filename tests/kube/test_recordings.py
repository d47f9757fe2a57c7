"""What kubectl printed, text by text; tests/data/kubectl holds it as version 1.32 prints it."""

import json
from pathlib import Path
from typing import Any

import pytest

from hamiacct.accounting.errors import Malformed
from hamiacct.config import vendors
from hamiacct.kube import manifests, recordings
from hamiacct.kube.recordings import Sort

PRINTED = Path(__file__).parents[1] / "data/kubectl"


def read(name: str, *, items_apart: bool = False) -> list[recordings.Text]:
    with (PRINTED / name).open("rb") as lines:
        return list(recordings.texts_of(lines, items_apart=items_apart))


@pytest.mark.parametrize(
    ("name", "sorts"),
    [
        ("watch-events.ndjson", [Sort.EVENT] * 6),
        ("watch-objects.json", [Sort.OBJECT] * 6),
        ("pods.json", [Sort.LIST]),
        ("raw-pods.json", [Sort.LIST]),
        ("mixed.json", [Sort.LIST]),
        ("empty.json", [Sort.LIST]),
        ("dump/nodes.json", [Sort.LIST]),
        ("dump/atlas/pods.json", [Sort.LIST]),
        ("dump/atlas/events.json", [Sort.OTHER]),
        ("dump/atlas/deployments.json", [Sort.OTHER]),
    ],
)
def test_what_kubectl_prints_is_told_apart(name: str, sorts: list[Sort]) -> None:
    found = [json.loads(one.text) for one in read(name)]
    assert [recordings.sort_of(value) for value in found[: len(sorts)]] == sorts
    for last in found[len(sorts) :]:
        # A watch whose version is too old ends with the server's error, in the form of the others.
        with pytest.raises(Malformed, match="the watch ended here with an error: too old resource version"):
            recordings.sort_of(last)


def test_a_text_has_the_line_it_begins_in() -> None:
    assert [one.line for one in read("watch-events.ndjson")] == [1, 2, 3, 4, 5, 6, 7]
    lines = (PRINTED / "watch-objects.json").read_bytes().split(b"\n")
    assert all(lines[one.line - 1] == b"{" for one in read("watch-objects.json"))


@pytest.mark.parametrize(
    ("name", "kind"),
    [("pods.json", ""), ("mixed.json", ""), ("dump/nodes.json", "Node"), ("dump/borealis/pods.json", "Pod")],
)
def test_items_come_one_by_one_and_then_the_list(name: str, kind: str) -> None:
    whole = json.loads((PRINTED / name).read_bytes())
    *items, rest = read(name, items_apart=True)
    assert [json.loads(item.text) for item in items] == whole["items"]
    assert {recordings.kind_in(item.item_of) for item in items} == {kind}
    assert (rest.item_of, json.loads(rest.text)) == (b"", {**whole, "items": []})


@pytest.mark.parametrize("name", ["watch-events.ndjson", "watch-objects.json", "raw-pods.json", "empty.json"])
def test_what_is_no_list_laid_out_comes_as_ever(name: str) -> None:
    assert read(name, items_apart=True) == read(name)


def test_a_list_that_was_cut_off_is_no_list_whatever_of_it_was_read() -> None:
    lines = (PRINTED / "pods.json").read_bytes().splitlines(keepends=True)
    for cut in range(3, len(lines) - 1):
        *_, rest, after = recordings.texts_of([*lines[:cut], b'{"next": 1}\n'], items_apart=True)
        assert after.text == b'{"next": 1}'
        with pytest.raises(ValueError, match="line"):
            json.loads(rest.text)


def test_an_item_made_smaller_reads_as_before() -> None:
    for item in json.loads((PRINTED / "pods.json").read_bytes())["items"]:
        reduced = recordings.smaller(item, "", vendors())
        assert manifests.pod_from_manifest(reduced, vendors()) == manifests.pod_from_manifest(item, vendors())
        assert "hello" not in str(reduced)
        del item["kind"]
        assert recordings.smaller(item, "Pod", vendors()) == reduced
    assert recordings.smaller({"kind": "Service", "spec": {}}, "", vendors()) == {"kind": "Service"}
    other = {"kind": "Pod", "apiVersion": "example.com/v1", "spec": {}}
    assert recordings.smaller(other, "", vendors()) == {"kind": "Pod", "apiVersion": "example.com/v1"}
    assert recordings.smaller(None, "Pod", vendors()) is None


@pytest.mark.parametrize("value", [1, [], {}, {"type": "ADDED"}, {"kind": 7}])
def test_anything_else_is_malformed(value: Any) -> None:
    with pytest.raises(Malformed):
        recordings.sort_of(value)

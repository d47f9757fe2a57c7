"""Events on pods: HAMi's reasons and texts, after the answer, and never at the scheduler's expense."""

import dataclasses
import time
from functools import partial
from typing import Any

import pytest

from api import telling
from tests import watch
from tests.asking import asking
from tests.kubeapi.server import ApiServer, Fault
from tests.scheduling import World

EVENTS = ("POST", "/events")
SOON_SECONDS = 2.0


def pod(name: str = "p", **amounts: Any) -> dict[str, Any]:
    return asking(name, uid=f"uid-{name}", **amounts)


def filtered(world: World, manifest: dict[str, Any], *nodes: str) -> Any:
    answer = world.client.post("/extender/filter", {"Pod": manifest, "NodeNames": list(nodes)})
    assert answer.status_code == 200
    return answer.json()


def test_a_choice_is_told_with_the_scores(world: World) -> None:
    world.add_node("n2", watch.card("GPU-c"))
    answer = filtered(world, pod(gpumem=3000), "n1", "n2", "n3")
    (chosen,) = answer["NodeNames"]
    text = f"find fit node({chosen}), 1 nodes not fit, 2 nodes fit(n1:0.00,n2:0.00)"
    assert world.events() == [("Normal", "FilteringSucceed", text)]


def test_of_many_nodes_the_best_are_shown_and_all_are_counted(world: World) -> None:
    names = [f"m{number}" for number in range(8)]
    for name in names:
        world.add_node(name, watch.card(f"GPU-{name}"))
    filtered(world, pod(gpumem=3000), *names, "elsewhere")
    ((_, _, text),) = world.events()
    assert ", 1 nodes not fit, 8 nodes fit(" in text
    assert text.endswith(",...)")


def test_that_no_node_fits_is_told_by_reason_and_in_sum(world: World) -> None:
    world.add_node("n2", watch.card("GPU-c", health=False), watch.card("GPU-d"))
    filtered(world, pod(gpumem=30000), "n1", "n2", "n3")
    assert sorted(world.events()) == [
        ("Warning", "FilteringFailed", "1 nodes CardNotHealth(n2)"),
        ("Warning", "FilteringFailed", "2 nodes CardInsufficientMemory(n1,n2)"),
        ("Warning", "FilteringFailed", "no available node, 3 nodes do not meet"),
    ]


def test_what_cannot_be_answered_is_told_too(world: World) -> None:
    filtered(world, pod(gpumem="-1"), "n1")
    ((type_, reason, text),) = world.events()
    assert (type_, reason) == ("Warning", "FilteringFailed")
    assert "gpumem" in text


def test_a_pod_that_is_on_its_way_has_not_failed(world: World) -> None:
    manifest = world.add_pod()
    assert world.bind() == ""
    assert filtered(world, manifest, "n1")["Error"]
    assert [reason for _, reason, _ in world.events()] == ["BindingSucceed"]


def test_an_event_is_about_its_pod(world: World) -> None:
    manifest = pod(gpumem=3000)
    manifest["metadata"]["resourceVersion"] = "77"
    filtered(world, manifest, "n1")
    world.events()
    (event,) = world.cluster.list("Event")
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "team-a",
        "name": "p",
        "uid": "uid-p",
        "resourceVersion": "77",
    }
    assert event["source"] == {"component": "hami-scheduler"}
    assert event["metadata"]["namespace"] == "team-a"
    assert event["metadata"]["name"].startswith("p.")


def test_the_same_words_about_a_pod_are_told_once_in_a_while(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        filtered(world, pod(gpumem=30000), "n1")
    filtered(world, pod("q", gpumem=30000), "n1")
    assert len(world.events()) == 4, "two texts about each of two pods"
    monkeypatch.setattr(telling, "AGAIN_AFTER_SECONDS", 0)
    filtered(world, pod(gpumem=30000), "n1")
    assert len(world.events()) == 6


def test_a_simulation_and_a_pod_that_asks_for_nothing_are_told_nothing(world: World) -> None:
    world.client.post("/extender/filter", {"Pod": pod(gpumem=3000), "Nodes": {"items": []}})
    filtered(world, pod(gpu=0), "n1")
    assert world.events() == []


def test_where_the_cluster_is_only_read_nothing_is_told(world: World, settings: Any) -> None:
    settings.HAMIACCT = dataclasses.replace(settings.HAMIACCT, scheduler_mode=False)
    filtered(world, pod(gpumem=3000), "n1")
    assert world.events() == []


def test_without_a_cluster_nothing_is_told(world: World, settings: Any) -> None:
    settings.HAMIACCT = dataclasses.replace(settings.HAMIACCT, kubeconfig=None)
    assert filtered(world, pod(gpumem=3000), "n1")["NodeNames"] == ["n1"]
    assert world.events() == []


@pytest.mark.parametrize("fault", [Fault.FORBIDDEN, Fault.FAILED_AFTER, Fault.CUT_BEFORE, Fault.THROTTLED])
def test_an_event_that_is_not_taken_is_lost_and_nothing_else_is(world: World, fault: Fault) -> None:
    world.cluster.fail(*EVENTS, fault)
    assert filtered(world, pod(gpumem=3000), "n1")["NodeNames"] == ["n1"]
    filtered(world, pod("q", gpumem=3000), "n1")
    told = [one["involvedObject"]["name"] for one in events(world)]
    assert told == (["p", "q"] if fault.is_done else ["q"])


def events(world: World) -> list[dict[str, Any]]:
    world.events()
    return world.cluster.list("Event")


def test_while_the_api_server_takes_no_events_answers_are_quick_and_the_rest_is_dropped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "_teller", telling._Teller(at_most=3))
    slow = world.cluster.hold(*EVENTS)
    filtered(world, pod("first", gpumem=100), "n1")
    assert slow.reached.wait(10)
    began = time.monotonic()
    for number in range(10):
        filtered(world, pod(f"p{number}", gpumem=100), "n1")
    assert time.monotonic() - began < SOON_SECONDS
    assert telling._teller.waiting.qsize() == 3
    slow.go.set()
    world.cluster.wait(lambda: len(world.cluster.list("Event")) == 4)
    assert [one["involvedObject"]["name"] for one in world.cluster.list("Event")] == [
        "first",
        "p0",
        "p1",
        "p2",
    ]
    # And then there is room again.
    filtered(world, pod("later", gpumem=100), "n1")
    world.cluster.wait(lambda: len(world.cluster.list("Event")) == 5)


def test_a_scheduler_without_an_api_server_answers_filter(world: World, settings: Any, tmp_path: Any) -> None:
    away = ApiServer()
    away._http.server_close()
    folder = tmp_path / "away"
    folder.mkdir()
    settings.HAMIACCT = dataclasses.replace(settings.HAMIACCT, kubeconfig=away.kubeconfig(folder))
    assert filtered(world, pod(gpumem=3000), "n1")["NodeNames"] == ["n1"]


def test_whatever_goes_wrong_with_one_event_the_next_is_sent(world: World) -> None:
    assert telling._teller._queue(partial(telling._send, None, {"metadata": {}}))  # type: ignore[arg-type]
    filtered(world, pod(gpumem=3000), "n1")
    assert [reason for _, reason, _ in world.events()] == ["FilteringSucceed"]

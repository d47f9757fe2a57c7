"""What is heard of a pod after its bind: the plugin's word, and where the pod really is."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hamiacct import models
from hamiacct.operations import sweeping
from tests import watch
from tests.scheduling import World, tell

PHASE = "hami.io/bind-phase"


@pytest.fixture
def bound(world: World) -> World:
    """A pod that was bound, as the watcher has heard by now."""
    world.add_pod()
    assert world.bind() == ""
    tell(world.pod())
    assert world.state() == "confirmed"
    assert codes() == set()
    return world


def codes() -> set[str]:
    return set(models.Finding.objects.filter(uid="uid-p").values_list("code", flat=True))


def change(world: World, changes: dict[str, Any]) -> None:
    tell(world.cluster.change("Pod", "p", changes, "team-a"))
    world.books_agree()


def says(phase: str) -> dict[str, Any]:
    return {"metadata": {"annotations": {PHASE: phase}}}


def used_mib() -> int:
    return sum(models.UsageEntry.objects.filter(pod_id="uid-p").values_list("memory_mib", flat=True))


def after(minutes: float) -> None:
    sweeping.look_at_the_clock(at=datetime.now(UTC) + timedelta(minutes=minutes))


def test_a_plugin_that_fails_is_shown_until_it_succeeds_or_the_pod_ends(bound: World) -> None:
    change(bound, says("failed"))
    assert codes() == {"allocate-failed"}
    assert used_mib() == 3000, "it is charged until it ends"
    change(bound, says("success"))
    assert codes() == set()
    change(bound, says("failed"))
    change(bound, {"status": {"phase": "Failed"}})
    assert (codes(), used_mib()) == (set(), 0)


def test_a_plugin_that_never_answers_is_shown_after_five_minutes(bound: World) -> None:
    after(minutes=4.9)
    assert codes() == set()
    after(minutes=5.1)
    assert codes() == {"allocate-stuck"}
    assert used_mib() == 3000
    change(bound, says("success"))
    assert codes() == set()
    after(minutes=60)
    assert codes() == set()


def test_one_that_fails_late_is_no_longer_stuck(bound: World) -> None:
    after(minutes=6)
    change(bound, says("failed"))
    assert codes() == {"allocate-failed"}
    after(minutes=60)
    assert codes() == {"allocate-failed"}


def test_a_pod_that_goes_while_its_plugin_is_silent_leaves_no_finding(bound: World) -> None:
    after(minutes=6)
    change(bound, {"status": {"phase": "Succeeded"}})
    assert (codes(), used_mib()) == (set(), 0)
    after(minutes=60)
    assert codes() == set()


def differs(world: World) -> dict[str, Callable[[], dict[str, Any]]]:
    """How the pod of a hold may come to be elsewhere than was held."""
    held = world.pod()["metadata"]["annotations"]
    text = held["hami.io/vgpu-devices-allocated"]
    other = "GPU-b" if "GPU-a" in text else "GPU-a"
    moved = text.replace("GPU-a", other) if "GPU-a" in text else text.replace("GPU-b", other)
    return {
        "another node": lambda: {
            "metadata": {"annotations": {"hami.io/vgpu-node": "n2"}},
            "spec": {"nodeName": "n2"},
        },
        "another card": lambda: {"metadata": {"annotations": {"hami.io/vgpu-devices-allocated": moved}}},
        "another amount": lambda: {
            "metadata": {"annotations": {"hami.io/vgpu-devices-allocated": text.replace("3000", "4000")}}
        },
    }


@pytest.mark.parametrize("how", ["another node", "another card", "another amount"])
def test_a_pod_that_is_elsewhere_than_was_held_wins_and_is_shown(world: World, how: str) -> None:
    world.add_pod()
    assert world.bind() == ""
    change(world, differs(world)[how]())
    assert "placement-differs" in codes()
    assert world.state() == "released"
    assert used_mib() == (4000 if how == "another amount" else 3000)


def test_a_pod_that_is_bound_without_an_allocation_keeps_what_is_held(world: World) -> None:
    world.add_pod()
    change(world, {"spec": {"nodeName": "n1"}})
    assert codes() == {"placement-differs"}
    assert (world.state(), used_mib()) == ("held", 3000)
    change(world, {"status": {"phase": "Succeeded"}})
    assert (codes(), world.state(), used_mib()) == (set(), "released", 0)


def test_what_comes_after_the_confirmation_in_one_batch_is_no_longer_the_holds_matter(world: World) -> None:
    world.add_pod()
    assert world.bind() == ""
    text = world.pod()["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"]
    grown = {"metadata": {"annotations": {"hami.io/vgpu-devices-allocated": text.replace("3000", "4000")}}}
    tell(world.pod(), world.cluster.change("Pod", "p", grown, "team-a"))
    assert (world.state(), codes(), used_mib()) == ("confirmed", set(), 4000)
    world.books_agree()


def test_what_differs_within_a_batch_is_shown_at_its_end(world: World) -> None:
    world.add_pod()
    assert world.bind() == ""
    elsewhere = world.cluster.change("Pod", "p", differs(world)["another amount"](), "team-a")
    tell(elsewhere, world.cluster.change("Pod", "p", says("success"), "team-a"))
    assert codes() == {"placement-differs"}
    world.books_agree()


def test_a_label_that_was_too_long_is_forgotten_with_its_pod(world: World) -> None:
    name = "n" * 64
    world.add_node(name, watch.card("GPU-c"))
    world.add_pod(hold=False)
    world.hold(node=name)
    assert world.bind(node=name) == ""
    tell(world.pod())
    assert codes() == {"label-too-long"}
    change(world, {"status": {"phase": "Succeeded"}})
    assert codes() == set()


def test_what_differed_is_shown_until_the_pod_ends(world: World) -> None:
    world.add_pod()
    assert world.bind() == ""
    change(world, differs(world)["another amount"]())
    change(world, says("success"))
    assert "placement-differs" in codes()
    change(world, {"status": {"phase": "Succeeded"}})
    assert codes() == set()

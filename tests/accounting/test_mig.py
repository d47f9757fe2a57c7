"""MIG placement (semantics 6.7) and what stored allocations say of a card (7.4)."""

from collections.abc import Mapping
from typing import Any

import pytest

from hamiacct.accounting import fit, mig
from hamiacct.accounting.devices import MigAllocation, MigProfile, Placement
from hamiacct.accounting.mig import CardState, Tenant
from hamiacct.accounting.offers import FitDevice
from hamiacct.accounting.pods import ContainerClass
from hamiacct.accounting.requests import DeviceRequest
from hamiacct.kube import annotations as codec
from tests import cases
from tests.accounting.offered import NVIDIA, asking, case_place, case_profiles, device, node
from tests.say import containers_of

ONE = MigProfile("1g.5gb", 5120, 14, 1, tuple(Placement(start, 1) for start in range(7)))
TWO = MigProfile("2g.10gb", 10240, 28, 2, tuple(Placement(start, 2) for start in (0, 2, 4)))
THREE = MigProfile("3g.20gb", 20480, 42, 3, (Placement(0, 4), Placement(4, 4)))
SEVEN = MigProfile("7g.40gb", 40960, 98, 7, (Placement(0, 8),))


def mig_card(uuid: str = "m0", **facts: Any) -> FitDevice:
    profiles = {"mig_profiles": (THREE, ONE, SEVEN, TWO), "mode": "mig"}
    return device(uuid, **{"slots": 7, "memory_mib": 40960, **profiles, **facts})


def asked(memory_mib: int, count: int = 1) -> DeviceRequest:
    return DeviceRequest(NVIDIA, count, memory_mib)


@pytest.mark.parametrize(("case", "expected"), cases.of_kind("mig-placement"))
def test_hamis_cases(case: Mapping[str, Any], expected: Any) -> None:
    profiles = case_profiles(case["profiles"])
    occupied = [case_place(place) for place in case["occupied"]]
    if "profile" in case["want"]:
        [profile] = [one for one in profiles if one.name == case["want"]["profile"]]
        place = mig.place(profile, occupied)
        assert place == (case_place(expected["placement"]) if expected.get("placement") else None)
        return
    found = mig.choose(profiles, occupied, case["want"]["mem"])
    if not expected.get("placement"):
        assert found is None
        return
    assert found is not None
    assert found.place == case_place(expected["placement"])
    assert (found.profile.name, found.profile.memory_mib, found.profile.cores) == (
        expected["profile"],
        expected["memoryMB"],
        expected["core"],
    )


def test_a_card_that_is_full_has_no_place() -> None:
    assert mig.place(ONE, [Placement(0, 8)]) is None
    assert mig.place(THREE, [Placement(3, 2)]) is None
    assert mig.place(TWO, [Placement(0, 2), Placement(4, 2)]) == Placement(2, 2)


def test_more_memory_than_every_profile_is_infeasible() -> None:
    assert mig.choose((ONE, TWO), (), 10241) is None
    verdict = fit.place(node(mig_card(memory_mib=80000)), asking(asked(50000)))
    assert isinstance(verdict, fit.Misfit)
    assert verdict.message == "1/1 CardMigTopologyInfeasible"


def test_a_larger_profile_serves_when_the_smaller_has_no_place() -> None:
    occupied = (Placement(0, 2), Placement(2, 2), Placement(6, 1))
    assert mig.choose((THREE, TWO, ONE), occupied, 5000) == mig.Instance(ONE, Placement(5, 1))
    assert mig.choose((THREE, TWO), occupied, 5000) == mig.Instance(TWO, Placement(4, 2))


def placed(verdict: fit.Verdict) -> fit.Placement:
    assert isinstance(verdict, fit.Placement), verdict
    return verdict


def test_the_profile_replaces_what_was_asked() -> None:
    placement = placed(fit.place(node(mig_card()), asking(asked(6000))))
    [[row]] = placement.allocations[NVIDIA].groups
    assert (row.memory, row.cores) == (10240, 28)
    assert placement.mig_allocations == (MigAllocation(0, 0, "m0", "2g.10gb", Placement(0, 2)),)


def test_one_card_serves_several_until_it_refuses() -> None:
    three = placed(fit.place(node(mig_card()), asking(asked(5000, count=3))))
    assert [one.placement.start for one in three.mig_allocations] == [6, 5, 4]
    assert three.charge.total.slots == 3
    eight = fit.place(node(mig_card()), asking(asked(5000, count=8)))
    assert isinstance(eight, fit.Misfit)
    assert eight.message == "1/1 CardMigTopologyInfeasible, 7/1 AllocatedCardsInsufficientRequest"


def test_more_than_the_cards_needs_a_mig_card_and_a_mode_that_allows_it() -> None:
    plain = fit.place(node(device("d0")), asking(asked(100, count=2)))
    assert isinstance(plain, fit.Misfit)
    assert plain.message == "NodeInsufficientDevice"
    mode = {"nvidia.com/vgpu-mode": "hami-core"}
    refused = fit.place(node(mig_card()), asking(asked(100, count=2), annotations=mode))
    assert isinstance(refused, fit.Misfit)
    assert refused.message == "NodeInsufficientDevice"
    mode = {"nvidia.com/vgpu-mode": "mig"}
    placed(fit.place(node(mig_card()), asking(asked(100, count=2), annotations=mode)))


def test_profiles_never_exceed_the_card() -> None:
    """Asked are 4000 and 4600 are free, but the smallest profile is 5120."""
    card = mig_card(used=1, used_memory_mib=36360, used_cores=0)
    verdict = fit.place(node(card), asking(asked(4000)))
    assert isinstance(verdict, fit.Misfit)
    assert verdict.message == "1/1 CardMigTopologyInfeasible"


def test_a_regular_init_gives_its_place_back_and_a_sidecar_does_not() -> None:
    kinds = [ContainerClass.INIT, ContainerClass.SIDECAR, ContainerClass.APP]
    ask = asking(asked(20000), asked(20000), asked(20000), kinds=kinds)
    placement = placed(fit.place(node(mig_card()), ask))
    assert [one.placement.start for one in placement.mig_allocations] == [4, 4, 0]
    assert placement.charge.total.memory_mib == 40960


# --- what is stored ------------------------------------------------------------------------------


def allocation(uuid: str, start: int, container: int = 0, number: int = 0) -> MigAllocation:
    return MigAllocation(container, number, uuid, "1g.5gb", Placement(start, 1))


@pytest.mark.parametrize(
    ("case", "expected"),
    [case for case in cases.of_kind("node-usage") if "healthy" in case.values[1]],
)
def test_hamis_cases_of_stored_allocations(case: Mapping[str, Any], expected: Any) -> None:
    modes = {card["id"]: card["mode"] for card in case["inventory"]}
    text = case["podAnnotations"].get("hami.io/vgpu-mig-allocations", "")
    tenants = [
        Tenant(frozenset(row["uuid"] for row in pod["devices"]), tuple(codec.decode_mig_allocations(text)))
        for pod in case["storedPods"]
    ]
    states = mig.card_states(modes, tenants)
    assert {uuid: state.healthy for uuid, state in states.items()} == expected["healthy"]
    if "placementsInUse" in expected:
        [state] = states.values()
        assert list(state.occupied) == [case_place(place) for place in expected["placementsInUse"]]


def test_an_allocation_on_a_card_of_another_mode_makes_it_doubtful() -> None:
    tenant = Tenant(frozenset({"d0"}), (allocation("d0", 0),))
    assert not mig.card_states({"d0": "hami-core"}, [tenant])["d0"].healthy


def test_an_allocation_for_a_card_that_is_gone_makes_every_mig_card_doubtful() -> None:
    tenant = Tenant(frozenset(), (allocation("gone", 0),))
    states = mig.card_states({"m0": "mig", "m1": "mig", "d0": "hami-core"}, [tenant])
    assert {uuid: state.healthy for uuid, state in states.items()} == {"m0": False, "m1": False, "d0": True}


def test_several_pods_share_a_card_that_is_trusted() -> None:
    tenants = [Tenant(frozenset({"m0"}), (allocation("m0", start),)) for start in (6, 5)]
    assert mig.card_states({"m0": "mig", "m1": "mig"}, tenants) == {
        "m0": CardState(True, (Placement(6, 1), Placement(5, 1))),
        "m1": CardState(),
    }


def test_the_places_of_finished_inits_are_free_after_the_shrink() -> None:
    containers = containers_of("init 5000", "sidecar 5000", "app 5000")
    held = [allocation("m0", 6 - place, container=place) for place in range(3)]
    assert mig.standing(held, containers, inits_released=False) == tuple(held)
    assert mig.standing(held, containers, inits_released=True) == tuple(held[1:])

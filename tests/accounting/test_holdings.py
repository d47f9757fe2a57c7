"""From an allocation's rows to what a pod holds (S1.1, S1.3, S2.6, S3.3, S4.2, S4.3)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hamiacct import config
from hamiacct.accounting.amounts import Amount
from hamiacct.accounting.footprint import Footprint
from hamiacct.accounting.holdings import (
    Layout,
    device_uuid,
    footprint_of_pod,
    is_ambiguous,
    steps_of_pod,
)
from hamiacct.accounting.pods import Allocation, Container, ContainerClass, DeviceKey, Groups, Row
from tests.accounting import formula
from tests.accounting.strategies import UUIDS, containers, groups
from tests.say import containers_of, said, say_pod

VENDORS = {vendor.key: vendor for vendor in config.read_vendors(None)}
CARD = DeviceKey("n1", "GPU-a", "NVIDIA")


def folded(*phrases: str, vendor: str = "NVIDIA", slots_per_row: int = 1) -> tuple[Amount, Amount]:
    """Effective and steady amount on GPU-a."""
    rows = tuple(said(phrase).rows for phrase in phrases)
    allocation = Allocation(vendor, "n1", rows, slots_per_row)
    footprint = footprint_of_pod(containers_of(*phrases), {vendor: allocation}, VENDORS)
    return footprint.effective[CARD._replace(vendor=vendor)], footprint.steady[CARD._replace(vendor=vendor)]


# --- rows of one container -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phrases", "effective"),
    [
        # Two MIG instances in one init are both there. HAMi books the larger one, with one slot.
        (("init 5120 14 + 5120 14", "app"), Amount(2, 10240, 28)),
        (("init 5120 14 + 5120 14", "app 8000 10"), Amount(2, 10240, 28)),
        (("sidecar 100 1", "init 5120 14 + 5120 14", "app"), Amount(3, 10340, 29)),
        (("sidecar 5120 14 + 5120 14", "app 5120 14"), Amount(3, 15360, 42)),
        (("app 5120 14 + 5120 14 + 5120 14",), Amount(3, 15360, 42)),
    ],
)
def test_rows_of_one_container_on_one_device_are_added_first(
    phrases: tuple[str, ...], effective: Amount
) -> None:
    assert folded(*phrases)[0] == effective


def test_a_row_of_nothing_takes_its_slot() -> None:
    assert folded("init 0", "app")[0] == Amount(1, 0, 0)
    assert folded("app 0", "app 0")[0] == Amount(2, 0, 0)


def test_an_init_stacks_its_slot_on_those_of_the_sidecars_before_it() -> None:
    assert folded("sidecar 10", "sidecar 10", "sidecar 10", "init 10", "app")[0].slots == 4
    assert folded("init 10", "sidecar 10", "sidecar 10", "app")[0].slots == 2


def test_a_device_that_inits_alone_used_is_held_no_more() -> None:
    pod = say_pod("init 9000 on GPU-b", "app 1000")
    footprint = footprint_of_pod(pod.containers, pod.allocations, VENDORS)
    assert DeviceKey("n1", "GPU-b", "NVIDIA") in footprint.effective
    assert list(footprint.steady) == [CARD]


def test_the_type_of_a_row_says_nothing_about_its_vendor() -> None:
    """AMD writes the product's name there."""
    rows = ((Row("GPU-a", "AMD-Instinct-MI300X", 100, 5),),)
    held = footprint_of_pod(containers_of("app"), {"AMD": Allocation("AMD", "n1", rows)}, VENDORS).steady
    assert held[DeviceKey("n1", "GPU-a", "AMD")] == Amount(1, 100, 5)


# --- vendors that differ -------------------------------------------------------------------------


def test_enflame_slots_are_the_size_that_was_asked_for() -> None:
    effective, _ = folded("init 1024 17", "app 2048 34", vendor="Enflame", slots_per_row=2)
    assert effective == Amount(2, 2048, 34)
    assert folded("app 2048 34", vendor="Enflame")[0] == Amount(1, 2048, 34)


def test_neuron_cores_are_sets() -> None:
    """0b0011 and 0b0110 are three cores together, not five or nine."""
    effective, steady = folded("init 0 12", "sidecar 0 3", "app 0 6", vendor="AWSNeuron")
    assert steady == Amount.of_core_set(2, 0, 0b0111)
    assert effective == Amount.of_core_set(2, 0, 0b1111)
    assert (effective.cores, steady.cores) == (4, 3)


def test_a_neuron_core_named_twice_is_held_once() -> None:
    assert folded("app 0 3 + 0 3", vendor="AWSNeuron")[0].cores == 2


@pytest.mark.parametrize(
    ("vendor", "cores", "total", "quota_cores"),
    [
        ("AMD", 1, 304, 1),  # a third of a percent counts as one
        ("AMD", 152, 304, 50),
        ("AMD", 153, 304, 51),
        ("AMD", 304, 304, 100),
        ("AMD", 30, 0, 30),  # a card that never registered is taken to have 100 units
        ("NVIDIA", 30, 304, 30),
    ],
)
def test_amd_units_are_percent_of_the_card_where_quotas_are_judged(
    vendor: str, cores: int, total: int, quota_cores: int
) -> None:
    assert VENDORS[vendor].quota_cores_of(cores, total) == quota_cores


@pytest.mark.parametrize(
    ("vendor", "scaled"),
    [("NVIDIA", 10), ("MLU", 2560), ("Mthreads", 5120), ("Metax-SGPU", 10240), ("Ascend310P", 10)],
)
def test_a_limit_is_scaled_once_and_a_factor_below_one_is_one(vendor: str, scaled: int) -> None:
    assert VENDORS[vendor].scaled_limit(10) == scaled


# --- old MIG suffix ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uuid", "device"),
    [
        ("GPU-a[0-1]", "GPU-a"),
        ("GPU-a[12-34]", "GPU-a"),
        ("GPU-a", "GPU-a"),
        ("GPU-a[0]", "GPU-a[0]"),
        ("GPU-a[x-1]", "GPU-a[x-1]"),
        ("GPU-a[0-]", "GPU-a[0-]"),
        ("[0-1]", "[0-1]"),
        ("GPU-a[0-1]x", "GPU-a[0-1]x"),
        ("GPU-a[0-1][2-3]", "GPU-a[0-1]"),
        ("]", "]"),
        ("", ""),
    ],
)
def test_the_suffix_of_old_mig_uuids_is_no_part_of_the_device(uuid: str, device: str) -> None:
    assert device_uuid(uuid) == device


def test_two_templates_of_one_card_are_two_rows_on_it() -> None:
    assert folded("app 100 1 on GPU-a[0-0] + 200 2 on GPU-a[0-1]")[0] == Amount(2, 300, 3)


# --- positions and layouts -----------------------------------------------------------------------


def footprint(
    shown: tuple[Container, ...], rows: Groups, layout: Layout = Layout.AUTO
) -> Footprint[DeviceKey]:
    return footprint_of_pod(shown, {"NVIDIA": Allocation("NVIDIA", "n1", rows)}, VENDORS, layout)


@given(containers(), st.lists(groups, max_size=8).map(tuple))
def test_missing_groups_are_empty(shown: tuple[Container, ...], rows: Groups) -> None:
    rows = rows[: len(shown)]
    padded = rows + ((),) * (len(shown) - len(rows))
    assert footprint(shown, rows, Layout.POSITIONAL) == footprint(shown, padded, Layout.POSITIONAL)


@given(containers(min_inits=1), st.data())
def test_an_ambiguous_layout_is_charged_the_larger_of_both_readings(
    shown: tuple[Container, ...], data: st.DataObject
) -> None:
    apps = sum(one.kind is ContainerClass.APP for one in shown)
    inits = len(shown) - apps
    rows: Groups = data.draw(st.tuples(*(groups for _ in range(apps))))
    both = footprint(shown, rows)
    positional = formula.used_by(shown, rows + ((),) * inits)
    apps_only = formula.used_by(shown, ((),) * inits + rows)
    for uuid in UUIDS:
        key = DeviceKey("n1", uuid, "NVIDIA")
        for field in formula.FIELDS:
            larger = max(formula.effective(one, uuid, field) for one in (positional, apps_only))
            assert getattr(both.effective[key], field) == larger
            larger = max(formula.steady(one, uuid, field) for one in (positional, apps_only))
            assert getattr(both.steady[key], field) == larger
    assert is_ambiguous(Allocation("NVIDIA", "n1", rows), shown) is any(map(bool, rows))


def test_an_operator_may_settle_the_layout() -> None:
    shown = containers_of("init", "sidecar", "app", "app")
    rows = (said("app 9000").rows, said("app 500").rows)
    assert footprint(shown, rows, Layout.POSITIONAL).effective[CARD] == Amount(1, 9000, 0)
    assert footprint(shown, rows, Layout.POSITIONAL).steady[CARD] == Amount(1, 500, 0)
    assert footprint(shown, rows, Layout.APPS_ONLY).effective[CARD] == Amount(2, 9500, 0)
    assert footprint(shown, rows, Layout.AUTO).effective[CARD] == Amount(2, 9500, 0)


@pytest.mark.parametrize(
    ("phrases", "filled"),
    [
        (("app", "app"), (True, True)),  # without inits there is one reading
        (("init", "app"), (True, True)),  # as many groups as containers
        (("init", "init", "app", "app", "app"), (True, True)),  # neither
        (("init", "app"), (False,)),  # nothing to misread
    ],
)
def test_one_reading_is_not_ambiguous(phrases: tuple[str, ...], filled: tuple[bool, ...]) -> None:
    rows = tuple(said("app 1").rows if full else () for full in filled)
    assert not is_ambiguous(Allocation("NVIDIA", "n1", rows), containers_of(*phrases))


def test_the_steps_of_an_ambiguous_layout_end_in_the_charge() -> None:
    shown = containers_of("init", "app")
    allocations = {"NVIDIA": Allocation("NVIDIA", "n1", (said("app 700 7").rows,))}
    steps = steps_of_pod(shown, allocations, VENDORS)
    assert steps[-1].footprint == footprint_of_pod(shown, allocations, VENDORS)
    assert [step.usage[CARD].memory_mib for step in steps] == [700, 700]


def test_vendors_are_held_side_by_side() -> None:
    shown = containers_of("init", "app")
    allocations = {
        "NVIDIA": Allocation("NVIDIA", "n1", (said("app 500 50").rows, said("app 100 10").rows)),
        "kunlun": Allocation("kunlun", "n1", (said("app 200 on x").rows, said("app 300 on x").rows)),
    }
    held = footprint_of_pod(shown, allocations, VENDORS).effective
    assert held[CARD] == Amount(1, 500, 50)
    assert held[DeviceKey("n1", "x", "kunlun")] == Amount(1, 300, 0)
    assert len(held) == 2

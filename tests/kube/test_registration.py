"""What a Node object says of devices: registers, handshakes, capacity (semantics 2.4, 3.3; decision 10)."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hamiacct.accounting import devices
from hamiacct.accounting.devices import MigProfile, Placement, RegistrationState
from hamiacct.accounting.errors import Malformed, UnreadableAnnotation
from hamiacct.kube import handshakes, registers, registration
from tests import cases
from tests.kube.objects import BY_KEY, NVIDIA, VENDORS, node

NOW = datetime(2026, 8, 21, tzinfo=UTC)
REGISTER = NVIDIA.inventory.annotation
HANDSHAKE = NVIDIA.inventory.handshake
DCU = BY_KEY["DCU"]
CARD = {
    "id": "GPU-a",
    "count": 10,
    "devmem": 24576,
    "devcore": 100,
    "type": "NVIDIA-A10",
    "mode": "hami-core",
    "health": True,
}


def read(manifest: dict[str, Any], now: datetime = NOW, zone: Any = UTC) -> devices.Node:
    return registration.node_from_manifest(manifest, VENDORS, now, zone)


def only(manifest: dict[str, Any], now: datetime = NOW) -> devices.Registration:
    (registered,) = read(manifest, now).registrations
    return registered


def as_case(device: devices.RegisteredDevice) -> dict[str, Any]:
    return {
        "id": device.uuid,
        "index": device.index,
        "count": device.slots,
        "devmem": device.memory_mib,
        "devcore": device.cores,
        "type": device.model,
        "numa": device.numa,
        "health": device.healthy,
        "mode": device.mode,
    }


# --- registers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("given_", "expected"), cases.of_kind("decode-node-delimited"))
def test_decodes_the_delimited_case(given_: dict[str, Any], expected: dict[str, Any]) -> None:
    if "error" in expected:
        with pytest.raises(UnreadableAnnotation) as refusal:
            registers.decode_delimited_register(given_["value"], DCU)
        assert expected["error"] in refusal.value.detail
    else:
        listed = registers.decode_delimited_register(given_["value"], DCU)
        assert [as_case(device) for device in listed] == expected["devices"]


@pytest.mark.parametrize(("given_", "expected"), cases.of_kind("decode-node-json"))
def test_decodes_the_json_case(given_: dict[str, Any], expected: dict[str, Any]) -> None:
    listed = only(node(given_["annotations"])).devices
    assert [as_case(device) for device in listed] == expected["devices"]
    assert [device.order for device in listed] == list(range(len(listed)))
    assert {device.vendor for device in listed} == {"NVIDIA"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "node annotation missing device separator"),
        ("GPU-a,1,2,3,T,0,true", "node annotation missing device separator"),
        ("GPU-a:", 'malformed node annotation segment: "GPU-a"'),
        ("GPU-a,1,2,3,T,0,true:junk:", 'malformed node annotation segment: "junk"'),
        ("GPU-a,1,2,3,T,0,true,1:", "unexpected field count 8 in node annotation"),
        ("GPU-a,1,2,3,T,0,true,1,m,x:", "unexpected field count 10 in node annotation"),
        ("GPU-a,1,x,3,T,0,true:", "invalid memory field"),
        ("GPU-a,1,2,x,T,0,true:", "invalid core field"),
        ("GPU-a,1,2,3,T,x,true:", "invalid numa field"),
        ("GPU-a,1,2,3,T,0,yes:", "invalid health field"),
        ("GPU-a,1,2,3,T,0,true,x,m:", "invalid index field"),
        ("GPU-a,1,2,3,T,0,true,-1,m:", "index field must not be negative: -1"),
        ("GPU-a,2147483648,2,3,T,0,true:", "invalid count field"),
        ("GPU-a,-1,2,3,T,0,true:", "invalid count field"),
        ("GPU-a,x,x,x,T,x,x:", "invalid count field"),
        ("GPU-a,1,2,3,T,x,x:", "invalid health field"),
        (",1,2,3,T,0,true:", "id is empty"),
    ],
)
def test_a_delimited_register_is_refused_in_hamis_words_and_order(text: str, words: str) -> None:
    with pytest.raises(UnreadableAnnotation) as refusal:
        registers.decode_delimited_register(text, DCU)
    assert words in refusal.value.detail


@pytest.mark.parametrize(
    "word", ["1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"]
)
def test_health_is_a_go_boolean(word: str) -> None:
    (device,) = registers.decode_delimited_register(f"DCU-a,1,2,3,T,-1,{word}:", DCU)
    assert device.healthy == (word[0] in "1tT")
    assert device.numa == -1


@pytest.mark.parametrize("text", [":", "::", ":::"])
def test_empty_pieces_list_nothing_and_keep_the_inventory(text: str) -> None:
    assert registers.decode_delimited_register(text, DCU) == ()
    registered = only(node({DCU.inventory.annotation: text}))
    assert (registered.state, registered.reason) == (RegistrationState.UNREADABLE, "lists no devices")


@pytest.mark.parametrize(
    "change",
    [
        {"id": ""},
        {"id": None},
        {"id": 5},
        {"id": " GPU-a"},
        {"id": "a\0"},
        {"id": "\ud800"},
        {"id": "G" * 254},
        {"count": "10"},
        {"count": 10.0},
        {"count": True},
        {"count": -1},
        {"devmem": 2**31},
        {"devmem": 10**40},
        {"devcore": []},
        {"index": -1},
        {"numa": 2**31},
        {"type": {}},
        {"mode": 1},
        {"health": "true"},
        {"health": 1},
        {"migProfiles": {}},
        {"migProfiles": ["1g"]},
        {"migProfiles": [{"memoryMB": "5"}]},
        {"migProfiles": [{"placements": [{"start": -1}]}]},
        {"custominfo": []},
        {"custominfo": {"a": "\0"}},
        {"custominfo": {"a": "\ud800"}},
        {"custominfo": {"a": float("nan")}},
    ],
)
def test_a_json_register_with_one_wrong_field_keeps_the_inventory(change: dict[str, Any]) -> None:
    registered = only(node({REGISTER: json.dumps([CARD, CARD | change])}))
    assert registered.state is RegistrationState.UNREADABLE
    assert registered.devices == ()
    assert registered.reason


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", "{}", "5", '"x"', "[5]", "[null]", "[", "[" * 100_000, "[1e999]", "GPU-a,1,2:", "\0"],
)
def test_an_empty_or_broken_json_register_keeps_the_inventory(text: str) -> None:
    assert only(node({REGISTER: text})).state is RegistrationState.UNREADABLE


@pytest.mark.parametrize("value", [None, 5, True, [], {}])
def test_a_register_that_is_no_text_keeps_the_inventory(value: object) -> None:
    assert only(node({REGISTER: value})).state is RegistrationState.UNREADABLE


def test_what_a_json_register_leaves_out_is_zero_and_what_it_does_not_know_is_ignored() -> None:
    (device,) = only(node({REGISTER: '[{"id": "GPU-a", "devicevendor": "X", "news": [1]}]'})).devices
    assert device == devices.RegisteredDevice(uuid="GPU-a", vendor="NVIDIA")


def test_mig_profiles_and_custom_information_are_read() -> None:
    card = CARD | {
        "migProfiles": [
            {
                "name": "1g.5gb",
                "memoryMB": 4864,
                "core": 14,
                "sliceCount": 1,
                "placements": [{"start": 6, "size": 1}, {"size": 1}],
            }
        ],
        "custominfo": {"deep": [{"er": 1.5}]},
    }
    (device,) = only(node({REGISTER: json.dumps([card])})).devices
    assert device.mig_profiles == (MigProfile("1g.5gb", 4864, 14, 1, (Placement(6, 1), Placement(0, 1))),)
    assert device.custom == {"deep": [{"er": 1.5}]}


@pytest.mark.parametrize("key", ["Biren", "Vastai"])
def test_biren_and_vastai_cards_have_100_cores_whatever_they_say(key: str) -> None:
    annotation = BY_KEY[key].inventory.annotation
    (device,) = only(node({annotation: '[{"id": "x", "devcore": 7}]'})).devices
    assert device.cores == 100


def test_of_a_uuid_listed_twice_the_first_counts_and_it_is_reported() -> None:
    twice = [CARD, CARD | {"id": "GPU-b"}, CARD | {"devmem": 1}]
    registered = only(node({REGISTER: json.dumps(twice)}))
    assert [(device.uuid, device.memory_mib) for device in registered.devices] == [
        ("GPU-a", 24576),
        ("GPU-b", 24576),
    ]
    assert registered.duplicates == ("GPU-a",)


def test_of_a_uuid_that_two_vendors_list_the_earlier_vendors_counts() -> None:
    text = json.dumps([CARD])
    first, second = read(node({REGISTER: text, BY_KEY["AMD"].inventory.annotation: text})).registrations
    assert [device.uuid for device in first.devices] == ["GPU-a"]
    assert (second.devices, second.duplicates) == ((), ("GPU-a",))


def test_each_vendor_registers_by_itself() -> None:
    annotations = {
        REGISTER: "broken",
        DCU.inventory.annotation: "DCU-a,10,32768,100,Z100,0,true:",
        BY_KEY["Ascend910B4"].inventory.annotation: '[{"id": "npu-0", "devmem": 32768}]',
        BY_KEY["MR-V100"].inventory.annotation: "ilu-0,100,32768,100,MR-V100,0,true:",
    }
    states = {registered.vendor: registered.state for registered in read(node(annotations)).registrations}
    assert states == {
        "NVIDIA": RegistrationState.UNREADABLE,
        "DCU": RegistrationState.LISTED,
        "MR-V100": RegistrationState.LISTED,
        "Ascend910B4": RegistrationState.LISTED,
    }


def test_metax_registers_its_shared_devices() -> None:
    text = json.dumps(
        [
            {
                "uuid": "GPU-m0",
                "model": "MXC500",
                "totalDevCount": 16,
                "totalCompute": 100,
                "totalVRam": 65536,
            }
            | {"numa": 1, "healthy": True, "qosPolicy": "best-effort", "linkZone": 2, "bdf": "0000:01"},
            {"uuid": "GPU-m1"},
        ]
    )
    first, second = only(node({"metax-tech.com/node-gpu-devices": text})).devices
    assert as_case(first) == {
        "id": "GPU-m0",
        "index": 0,
        "count": 16,
        "devmem": 65536,
        "devcore": 100,
        "type": "MXC500",
        "numa": 1,
        "health": True,
        "mode": "",
    }
    assert first.custom == {"qosPolicy": "best-effort", "model": "MXC500", "linkZone": 2}
    assert (second.index, second.healthy, second.slots) == (1, False, 0)


def test_enflame_drs_cards_have_the_largest_profiles_memory_and_their_capacity_as_slots() -> None:
    text = json.dumps(
        {
            "devices": [
                {"index": "0", "minor": "0", "capacity": 6},
                {"index": "3", "minor": "7", "capacity": "6"},
            ],
            "profiles": {"1g.6gb": "0", "3g.20gb": "1", "6g.40gb": "2", "odd": "9"},
        }
    )
    devices_ = only(node({"enflame.com/gcu-drs-capacity": text})).devices
    assert [(it.uuid, it.index, it.slots, it.memory_mib, it.cores, it.healthy) for it in devices_] == [
        ("n1-enflame-drs-0", 0, 6, 40960, 100, True),
        ("n1-enflame-drs-3", 3, 6, 40960, 100, True),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        '{"devices": [], "profiles": {"1g.6gb": "0"}}',
        '{"devices": [{"capacity": 6}], "profiles": {}}',
        '{"devices": [{"capacity": 0}], "profiles": {"1g.6gb": "0"}}',
        '{"devices": [{"capacity": "six"}], "profiles": {"1g.6gb": "0"}}',
        '{"devices": [{"capacity": 6, "index": "x"}], "profiles": {"1g.6gb": "0"}}',
        '{"devices": 5, "profiles": {"1g.6gb": "0"}}',
        '{"devices": [5], "profiles": {"1g.6gb": "0"}}',
        '{"devices": [{"capacity": 6}], "profiles": []}',
        '{"devices": [{"capacity": 6}], "profiles": {"1g.6gb": 0}}',
    ],
)
def test_a_drs_register_that_lists_no_usable_card_keeps_the_inventory(text: str) -> None:
    assert only(node({"enflame.com/gcu-drs-capacity": text})).state is RegistrationState.UNREADABLE


# --- presence ------------------------------------------------------------------------------------


def test_an_absent_register_is_missing_and_costs_no_word_where_nothing_points_to_the_vendor() -> None:
    for annotations in ({}, {"": None}, {"example.com/x": "y"}):
        assert read(node(annotations)).registrations == ()
    registered = only(node({HANDSHAKE: "Reported now"}))
    assert (registered.state, registered.reason) == (RegistrationState.MISSING, f"no {REGISTER}")


def test_amd_cards_are_gone_when_the_node_counts_none() -> None:
    annotations = {BY_KEY["AMD"].inventory.annotation: '[{"id": "amd-0"}]'}
    assert only(node(annotations)).state is RegistrationState.LISTED
    assert only(node(annotations, capacity={"amd.com/gpu": "8"})).state is RegistrationState.LISTED
    assert only(node(annotations, capacity={"amd.com/gpu": "0"})).state is RegistrationState.EXPIRED


# --- handshakes ----------------------------------------------------------------------------------


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(("given_", "expected"), cases.of_kind("handshake"))
def test_judges_the_handshake_case(given_: dict[str, Any], expected: dict[str, bool]) -> None:
    verdict = handshakes.judge(given_["value"], at(given_["now"]), given_["allocatable"], UTC)
    assert verdict == (expected["healthy"], expected["needUpdate"])


@pytest.mark.parametrize(
    ("value", "allocatable", "verdict"),
    [
        ("", 0, (True, True)),
        ("Deleted_2026-08-20 23:00:00", 0, (True, True)),
        ("Requesting_", 0, (True, False)),
        ("Requesting_soon", 0, (True, False)),
        ("Requesting_2026-02-30 00:00:00", 0, (True, False)),
        ("Requesting_2026-08-20 23:59:01", 0, (True, False)),
        ("Requesting_2026-08-20 23:59:00", 0, (False, False)),
        ("Requesting_2026-08-20 23:59:00", 1, (True, False)),
        ("Requesting_2026-08-20 23:59:00_again", 0, (False, False)),
        ("Requesting_0001-01-01 00:00:00", 0, (False, False)),
        ("Requesting_9999-12-31 23:59:59", 0, (True, False)),
        ("Requesting_٢٠٢٦-٠٨-٢٠ 00:00:00", 0, (True, False)),
    ],
)
def test_judges_other_handshakes(value: str, allocatable: int, verdict: tuple[bool, bool]) -> None:
    for zone in (UTC, ZoneInfo("Etc/GMT+12"), ZoneInfo("Etc/GMT-14")):
        if "2026-08-20 23:59" not in value or zone is UTC:
            assert handshakes.judge(value, NOW, allocatable, zone) == verdict


def test_a_handshake_is_read_in_the_clusters_zone() -> None:
    value = "Requesting_2026-08-21 07:59:30"
    assert handshakes.judge(value, NOW, 0, ZoneInfo("Asia/Shanghai")).healthy
    assert not handshakes.judge("Requesting_2026-08-21 07:58:30", NOW, 0, ZoneInfo("Asia/Shanghai")).healthy
    summer = datetime(2026, 10, 25, 1, 0, 30, tzinfo=UTC)  # 02:00:30 winter time, half a minute after asking
    assert handshakes.judge("Requesting_2026-10-25 02:00:00", summer, 0, ZoneInfo("Europe/Berlin")) == (
        False,
        False,
    ), "the first of two such times is meant"


def test_an_expired_handshake_ends_the_inventory_and_beats_an_unreadable_register() -> None:
    for text in (json.dumps([CARD]), "broken"):
        manifest = node({REGISTER: text, HANDSHAKE: "Requesting_2026-08-20 23:00:00"})
        registered = only(manifest)
        assert registered.state is RegistrationState.EXPIRED
        assert "Requesting_2026-08-20 23:00:00" in registered.reason
        manifest["status"] = {"allocatable": {"nvidia.com/gpu": "10"}}
        assert only(manifest).state is not RegistrationState.EXPIRED


def test_a_pending_handshake_says_when_it_will_have_expired() -> None:
    manifest = node({REGISTER: json.dumps([CARD]), HANDSHAKE: "Requesting_2026-08-20 23:59:30"})
    assert only(manifest).expires_at == "2026-08-21T00:00:30Z"
    assert only(manifest, NOW + timedelta(seconds=29)).state is RegistrationState.LISTED
    assert only(manifest, NOW + timedelta(seconds=30)).state is RegistrationState.EXPIRED
    manifest["status"] = {"allocatable": {"nvidia.com/gpu": "1"}}
    assert only(manifest).expires_at == ""
    manifest["metadata"]["annotations"][HANDSHAKE] = "Reported 2026-08-20"
    assert only(manifest).expires_at == ""


@pytest.mark.parametrize("value", [None, 5, [], "\0", "Requesting_\ud800"])
def test_a_handshake_that_means_nothing_ends_nothing(value: object) -> None:
    manifest = node({REGISTER: json.dumps([CARD]), HANDSHAKE: value})
    assert only(manifest).state is RegistrationState.LISTED


# --- capacity ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vendor", "capacity", "uuids", "slots", "memory_mib", "cores", "numa"),
    [
        (
            "MLU",
            {"cambricon.com/mlu.smlu.vcore": "200", "cambricon.com/mlu.smlu.vmemory": "192"},
            ["n1-cambricon-mlu-0", "n1-cambricon-mlu-1"],
            100,
            24576,
            100,
            [0, 0],
        ),
        (
            "Mthreads",
            {"mthreads.com/sgpu-core": "32", "mthreads.com/sgpu-memory": "192"},
            ["n1-mthreads-0", "n1-mthreads-1"],
            100,
            49152,
            16,
            [0, 0],
        ),
        ("Metax-GPU", {"metax-tech.com/gpu": "2"}, ["n1-metax-0", "n1-metax-1"], 1, 65536, 100, [0, 0]),
        (
            "kunlun",
            {"kunlunxin.com/xpu": "4"},
            [f"n1-kunlun-{i}" for i in range(4)],
            100,
            98304,
            100,
            [0, 0, 1, 1],
        ),
        ("GCU", {"enflame.com/gcu": 1}, ["n1-GCU-0"], 1, 100, 100, [0]),
        (
            "AWSNeuron",
            {"aws.amazon.com/neuron": "2", "aws.amazon.com/neuroncore": "8"},
            ["n1-AWSNeuron-0", "n1-AWSNeuron-1"],
            4,
            0,
            4,
            [0, 0],
        ),
        ("AWSNeuron", {"aws.amazon.com/neuron": "1"}, ["n1-AWSNeuron-0"], 2, 0, 2, [0]),
    ],
)
def test_cards_that_a_node_only_counts(
    vendor: str,
    capacity: dict[str, Any],
    uuids: list[str],
    slots: int,
    memory_mib: int,
    cores: int,
    numa: list[int],
) -> None:
    for status in ({"capacity": capacity}, {"allocatable": capacity}):
        registered = only(node(**status))
        assert (registered.vendor, registered.state) == (vendor, RegistrationState.LISTED)
        assert [device.uuid for device in registered.devices] == uuids
        assert [device.numa for device in registered.devices] == numa
        assert {(it.slots, it.memory_mib, it.cores, it.healthy) for it in registered.devices} == {
            (slots, memory_mib, cores, True)
        }


def test_a_node_that_counts_no_cards_has_none_and_one_that_counts_absurdly_many_is_not_believed() -> None:
    assert only(node(capacity={"enflame.com/gcu": "0"})).state is RegistrationState.MISSING
    assert only(node(capacity={"enflame.com/gcu": "1E"})).state is RegistrationState.UNREADABLE
    absurd = {"cambricon.com/mlu.smlu.vcore": "100", "cambricon.com/mlu.smlu.vmemory": "1P"}
    assert only(node(capacity=absurd)).state is RegistrationState.UNREADABLE


@pytest.mark.parametrize("value", ["1.5", "x", "-1", "9" * 100, [], True, 10**30])
def test_a_capacity_that_cannot_be_read_is_malformed(value: object) -> None:
    with pytest.raises(Malformed) as refusal:
        read(node(capacity={"enflame.com/gcu": value}))
    assert refusal.value.pointer == "/status/capacity/enflame.com~1gcu"


# --- the rest of the node ------------------------------------------------------------------------


def test_cordon_labels_and_switches_are_read_and_what_ticks_is_not() -> None:
    manifest = node(
        {
            "hami.io/device-cordon": " GPU-a, ,GPU-b,,",
            "hami-vnpu-core": "true",
            HANDSHAKE: "Reported x",
            "hami.io/mutex.lock": "2026-08-21T10:00:00Z",
        }
    )
    manifest["metadata"]["labels"] = {"zone": "a", "kubernetes.io/hostname": "n1"}
    manifest["spec"] = {"unschedulable": True}
    seen = read(manifest)
    assert seen.cordoned == {"GPU-a", "GPU-b"}
    assert seen.labels == {"zone": "a", "kubernetes.io/hostname": "n1"}
    assert seen.annotations == {"hami-vnpu-core": "true"}
    assert seen.unschedulable
    assert (seen.name, seen.resource_version) == ("n1", 7)


def test_pair_scores_are_read_and_broken_ones_make_nvidias_inventory_unreadable() -> None:
    annotations = {
        REGISTER: json.dumps([CARD]),
        "hami.io/node-nvidia-score": '[{"uuid":"GPU-a","score":{"GPU-b":50}}]',
    }
    assert read(node(annotations)).pair_scores == {"GPU-a": {"GPU-b": 50}}
    for broken in (
        "",
        "{",
        '[{"uuid":"GPU-a","score":{"GPU-b":"50"}}]',
        '[{"uuid":"GPU-a","score":[5]}]',
        "[5]",
    ):
        seen = read(node(annotations | {"hami.io/node-nvidia-score": broken}))
        assert seen.pair_scores == {}
        assert [it.state for it in seen.registrations] == [RegistrationState.UNREADABLE]


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"metadata": {"name": ""}}, "/metadata/name"),
        ({"metadata": {"name": "n" * 254}}, "/metadata/name"),
        ({"metadata": {"name": "n\0"}}, "/metadata/name"),
        ({"metadata": []}, "/metadata"),
        ({"metadata": {"name": "n1", "annotations": []}}, "/metadata/annotations"),
        ({"metadata": {"name": "n1", "labels": {"a/b": 5}}}, "/metadata/labels/a~1b"),
        (
            {"metadata": {"name": "n1", "annotations": {"hami.io/device-cordon": 5}}},
            "/metadata/annotations/hami.io~1device-cordon",
        ),
        ({"status": []}, "/status"),
        ({"status": {"capacity": "x"}}, "/status/capacity"),
        ({"spec": {"unschedulable": "yes"}}, "/spec/unschedulable"),
    ],
)
def test_a_node_that_cannot_be_read_is_malformed_with_a_pointer(change: dict[str, Any], pointer: str) -> None:
    with pytest.raises(Malformed) as refusal:
        read(node(capacity={}) | change)
    assert refusal.value.pointer == pointer


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
KEYS = sorted(registration.annotation_keys(VENDORS))
NAMES = sorted(registration.capacity_names(VENDORS))


@given(
    st.dictionaries(st.sampled_from(KEYS), JSON | JSON.map(json.dumps) | st.text(), max_size=4),
    st.dictionaries(st.sampled_from(NAMES), JSON, max_size=4),
)
def test_a_node_is_read_or_malformed_whatever_it_holds(
    annotations: dict[str, Any], capacity: dict[str, Any]
) -> None:
    try:
        seen = read(node(annotations, capacity=capacity))
    except Malformed as refusal:
        seen = None
        pointer = refusal.pointer
    assert seen is not None or pointer.startswith(("/status/capacity/", "/metadata/annotations/"))
    for registered in seen.registrations if seen else ():
        assert bool(registered.devices or registered.duplicates) == (
            registered.state is RegistrationState.LISTED
        )

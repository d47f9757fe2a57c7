"""Vendors are data: our table, and HAMi's device-config.yaml in its place (semantics 3.3, 3.4)."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from hamiacct import config
from hamiacct.accounting.vendors import CoresKind
from hamiacct.kube import registration

VENDORS = config.read_vendors(None)
BY_KEY = {vendor.key: vendor for vendor in VENDORS}
KEYS = [
    "NVIDIA",
    "MLU",
    "DCU",
    "MR-V100",
    "MR-V50",
    "BI-V150",
    "BI-V100",
    "Mthreads",
    "Metax-GPU",
    "Metax-SGPU",
    "kunlun",
    "XPU",
    "GCU",
    "Enflame",
    "AWSNeuron",
    "AMD",
    "Biren",
    "Vastai",
    "Ascend910A",
    "Ascend910B2",
    "Ascend910B3",
    "Ascend910B4",
    "Ascend910B4-1",
    "Ascend310P",
    "Ascend910C",
]


@pytest.fixture
def written(tmp_path: Path) -> Any:
    """Writes a device-config.yaml and reads the vendors with it."""

    def read(content: Any) -> dict[str, Any]:
        path = tmp_path / "device-config.yaml"
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        config.read_vendors.cache_clear()
        return {vendor.key: vendor for vendor in config.read_vendors(path)}

    return read


def test_every_vendor_is_there_in_the_order_annotations_are_judged_in() -> None:
    assert list(BY_KEY) == KEYS


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.key)
def test_every_vendor_is_complete(vendor: Any) -> None:
    assert vendor.family
    assert vendor.count_name
    assert vendor.allocated_key.startswith("hami.io/")
    assert vendor.inventory.form in registration.FORMS - {""}
    assert vendor.inventory.annotation or vendor.inventory.capacity_name
    assert vendor.request["rule"]
    assert not vendor.quota_memory or vendor.memory_name
    assert not vendor.quota_cores or vendor.cores_name
    assert vendor.quota_memory or not vendor.memory_name
    assert "{" not in repr(
        [vendor.resource_names, vendor.allocated_key, vendor.inventory, vendor.pod_annotations]
    )
    hash(vendor)


@pytest.mark.parametrize(
    ("key", "names", "factor"),
    [
        ("NVIDIA", ("nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"), 1),
        (
            "MLU",
            ("cambricon.com/vmlu", "cambricon.com/mlu.smlu.vmemory", "cambricon.com/mlu.smlu.vcore"),
            256,
        ),
        ("DCU", ("hygon.com/dcunum", "hygon.com/dcumem", "hygon.com/dcucores"), 1),
        (
            "BI-V150",
            ("iluvatar.ai/BI-V150-vgpu", "iluvatar.ai/BI-V150.vMem", "iluvatar.ai/BI-V150.vCore"),
            256,
        ),
        ("Mthreads", ("mthreads.com/vgpu", "mthreads.com/sgpu-memory", "mthreads.com/sgpu-core"), 512),
        ("Metax-SGPU", ("metax-tech.com/sgpu", "metax-tech.com/vmemory", "metax-tech.com/vcore"), 1024),
        ("XPU", ("kunlunxin.com/vxpu", "kunlunxin.com/vxpu-memory", ""), 1),
        ("Enflame", ("enflame.com/drs-gcu", "enflame.com/gcu-memory", "enflame.com/gcu-core"), 1),
        ("AWSNeuron", ("aws.amazon.com/neuron", "", "aws.amazon.com/neuroncore"), 1),
        ("AMD", ("amd.com/gpu", "amd.com/gpumem", "amd.com/gpucores"), 1),
        (
            "Ascend910B4-1",
            ("huawei.com/Ascend910B4-1", "huawei.com/Ascend910B4-1-memory", "huawei.com/Ascend910B4-1-core"),
            1,
        ),
    ],
)
def test_names_and_factors_are_those_of_hamis_chart(key: str, names: tuple[str, ...], factor: int) -> None:
    vendor = BY_KEY[key]
    assert (vendor.count_name, vendor.memory_name, vendor.cores_name) == names
    assert vendor.memory_factor == factor


def test_the_vendors_that_need_more_than_a_percentage_say_so() -> None:
    assert {key: it.cores_kind for key, it in BY_KEY.items() if it.cores_kind is not CoresKind.PERCENT} == {
        "AWSNeuron": CoresKind.SET,
        "AMD": CoresKind.DEVICE_UNITS,
    }
    assert [key for key, it in BY_KEY.items() if it.slots_annotation] == ["Enflame"]
    assert [key for key, it in BY_KEY.items() if it.fit_quota] == ["NVIDIA", "MLU"]
    assert [key for key, it in BY_KEY.items() if not it.to_allocate_key] == ["kunlun", "Enflame", "AWSNeuron"]


def test_ascend_and_iluvatar_keys_carry_the_chips_word() -> None:
    chip = BY_KEY["Ascend310P"]
    assert chip.allocated_key == "hami.io/Ascend310P-devices-allocated"
    assert chip.inventory.annotation == "hami.io/node-register-Ascend310P"
    assert chip.inventory.handshake == "hami.io/node-handshake-Ascend310P"
    assert chip.selectors["nouse_uuid"] == ("hami.io/no-use-Ascend310P-uuid",)
    assert [it["memory"] for it in chip.request["templates"]] == [3072, 6144, 12288]
    assert BY_KEY["MR-V50"].inventory.annotation == "hami.io/node-MR-V50-register"


# --- device-config.yaml --------------------------------------------------------------------------


def test_names_and_factors_of_a_section_are_replaced_and_the_rest_stays(written: Any) -> None:
    vendors = written(
        {
            "nvidia": {
                "resourceCountName": "example.com/gpu",
                "resourceMemoryName": "example.com/mem",
                "memoryFactor": 4,
                "defaultMemory": 1024,
                "deviceMemoryScaling": 1.5,
                "migProfileAllowlist": [],
                "unknownKey": {"is": "ignored"},
            },
            "hygon": {"memoryFactor": 2},
            "kunlun": {"resourceVCountName": "example.com/vxpu"},
            "enflame": {"resourceNameVGCU": "enflame.com/vgcu"},
            "amd": None,
            "unknown": 5,
        }
    )
    nvidia = vendors["NVIDIA"]
    assert (nvidia.count_name, nvidia.memory_name) == ("example.com/gpu", "example.com/mem")
    assert (nvidia.cores_name, nvidia.memory_factor) == ("nvidia.com/gpucores", 4)
    assert nvidia.request["default_memory_mib"] == 1024
    assert nvidia.inventory.capacity_name == "example.com/gpu", "the plugin advertises the new name"
    assert vendors["DCU"].memory_factor == 2
    assert vendors["XPU"].count_name == "example.com/vxpu"
    assert vendors["kunlun"].count_name == "kunlunxin.com/xpu"
    assert vendors["Enflame"].count_name == "enflame.com/vgcu", "the name of older releases"
    assert vendors["AMD"] == BY_KEY["AMD"]
    assert list(vendors) == KEYS


def test_lists_of_chips_are_replaced_as_a_whole_and_keep_their_place(written: Any) -> None:
    vendors = written(
        {
            "iluvatars": [{"chipName": "X1", "commonWord": "X1", "resourceCountName": "iluvatar.ai/X1"}],
            "vnpus": {
                "hamiVnpuCore": True,
                "configs": [
                    {
                        "chipName": "911",
                        "commonWord": "Ascend911",
                        "resourceName": "huawei.com/Ascend911",
                        "resourceMemoryName": "huawei.com/Ascend911-memory",
                        "memoryAllocatable": 65536,
                        "memoryCapacity": 65536,
                        "memoryFactor": 2,
                        "templates": [{"name": "big", "memory": 32768}, {"name": "small", "memory": 8192}],
                    }
                ],
            },
        }
    )
    expected = [key for key in KEYS if BY_KEY[key].family not in ("iluvatars", "vnpus")]
    expected[3:3] = ["X1"]
    assert list(vendors) == [*expected, "Ascend911"]
    assert vendors["X1"].count_name == "iluvatar.ai/X1"
    assert vendors["X1"].memory_name == "iluvatar.ai/X1.vMem"
    assert vendors["X1"].memory_factor == 256
    chip = vendors["Ascend911"]
    assert chip.allocated_key == "hami.io/Ascend911-devices-allocated"
    assert chip.cores_name == "huawei.com/Ascend911-core"
    assert chip.memory_factor == 2
    assert [it["name"] for it in chip.request["templates"]] == ["small", "big"]
    assert chip.request["soft_split"] is True
    assert chip.request["super_pod"] is False


def test_an_empty_list_of_chips_means_none(written: Any) -> None:
    vendors = written({"iluvatars": [], "vnpus": {"configs": None}})
    assert not {it.family for it in vendors.values()} & {"iluvatars", "vnpus"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is empty"),
        ("# a comment", "is empty"),
        ("nvidia: [", "cannot be read"),
        ("nvidia: \t{}", "cannot be read"),
        ("- nvidia", "the file must be a mapping"),
        ("text", "the file must be a mapping"),
        ({"nvidia": []}, "nvidia must be a mapping"),
        ({"nvidia": {"resourceCountName": 5}}, "nvidia.resourceCountName must be a text"),
        ({"nvidia": {"memoryFactor": "1"}}, "nvidia.memoryFactor must be a whole number"),
        ({"nvidia": {"memoryFactor": True}}, "nvidia.memoryFactor must be a whole number"),
        ({"nvidia": {"memoryFactor": 1.5}}, "nvidia.memoryFactor must be a whole number"),
        ({"nvidia": {"memoryFactor": -1}}, "nvidia.memoryFactor must be from 0"),
        ({"nvidia": {"memoryFactor": 2**31}}, "nvidia.memoryFactor must be from 0"),
        ({"nvidia": {"overwriteEnv": "yes"}}, "nvidia.overwriteEnv must be true or false"),
        ({"nvidia": {"resourceCoreName": "x" * 300}}, "nvidia.resourceCoreName is no usable text"),
        ({"nvidia": {"resourceCoreName": "{word}"}}, "nvidia.resourceCoreName is no usable text"),
        ({"iluvatars": {}}, "iluvatars must be a list"),
        ({"iluvatars": ["X1"]}, "iluvatars[0] must be a mapping"),
        ({"iluvatars": [{}]}, "iluvatars[0].commonWord must be a text"),
        ({"iluvatars": [{"commonWord": ""}]}, "iluvatars[0].commonWord is taken already, or no word"),
        (
            {"iluvatars": [{"commonWord": "X"}, {"commonWord": "X"}]},
            "iluvatars[1].commonWord is taken already, or no word",
        ),
        ({"iluvatars": [{"commonWord": "NVIDIA"}]}, "iluvatars[0].commonWord is taken already, or no word"),
        ({"iluvatars": [{"commonWord": "a:b"}]}, "iluvatars[0].commonWord is taken already, or no word"),
        ({"vnpus": []}, "vnpus must be a mapping"),
        ({"vnpus": {"configs": {}}}, "vnpus.configs must be a list"),
        (
            {"vnpus": {"configs": [{"commonWord": "X", "templates": {}}]}},
            "vnpus.configs[0].templates must be a list",
        ),
        (
            {"vnpus": {"configs": [{"commonWord": "X", "templates": [{"name": "a"}]}]}},
            "vnpus.configs[0].templates[0] needs a name and a memory",
        ),
        ({"amd": {"resourceCountName": "nvidia.com/gpu"}}, "nvidia.com/gpu belongs to both NVIDIA and AMD"),
    ],
)
def test_a_bad_file_is_told_with_the_file_and_the_key(written: Any, content: Any, words: str) -> None:
    with pytest.raises(config.BadDeviceConfig) as refusal:
        written(content)
    assert words in str(refusal.value)
    assert "device-config.yaml" in str(refusal.value)


def test_what_the_shell_asks_follows_the_settings() -> None:
    assert config.vendors() == VENDORS
    assert config.vendor_by_key()["XPU"].count_name == "kunlunxin.com/vxpu"
    assert config.vendor_by_resource()["nvidia.com/gpumem-percentage"].key == "NVIDIA"
    assert config.charge_policy().layout is config.annotation_layout()
    assert str(config.handshake_zone()) == "UTC"

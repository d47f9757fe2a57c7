"""More cases of HAMi's kinds: what its tests leave out, or what its rules (docs/semantics.md) come to."""

from typing import Any

import pytest

from tests import watch
from tests.conversations.books import Books, Held
from tests.say import ALLOCATED, say_manifest

MEMORY, CORES = "nvidia.com/gpumem", "nvidia.com/gpucores"
NODE_KEY = "hami.io/vgpu-node"


def annotated(text: str | None = None, *, containers: dict[str, Any], **annotations: str) -> dict[str, Any]:
    """A pod with these containers whose NVIDIA allocation is this text; None: it has no such annotation."""
    pod = say_manifest("app")
    nvidia = {} if text is None else {ALLOCATED: text}
    pod["metadata"]["annotations"] = {NODE_KEY: "n1", **nvidia, **annotations}
    pod["spec"] |= containers
    return pod


def names(*containers: str, **fields: Any) -> list[dict[str, Any]]:
    return [{"name": name, **fields} for name in containers]


# --- collapse and steady (S1, S2, S4) ------------------------------------------------------------


@pytest.mark.parametrize(
    ("phrases", "effective", "steady"),
    [
        (("app",), {}, {}),
        (("init", "sidecar", "app"), {}, {}),
        # Both orders of one pod.
        (
            ("sidecar 2000 10", "init 20000 60", "app 10000 30"),
            {"GPU-a": Held(2, 22000, 70)},
            {"GPU-a": Held(2, 12000, 40)},
        ),
        (
            ("init 20000 60", "sidecar 2000 10", "app 10000 30"),
            {"GPU-a": Held(2, 20000, 60)},
            {"GPU-a": Held(2, 12000, 40)},
        ),
        # Between two sidecars an init meets the first alone.
        (
            ("sidecar 1000 5", "init 9000 10", "sidecar 4000 5", "app 2000 5"),
            {"GPU-a": Held(3, 10000, 15)},
            {"GPU-a": Held(3, 7000, 15)},
        ),
        # The last of three inits is the peak, with all sidecars by then.
        (
            ("init 8000", "sidecar 1000", "init 7000", "sidecar 1000", "init 6500", "app 100"),
            {"GPU-a": Held(3, 8500, 0)},
            {"GPU-a": Held(3, 2100, 0)},
        ),
        # Each card by itself.
        (
            ("sidecar 4000 on GPU-a", "init 9000 on GPU-b", "app 1000 on GPU-a"),
            {"GPU-a": Held(2, 5000, 0), "GPU-b": Held(1, 9000, 0)},
            {"GPU-a": Held(2, 5000, 0)},
        ),
        (
            ("sidecar 500 5 on GPU-b", "init 3000 on GPU-a + 3000 on GPU-b", "app 2000 on GPU-a"),
            {"GPU-a": Held(1, 3000, 0), "GPU-b": Held(2, 3500, 5)},
            {"GPU-a": Held(1, 2000, 0), "GPU-b": Held(1, 500, 5)},
        ),
        # Memory of the init, cores of the apps, slots of the apps.
        (
            ("init 9000 10", "app 4000 40", "app 4000 40", "app 500 5"),
            {"GPU-a": Held(3, 9000, 85)},
            {"GPU-a": Held(3, 8500, 85)},
        ),
        # Two MIG instances of one card in a plain init are both there; HAMi books the larger: 5120, 1 slot.
        (
            ("init 5120 14 + 5120 14", "app"),
            {"GPU-a": Held(2, 10240, 28)},
            {},
        ),
        (
            ("sidecar 5120 14", "init 5120 14 + 5120 14", "app 5120 14"),
            {"GPU-a": Held(3, 15360, 42)},
            {"GPU-a": Held(2, 10240, 28)},
        ),
        (("init 5000", "sidecar 700"), {"GPU-a": Held(1, 5000, 0)}, {"GPU-a": Held(1, 700, 0)}),
        (("init 2147483647", "sidecar 2147483647", "app 2147483647"),
            {"GPU-a": Held(2, 4294967294, 0)},
            {"GPU-a": Held(2, 4294967294, 0)}),
    ],
)  # fmt: skip
def test_effective_until_the_inits_are_done_then_steady(
    books: Books, phrases: tuple[str, ...], effective: dict[str, Held], steady: dict[str, Held]
) -> None:
    books.applied(say_manifest(*phrases), type_="ADDED")
    has_plain_inits = any(phrase.startswith("init") for phrase in phrases)
    assert books.held_by("u-1") == (effective if has_plain_inits else steady)
    done = [f"{phrase}, succeeded" if phrase.startswith("init") else phrase for phrase in phrases]
    books.applied(say_manifest(*done))
    assert books.held_by("u-1") == steady
    books.applied(say_manifest(*done, phase="Succeeded"))
    assert books.held_by("u-1") == {}
    assert books.used("n1", "GPU-a") == books.used("n1", "GPU-b") == Held()


def test_without_any_allocation_annotation_nothing_is_held(books: Books) -> None:
    books.applied(annotated(containers={"containers": names("a")}), type_="ADDED")
    assert books.held_by("u-1") == {}
    assert books.pod("u-1")["state"] == "unscheduled"


@pytest.mark.parametrize("text", ["", ";", ";;;;", ",,0,0:;", ",,0,0:;,,0,0:;"])
def test_a_text_without_a_device_holds_nothing_and_is_no_fault(books: Books, text: str) -> None:
    books.applied(annotated(text, containers={"containers": names("a", "b")}), type_="ADDED")
    assert books.held_by("u-1") == {}
    assert books.findings_of("u-1") == []


def test_fewer_groups_than_containers_leave_the_rest_without_a_device(books: Books) -> None:
    spec = {"initContainers": names("i0"), "containers": names("a0", "a1", "a2")}
    books.applied(annotated("GPU-a,NVIDIA,100,1:;GPU-a,NVIDIA,200,2:;", containers=spec), type_="ADDED")
    assert books.held_by("u-1") == {"GPU-a": Held(1, 200, 2)}
    assert "ambiguous-layout" not in books.findings_of("u-1")


def test_one_group_per_app_in_a_pod_with_inits_may_mean_two_things(books: Books) -> None:
    spec = {"initContainers": names("i0"), "containers": names("a0", "a1")}
    books.applied(annotated("GPU-a,NVIDIA,700,7:;GPU-a,NVIDIA,300,3:;", containers=spec), type_="ADDED")
    # By position max(700, 300); apps alone 700 + 300.
    assert books.held_by("u-1") == {"GPU-a": Held(2, 1000, 10)}
    assert books.findings_of("u-1") == ["ambiguous-layout"]


@pytest.mark.parametrize("extra", ["", ";", ";;;"])
def test_empty_groups_past_the_pod_are_harmless(books: Books, extra: str) -> None:
    text = f"GPU-a,NVIDIA,700,7:;{extra}"
    books.applied(annotated(text, containers={"containers": names("a")}), type_="ADDED")
    assert books.held_by("u-1") == {"GPU-a": Held(1, 700, 7)}
    assert "row-outside-pod" not in books.findings_of("u-1")


@pytest.mark.parametrize(
    ("policy", "memory_mib"),
    [
        ({"restartPolicy": "Always"}, 8000),
        ({"restartPolicy": None}, 4000),
        ({}, 4000),
        ({"restartPolicy": "always"}, 4000),
        ({"restartPolicy": "OnFailure"}, 4000),
        ({"restartPolicy": "Never"}, 4000),
        ({"restartPolicy": ""}, 4000),
    ],
)
def test_only_always_makes_a_sidecar(books: Books, policy: dict[str, Any], memory_mib: int) -> None:
    spec = {"initContainers": names("i0", **policy), "containers": names("a0", restartPolicy="Always")}
    books.applied(annotated("GPU-a,NVIDIA,4000,0:;GPU-a,NVIDIA,4000,0:;", containers=spec), type_="ADDED")
    assert books.used("n1", "GPU-a").memory_mib == memory_mib


def test_the_suffix_of_an_old_mig_uuid_is_no_device_of_its_own(books: Books) -> None:
    text = "GPU-a[0-0],NVIDIA,5120,14:GPU-a[0-1],NVIDIA,5120,14:;"
    books.applied(annotated(text, containers={"containers": names("a")}), type_="ADDED")
    assert books.held_by("u-1") == {"GPU-a": Held(2, 10240, 28)}


def test_named_cores_are_joined_and_counted(books: Books) -> None:
    """HAMi adds bit masks as if they were numbers."""
    key = "hami.io/aws-neuron-devices-allocated"
    spec = {"initContainers": names("i0"), "containers": names("a0", "a1")}
    text = "n1-AWSNeuron-0,AWSNeuron,0,12:;n1-AWSNeuron-0,AWSNeuron,0,3:;n1-AWSNeuron-0,AWSNeuron,0,6:;"
    pod = annotated(containers=spec, **{key: text})
    books.applied(pod, type_="ADDED")
    assert books.held_by("u-1") == {"n1-AWSNeuron-0": Held(2, 0, 4)}
    assert books.quota_used("team-a", "aws.amazon.com/neuroncore") == 4


def test_a_sized_slice_takes_as_many_slots_as_its_size(books: Books) -> None:
    keys = {
        "hami.io/enflame-vgpu-devices-allocated": "n1-enflame-drs-0,Enflame,12288,34:;",
        "enflame.com/gcu-request-size": "2",
    }
    books.applied(annotated(containers={"containers": names("a")}, **keys), type_="ADDED")
    assert books.held_by("u-1") == {"n1-enflame-drs-0": Held(2, 12288, 34)}


# --- the gate (S7.2) -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statuses", "is_open"),
    [
        (None, False),
        ([{"name": "prep", "lastState": {"terminated": {"exitCode": 0}}}], False),
        ([{"name": "prep", "state": {"running": {}}, "lastState": {"terminated": {"exitCode": 0}}}], False),
        ([{"name": "prep", "state": {"terminated": {"exitCode": 0}}, "lastState": {"running": {}}}], True),
        ([{"name": "prep", "state": {}}], False),
        ([{"name": "prep", "state": None}], False),
        ([{"name": "prep"}], False),
        ([{"name": "prep", "ready": True, "started": False}], False),
        ([{"name": "prep", "state": {"terminated": {"exitCode": -1}}}], False),
        ([{"name": "prep", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}], False),
        ([{"name": "prep", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}], True),
        ([{"name": "other", "state": {"terminated": {"exitCode": 0}}}], False),
        ([{"name": "Prep", "state": {"terminated": {"exitCode": 0}}}], False),
    ],
)  # fmt: skip
def test_the_status_of_the_same_name_says_terminated_with_0_now(
    books: Books, statuses: Any, is_open: bool
) -> None:
    spec = {"initContainers": names("prep"), "containers": names("a0")}
    pod = annotated("GPU-a,NVIDIA,9000,0:;GPU-a,NVIDIA,1000,0:;", containers=spec)
    pod["status"]["initContainerStatuses"] = statuses
    books.applied(pod)
    assert books.pod("u-1")["inits_released"] is is_open
    assert books.used("n1", "GPU-a").memory_mib == (1000 if is_open else 9000)


def test_statuses_of_apps_are_no_evidence(books: Books) -> None:
    pod = say_manifest("init 9000", "app 1000")
    pod["status"]["containerStatuses"] = [{"name": "init-0", "state": {"terminated": {"exitCode": 0}}}]
    books.applied(pod)
    assert not books.pod("u-1")["inits_released"]


# --- events (S7.1, S7.3) -------------------------------------------------------------------------


def test_a_resync_after_the_shrink_is_no_news(books: Books) -> None:
    books.applied(say_manifest("init 9000", "app 1000"), type_="ADDED")
    books.applied(say_manifest("init 9000, succeeded", "app 1000"))
    result = books.event(say_manifest("init 9000, succeeded", "app 1000"))
    assert (result["outcome"], result["rule"]) == ("applied", "unchanged")
    assert books.used("n1", "GPU-a") == Held(1, 1000, 0)


@pytest.mark.parametrize("type_", ["ADDED", "MODIFIED"])
@pytest.mark.parametrize("phrase", ["init 9000", "init 9000, waiting", "init 9000, running"])
def test_a_released_pod_seen_anew_keeps_its_steady_usage(books: Books, type_: str, phrase: str) -> None:
    """Also when its sandbox is made again and the inits run once more: that is a finding, not a charge."""
    books.applied(say_manifest("init 9000, succeeded", "app 1000"))
    books.applied(say_manifest(phrase, "app 1000"), type_=type_)
    assert books.used("n1", "GPU-a") == Held(1, 1000, 0)
    assert books.quota_used("team-a", MEMORY) == 1000
    assert books.pod("u-1")["inits_released"]
    found = [] if phrase == "init 9000" else ["init-rerun-after-shrink"]
    assert books.findings_of("u-1") == found


@pytest.mark.parametrize("type_", ["ADDED", "MODIFIED"])
def test_the_first_event_may_be_of_any_type(books: Books, type_: str) -> None:
    result = books.event(say_manifest("init 9000, succeeded", "app 1000"), type_)
    assert result["rule"] == "charged"
    assert books.held_by("u-1") == {"GPU-a": Held(1, 1000, 0)}


def test_another_node_moves_the_charge(books: Books) -> None:
    books.applied(say_manifest("app 1000", node="n1"), type_="ADDED")
    assert books.event(say_manifest("app 1000", node="n2"))["rule"] == "replaced"
    assert books.used("n1", "GPU-a") == Held()
    assert books.used("n2", "GPU-a") == Held(1, 1000, 0)
    assert books.quota_used("team-a", MEMORY) == 1000


@pytest.mark.parametrize("released", [False, True])
def test_other_devices_replace_the_charge_before_and_after_the_shrink(books: Books, released: bool) -> None:
    run = "succeeded" if released else "running"
    books.applied(say_manifest(f"init 9000, {run}", "app 1000"), type_="ADDED")
    result = books.event(say_manifest(f"init 8000 on GPU-b, {run}", "app 3000 on GPU-b"))
    assert result["rule"] == "replaced"
    assert books.used("n1", "GPU-a") == Held()
    assert books.used("n1", "GPU-b").memory_mib == (3000 if released else 8000)
    assert books.quota_used("team-a", MEMORY) == (3000 if released else 8000)


def test_a_delete_of_a_pod_nobody_knows_releases_nothing_and_is_remembered(books: Books) -> None:
    books.applied(say_manifest("app 700", uid="u-2", name="beside"), type_="ADDED")
    late = say_manifest("app 1000", version=10)
    assert books.event(say_manifest("app 1000", version=11), "DELETED")["rule"] == "deleted"
    assert books.event(late)["outcome"] == "stale"
    assert books.event(say_manifest("app 1000"))["outcome"] == "stale"
    assert books.used("n1", "GPU-a") == Held(1, 700, 0)


@pytest.mark.parametrize("version", [1, 10, 99])
def test_a_delete_is_never_stale(books: Books, version: int) -> None:
    books.applied(say_manifest("app 1000", version=10), type_="ADDED")
    assert books.event(say_manifest("app 1000", version=version), "DELETED")["outcome"] == "applied"
    assert books.used("n1", "GPU-a") == Held()
    assert books.event(say_manifest("app 1000", version=version), "DELETED")["outcome"] == "stale"


def test_a_delete_needs_nothing_but_the_envelope(books: Books) -> None:
    books.applied(say_manifest("app 1000"), type_="ADDED")
    bare = {"kind": "Pod", "metadata": say_manifest("app")["metadata"] | {"annotations": None}}
    books.applied(bare, type_="DELETED")
    assert books.used("n1", "GPU-a") == Held()


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("annotations", [True, False], ids=["annotated", "bare"])
def test_a_terminal_phase_releases_everything_once(books: Books, phase: str, annotations: bool) -> None:
    books.applied(say_manifest("app 700", uid="u-2", name="beside"), type_="ADDED")
    books.applied(say_manifest("init 9000", "app 1000"), type_="ADDED")
    over = say_manifest("init 9000", "app 1000", phase=phase)
    if not annotations:
        over["metadata"]["annotations"] = {}
    assert books.event(over)["rule"] == "terminal"
    assert books.used("n1", "GPU-a") == Held(1, 700, 0)
    assert books.event(say_manifest("app 1000", phase=phase), "DELETED")["rule"] == "deleted"
    assert books.used("n1", "GPU-a") == Held(1, 700, 0)
    assert books.quota_used("team-a", MEMORY) == 700


def test_a_pod_first_seen_at_its_end_was_never_charged(books: Books) -> None:
    books.applied(say_manifest("app 1000", phase="Failed"), type_="ADDED")
    assert books.get("/api/v1/ledger?pod=u-1")["items"] == []


GOING = {"deletionTimestamp": "2026-08-21T00:00:00Z"}


def test_a_terminating_pod_keeps_what_it_has_whatever_its_events_say(books: Books) -> None:
    books.applied(say_manifest("init 9000", "app 1000"), type_="ADDED")
    going = say_manifest("init 9000, succeeded", "app 500 on GPU-b", **GOING)
    assert books.event(going)["rule"] == "terminating"
    assert books.held_by("u-1") == {"GPU-a": Held(1, 9000, 0)}
    bare = say_manifest("init 9000, succeeded", "app 500", **GOING)
    bare["metadata"]["annotations"] = {}
    assert books.event(bare)["rule"] == "terminating"
    assert books.held_by("u-1") == {"GPU-a": Held(1, 9000, 0)}
    books.applied(say_manifest("app 500", phase="Failed", **GOING))
    assert books.held_by("u-1") == {}


def test_a_pod_first_seen_terminating_with_its_inits_done_is_charged_its_steady_usage(books: Books) -> None:
    books.applied(say_manifest("init 9000, succeeded", "app 1000", **GOING), type_="ADDED")
    assert books.held_by("u-1") == {"GPU-a": Held(1, 1000, 0)}


def without_node(*phrases: str, bound: bool) -> dict[str, Any]:
    """The pod without `vgpu-node`, its allocation still there."""
    pod = say_manifest(*phrases)
    del pod["metadata"]["annotations"][NODE_KEY]
    if not bound:
        del pod["spec"]["nodeName"]
    return pod


@pytest.mark.parametrize("bound", [True, False])
def test_a_pod_without_vgpu_node_is_known_and_charged_nothing(books: Books, bound: bool) -> None:
    books.applied(without_node("app 1000", bound=bound), type_="ADDED")
    assert books.pod("u-1")["state"] == "unscheduled"
    assert books.held_by("u-1") == {}
    books.applied(say_manifest("app 1000"))
    assert books.held_by("u-1") == {"GPU-a": Held(1, 1000, 0)}


def test_a_bound_pod_that_loses_vgpu_node_keeps_its_charge_and_an_unbound_one_does_not(books: Books) -> None:
    books.applied(say_manifest("app 1000"), type_="ADDED")
    books.applied(without_node("app 1000", bound=True))
    assert books.held_by("u-1") == {"GPU-a": Held(1, 1000, 0)}
    assert books.findings_of("u-1") == ["vanished-annotation"]
    books.applied(without_node("app 1000", bound=False))
    assert books.held_by("u-1") == {}


def test_a_claim_is_charged_before_it_is_bound(books: Books) -> None:
    claim = say_manifest("app 1000")
    del claim["spec"]["nodeName"]
    books.applied(claim, type_="ADDED")
    assert (books.pod("u-1")["state"], books.used("n1", "GPU-a")) == ("claimed", Held(1, 1000, 0))
    assert books.event(say_manifest("app 1000"))["rule"] == "unchanged"
    assert books.pod("u-1")["state"] == "steady"


@pytest.mark.parametrize("text", ["GPU-a,NVIDIA,100:;", "GPU-a,NVIDIA,1", "garbage:;", "GPU-a,NVIDIA,-1,0:;"])
def test_an_undecodable_annotation_keeps_the_last_good_amount(books: Books, text: str) -> None:
    books.applied(say_manifest("init 9000", "app 1000"), type_="ADDED")
    broken = say_manifest("init 9000, succeeded", "app 1000")
    broken["metadata"]["annotations"][ALLOCATED] = text
    books.applied(broken)
    assert books.held_by("u-1") == {"GPU-a": Held(1, 9000, 0)}
    assert not books.pod("u-1")["inits_released"]
    [finding] = books.pod("u-1")["findings"]
    assert finding["code"] == "undecodable-annotation"
    assert ALLOCATED in finding["detail"]
    assert "offset" in finding["detail"]
    books.applied(say_manifest("init 9000, succeeded", "app 1000"))
    assert books.held_by("u-1") == {"GPU-a": Held(1, 1000, 0)}
    assert books.findings_of("u-1") == []


def test_a_broken_vendor_leaves_the_others(books: Books) -> None:
    """HAMi discards all vendors of the pod."""
    other = {"hami.io/kunlun-allocated": "xpu-x,kunlun,300,30:;"}
    spec = {"containers": names("a")}
    books.applied(annotated("GPU-a,NVIDIA,500,5:;", containers=spec, **other), type_="ADDED")
    other["hami.io/kunlun-allocated"] = "xpu-x,kunlun,400,40:;"
    books.applied(annotated("GPU-a,NVIDIA", containers=spec, **other))
    assert books.held_by("u-1") == {"GPU-a": Held(1, 500, 5), "xpu-x": Held(1, 400, 40)}


def test_a_failed_bind_phase_changes_no_number(books: Books) -> None:
    pod = say_manifest("app 1000")
    pod["metadata"]["annotations"]["hami.io/bind-phase"] = "failed"
    books.applied(pod, type_="ADDED")
    assert books.held_by("u-1") == {"GPU-a": Held(1, 1000, 0)}
    assert books.findings_of("u-1") == ["allocate-failed"]


def test_to_allocate_is_never_what_is_charged(books: Books) -> None:
    pod = say_manifest("app 1000")
    pod["metadata"]["annotations"]["hami.io/vgpu-devices-to-allocate"] = "GPU-b,NVIDIA,9000,0:;"
    books.applied(pod, type_="ADDED")
    assert books.held_by("u-1") == {"GPU-a": Held(1, 1000, 0)}


@pytest.mark.parametrize("first", ["older", "newer"])
def test_of_two_pods_with_one_name_the_newer_lives(books: Books, first: str) -> None:
    older = say_manifest("app 1000", uid="u-old", version=10)
    newer = say_manifest("app 2000", uid="u-new", version=20)
    for pod in (older, newer) if first == "older" else (newer, older):
        books.event(pod, "ADDED")
    assert books.used("n1", "GPU-a") == Held(1, 2000, 0)
    assert books.pod("u-new")["state"] == "steady"
    assert books.held_by("u-old") == {}


def test_one_name_in_two_namespaces_is_two_pods(books: Books) -> None:
    books.applied(say_manifest("app 1000"), say_manifest("app 2000", uid="u-2", namespace="team-b"))
    assert books.used("n1", "GPU-a") == Held(2, 3000, 0)
    assert books.quota_used("team-a", MEMORY) == 1000
    assert books.quota_used("team-b", MEMORY) == 2000


# --- the quota cache (S8) ------------------------------------------------------------------------


def limit_of(books: Books, resource: str = MEMORY) -> int | None:
    """The tightest limit; None without one."""
    hard: int | None = books.quota("team-a").get(resource, {"hard": None})["hard"]
    return hard


def test_usage_alone_is_limited_by_nothing(books: Books) -> None:
    books.applied(say_manifest("app 1000 10"))
    for resource, used in ((MEMORY, 1000), (CORES, 10)):
        found = books.quota("team-a")[resource]
        assert (found["used"], found["hard"], found["headroom"], found["over_by"]) == (used, None, None, 0)


def test_a_limit_goes_with_its_object_and_usage_stays(books: Books) -> None:
    hard = {f"limits.{MEMORY}": "2000", f"limits.{CORES}": "50"}
    books.applied(watch.quota("gpu", hard=hard), say_manifest("app 500 5"))
    assert (limit_of(books), limit_of(books, CORES)) == (2000, 50)
    books.applied(watch.quota("gpu", hard=hard), type_="DELETED")
    assert (limit_of(books), limit_of(books, CORES)) == (None, None)
    assert books.quota_used("team-a", MEMORY) == 500


def test_an_update_may_drop_a_key(books: Books) -> None:
    books.applied(watch.quota("gpu", hard={f"limits.{MEMORY}": "2000", f"limits.{CORES}": "50"}))
    books.applied(watch.quota("gpu", hard={f"limits.{CORES}": "60"}))
    assert (limit_of(books), limit_of(books, CORES)) == (None, 60)


@pytest.mark.parametrize(
    ("value", "hard"),
    [("2000", 2000), (2000, 2000), ("2k", 2000), ("2Ki", 2048), ("2e3", 2000), ("0", 0), ("1.5", None),
     ("2000m", None), ("1500m", None), ("-1", None), ("lots", None), ("", None)],
)  # fmt: skip
def test_a_value_is_a_whole_number_or_no_limit(books: Books, value: Any, hard: int | None) -> None:
    books.applied(watch.quota("gpu", hard={f"limits.{MEMORY}": value}))
    assert limit_of(books) == hard


@pytest.mark.parametrize(
    "key",
    [
        f"requests.{MEMORY}",
        "limits.nvidia.com/gpu",
        "limits.nvidia.com/gpumem-percentage",
        MEMORY,
        f"Limits.{MEMORY}",
        "limits.cpu",
        "pods",
    ],
)
def test_other_keys_limit_nothing(books: Books, key: str) -> None:
    books.applied(watch.quota("gpu", hard={key: "1"}), say_manifest("app 1000"))
    assert limit_of(books) is None
    assert books.quota_used("team-a", MEMORY) == 1000


def test_a_limit_counts_what_was_there_before_it(books: Books) -> None:
    books.applied(say_manifest("app 1000"))
    books.applied(watch.quota("gpu", hard={f"limits.{MEMORY}": "1500"}))
    assert books.quota("team-a")[MEMORY]["headroom"] == 500


def test_a_quota_of_another_namespace_is_another(books: Books) -> None:
    books.applied(
        watch.quota("gpu", hard={f"limits.{MEMORY}": "1000"}),
        watch.quota("gpu", namespace="team-b", hard={f"limits.{MEMORY}": "7000"}),
    )
    assert limit_of(books) == 1000
    assert books.quota("team-b")[MEMORY]["hard"] == 7000


def test_a_pod_that_enters_or_leaves_a_quotas_scope_takes_its_usage_along(books: Books) -> None:
    books.applied(
        watch.quota("all", hard={f"limits.{MEMORY}": "9000"}),
        watch.quota("jobs", hard={f"limits.{MEMORY}": "9000"}, scopes=["Terminating"]),
    )

    def used() -> dict[str, int]:
        return {one["name"]: one["used"] for one in books.quota("team-a")[MEMORY]["quotas"]}

    books.applied(say_manifest("app 700"))
    assert used() == {"all": 700, "jobs": 0}
    job = say_manifest("app 1000")
    job["spec"]["activeDeadlineSeconds"] = 60
    books.applied(job)
    assert used() == {"all": 1000, "jobs": 1000}
    books.applied(say_manifest("app 800"))
    assert used() == {"all": 800, "jobs": 0}


# --- the usage of nodes (S7.4) -------------------------------------------------------------------


def test_the_pods_of_a_card_are_added_up(books: Books) -> None:
    books.applied(
        watch.node("n1", watch.card("GPU-a"), watch.card("GPU-b")),
        say_manifest("app 1000 10", uid="u-1", name="one"),
        say_manifest("app 2000 20 on GPU-a", uid="u-2", name="two"),
        say_manifest("app 100 1 on GPU-a", uid="u-3", name="three", phase="Failed"),
    )
    assert books.used("n1", "GPU-a") == Held(2, 3000, 30)
    assert books.used("n1", "GPU-b") == Held()


def test_an_unknown_card_or_node_leaves_the_others_as_they_are(books: Books) -> None:
    books.applied(
        watch.node("n1", watch.card("GPU-a")),
        say_manifest("app 1000 + 500 on GPU-z", uid="u-1", name="one"),
        say_manifest("app 2000", uid="u-2", name="two", node="nowhere"),
    )
    assert books.used("n1", "GPU-a") == Held(1, 1000, 0)
    assert books.get("/api/v1/nodes/n1/devices/GPU-a")["healthy"]
    cluster = books.get("/api/v1/cluster")
    assert (cluster["memory_mib"]["total"], cluster["memory_mib"]["used"]) == (24576, 1000)
    assert cluster["devices"]["unregistered"] == 2
    assert books.quota_used("team-a", MEMORY) == 3500
    unknown = books.get("/api/v1/devices?finding=unregistered-device")["items"]
    assert [(one["node"], one["uuid"]) for one in unknown] == [("n1", "GPU-z"), ("nowhere", "GPU-a")]


def test_one_uuid_on_two_nodes_is_two_cards(books: Books) -> None:
    books.applied(
        watch.node("n1", watch.card("GPU-0")),
        watch.node("n2", watch.card("GPU-0")),
        say_manifest("app 1000 on GPU-0", node="n1"),
        say_manifest("app 2000 on GPU-0", node="n2", uid="u-2", name="two"),
    )
    assert books.used("n1", "GPU-0").memory_mib == 1000
    assert books.used("n2", "GPU-0").memory_mib == 2000


def test_usage_may_exceed_a_card_and_nothing_is_free_then(books: Books) -> None:
    books.applied(watch.node("n1", watch.card("GPU-a", memory=1000)), say_manifest("app 1500"))
    card = books.get("/api/v1/nodes/n1/devices/GPU-a")
    assert card["memory_mib"] == {"total": 1000, "used": 1500, "free": 0}
    assert [one["code"] for one in card["findings"]] == ["overcommitted"]
    assert "500 MiB" in card["findings"][0]["detail"]

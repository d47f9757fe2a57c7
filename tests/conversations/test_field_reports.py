"""Faults that people met in systems of this kind, from tests/data/field-reports.json: not ours.

The steps that ask (`QUESTIONS`), and the reports that only ask (`OF_QUESTIONS`), are told in test_questions
and by admission; all else is done here, through HTTP.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from typing import Any

import pytest
from django.db import connection

from devservers.pytest_plugin import OPERATOR_TOKEN
from hamiacct import models
from tests import cases, watch
from tests.conftest import client_with
from tests.conversations.books import Books, Held, in_process, over_the_wire
from tests.live import LiveStack

REPORTS: Mapping[str, Mapping[str, Any]] = {
    report["id"]: report for report in cases.read("field-reports.json")
}
MEMORY, CORES = "nvidia.com/gpumem", "nvidia.com/gpucores"
NAMES = {"gpumem": MEMORY, "gpucores": CORES}
Events = Sequence[Mapping[str, Any]]

# Steps and expectations that need an answer to a question; scrapes are read as totals here.
QUESTIONS = frozenset({"fit", "check", "check_in_both_orders", "then"})
# Reports that ask and nothing else (fit, admission, extender), and the admin's bulk delete.
OF_QUESTIONS = {
    *("BR-19", "BR-20", "BR-21", "BR-26", "BR-27", "BR-28"),
    *("BR-29", "BR-32", "BR-33", "BR-34", "BR-36", "BR-42"),
}
TOLD_IN_EVENTS = ["BR-01", "BR-02", "BR-03", "BR-07", "BR-08", "BR-09", "BR-10"]
TOLD_APART = [
    "BR-11",
    "BR-13",
    "BR-14",
    "BR-15",
    "BR-18",
    "BR-35",
    "BR-38",
    "BR-39",
    "BR-43",
    "BR-44",
    "BR-45",
    "BR-46",
]


def test_every_report_is_told_here_or_left_to_the_questions() -> None:
    told = {*TOLD_IN_EVENTS, *TOLD_APART}
    assert told | OF_QUESTIONS == REPORTS.keys()
    assert not told & OF_QUESTIONS
    areas = {"ingest", "recovery", "quota"}
    assert {report["id"] for report in REPORTS.values() if report["area"] in areas} <= told


def given(id_: str) -> Any:
    return REPORTS[id_]["input"]


def expected(id_: str) -> Any:
    return REPORTS[id_]["expected"]


def without_questions(steps: Events) -> list[dict[str, Any]]:
    """The steps that are events."""
    asked = [step for step in steps if "type" not in step]
    assert all(step.keys() <= QUESTIONS | {"scrape"} for step in asked)
    return [dict(step) for step in steps if "type" in step]


def spelled_out(steps: Events) -> Iterator[dict[str, Any]]:
    """Events with whole objects: shorthand is the last pod with another version, phase and statuses."""
    pod: dict[str, Any] = {}
    for step in without_questions(steps):
        if "object" not in step:
            step = {"type": step["type"], "object": changed(pod, step)}
        if step["object"]["kind"] == "Pod":
            pod = step["object"]
        yield step


def changed(pod: Mapping[str, Any], step: Mapping[str, Any]) -> dict[str, Any]:
    """The pod as it is after a step in shorthand."""
    assert step.keys() <= {"type", "resourceVersion", "phase", "initContainerStatuses"}
    status = {
        "phase": step.get("phase", pod["status"]["phase"]),
        "initContainerStatuses": step["initContainerStatuses"],
    }
    metadata = {**pod["metadata"], "resourceVersion": step["resourceVersion"]}
    return {**pod, "metadata": metadata, "status": status}


def is_pod(event: Mapping[str, Any]) -> bool:
    return bool(event["object"]["kind"] == "Pod")


def device(books: Books, uuid: str) -> Held:
    """What is used of the one card of this uuid, registered or not."""
    items = books.get(f"/api/v1/devices?uuid={uuid}")["items"]
    assert len(items) == 1
    return Held(*(items[0][name]["used"] for name in Held._fields))


def assert_devices(books: Books, devices: Mapping[str, Mapping[str, int]]) -> None:
    for uuid, used in devices.items():
        assert device(books, uuid) == Held(used["used"], used["usedmem"], used["usedcores"])


def assert_quotas(books: Books, quotas: Mapping[str, Mapping[str, int]]) -> None:
    for namespace, resources in quotas.items():
        for name, used in resources.items():
            assert books.quota_used(namespace, NAMES[name]) == used


# --- reports that are a list of events -----------------------------------------------------------

HANDLED = {
    "usedmem_GPU-a_after_each_pod_event",
    "slots_after_each_pod_event",
    "quota_used",
    "devices",
    "never",
}


@pytest.mark.parametrize("id_", TOLD_IN_EVENTS)
def test_after_each_event_the_books_are_right(books: Books, id_: str) -> None:
    events = list(spelled_out(given(id_)["events"]))
    right = expected(id_)
    assert right.keys() <= HANDLED | QUESTIONS
    seen = []
    for event in events:
        books.post_events(event)
        if is_pod(event):
            seen.append(device(books, "GPU-a"))
    if "usedmem_GPU-a_after_each_pod_event" in right:
        assert [one.memory_mib for one in seen] == right["usedmem_GPU-a_after_each_pod_event"]
    if "slots_after_each_pod_event" in right:
        assert [one.slots for one in seen] == right["slots_after_each_pod_event"]
    assert right.get("never") not in [one.memory_mib for one in seen]
    assert_devices(books, right.get("devices", {}))
    assert_quotas(books, right.get("quota_used", {}))


@pytest.mark.parametrize("delivery", ["in one call", "backwards", "twice", "backwards, then forwards"])
@pytest.mark.parametrize("id_", TOLD_IN_EVENTS)
def test_however_the_events_arrive_the_end_is_the_same(books: Books, id_: str, delivery: str) -> None:
    events = list(spelled_out(given(id_)["events"]))
    calls = {
        "in one call": [events],
        "backwards": [[event] for event in reversed(events)],
        "twice": [[event] for event in events for _ in range(2)],
        "backwards, then forwards": [events[::-1], events],
    }[delivery]
    for call in calls:
        books.post_events(*call)
    right = expected(id_)
    if "usedmem_GPU-a_after_each_pod_event" in right:
        assert device(books, "GPU-a").memory_mib == right["usedmem_GPU-a_after_each_pod_event"][-1]
    assert_devices(books, right.get("devices", {}))
    assert_quotas(books, right.get("quota_used", {}))


def test_br01_a_late_copy_of_a_delete_is_stale_and_the_successor_is_left_alone(books: Books) -> None:
    results = [books.post_events(event)[0] for event in given("BR-01")["events"]]
    assert [one["outcome"] for one in results] == ["applied"] * 4 + ["stale"]
    assert books.pod("u-1")["state"] == "ended"
    assert books.held_by("u-2") == {"GPU-a": Held(1, 4000, 0)}


def test_br02_the_pod_that_lost_its_name_was_superseded(books: Books) -> None:
    books.post_events(*given("BR-02")["events"])
    assert books.pod("u-1")["state"] == "ended"
    lines = books.get("/api/v1/ledger?pod=u-1")["items"]
    assert [(line["rule"], line["memory_mib"]) for line in lines] == [
        ("charged", 8000),
        ("superseded", -8000),
    ]


def test_br03_versions_are_compared_as_numbers(books: Books) -> None:
    results = [books.post_events(event)[0] for event in given("BR-03")["events"]]
    outcomes = ["applied", "applied", "applied", "stale", "applied", "stale"]
    assert [one["outcome"] for one in results] == outcomes


# --- quotas --------------------------------------------------------------------------------------


def test_br11_what_is_given_per_card_is_charged_once_per_card(books: Books) -> None:
    books.post_events(*given("BR-11")["events"])
    for namespace, resources in expected("BR-11")["quota"].items():
        for name, right in resources.items():
            found = books.quota(namespace)[NAMES[name]]
            assert (found["used"], found["hard"]) == (right["used"], right["hard"])
            assert found["headroom"] == right["remaining"]
    books.post_events(*without_questions(given("BR-11")["then"]))
    found = books.quota("demo")
    assert (found[MEMORY]["headroom"], found[CORES]["headroom"]) == (2, 10)


@pytest.mark.parametrize("order", given("BR-13")["orders"])
def test_br13_the_tightest_quota_holds_while_it_exists(books: Books, order: str) -> None:
    strict, loose, loose_gone, strict_gone = without_questions(given("BR-13")["events"])
    assert strict["object"]["metadata"]["name"] == "strict"
    first = [strict, loose] if order == "strict then loose" else [loose, strict]
    hard = []
    for event in [*first, loose_gone, strict_gone]:
        assert books.post_events(event)[0]["outcome"] == "applied"
        hard.append(books.quota("team-a").get(MEMORY, {"hard": None})["hard"])
    assert hard == [1000 if order == "strict then loose" else 5000, 1000, 1000, None]


def test_br14_keys_that_nobody_enforces_are_listed(books: Books) -> None:
    books.post_events(*given("BR-14")["events"], *without_questions(given("BR-14")["then"]))
    found = books.get("/api/v1/namespaces/team-a/quota")
    bounds = [bound for resource in found["resources"] for bound in resource["quotas"]]
    for name, listing in expected("BR-14")["quota_listing"].items():
        assert [bound["key"] for bound in bounds if bound["name"] == name] == listing["enforced"]
        others = sorted(one["key"] for one in found["not_enforced"] if one["quota"] == name)
        assert others == listing.get("not_enforced_here", [])
    assert all(one["reason"] for one in found["not_enforced"])
    # What the apiserver enforces itself is no mistake; the misspelt key and the count are.
    assert [finding["code"] for finding in found["findings"]] == ["quota-key-not-enforced"] * 2


def test_br15_each_init_meets_the_sidecars_before_it_and_each_dimension_its_own_maximum(
    books: Books,
) -> None:
    node, added, later = given("BR-15")["events"]
    assert later["initContainerStatuses"] == "i1 and i2 exited 0, s1 and s2 running"
    statuses = [
        {"name": name, "state": {"terminated": {"exitCode": 0}} if name[0] == "i" else {"running": {}}}
        for name in ("s1", "i1", "s2", "i2")
    ]
    done = changed(added["object"], {**later, "resourceVersion": "11", "initContainerStatuses": statuses})
    right = expected("BR-15")
    books.post_events(node, added)
    assert_devices(books, right["while_init"]["devices"])
    flat = right["wrong_flat_answer"]
    assert device(books, "GPU-a").memory_mib != flat["mem"]

    steps = {step["name"]: step for step in books.get("/api/v1/pods/u-mix/explain")["steps"]}
    for name in ("i1", "i2"):
        [own], [before] = steps[name]["usage"], steps[name]["steady"]
        # An init leaves `steady` as it found it: the sidecars declared before it.
        total = {short: own[long] + before[long] for short, long in SHORT.items()}
        assert total == right["parts"][name]
    [steady] = steps["app"]["steady"]
    assert {short: steady[long] for short, long in SHORT.items()} == right["parts"]["steady"]

    books.post_events({"type": later["type"], "object": done})
    assert_devices(books, right["after_init"]["devices"])


SHORT = {"mem": "memory_mib", "cores": "cores", "slots": "slots"}


def test_br18_what_two_checkers_would_look_at(books: Books) -> None:
    """The race itself is one of filter calls; here is what both of them find."""
    node, quota, running = given("BR-18")["given"]
    assert running == {"running": "team-a/x holds GPU-a 8000"}
    books.applied(node, quota, watch.pod("x", "GPU-a 8000 0"), type_="ADDED")
    found = books.quota("team-a")[MEMORY]
    assert (found["used"], found["hard"], found["headroom"]) == (8000, 10000, 2000)


def test_br35_a_limit_below_use_touches_nothing_that_runs(books: Books) -> None:
    events = without_questions(given("BR-35")["events"])
    right = expected("BR-35")
    cut = next(number for number, event in enumerate(events) if event["type"] == "MODIFIED")
    books.post_events(*events[: cut + 1])
    found = books.get("/api/v1/namespaces/team-a/quota")
    [row] = found["resources"][:1]
    assert row["resource"] == MEMORY
    shown = {
        "used": row["used"],
        "hard": row["hard"],
        "remaining": row["headroom"],
        "over_by": row["over_by"],
    }
    assert shown == right["admin_row"]
    assert found["findings"][0]["code"] == "limit-below-use"
    assert "2000" in found["findings"][0]["detail"]
    running = books.get("/api/v1/pods?namespace=team-a&state=steady")["items"]
    assert len(running) == right["running_pods_after_cut"]

    books.post_events(*events[cut + 1 :])
    found = books.get("/api/v1/namespaces/team-a/quota")
    assert (found["resources"][0]["used"], found["resources"][0]["headroom"]) == (3000, 1000)
    assert found["findings"] == []


# --- counters ------------------------------------------------------------------------------------


def test_br38_what_is_released_twice_is_released_once(books: Books) -> None:
    """With a second pod running, from which a clamp at zero would steal."""
    events = without_questions(given("BR-38")["events"])
    metrics = expected("BR-38")["metric"]
    quota_used = metrics["hami_resource_quota_used{namespace=team-a}"]
    card_bytes = metrics["hami_gpu_memory_allocated_bytes{device_uuid=GPU-a}"]
    beside = 700
    books.post_events(*(event for event in events if not is_pod(event)))
    books.applied(watch.pod("beside", f"GPU-a {beside} 0"), type_="ADDED")
    seen = []
    for event in filter(is_pod, events):
        books.post_events(event)
        seen.append((books.quota_used("team-a", MEMORY) - beside, device(books, "GPU-a").memory_mib - beside))
    assert [quota for quota, _ in seen] == quota_used
    assert [card * 2**20 for _, card in seen] == card_bytes


def test_br39_a_node_that_is_gone_has_no_capacity_and_its_pods_stay_charged(books: Books) -> None:
    right = expected("BR-39")
    scrapes = iter([right["scrape1"], right["scrape2"]])
    for step in given("BR-39")["events"]:
        if "scrape" not in step:
            books.post_events(step)
            continue
        scrape = next(scrapes)
        assert_quotas(books, scrape["quota_used"])
        cluster = books.get("/api/v1/cluster")
        assert cluster["memory_mib"]["total"] == right["scrape1"]["cluster_total_mem"]
        assert cluster["memory_mib"]["used"] == 0
        assert [node["name"] for node in books.get("/api/v1/nodes")["items"]] == ["n2"]
        on_n1 = books.get("/api/v1/devices?node=n1")["items"]
        assert not any(card["registered"] for card in on_n1)
    assert device(books, "GPU-a") == Held()


# --- scale ---------------------------------------------------------------------------------------


def life_of(uid: str) -> list[dict[str, Any]]:
    """The pod of BR-43 under a uid and name of its own: its three events, lowest version first."""
    assert given("BR-43")["pod"] == "warm (init) 9000, main 4000 on GPU-a"
    events = []
    for step in given("BR-43")["events_for_one_pod"][1:]:
        pod = watch.pod(uid, "GPU-a 9000 0", "GPU-a 4000 0", inits=1, uid=uid, phase=step["phase"])
        pod["spec"]["initContainers"][0]["name"] = "warm"
        pod["metadata"]["resourceVersion"] = step["resourceVersion"]
        pod["status"]["initContainerStatuses"] = step["init"]
        events.append({"type": "MODIFIED", "object": pod})
    return events


ORDERS = list(permutations(range(3)))


def sent_in_every_order() -> list[list[dict[str, Any]]]:
    """Six pods, each with another order of the same life, each event twice."""
    sent = []
    for number, order in enumerate(ORDERS):
        life = life_of(f"u-{number}")
        sent.append([life[place] for place in order for _ in range(2)])
    return sent


def assert_all_over(books: Books) -> None:
    right = expected("BR-43")["final_in_every_order"]
    assert_devices(books, right["devices"])
    assert_quotas(books, right["quota_used"])
    assert {books.pod(f"u-{number}")["state"] for number in range(len(ORDERS))} == {"ended"}
    books.agree()


@pytest.mark.parametrize("order", ORDERS)
def test_br43_every_order_of_a_life_ends_alike(books: Books, order: tuple[int, ...]) -> None:
    books.post_events(given("BR-43")["events_for_one_pod"][0])
    life = life_of("u-1")
    for count, place in enumerate([place for place in order for _ in range(2)]):
        books.post_events(life[place])
        # 9000 while the init runs, 4000 after it, nothing from the end on: the highest version seen.
        highest = max(order[: count // 2 + 1])
        assert device(books, "GPU-a").memory_mib == (9000, 4000, 0)[highest]
    assert_quotas(books, expected("BR-43")["final_in_every_order"]["quota_used"])


@pytest.mark.django_db(transaction=True)
def test_br43_many_requests_at_once_end_alike() -> None:
    """Each event of each pod is a request of its own, four at any time, in the web process."""
    books = Books(in_process(client_with(OPERATOR_TOKEN)))
    books.post_events(given("BR-43")["events_for_one_pod"][0])
    sent = sent_in_every_order()
    turns = [life[place] for place in range(len(sent[0])) for life in sent]

    def send(event: dict[str, Any]) -> int:
        try:
            response = client_with(OPERATOR_TOKEN).post("/api/v1/events", {"events": [event]}, format="json")
            return int(response.status_code)
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(send, turns)) == {200}
    assert_all_over(books)


def test_br43_workers_in_processes_of_their_own_end_alike(live_stack: Any) -> None:
    stack: LiveStack = live_stack()
    stack.start_worker("second")
    books = Books(over_the_wire(stack))
    books.post_events(given("BR-43")["events_for_one_pod"][0])
    for place in range(2 * len(ORDERS[0])):
        status, body = books.call(
            "POST", "/api/v1/events", {"events": [life[place] for life in sent_in_every_order()]}
        )
        assert (status, body["rejected"]) == (202, [])
    # Once a later copy of each is settled, so is all that came before it.
    books.post_events(*(event for life in sent_in_every_order() for event in life))
    assert_all_over(books)


# --- recovery ------------------------------------------------------------------------------------


def test_br44_a_full_list_ends_what_it_does_not_hold_and_judges_what_it_does(books: Books) -> None:
    right = expected("BR-44")
    books.post_events(*given("BR-44")["before"])
    assert_devices(books, right["before"]["devices"])
    assert_quotas(books, right["before"]["quota_used"])
    status, result = books.call("POST", "/api/v1/snapshots", given("BR-44")["resync"])
    assert status == 200, result
    assert {name: result[name] for name in ("kind", "version", "added", "changed", "unchanged", "ended")} == {
        "kind": "Pod",
        "version": 900,
        "added": 0,
        "changed": 1,
        "unchanged": 0,
        "ended": 1,
    }
    books.agree()
    assert_devices(books, right["after"]["devices"])
    assert_quotas(books, right["after"]["quota_used"])
    assert books.pod("u-a")["state"] == "ended"
    assert books.pod("u-c")["inits_released"]
    # A copy of the lost pod's past, delivered late, is past.
    assert books.post_events(given("BR-44")["before"][1])[0]["outcome"] == "stale"


def test_br45_usage_outlives_a_flap_of_the_inventory(books: Books) -> None:
    right = expected("BR-45")
    pod_seen = False
    for event in without_questions(given("BR-45")["events"]):
        books.post_events(event)
        pod_seen = pod_seen or is_pod(event)
        if pod_seen:
            assert_quotas(books, right["quota_used_throughout"])
            assert device(books, "GPU-a").memory_mib == 20000
        if event["object"]["metadata"]["resourceVersion"] == "20":
            card = books.get("/api/v1/nodes/n1/devices/GPU-a")
            assert not card["registered"]
            assert {one["code"] for one in card["findings"]} == {"usage-on-missing-device"}
            assert books.get("/api/v1/cluster")["memory_mib"]["free"] == 0
    assert_devices(books, right["devices_after"])
    card = books.get("/api/v1/nodes/n1/devices/GPU-a")
    assert (card["registered"], card["memory_mib"]["free"], card["findings"]) == (True, 4576, [])


def test_br46_a_drift_is_found_repaired_once_and_written_down(books: Books) -> None:
    told = given("BR-46")["given"]
    right = expected("BR-46")["reconcile"]["gpumem"]
    books.applied(told["node"], told["quota"], type_="ADDED")
    books.applied(
        *(
            watch.pod(one["name"], f"{one['device']} {one['gpumem']} 0", namespace="shop")
            for one in told["running_pods"]
        ),
        type_="ADDED",
    )
    drifted = told["stored_quota_used"]["shop"]["gpumem"]
    assert (right["stored"], right["delta"]) == (drifted, right["actual"] - drifted)
    models.NamespaceUsage.objects.filter(namespace="shop").update(memory_mib=drifted)
    models.QuotaUsage.objects.filter(quota__namespace="shop").update(memory_mib=drifted)
    assert books.quota("shop")[MEMORY]["headroom"] == 0

    audit = books.get("/api/v1/audit")
    assert not audit["ok"]
    found = {one["book"]: (one["key"], one["stored"]["memory_mib"], one["expected"]["memory_mib"])
             for one in audit["discrepancies"]}  # fmt: skip
    assert found == {
        "namespaces": ("shop NVIDIA", drifted, right["actual"]),
        "quotas": ("shop/default NVIDIA", drifted, right["actual"]),
    }
    last = books.get("/api/v1/ledger?namespace=shop")["items"][-1]["seq"]
    status, body = books.call("POST", "/api/v1/audit/repair")
    assert status == 200, body
    repaired = {one["book"]: (one["was"]["memory_mib"], one["is"]["memory_mib"]) for one in body["repaired"]}
    assert repaired == dict.fromkeys(("namespaces", "quotas"), (drifted, right["actual"]))
    books.agree()
    shown = books.quota("shop")[MEMORY]
    assert (shown["used"], shown["headroom"]) == (right["actual"], drifted - right["actual"])
    assert shown["headroom"] >= 64

    lines = books.get(f"/api/v1/ledger?namespace=shop&after={last}")["items"]
    assert [line["rule"] for line in lines] == ["repaired", "repaired"]
    assert all((line["slots"], line["memory_mib"], line["cores"]) == (0, 0, 0) for line in lines)
    assert all(str(drifted) in line["reason"] and str(right["actual"]) in line["reason"] for line in lines)

    assert expected("BR-46")["second_reconcile_delta"] == 0
    assert books.call("POST", "/api/v1/audit/repair") == (200, {"repaired": []})
    assert books.get(f"/api/v1/ledger?namespace=shop&after={lines[-1]['seq']}")["items"] == []

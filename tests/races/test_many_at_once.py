"""Several clients and two workers at the same pods, out of order and twice: no deadlock, one right end.

RACE_SEEDS (default 1) is how many random histories are told, RACE_FIRST_SEED (1) where the seeds begin.
"""

import itertools
import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests import watch
from tests.live import Answer, LiveStack
from tests.model.delivery import KINDS, FullList
from tests.model.lives import watch_event
from tests.model.service import ThroughWorkers, everything
from tests.races import crowd

Start = Callable[..., LiveStack]


def with_two_workers(live_stack: Start, **settings: Any) -> LiveStack:
    """Two workers, and beat for what they had to leave waiting."""
    stack = live_stack(worker=False, beat=True, **settings)
    stack.start_worker("one", concurrency=1)
    stack.start_worker("two", concurrency=1)
    return stack


@pytest.fixture(params=["two workers", "in the request"])
def stack(request: pytest.FixtureRequest, live_stack: Start) -> Iterator[LiveStack]:
    stack = with_two_workers(live_stack) if request.param == "two workers" else live_stack(redis=False)
    yield stack
    crowd.switch_off(stack)


@pytest.mark.parametrize("seed", crowd.SEEDS)
def test_random_lives_told_by_many_at_once_come_to_one_end(stack: LiveStack, seed: int) -> None:
    _, events = crowd.history(seed, steps=500)
    clients = crowd.Crowd(stack)
    with crowd.meanwhile(stack, crowd.books_agree):
        clients.send(crowd.shuffled_calls(seed, events))
        clients.finish()
        crowd.comes_to(stack, events)
    crowd.nobody_complained(stack)


def test_one_pods_events_in_all_orders_and_each_twice_end_alike(stack: LiveStack) -> None:
    """BR-43: the result depends only on the highest version, not on which worker finished last."""
    orders = list(itertools.permutations((199, 200, 201)))
    node = watch.node("n1", watch.card("GPU-a"), version=1)
    assert stack.post("/api/v1/events", watch.events(node)).status in (200, 202)
    with crowd.meanwhile(stack, crowd.books_agree), ThreadPoolExecutor(4) as pool:
        for place, order in enumerate(orders):
            twice = [version for version in order for _ in range(2)]
            sent = [pool.submit(stack.post, "/api/v1/events", br_43(place, version)) for version in twice]
            assert all(future.result().status in (200, 202) for future in sent)
        crowd.wait_until_settled(stack)
    pods = {pod["uid"]: pod for pod in everything(ThroughWorkers(stack).get, "/api/v1/pods")}
    assert {uid: (pod["state"], pod["usage"]) for uid, pod in pods.items()} == {
        f"uid-{place}": ("ended", []) for place in range(len(orders))
    }
    device = stack.get("/api/v1/nodes/n1/devices/GPU-a").body
    assert [device[size]["used"] for size in ("slots", "memory_mib", "cores")] == [0, 0, 0]
    used = {one["used"] for one in stack.get("/api/v1/namespaces/team-a/quota").body["resources"]}
    assert used <= {0}
    below_zero = dict.fromkeys(pods, 0)
    for line in stack.get("/api/v1/ledger?limit=1000").body["items"]:
        below_zero[line["pod_uid"]] += line["memory_mib"]
        assert below_zero[line["pod_uid"]] >= 0
    crowd.nobody_complained(stack)


def br_43(place: int, version: int) -> dict[str, Any]:
    """One of the three events of a pod of its own: it warms up, serves, and has succeeded."""
    state = {"running": {}} if version == 199 else {"terminated": {"exitCode": 0}}
    pod = watch.pod(
        f"pod-{place}", "GPU-a 9000 0", "GPU-a 4000 0", inits=1, uid=f"uid-{place}", version=version
    )
    pod["status"] = {
        "phase": {199: "Pending", 200: "Running", 201: "Succeeded"}[version],
        "initContainerStatuses": [{"name": "c0", "state": state}],
    }
    return watch.events(pod, type_="MODIFIED")


def test_full_lists_while_events_stream_take_nothing_away(stack: LiveStack) -> None:
    """A list is older than some of what is on its way and newer than the rest."""
    cluster = crowd.Cluster(43, crowd.STEADY)
    rng = random.Random(43)
    clients = crowd.Crowd(stack, clients=3)
    told = []
    applied = 0
    with crowd.meanwhile(stack, crowd.books_agree):
        for _ in range(25):
            happened = [cluster.step() for _ in range(rng.randrange(5, 25))]
            told += happened
            clients.send(crowd.shuffled_calls(rng.randrange(1000), happened, biggest=10))
            applied += take(
                stack, crowd.list_of(cluster, rng.choice(("Pod", "Pod", "Node", "ResourceQuota")))
            )
        told += (buried := cluster.bury())
        clients.send([buried])
        clients.finish()
        crowd.wait_until_settled(stack)
    assert applied > 0
    for kind in KINDS:
        assert take(stack, crowd.list_of(cluster, kind))
    crowd.comes_to(stack, told)
    crowd.nobody_complained(stack)


def take(stack: LiveStack, full: FullList) -> bool:
    """Sends a list; whether it was applied. One that is too old by now, or too short, may be refused."""
    answer = crowd.post_until_taken(stack, "/api/v1/snapshots", full.body())
    assert answer.status in (200, 409), answer
    return answer.status == 200


def test_two_full_lists_and_the_events_at_the_same_time(stack: LiveStack) -> None:
    """Everybody tells everything at once."""
    cluster, events = crowd.history(seed=44, steps=400)
    body = {"events": [watch_event(event) for event in events]}
    listed: list[Future[Answer]] = []
    with ThreadPoolExecutor(8) as pool:
        sent = [pool.submit(crowd.post_until_taken, stack, "/api/v1/events", body) for _ in range(2)]
        for kind in KINDS:
            full = crowd.list_of(cluster, kind).body()
            listed += [
                pool.submit(crowd.post_until_taken, stack, "/api/v1/snapshots", full) for _ in range(2)
            ]
        assert {future.result().status for future in sent} <= {200, 202}
        assert {future.result().status for future in listed} <= {200, 409}
    crowd.wait_until_settled(stack)
    for kind in KINDS:
        assert take(stack, crowd.list_of(cluster, kind))
    crowd.comes_to(stack, events)
    crowd.nobody_complained(stack)

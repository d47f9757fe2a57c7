"""Pods come and go while the watcher is killed again and again: at the end the books equal a fresh list.

CHURN_PODS (100) is how many pods live, CHURN_KILLS (3, with workers 1) how often the watcher is killed,
CHURN_SEED (1) what the chances are. With CHURN_LEASE=1 a second watcher stands by, and the lease of a killed
one runs out by itself. HAMIACCT_TEST_KUBECONFIG names a cluster to try this on besides the tests' own.
"""

import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rest_framework.test import APIClient

from hamiacct import models
from hamiacct.operations import watching
from tests.cluster.clusters import Cluster
from tests.cluster.lives import NOTHING, World
from tests.live import LiveStack
from tests.model.books import Books
from tests.model.service import InTheRequest, everything
from tests.waiting import until

PODS = int(os.environ.get("CHURN_PODS", "100"))
KILLS = int(os.environ.get("CHURN_KILLS", "0"))
SEED = int(os.environ.get("CHURN_SEED", "1"))
WAITS_FOR_LEASE = os.environ.get("CHURN_LEASE") == "1"

SIZES = ("slots", "memory_mib", "cores")
SECONDS_TO_TAKE_OVER = 15.0
SECONDS_TO_CATCH_UP = 120.0
"""A list that ends more than a fifth of the pods is believed a minute later, when another says the same."""

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("redis", [False, True], ids=["the watcher alone", "with worker and Redis"])
def test_the_books_equal_a_fresh_list(
    cluster: Cluster, api: APIClient, tmp_path: Path, transactional_db: None, redis: bool
) -> None:
    world = World(cluster, random.Random(SEED))
    world.build()
    world.begin_pods(PODS)
    kubeconfig = cluster.account(tmp_path, "hamiacct-watcher")
    stack = LiveStack(tmp_path, with_redis=redis, settings={"HAMIACCT_KUBECONFIG": str(kubeconfig)})
    try:
        if redis:
            stack.flush_redis()
            stack.start_worker()
            stack.start_beat()  # who is killed between an event and its wake-up wakes nobody
        Trial(world, stack, InTheRequest(api)).run(KILLS or (1 if redis else 3))
    finally:
        stack.close()


class Trial:
    """The cluster, the watchers of it, and the books."""

    def __init__(self, world: World, stack: LiveStack, service: InTheRequest) -> None:
        self.world = world
        self.stack = stack
        self.get: Callable[[str], Any] = service.get

    def run(self, kills: int) -> None:
        self.start("one")
        if WAITS_FOR_LEASE:
            self.start("two")
        self.until_heard()
        # A pod makes about eight steps.
        share = PODS * 8 // (kills + 1)
        for number in range(kills):
            self.steps(share - self.world.rng.randrange(share // 4))
            self.kill()
            self.steps(self.world.rng.randrange(5, 25))
            if number % 2:
                self.until_heard()
        self.world.finish()
        expected = self.world.listed()
        try:
            until(lambda: not self.differences(expected), SECONDS_TO_CATCH_UP, every=0.2)
        except TimeoutError:
            logs = [(self.stack.folder / f"{name}.log").read_text()[-3000:] for name in self.stack.processes]
            pytest.fail("\n".join([*self.differences(expected)[:20], *logs]))
        self.ledger_agrees(expected)

    def start(self, name: str) -> None:
        self.stack.start_watcher(name)

    def kill(self) -> None:
        """Whoever watches, in the middle of whatever it does; some things happen before another is there."""
        holder = models.WatchLease.objects.get().holder
        name = next((one for one in ("one", "two") if self.is_holder(one, holder)), "one")
        self.stack.kill(name)
        self.steps(self.world.rng.randrange(5, 25))
        if not WAITS_FOR_LEASE:
            watching.give_up_lease(holder)
        self.start(name)

    def is_holder(self, name: str, holder: str) -> bool:
        return name in self.stack.processes and f"-{self.stack.processes[name].pid}-" in holder

    def steps(self, count: int) -> None:
        for _ in range(count):
            if not self.world.is_over:
                self.world.step()

    def until_heard(self) -> None:
        """A pod that is made now is in the books."""
        uid = self.world.add_bystander()
        until(models.Pod.objects.filter(uid=uid).exists, SECONDS_TO_TAKE_OVER + 5)

    # --- the books

    def differences(self, expected: Books) -> list[str]:
        return [
            *self.wrong_pods(expected),
            *self.wrong_devices(expected),
            *self.wrong_quotas(expected),
            *map(str, self.get("/api/v1/audit").body["discrepancies"]),
        ]

    def wrong_pods(self, expected: Books) -> Iterator[str]:
        stored = {
            pod["uid"]: pod
            for namespace in self.world.namespaces
            for pod in everything(self.get, f"/api/v1/pods?namespace={namespace}")
        }
        for uid, account in expected.pods.items():
            if account.lives and uid in self.world.foreign and uid in stored:
                yield f"{uid} carries nothing of ours and is stored"
            if account.lives and uid not in self.world.plain and uid not in stored:
                yield f"{uid} is missing"
        for uid, pod in stored.items():
            known = expected.pods.get(uid)
            state = known.state if known else "ended"
            held = {device[:2]: tuple(share) for device, share in known.held.items()} if known else {}
            usage = {(one["node"], one["device"]): tuple(map(one.get, SIZES)) for one in pod["usage"]}
            if (pod["state"], usage) != (state, held):
                yield f"{uid} is {pod['state']} with {usage}, and should be {state} with {held}"

    def wrong_devices(self, expected: Books) -> Iterator[str]:
        found, registered = {}, set()
        for one in everything(self.get, "/api/v1/devices"):
            if one["node"] in self.world.nodes:
                place = one["node"], one["uuid"]
                found[place] = tuple(one[size]["used"] for size in SIZES)
                registered |= {place} if one["registered"] else set()
        wanted = {place: tuple(share) for place, share in expected.device_totals().items()}
        for place in found.keys() | wanted.keys():
            if found.get(place, NOTHING) != wanted.get(place, NOTHING):
                yield f"{place} has {found.get(place)}, and should have {wanted.get(place)}"
        if registered != expected.cards.keys():
            yield f"registered are {registered}, and should be {expected.cards.keys()}"

    def wrong_quotas(self, expected: Books) -> Iterator[str]:
        for namespace in self.world.namespaces:
            body = self.get(f"/api/v1/namespaces/{namespace}/quota").body
            found = {
                (quota["name"], quota["key"]): (quota["hard"], quota["used"])
                for one in body["resources"]
                for quota in one["quotas"]
            }
            if found != expected.quotas_of(namespace):
                yield f"{namespace} has {found}, and should have {expected.quotas_of(namespace)}"

    def ledger_agrees(self, expected: Books) -> None:
        """Line by line every pod has a charge that it had at some time, and in the end the one it has."""
        sums: dict[tuple[str, str, str], tuple[int, ...]] = defaultdict(lambda: NOTHING)
        for line in everything(self.get, "/api/v1/ledger"):
            uid, place = line["pod_uid"], (line["node"], line["device"])
            if uid not in self.world.allowed:  # another's pod in a cluster that others use
                continue
            total = tuple(had + line[size] for had, size in zip(sums[uid, *place], SIZES, strict=True))
            assert total in self.world.allowed[uid].get(place, {NOTHING}), (line, total)
            sums[uid, *place] = total
        held = {
            (uid, device.node, device.uuid): tuple(share)
            for uid, account in expected.pods.items()
            for device, share in account.held.items()
        }
        assert {place: total for place, total in sums.items() if any(total)} == held

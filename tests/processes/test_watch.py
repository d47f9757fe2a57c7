"""The watcher as it runs: a process, a cluster that speaks HTTP, and books that are right from then on."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hamiacct import models
from hamiacct.accounting.words import Kind, WatchState
from hamiacct.operations import audit
from tests import watch
from tests.kubeapi.server import ApiServer
from tests.live import LiveStack

pytestmark = pytest.mark.django_db(transaction=True)

CARDS = [watch.card("GPU-a"), watch.card("GPU-b")]
SECONDS_TO_END = 2.0
SECONDS_TO_TAKE_OVER = 15.0


class World:
    """A cluster of one node, the watchers of it, and what the books say."""

    def __init__(self, cluster: ApiServer, folder: Path, **settings: str) -> None:
        self.cluster = cluster
        kubeconfig = cluster.kubeconfig(folder)
        self.stack = LiveStack(
            folder, with_redis=False, settings={"HAMIACCT_KUBECONFIG": str(kubeconfig), **settings}
        )
        cluster.create(watch.node("n1", *CARDS))

    def start(self, name: str = "watcher") -> None:
        self.stack.start_watcher(name)

    def start_and_follow(self) -> None:
        """Returns when all three kinds are watched."""
        self.start()
        self.until_followed()

    def until_followed(self) -> None:
        for resource in ("nodes", "resourcequotas", "pods"):
            self.cluster.wait(lambda resource=resource: self.cluster.watching(resource) == 1, 20)  # type: ignore[misc]

    def add_pod(self, name: str, memory_mib: int = 1024) -> dict[str, Any]:
        return self.cluster.create(watch.pod(name, f"GPU-a {memory_mib} 10"))

    def used_mib(self) -> int:
        return sum(models.Device.objects.values_list("memory_mib_used", flat=True))

    def log(self, name: str = "watcher") -> str:
        return (self.stack.folder / f"{name}.log").read_text()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ApiServer() as cluster:
        world = World(cluster, tmp_path)
        yield world
        world.stack.close()


def until(is_so: Callable[[], Any], seconds: float = 10.0) -> None:
    ends = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < ends, "it did not come to that"
        time.sleep(0.02)


def agreed() -> bool:
    return audit.audit().ok


def states() -> dict[Kind, tuple[WatchState, str]]:
    return {Kind(row.kind): (WatchState(row.state), row.detail) for row in models.Watch.objects.all()}


def test_the_books_are_right_from_the_start_and_follow(world: World) -> None:
    world.add_pod("there-before")
    world.cluster.create(watch.quota("q", hard={"limits.nvidia.com/gpumem": "5000"}))
    world.start_and_follow()
    assert world.used_mib() == 1024
    world.add_pod("came-later", 2048)
    until(lambda: world.used_mib() == 3072)
    world.cluster.change("Pod", "there-before", {"status": {"phase": "Succeeded"}}, "team-a")
    until(lambda: world.used_mib() == 2048)
    assert all(feed.listed_at for feed in models.Feed.objects.all())
    assert {state for state, _ in states().values()} == {WatchState.WATCHING}

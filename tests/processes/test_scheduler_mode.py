"""The web process in scheduler mode refuses to start beside HAMi's own scheduler, and says so."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import watch
from tests.asking import asking
from tests.kubeapi.server import ApiServer
from tests.live import LiveStack
from tests.scheduling import lease

ROOT = Path(__file__).parents[2]


@pytest.fixture
def cluster() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


def test_the_start_is_refused_with_a_message_and_a_status(cluster: ApiServer, tmp_path: Path) -> None:
    cluster.create(lease(holder="hami-scheduler-7d9_c708d8f6"))
    mode = {"HAMIACCT_SCHEDULER_MODE": "1", "HAMIACCT_KUBECONFIG": str(cluster.kubeconfig(tmp_path))}
    command = [sys.executable, "-m", "hamiacct.server", "--port", "1"]
    ended = subprocess.run(
        command, cwd=ROOT, env=os.environ | mode, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert "HAMi's own scheduler is at work: hami-scheduler-7d9_c708d8f6 holds the lease" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.django_db(transaction=True)
def test_it_starts_once_the_lease_has_run_out_and_binds(
    cluster: ApiServer, tmp_path: Path, live_stack: Callable[..., LiveStack]
) -> None:
    cluster.create(lease(holder="hami-scheduler-7d9_c708d8f6", seconds_ago=60))
    node = cluster.create(watch.node("n1", watch.card("GPU-a")))
    pod = asking("p", gpumem=1000)
    pod["metadata"] |= {"namespace": "team-a", "uid": "uid-p"}
    pod = cluster.create({"kind": "Pod", "status": {}, **pod})
    stack = live_stack(
        redis=False,
        HAMIACCT_TRUST_EVENTS=1,
        HAMIACCT_SCHEDULER_MODE=1,
        HAMIACCT_KUBECONFIG=cluster.kubeconfig(tmp_path),
    )
    assert stack.post("/api/v1/events", watch.events(node)).status == 200
    filtered = stack.post("/extender/filter", {"Pod": pod, "NodeNames": ["n1"]})
    assert filtered.body["NodeNames"] == ["n1"]
    asked = {"PodName": "p", "PodNamespace": "team-a", "PodUID": "uid-p", "Node": "n1"}
    assert stack.post("/extender/bind", asked).body == {"Error": ""}
    assert cluster.get("Pod", "p", "team-a")["spec"]["nodeName"] == "n1"
    cluster.wait(lambda: len(cluster.list("Event")) == 2)
    told = {(one["reason"], one["type"]) for one in cluster.list("Event")}
    assert told == {("FilteringSucceed", "Normal"), ("BindingSucceed", "Normal")}

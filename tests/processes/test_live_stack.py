"""The service in processes of its own: it starts, loses parts of itself, and ends with the test."""

from collections.abc import Callable

import psutil
import pytest

from tests.live import LiveStack

# Every test here starts web servers and workers, which takes seconds.
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("redis", [True, False], ids=["with a broker", "without one"])
def test_the_service_answers_and_ends(live_stack: Callable[..., LiveStack], redis: bool) -> None:
    stack = live_stack(redis=redis, beat=redis)
    assert stack.get("/livez", token=None).status == 200
    assert set(stack.processes) == ({"web", "worker", "beat"} if redis else {"web"})
    pids = [process.pid for process in stack.processes.values()] + stack.children("web")
    stack.close()
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_a_killed_worker_takes_its_pool_along_and_another_takes_its_place(
    live_stack: Callable[..., LiveStack],
) -> None:
    stack = live_stack()
    worker = stack.processes["worker"]
    stack.kill("worker")
    assert not psutil.pid_exists(worker.pid)
    stack.start_worker()
    assert stack.processes["worker"].status is None


def test_a_wrong_setting_stops_the_start_with_its_name(live_stack: Callable[..., LiveStack]) -> None:
    with pytest.raises(Exception, match="HAMIACCT_MAX_LAG_SECOND: no such setting"):
        live_stack(redis=False, HAMIACCT_MAX_LAG_SECOND=1)

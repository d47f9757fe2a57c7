"""The scenarios still run: each once and small, on the service that a test starts."""

from collections.abc import Callable

import pytest

from bench import claims, events, freshness, questions, starts
from bench.fleets import MEMORY_MIB, SLOTS, Fleet
from bench.stack import Stack
from bench.trial import Extent, Trial
from devservers.pytest_plugin import OPERATOR_TOKEN
from tests.live import LiveStack

TINY = Extent(
    rounds=1,
    calls=4,
    seconds=0.05,
    events=30,
    stream_seconds=0.3,
    stream_rate=500,
    burst=60,
    replayed=30,
    freshness_seconds=0.5,
    clients=(4, 16),
)


class Attached(Stack):
    """The bench's view of a service that somebody else started, and ends."""

    def __init__(self, live: LiveStack) -> None:
        self.port, self.token, self.folder = live.port, OPERATOR_TOKEN, live.folder
        self.database_url, self.env = live.database_url, live.env
        self.web, self.worker = live.processes["web"], live.processes["worker"]


@pytest.fixture
def trial(live_stack: Callable[..., LiveStack]) -> Trial:
    return Trial(Attached(live_stack(DJANGO_SETTINGS_MODULE="bench.settings")), Fleet(20), 100, TINY)


SCENARIOS = (
    events.load,
    questions.fit,
    questions.capacity,
    questions.quota_check,
    questions.admission,
    claims.one_client,
    claims.spread,
    claims.hot_card,
    events.stream,
    events.burst,
)


def test_the_scenarios_run(trial: Trial) -> None:
    for scenario in SCENARIOS:
        scenario(trial)
    freshness.watch(trial, [trial.stack.port])
    assert events._from_stored(trial) > 0
    starts.in_process(trial)
    wrong = {
        one.key: one.note for one in trial.figures if one.note.startswith("answers") and "20" not in one.note
    }
    assert not wrong
    [stale] = [one for one in trial.figures if one.key == "stale"]
    assert stale.rounds == (0,), stale.note


def test_a_fleet_gives_no_card_more_than_it_has() -> None:
    fleet = Fleet(10)
    placed = [fleet.place() for _ in range(150)]
    used: dict[tuple[int, int], tuple[int, int]] = {}
    for one in placed:
        memory, slots = used.get((one.node, one.card), (0, 0))
        rows = len(one.shape.inits) + len(one.shape.apps)
        used[one.node, one.card] = memory + one.shape.peak_mib, slots + rows
    assert max(memory for memory, _ in used.values()) <= MEMORY_MIB
    assert max(slots for _, slots in used.values()) <= SLOTS


def test_the_same_numbers_give_the_same_fleet() -> None:
    assert Fleet(10).pod_list(50) == Fleet(10).pod_list(50)
    assert Fleet(10, seed=2).pod_list(50) != Fleet(10).pod_list(50)

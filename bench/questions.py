"""What a scheduler, a webhook, a person and a dashboard ask: each call a few times, between empty views."""

from __future__ import annotations

from itertools import repeat

from bench import fleets
from bench.client import Call, crowd
from bench.figures import median_ms, p99_ms
from bench.trial import Trial, empty_views

SHAPES = (("one", "one container", fleets.PLAIN), ("four", "four containers", fleets.STAGED))


def empty(trial: Trial) -> None:
    """The yardsticks themselves, for those who compare machines."""
    connection = trial.stack.connect()
    request = connection.request("GET", "/bench/empty")
    rounds = [empty_views(connection, trial.extent.calls * 3) for _ in trial.rounds]
    p99s = [p99_ms(one) for one in rounds]
    trial.add("empty", "empty view, one client", "ms", [median_ms(one) for one in rounds], p99s=p99s)
    calls = lambda _: repeat(Call(request))  # noqa: E731
    rates = [crowd(trial.stack.connect, 16, calls, trial.extent.seconds / 2).rate for _ in trial.rounds]
    trial.add("empty-16", "empty view, 16 clients", "/s", rates)


def fit(trial: Trial) -> None:
    """A scheduler asks for its best nodes, and for a verdict on each."""
    request = trial.stack.connect().request
    for key, name, shape in SHAPES:
        asked = [trial.asking(shape) for _ in range(trial.extent.calls)]
        best = [request("POST", "/api/v1/fit", {"pod": pod, "limit": 5, "verdicts": False}) for pod in asked]
        trial.latency(f"fit-best-{key}", f"fit, best nodes, {name}", best)
        every = [request("POST", "/api/v1/fit", {"pod": pod, "limit": 5}) for pod in asked]
        trial.latency(f"fit-verdicts-{key}", f"fit, every node's verdict, {name}", every)


def capacity(trial: Trial) -> None:
    """How many more such pods?"""
    request = trial.stack.connect().request
    asked = [request("POST", "/api/v1/capacity", {"pod": trial.asking(), "at_most": 1000}) for _ in range(20)]
    trial.latency("capacity", "capacity, at most 1,000", asked)


def quota_check(trial: Trial) -> None:
    """May this namespace?"""
    request = trial.stack.connect().request
    asked = [
        request("POST", "/api/v1/quota/check", {"pod": trial.asking()}) for _ in range(trial.extent.calls)
    ]
    trial.latency("quota-check", "quota check", asked)


def admission(trial: Trial) -> None:
    """The webhook."""
    request = trial.stack.connect().request
    asked = []
    for number in range(trial.extent.calls):
        pod = trial.asking()
        review = {
            "uid": f"review-{number}",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "operation": "CREATE",
            "namespace": pod["metadata"]["namespace"],
            "object": pod,
        }
        body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": review}
        asked.append(request("POST", "/webhook", body))
    trial.latency("admission", "admission", asked)


def reads(trial: Trial) -> None:
    """What people and dashboards read."""
    request = trial.stack.connect().request
    for path in (
        "/api/v1/cluster",
        "/api/v1/devices?limit=100",
        "/api/v1/pods?limit=100",
        "/api/v1/namespaces/team-1/quota",
        f"/api/v1/nodes/{fleets.node_name(1)}",
        "/metrics",
    ):
        trial.latency(f"read {path}", f"GET {path}", [request("GET", path)])

"""Where the time of a call goes: `python -m bench.profiles [--nodes 1000]` writes bench/profiles.json.

The views are called in this process, by Django's own client, so the shares are of what follows the web
server's front. A profiler makes small calls look dearer than they are: milliseconds are taken without it.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import Any

import django
import orjson
from django.test import Client

from bench import fleets
from bench.scenarios import pods_of
from bench.stack import TOKEN
from devservers import launch
from devservers.postgres import Postgres

PATH = Path(__file__).with_name("profiles.json")
CALLS = 100
LAYERS: Mapping[str, str] = MappingProxyType(
    {
        "psycopg": "PostgreSQL and its driver",
        "psycopg_binary": "PostgreSQL and its driver",
        "django": "Django",
        "rest_framework": "REST framework",
        "api": "views",
        "hamiacct.kube": "manifests",
        "hamiacct.accounting": "rules",
        "hamiacct.queries": "queries",
        "hamiacct.operations": "operations",
        "hamiacct.rows": "operations",
        "numpy": "rules",
    }
)
OTHER = "other"
ORDER = (*dict.fromkeys(LAYERS.values()), OTHER)

Function = tuple[str, int, str]


def layer_of(function: Function) -> str | None:
    """Whose code it is; None of what belongs to whoever calls it: Python's own."""
    if "psycopg" in function[2]:  # compiled, and without a file
        return LAYERS["psycopg"]
    found = re.search(r"site-packages/(\w+)/", function[0])
    if found:
        return LAYERS.get(found[1], OTHER)
    found = re.search(r"/(hamiacct/\w+|api)[/.]", function[0])
    return LAYERS.get(found[1].replace("/", "."), OTHER) if found else None


def shares(profile: cProfile.Profile) -> dict[str, float]:
    """The share of each layer. Python's own functions count as their callers'."""
    seconds: Counter[str] = Counter()
    stats: Mapping[Function, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    for function, (_, _, own, _, callers) in stats.items():
        layer = layer_of(function)
        if layer:
            seconds[layer] += own
            continue
        for caller, (_, _, of_caller, _) in callers.items():
            seconds[layer_of(caller) or OTHER] += of_caller
    whole = sum(seconds.values())
    return {layer: round(seconds[layer] / whole, 3) for layer in ORDER if seconds[layer]}


def questions(post: Callable[[str, Any], None], fleet: fleets.Fleet) -> dict[str, Callable[[], None]]:
    """What is asked, by the key of its figure."""
    numbers = count(10_000_000)

    def asking(shape: fleets.Shape = fleets.PLAIN) -> fleets.Object:
        return fleets.asking(next(numbers), shape)

    def fit(shape: fleets.Shape, **asked: Any) -> Callable[[], None]:
        return lambda: post("/api/v1/fit", {"pod": asking(shape), "limit": 5, **asked})

    def events() -> None:
        """Without a broker they are applied in the call, by the same code as a worker's."""
        made = [{"type": "ADDED", "object": pod} for pod in fleet.pods(500)]
        post("/api/v1/events", {"events": made})

    return {
        "fit-best-one": fit(fleets.PLAIN, verdicts=False),
        "fit-best-four": fit(fleets.STAGED, verdicts=False),
        "fit-verdicts-one": fit(fleets.PLAIN),
        "fit-verdicts-four": fit(fleets.STAGED),
        "quota-check": lambda: post("/api/v1/quota/check", {"pod": asking()}),
        "fit-and-reserve": lambda: post("/api/v1/reservations", {"pod": asking()}),
        "events-call": events,
    }


def profiled(call: Callable[[], None], calls: int) -> dict[str, Any]:
    """Milliseconds a call, and who has them."""
    for _ in range(max(3, calls // 5)):
        call()
    before = perf_counter()
    for _ in range(calls):
        call()
    taken = (perf_counter() - before) / calls * 1000
    profile = cProfile.Profile()
    profile.enable()
    for _ in range(calls):
        call()
    profile.disable()
    return {"ms": round(taken, 3), "shares": shares(profile)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.profiles", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--out", type=Path, default=PATH)
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="hamiacct-bench-"))
    postgres = Postgres(folder, durable=True)
    try:
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "bench.settings",
            "HAMIACCT_DATABASE_URL": postgres.url,
            "HAMIACCT_SECRET_KEY": "bench",
            "HAMIACCT_BOOTSTRAP_TOKEN": TOKEN,
            "HAMIACCT_LOG_LEVEL": "WARNING",
        }
        launch.manage(os.environ, "migrate", "--no-input")
        django.setup()
        found = {"nodes": asked.nodes, "pods": pods_of(asked.nodes), "calls": measured(asked.nodes)}
        asked.out.write_text(json.dumps(found, indent=1) + "\n")
    finally:
        postgres.stop()
        shutil.rmtree(folder, ignore_errors=True)


def measured(nodes: int) -> dict[str, Any]:
    """Every question on a fleet of so many nodes."""
    client = Client(HTTP_AUTHORIZATION=f"Bearer {TOKEN}", HTTP_HOST="localhost")

    def post(path: str, body: Any) -> None:
        answer = client.post(path, orjson.dumps(body), content_type="application/json")
        assert answer.status_code < 300, (path, answer.status_code, answer.content[:300])

    fleet = fleets.Fleet(nodes)
    for listing in (fleet.node_list(), fleet.quota_list(), fleet.pod_list(pods_of(nodes))):
        post("/api/v1/snapshots", listing)
    found = {}
    for key, call in questions(post, fleet).items():
        found[key] = profiled(call, 5 if key == "events-call" else CALLS)
        print(key, found[key], flush=True)
    return found


if __name__ == "__main__":
    main()

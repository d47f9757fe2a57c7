"""A few months in the life of a small cluster, told to whatever code there was at a migration.

`python tests/upgrade/story.py TREE FILE` tells it to the code in TREE, whose environment names an empty,
migrated database, and writes every row of it into FILE. It keeps to what the service has had since its
first day: its HTTP interface, and a few operations by their names. Every word of Kubernetes is made by
`tests/watch.py` beside it, so that the same story is told to every age.

The clock of the story is `timezone.now`, which every entry of the service reads.
"""

import importlib
import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).parent
TOKEN = "a token of the story"
FIRST = datetime(2026, 9, 10, 8, tzinfo=UTC)
HELD = {"gpu": 1, "gpumem": 2000, "gpucores": 5}

Rows = dict[str, list[dict[str, Any]]]


def begin(tree: Path) -> None:
    """Loads the code in `tree`, and no other."""
    sys.path[:0] = [str(tree)]
    os.environ["DJANGO_SETTINGS_MODULE"] = "hamiacct.settings"
    importlib.import_module("django").setup()
    found = Path(str(importlib.import_module("hamiacct.models").__file__))
    assert tree in found.parents, f"{found} is not of {tree}"


def beside(name: str) -> ModuleType:
    """A module of these tests, whatever tree is loaded."""
    spec = importlib.util.spec_from_file_location(name, HERE.parent / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Told:
    """The service as the story speaks to it."""

    def __init__(self) -> None:
        self.watch, self.asking = beside("watch"), beside("asking").asking
        self.clock = FIRST
        importlib.import_module("django.utils.timezone").now = lambda: self.clock
        self.client = importlib.import_module("django.test").Client(
            HTTP_AUTHORIZATION=f"Bearer {TOKEN}", HTTP_HOST="localhost"
        )

    def later(self, **by: float) -> None:
        self.clock += timedelta(**by)

    def post(self, path: str, body: Any, *, fails: bool = False) -> Any:
        answer = self.client.post(path, json.dumps(body), content_type="application/json")
        assert fails == (answer.status_code >= 400), (path, answer.status_code, answer.content)
        return answer.json() if answer.content else None

    def show(self, *objects: Any, type_: str = "MODIFIED") -> list[dict[str, Any]]:
        results = self.post("/api/v1/events", self.watch.events(*objects, type_=type_))["results"]
        return list(results)

    def full_list(self, kind: str, *items: Any) -> None:
        version = str(next(self.watch.versions))
        body = {"kind": f"{kind}List", "apiVersion": "v1", "metadata": {"resourceVersion": version}}
        self.post("/api/v1/snapshots?confirm=0", body | {"items": list(items)})

    def has(self, module: str) -> bool:
        return importlib.util.find_spec(module) is not None

    def call(self, name: str, *parameters: Any, **named: Any) -> Any:
        """An operation, by module and name."""
        module, _, function = name.rpartition(".")
        return getattr(importlib.import_module(f"hamiacct.operations.{module}"), function)(
            *parameters, **named
        )


def tell(told: Told) -> None:
    """The whole story."""
    watch = told.watch
    cards = {
        name: [watch.card(f"GPU-{name}-{number}", memory=40960) for number in range(2)]
        for name in ("n1", "n2", "n3")
    }
    nodes = {name: watch.node(name, *of_node) for name, of_node in cards.items()}
    hard = {"limits.nvidia.com/gpumem": "600000", "limits.nvidia.com/gpucores": "400"}
    quotas = [
        watch.quota("all", hard=hard),
        watch.quota("short", namespace="team-b", hard=hard, scopes=["Terminating"]),
        watch.quota("tight", namespace="team-c", hard={"limits.nvidia.com/gpumem": "1000"}),
        watch.quota("gone", namespace="team-c", hard=hard),
    ]
    pod = watch.pod
    running = [
        pod("plain", "GPU-n1-0 4096 10"),
        pod("peak", "GPU-n1-0 8192 0", "GPU-n1-0 2048 10", inits=1, phase="Pending"),
        pod("waits", phase="Pending", node=""),
        pod("short-lived", "GPU-n2-0 1024 5", namespace="team-b", node="n2", activeDeadlineSeconds=60),
        pod("over-quota", "GPU-n2-1 5000 5", namespace="team-c", node="n2"),
        pod("stranger", "GPU-nobody-knows 512 0", node="n2"),
        pod("of-n3", "GPU-n3-0 512 0", node="n3"),
        pod("too-much", "GPU-n2-0 40960 0", node="n2"),
    ]
    told.full_list("Node", *nodes.values())
    told.full_list("ResourceQuota", *quotas)
    told.full_list("Pod", *running)
    told.later(hours=1)
    told.show(quotas[3], type_="DELETED")
    told.show(*endings(told), type_="ADDED")
    told.later(days=25)
    october(told, nodes)
    told.later(days=28)
    november(told, running[0])
    told.later(minutes=5)
    if told.has("hamiacct.operations.reservations"):
        holds(told)
    if told.has("hamiacct.operations.watching"):
        watchers(told)
    told.call("sweeping.look_at_the_clock", at=told.clock)
    if hasattr(importlib.import_module("hamiacct.operations.audit"), "run_if_due"):
        told.call("audit.run_if_due", at=told.clock)
    leave_some_waiting(told)


def endings(told: Told) -> list[Any]:
    """Pods that will end, each in its way."""
    pod = told.watch.pod
    return [
        pod("succeeds", "GPU-n1-1 1024 0"),
        pod("deleted", "GPU-n1-1 2048 0"),
        pod("reused", "GPU-n1-1 512 0", uid="uid-first"),
        pod("released", "GPU-n1-1 256 0"),
    ]


def october(told: Told, nodes: dict[str, Any]) -> None:
    """Pods end, a node goes, a pod shrinks, and somebody writes what nobody can read."""
    pod, watch = told.watch.pod, told.watch
    told.show(pod("succeeds", "GPU-n1-1 1024 0", phase="Succeeded"))
    told.show(pod("deleted", "GPU-n1-1 2048 0"), type_="DELETED")
    told.show(pod("reused", "GPU-n1-1 1024 0", uid="uid-second"), type_="ADDED")
    told.show(watch.node("n3") | {"metadata": watch.metadata("n3", None)}, type_="DELETED")
    done = [{"name": "c0", "state": {"terminated": {"exitCode": 0}}}]
    shrunk = pod("shrinks", "GPU-n1-0 6000 0", "GPU-n1-0 1000 10", inits=1)
    told.show(shrunk, type_="ADDED")
    told.later(hours=2)
    shrunk = pod("shrinks", "GPU-n1-0 6000 0", "GPU-n1-0 1000 10", inits=1)
    shrunk["status"]["initContainerStatuses"] = done
    told.show(shrunk)
    told.show(pod("garbled", "GPU-n2-1 700 0", node="n2"), type_="ADDED")
    unreadable = pod("garbled", "GPU-n2-1 700 0", node="n2")
    unreadable["metadata"]["annotations"][watch.ALLOCATED] = "GPU-n2-1,NVIDIA,seven hundred,0:;"
    told.show(unreadable)


def november(told: Told, plain: dict[str, Any]) -> None:
    """A claim, events that are refused, one of them laid aside, callers, and an operator's hand."""
    pod = told.watch.pod
    claimed = pod("claimed", "GPU-n1-1 900 0")
    del claimed["spec"]["nodeName"]
    told.show(claimed, type_="ADDED")
    for name in ("unreadable", "laid-aside"):
        broken = pod(name, "GPU-n1-0 1 0")
        broken["spec"]["containers"] = "not a list"
        (result,) = told.show(broken, type_="ADDED")
        assert result["outcome"] == "refused", result
    event = importlib.import_module("hamiacct.models").Event.objects.get(name="laid-aside")
    told.call("inbox.dismiss", event.pk, at=told.clock)
    stale = dict(plain)
    (result,) = told.show(stale)
    assert result["outcome"] == "stale", result
    role = importlib.import_module("hamiacct.accounting.words").Role
    told.call("tokens.create", "scheduler", role("scheduler"), at=told.clock)
    soon = told.clock + timedelta(hours=1)
    told.call("tokens.create", "for an hour", role("ingester"), at=told.clock, expires_at=soon)
    told.call("tokens.create", "taken back", role("operator"), at=told.clock)
    told.call("tokens.revoke", "taken back", at=told.clock)
    if told.has("hamiacct.operations.pods"):
        told.call("pods.release", ["uid-released"], at=told.clock)


def holds(told: Told) -> None:
    """A hold in each of its states, and refusals of both kinds."""
    asking, pod = told.asking, told.watch.pod
    for name in ("held", "is-bound", "is-confirmed", "is-given-back", "runs-out"):
        answer = told.post("/api/v1/reservations", {"pod": asking(name, **HELD)})
        if name == "is-bound":
            told.post(f"/api/v1/reservations/uid-{name}/bound", {})
        if name == "is-confirmed":
            told.post(f"/api/v1/reservations/uid-{name}/bound", {})
            seen = pod(name, "GPU 1 1", node=answer["node"])
            seen["metadata"]["annotations"] = answer["annotations"]
            told.show(seen, type_="ADDED")
        if name == "is-given-back":
            told.call("reservations.release", f"uid-{name}", at=told.clock)
    models = importlib.import_module("hamiacct.models")
    models.Reservation.objects.filter(pod_uid="uid-runs-out").update(expires_at=told.clock)
    told.call("reservations.expire", at=told.clock)
    told.post("/api/v1/reservations", {"pod": asking("too-big", gpumem=999_999)}, fails=True)
    told.post("/api/v1/reservations", {"pod": asking("poor", namespace="team-c", **HELD)}, fails=True)


def watchers(told: Told) -> None:
    """Which cluster it is, who follows it, and what it does about each kind."""
    words = importlib.import_module("hamiacct.accounting.words")
    told.call("watching.see_cluster", "uid-of-kube-system", at=told.clock)
    assert told.call("watching.take_lease", "watcher-1", at=told.clock)
    note = importlib.import_module("hamiacct.operations.watching").note
    holder = {"holder": "watcher-1"} if "holder" in inspect.signature(note).parameters else {}
    for kind in words.Kind:
        note(kind, words.WatchState.WATCHING, at=told.clock, **holder)


def leave_some_waiting(told: Told) -> None:
    """Stored, and nobody has come to apply them: they are the next code's."""
    waiting = [told.watch.pod("arrives", "GPU-n1-0 300 0"), told.watch.pod("plain", "GPU-n1-0 4000 10")]
    events = [told.watch.event(waiting[0], "ADDED"), told.watch.event(waiting[1], "MODIFIED")]
    told.call("inbox.receive", events, at=told.clock)


def rows(execute: Callable[[str], list[tuple[Any, ...]]]) -> Rows:
    """Every row of every table of ours, by table; a partitioned table is one table."""
    tables = execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')"
        r" AND NOT relispartition AND relname LIKE 'hamiacct\_%' ORDER BY relname"
    )
    found: Rows = {}
    for (table,) in tables:
        (key,) = execute(
            "SELECT string_agg(quote_ident(attname), ',' ORDER BY attnum) FROM pg_index"
            " JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY(indkey)"
            f" WHERE indisprimary AND indrelid = '{table}'::regclass"
        )
        found[table] = [json.loads(row) for (row,) in execute(
            f"SELECT to_json(t)::text FROM {table} AS t ORDER BY {key[0]}"
        )]  # fmt: skip
    return found


def write(found: Rows, file: Path) -> None:
    """One row a line, so that a change can be read."""
    tables = [
        f"{json.dumps(table)}: [\n" + ",\n".join(json.dumps(row, sort_keys=True) for row in of_table) + "\n]"
        for table, of_table in found.items()
        if of_table
    ]
    file.write_text("{\n" + ",\n".join(tables) + "\n}\n")


def main(tree: Path, file: Path) -> None:
    begin(tree)
    importlib.import_module("django.core.management").call_command("migrate", verbosity=0)
    connection = importlib.import_module("django.db").connection
    with connection.cursor() as cursor:
        cursor.execute("SELECT hamiacct_ensure_ledger_partitions(%s::date, 3)", [FIRST.date()])
    told = Told()
    tell(told)
    found = importlib.import_module("hamiacct.operations.audit").audit()
    assert found.ok, found.discrepancies

    def execute(statement: str) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    write(rows(execute), file)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())

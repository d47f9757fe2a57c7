"""Days of a busy cluster, one after the other, and what is measured of each."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

import psutil
from django.db import connection

from bench import fleets
from hamiacct import models
from hamiacct.operations import inbox
from tests.longlife.cluster import Cluster, Life
from tests.longlife.service import Service, seconds_of

# What grows with what there was, if nobody sweeps it; what lives is a part of it.
HISTORY = ("event", "ledgerentry", "decision", "pod", "reservation", "finding")
FIRST_NUMBER_ASKING = 900_000_000
HOLD_SECONDS = 5400
REFUSED_A_DAY = 3
PAGES = (
    "/admin/",
    "/admin/hamiacct/pod/?namespace={namespace}",
    "/admin/hamiacct/pod/?q={pod}",
    "/admin/hamiacct/event/",
    "/admin/hamiacct/event/?state=refused",
    "/admin/hamiacct/ledgerentry/",
    "/admin/hamiacct/decision/",
    "/admin/hamiacct/finding/",
    "/admin/hamiacct/reservation/",
    "/admin/hamiacct/device/",
    "/admin/hamiacct/node/",
    "/admin/hamiacct/resourcequota/",
)
QUESTIONS = (
    "/metrics",
    "/readyz?verbose",
    "/api/v1/cluster",
    "/api/v1/nodes",
    "/api/v1/devices",
    "/api/v1/nodes/{node}/devices/{device}",
    "/api/v1/nodes/{node}",
    "/api/v1/pods",
    "/api/v1/pods?namespace={namespace}",
    "/api/v1/pods?node={node}",
    "/api/v1/pods?state=steady",
    "/api/v1/pods/{uid}",
    "/api/v1/pods/{uid}/explain",
    "/api/v1/namespaces/{namespace}/quota",
    "/api/v1/findings",
    "/api/v1/findings?code=overcommitted",
    "/api/v1/findings?namespace={namespace}",
    "/api/v1/findings?node={node}",
    "/api/v1/decisions",
    "/api/v1/decisions?namespace={namespace}",
    "/api/v1/decisions?pod={pod}",
    "/api/v1/decisions?verdict=no-fit",
    "/api/v1/ledger",
    "/api/v1/ledger?pod={uid}",
    "/api/v1/ledger?namespace={namespace}",
    "/api/v1/ledger?node={node}&device={device}",
    "/api/v1/compare",
)


@dataclass(slots=True)
class Day:
    """What is measured of one day. CPU seconds are of a decision, `yardstick` of a loop beside them.

    `read_in_order` are rows of history that decisions read table by table, `shown` the events of the day.
    """

    number: int
    resident_mib: float = 0
    database_mib: float = 0
    yardstick: float = 0
    seconds: dict[str, float] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    dead: dict[str, int] = field(default_factory=dict)
    read_in_order: dict[str, int] = field(default_factory=dict)
    discrepancies: int = 0
    shown: int = 0


class Month:
    """Lives through days, and keeps what is measured."""

    def __init__(self, service: Service, cluster: Cluster, *, samples: int, looks_every: int) -> None:
        self.service, self.cluster, self.samples, self.looks_every = service, cluster, samples, looks_every
        self.days: list[Day] = []
        self._asked = FIRST_NUMBER_ASKING
        self.start = service.now

    def begin(self) -> None:
        self.service.beat()
        for body in self.cluster.lists():
            self.service.list(body)

    def live(self, days: int) -> None:
        for _ in range(days):
            self.days.append(self._one_day(len(self.days)))

    def _one_day(self, number: int) -> Day:
        service, cluster, day = self.service, self.cluster, Day(number)
        begins, before = self.start + timedelta(days=number), cluster.shown
        ticks = cluster.size.ticks_a_day
        for tick in range(ticks):
            service.at(begins + timedelta(days=1) * (tick + 1) / ticks)
            events = cluster.tick(service.now)
            service.post("/api/v1/events", {"events": events})
            self._schedule(cluster.waiting())
            if tick % max(ticks // 2, 1) == 0:
                for body in cluster.lists():
                    service.list(body)
            service.beat()
        self._odd_things(number)
        if number % self.looks_every == self.looks_every - 1:
            self._somebody_looks()
        day.shown = cluster.shown - before
        day.discrepancies = sum(models.AuditRun.objects.get().discrepancies.values())
        assert service.get("/api/v1/audit")["ok"], f"day {number}"
        self._measure(day)
        return day

    def _schedule(self, waiting: list[Life]) -> None:
        """Some pods are placed by a reservation, which may run out first; HAMi places the others."""
        for life in waiting:
            chance = self.cluster.chance.random()
            if chance < 0.3:
                held = self._reserve(life)
                if held and chance < 0.25:
                    self.service.post(f"/api/v1/reservations/{life.uid}/bound", {})
                    self.cluster.take(life, held["node"], held["annotations"])
                elif held and chance < 0.27:
                    self.service.delete(f"/api/v1/reservations/{life.uid}")
            elif chance < 0.9:
                self.cluster.place(life)

    def _reserve(self, life: Life) -> Any:
        body = {"pod": self.cluster.pod(life), "ttl_seconds": HOLD_SECONDS}
        answer = self.service.post("/api/v1/reservations", body, may_fail=True)
        return answer if "annotations" in answer else None

    def _odd_things(self, number: int) -> None:
        """Refusals, and events that nobody can read: one is sent through again, one laid aside, one stays."""
        for _ in range(10):
            self.service.post("/api/v1/fit", {"pod": self._asking(fleets.Shape((), ((999_999, 10),)))})
        refused = []
        for place in range(REFUSED_A_DAY):
            broken = self._asking()
            broken["metadata"] |= {"uid": f"broken-{number}-{place}", "resourceVersion": "999"}
            broken["metadata"]["resourceVersion"] = str(self.cluster.version())
            broken["spec"]["containers"] = "unreadable"
            (result,) = self.service.post(
                "/api/v1/events", {"events": [{"type": "ADDED", "object": broken}]}
            )["results"]
            assert result["outcome"] == "refused", result
            refused.append(models.Event.objects.filter(state="refused").latest("id").pk)
        inbox.replay(refused[0], at=self.service.now)
        inbox.dismiss(refused[1], at=self.service.now)

    def _asking(self, shape: fleets.Shape = fleets.PLAIN) -> Any:
        self._asked += 1
        return fleets.asking(self._asked, shape, namespace=self.cluster.namespaces[-1])

    def _somebody_looks(self) -> None:
        nodes = {fleets.node_name(place) for place in self.cluster.machines}
        placed = (one for one in self.cluster.pods.values() if one.at and one.at[0] in nodes and one.at[1])
        life = next(placed, None)
        if life is None:
            return
        assert life.at is not None
        names = {
            "namespace": life.namespace,
            "node": life.at[0],
            "device": life.at[1],
            "uid": life.uid,
            "pod": f"pod-{life.number}",
        }
        for path in QUESTIONS:
            self.service.get(path.format(**{name: quote(text) for name, text in names.items()}))
        self.service.look_at_the_admin(*(path.format(**names) for path in PAGES))

    # --- what is measured ---

    def _measure(self, day: Day) -> None:
        day.yardstick = min(seconds_of(_yardstick) for _ in range(3))
        before = _read_in_order()
        for name, work in self._decisions().items():
            work()
            day.seconds[name] = (
                seconds_of(lambda work=work: [work() for _ in range(self.samples)]) / self.samples
            )
        after = _read_in_order()
        day.read_in_order = {table: after[table] - before[table] for table in after}
        for table, rows, size, dead in _tables():
            day.rows[table], day.bytes[table], day.dead[table] = rows, size, dead
        gc.collect()
        day.resident_mib = psutil.Process().memory_info().rss / 2**20
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            (pid,) = cursor.fetchone()
        day.database_mib = psutil.Process(pid).memory_full_info().uss / 2**20

    def _decisions(self) -> dict[str, Callable[[], object]]:
        post, number = self.service.post, self._asking
        return {
            "quota check": lambda: post("/api/v1/quota/check", {"pod": number()}),
            "fit": lambda: post("/api/v1/fit", {"pod": number(), "verdicts": False}),
            "reserve and give back": self._reserve_and_give_back,
        }

    def _reserve_and_give_back(self) -> None:
        pod = self._asking()
        self.service.post("/api/v1/reservations", {"pod": pod})
        self.service.delete(f"/api/v1/reservations/{pod['metadata']['uid']}")


def _yardstick() -> int:
    return sum(number * number for number in range(2_000_000))


def _rows(statement: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def _read_in_order() -> dict[str, int]:
    """Rows that were read by going through a table from its beginning, so far, of tables of history."""
    _rows("SELECT pg_stat_force_next_flush()")
    sums: dict[str, int] = dict.fromkeys(HISTORY, 0)
    for table, rows in _rows("SELECT relname, seq_tup_read FROM pg_stat_user_tables"):
        for name in HISTORY:
            if table == f"hamiacct_{name}" or table.startswith(f"hamiacct_{name}_"):
                sums[name] += rows
    return sums


def _tables() -> list[tuple[str, int, int, int]]:
    """Every table with its rows, its bytes and its dead rows."""
    found = _rows(
        "SELECT relname, pg_total_relation_size(relid), n_dead_tup FROM pg_stat_user_tables"
        " WHERE schemaname = 'public' ORDER BY relname"
    )
    return [(table, _rows(f"SELECT count(*) FROM {table}")[0][0], size, dead) for table, size, dead in found]


def unused_indexes() -> set[str]:
    """Indexes of ours that nobody has looked into."""
    _rows("SELECT pg_stat_force_next_flush()")
    return {
        name
        for (name,) in _rows(
            "SELECT indexrelname FROM pg_stat_user_indexes WHERE relname LIKE 'hamiacct\\_%' AND idx_scan = 0"
            " AND relname NOT LIKE 'hamiacct\\_ledgerentry\\_%'"
        )
    }


def indexes_of_the_ledger() -> dict[str, int]:
    """Scans of the ledger's indexes, by what they are of, over all months."""
    return dict(
        _rows(
            "SELECT parent.relname, sum(idx_scan)::bigint FROM pg_stat_user_indexes AS used"
            " JOIN pg_inherits ON inhrelid = indexrelid JOIN pg_class AS parent ON parent.oid = inhparent"
            " GROUP BY parent.relname"
        )
    )


def lines_of_the_ledger() -> tuple[int, int, int]:
    """How many were numbered, are there, and lie in no month's partition."""
    ((numbered, there, apart),) = _rows(
        "SELECT (SELECT seq FROM hamiacct_ledgerhead), (SELECT count(*) FROM hamiacct_ledgerentry),"
        " (SELECT count(*) FROM hamiacct_ledgerentry_rest)"
    )
    return numbered, there, apart


# A time whose month ends soon.
BEGINS = datetime.fromisoformat("2027-03-20T00:00:00+00:00")

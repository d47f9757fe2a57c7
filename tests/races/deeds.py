"""Every operation that writes, as something to be done to one and the same small cluster's books.

A deed that failed is done again, by the same call or by whoever would make it good (`again`), and then the
books must be as if nothing had happened. `answers` are what the second try may be answered where the first
one was done after all, and nobody heard of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from hamiacct import config, models
from hamiacct.accounting import fit
from hamiacct.accounting.errors import Conflict, NoRoom
from hamiacct.accounting.words import Kind, Question, Refusal, Role, WatchState
from hamiacct.kube import manifests
from hamiacct.kube.manifests import ListBody
from hamiacct.operations import (
    audit,
    bindings,
    decisions,
    inbox,
    pods,
    reservations,
    rounds,
    snapshots,
    sweeping,
    tokens,
    watching,
)
from hamiacct.operations.together import Granted
from hamiacct.queries import fits
from tests import watch
from tests.asking import asking, limits

NOW = datetime.now(UTC).replace(microsecond=0)
SOON = NOW + timedelta(minutes=20)
LATER = NOW + timedelta(days=30)
FAR = datetime(2041, 5, 5, tzinfo=UTC)
"""A month of which the ledger has no partition, nor of the next ones."""
EVENTS = frozenset({"hamiacct_event"})
HOLDER = "watcher-of-the-test"


@dataclass(frozen=True)
class Deed:
    """One operation, done.

    `prepare` is what was done before, and answers what `act` is given. `then` is done after all, failed or
    not: it is who comes round anyhow. `without` are tables in which a second try may leave a second trace.
    `in_parts`: in more than one transaction, so that some of it may be done though the answer was a failure.
    `undo` undoes what is no row.
    """

    name: str
    act: Callable[[Any], object]
    prepare: Callable[[], Any] = lambda: None
    answers: tuple[type[Exception], ...] = ()
    then: Callable[[], object] | None = None
    without: frozenset[str] = frozenset()
    in_parts: bool = False
    undo: Callable[[], object] = lambda: None

    def __str__(self) -> str:
        return self.name


# --- the cluster ---------------------------------------------------------------------------------


def question(name: str, **amounts: Any) -> fits.Question:
    """What a pod asks that nobody has placed."""
    return fits.question_of(manifests.pod_from_manifest(asking(name, **amounts), config.vendors()))


def tell(*events: dict[str, Any]) -> None:
    receipt = inbox.receive(events, at=NOW)
    assert not receipt.rejected
    inbox.drain(at=NOW)


def amd(cores: int) -> dict[str, str]:
    """The register of a node with one AMD card of so many core units."""
    return {
        "hami.io/node-amd-register": (
            f'[{{"id": "AMD-a", "index": 0, "count": 10, "devmem": 20000, "devcore": {cores},'
            ' "type": "AMD", "health": true}]'
        )
    }


def a_node(name: str, *cards: dict[str, Any], version: int, **told: Any) -> dict[str, Any]:
    return watch.node(name, *cards, version=version, **told)


def running(name: str, *groups: str, version: int, phase: str = "Running", **more: Any) -> dict[str, Any]:
    return watch.pod(name, *groups, version=version, phase=phase, **more)


def on_amd(name: str, version: int) -> dict[str, Any]:
    """A pod with a share of the AMD card."""
    pod = running(name, version=version, node="n3")
    pod["metadata"]["annotations"] = {
        "hami.io/vgpu-node": "n3",
        "hami.io/amd-devices-allocated": "AMD-a,AMD,1000,100:;",
    }
    return pod


def furnish() -> None:
    """Three nodes, two quotas, pods in all states, holds in most, an event that was refused."""
    handshake = {watch.HANDSHAKE: f"Requesting_{NOW:%Y-%m-%d %H:%M:%S}"}
    odd = running("odd", "GPU-a 1 0", version=40)
    odd["status"]["phase"] = "Undecided"
    stuck = running("stuck", "GPU-b 500 0", version=35, phase="Pending")
    stuck["metadata"]["annotations"] |= {"hami.io/bind-phase": "allocating", "hami.io/bind-time": "1"}
    tell(
        watch.event(a_node("n1", watch.card("GPU-a"), watch.card("GPU-b"), version=10)),
        watch.event(a_node("n2", watch.card("GPU-c"), version=11)),
        watch.event(a_node("n3", version=12, **amd(304))),
        watch.event(a_node("n4", watch.card("GPU-e"), version=13, **handshake)),
        watch.event(watch.quota("q", version=14, hard={"limits.nvidia.com/gpumem": "90000", "pods": "9"})),
        watch.event(
            watch.quota("r", version=15, hard={"limits.amd.com/gpucores": "90"}, scopes=["NotTerminating"])
        ),
        watch.event(running("runs", "GPU-a 4000 10", version=30)),
        watch.event(
            running("starts", "GPU-a 8000 10", "GPU-a 2000 10", inits=1, version=31, phase="Pending")
        ),
        watch.event(running("done", "GPU-b 3000 10", version=32)),
        watch.event(running("done", "GPU-b 3000 10", version=33, phase="Succeeded"), "MODIFIED"),
        watch.event(running("gone", "GPU-b 3000 10", version=34)),
        watch.event(running("gone", "GPU-b 3000 10", version=36), "DELETED"),
        watch.event(stuck),
        watch.event(on_amd("amd", version=37)),
        watch.event(odd),
    )
    snapshots.declare_complete(at=NOW)
    for name in ("waits", "late", "binds"):
        reservations.reserve(question(name, gpumem=2000), nodes=["n1"], ttl_seconds=900, at=NOW)
    assert bindings.begin("uid-binds", "n1", at=NOW)
    watching.take_lease(HOLDER, at=NOW)
    watching.see_cluster("uid-of-the-cluster", at=NOW)
    tokens.create("known", Role.VIEWER, at=NOW)
    for name in ("one", "two"):
        decisions.record(Question.FIT, Refusal.NO_FIT, namespace="team-a", pod=name, at=NOW)
    assert models.Event.objects.filter(state="refused").count() == 1


# --- claims --------------------------------------------------------------------------------------


def reserve(name: str, nodes: Sequence[str] | None = None, **amounts: Any) -> rounds.Held:
    return reservations.reserve(question(name, **amounts), nodes=nodes, ttl_seconds=900, at=NOW)


def no_room_for(name: str) -> None:
    with pytest.raises(NoRoom):
        reserve(name, gpumem=24_000, gpu=3)


def a_place() -> Any:
    """Where on the second node the pod would go."""
    found = fits.find(question("asks", gpumem=3000), nodes=["n2"], at=NOW)
    reserved = reservations.reserve(question("asks", gpumem=3000), nodes=["n2"], ttl_seconds=900, at=NOW)
    reservations.release("uid-asks", at=NOW)
    assert found.candidates
    return {vendor: one.groups for vendor, one in reserved.placement.allocations.items()}


def claim(groups: Any) -> rounds.Held:
    asked = question("asks", gpumem=3000)
    return reservations.claim(asked, "n2", groups, ttl_seconds=900, at=NOW)


def claim_of_another_node(groups: Any) -> None:
    """The uuids are of the second node: the pod that holds something on the first loses it."""
    with pytest.raises(NoRoom):
        reservations.claim(question("waits", gpumem=3000), "n1", groups, ttl_seconds=900, at=NOW)


def several_at_once(_: object) -> None:
    """One round: two claims and a release that waited in one process, each decided after the other."""
    asked = [question(name, gpumem=3000) for name in ("asks", "waits")]
    wishes = [rounds.Claim(one, None, fit.place, 900, False, NOW) for one in asked]
    outcomes = reservations._serve([*wishes, rounds.Release("uid-late", NOW)])
    assert all(isinstance(outcome, Granted) for outcome in outcomes), outcomes


CLAIMS = [
    Deed("several claims in one round", several_at_once),
    Deed("reserve", lambda _: reserve("asks", gpumem=3000)),
    Deed("reserve two cards and an init", lambda _: _reserve_much()),
    Deed("reserve elsewhere what is held", lambda _: reserve("waits", ["n2"], gpumem=3000)),
    Deed("reserve without room", lambda _: no_room_for("waits")),
    Deed("claim", claim, a_place),
    Deed("claim what is not there", claim_of_another_node, a_place),
    Deed("release a hold", lambda _: reservations.release("uid-waits", at=NOW)),
    Deed("mark a hold as bound", lambda _: reservations.mark_bound("uid-waits", at=NOW)),
    Deed("expire holds", lambda _: reservations.expire(at=SOON)),
]


def _reserve_much() -> rounds.Held:
    pod = asking("asks", limits(gpumem=4000), limits(gpu=2, gpumem=1000), inits=1)
    asked = fits.question_of(manifests.pod_from_manifest(pod, config.vendors()))
    return reservations.reserve(asked, ttl_seconds=900, at=NOW)


# --- bindings ------------------------------------------------------------------------------------


def a_binding() -> Any:
    begun = bindings.begin("uid-waits", "n1", at=NOW)
    assert begun is not None
    return begun


BINDINGS = [
    # That a pod is being bound is what the second try sees of the first; beat asks what became of it.
    Deed("begin a binding", lambda _: bindings.begin("uid-waits", "n1", at=NOW), answers=(Conflict,)),
    Deed("a binding succeeds", lambda begun: bindings.succeed(begun, at=NOW), a_binding),
    Deed("a binding is given back", lambda begun: bindings.give_back(begun, at=NOW), a_binding),
    Deed("a binding fails", lambda begun: bindings.fail(begun, at=NOW), a_binding),
    Deed("the pod of a hold is gone", lambda _: bindings.drop("uid-waits", at=NOW)),
]


# --- events --------------------------------------------------------------------------------------


def news() -> list[dict[str, Any]]:
    """Something of each kind, and of each turn that a pod may take."""
    started = running("starts", "GPU-a 8000 10", "GPU-a 2000 10", inits=1, version=131)
    started["status"]["initContainerStatuses"] = [{"name": "c0", "state": {"terminated": {"exitCode": 0}}}]
    bound = asking("waits", gpumem=2000)
    held = models.Reservation.objects.get(pod_uid="uid-waits")
    bound["metadata"] |= {"annotations": held.annotations, "resourceVersion": "136"}
    bound["spec"]["nodeName"] = "n1"
    return [
        watch.event(a_node("n1", watch.card("GPU-a", slots=4), version=110), "MODIFIED"),
        watch.event(a_node("n2", watch.card("GPU-c"), version=111), "DELETED"),
        watch.event(a_node("n3", version=112, **amd(152)), "MODIFIED"),
        watch.event(a_node("n5", watch.card("GPU-f"), version=113)),
        watch.event(watch.quota("q", version=114, hard={"limits.nvidia.com/gpumem": "100"}), "MODIFIED"),
        watch.event(watch.quota("r", version=115), "DELETED"),
        watch.event(watch.quota("s", version=116, hard={"limits.nvidia.com/gpucores": "many"})),
        watch.event(running("runs", "GPU-a 5000 10 + GPU-x 100 0", version=130), "MODIFIED"),
        watch.event(started, "MODIFIED"),
        watch.event(running("new", "GPU-c 3000 10", node="n2", version=132)),
        watch.event(running("new", "GPU-c 3000 10", node="n2", version=133, phase="Failed"), "MODIFIED"),
        watch.event(running("stuck", "GPU-b 500 0", version=134), "DELETED"),
        watch.event(running("runs-2", "GPU-b 700 0", uid="uid-runs-again", version=135)),
        watch.event(running("runs-2", "GPU-b 700 0", version=129)),
        watch.event(bound, "MODIFIED"),
    ]


def received() -> tuple[int, ...]:
    receipt = inbox.receive(news(), at=NOW)
    return tuple(event_id for _, event_id in receipt.stored)


def drain() -> int:
    return inbox.drain(at=NOW)


def the_refused() -> int:
    found: int = models.Event.objects.get(state="refused").pk
    return found


INBOX = [
    Deed("store events", lambda _: inbox.receive(news(), at=NOW), then=drain, without=EVENTS),
    Deed("apply events", lambda _: drain(), received, then=drain),
    Deed("apply events in the request", lambda ids: inbox.settle(ids, at=NOW), received, then=drain),
    Deed(
        "replay a refused event",
        lambda number: inbox.replay(number, at=NOW),
        the_refused,
        answers=(Conflict,),
        then=drain,
        in_parts=True,
    ),
    Deed("dismiss a refused event", lambda number: inbox.dismiss(number, at=NOW), the_refused, (Conflict,)),
]


# --- full lists ----------------------------------------------------------------------------------

VERSION = 500


def items(kind: Kind) -> list[dict[str, Any]]:
    """What the cluster holds of a kind: some as known, some newer, some new; the others are gone."""
    match kind:
        case Kind.NODE:
            return [
                a_node("n1", watch.card("GPU-a"), watch.card("GPU-b"), version=10),
                a_node("n3", version=212, **amd(152)),
                a_node("n6", watch.card("GPU-g"), version=213),
            ]
        case Kind.QUOTA:
            return [watch.quota("q", version=214, hard={"limits.nvidia.com/gpumem": "1000"})]
        case Kind.POD:
            return [
                running("runs", "GPU-a 4000 10", version=30),
                running("starts", "GPU-a 8000 10", "GPU-a 3000 10", inits=1, version=231),
                running("more", "GPU-b 1000 10", version=232),
                {"metadata": {"uid": "uid-amd", "name": "amd"}},  # without a version: there, and nothing else
            ]


def take_whole(kind: Kind, **options: Any) -> snapshots.SnapshotResult:
    body = ListBody(
        kind=kind.value, version=VERSION, items=items(kind), meta={"resourceVersion": str(VERSION)}
    )
    return snapshots.apply(body, at=NOW, **options)


def take_pages(kind: Kind, **options: Any) -> snapshots.SnapshotResult:
    """As the watcher does it: what fails begins anew."""
    listing = snapshots.begin(kind, VERSION, **options)
    for one in items(kind):
        snapshots.apply_page(listing, [one], at=NOW)
    return snapshots.finish(listing, at=NOW)


def a_listing(kind: Kind) -> Callable[[], snapshots.Listing]:
    return lambda: snapshots.begin(kind, VERSION)


def a_listing_shown(kind: Kind) -> Callable[[], snapshots.Listing]:
    def shown() -> snapshots.Listing:
        listing = snapshots.begin(kind, VERSION)
        snapshots.apply_page(listing, items(kind), at=NOW)
        return listing

    return shown


def lists_of(kind: Kind) -> list[Deed]:
    return [
        Deed(f"a full list of {kind}s", lambda _: take_whole(kind)),
        Deed(f"a full list of {kind}s in pages", lambda _: take_pages(kind)),
        Deed(
            f"a page of {kind}s",
            lambda listing: snapshots.apply_page(listing, items(kind), at=NOW),
            a_listing(kind),
        ),
        Deed(
            f"the end of a list of {kind}s",
            lambda listing: snapshots.finish(listing, at=NOW),
            a_listing_shown(kind),
        ),
    ]


LISTS = [
    *(deed for kind in Kind for deed in lists_of(kind)),
    Deed("a list of a namespace", lambda _: take_whole(Kind.POD, namespace="team-a")),
    # A second try begins another history: which one it is tells nothing.
    Deed(
        "a list that begins a history",
        lambda _: take_whole(Kind.POD, new_history=True, complete=True),
        without=frozenset({"hamiacct_feed", "hamiacct_pod", "hamiacct_listmark"}),
    ),
    Deed(
        "the watcher's list that begins a history",
        lambda _: take_pages(Kind.POD, new_history=True, holder=HOLDER),
        lambda: watching.renew_lease(HOLDER),
        without=frozenset({"hamiacct_feed", "hamiacct_pod", "hamiacct_listmark"}),
    ),
    Deed("the books are declared complete", lambda _: snapshots.declare_complete(at=SOON)),
]


# --- the watcher ---------------------------------------------------------------------------------


def nobody_watches() -> None:
    watching.give_up_lease(HOLDER)


WATCHING = [
    Deed("take the lease", lambda _: watching.take_lease("another", at=NOW), nobody_watches),
    Deed("renew the lease", lambda _: watching.renew_lease(HOLDER)),
    Deed("give up the lease", lambda _: watching.give_up_lease(HOLDER)),
    Deed(
        "see the cluster first",
        lambda _: watching.see_cluster("uid-of-the-first", at=NOW),
        lambda: models.Cluster.objects.all().delete(),
    ),
    Deed(
        "adopt another cluster",
        lambda _: watching.adopt_cluster("uid-of-another", at=NOW),
        nobody_watches,
        without=frozenset({"hamiacct_feed"}),
    ),
    Deed(
        "note what the watcher does",
        lambda _: watching.note(Kind.POD, WatchState.WATCHING, version=77, holder=HOLDER, at=NOW),
    ),
]


# --- operators and time ----------------------------------------------------------------------------


def make_wrong() -> None:
    """Totals that follow nothing, and a ledger line that nobody wrote."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE hamiacct_device SET slots_used = slots_used + 1 WHERE uuid = 'GPU-a'")
        cursor.execute("UPDATE hamiacct_namespaceusage SET memory_mib = memory_mib + 5")
        cursor.execute("UPDATE hamiacct_quotausage SET memory_mib = memory_mib + 7")
        cursor.execute(
            "INSERT INTO hamiacct_ledgerentry (seq, at, pod_uid, namespace, node, device, vendor, rule,"
            " reason, slots, memory_mib, cores, quota_cores, resource_version)"
            " SELECT seq + 1, at, pod_uid, namespace, node, device, vendor, rule, reason, slots, memory_mib,"
            " cores, quota_cores, resource_version FROM hamiacct_ledgerentry ORDER BY seq DESC LIMIT 1"
        )
        cursor.execute("UPDATE hamiacct_ledgerhead SET seq = seq + 1")


def no_partitions_so_far_ahead() -> None:
    with connection.cursor() as cursor:
        for month in (5, 6, 7, 8):
            cursor.execute(f"DROP TABLE IF EXISTS hamiacct_ledgerentry_{FAR.year}{month:02}")


def a_token() -> int:
    found: int = models.ApiToken.objects.get(name="known").pk
    return found


UPKEEP = [
    Deed(
        "an operator releases pods",
        lambda _: pods.release(["uid-runs", "uid-starts", "uid-waits"], at=NOW),
    ),
    Deed("repair", lambda _: audit.repair(at=NOW), make_wrong),
    Deed("the hourly audit", lambda _: audit.run_if_due(at=NOW)),
    Deed("look at the clock", lambda _: sweeping.look_at_the_clock(at=LATER)),
    Deed(
        "forget the old",
        lambda _: sweeping.forget_the_old(keep_days=7, at=LATER),
        lambda: snapshots.apply(
            ListBody(kind="Pod", version=VERSION, items=items(Kind.POD), meta={"resourceVersion": "500"}),
            at=NOW,
        ),
    ),
    Deed("forget decisions", lambda _: sweeping.forget_decisions(keep_days=7, at=LATER)),
    Deed(
        "make partitions",
        lambda _: sweeping.ensure_partitions(at=FAR),
        no_partitions_so_far_ahead,
        undo=no_partitions_so_far_ahead,
    ),
    # Of a token whose text was lost nobody knows: its name is used, and it is taken back.
    Deed("make a token", lambda _: tokens.create("new", Role.VIEWER, at=NOW), answers=(Conflict,)),
    Deed("take a token back", lambda _: tokens.revoke("known", at=NOW)),
    Deed("mark a token as used", lambda number: tokens.touch(number, at=SOON), a_token),
    # Nobody tries again: a refusal that could not be kept is lost, and nothing but itself with it.
    Deed(
        "keep a refusal",
        lambda _: decisions.record(Question.FIT, Refusal.NO_FIT, namespace="team-a", pod="p", at=NOW),
        without=frozenset({"hamiacct_decision"}),
    ),
]

DEEDS = [*CLAIMS, *BINDINGS, *INBOX, *LISTS, *WATCHING, *UPKEEP]

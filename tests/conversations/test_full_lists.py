"""A full list is the truth at its version, behind guards (S7.3c, S7.3d); events nobody can read (S7.3e)."""

from datetime import UTC, datetime
from typing import Any

import pytest

from hamiacct import models
from hamiacct.accounting.errors import Conflict, NotFound
from hamiacct.operations import inbox
from tests import watch
from tests.conversations.books import Books, Held
from tests.say import say_manifest

MEMORY = "nvidia.com/gpumem"


def pod(number: int, memory_mib: int = 1000, *, version: int, **more: Any) -> dict[str, Any]:
    """One of many pods of one app."""
    name = f"p{number}"
    return say_manifest(f"app {memory_mib}", uid=f"u-{number}", name=name, version=version, **more)


def post_list(books: Books, body: dict[str, Any], query: str = "") -> tuple[int, Any]:
    answer = books.call("POST", f"/api/v1/snapshots{query}", body)
    books.agree()
    return answer


def listing(*items: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"kind": "PodList", "metadata": metadata, "items": list(items)}


def memory_used(books: Books) -> int:
    used = books.used("n1", "GPU-a").memory_mib
    assert books.quota_used("team-a", MEMORY) == used
    return used


# --- what a list ends, and what comes back (S7.3c) -----------------------------------------------


def test_a_pod_that_a_list_does_not_hold_has_ended(books: Books) -> None:
    books.applied(pod(1, version=10), pod(2, version=11))
    result = books.full_list(pod(1, version=10), version=50)
    assert (result["unchanged"], result["ended"]) == (1, 1)
    assert memory_used(books) == 1000
    lines = books.get("/api/v1/ledger?pod=u-2")["items"]
    assert [line["rule"] for line in lines] == ["charged", "absent"]


@pytest.mark.parametrize(
    ("version", "outcome", "rule"), [(12, "stale", None), (50, "stale", None), (51, "applied", "revived")]
)
def test_it_comes_back_by_an_event_above_the_list(
    books: Books, version: int, outcome: str, rule: str | None
) -> None:
    books.applied(pod(1, version=10))
    books.full_list(version=50)
    result = books.event(pod(1, version=version))
    assert (result["outcome"], result["rule"]) == (outcome, rule)
    assert memory_used(books) == (1000 if rule else 0)


def test_it_comes_back_by_a_later_list_too(books: Books) -> None:
    books.applied(pod(1, version=10))
    books.full_list(version=50)
    assert books.full_list(pod(1, version=55), version=60)["added"] == 1
    assert memory_used(books) == 1000


@pytest.mark.parametrize(("version", "outcome"), [(10, "stale"), (50, "stale"), (51, "applied")])
def test_a_pod_the_list_did_not_hold_is_past_below_its_version(
    books: Books, version: int, outcome: str
) -> None:
    books.full_list(version=50)
    assert books.event(pod(1, version=version), "ADDED")["outcome"] == outcome
    assert memory_used(books) == (1000 if outcome == "applied" else 0)


def test_a_deleted_pod_does_not_come_back_by_a_list(books: Books) -> None:
    books.applied(pod(1, version=10))
    books.applied(pod(1, version=20), type_="DELETED")
    books.full_list(pod(1, version=15), version=50)
    assert memory_used(books) == 0


def test_what_is_newer_than_the_list_stays(books: Books) -> None:
    """A list that takes long to arrive: its client saw neither the pod nor its last change."""
    books.applied(pod(1, version=10))
    status, body = post_list(books, listing(resourceVersion="9"))
    assert status == 409
    assert body["type"] == "/problems/snapshot-refused"
    assert memory_used(books) == 1000


def test_an_item_that_has_not_moved_on_is_unchanged_and_an_older_one_changes_nothing(books: Books) -> None:
    books.applied(pod(1, 3000, version=20))
    result = books.full_list(pod(1, 1000, version=10), version=50)
    assert (result["changed"], result["ended"]) == (0, 0)
    assert memory_used(books) == 3000


def test_a_list_judges_each_item_as_an_event_would(books: Books) -> None:
    done = say_manifest("init 9000, succeeded", "app 1000", version=10)
    books.full_list(done, pod(2, 500, version=11, phase="Failed"), pod(3, 700, version=12), version=50)
    assert memory_used(books) == 1700
    assert [books.pod(f"u-{number}")["state"] for number in (1, 2, 3)] == ["steady", "ended", "steady"]


def test_a_list_of_one_namespace_ends_nothing_of_another(books: Books) -> None:
    books.applied(pod(1, version=10), pod(2, version=11, namespace="team-b"))
    assert post_list(books, listing(resourceVersion="50"), "?namespace=team-b")[0] == 200
    assert books.held_by("u-1") == {"GPU-a": Held(1, 1000, 0)}
    assert books.held_by("u-2") == {}
    # Below that version only news of its namespace is past.
    assert books.event(pod(3, version=40))["outcome"] == "applied"
    assert books.event(pod(4, version=40, namespace="team-b"))["outcome"] == "stale"


# --- guards --------------------------------------------------------------------------------------


@pytest.mark.parametrize("metadata", [{"continue": "abc"}, {"remainingItemCount": 3}])
def test_a_part_ends_nothing(books: Books, metadata: dict[str, Any]) -> None:
    books.applied(pod(1, version=10))
    assert post_list(books, listing(resourceVersion="50", **metadata))[0] == 409
    assert memory_used(books) == 1000


def test_an_empty_list_without_a_version_ends_nothing(books: Books) -> None:
    books.applied(pod(1, version=10))
    assert post_list(books, listing())[0] == 200
    assert memory_used(books) == 1000


def test_a_list_without_a_version_is_of_its_highest_item(books: Books) -> None:
    books.applied(pod(1, version=10), pod(2, version=11))
    assert post_list(books, listing(pod(3, version=30)))[1]["version"] == 30
    assert memory_used(books) == 1000


def test_many_ends_must_be_confirmed_by_their_number(books: Books) -> None:
    books.applied(*(pod(number, 100, version=100 + number) for number in range(30)))
    status, body = post_list(books, listing(resourceVersion="500"))
    assert (status, body["would_end"]) == (409, 30)
    assert post_list(books, listing(resourceVersion="500"), "?confirm=29")[0] == 409
    assert memory_used(books) == 3000
    assert post_list(books, listing(resourceVersion="500"), "?confirm=30")[1]["ended"] == 30
    assert memory_used(books) == 0


@pytest.mark.parametrize("kept", [10, 9])
def test_twenty_may_end_without_a_word(books: Books, kept: int) -> None:
    books.applied(*(pod(number, 100, version=100 + number) for number in range(30)))
    keeps = [pod(number, 100, version=100 + number) for number in range(kept)]
    assert post_list(books, listing(*keeps, resourceVersion="500"))[0] == (200 if kept == 10 else 409)


def test_an_item_without_an_identity_makes_the_list_end_nothing(books: Books) -> None:
    books.applied(pod(1, version=10))
    nameless = pod(2, version=11)
    del nameless["metadata"]["uid"]
    status, body = post_list(books, listing(nameless, resourceVersion="50"))
    assert (status, len(body["rejected"]), body["ended"]) == (200, 1, 0)
    assert memory_used(books) == 1000


# --- a restored cluster (S7.3d) ------------------------------------------------------------------


def test_a_restored_cluster_begins_a_new_history(books: Books) -> None:
    """Versions count anew, tombstones are forgotten, and the list tells which inits are done."""
    books.applied(say_manifest("init 9000, succeeded", "app 1000", version=5000))
    books.applied(pod(1, 700, version=5001), pod(2, 800, version=5002))
    books.applied(pod(2, 800, version=5003), type_="DELETED")
    restored = listing(
        say_manifest("init 9000, running", "app 1000", uid="u-9", name="web-9", version=80),
        pod(2, 800, version=90),
        resourceVersion="100",
    )
    assert post_list(books, restored)[0] == 409
    assert post_list(books, restored, "?history=new")[0] == 200
    assert memory_used(books) == 9000 + 800
    assert books.event(pod(2, 300, version=101))["outcome"] == "applied"
    assert memory_used(books) == 9300


def test_a_released_pod_is_judged_anew_in_a_new_history(books: Books) -> None:
    books.applied(say_manifest("init 9000, succeeded", "app 1000", version=5000))
    waiting = say_manifest("init 9000, running", "app 1000", version=80)
    assert post_list(books, listing(waiting, resourceVersion="100"), "?history=new")[0] == 200
    assert memory_used(books) == 9000


def test_nodes_and_quotas_have_versions_of_their_own(books: Books) -> None:
    books.applied(watch.node("n1", watch.card("GPU-a"), version=50), pod(1, version=10))
    older = watch.node("n1", version=49)
    assert books.event(older)["outcome"] == "stale"
    books.applied(watch.quota("gpu", version=50, hard={f"limits.{MEMORY}": "5000"}))
    other = watch.quota("gpu", version=50, hard={f"limits.{MEMORY}": "1"})
    assert books.event(other)["outcome"] == "stale"
    assert books.quota("team-a")[MEMORY]["hard"] == 5000
    result = books.full_list(version=60, kind="Node")
    assert result["ended"] == 1
    assert not books.get("/api/v1/nodes/n1/devices/GPU-a")["registered"]
    assert memory_used(books) == 1000
    assert books.full_list(version=60, kind="ResourceQuota")["ended"] == 1
    assert books.quota("team-a")[MEMORY]["hard"] is None


# --- events that cannot be read (S7.3e) ----------------------------------------------------------


def broken(version: int) -> dict[str, Any]:
    """A pod with an envelope and, further in, a container without a name."""
    manifest = say_manifest("app 1000", version=version)
    del manifest["spec"]["containers"][0]["name"]
    return manifest


def at() -> datetime:
    return datetime.now(UTC)


def test_what_is_unreadable_further_in_is_refused_with_its_place_and_holds_up_nobody(books: Books) -> None:
    results = books.post_events(
        *({"type": "ADDED", "object": one} for one in (broken(10), pod(2, version=11)))
    )
    assert [one["outcome"] for one in results] == ["refused", "applied"]
    assert "/spec/containers/0/name" in results[0]["detail"]
    assert memory_used(books) == 1000


def test_a_refused_event_is_kept_until_it_is_handled(books: Books) -> None:
    books.event(broken(10))
    refused = models.Event.objects.get(state="refused")
    inbox.replay(refused.pk, at=at())
    assert models.Event.objects.get().state == "refused"
    inbox.dismiss(refused.pk, at=at())
    for handle in (inbox.replay, inbox.dismiss):
        with pytest.raises(Conflict):
            handle(refused.pk, at=at())
        with pytest.raises(NotFound):
            handle(refused.pk + 1, at=at())


def test_a_replay_is_exempt_from_staleness(books: Books) -> None:
    """Once what could not be read can be: here the stored text is mended by hand."""
    books.event(broken(10))
    books.applied(say_manifest("app 500", version=11))
    refused = models.Event.objects.get(state="refused")
    refused.body["spec"]["containers"][0]["name"] = "app-0"
    refused.save()
    inbox.replay(refused.pk, at=at())
    books.agree()
    assert memory_used(books) == 1000
    # The pod is no older for it: an event between the two stays past.
    assert books.event(say_manifest("app 700", version=11))["outcome"] == "stale"


def test_a_refused_change_leaves_the_charge_as_it_is(books: Books) -> None:
    books.applied(say_manifest("app 1000", version=10))
    assert books.event(broken(11))["outcome"] == "refused"
    assert memory_used(books) == 1000
    assert books.event(say_manifest("app 500", version=12))["rule"] == "replaced"

"""Reservations: chosen by fit or claimed exactly, given back, bound, run out; and mere questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import precondition

from hamiacct.operations import pods, reservations
from tests.model.books import Allocation, Event, Groups, PodView, holding
from tests.model.lives import manifest
from tests.model.room import NVIDIA, Question, resolved
from tests.proof import tally
from tests.proof.desk import NODES, Desk, news, one_of_the, step
from tests.proof.pods import told

TTL_SECONDS = (100, 1000)
GOES_BY_SECONDS = (150, 1500)
choices = st.sampled_from((None, None, ["n1"], ["n2"], ["n1", "n2"], ["n9"], []))


def asking(desk: Desk) -> list[str]:
    """The pods that may ask; those that wait for a node are drawn more often than others."""
    all_of_them = sorted(desk.town.pods)
    waiting = [
        uid for uid in all_of_them if not (desk.town.pods[uid].bound or desk.town.pods[uid].asks_for_nothing)
    ]
    return waiting * 3 + all_of_them


def known(desk: Desk) -> list[str]:
    """The pods that something was heard of."""
    return sorted(desk.books.pods)


def holding_pods(desk: Desk) -> list[str]:
    """The pods something is or was held for, those with a hold that stands more often."""
    all_of_them = [uid for uid, one in sorted(desk.books.pods.items()) if one.hold is not None]
    return [uid for uid in all_of_them if desk.books.pods[uid].is_held] * 3 + all_of_them


def held_in_town(desk: Desk) -> list[str]:
    """The pods of the cluster that a place is held for."""
    return [uid for uid in sorted(desk.town.pods) if uid in desk.books.pods and desk.books.pods[uid].is_held]


class Holds(Desk):
    """What those do who ask for room."""

    # --- to hold ---

    @precondition(asking)
    @step(pod=one_of_the(asking), nodes=choices, ttl_seconds=st.sampled_from(TTL_SECONDS))
    def a_place_is_held(self, pod: str, nodes: list[str] | None, ttl_seconds: int) -> None:
        """Wherever the service chooses. What it answers must have room, and a refusal must have a reason."""
        asked = self.town.pods[pod]
        body: dict[str, Any] = {"pod": manifest(asked), "ttl_seconds": ttl_seconds}
        if nodes is not None:
            body["nodes"] = nodes
        self._reserve(asked, body, self._choice(nodes), ttl_seconds)

    @precondition(asking)
    @step(
        pod=one_of_the(asking),
        node=st.sampled_from(NODES),
        cards=st.lists(st.sampled_from((0, 1)), min_size=1, max_size=4),
        wrong=st.sampled_from(("", "", "", "memory", "cores", "unasked", "missing")),
        ttl_seconds=st.sampled_from(TTL_SECONDS),
    )
    def a_place_is_claimed(self, pod: str, node: str, cards: list[int], wrong: str, ttl_seconds: int) -> None:
        """Exactly this one, which is as asked or wrong in one way."""
        asked = self.town.pods[pod]
        groups = self._claim(asked, node, cards, wrong)
        allocation = [
            {
                "position": position,
                "devices": [
                    {"uuid": uuid, "vendor": "NVIDIA", "memory_mib": memory, "cores": cores}
                    for uuid, memory, cores in rows
                ],
            }
            for position, rows in enumerate(groups)
        ]
        body = {"pod": manifest(asked), "ttl_seconds": ttl_seconds, "node": node, "allocation": allocation}
        self._reserve(asked, body, [node], ttl_seconds, groups)

    def _claim(self, asked: PodView, node: str, cards: list[int], wrong: str) -> Groups:
        offered = Question(self.books, asked).cards(node)
        groups: list[tuple[Any, ...]] = []
        turn = 0
        for position in range(len(asked.kinds)):
            ask = asked.asks[position] if position < len(asked.asks) else None
            rows = []
            for _ in range(ask.count if ask is not None else int(wrong == "unasked")):
                uuid = f"NVIDIA-{cards[turn % len(cards)]}"
                turn += 1
                sizes = resolved(ask, offered[uuid]) if ask is not None and uuid in offered else (1000, 0)
                rows.append((uuid, sizes[0] + 1000 * (wrong == "memory"), sizes[1] + (wrong == "cores")))
            groups.append(tuple(rows[:-1] if wrong == "missing" else rows))
        return tuple(groups)

    def _choice(self, nodes: list[str] | None) -> Sequence[str]:
        return sorted(self.books.nodes) if nodes is None else nodes

    def _reserve(
        self,
        asked: PodView,
        body: dict[str, Any],
        nodes: Sequence[str],
        ttl_seconds: int,
        claimed: Groups | None = None,
    ) -> None:
        answer = self.post("/api/v1/reservations", body)
        note(f"    {answer.status_code}: {answer.json().get('detail', answer.json().get('allocation'))}")
        tally.answers[f"a reservation {answer.status_code}"] += 1
        self.is_judged(asked, answer.status_code, nodes, claimed)
        if answer.status_code == 201:
            self.is_held(asked, answer.json(), nodes, ttl_seconds, claimed)
        elif answer.status_code in (403, 409) and not self.books.conflict(asked):
            account = self.books.pods.get(asked.uid)
            if account is not None and account.is_held:  # without room for another the old hold is gone, too
                self.books.give_back(asked.uid)

    def is_judged(
        self, asked: PodView, status: int, nodes: Sequence[str], claimed: Groups | None = None
    ) -> None:
        """Whether the answer is one of those that may be given; holds whose time is up end before it."""
        if asked.asks_for_nothing:
            assert status == 400
            return
        self.books.expire()
        if not self.has_cards:
            assert status in ((503, 409) if self.books.conflict(asked) else (503,))
            return
        if self.books.conflict(asked):
            assert status == 409, f"{asked.uid} is bound, or over: {status}"
            return
        question = Question(self.books, asked)
        if claimed is not None:
            assert (status == 201) == question.is_allowed(nodes[0], claimed), f"{status} for {claimed}"
            if status != 201:
                fits = any(not question.cannot_work(node, quotas=False) for node in nodes)
                assert fits or status == 409
            return
        if status == 201:
            return
        assert not any(question.cannot_fail(node) for node in nodes), f"there is room, and it said {status}"
        if status == 403:
            assert any(not question.cannot_work(node, quotas=False) for node in nodes), (
                "not the quota's fault"
            )
        else:
            assert status == 409
            assert not any(question.cannot_fail(node, quotas=False) for node in nodes), (
                "it is the quota's fault"
            )

    @property
    def has_cards(self) -> bool:
        """Whether any device was ever registered."""
        return bool(self.books.cards)

    def is_held(
        self,
        asked: PodView,
        told: dict[str, Any],
        nodes: Sequence[str],
        ttl_seconds: int,
        claimed: Groups | None = None,
    ) -> None:
        """The answer says where; the model sees that there was room, and holds the same."""
        node, groups = told["node"], groups_in(told, asked)
        assert node in nodes
        assert claimed is None or _sorted(groups) == _sorted(claimed)
        assert Question(self.books, asked).is_allowed(node, groups), f"no room for {groups} on {node}"
        shares = holding(asked, node, NVIDIA, Allocation(groups), False)
        charge = {
            (one["node"], one["device"], one["vendor"]): (one["slots"], one["memory_mib"], one["cores"])
            for one in told["charge"]
        }
        assert charge == {tuple(device): tuple(share) for device, share in shares.items()}
        self.books.hold(asked, node, groups, ttl_seconds)

    # --- what becomes of it ---

    @precondition(holding_pods)
    @step(pod=one_of_the(holding_pods))
    def a_hold_is_given_back(self, pod: str) -> None:
        """By the caller."""
        hold = self.books.pods[pod].hold
        answer = self.api.delete(f"/api/v1/reservations/{pod}")
        tally.answers[f"a hold given back {answer.status_code}"] += 1
        if hold is None:
            assert answer.status_code == 404
        elif hold.state in ("binding", "bound", "confirmed"):
            assert answer.status_code == 409
        else:
            assert answer.status_code == 204
            if hold.stands:
                self.books.give_back(pod)

    @precondition(holding_pods)
    @step(pod=one_of_the(holding_pods))
    def a_caller_has_bound(self, pod: str) -> None:
        """So it says: the hold no longer expires."""
        self.books.expire()
        hold = self.books.pods[pod].hold
        answer = self.post(f"/api/v1/reservations/{pod}/bound")
        tally.answers[f"a hold bound {answer.status_code}"] += 1
        if hold is None:
            assert answer.status_code == 404
        elif hold.stands:
            assert answer.status_code == 200
            self.books.mark_bound(pod)
        else:
            assert answer.status_code == (200 if hold.state == "confirmed" else 409)

    @precondition(held_in_town)
    @step(
        target=news,
        pod=one_of_the(held_in_town),
        how=st.sampled_from(("as held", "as held", "elsewhere", "without devices")),
        is_told=told,
    )
    def a_held_pod_is_bound(self, pod: str, how: str, is_told: bool) -> Event:
        """The caller does as he was answered, or somebody does otherwise."""
        hold = self.books.pods[pod].hold
        assert hold is not None
        where = {"n1": "n2", "n2": "n1"}[hold.node] if how == "elsewhere" else hold.node
        changes: dict[str, Any] = {"bound": where}
        if how != "without devices":
            changes |= {"claimed": where, "allocations": {"NVIDIA": Allocation(hold.groups["NVIDIA"])}}
        return self.told(self.town.change(pod, **changes), is_told)

    @precondition(holding_pods)
    @step(seconds=st.sampled_from(GOES_BY_SECONDS), is_swept=st.booleans())
    def time_goes_by(self, seconds: int, is_swept: bool) -> None:
        """Some holds are due then. Beat sweeps them, or whoever asks next."""
        self.books.time_goes_by(seconds)
        self.sql(
            "UPDATE hamiacct_reservation SET expires_at = expires_at - make_interval(secs => %s)", seconds
        )
        if is_swept:
            assert reservations.expire(at=self.now()) == self.books.expire()

    @precondition(known)
    @step(some=st.lists(one_of_the(known), min_size=1, max_size=2))
    def an_operator_releases(self, some: list[str]) -> None:
        """Pods are taken from the books; not for good."""
        released = pods.release(some, at=self.now())
        for uid in set(some):
            account = self.books.pods[uid]
            may = account.lives and not (account.hold is not None and account.hold.state == "binding")
            assert (uid in released) == may
            self.books.release(uid)

    # --- questions ---

    @precondition(asking)
    @step(pod=one_of_the(asking), nodes=choices, verdicts=st.booleans())
    def somebody_asks_where_it_fits(self, pod: str, nodes: list[str] | None, verdicts: bool) -> None:
        """Every node that is answered has room, and none that surely has is left out. Nothing is stored."""
        asked = self.town.pods[pod]
        body: dict[str, Any] = {"pod": manifest(asked), "verdicts": verdicts}
        if nodes is not None:
            body["nodes"] = nodes
        answer = self.post("/api/v1/fit", body)
        if asked.asks_for_nothing:
            assert answer.json()["fits"]
            return
        self.books.expire()
        if not self.has_cards:
            assert answer.status_code == 503
            return
        assert answer.status_code == 200, answer.content
        found = {one["node"]: groups_in(one, asked) for one in answer.json()["candidates"]}
        question = Question(self.books, asked)
        for node, groups in found.items():
            assert question.is_allowed(node, groups), f"no room for {groups} on {node}"
        left_out = {node for node in self._choice(nodes) if question.cannot_fail(node)} - found.keys()
        assert not left_out, f"there is room on {left_out}"
        assert answer.json()["fits"] == bool(found)
        if verdicts:
            names = set(self._choice(nodes)) if nodes is not None else found.keys()
            assert names <= found.keys() | {one["node"] for one in answer.json()["failed"]}

    @precondition(asking)
    @step(pod=one_of_the(asking))
    def somebody_asks_how_many_fit(self, pod: str) -> None:
        """More than none exactly where one fits; the pod itself gives nothing back. Nothing is stored."""
        asked = self.town.pods[pod]
        if asked.asks_for_nothing:
            return
        answer = self.post("/api/v1/capacity", {"pod": manifest(asked), "at_most": 3})
        self.books.expire()
        if not self.has_cards:
            assert answer.status_code == 503
            return
        other = replace(asked, uid="another", name="another")
        question = Question(self.books, other)
        for one in answer.json()["by_node"]:
            assert one["count"] or not question.cannot_fail(one["node"])
            assert not one["count"] or not question.cannot_work(one["node"])

    @precondition(asking)
    @step(pod=one_of_the(asking))
    def somebody_asks_about_quotas(self, pod: str) -> None:
        """Of sizes that are known before a card is. Nothing is stored."""
        asked = self.town.pods[pod]
        answer = self.post("/api/v1/quota/check", {"pod": manifest(asked)})
        assert answer.status_code == 200, answer.content
        if not asked.asks_for_nothing:
            self.books.expire()
        question = Question(self.books, asked)
        assert answer.json()["allowed"] == question.is_within(*question.asked_in_all()), answer.json()


def groups_in(told: dict[str, Any], asked: PodView) -> Groups:
    """The rows of an answer by position."""
    by_position = {
        place["position"]: tuple((one["uuid"], one["memory_mib"], one["cores"]) for one in place["devices"])
        for place in told["allocation"]
    }
    assert by_position.keys() <= set(range(len(asked.kinds)))
    return tuple(by_position.get(position, ()) for position in range(len(asked.kinds)))


def _sorted(groups: Groups) -> list[list[Any]]:
    return [sorted(rows) for rows in groups]

"""Full lists: right, late, half, guarded and confirmed ones, whole or in pages; restored clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import precondition

from hamiacct.accounting.errors import OlderThanApplied, TooManyAbsent
from hamiacct.accounting.words import Kind
from hamiacct.operations import snapshots
from tests.model.books import APP, Allocation, Refused, View
from tests.model.delivery import KINDS, FullList
from tests.model.lives import manifest
from tests.proof import tally
from tests.proof.desk import NAMESPACES, Desk, step
from tests.proof.town import Town

MANY = 22
kinds = st.sampled_from(("Pod", "Pod", "Pod", "Node", "ResourceQuota"))


class Lists(Desk):
    """What full lists bring."""

    saved: Town | None = None
    is_crowded = False

    @step(
        kind=kinds,
        namespace=st.sampled_from(("", "", "", *NAMESPACES)),
        lacks=st.sampled_from(("nothing", "nothing", "the first", "the last", "the crowd", "all")),
        version=st.sampled_from(("as now", "as now", "none", "late")),
        confirm=st.sampled_from((None, 1, MANY)),
    )
    def a_full_list(self, kind: str, namespace: str, lacks: str, version: str, confirm: int | None) -> None:
        """Of the cluster or a namespace. One refused for its number is sent again with that number."""
        scope = "" if kind == "Node" else namespace
        full = self._list(kind, scope, lacks, version)
        self._take(full, confirm)

    @step(kind=kinds, lacks=st.sampled_from(("nothing", "the first", "the crowd", "all")))
    def a_list_only_counts(self, kind: str, lacks: str) -> None:
        """A dry run says what would end, and ends nothing."""
        full = self._list(kind, "", lacks, "as now")
        assert full.version is not None
        try:
            ended: int | Refused = self.books.count_absent(kind, full.version, full.views)
        except Refused as refused:
            ended = refused
        answer = self.post("/api/v1/snapshots?dry_run=1", full.body())
        if isinstance(ended, Refused):
            assert answer.status_code == 409, answer.content
        else:
            assert answer.status_code == 200, answer.content
            assert answer.json()["ended"] == ended

    @step(
        kind=kinds,
        lacks=st.sampled_from(("nothing", "nothing", "the first", "the crowd")),
        size=st.sampled_from((1, 2, 50)),
    )
    def a_list_in_pages(self, kind: str, lacks: str, size: int) -> None:
        """As the watcher reads it; what two lists in a row do not hold is believed."""
        full = self._list(kind, "", lacks, "as now")
        believed = self._in_pages(full, size, frozenset())
        if believed:
            note(f"    refused: {len(believed)} are missing; a second list says the same")
            assert not self._in_pages(full, size, believed)

    def _in_pages(self, full: FullList, size: int, believed: frozenset[str]) -> frozenset[str]:
        assert full.version is not None
        kind, at = Kind(full.kind), self.now()
        try:
            self.books.begin_list(full.kind, full.version)
        except Refused:
            try:
                snapshots.begin(kind, full.version)
            except OlderThanApplied:
                return frozenset()
            raise AssertionError("an older list was let in") from None
        listing = snapshots.begin(kind, full.version)
        for start in range(0, len(full.views), size):
            page = full.views[start : start + size]
            self.books.take_page(full.kind, full.version, page)
            counts = snapshots.apply_page(listing, [manifest(view) for view in page], at=at)
            assert not counts.rejected
        try:
            ended: int | Refused = self.books.finish_list(full.kind, full.version, full.views, believed)
        except Refused as refused:
            ended = refused
        try:
            result = snapshots.finish(listing, confirmed=believed or None, at=at)
        except TooManyAbsent as fault:
            if not isinstance(ended, Refused):
                raise AssertionError("a list was refused that ends few") from fault
            tally.answers["a list in pages refused"] += 1
            return fault.absent
        assert result.ended == ended
        tally.answers["a list in pages applied"] += 1
        return frozenset()

    @precondition(lambda self: not self.is_crowded)
    @step(namespace=st.sampled_from(NAMESPACES))
    def a_crowd_moves_in(self, namespace: str) -> None:
        """So many pods that no list may end them unless somebody says how many."""
        self.is_crowded = True
        events = []
        for number in range(MANY):
            event = self.town.bear(
                namespace,
                f"crowd-{number}",
                (APP,),
                claimed="n2",
                bound="n2",
                allocations={"NVIDIA": Allocation(((("NVIDIA-1", 10, 1),),))},
            )
            events.append(event)
        self.hear(events)

    @precondition(lambda self: self.is_crowded)
    @step(is_paged=st.booleans(), confirm=st.sampled_from((None, 1, MANY)))
    def a_list_lacks_the_crowd(self, is_paged: bool, confirm: int | None) -> None:
        """Too many to be believed at once: confirmed by their number, or by a second list."""
        full = self._list("Pod", "", "the crowd", "as now")
        if not is_paged:
            self._take(full, confirm)
        elif believed := self._in_pages(full, 50, frozenset()):
            assert not self._in_pages(full, 50, believed)

    @precondition(lambda self: self.saved is None)
    @step()
    def a_backup_is_taken(self) -> None:
        """Of the cluster, not of the books."""
        self.saved = self.town.backup()

    @precondition(lambda self: self.saved is not None)
    @step(kinds=st.sampled_from((KINDS, KINDS, ("Pod",), ("Pod", "ResourceQuota"))))
    def the_cluster_is_restored(self, kinds: Sequence[str]) -> None:
        """Versions go back; a list that says so wins over everything that was known."""
        assert self.saved is not None
        self.town.restore(self.saved)
        self.saved = None
        for kind in kinds:
            full = FullList(kind, self.town.version, self.town.views(kind), new_history=True)
            self._take(full, None)

    # --- both sides ---

    def _list(self, kind: str, namespace: str, lacks: str, version: str) -> FullList:
        views = self.town.views(kind, namespace)
        number: int | None = self.town.version
        if version == "late":
            number -= 1
            views = [view for view in views if view.version <= number]
        elif version == "none":
            number = None
        return FullList(kind, number, _without(views, lacks), namespace)

    def _take(self, full: FullList, confirm: int | None) -> None:
        expected = self._expected(full, confirm, self.books)
        answer = self._send(full, confirm)
        if isinstance(expected, Refused):
            assert answer.status_code == 409, answer.content
            tally.answers["a list refused"] += 1
            if expected.would_end is None:
                note("    refused: too old")
                return
            note(f"    refused: it would end {expected.would_end}")
            assert answer.json()["would_end"] == expected.would_end
            self.stored.check(self.books)
            answer = self._send(full, expected.would_end)
            expected = self._expected(full, expected.would_end, self.books)
        assert answer.status_code == 200, answer.content
        assert answer.json()["ended"] == expected, answer.json()
        if full.new_history:
            self.inbox.histories[full.kind] += 1
        tally.answers["a list applied"] += 1

    def _send(self, full: FullList, confirm: int | None) -> Any:
        options = [f"namespace={full.namespace}"] if full.namespace else []
        options += ["history=new"] if full.new_history else []
        options += [f"confirm={confirm}"] if confirm is not None else []
        return self.post(f"/api/v1/snapshots?{'&'.join(options)}", full.body())

    def _expected(self, full: FullList, confirm: int | None, books: Any) -> int | Refused:
        try:
            ended: int = books.take_list(
                full.kind,
                full.version,
                full.views,
                namespace=full.namespace,
                new_history=full.new_history,
                confirm=confirm,
            )
            return ended
        except Refused as refused:
            return refused


def _without(views: Sequence[View], lacks: str) -> list[View]:
    if lacks == "all":
        return []
    if lacks == "the crowd":
        return [view for view in views if not view.name.startswith("crowd")]
    if lacks == "the first":
        return list(views[1:])
    return list(views[:-1] if lacks == "the last" else views)

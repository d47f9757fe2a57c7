"""What operators and beat do: drain, replay, dismiss, sweep, audit, repair."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import precondition

from hamiacct.operations import audit, inbox, sweeping
from tests.model.books import Event, PodView
from tests.model.lives import watch_event
from tests.proof import tally
from tests.proof.desk import Desk, Refused, Waiting, news, one_of_the, step

KEEP_DAYS = 7
SPOILS = {
    "devices": "UPDATE hamiacct_device SET memory_mib_used = memory_mib_used + 7",
    "namespaces": "UPDATE hamiacct_namespaceusage SET memory_mib = memory_mib + 7, slots = slots + 1",
    "quotas": "UPDATE hamiacct_quotausage SET cores = cores + 7",
}


class Upkeep(Desk):
    """What keeps the books in order."""

    # --- the inbox ---

    @step(events=st.lists(news, min_size=1, max_size=4))
    def news_are_stored(self, events: list[Event]) -> None:
        """As with a broker: what was answered is stored, and waits for a worker."""
        receipt = inbox.receive([watch_event(event) for event in events], at=self.now())
        assert not receipt.rejected
        for (_, id_), event in zip(receipt.stored, events, strict=True):
            self.inbox.waiting.append(Waiting(id_, event, self.history_of(event)))

    @precondition(lambda self: self.inbox.waiting)
    @step()
    def a_worker_comes_by(self) -> None:
        """Everything that waits is applied."""
        self.drained(lambda: inbox.drain(at=self.now()))

    @precondition(lambda self: self.inbox.refused)
    @step(refused=one_of_the(lambda self: self.inbox.refused), is_readable=st.booleans())
    def a_refused_event_is_replayed(self, refused: Refused, is_readable: bool) -> None:
        """It is still unreadable, or the service has learnt to read it; then its age does not matter."""
        event = refused.event
        if is_readable:
            assert isinstance(event.view, PodView)
            event = Event(event.type, replace(event.view, readable=True))
            self.sql(
                "UPDATE hamiacct_event SET body = jsonb_set(body, '{status,phase}', to_jsonb(%s::text))"
                " WHERE id = %s",
                event.view.phase,
                refused.id,
            )
        self.hear_waiting_of(event)
        expected = "stale"
        if refused.history == self.history_of(event):
            expected = self.books.replay(event)
        inbox.replay(refused.id, at=self.now())
        tally.answers[f"a replay {expected}"] += 1
        if expected != "refused":
            self.inbox.refused.remove(refused)

    def hear_waiting_of(self, event: Event) -> None:
        """What waits of the same name is applied with it; so it is applied before, to tell the two apart."""
        if self.inbox.waiting:
            self.drained(lambda: inbox.drain(at=self.now()))

    @precondition(lambda self: self.inbox.refused)
    @step(refused=one_of_the(lambda self: self.inbox.refused))
    def a_refused_event_is_dismissed(self, refused: Refused) -> None:
        """For good."""
        inbox.dismiss(refused.id, at=self.now())
        self.inbox.refused.remove(refused)

    # --- time ---

    @step(days=st.sampled_from((0, 8)))
    def the_old_is_forgotten(self, days: int) -> None:
        """Tombstones that a full list has outlived are no longer needed."""
        at = self.now() + timedelta(days=days)
        sweeping.forget_the_old(keep_days=KEEP_DAYS, at=at)
        sweeping.look_at_the_clock(at=self.now())
        if days > KEEP_DAYS:
            self.books.forget_tombstones()

    # --- repair ---

    @step(book=st.sampled_from(sorted(SPOILS)))
    def totals_are_spoiled_and_repaired(self, book: str) -> None:
        """By somebody with a database client. The audit sees it, the repair follows the entries."""
        self.sql(SPOILS[book])
        before = audit.audit()
        assert {one.book for one in before.discrepancies} <= {book}
        answer = self.post("/api/v1/audit/repair")
        assert answer.status_code == 200, answer.content
        assert len(answer.json()["repaired"]) == len(before.discrepancies)

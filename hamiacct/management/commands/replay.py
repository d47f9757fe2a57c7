"""`manage.py replay FILE ...`: what kubectl printed goes into the books, as if it were happening now.

Events take the way of those that are sent: stored in the inbox, then applied, 500 at a time. Lists take the
way of full lists, with their guards. A text that cannot be read is told with its line and loses no other.
"""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError
from django.utils import timezone
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from api import bodies
from hamiacct import config
from hamiacct.accounting.errors import Malformed, SnapshotRefused
from hamiacct.accounting.words import EventState, Kind, Outcome
from hamiacct.kube import manifests, recordings
from hamiacct.kube.recordings import Sort, Text
from hamiacct.management import recorded_files
from hamiacct.management.recorded_files import Recording, Unusable
from hamiacct.operations import audit, inbox, snapshots
from hamiacct.queries import findings, usage
from hamiacct.queries import inbox as settled

BATCH_EVENTS = 500
NOT_ALL_TAKEN, UNUSABLE = 1, 2
INTERRUPTED = 130
# What may be said of the lists of a dump of many namespaces.
LISTS_TOLD = 20


class Told(NamedTuple):
    """An event of a file, and the line it begins in."""

    line: int
    event: object


@dataclass(slots=True)
class Tally:
    """What became of what was read."""

    files: int = 0
    texts: int = 0
    events: int = 0
    objects: int = 0
    rejected: int = 0
    refused_lists: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    lists: list[str] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)

    @property
    def all_taken(self) -> bool:
        """Whether nothing was rejected, refused or left waiting."""
        return not (
            self.rejected or self.refused_lists or self.outcomes[Outcome.REFUSED] or len(self.waiting)
        )


class Command(BaseCommand):
    """Replays recordings, and tells what became of them."""

    help = (
        "Reads what kubectl printed as JSON: a watch (kubectl get pods -A -w -o json --output-watch-events), "
        "lists (kubectl get nodes -o json), a directory of them such as kubectl cluster-info dump -A "
        "--output-directory=DIR lays out, compressed with gzip or not; - is standard input. Exit status: 0 "
        "all was taken and the books agree, 1 something was rejected or refused, or the books disagree, 2 "
        "a file or the database cannot be used."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """What to read, and what the lists in it may do."""
        parser.add_argument("files", nargs="+", metavar="FILE", help="a file, a directory, or -")
        parser.add_argument("--namespace", default="", help="lists are the truth for this namespace alone")
        parser.add_argument(
            "--confirm", type=int, metavar="N", help="a list may end exactly N charged pods, after a refusal"
        )
        parser.add_argument(
            "--new-history",
            action="store_true",
            help="versions begin anew, as after the cluster was restored",
        )
        parser.add_argument(
            "--complete",
            action="store_true",
            help="the books are complete afterwards, whatever lists there were",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """File by file, then the summary."""
        began = time.monotonic()
        tally = Tally()
        try:
            files = recorded_files.found(options["files"])
            with _Progress(sum(one.size_bytes for one in files)) as progress:
                for recording in files:
                    _Reader(self, recording, tally, options, progress).read()
            if not tally.texts:  # as when what should have written it has failed
                raise Unusable("nothing was in it: no event, no list, no object")
            _wait_for_the_rest(tally)
            if options["complete"]:
                snapshots.declare_complete(at=timezone.now())
            found = audit.audit()
            self.stdout.write(_summary(tally, found, time.monotonic() - began))
        except Unusable as fault:
            raise CommandError(str(fault), returncode=UNUSABLE) from fault
        except DatabaseError as fault:
            raise CommandError(f"the database cannot be used: {fault}", returncode=UNUSABLE) from fault
        except KeyboardInterrupt as end:
            told = "interrupted; what was applied stays so, and is stale when the same is replayed again"
            raise CommandError(told, returncode=INTERRUPTED) from end
        if not found.ok:
            raise CommandError("the books disagree: see manage.py audit", returncode=NOT_ALL_TAKEN)
        if not tally.all_taken:
            raise CommandError("not everything was taken", returncode=NOT_ALL_TAKEN)


class _Progress:
    """A bar on a terminal, and nothing anywhere else."""

    def __init__(self, total_bytes: int) -> None:
        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task: TaskID = self._bar.add_task("", total=total_bytes or None)
        self._before_bytes = 0

    def __enter__(self) -> _Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def at(self, name: str, done_bytes: int) -> None:
        """So much of this file has been read."""
        self._bar.update(self._task, description=name, completed=self._before_bytes + done_bytes)

    def say(self, message: str) -> bool:
        """Prints above the bar; False where there is none."""
        if self._console.is_terminal:
            self._console.print(message, markup=False, highlight=False, soft_wrap=True)
        return self._console.is_terminal

    def next_file(self, size_bytes: int) -> None:
        """The file is done."""
        self._before_bytes += size_bytes


class _Reader:
    """Reads one file into the books."""

    def __init__(
        self,
        command: BaseCommand,
        recording: Recording,
        tally: Tally,
        options: Mapping[str, Any],
        progress: _Progress,
    ) -> None:
        self._command = command
        self._recording = recording
        self._tally = tally
        self._options = options
        self._progress = progress
        self._batch: list[Told] = []
        self._items: list[object] = []  # of the list that is being read

    def read(self) -> None:
        """Every text of the file, in its order. Unusable where it turns out to be no JSON at all."""
        line = 0
        try:
            with recorded_files.opened(self._recording) as (lines, counted):
                for one in recordings.texts_of(lines, items_apart=True):
                    line = one.line
                    self._tally.texts += 1
                    self._take(one)
                    self._progress.at(self._recording.name, counted.done_bytes)
        except (OSError, EOFError, zlib.error, UnicodeError) as fault:
            self._reject(line, f"the file cannot be read any further: {fault}")
        self._flush()
        self._tally.files += 1
        self._progress.next_file(self._recording.size_bytes)

    def _take(self, one: Text) -> None:
        try:
            values = list(_values(one.text))
        except Malformed as fault:
            if one.line == 1 and (what := recorded_files.what_else(one.text)):
                raise Unusable(f"{self._recording.name} is {what}") from fault
            self._reject(one.line, fault.detail)
            values = [None] if one.item_of else []
        if one.item_of:
            kind = recordings.kind_in(one.item_of)
            self._items += [recordings.smaller(value, kind, config.vendors()) for value in values]
            return
        for value in values:
            try:
                self._take_value(one.line, value)
            except Malformed as fault:
                self._reject(one.line, fault.detail, fault.pointer)
        self._items = []

    def _take_value(self, line: int, value: object) -> None:
        sort = recordings.sort_of(value)
        assert isinstance(value, dict)
        if sort is Sort.LIST:
            self._flush()  # what came before the list in the file is older than it
            for one in recordings.lists_of({**value, "items": self._items} if self._items else value):
                self._apply_list(line, one)
        elif sort is Sort.EVENTS:
            for event in value["events"]:
                self._add(line, event)
        elif sort is Sort.EVENT:
            self._add(line, value)
        elif sort is Sort.OBJECT:
            self._tally.objects += 1
            self._add(line, {"type": "MODIFIED", "object": value})
        else:
            self._tally.outcomes[Outcome.IGNORED] += 1

    def _add(self, line: int, event: object) -> None:
        self._batch.append(Told(line, event))
        if len(self._batch) >= BATCH_EVENTS:
            self._flush()

    def _flush(self) -> None:
        """Stores and applies what was read so far."""
        batch, self._batch = self._batch, []
        if not batch:
            return
        tally = self._tally
        receipt = inbox.receive([one.event for one in batch], at=timezone.now())
        tally.events += len(batch)
        tally.outcomes[Outcome.IGNORED] += receipt.ignored
        for fault in receipt.rejected:
            pointer = fault.pointer.removeprefix(f"/events/{fault.index}")
            self._reject(batch[fault.index].line, fault.detail, pointer)
        inbox.settle([event_id for _, event_id in receipt.stored], at=timezone.now())
        results = settled.results(receipt.stored)
        for result in results:
            tally.outcomes[result.outcome] += 1
            if result.rule is not None:
                tally.rules[result.rule] += 1
            if result.outcome is Outcome.REFUSED:
                self._say(batch[result.index].line, f"refused, and kept in the inbox: {result.detail}")
        done = {result.index for result in results}
        tally.waiting += [event_id for index, event_id in receipt.stored if index not in done]

    def _apply_list(self, line: int, value: dict[str, Any]) -> None:
        listing = manifests.list_items(value)
        if not listing.kind:
            return  # an empty List says nothing of any kind
        namespace = self._options["namespace"] or recordings.namespace_of(listing, self._recording.folder)
        namespace = "" if listing.kind == Kind.NODE else namespace
        try:
            result = snapshots.apply(
                listing,
                namespace=namespace,
                confirm=self._options["confirm"],
                new_history=self._options["new_history"] and not namespace,
                at=timezone.now(),
            )
        except SnapshotRefused as fault:
            self._tally.refused_lists += 1
            said = str(fault).replace("?confirm=", "--confirm ").replace("?history=new", "--new-history")
            self._say(line, f"the list of {listing.kind}s is refused: {said}")
            return
        for one in result.rejected:
            self._reject(line, one.detail, one.pointer)
        where = f" of {namespace}" if namespace else ""
        self._tally.lists.append(
            f"{listing.kind}s{where} at version {result.version}: {result.added} added, {result.changed} "
            f"changed, {result.unchanged} unchanged, {result.ended} ended"
        )

    def _reject(self, line: int, detail: str, pointer: str = "") -> None:
        self._tally.rejected += 1
        self._say(line, f"rejected: {pointer + ': ' if pointer else ''}{detail}")

    def _say(self, line: int, message: str) -> None:
        told = f"{self._recording.name}, line {line}: {message}"
        if not self._progress.say(told):
            self._command.stderr.write(told)


def _values(text: bytes) -> Iterator[object]:
    """The JSON values of a text: one, or several that stand in one line with nothing between them."""
    try:
        yield bodies.parsed(text)
    except Malformed:
        pieces = text.replace(b"}{", b"}\n{").split(b"\n")
        if len(pieces) == 1 or text.startswith(b"{\n"):
            raise
        yield from [bodies.parsed(piece) for piece in pieces]


def _wait_for_the_rest(tally: Tally) -> None:
    """Applies what others held up meanwhile; what is left afterwards waits for the next sweep."""
    if not tally.waiting:
        return
    inbox.drain(at=timezone.now())
    results = settled.results([(event_id, event_id) for event_id in tally.waiting])
    tally.outcomes.update(result.outcome for result in results)
    tally.rules.update(result.rule for result in results if result.rule is not None)
    done = {result.index for result in results}
    tally.waiting = [event_id for event_id in tally.waiting if event_id not in done]


def _summary(tally: Tally, found: audit.Audit, seconds: float) -> str:
    """What was read, what became of it, and how the books stand now."""
    cluster = usage.cluster()
    lists = _count(len(tally.lists) + tally.refused_lists, "list")
    read = f"read {_count(tally.files, 'file')}: {_count(tally.events, 'event')}, {lists}"
    lines = [f"{read} in {seconds:.1f} s"]
    if tally.events:
        lines.append(f"events:    {_told(tally.outcomes) or 'none was taken'}")
    if tally.rules:
        lines.append(f"applied:   {_told(tally.rules)}")
    if tally.objects:
        lines.append(
            f"objects:   {tally.objects} events were bare objects, in which a deletion looks like a change; "
            "kubectl tells them apart with --output-watch-events"
        )
    lines += [f"list:      {one}" for one in tally.lists[:LISTS_TOLD]]
    if more := tally.lists[LISTS_TOLD:]:
        lines.append(f"list:      and {len(more)} more")
    if tally.refused_lists:
        lines.append(f"refused:   {_count(tally.refused_lists, 'list')}")
    if tally.rejected:
        lines.append(f"rejected:  {tally.rejected}, each told with its line")
    if tally.waiting:
        lines.append(f"{EventState.WAITING}:   {len(tally.waiting)}, for the next sweep")
    devices = f"{cluster.registered} registered, {cluster.unregistered} not"
    lines += [
        f"nodes:     {cluster.nodes}; devices: {devices}",
        f"memory:    {cluster.memory_mib.used} of {cluster.memory_mib.total} MiB used",
        f"pods:      {_told(cluster.pods_by_state) or 'none'}",
        f"findings:  {_told(findings.counts()) or 'none'}",
        "the books agree"
        if found.ok
        else f"the books disagree in {_count(len(found.discrepancies), 'place')}",
    ]
    return "\n".join(lines)


def _told(counts: Mapping[Any, int]) -> str:
    """Counts in words, the largest first; what there is none of is left out."""
    there = sorted(
        ((count, word) for word, count in counts.items() if count), key=lambda one: (-one[0], one[1])
    )
    return ", ".join(f"{count} {word}" for count, word in there)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"

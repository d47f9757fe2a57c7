"""`manage.py compare`: what HAMi books beside what is right, and the pods behind every difference."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.serializers.json import DjangoJSONEncoder
from django.db import DatabaseError
from django.utils import timezone
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from api import scrape
from api.compare import comparison_answer
from hamiacct.accounting import comparison
from hamiacct.accounting.amounts import Amount
from hamiacct.accounting.hami import Formula
from hamiacct.queries import compare, inbox

DIFFER, UNKNOWN = 1, 2
WIDTH_OF_A_PIPE = 1_000  # a table is as wide as its content; piped, nothing of it is folded or cut off

TOLD_APART = {
    Formula.V2_8: "every row of an allocation is added, whatever container it is for",
    Formula.V2_10: "a sidecar counts as an init: not beside the apps, and while it runs no peak ends",
    Formula.PR_2723: "sidecars are counted beside the apps",
}


class Command(BaseCommand):
    """Compares, and prints it for people or for programs."""

    help = (
        "What a version of HAMi books for the pods of the books, what its own metrics say when their address "
        "or a file is given, and what is right; every difference with its pods. Changes nothing. Exit "
        "status: 0, 1 with --fail-on-difference when there is one, 2 when it could not be found out."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Which HAMi, what of the cluster, and the form of the answer."""
        parser.add_argument(
            "--formula",
            type=Formula,
            choices=list(Formula),
            default=compare.DEFAULT_FORMULA,
            metavar="{" + ",".join(Formula) + "}",
            help="HAMi up to 2.9, HAMi 2.10 (before sidecars; the default), or since pull request 2723",
        )
        parser.add_argument(
            "--hami-metrics",
            metavar="URL|FILE",
            default="",
            help="/metrics of HAMi's scheduler, or a file with it; else HAMIACCT_HAMI_METRICS_URL",
        )
        parser.add_argument("--node", default="", help="only what concerns this node")
        parser.add_argument("--namespace", default="", help="only what concerns this namespace")
        parser.add_argument(
            "--all", action="store_true", help="also cards and namespaces without a difference"
        )
        parser.add_argument(
            "--fail-on-difference", action="store_true", help="exit status 1 if anything differs"
        )
        parser.add_argument("--json", action="store_true", help="print what GET /api/v1/compare answers")

    def handle(self, *args: Any, **options: Any) -> None:
        """One query, printed; the exit status says what came of it."""
        now = timezone.now()
        page = _metrics(options["hami_metrics"] or settings.HAMIACCT.hami_metrics_url)
        try:
            if not compare.knows(node=options["node"], namespace=options["namespace"]):
                raise CommandError("the books have not heard of that node or namespace", returncode=UNKNOWN)
            doubt = inbox.doubt(now)
            found = compare.compare(
                options["formula"],
                page.reported if page else None,
                node=options["node"],
                namespace=options["namespace"],
                everything=options["all"],
            )
        except DatabaseError as fault:
            raise CommandError(f"the books cannot be read: {fault}", returncode=UNKNOWN) from fault
        if options["json"]:
            answer = comparison_answer(found, page, as_of=now, doubt=doubt)
            self.stdout.write(json.dumps(answer, indent=2, cls=DjangoJSONEncoder))
        else:
            self.stdout.write(_page(found, page, now, doubt, everything=options["all"]), ending="")
        if options["fail_on_difference"] and not found.is_nothing:
            raise CommandError("HAMi and the books differ", returncode=DIFFER)
        if page and page.problem:
            raise CommandError(f"HAMi's metrics: {page.source} {page.problem}", returncode=UNKNOWN)
        if doubt:
            raise CommandError(f"the books may not tell all: {doubt}", returncode=UNKNOWN)


def _metrics(source: str) -> scrape.Page | None:
    if source and not scrape.is_address(source):
        return scrape.hami_file(Path(source))
    return scrape.hami(source)


# --- the page ------------------------------------------------------------------------------------


def _page(
    found: comparison.Comparison, page: scrape.Page | None, as_of: datetime, doubt: str, *, everything: bool
) -> str:
    """The sentence that sums it up, then the worst first; nothing is cut off."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH_OF_A_PIPE, highlight=False)
    said = page is not None and page.reported is not None
    with console.capture() as text:
        for line, style in _opening(found, page, as_of, doubt):
            console.print(Text(line, style=style), soft_wrap=True)
        screen = console.width
        for table in _tables(found, said, everything=everything):
            console.print()
            console.print(Text(str(table.title), style="cyan"), soft_wrap=True)
            table.title = None
            # Where names have given way and it still is too wide, the terminal breaks its lines.
            wide = console.options.update(max_width=WIDTH_OF_A_PIPE)
            needed = console.measure(table, options=wide).minimum + len(table.columns)  # a blank after each
            console.width = max(screen, needed)
            console.print(table)
            console.width = screen
    return "".join(f"{line.rstrip()}\n" for line in text.get().splitlines())


def _opening(
    found: comparison.Comparison, page: scrape.Page | None, as_of: datetime, doubt: str
) -> Iterator[tuple[str, str]]:
    compared = f"{_many(found.compared_cards, 'card')} and {_many(found.compared_pods, 'pod')} compared"
    yield f"HAMi {found.formula} beside the books, {as_of:%Y-%m-%d %H:%M:%S} UTC: {compared}.", "bold"
    yield f"HAMi {found.formula}: {TOLD_APART[found.formula]}.", ""
    if page is not None:
        yield (
            (f"HAMi's metrics: {page.source}", "")
            if not page.problem
            else (
                f"HAMi's metrics were not read: {page.source} {page.problem}",
                "red",
            )
        )
    if doubt:
        yield f"The books may not tell all: {doubt}.", "red"
    yield _sentence(found), "green" if found.is_nothing and not doubt else "bold red"


def _sentence(found: comparison.Comparison) -> str:
    """What an operator wants to know first."""
    if found.is_nothing:
        return "Nothing differs."
    parts = []
    if cards := found.excess.count:
        parts.append(f"{_many(cards, 'card')} {_verb(cards, 'holds', 'hold')} more than {_its(cards)} total")
    if found.short_of_room:
        short = comparison.sum_short(found.short_of_room)
        verb = _verb(short.count, "is", "are")
        parts.append(f"{_many(short.count, 'pod')} {verb} counted {_sizes(short.amount)} short")
    if pods := found.over.count:
        over = _sizes(found.over.amount)
        parts.append(f"{_many(pods, 'pod')} {_verb(pods, 'holds', 'hold')} back {over} that would be free")
    if pods := found.for_nobody.count:
        size = _memory(found.for_nobody.amount.memory_mib)
        parts.append(
            f"HAMi holds {size} for {_many(pods, 'pod')} that {_verb(pods, 'holds', 'hold')} nothing there"
        )
    if found.short_of_slots_alone:
        pods = comparison.sum_short(found.short_of_slots_alone).count
        parts.append(f"{_many(pods, 'pod')} {_verb(pods, 'is', 'are')} counted short of slots alone")
    return "; ".join(parts or ["sums differ, no pod does"]) + "."


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _verb(count: int, one: str, many: str) -> str:
    return one if count == 1 else many


def _its(count: int) -> str:
    return _verb(count, "its", "their")


def _sizes(amount: Amount) -> str:
    """12 GiB, 30 cores and 4 slots."""
    parts = [
        text
        for size, text in (
            (amount.memory_mib, _memory(amount.memory_mib)),
            (amount.cores, f"{amount.cores} cores"),
            (amount.slots, _many(amount.slots, "slot")),
        )
        if size
    ]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _memory(mib: int) -> str:
    return f"{mib} MiB" if mib < 1024 else f"{mib / 1024:.1f} GiB".replace(".0 GiB", " GiB")


def _tables(found: comparison.Comparison, said: bool, *, everything: bool) -> Iterator[Table]:
    """The sections that have something to show, in the order in which they matter."""
    if found.over_total:
        yield _over_total(found.over_total, said)
    if short := found.short_of_room:
        title = "Pods that HAMi counts short"
        yield _shares(title, "short by", short, [one.short for one in short], said)
    if found.held_back:
        title = "Peaks that are held back: room that would be free"
        yield _shares(title, "held back", found.held_back, [one.over for one in found.held_back], said)
    if found.gone:
        yield _gone(found.gone)
    if slots := found.short_of_slots_alone:
        title = "Pods that HAMi counts short of slots alone"
        yield _shares(title, "short by", slots, [one.short for one in slots], said)
    if cards := [card for card in found.cards if card.differs or everything]:
        yield _cards(cards, said)
    if found.namespaces:
        yield _namespaces(found.namespaces, said)


def _table(title: str, names: Sequence[str], numbers: Sequence[str], last: Sequence[str] = ()) -> Table:
    """Names give way first where a terminal is narrow, and are folded, never cut off."""
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False)
    table.padding, table.collapse_padding = (0, 1), True
    for name in names:
        table.add_column(name, overflow="fold", min_width=min(len(name), 8))
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    for name in last:
        table.add_column(name, justify="right", overflow="fold", min_width=8)
    return table


def _headings(said: bool) -> list[str]:
    """Of the numbers that are compared, memory first."""
    return ["HAMi\nMiB", *(["it says\nMiB"] if said else []), "right\nMiB", "cores", "slots"]


def _numbers(hami: Amount, reported_mib: int | None, right: Amount, said: bool) -> list[str]:
    metrics = ["-" if reported_mib is None else str(reported_mib)] if said else []
    memory = [str(hami.memory_mib), *metrics, str(right.memory_mib)]
    return [*memory, _pair(hami.cores, right.cores), _pair(hami.slots, right.slots)]


def _pair(hami: int, right: int) -> str:
    """HAMi's number and the right one, or the one that both are."""
    return str(right) if hami == right else f"{hami} -> {right}"


def _shares(
    title: str, what: str, shares: Sequence[comparison.Share], amounts: Sequence[Amount], said: bool
) -> Table:
    table = _table(title, ("pod", "node", "card"), _headings(said), [what])
    for share, amount in zip(shares, amounts, strict=True):
        numbers = _numbers(share.hami, share.reported_mib, share.right, said)
        table.add_row(_name(share), share.node, share.device, *numbers, _sizes(amount))
    return table


def _over_total(cards: Iterable[comparison.Card], said: bool) -> Table:
    title = "Cards that hold more than they have"
    table = _table(title, ("node", "card", "pods on it"), [*_headings(said), "has\nMiB"], ["over by"])
    for card in cards:
        numbers = _numbers(card.hami, card.reported_mib, card.right, said)
        last = (str(card.total.memory_mib), _sizes(card.over_by))
        table.add_row(card.node, card.uuid, _names(card.holders), *numbers, *last)
    return table


def _cards(cards: Iterable[comparison.Card], said: bool) -> Table:
    table = _table("By card", ("node", "card", "pods that differ"), [*_headings(said), "has\nMiB"])
    for card in cards:
        has = str(card.total.memory_mib) if card.registered else "unknown"
        numbers = _numbers(card.hami, card.reported_mib, card.right, said)
        table.add_row(card.node, card.uuid, _names(card.shares), *numbers, has)
    return table


def _namespaces(namespaces: Iterable[comparison.Namespace], said: bool) -> Table:
    table = _table(
        "By namespace, as quotas count", ("namespace", "vendor", "pods that differ"), _headings(said)
    )
    for one in namespaces:
        numbers = _numbers(one.hami, one.reported_mib, one.right, said)
        table.add_row(one.namespace, one.vendor, _names(one.shares), *numbers)
    return table


def _gone(gone: Iterable[comparison.Gone]) -> Table:
    table = _table(
        "What HAMi holds for pods that hold nothing there", ("pod", "it is", "node", "card"), ["MiB"]
    )
    for one in gone:
        table.add_row(_name(one), one.whereabouts, one.node, one.device, str(one.memory_mib))
    return table


def _name(pod: comparison.Share | comparison.Holder | comparison.Gone) -> str:
    return f"{pod.namespace}/{pod.name}"


def _names(pods: Iterable[comparison.Share | comparison.Holder]) -> str:
    """Pods, each once."""
    return ", ".join(sorted({_name(pod) for pod in pods}))

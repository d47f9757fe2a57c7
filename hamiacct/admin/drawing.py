"""From what was read to what a page draws: cards, folds, and the timeline of a pod's charges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.utils.safestring import SafeString

from hamiacct.accounting.amounts import Usage
from hamiacct.accounting.holdings import Step
from hamiacct.accounting.pods import ContainerClass, DeviceKey
from hamiacct.admin import shown
from hamiacct.admin.shown import Segment
from hamiacct.queries import findings
from hamiacct.queries.explanations import Explanation
from hamiacct.queries.folds import Holder, OnDevice
from hamiacct.queries.ledger import Line
from hamiacct.queries.overview import Card

PALETTE = 6
STEPS_DRAWN = 16
FEWEST_COLUMNS = 4  # so that a pod with one charge is no wall of colour
CHART_HEIGHT = 160
HEADROOM = 1.15


def condition(registered: bool, healthy: bool, cordoned: bool) -> list[tuple[str, str, str]]:
    """What keeps a device from being offered, as badges."""
    if not registered:
        return [("unregistered", "bad", "its node does not register it (any more)")]
    words = []
    if not healthy:
        words.append(("unhealthy", "bad", "its plugin says it is ill; no pod is placed on it"))
    if cordoned:
        words.append(("cordoned", "warn", "no more pods are placed on it"))
    return words or [("ready", "good", "")]


# --- a card of the overview ---


@dataclass(frozen=True, slots=True)
class Tile:
    """A card as the overview draws it."""

    address: str
    name: str
    title: str
    model: str
    bar: SafeString
    used: str
    total: str
    slots: str
    inits: str
    over: str
    is_dim: bool
    badges: tuple[tuple[str, str, str], ...]


def tile(card: Card) -> Tile:
    """The card's bar: what stays, what comes back when inits are done, what is too much; the rest is free."""
    over = card.over_mib if card.total_mib else card.used_mib
    steady = max(0, card.steady_mib - over)
    inits = min(card.inits_mib, card.used_mib - over)
    told = [f"{shown.gib(card.used_mib)} of {shown.gib(card.total_mib)} used"]
    told += [f"{shown.gib(card.inits_mib)} of it held for inits still running"] if card.inits_mib else []
    told += [f"{shown.gib(over)} more than there is"] if over else []
    told += [f"{shown.gib(card.free_mib)} free"]
    segments = (
        Segment("steady", steady, "steady"),
        Segment("inits", inits, "inits"),
        Segment("over", over, "over"),
    )
    words = condition(card.registered, card.healthy, card.cordoned)
    words = [word for word in words if word[0] != "ready"]
    words += [(note.code.value, "warn", note.detail) for note in card.notes if note.code != "overcommitted"]
    return Tile(
        shown.address("device", card.id),
        f"{card.vendor} {card.index}" if card.registered else "not registered",
        card.uuid,
        card.model,
        shown.bar(card.total_mib, segments, "; ".join(told), height=14),
        shown.gib(card.used_mib),
        shown.gib(card.total_mib),
        f"{card.slots_used}/{card.slots_total}",
        shown.gib(card.inits_mib) if card.inits_mib else "",
        shown.gib(over) if over else "",
        not card.registered or not card.healthy,
        tuple(words),
    )


# --- a fold, step by step ---


@dataclass(frozen=True, slots=True)
class Drawn:
    """One container of a fold: its bar lies on what was steady before it. Memory in MiB."""

    position: int
    name: str
    kind: str
    uses: str
    steady: str
    peak: str
    bar: SafeString


def fold(steps: Sequence[Step], key: DeviceKey | None = None) -> tuple[Drawn, ...]:
    """The fold on one device, or summed over all of them; every bar has the same scale."""

    def memory(usage: Usage[DeviceKey]) -> int:
        return usage[key].memory_mib if key is not None else usage.total.memory_mib

    scale = max((memory(step.footprint.effective) for step in steps), default=0)
    drawn = []
    before = 0
    for step in steps:
        uses, steady, peak = memory(step.usage), memory(step.footprint.steady), memory(step.footprint.peak)
        look = "inits" if step.container.kind is ContainerClass.INIT else "steady"
        told = f"{step.container.name} uses {shown.gib(uses)} on top of {shown.gib(before)}"
        segments = (
            Segment("below", before, "sidecars and apps before"),
            Segment(look, uses, step.container.name),
        )
        drawn.append(
            Drawn(
                step.container.position,
                step.container.name,
                step.container.kind.value,
                shown.gib(uses),
                shown.gib(steady),
                shown.gib(peak),
                shown.bar(scale, segments, told, height=14),
            )
        )
        before = steady
    return tuple(drawn)


# --- a card's own page ---


@dataclass(frozen=True, slots=True)
class Shareholder:
    """A pod on a card, with its fold there."""

    holder: Holder
    address: str
    look: str
    memory: str
    back: str
    state: SafeString
    fold: tuple[Drawn, ...]


@dataclass(frozen=True, slots=True)
class CardPage:
    """Who holds what of a card."""

    stack: SafeString
    used: str
    total: str
    free: str
    over: str
    back: str
    holders: tuple[Shareholder, ...]
    others: int
    notes: tuple[findings.Note, ...]
    badges: tuple[tuple[str, str, str], ...]
    ledger_address: str


def card(found: OnDevice, notes: Mapping[findings.Place, tuple[findings.Note, ...]]) -> CardPage:
    """The stack of its holders, and each one's fold."""
    row = found.device
    holders = tuple(
        Shareholder(
            holder,
            shown.address("pod", holder.uid),
            f"pod-{place % PALETTE}",
            shown.gib(holder.memory_mib),
            shown.gib(holder.memory_mib - holder.steady_mib) if holder.memory_mib > holder.steady_mib else "",
            shown.state(holder.state),
            fold(holder.steps, holder.key),
        )
        for place, holder in enumerate(found.holders)
    )
    segments = []
    for one in holders:
        name = f"{one.holder.namespace}/{one.holder.name}"
        segments.append(Segment(one.look, one.holder.steady_mib, f"{name}: {one.memory}"))
        back = one.holder.memory_mib - one.holder.steady_mib
        segments.append(Segment("inits", back, f"{name}, for its inits: {one.back}"))
    all_back = sum(one.memory_mib - one.steady_mib for one in found.holders)
    over = max(0, row.memory_mib_used - row.memory_mib_total)
    used, total = shown.gib(row.memory_mib_used), shown.gib(row.memory_mib_total)
    return CardPage(
        shown.bar(
            row.memory_mib_total, segments, f"{used} of {total} held by {len(found.holders)} pods", height=34
        ),
        used,
        total,
        shown.gib(max(0, row.memory_mib_total - row.memory_mib_used)),
        shown.gib(over) if over else "",
        shown.gib(all_back) if all_back else "",
        holders,
        found.others,
        notes.get((row.node, row.uuid), ()),
        tuple(condition(row.registered, row.healthy, row.cordoned)),
        shown.list_address("ledgerentry", node=row.node, device=row.uuid),
    )


# --- a pod's own page ---


@dataclass(frozen=True, slots=True)
class Charge:
    """A time in which the charge stayed the same: a column of the chart, sizes in percent and pixels."""

    at: datetime
    rules: str
    reason: str
    memory: str
    difference: str
    seq: int
    look: str
    x: float
    width: float
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Story:
    """Why a pod's charge is what it is, and how it came to be."""

    explanation: Explanation
    effective: str
    steady: str
    charged: str
    back: str
    fold: tuple[Drawn, ...]
    columns: tuple[Charge, ...]
    lines: tuple[Line, ...]
    earlier: int
    chart_label: str
    levels: tuple[tuple[float, str], ...]
    chart_height: int = CHART_HEIGHT


def story(explanation: Explanation) -> Story:
    """The fold as bars, the ledger as columns: each as wide as the next, with its time beneath."""
    effective, steady = explanation.effective.total.memory_mib, explanation.steady.total.memory_mib
    charged = explanation.charged.total.memory_mib
    stretches = _stretches(explanation.ledger)
    shown_ = stretches[-STEPS_DRAWN:]
    columns = _columns(shown_)
    told = ", then ".join(f"{one.memory} ({one.rules})" for one in columns)
    top = max((level for *_, level in shown_), default=0)
    return Story(
        explanation,
        shown.gib(effective),
        shown.gib(steady),
        shown.gib(charged),
        shown.gib(charged - steady) if charged > steady and len(explanation.steps) else "",
        fold(explanation.steps),
        columns,
        explanation.ledger[-STEPS_DRAWN * 4 :],
        len(stretches) - len(shown_),
        f"Memory charged over time: {told}" if columns else "",
        tuple((_y(level, top), shown.gib(level)) for level in sorted({0, top}) if top),
    )


Stretch = tuple[Sequence[Line], int, int]


def _stretches(lines: Sequence[Line]) -> list[Stretch]:
    """Lines posted in one moment by one rule, the difference they make, and the charge after them, in MiB."""
    stretches: list[Stretch] = []
    level = 0
    for line in lines:
        level += line.memory_mib
        if stretches and (stretches[-1][0][-1].at, stretches[-1][0][-1].rule) == (line.at, line.rule):
            together, difference, _ = stretches[-1]
            stretches[-1] = ([*together, line], difference + line.memory_mib, level)
        else:
            stretches.append(([line], line.memory_mib, level))
    return stretches


def _y(level: int, top: int) -> float:
    """Where a level is drawn, in pixels from above."""
    return round(CHART_HEIGHT - CHART_HEIGHT * level / (top * HEADROOM), 1) if top else CHART_HEIGHT


def _columns(stretches: Sequence[Stretch]) -> tuple[Charge, ...]:
    top = max((level for *_, level in stretches), default=0)
    width = 100 / max(len(stretches), FEWEST_COLUMNS)
    columns = []
    for place, (lines, difference, level) in enumerate(stretches):
        last = lines[-1]
        y = _y(max(level, 0), top)
        columns.append(
            Charge(
                last.at,
                last.rule.value,
                last.reason,
                shown.gib(level),
                ("+" if difference >= 0 else "−") + shown.gib(abs(difference)),
                last.seq,
                "down" if difference < 0 else "up",
                round(place * width, 2),
                round(width, 2),
                y,
                round(CHART_HEIGHT - y, 1),
            )
        )
    return tuple(columns)

"""Amounts, bars and links as HTML. Bars are SVG with sizes as attributes, so no style is ever inline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from django.contrib.admin.utils import quote
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

GIB = 1024
TEN_TIB_IN_GIB = 10_240
NOWHERE = "\0"  # in no text of the database, which refuses to look for it


@dataclass(frozen=True, slots=True)
class Segment:
    """One part of a bar: `look` is a class of the style sheet (steady, inits, held, over, pod-0 to pod-5)."""

    look: str
    amount: int
    label: str = ""


def gib(mib: int) -> str:
    """An amount of memory for people."""
    if not mib:
        return "0"
    if abs(mib) < GIB:
        return f"{mib} MiB"
    in_gib = mib / GIB
    if abs(in_gib) < TEN_TIB_IN_GIB:
        return f"{in_gib:.1f}".removesuffix(".0") + " GiB"
    return f"{in_gib / GIB:,.1f}".removesuffix(".0") + " TiB"


def percent(part: float, whole: float) -> float:
    """How much of the whole, with as many digits as a screen can show."""
    return round(part * 100 / whole, 2) if whole > 0 else 0.0


def bar(whole: int, segments: Iterable[Segment], label: str, *, height: int = 10) -> SafeString:
    """A bar split into segments, the rest of it free. What exceeds the whole shrinks the scale."""
    parts = [segment for segment in segments if segment.amount > 0]
    scale = max(whole, sum(segment.amount for segment in parts), 1)
    rects: list[tuple[str, float, float, str]] = []
    at = 0
    for segment in parts:
        rects.append((segment.look, percent(at, scale), percent(segment.amount, scale), segment.label))
        at += segment.amount
    drawn = format_html_join(
        "", '<rect class="ha-{}" x="{}%" y="0" width="{}%" height="100%"><title>{}</title></rect>', rects
    )
    limit = (
        format_html('<line class="ha-limit" x1="{0}%" x2="{0}%" y1="0" y2="100%"/>', percent(whole, scale))
        if 0 < whole < scale
        else ""
    )
    return format_html(
        '<svg class="ha-bar" role="img" aria-label="{}" width="100%" height="{}">'
        '<rect class="ha-free" x="0" y="0" width="100%" height="100%"/>{}{}</svg>',
        label,
        height,
        drawn,
        limit,
    )


def use(used: int, total: int, unit: str = "MiB") -> SafeString:
    """How much of a total is used, as a bar with its numbers."""
    over = max(0, used - total)
    label = f"{used} of {total} {unit} used" + (f", {over} too many" if over else "")
    segments = (Segment("steady", used - over), Segment("over", over))
    return format_html(
        '<span class="ha-use">{}<span class="ha-numbers">{} / {}</span></span>',
        bar(total, segments, label),
        used,
        total,
    )


def address(model: str, pk: object) -> str:
    """Where one object of ours is shown."""
    return reverse(f"admin:hamiacct_{model}_change", args=[quote(str(pk))])


def list_address(model: str, **filters: str) -> str:
    """Where objects of ours are listed."""
    query = f"?{urlencode(filters)}" if filters else ""
    return reverse(f"admin:hamiacct_{model}_changelist") + query


def link(text: object, where: str) -> SafeString:
    """A link."""
    return format_html('<a class="ha-link" href="{}">{}</a>', where, text)


def badge(text: object, look: str = "plain", title: str = "") -> SafeString:
    """A word in a small frame; `look` is plain, good, warn or bad."""
    return format_html('<span class="ha-badge ha-{}" title="{}">{}</span>', look, title, text)


def badges(words: Iterable[tuple[object, str, str]]) -> SafeString:
    """Several of them: text, look, title."""
    return format_html_join(
        " ",
        '<span class="ha-badge ha-{}" title="{}">{}</span>',
        ((look, title, text) for text, look, title in words),
    )


def lines(texts: Iterable[object]) -> SafeString:
    """One under the other."""
    return format_html_join("", '<span class="ha-line">{}</span>', ((text,) for text in texts))


LOOKS: Mapping[str, str] = {
    "peak": "warn",
    "steady": "good",
    "reserved": "info",
    "claimed": "info",
    "held": "info",
    "binding": "info",
    "bound": "info",
    "confirmed": "good",
    "refused": "bad",
    "waiting": "warn",
    "applied": "good",
    "error": "bad",
    "no-quota": "warn",
    "no-fit": "warn",
    "watching": "good",
    "listing": "info",
    "backing-off": "bad",
}


def state(word: str) -> SafeString:
    """A word of one of the closed lists, in its colour."""
    return badge(word, LOOKS.get(word, "plain"))


def quota_bar(used: int, hard: int) -> SafeString:
    """How much of a limit is used."""
    over = max(0, used - hard)
    label = f"{used} of {hard} used" + (f", over by {over}" if over else "")
    near = "near" if used * 10 >= hard * 9 else "steady"
    return bar(hard, (Segment(near, used - over), Segment("over", over)), label, height=8)

"""Whether a vendor's device plugin still lives: the handshake of a Node's annotations (semantics 2.4).

The clock is the caller's.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple

HANDSHAKE_SECONDS = 60
"""How long a scheduler's request may stay unanswered by a plugin that advertises nothing."""


class Handshake(NamedTuple):
    """HAMi's verdict on a vendor's plugin: whether it lives, and whether its register is read again."""

    healthy: bool
    need_update: bool


REQUESTING = "Requesting"
_STAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}")


def judge(value: str, now: datetime, allocatable: int, zone: tzinfo) -> Handshake:
    """The table of semantics 2.4. `allocatable` is the node's count of the vendor's resource."""
    if REQUESTING not in value:
        return Handshake(healthy=True, need_update=True)
    deadline = deadline_of(value, zone)
    if deadline is None or now < deadline or allocatable > 0:
        return Handshake(healthy=True, need_update=False)
    return Handshake(healthy=False, need_update=False)


def deadline_of(value: str, zone: tzinfo) -> datetime | None:
    """When a request of the scheduler will have been unanswered too long; None if it has no time."""
    _, underscore, rest = value.partition("_")
    stamp = rest.partition("_")[0]
    if not underscore or not _STAMP.fullmatch(stamp):
        return None
    try:
        asked = datetime.fromisoformat(stamp).replace(tzinfo=zone)
        return asked.astimezone(UTC) + timedelta(seconds=HANDSHAKE_SECONDS)
    except ValueError:
        return None  # a date that no calendar has
    except OverflowError:
        # Next to the first or last year; there a zone and a minute make no difference.
        return datetime.min.replace(tzinfo=UTC) if stamp < "5000" else datetime.max.replace(tzinfo=UTC)

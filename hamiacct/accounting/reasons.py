"""Why a node or a device is refused, in HAMi's words (semantics 6.2), and the texts made of them (6.5)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum


class Reason(StrEnum):
    """One word per check."""

    NODE_UNREGISTERED = "node unregistered"
    UNKNOWN_TYPE = "Device type not found"
    TOO_FEW_DEVICES = "NodeInsufficientDevice"
    UNHEALTHY = "CardNotHealth"
    SGPU_UNHEALTHY = "CardUnhealthy"
    CORDONED = "CardCordoned"
    TYPE = "CardTypeMismatch"
    MODE = "ModeNotFit"
    APP_CLASS = "CardAppClassMismatch"
    QOS_POLICY = "CardQosPolicyMismatch"
    NUMA = "NumaNotFit"
    UUID = "CardUuidMismatch"
    SLOTS = "CardTimeSlicingExhausted"
    EXCLUSIVE = "ExclusiveDeviceAllocateConflict"
    QUOTA = "ResourceQuotaNotFit"
    MEMORY = "CardInsufficientMemory"
    CORES = "CardInsufficientCore"
    CORES_EXHAUSTED = "CardComputeUnitsExhausted"
    MIG = "CardMigTopologyInfeasible"
    CUSTOM_RULE = "CardNotFoundCustomFilterRule"
    TOO_FEW_TAKEN = "AllocatedCardsInsufficientRequest"
    CLAIM = "ClaimDiffers"


UNCOUNTED = frozenset((Reason.NODE_UNREGISTERED, Reason.UNKNOWN_TYPE, Reason.TOO_FEW_DEVICES, Reason.CLAIM))
"""Reasons of a whole node: they are told without numbers."""

_COUNTED = re.compile(r"[0-9]+/[0-9]+ (\S+)")


def message(reasons: Mapping[str, int], devices: int) -> str:
    """`"<n>/<devices> <Reason>"` for each reason, sorted as texts and joined; `devices` were candidates."""
    return ", ".join(sorted(f"{count}/{devices} {reason}" for reason, count in reasons.items()))


def counted(text: str) -> tuple[str, ...]:
    """The reasons of a message that are of the counted form."""
    return tuple(match[1] for piece in text.split(", ") if (match := _COUNTED.fullmatch(piece)))


def by_reason(messages: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Node messages, turned: which nodes have each counted reason, both sorted."""
    nodes: dict[str, set[str]] = {}
    for node, text in messages.items():
        for reason in counted(text):
            nodes.setdefault(reason, set()).add(node)
    return {reason: tuple(sorted(nodes[reason])) for reason in sorted(nodes)}


def failure_texts(messages: Mapping[str, str], asked_nodes: int) -> tuple[str, ...]:
    """What events tell when no node fits: one text per counted reason, then the sum."""
    return (
        *(f"{len(nodes)} nodes {reason}({','.join(nodes)})" for reason, nodes in by_reason(messages).items()),
        f"no available node, {asked_nodes} nodes do not meet",
    )


def success_text(
    chosen: str, scores: Iterable[tuple[str, float]], asked_nodes: int, *, refused_nodes: int | None = None
) -> str:
    """What the event of a choice tells. Where more nodes fit than have scores here, the others are dots."""
    shown = sorted(f"{node}:{score:.2f}" for node, score in scores)
    refused = asked_nodes - len(shown) if refused_nodes is None else refused_nodes
    fitting = asked_nodes - refused
    if fitting > len(shown):
        shown.append("...")
    return f"find fit node({chosen}), {refused} nodes not fit, {fitting} nodes fit({','.join(shown)})"

"""The closed lists of the contract: one word, used in the ledger, the answers, and the docs."""

from __future__ import annotations

from enum import StrEnum


class Rule(StrEnum):
    """Why a charge is what it is; recorded with every ledger line."""

    CHARGED = "charged"
    REPLACED = "replaced"
    SHRUNK = "shrunk"
    UNCHANGED = "unchanged"
    TERMINATING = "terminating"
    TERMINAL = "terminal"
    DELETED = "deleted"
    ABSENT = "absent"
    REVIVED = "revived"
    SUPERSEDED = "superseded"
    RESERVED = "reserved"
    CONFIRMED = "confirmed"
    RELEASED = "released"
    EXPIRED = "expired"
    RECHARGED = "recharged"
    REPAIRED = "repaired"


class PodState(StrEnum):
    """Where a pod stands in the books."""

    UNSCHEDULED = "unscheduled"
    CLAIMED = "claimed"
    RESERVED = "reserved"
    PEAK = "peak"
    STEADY = "steady"
    ENDED = "ended"


class Outcome(StrEnum):
    """What became of one event."""

    APPLIED = "applied"
    STALE = "stale"
    REFUSED = "refused"
    IGNORED = "ignored"


class ChargedAs(StrEnum):
    """Which reading of the pod's footprint is charged."""

    NOTHING = "nothing"
    EFFECTIVE = "effective"
    STEADY = "steady"
    HELD = "held"


class ReservationState(StrEnum):
    """The life of a reservation (decision 26)."""

    HELD = "held"
    BINDING = "binding"
    BOUND = "bound"
    CONFIRMED = "confirmed"
    RELEASED = "released"
    EXPIRED = "expired"

    @property
    def stands(self) -> bool:
        """Whether the hold is what its pod is charged."""
        return self in (ReservationState.HELD, ReservationState.BINDING, ReservationState.BOUND)


class Question(StrEnum):
    """What was asked when something was refused."""

    FIT = "fit"
    RESERVATION = "reservation"
    FILTER = "filter"
    BIND = "bind"
    ADMISSION = "admission"
    QUOTA_CHECK = "quota-check"


class Refusal(StrEnum):
    """How a question was refused."""

    NO_FIT = "no-fit"
    NO_QUOTA = "no-quota"
    REFUSED = "refused"
    ERROR = "error"


class FindingCode(StrEnum):
    """What is odd about a pod, device, node or quota, and worth an operator's look."""

    UNDECODABLE_ANNOTATION = "undecodable-annotation"
    VANISHED_ANNOTATION = "vanished-annotation"
    AMBIGUOUS_LAYOUT = "ambiguous-layout"
    ROW_OUTSIDE_POD = "row-outside-pod"
    UNREGISTERED_DEVICE = "unregistered-device"
    USAGE_ON_MISSING_DEVICE = "usage-on-missing-device"
    REGISTRATION_MISSING = "registration-missing"
    REGISTRATION_UNREADABLE = "registration-unreadable"
    HANDSHAKE_EXPIRED = "handshake-expired"
    OVERCOMMITTED = "overcommitted"
    INIT_RERUN_AFTER_SHRINK = "init-rerun-after-shrink"
    CLAIM_STALE = "claim-stale"
    PLACEMENT_DIFFERS = "placement-differs"
    ALLOCATE_FAILED = "allocate-failed"
    ALLOCATE_STUCK = "allocate-stuck"
    ALLOCATION_NOT_REQUESTED = "allocation-not-requested"
    LIMIT_BELOW_USE = "limit-below-use"
    QUOTA_KEY_NOT_ENFORCED = "quota-key-not-enforced"
    QUOTA_VALUE_UNREADABLE = "quota-value-unreadable"
    QUOTA_VALUE_ABSURD = "quota-value-absurd"
    UNKNOWN_SCOPE = "unknown-scope"
    TERMINATING_OVERDUE = "terminating-overdue"
    LABEL_TOO_LONG = "label-too-long"
    DUPLICATE_REGISTRATION = "duplicate-registration"


class SubjectKind(StrEnum):
    """What a finding is about."""

    POD = "Pod"
    DEVICE = "Device"
    NODE = "Node"
    QUOTA = "ResourceQuota"


class Role(StrEnum):
    """Who may call what (contract, "Who may call")."""

    VIEWER = "viewer"
    SCHEDULER = "scheduler"
    INGESTER = "ingester"
    OPERATOR = "operator"


class Kind(StrEnum):
    """The Kubernetes kinds the books read."""

    POD = "Pod"
    NODE = "Node"
    QUOTA = "ResourceQuota"


class WatchState(StrEnum):
    """What the watcher does about one kind."""

    STANDING_BY = "standing-by"
    LISTING = "listing"
    WATCHING = "watching"
    BACKING_OFF = "backing-off"
    STOPPED = "stopped"


class EventType(StrEnum):
    """Watch event types."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


class EventState(StrEnum):
    """Where an inbox event stands."""

    WAITING = "waiting"
    APPLIED = "applied"
    STALE = "stale"
    REFUSED = "refused"
    DISMISSED = "dismissed"


class Book(StrEnum):
    """The books that must agree (decision 35)."""

    REPLAY = "replay"
    ENTRIES = "entries"
    DEVICES = "devices"
    NAMESPACES = "namespaces"
    QUOTAS = "quotas"


class Whereabouts(StrEnum):
    """What the books know of a pod that HAMi holds something for and that holds nothing there."""

    UNKNOWN = "unknown"
    ENDED = "ended"
    ELSEWHERE = "elsewhere"

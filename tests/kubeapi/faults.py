"""What goes wrong with a call, on demand."""

import threading
from dataclasses import dataclass, field
from enum import StrEnum


class Fault(StrEnum):
    """What goes wrong with a call: before anything was done, or after it was, or within the answer."""

    CONFLICT = "409"
    FORBIDDEN = "403"
    UNAUTHORIZED = "401"
    THROTTLED = "429"  # with Retry-After
    EXPIRED = "410"  # as the answer's status: what a watch may meet instead of an ERROR in its stream
    FAILED_BEFORE = "500 before"
    FAILED_AFTER = "500 after"
    CUT_BEFORE = "cut before"
    CUT_AFTER = "cut after"
    CUT_WITHIN = "cut within"  # in the middle of the answer

    @property
    def is_done(self) -> bool:
        """Whether the call was carried out nevertheless."""
        return self in (Fault.FAILED_AFTER, Fault.CUT_AFTER, Fault.CUT_WITHIN)


class Ending(StrEnum):
    """How a watch ends before its time."""

    WELL = "well"
    CUT = "cut"  # between two events
    CUT_WITHIN = "cut within"  # in the middle of an event, and of its chunk
    HALF = "half"  # in the middle of an event, but with all that HTTP wants
    FAILED = "500"  # the last event is an ERROR
    EXPIRED = "410"


@dataclass
class Trouble:
    """A fault that waits for its calls. A watch ends after so many events."""

    method: str
    path_end: str
    fault: Fault | Ending
    times: int
    after: int

    def meets(self, methods: tuple[str, ...], path: str) -> bool:
        return self.times > 0 and self.method in methods and path.endswith(self.path_end)


@dataclass
class Held:
    """A call that is not carried out until it is let go: `reached` when it is there, `go` to let it, `over`
    when it was carried out or refused.
    """

    method: str
    path_end: str
    reached: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)

"""The error tree. The message is for people; `code` is stable for ever.

AccountingError
  Malformed        a text or object that cannot be read; never retried as it stands
    UnreadableAnnotation   one vendor's allocation text; carries key, offset, reason
    UnreadableQuantity     a Kubernetes quantity
    UnreadableRequest      what a container asks of a vendor; names the container, key and value
  NotFound         a pod, node or namespace that the books do not know
  Conflict         the books moved on, or somebody else holds it
    SnapshotRefused        a full list that a guard refuses
      OlderThanApplied       it is older than what is applied of its kind
      Overtaken              a newer list, or a new history, came in while it did
      TooManyAbsent          it would end more than a list may end by itself
    AnotherCluster         the cluster is not the one these books are kept of
    LeaseLost              another watcher holds the lease
  Unavailable      a database, broker or cluster that does not answer
"""


class AccountingError(Exception):
    """The root; `code` names the class in answers and logs."""

    code = "error"


class Malformed(AccountingError):
    """A text or object that cannot be read. `pointer` is a JSON pointer into it."""

    code = "malformed"

    def __init__(self, detail: str, pointer: str = "") -> None:
        super().__init__(detail)
        self.detail = detail
        self.pointer = pointer


class UnreadableAnnotation(Malformed):
    """An allocation text that breaks the grammar at `offset` (characters from its start)."""

    code = "undecodable-annotation"

    def __init__(self, detail: str, offset: int = 0) -> None:
        super().__init__(detail)
        self.offset = offset


class UnreadableQuantity(Malformed):
    """A Kubernetes quantity without an exact whole value where one is needed."""

    code = "unreadable-quantity"


class UnreadableRequest(Malformed):
    """What a container asks of a vendor and nobody can grant; never read as nothing (decision 21).

    The message names the container, the key and the value; `position` is the container's.
    """

    code = "unreadable-request"

    def __init__(self, detail: str, position: int) -> None:
        super().__init__(detail)
        self.position = position


class NotFound(AccountingError):
    """A pod, node, device or namespace that the books do not know."""

    code = "not-found"


class Conflict(AccountingError):
    """The request contradicts what the books hold; `numbers` go into the answer."""

    code = "conflict"

    def __init__(self, detail: str, **numbers: object) -> None:
        super().__init__(detail)
        self.detail = detail
        self.numbers = numbers


class NoRoom(Conflict):
    """No node takes the pod now; `failed` says why, node by node."""

    code = "insufficient-capacity"


class QuotaExceeded(Conflict):
    """Some node would take the pod if its quotas were left aside (decision 28)."""

    code = "quota-exceeded"


class SnapshotRefused(Conflict):
    """A full list that a guard refuses (decisions 8 and 33)."""

    code = "snapshot-refused"


class OlderThanApplied(SnapshotRefused):
    """The list's version is below what is applied of its kind: it is late, or the cluster was restored."""


class Overtaken(SnapshotRefused):
    """Newer truth came in while the list did: what it has yet to tell is of the past."""


class TooManyAbsent(SnapshotRefused):
    """The list does not hold more than a list may end by itself (decision 33).

    `absent` are the ids of everything it would end (uid; name; namespace/name), `would_end` counts those
    that the guard counts.
    """

    def __init__(self, detail: str, *, absent: frozenset[str], would_end: int, **numbers: object) -> None:
        super().__init__(detail, would_end=would_end, **numbers)
        self.absent = absent
        self.would_end = would_end


class AnotherCluster(Conflict):
    """The UID of kube-system is not the one these books are kept of (decision 8)."""

    code = "another-cluster"


class LeaseLost(Conflict):
    """Somebody else watches by now: what was begun under the lease must not go on."""

    code = "lease-lost"


class Unavailable(AccountingError):
    """Something this service needs does not answer; try again after `retry_after_seconds`."""

    code = "unavailable"

    def __init__(self, detail: str, retry_after_seconds: int = 1) -> None:
        super().__init__(detail)
        self.detail = detail
        self.retry_after_seconds = retry_after_seconds

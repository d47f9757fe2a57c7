"""What a cluster keeps: objects that are never altered in place, one version for everything, every change."""

import base64
import bisect
import json
import threading
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Object = dict[str, Any]
Key = tuple[str, str, str]  # kind, namespace, name

ENOUGH_SNAPSHOTS = 64


class Refusal(Exception):
    """An answer that is a Status. `more` goes into its metadata."""

    def __init__(self, code: int, reason: str, message: str, **more: str) -> None:
        self.body: Object = {"kind": "Status", "apiVersion": "v1", "metadata": more, "status": "Failure"}
        self.body |= {"message": message, "reason": reason, "code": code}
        self.code = code
        super().__init__(message)


class Change(NamedTuple):
    """One version: an object as it is then (as it was last, if deleted), and as it was before."""

    version: int
    type: str
    item: Object
    before: Object | None


class Backup(NamedTuple):
    """Everything as it was at a version."""

    version: int
    objects: dict[Key, Object]


@dataclass
class Store:
    """Every object, and every change in order. `horizon` is the oldest version a watch may begin at."""

    version: int = 1000
    objects: dict[Key, Object] = field(default_factory=dict)
    log: list[Change] = field(default_factory=list)
    horizon: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)
    _snapshots: dict[tuple[str, int], "Snapshot"] = field(default_factory=dict)

    def write(self, type_: str, kind: str, item: Object, api_version: str = "v1") -> Object:
        self.version += 1
        metadata = {**item["metadata"], "resourceVersion": str(self.version)}
        key = (kind, metadata.get("namespace", ""), metadata["name"])
        item = {"kind": kind, "apiVersion": api_version, **item, "metadata": metadata}
        before = self.objects.get(key)
        if type_ == "DELETED":
            del self.objects[key]
        else:
            self.objects[key] = item
        self.log.append(Change(self.version, type_, item, before))
        self.changed.notify_all()
        return item

    def read(self, kind: str, namespace: str, name: str) -> Object:
        try:
            return self.objects[kind, namespace, name]
        except KeyError:
            raise Refusal(404, "NotFound", f'{kind.lower()}s "{name}" not found') from None

    def changes_after(self, version: int) -> list[Change]:
        return self.log[bisect.bisect_right(self.log, version, key=lambda change: change.version) :]

    # --- lists

    def snapshot(self, kind: str) -> "Snapshot":
        """The kind as it is now. Later pages of the same list find it by its version."""
        known = self._snapshots.get((kind, self.version))
        if known is None:
            keys = sorted((key[1:] for key in self.objects if key[0] == kind), key=path_of)
            items = [self.objects[kind, *key] for key in keys]
            known = Snapshot(self.version, [path_of(key) for key in keys], items)
            self._snapshots[kind, self.version] = known
            if len(self._snapshots) > ENOUGH_SNAPSHOTS:
                del self._snapshots[next(iter(self._snapshots))]
        return known

    def snapshot_at(self, kind: str, version: int, start: str) -> "Snapshot":
        """The kind as it was at the version of a list that goes on at `start`."""
        if version < 0:  # the token of a 410: whatever is there now
            return self.snapshot(kind)
        self.check_reached(version)
        known = self._snapshots.get((kind, version))
        if known is None or version < self.horizon:
            raise Refusal(
                410,
                "Expired",
                "The provided continue parameter is too old to display a consistent list result. You can"
                " start a new list without the continue parameter, or use the continue token in this"
                " response to retrieve the remainder of the results. Continuing with the provided token"
                " results in an inconsistent list.",
                **{"continue": token(-1, start)},
            )
        return known

    def check_reached(self, version: int) -> None:
        """A list of the future is waited for, in vain; a watch from there is silent until it is reached."""
        if version > self.version:
            raise Refusal(
                504, "Timeout", f"Timeout: Too large resource version: {version}, current: {self.version}"
            )

    # --- the past

    def backup(self) -> Backup:
        return Backup(self.version, dict(self.objects))

    def restore(self, backup: Backup) -> None:
        self.version, self.objects = backup.version, dict(backup.objects)
        self.horizon = backup.version
        self.log.clear()
        self._snapshots.clear()
        self.changed.notify_all()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One kind at one version, in the order of its lists."""

    version: int
    paths: list[str]
    items: list[Object]


def path_of(key: tuple[str, str]) -> str:
    """namespace/name, which is what lists are ordered by."""
    namespace, name = key
    return f"{namespace}/{name}" if namespace else name


def token(version: int, start: str) -> str:
    """Where a list goes on; opaque to clients."""
    document = {"v": "meta.k8s.io/v1", "rv": version, "start": start}
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")


def untoken(text: str) -> tuple[int, str]:
    try:
        document = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        return int(document["rv"]), str(document["start"])
    except (ValueError, KeyError, TypeError):
        raise Refusal(400, "BadRequest", "continue key is not valid") from None


def merged(target: Any, changes: Any) -> Any:
    """RFC 7386."""
    if not isinstance(changes, dict):
        return changes
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in changes.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result

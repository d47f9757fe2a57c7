"""A pod on its way to its node, as the API server sees it: the steps, and how they are undone (decision 30).

The node's locks, one patch with the placement, the Binding. Every text that is written follows from the
`Binding` alone, its time included: so whoever comes later, another process or a minute after a crash,
knows what on the cluster is of this attempt and what is not. Nothing else is ever undone.

Every change carries the resourceVersion of what was looked at. An undo changes the pod: so either the
Binding came before it, and the look shows that; or it comes after, and finds the pod changed. A lost call may
be under way still when the look shows nothing of it; then pod and node are changed and changed back, so that
it finds them changed too. And nothing is sent by an attempt so old that beat may be undoing it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from hamiacct.accounting.binding import Binding
from hamiacct.accounting.errors import Conflict, Malformed, NotFound, Unavailable
from hamiacct.accounting.vendors import Vendor
from hamiacct.kube import annotations as codec
from hamiacct.kube import fields, manifests, node_locks, patches
from hamiacct.kube.client import Client, Manifest, Unclear
from hamiacct.kube.node_locks import LockKind, Standing

TRIES = 5
FORWARD_SECONDS = 40
"""After so long an attempt takes no further step. A margin before beat, for a call and for clocks."""

Texts = Mapping[str, str | None]


class LockHeld(Conflict):
    """Another pod is on its way to the node; it will be over soon."""

    code = "lock-held"


@dataclass(frozen=True, slots=True)
class Steps:
    """The cluster, and the vendors whose locks and annotations are meant."""

    client: Client
    vendors: Sequence[Vendor]
    now: Callable[[], datetime]

    # --- forward

    def bind(self, binding: Binding, live: Manifest, wait: Callable[[], bool]) -> None:
        """The three steps. Raises where one fails; what was done by then is left to `undo`.

        `live` is the pod as it was looked at. `wait` waits a moment and says whether there is time for
        another try at a lock; LockHeld where there is none.
        """
        for kind in self.locks_of(binding):
            self._lock(binding, kind, wait)
        version = self._write(binding, live)
        self._check_time(binding)
        self.client.bind(binding.namespace, binding.name, uid=binding.uid, version=version, node=binding.node)

    def _check_time(self, binding: Binding) -> None:
        """Raises Unavailable where the attempt is so old that somebody else may be undoing it."""
        if self.now() - binding.at > timedelta(seconds=FORWARD_SECONDS):
            raise Unavailable(f"binding took longer than {FORWARD_SECONDS} s")

    def locks_of(self, binding: Binding) -> tuple[LockKind, ...]:
        """The node locks the pod needs, in the order in which they are taken."""
        return node_locks.kinds_of(binding.placement.allocations, self.vendors)

    def _lock(self, binding: Binding, kind: LockKind, wait: Callable[[], bool]) -> None:
        """Takes a lock of the node, or takes it over."""
        text = node_locks.text_of(kind, binding.namespace, binding.name, binding.at)
        while True:
            node = self.client.node(binding.node)
            obstacle = self._obstacle(binding, kind, _annotations(node).get(kind.key))
            if obstacle is None:
                self._check_time(binding)
                try:
                    self.client.patch_node(binding.node, _node_patch(node, kind, text))
                    return
                except Conflict:
                    obstacle = "changed just now"
                except Unclear as lost:
                    with _in_doubt(lost):
                        node = self.client.node(binding.node)
                    if _annotations(node).get(kind.key) == text:
                        return
                    raise
            if not wait():
                raise LockHeld(f"node {binding.node}: {kind.key} {obstacle}")

    def _obstacle(self, binding: Binding, kind: LockKind, text: str | None) -> str | None:
        """Why the lock cannot be had, in words; None where it can."""
        found = node_locks.standing(kind, text, binding.namespace, binding.name, binding.at)
        if found is Standing.MALFORMED:
            return f"cannot be read, so nobody knows whose it is: {codec.shown(text or '')}"
        if found is not Standing.HELD:
            return None
        lock = node_locks.parse(text or "")
        if not lock.has_holder:
            return f"is held since {text}"
        try:
            holder = manifests.pod_from_manifest(self.client.pod(lock.namespace, lock.name), self.vendors)
        except NotFound:
            return None
        except Malformed:
            return f"is held by {lock.namespace}/{lock.name}"  # unreadable, but there
        return None if node_locks.has_let_go(holder) else f"is held by {lock.namespace}/{lock.name}"

    def _write(self, binding: Binding, live: Manifest) -> str:
        """Writes the placement; answers the pod's resourceVersion with it.

        Onto the pod as it was looked at, or as it is now if it still may be bound: what another scheduler
        has bound since keeps its own placement.
        """
        for _ in range(TRIES):
            self._check_time(binding)
            try:
                after = self.client.patch_pod(binding.namespace, binding.name, self._placed(binding, live))
            except Conflict:
                live = self.client.pod(binding.namespace, binding.name)
                if not _may_be_bound(binding, live):
                    raise
                continue
            except Unclear as lost:
                with _in_doubt(lost):
                    after = self.client.pod(binding.namespace, binding.name)
                if not self._is_ours(binding, after):
                    raise
            return str(after["metadata"]["resourceVersion"])
        raise Conflict(f"pod {binding.namespace}/{binding.name} does not hold still")

    def _placed(self, binding: Binding, live: Manifest) -> Manifest:
        """The patch that writes the placement, if the pod is still as it was looked at."""
        return _pod_patch(binding, live, *self._placement(binding, live))

    def _placement(self, binding: Binding, live: Manifest) -> tuple[Texts, Texts]:
        """The annotations and labels of a pod that is on its way; None removes an earlier placement's."""
        pod = manifests.pod_from_manifest(live, self.vendors)
        written, labels = patches.annotations_of(binding.placement, pod, self.vendors, binding.at)
        stale = patches.keys_of_placements(self.vendors) & _annotations(live).keys()
        return (
            {**dict.fromkeys(stale), **written, **patches.of_binding(binding.at)},
            {codec.VGPU_NODE: None, **labels},
        )

    # --- back

    def undo(self, binding: Binding, *, may_come_late: bool) -> bool:
        """Undoes what was done, last step first; answers whether the pod turns out to be bound after all.

        Then its placement stays, and its locks are the device plugin's. Unavailable where the cluster does
        not say how it stands: then nothing may be concluded, and somebody must ask again.

        `may_come_late`: a call of the attempt may be under way still, so what shows nothing of it is changed
        and changed back.
        """
        if self._is_bound_or_undone(binding, may_come_late):
            return True
        for kind in reversed(self.locks_of(binding)):
            self._unlock(binding, kind, may_come_late)
        return False

    def _is_bound_or_undone(self, binding: Binding, may_come_late: bool) -> bool:
        """True: bound, with our placement. False: nothing of ours is on it, nor will a Binding of ours be."""
        mark, former, is_marked = patches.of_binding(binding.at)[codec.BIND_TIME], None, False
        for _ in range(TRIES):
            try:
                live = self.client.pod(binding.namespace, binding.name)
                if self._is_ours(binding, live):
                    if live.get("spec", {}).get("nodeName") == binding.node:
                        return True
                    self._patch(binding, self._cleared(binding, live))
                    return False
                if live["metadata"].get("uid") != binding.uid:
                    return False
                # A time of binding alone tells nobody anything: it is set, and set back.
                told = _annotations(live)
                if told.get(codec.BIND_TIME) == mark and (is_marked or codec.VGPU_NODE not in told):
                    may_come_late = False
                    self._patch(binding, _pod_patch(binding, live, {codec.BIND_TIME: former}, {}))
                if not may_come_late or not _may_be_bound(binding, live):
                    return False
                former, is_marked = told.get(codec.BIND_TIME), True
                self._patch(binding, _pod_patch(binding, live, {codec.BIND_TIME: mark}, {}))
            except NotFound:
                return False
            except (Conflict, Unclear):
                continue
        raise Unavailable(f"pod {binding.namespace}/{binding.name} does not hold still")

    def _patch(self, binding: Binding, changes: Manifest) -> None:
        self.client.patch_pod(binding.namespace, binding.name, changes)

    def _cleared(self, binding: Binding, live: Manifest) -> Manifest:
        """The patch that takes back what `_write` wrote, if the pod is still as it was looked at."""
        written, labels = self._placement(binding, live)
        ours = [key for key, text in written.items() if text is not None]
        return _pod_patch(binding, live, dict.fromkeys(ours), dict.fromkeys(labels))

    def _is_ours(self, binding: Binding, live: Manifest) -> bool:
        """Whether the pod is the one meant, with the placement of this attempt on it.

        What a device plugin writes while it allocates is not looked at.
        """
        if live["metadata"].get("uid") != binding.uid:
            return False
        written, _ = self._placement(binding, live)
        lasting = {codec.VGPU_NODE, codec.VGPU_TIME, *(vendor.allocated_key for vendor in self.vendors)}
        found = _annotations(live)
        return all(found.get(key) == text for key, text in written.items() if key in lasting)

    def _unlock(self, binding: Binding, kind: LockKind, may_come_late: bool) -> None:
        """Gives a lock back, if it is the one this attempt took.

        One that may be taken yet is taken first; where another holds it the node has changed, and it cannot.
        """
        text = node_locks.text_of(kind, binding.namespace, binding.name, binding.at)
        for _ in range(TRIES):
            try:
                node = self.client.node(binding.node)
                found = _annotations(node).get(kind.key)
                if found == text:
                    may_come_late = False
                    self.client.patch_node(binding.node, _node_patch(node, kind, None))
                    return
                if not may_come_late or self._obstacle(binding, kind, found) is not None:
                    return
                self.client.patch_node(binding.node, _node_patch(node, kind, text))
            except NotFound:
                return
            except (Conflict, Unclear):
                continue
        raise Unavailable(f"node {binding.node} does not hold still")


@contextmanager
def _in_doubt(lost: Unclear) -> Iterator[None]:
    """A look that fails leaves in doubt what was."""
    try:
        yield
    except Unavailable as fault:
        raise Unclear(f"{lost}; {fault}") from fault


def _may_be_bound(binding: Binding, live: Manifest) -> bool:
    """Whether it is the pod meant, on no node and not on its way out."""
    metadata = live["metadata"]
    is_free = not live.get("spec", {}).get("nodeName") and not metadata.get("deletionTimestamp")
    return is_free and metadata.get("uid") == binding.uid


def _pod_patch(binding: Binding, live: Manifest, annotations: Texts, labels: Texts) -> Manifest:
    """Sets or removes annotations and labels, if the pod is still as it was looked at."""
    version = live["metadata"]["resourceVersion"]
    return {
        "metadata": {
            "uid": binding.uid,
            "resourceVersion": version,
            "annotations": annotations,
            "labels": labels,
        }
    }


def _node_patch(node: Manifest, kind: LockKind, text: str | None) -> Manifest:
    """Sets or removes a lock, if the node is still as it was looked at."""
    version = node["metadata"]["resourceVersion"]
    return {"metadata": {"resourceVersion": version, "annotations": {kind.key: text}}}


def _annotations(item: Manifest) -> Mapping[str, Any]:
    return fields.mapping(fields.mapping(item, "metadata", ""), "annotations", "/metadata")

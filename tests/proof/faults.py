"""Faults that are planted into the service, to see the histories find them."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from api import bind
from api.reservations import ReservationBound
from hamiacct.accounting import footprint, lifecycle, quota
from hamiacct.kube import binding
from hamiacct.operations import (
    audit,
    bindings,
    kinds,
    ledger,
    node_events,
    pod_events,
    quota_events,
    reservations,
    rounds,
    snapshots,
    streams,
)
from hamiacct.queries import fits


@dataclass(frozen=True)
class Fault:
    """In the function's text one piece stands for another. `kind` is the histories that should find it."""

    what: str
    where: Callable[..., Any]
    right: str
    wrong: str
    kind: str = "accounts"

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The function does wrong, wherever it was imported to."""
        function = inspect.unwrap(self.where)
        text = textwrap.dedent(inspect.getsource(function))
        assert text.count(self.right) == 1, f"{self.what}: the function reads otherwise now"
        scope: dict[str, Any] = dict(function.__globals__)
        code = compile(
            "from __future__ import annotations\n" + text.replace(self.right, self.wrong), self.what, "exec"
        )
        exec(code, scope)
        kept = function.__code__
        function.__code__ = scope[function.__name__].__code__
        try:
            yield
        finally:
            function.__code__ = kept


FAULTS = (
    Fault("no shrink", lifecycle._charge, "if released and not peak_again:", "if False:"),
    Fault(
        "the gate opens on a failure",
        lifecycle.gate_is_open,
        "container.run is Run.SUCCEEDED",
        "container.run in (Run.SUCCEEDED, Run.FAILED)",
    ),
    Fault(
        "a running sidecar keeps the gate closed",
        lifecycle.gate_is_open,
        " if container.kind is ContainerClass.INIT",
        "",
    ),
    Fault(
        "an init forgets the sidecars before it",
        footprint.Footprint.then,
        "self.peak.peak(self.steady.plus(usage))",
        "self.peak.peak(usage)",
    ),
    Fault(
        "what cannot be read charges nothing",
        lifecycle._merged,
        "return {**kept, **pod.allocations}",
        "return {**pod.allocations}",
    ),
    Fault(
        "a terminating pod is charged anew",
        lifecycle.decide,
        "if pod.is_terminating and len(before.usage):",
        "if False:",
    ),
    Fault(
        "a stale version is applied",
        pod_events._is_stale,
        "return seen.resource_version <= row.resource_version",
        "return seen.resource_version < row.resource_version - 1",
    ),
    Fault("a deleted pod comes back", pod_events._is_stale, "and account.is_deleted:", "and False:"),
    Fault("a replay may be stale", pod_events._is_stale, "if seen.replayed:", "if False:"),
    Fault(
        "who loses his name keeps his devices",
        pod_events._end_predecessors,
        "if not other.is_deleted and",
        "if False and",
    ),
    Fault(
        "an older history's events are applied",
        pod_events._apply_one,
        "if seen.history < batch.stream.history:",
        "if False:",
    ),
    Fault(
        "a new history believes the old one's inits",
        pod_events._as_known,
        "return replace(account.charge, inits_released=False)",
        "return account.charge",
    ),
    Fault(
        "a list ends what was bound after it",
        pod_events.end_absent,
        "and hold.bound_version < version",
        "",
    ),
    Fault(
        "a hold that ends leaves nothing charged",
        lifecycle.after_hold,
        "charge = _charge(before, pod, vendors, policy)",
        "charge = replace(stored, usage=UNUSED, charged_as=ChargedAs.NOTHING)",
        kind="claims",
    ),
    Fault(
        "an event of an unbound pod changes its hold",
        lifecycle.decide_while_held,
        "if not pod.is_bound or not pod.vgpu_node",
        "if not pod.vgpu_node",
        kind="claims",
    ),
    Fault(
        "a pod that ends keeps its hold",
        lifecycle.decide_while_held,
        "return decide(stored, pod, vendors, policy), HoldEnd.RELEASED",
        "return decide(stored, pod, vendors, policy), HoldEnd.STAYS",
        kind="claims",
    ),
    Fault(
        "what is bound expires",
        reservations.mark_bound,
        "hold.state, hold.changed_at = ReservationState.BOUND, at",
        "hold.changed_at = at",
        kind="claims",
    ),
    Fault(
        "a pod that is bound is held anew",
        rounds._check_free,
        "if row.node:",
        "if False:",
        kind="claims",
    ),
    Fault(
        "what a pod holds itself is not free for it",
        fits.without,
        "replace(used.minus(amount), core_set=used.core_set & ~amount.core_set)",
        "used",
        kind="claims",
    ),
    Fault(
        "a caller binds what has run out",
        ReservationBound.post,
        "reservations.expire(at=now)",
        "pass",
        kind="claims",
    ),
    Fault(
        "quotas count every pod",
        quota.selects,
        "return not requirements or",
        "return True or",
    ),
    Fault(
        "another deadline is not seen by quotas",
        ledger._quota_differences,
        "if selects(quota.conditions, last[uid].new_facts):",
        "if selects(quota.conditions, first[uid].old_facts):",
    ),
    Fault(
        "another scope counts nobody anew",
        quota_events._apply_one,
        "if before != (False, row.deleted, row.requirements):",
        "if before[:2] != (False, row.deleted):",
    ),
    Fault(
        "namespaces count units for percent",
        ledger._namespace_differences,
        "line.difference.memory_mib, line.quota_cores)",
        "line.difference.memory_mib, line.difference.cores)",
    ),
    Fault(
        "a card of another size is not counted anew",
        node_events._requote,
        "if quota_cores == entry.quota_cores:",
        "if quota_cores >= entry.quota_cores:",
    ),
    Fault(
        "a card in use is never gone",
        node_events._register,
        "device.registered = False",
        "device.registered = device.slots_used > 0",
    ),
    Fault(
        "an older node event is applied",
        streams.Stream.knows_newer,
        "return seen.resource_version <= row.resource_version",
        "return False",
    ),
    Fault("no list is refused for its number", snapshots._check_share, "doubtful > allowed and", "False and"),
    Fault(
        "what two lists lack is not believed",
        snapshots._check_share,
        "if one.id not in believed",
        "",
    ),
    Fault("an older list is let in", snapshots._check_version, "if version < applied_version:", "if False:"),
    Fault(
        "a namespace's list is the whole cluster's",
        kinds._Pods.living,
        '_within(models.Pod.objects.filter(ended_by=""), namespace)',
        'models.Pod.objects.filter(ended_by="")',
    ),
    Fault(
        "an operator's word is final",
        pod_events.end_by_hand,
        "_end_row(account, decision, stream.applied_version, at)",
        "_end_row(account, decision, 2**60, at)",
    ),
    Fault(
        "namespaces are not repaired", audit._put_right, "elif one.book is Book.NAMESPACES:", "elif False:"
    ),
    Fault(
        "a failed bind keeps its hold", bindings.fail, "_release(binding.uid, at)", "pass", kind="scheduler"
    ),
    Fault(
        "a failed bind leaves the lock",
        binding.Steps._unlock,
        "self.client.patch_node(binding.node, _node_patch(node, kind, None))",
        "pass",
        kind="scheduler",
    ),
    Fault(
        "a lost answer is a failure",
        bind._is_bound_after_all,
        "return steps.undo(begun, may_come_late=isinstance(fault, Unclear))",
        "return False",
        kind="scheduler",
    ),
)

"""kube-scheduler asks for a pod to be bound, and takes an empty Error as bound, for ever (decision 30).

So the answer waits for the API server. In the request: a live look at the pod and its node, a transaction
(the hold goes to `binding`), the steps on the cluster with no transaction open, a transaction (`bound`, or
back). A failure is followed by another look, for a lost answer is no answer: the pod is bound after all, or
every step is undone. What cannot be told now stays `binding`, and beat asks again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import structlog
from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api import afterwards, asking, bodies, errors, telling
from api.extender import MAX_BODY_BYTES, Extended
from api.quota_check import check_shape
from api.reservations import checks_of, failed_of, keep_refusal
from hamiacct import config, metrics, seats
from hamiacct.accounting.binding import Binding
from hamiacct.accounting.errors import (
    AccountingError,
    Conflict,
    Malformed,
    NoRoom,
    NotFound,
    QuotaExceeded,
    Unavailable,
)
from hamiacct.accounting.words import Question, Refusal
from hamiacct.kube import client, leases, manifests
from hamiacct.kube import extender as wire
from hamiacct.kube.binding import LockHeld, Steps
from hamiacct.kube.client import Manifest, Unclear
from hamiacct.kube.extender import BindingArgs
from hamiacct.kube.happenings import Happening, Reason
from hamiacct.operations import bindings, decisions, reservations
from hamiacct.queries import fits, holds

log = structlog.get_logger("hamiacct.bind")

# A bind waits for others, and must not make others wait.
AT_ONCE = seats.AT_ONCE[seats.Kind.BINDS]
LOOK_AGAIN_SECONDS = 0.2
# HAMi's lease is looked at again after so long; its own schedulers take three times that to change places.
RIVAL_SECONDS = 5.0

# What is answered as an Error; anything else is a bug.
ANSWERED = tuple(errors.TABLE)

_seats = threading.BoundedSemaphore(AT_ONCE)


class BindSerializer(serializers.Serializer[Any]):
    """ExtenderBindingArgs."""

    PodName = serializers.CharField()
    PodNamespace = serializers.CharField()
    PodUID = serializers.CharField()
    Node = serializers.CharField()


class BindAnswerSerializer(serializers.Serializer[Any]):
    """ExtenderBindingResult."""

    Error = serializers.CharField(
        allow_blank=True, help_text="Empty: the API server has accepted the Binding."
    )


class Bind(Extended):
    """POST /extender/bind"""

    question = Question.BIND

    @extend_schema(
        summary="Bind a pod to the node that holds devices for it",
        request={bodies.JSON: BindSerializer},
        responses={200: BindAnswerSerializer},
    )
    def post(self, request: Request) -> Response:
        """200 also for what failed: then Error says why, and nothing of it is left on the cluster."""
        asked = wire.binding_args(bodies.parsed(bodies.read(request._request, MAX_BODY_BYTES)))
        try:
            bind(asked)
        except ANSWERED as fault:
            _keep(asked, fault)
            raise
        return Response({"Error": ""})

    def failure(self, detail: str) -> dict[str, str]:
        """Not bound, and why."""
        return {"Error": detail}


def _keep(asked: BindingArgs, fault: BaseException) -> None:
    """Has the refusal stored once it was answered; that there was no room is kept where the numbers are."""
    if isinstance(fault, (NoRoom, QuotaExceeded)):
        return
    verdict = Refusal.REFUSED if isinstance(fault, Conflict) else Refusal.ERROR
    metrics.refuse(verdict)
    afterwards.do(
        partial(
            decisions.record,
            Question.BIND,
            verdict,
            namespace=asked.namespace,
            pod=asked.name,
            pod_uid=asked.uid,
            message=errors.in_words(fault),
            at=timezone.now(),
        )
    )


# --- one bind ------------------------------------------------------------------------------------


def bind(asked: BindingArgs) -> None:
    """Binds the pod. Raises where it is not bound, or where that cannot be told."""
    cluster = _cluster(asked)
    with _seat():
        live = _looked_at(cluster, asked)
        try:
            _check_node(cluster, asked)
            _rival.check(cluster)
            _bind(Steps(cluster, config.vendors(), timezone.now), asked, live)
        except AccountingError as fault:
            telling.tell(live, [Happening(Reason.BINDING_FAILED, str(fault))])
            raise
        done = f"Successfully binding node [{asked.node}] to {asked.pod}"
        telling.tell(live, [Happening(Reason.BINDING_SUCCEED, done)])


def _cluster(asked: BindingArgs) -> client.Client:
    """The cluster, if there is one and it may be written to."""
    if not settings.HAMIACCT.scheduler_mode:
        why = "this service only reads the cluster: HAMIACCT_SCHEDULER_MODE is not set"
    else:
        found = client.connect(settings.HAMIACCT.kubeconfig)
        if found is not None:
            return found
        why = "no cluster is configured: HAMIACCT_KUBECONFIG is empty, and this is no pod of one"
    if not holds.knows_node(asked.node):  # nobody else can be asked whether there is such a node
        bindings.drop(asked.uid, at=timezone.now())
        raise NotFound(f"node {asked.node} is not known; {why}")
    raise Unavailable(why)


@contextmanager
def _seat() -> Iterator[None]:
    """One of the threads that may be here at once."""
    if not _seats.acquire(blocking=False):
        raise Unavailable("as many pods as may are being bound just now; ask again")
    try:
        yield
    finally:
        _seats.release()


def _looked_at(cluster: client.Client, asked: BindingArgs) -> Manifest:
    """The pod as it is now. The hold of one that is gone is given up."""
    try:
        live = cluster.pod(asked.namespace, asked.name)
        uid = live["metadata"].get("uid")
        if uid != asked.uid:
            raise NotFound(f"pod {asked.pod} is another one now: its uid is {uid}, not {asked.uid}")
    except NotFound:
        bindings.drop(asked.uid, at=timezone.now())
        raise
    return live


def _check_node(cluster: client.Client, asked: BindingArgs) -> None:
    """A hold on a node that is gone is given up."""
    try:
        cluster.node(asked.node)
    except NotFound:
        bindings.drop(asked.uid, at=timezone.now())
        raise


class _Rival:
    """HAMi's own scheduler, by the lease that it holds: nothing is bound beside it.

    It was looked for when the process started (hamiacct.server), and may have been started since.
    """

    def __init__(self) -> None:
        self._seen: tuple[client.Client, leases.LeaseName, float, str] | None = None

    def check(self, cluster: client.Client) -> None:
        """Unavailable while it is at work, unless a node selector divides the nodes."""
        if settings.HAMIACCT.node_selector:
            return
        lease = leases.LeaseName(*settings.HAMIACCT.hami_lease)
        if holder := self._holder(cluster, lease):
            raise Unavailable(f"HAMi's own scheduler is at work: {holder} holds the lease {lease}")

    def _holder(self, cluster: client.Client, lease: leases.LeaseName) -> str:
        seen, now = self._seen, time.monotonic()
        if seen is not None and seen[:2] == (cluster, lease) and now - seen[2] < RIVAL_SECONDS:
            return seen[3]
        holder = leases.holder_now(cluster, lease, timezone.now())
        self._seen = cluster, lease, now, holder
        return holder


_rival = _Rival()


def _bind(steps: Steps, asked: BindingArgs, live: Manifest) -> None:
    pod = manifests.pod_from_manifest(live, steps.vendors)
    if pod.is_bound:
        raise Conflict(f"pod {asked.pod} is bound to {pod.node_name} already")
    if pod.is_terminating or pod.phase.is_terminal:
        raise Conflict(f"pod {asked.pod} is {'being deleted' if pod.is_terminating else pod.phase}")
    question = fits.question_of(pod)
    if question.ask.is_empty:
        _bind_plainly(steps.client, asked, live)
        return
    fits.check_books(timezone.now())
    begun = bindings.begin(asked.uid, asked.node, at=timezone.now())
    _walk(steps, begun or _held_again(question, asked), live)


def _bind_plainly(cluster: client.Client, asked: BindingArgs, live: Manifest) -> None:
    """Binds a pod that asks for nothing we manage: there is nothing to write and nothing to undo."""
    version = live["metadata"]["resourceVersion"]
    try:
        cluster.bind(asked.namespace, asked.name, uid=asked.uid, version=version, node=asked.node)
    except Unclear:
        after = cluster.pod(asked.namespace, asked.name)
        if (after["metadata"]["uid"], after["spec"].get("nodeName")) != (asked.uid, asked.node):
            raise


def _held_again(question: fits.Question, asked: BindingArgs) -> Binding:
    """The hold has run out, or there was none: the same placement again, or else a new one on this node."""
    ttl, now = settings.HAMIACCT.reservation_ttl_seconds, timezone.now()
    reservations.expire(at=now)
    last = holds.last_of(asked.uid)
    is_held = False
    if last is not None and last.placement.node == asked.node:
        groups = {vendor: one.groups for vendor, one in last.placement.allocations.items()}
        with suppress(NoRoom, QuotaExceeded):  # then any other place on that node is tried below
            reservations.claim(question, asked.node, groups, ttl_seconds=ttl, at=now)
            is_held = True
    if not is_held:
        try:
            reservations.reserve(question, nodes=[asked.node], ttl_seconds=ttl, at=now)
        except (NoRoom, QuotaExceeded) as refusal:
            checks = [check_shape(check) for check in checks_of(question, refusal)]
            keep_refusal(Question.BIND, question, refusal, checks)
            why = asking.in_one_text(failed_of(refusal))
            raise type(refusal)(f"the hold has run out, and {why}", **refusal.numbers) from refusal
    begun = bindings.begin(asked.uid, asked.node, at=timezone.now())
    if begun is None:
        raise Conflict(f"the hold of pod {asked.pod} was given up before it could be bound")
    return begun


def _walk(steps: Steps, begun: Binding, live: Manifest) -> None:
    """The steps on the cluster, and the transaction that says what came of them."""
    try:
        steps.bind(begun, live, _patience())
    except AccountingError as fault:
        if not _is_bound_after_all(steps, begun, fault):
            back = bindings.give_back if isinstance(fault, LockHeld) else bindings.fail
            back(begun, at=timezone.now())
            raise
    try:
        bindings.succeed(begun, at=timezone.now())
    except (OperationalError, InterfaceError) as fault:
        # It is bound; the pod's event confirms the hold, or beat finds out.
        log.warning("bound, but not written down", pod=begun.uid, error=repr(fault))


def _is_bound_after_all(steps: Steps, begun: Binding, fault: AccountingError) -> bool:
    """Undoes the steps, unless a look at the pod shows that the last one was done."""
    try:
        return steps.undo(begun, may_come_late=isinstance(fault, Unclear))
    except (Unavailable, Malformed) as unknown:
        raise Unavailable(f"{fault}; what became of it cannot be told yet: {unknown}") from fault


def _patience() -> Callable[[], bool]:
    """Waits a moment, and says whether there is time for another look at a lock."""
    ends = time.monotonic() + settings.HAMIACCT.bind_lock_wait_seconds

    def wait() -> bool:
        left = ends - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(LOOK_AGAIN_SECONDS, left))
        return True

    return wait

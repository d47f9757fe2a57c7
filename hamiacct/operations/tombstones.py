"""What is gone stays for some days, so that old news of it are known to be old; then it is forgotten.

Only what a newer full list has outlived (decision 35): whatever is still on its way of it, the next list
puts right. So the tables are as large as what lives and what ended lately, not as all there ever was.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from django.contrib.sessions.models import Session
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from hamiacct import models
from hamiacct.accounting.words import Kind, Rule, SubjectKind
from hamiacct.operations import locks, streams
from hamiacct.operations.streams import EVERYWHERE
from hamiacct.queries.fleet import STANDING

AT_ONCE = 5_000
NODES_AT_ONCE = 500
# A terminal pod's object may stand in the cluster for long: it goes when its absence or deletion was seen.
FINAL_RULES = (Rule.DELETED, Rule.ABSENT, Rule.SUPERSEDED, Rule.RELEASED)


def forget(before: datetime, *, at: datetime) -> int:
    """Forgets what was gone before then; answers how many rows went. Much of it takes several times."""
    listed = {kind: streams.of_kind(kind).listed.get(EVERYWHERE, 0) for kind in Kind}
    return (
        _forget_pods(before, listed[Kind.POD])
        + _forget_holds(before)
        + _forget_nodes(before, listed[Kind.NODE], at=at)
        + _forget_quotas(before, listed[Kind.QUOTA], at=at)
        + _forget_namespaces()
        + _forget_marks(listed)
        + Session.objects.filter(expire_date__lt=at).delete()[0]
    )


def _forget_pods(before: datetime, listed: int) -> int:
    """Pods that nobody is about to bring back: those that somebody has in hand are left to the next sweep."""
    held = models.UsageEntry.objects.filter(pod=OuterRef("pk"))
    ended = models.Pod.objects.filter(
        ~Exists(held), ended_at__lt=before, ended_version__lt=listed, ended_by__in=FINAL_RULES
    )
    with transaction.atomic():
        uids = list(ended.select_for_update(skip_locked=True).values_list("uid", flat=True)[:AT_ONCE])
        models.Finding.objects.filter(subject_kind=SubjectKind.POD, subject__in=uids).delete()
        models.Pod.objects.filter(uid__in=uids).delete()
    return len(uids)


def _forget_holds(before: datetime) -> int:
    """A hold that has ended is shown for as long as its pod is known."""
    pod = models.Pod.objects.filter(uid=OuterRef("pod_uid"))
    ended = ~Q(state__in=STANDING) & Q(changed_at__lt=before) & ~Exists(pod)
    uids = list(models.Reservation.objects.filter(ended).values_list("pod_uid", flat=True)[:AT_ONCE])
    return models.Reservation.objects.filter(~Q(state__in=STANDING), pod_uid__in=uids).delete()[0]


def _gone(rows: QuerySet[models.Node] | QuerySet[models.ResourceQuota], at: datetime) -> None:
    """Those whose end nobody has dated end now: it was seen by code that knew no such date."""
    rows.filter(deleted=True, deleted_at=None).update(deleted_at=at)


def _forget_nodes(before: datetime, listed: int, *, at: datetime) -> int:
    """Nodes and their devices, but for devices that pods still hold."""
    _gone(models.Node.objects.all(), at)
    gone = models.Node.objects.filter(deleted=True, deleted_at__lt=before, resource_version__lt=listed)
    names = list(gone.order_by("name").values_list("name", flat=True)[:NODES_AT_ONCE])
    if not names:
        return 0
    unused = Q(slots_used=0, memory_mib_used=0, cores_used=0)
    with transaction.atomic():
        locks.share_stream(Kind.NODE)
        locks.take(locks.Space.NODE, names)
        still_gone = list(gone.filter(name__in=names).values_list("name", flat=True))
        devices = models.Device.objects.filter(unused, node__in=still_gone)
        ids = [one.pk for one in devices.select_for_update().order_by("node", "uuid")]
        # Once they are locked nobody posts on them; what was posted before is seen by the next statement.
        free = models.Device.objects.filter(unused, pk__in=ids, entries__isnull=True)
        went = models.Device.objects.filter(pk__in=list(free.values_list("pk", flat=True))).delete()[0]
        left = models.Device.objects.filter(node=OuterRef("name"))
        return went + gone.filter(~Exists(left), name__in=still_gone).delete()[0]


def _forget_quotas(before: datetime, listed: int, *, at: datetime) -> int:
    _gone(models.ResourceQuota.objects.all(), at)
    gone = models.ResourceQuota.objects.filter(
        deleted=True, deleted_at__lt=before, resource_version__lt=listed
    )
    found = dict(gone.values_list("pk", "namespace")[:AT_ONCE])
    if not found:
        return 0
    with transaction.atomic():
        locks.share_stream(Kind.QUOTA)
        locks.take(locks.Space.NAMESPACE, found.values())
        return gone.filter(pk__in=found).delete()[0]


def _forget_namespaces() -> int:
    """Totals of nothing, in namespaces without pods. One that is busy just now is not one of them."""
    pods = models.Pod.objects.filter(namespace=OuterRef("namespace"))
    empty = models.NamespaceUsage.objects.filter(~Exists(pods), slots=0, memory_mib=0, cores=0)
    names = set(empty.values_list("namespace", flat=True)[:AT_ONCE])
    if not names:
        return 0
    with transaction.atomic():
        free = locks.take_free(locks.Space.NAMESPACE, names)
        return empty.filter(namespace__in=free).delete()[0]


def _forget_marks(listed: Mapping[Kind, int]) -> int:
    """The last lists of single namespaces that a list of the whole cluster has outdone."""
    outdone = Q()
    for kind, version in listed.items():
        outdone |= Q(kind=kind, version__lte=version)
    return models.ListMark.objects.filter(outdone).exclude(namespace=EVERYWHERE).delete()[0]

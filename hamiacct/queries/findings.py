"""What is odd, since when: as pages, and beside the subjects of other reads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Exists, OuterRef

from hamiacct import models
from hamiacct.accounting.words import FindingCode, SubjectKind
from hamiacct.queries import pages


@dataclass(frozen=True, slots=True)
class Subject:
    """What a finding is about; fields that do not apply are empty."""

    kind: SubjectKind
    node: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding with its subject."""

    code: FindingCode
    subject: Subject
    detail: str
    since: datetime


@dataclass(frozen=True, slots=True)
class Note:
    """A finding shown beside its subject."""

    code: FindingCode
    detail: str
    since: datetime


Place = tuple[str, str]


def page(
    *, code: FindingCode | None, node: str, namespace: str, after: pages.Key | None, limit: int
) -> pages.Page[Finding]:
    """Findings, oldest first; an empty filter selects all."""
    rows = models.Finding.objects.all()
    if code:
        rows = rows.filter(code=code)
    if node:
        rows = rows.filter(node=node)
    if namespace:
        rows = rows.filter(namespace=namespace)
    return pages.rows_after(rows, ("id",), after, limit).map(_finding)


def counts() -> dict[str, int]:
    """How many findings there are of each code; one query."""
    return dict(models.Finding.objects.values_list("code").annotate(count=Count("pk")).order_by("code"))


def of_quotas(namespace: str) -> tuple[Finding, ...]:
    """What is odd about the quotas of a namespace."""
    rows = models.Finding.objects.filter(subject_kind=SubjectKind.QUOTA, namespace=namespace)
    return tuple(_finding(row) for row in rows.order_by("id"))


def of_pods(uids: Collection[str]) -> Mapping[str, tuple[Note, ...]]:
    """What is odd about each of these pods, by uid; one query."""
    rows = models.Finding.objects.filter(subject_kind=SubjectKind.POD, uid__in=uids).order_by("id")
    notes: dict[str, tuple[Note, ...]] = defaultdict(tuple)
    for row in rows:
        notes[row.uid] += (_note(row),)
    return notes


def of_devices(places: Collection[Place]) -> Mapping[Place, tuple[Note, ...]]:
    """What is odd about each of these devices, by (node, uuid); one query."""
    subjects = [f"{node}/{uuid}" for node, uuid in places]
    rows = models.Finding.objects.filter(subject_kind=SubjectKind.DEVICE, subject__in=subjects).order_by("id")
    notes: dict[Place, tuple[Note, ...]] = defaultdict(tuple)
    for row in rows:
        notes[row.node, row.name] += (_note(row),)
    return notes


def on_pod(code: FindingCode) -> Exists:
    """The condition that a pod row carries this finding."""
    return Exists(models.Finding.objects.filter(subject_kind=SubjectKind.POD, code=code, uid=OuterRef("uid")))


def on_device(code: FindingCode) -> Exists:
    """The condition that a device row carries this finding."""
    return Exists(
        models.Finding.objects.filter(
            subject_kind=SubjectKind.DEVICE, code=code, node=OuterRef("node"), name=OuterRef("uuid")
        )
    )


def _finding(row: models.Finding) -> Finding:
    subject = Subject(SubjectKind(row.subject_kind), row.node, row.namespace, row.name, row.uid)
    return Finding(FindingCode(row.code), subject, row.detail, row.since)


def _note(row: models.Finding) -> Note:
    return Note(FindingCode(row.code), row.detail, row.since)

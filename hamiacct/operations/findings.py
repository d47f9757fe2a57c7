"""What is odd, kept beside its subject: raised and cleared by the operations that see the cause."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from hamiacct import config, models
from hamiacct.accounting.amounts import Amount
from hamiacct.accounting.devices import carries
from hamiacct.accounting.quota import Dimension
from hamiacct.accounting.words import FindingCode, SubjectKind
from hamiacct.operations import bulk
from hamiacct.queries import quotas
from hamiacct.queries.statements import Statement

DEVICE_CODES = frozenset(
    (FindingCode.OVERCOMMITTED, FindingCode.UNREGISTERED_DEVICE, FindingCode.USAGE_ON_MISSING_DEVICE)
)
QUOTA_CODES = frozenset(
    (
        FindingCode.LIMIT_BELOW_USE,
        FindingCode.QUOTA_KEY_NOT_ENFORCED,
        FindingCode.QUOTA_VALUE_UNREADABLE,
        FindingCode.UNKNOWN_SCOPE,
    )
)


@dataclass(frozen=True, slots=True)
class Found:
    """One finding about a subject, before it is stored. `key` tells two of one code apart."""

    code: FindingCode
    detail: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """What findings are about; the fields by which they are filtered."""

    kind: SubjectKind
    id: str
    node: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


def sync(wanted: Mapping[Subject, Iterable[Found]], codes: Collection[FindingCode], *, at: datetime) -> None:
    """Makes the stored findings of these subjects and codes equal `wanted`; `since` stays with what stays."""
    if not wanted:
        return
    fresh = {
        (subject.kind.value, subject.id, found.code.value, found.key): (subject, found)
        for subject, all_found in wanted.items()
        for found in all_found
        if found.code in codes
    }
    stored = _STORED.rows(
        sorted({subject.kind.value for subject in wanted}),
        sorted(subject.id for subject in wanted),
        sorted(code.value for code in codes),
    )
    gone, changed = [], []
    for finding_id, detail, node, *cause in stored:
        match = fresh.pop(tuple(cause), None)
        if match is None:
            gone.append(finding_id)
        elif detail != match[1].detail or node != match[0].node:
            changed.append((finding_id, match[1].detail, match[0].node))
    if gone:
        models.Finding.objects.filter(pk__in=gone).delete()
    bulk.execute(
        "UPDATE hamiacct_finding AS finding SET detail = d.detail, node = d.node"
        " FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS d(id, detail, node) WHERE finding.id = d.id",
        changed,
    )
    if fresh:
        models.Finding.objects.bulk_create(
            [
                models.Finding(
                    code=found.code,
                    subject_kind=subject.kind,
                    subject=subject.id,
                    node=subject.node,
                    namespace=subject.namespace,
                    name=subject.name,
                    uid=subject.uid,
                    key=found.key,
                    detail=found.detail,
                    since=at,
                )
                for subject, found in fresh.values()
            ],
            ignore_conflicts=True,
        )


_STORED = Statement(
    "hamiacct_findings",
    "text[], text[], text[]",
    """
SELECT id, detail, node, subject_kind, subject, code, key FROM hamiacct_finding
WHERE subject_kind = ANY ($1) AND subject = ANY ($2) AND code = ANY ($3)
""",
)


def look_at_devices(device_ids: Collection[int], *, at: datetime) -> None:
    """Compares usage with totals and registration of these devices."""
    devices = list(models.Device.objects.filter(pk__in=device_ids)) if device_ids else []
    foreign = _foreign_nodes({device.node for device in devices})
    wanted = {
        _device_subject(device): () if device.node in foreign else of_device(device) for device in devices
    }
    sync(wanted, DEVICE_CODES, at=at)


def _foreign_nodes(names: Collection[str]) -> set[str]:
    """Those of the nodes that are not selected here: that their devices are not registered is no wonder."""
    selector = config.node_selector()
    if not selector:
        return set()
    labels = models.Node.objects.filter(name__in=names).values_list("name", "labels")
    return {name for name, own in labels if not carries(own, selector)}


def _device_subject(device: models.Device) -> Subject:
    return Subject(SubjectKind.DEVICE, f"{device.node}/{device.uuid}", node=device.node, name=device.uuid)


class UsedDevice(NamedTuple):
    """What of a device may be odd, read beside the mapper; the names are those of `models.Device`."""

    pk: int
    node: str
    uuid: str
    registered: bool
    ever_registered: bool
    slots_total: int
    memory_mib_total: int
    cores_total: int
    slots_used: int
    memory_mib_used: int
    cores_used: int

    def after(self, difference: Amount) -> UsedDevice:
        """The device when this is added to what is used of it."""
        return self._replace(
            slots_used=self.slots_used + difference.slots,
            memory_mib_used=self.memory_mib_used + difference.memory_mib,
            cores_used=self.cores_used + difference.cores,
        )


def of_device(device: models.Device | UsedDevice) -> list[Found]:
    """What is odd about one device (decisions 10 and 13)."""
    is_used = bool(device.slots_used or device.memory_mib_used or device.cores_used)
    if not device.registered:
        if not is_used:
            return []
        holds = f"holds {device.slots_used} slots, {device.memory_mib_used} MiB, {device.cores_used} cores"
        if device.ever_registered:
            return [Found(FindingCode.USAGE_ON_MISSING_DEVICE, f"{holds}; its node registers it no more")]
        return [Found(FindingCode.UNREGISTERED_DEVICE, f"{holds}; its node never registered it")]
    over = [
        f"{used - total} {unit}"
        for used, total, unit in (
            (device.slots_used, device.slots_total, "slots"),
            (device.memory_mib_used, device.memory_mib_total, "MiB"),
            (device.cores_used, device.cores_total, "cores"),
        )
        if used > total
    ]
    return [Found(FindingCode.OVERCOMMITTED, f"over its total by {', '.join(over)}")] if over else []


def look_at_quotas(quota_ids: Collection[int], *, at: datetime) -> None:
    """Compares these quotas' usage with their limits, and reads what is odd about their keys."""
    found = (
        models.ResourceQuota.objects.filter(pk__in=quota_ids).prefetch_related("usage") if quota_ids else ()
    )
    sync({quota_subject(quota): _quota_findings(quota) for quota in found}, QUOTA_CODES, at=at)


def quota_subject(quota: models.ResourceQuota) -> Subject:
    """A quota as the subject of findings."""
    return Subject(
        SubjectKind.QUOTA, f"{quota.namespace}/{quota.name}", namespace=quota.namespace, name=quota.name
    )


def _quota_findings(quota: models.ResourceQuota) -> list[Found]:
    """What is odd about one quota (decision 16). A deleted one is nothing to wonder about."""
    if quota.deleted:
        return []
    found = [
        Found(FindingCode.QUOTA_KEY_NOT_ENFORCED, f"{item['key']}: {item['reason']}", item["key"])
        for item in quota.not_enforced
    ]
    found += [
        Found(FindingCode.UNKNOWN_SCOPE, f"no pod is in the unknown scope {scope}", scope)
        for scope in quota.unknown_scopes
    ]
    usage = {total.vendor: total for total in quota.usage.all()}
    for limit in quota.limits:
        hard = quotas.scaled(limit)
        if hard is None:
            detail = (
                f"{limit['key']}: {limit['spec']!r} is no whole number from 0 to 2^63-1, so it is no limit"
            )
            found.append(Found(FindingCode.QUOTA_VALUE_UNREADABLE, detail, limit["key"]))
            continue
        total = usage.get(limit["vendor"])
        used = 0
        if total is not None:
            used = total.memory_mib if limit["dimension"] == Dimension.MEMORY else total.cores
        if used > hard:
            detail = f"{limit['key']}: used {used}, limited to {hard}, over by {used - hard}"
            found.append(Found(FindingCode.LIMIT_BELOW_USE, detail, limit["key"]))
    return found

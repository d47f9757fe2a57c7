"""What is stored: fields and constraints, no rules.

Usage is written by `operations.ledger` alone. The database refuses what must never be: negative
usage, two entries for one pod and device, an altered ledger line.
"""

from __future__ import annotations

from enum import StrEnum

from django.db import models
from django.db.models import F, Q

from hamiacct.accounting import words

NAME_LENGTH = 253
UUID_LENGTH = 253
NODE_LENGTH = 253


def _choices(enum: type[StrEnum]) -> list[tuple[str, str]]:
    return [(member.value, member.value) for member in enum]


def _never_negative(name: str, *fields: str) -> models.CheckConstraint:
    condition = Q()
    for field in fields:
        condition &= Q(**{f"{field}__gte": 0})
    return models.CheckConstraint(condition=condition, name=name)


class Feed(models.Model):
    """What is known of one kind's stream of versions (decision 8)."""

    kind = models.CharField(primary_key=True, max_length=20, choices=_choices(words.Kind))
    history = models.IntegerField(default=1)
    applied_version = models.BigIntegerField(default=0)
    listed_at = models.DateTimeField(null=True, blank=True)
    declared_complete_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.kind} history {self.history} at {self.applied_version}"


class ListMark(models.Model):
    """The last full list of a kind: of one namespace, or ("") of the whole cluster."""

    kind = models.CharField(max_length=20, choices=_choices(words.Kind))
    namespace = models.CharField(max_length=NAME_LENGTH, blank=True)
    history = models.IntegerField()
    version = models.BigIntegerField()
    at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["kind", "namespace"], name="one_mark_per_scope")]

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace or '*'} at {self.version}"


class Cluster(models.Model):
    """The one cluster these books are kept of, by the UID of its kube-system namespace (decision 8)."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    uid = models.CharField(max_length=UUID_LENGTH)
    since = models.DateTimeField()

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="one_cluster")]

    def __str__(self) -> str:
        return self.uid


class WatchLease(models.Model):
    """Who watches. `holder` is "" where it was given up; `expires_at` is by the database's clock."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    holder = models.CharField(max_length=NAME_LENGTH, blank=True)
    since = models.DateTimeField()
    expires_at = models.DateTimeField()

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="one_watch_lease")]

    def __str__(self) -> str:
        return f"{self.holder or 'nobody'} until {self.expires_at}"


class Watch(models.Model):
    """What the watcher does about one kind, since when, and what it heard last."""

    kind = models.CharField(primary_key=True, max_length=20, choices=_choices(words.Kind))
    state = models.CharField(max_length=20, choices=_choices(words.WatchState))
    detail = models.TextField(blank=True)
    since = models.DateTimeField()
    version = models.BigIntegerField(default=0)
    heard_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.kind}: {self.state}"


class Node(models.Model):
    """A node as its last event showed it. `contents` is a digest of what was decoded.

    `fleet_seq` is `LedgerHead.fleet` when it last changed, by which readers follow the inventory.
    A deleted one stays as a tombstone for some days after `deleted_at`.
    """

    name = models.CharField(primary_key=True, max_length=NODE_LENGTH)
    resource_version = models.BigIntegerField()
    history = models.IntegerField(default=1)
    deleted = models.BooleanField(default=False)
    deleted_at = models.DateTimeField(null=True, blank=True)
    unschedulable = models.BooleanField(default=False)
    contents = models.CharField(max_length=64, blank=True)
    vendors = models.JSONField(default=dict)
    cordoned = models.JSONField(default=list)
    pair_scores = models.JSONField(default=dict)
    labels = models.JSONField(default=dict)
    annotations = models.JSONField(default=dict)
    manifest = models.JSONField(default=dict)
    handshake_expires_at = models.DateTimeField(null=True, blank=True, db_index=True)
    fleet_seq = models.BigIntegerField(default=0, db_index=True)

    def __str__(self) -> str:
        return self.name


class Device(models.Model):
    """A device is (node, uuid). Totals come from its registration, `*_used` from the ledger's door.

    Totals are 0 until it has registered. There is no constraint that usage fits the total: reality
    may exceed it (decision 13).
    """

    node = models.CharField(max_length=NODE_LENGTH)
    uuid = models.CharField(max_length=UUID_LENGTH)
    vendor = models.CharField(max_length=63)
    index = models.BigIntegerField(default=0)
    order = models.IntegerField(default=0)
    model = models.CharField(max_length=253, blank=True)
    numa = models.BigIntegerField(default=0)
    mode = models.CharField(max_length=253, blank=True)
    healthy = models.BooleanField(default=False)
    cordoned = models.BooleanField(default=False)
    registered = models.BooleanField(default=False)
    ever_registered = models.BooleanField(default=False)
    slots_total = models.BigIntegerField(default=0)
    memory_mib_total = models.BigIntegerField(default=0)
    cores_total = models.BigIntegerField(default=0)
    slots_used = models.BigIntegerField(default=0)
    memory_mib_used = models.BigIntegerField(default=0)
    cores_used = models.BigIntegerField(default=0)
    mig_profiles = models.JSONField(default=list)
    custom = models.JSONField(default=dict)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["node", "uuid"], name="device_is_node_and_uuid"),
            _never_negative("device_totals_not_negative", "slots_total", "memory_mib_total", "cores_total"),
            _never_negative("device_usage_not_negative", "slots_used", "memory_mib_used", "cores_used"),
        ]
        indexes = [models.Index(fields=["uuid"], name="device_by_uuid")]

    def __str__(self) -> str:
        return f"{self.node}/{self.uuid}"


class Pod(models.Model):
    """A pod, by UID. `allocations` and `containers` are what its charge is computed from.

    `ended_by` is the rule that ended it ("" while it lives); `ended_version` the version below which
    later events of it are stale. `look_again_at` is when time alone may tell something new.
    """

    uid = models.CharField(primary_key=True, max_length=NAME_LENGTH)
    namespace = models.CharField(max_length=NAME_LENGTH)
    name = models.CharField(max_length=NAME_LENGTH)
    node = models.CharField(max_length=NODE_LENGTH, blank=True)
    vgpu_node = models.CharField(max_length=NODE_LENGTH, blank=True)
    vgpu_time = models.BigIntegerField(null=True, blank=True)
    phase = models.CharField(max_length=20, blank=True)
    state = models.CharField(max_length=20, choices=_choices(words.PodState))
    inits_released = models.BooleanField(default=False)
    charged_as = models.CharField(
        max_length=20, choices=_choices(words.ChargedAs), default=words.ChargedAs.NOTHING
    )
    rule = models.CharField(max_length=20, choices=_choices(words.Rule))
    resource_version = models.BigIntegerField()
    history = models.IntegerField(default=1)
    ended_by = models.CharField(max_length=20, blank=True)
    ended_version = models.BigIntegerField(default=0)
    ended_at = models.DateTimeField(null=True, blank=True)
    deletion_timestamp = models.CharField(max_length=63, blank=True)
    deletion_grace_seconds = models.BigIntegerField(null=True, blank=True)
    containers = models.JSONField(default=list)
    allocations = models.JSONField(default=dict)
    priority_class = models.CharField(max_length=NAME_LENGTH, null=True, blank=True)
    active_deadline_seconds = models.BigIntegerField(null=True, blank=True)
    best_effort = models.BooleanField(default=True)
    cross_namespace_affinity = models.BooleanField(default=False)
    bind_phase = models.CharField(max_length=63, blank=True)
    bind_time = models.BigIntegerField(null=True, blank=True)
    scheduler_name = models.CharField(max_length=NAME_LENGTH, blank=True)
    labels = models.JSONField(default=dict)
    annotations = models.JSONField(default=dict)
    changed_at = models.DateTimeField()
    look_again_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        # Each of them is written with every pod that comes or goes.
        indexes = [
            models.Index(
                fields=["look_again_at"], name="pod_by_next_look", condition=Q(look_again_at__isnull=False)
            ),
            models.Index(fields=["namespace", "name"], name="pod_by_name"),
            models.Index(fields=["state", "uid"], name="pod_by_state"),
            models.Index(fields=["node", "uid"], name="pod_by_node"),
            models.Index(fields=["vgpu_node", "uid"], name="pod_by_vgpu_node"),
            models.Index(fields=["ended_at"], name="pod_by_end", condition=Q(ended_at__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class UsageEntry(models.Model):
    """What one pod holds of one device. `quota_cores` is `cores` in the unit quotas are judged in."""

    # Found by the constraint's own index, which begins with it.
    pod = models.ForeignKey(Pod, on_delete=models.PROTECT, related_name="entries", db_index=False)
    device = models.ForeignKey(Device, on_delete=models.PROTECT, related_name="entries")
    vendor = models.CharField(max_length=63)
    slots = models.BigIntegerField()
    memory_mib = models.BigIntegerField()
    cores = models.BigIntegerField()
    core_set = models.BigIntegerField(default=0)
    quota_cores = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["pod", "device"], name="one_entry_per_pod_and_device"),
            _never_negative("entry_not_negative", "slots", "memory_mib", "cores", "core_set", "quota_cores"),
        ]

    def __str__(self) -> str:
        return f"{self.pod_id} on {self.device_id}"


class NamespaceUsage(models.Model):
    """What the pods of a namespace hold of one vendor, in the units quotas are judged in."""

    namespace = models.CharField(max_length=NAME_LENGTH)
    vendor = models.CharField(max_length=63)
    slots = models.BigIntegerField(default=0)
    memory_mib = models.BigIntegerField(default=0)
    cores = models.BigIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["namespace", "vendor"], name="one_total_per_namespace_vendor"),
            _never_negative("namespace_usage_not_negative", "slots", "memory_mib", "cores"),
        ]

    def __str__(self) -> str:
        return f"{self.namespace} {self.vendor}"


class ResourceQuota(models.Model):
    """A ResourceQuota object, decoded. A deleted one stays as a tombstone of its version."""

    namespace = models.CharField(max_length=NAME_LENGTH)
    name = models.CharField(max_length=NAME_LENGTH)
    resource_version = models.BigIntegerField()
    history = models.IntegerField(default=1)
    deleted = models.BooleanField(default=False)
    deleted_at = models.DateTimeField(null=True, blank=True)
    limits = models.JSONField(default=list)
    requests_keys = models.JSONField(default=dict)
    not_enforced = models.JSONField(default=list)
    requirements = models.JSONField(default=list)
    unknown_scopes = models.JSONField(default=list)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["namespace", "name"], name="one_quota_per_name")]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class QuotaUsage(models.Model):
    """What the pods that one quota selects hold of one vendor."""

    quota = models.ForeignKey(ResourceQuota, on_delete=models.CASCADE, related_name="usage")
    vendor = models.CharField(max_length=63)
    memory_mib = models.BigIntegerField(default=0)
    cores = models.BigIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["quota", "vendor"], name="one_total_per_quota_vendor"),
            _never_negative("quota_usage_not_negative", "memory_mib", "cores"),
        ]

    def __str__(self) -> str:
        return f"{self.quota_id} {self.vendor}"


class Reservation(models.Model):
    """A pod's hold on devices, the last one of its UID (decision 26).

    `allocations` are the held rows as in `Pod.allocations`; while the hold stands they are what the pod
    is charged, and events of the unbound pod only leave their traces in its row. `bound_version` is the
    pods' applied version when it was bound: only a later list can say the pod is gone.
    """

    pod_uid = models.CharField(primary_key=True, max_length=NAME_LENGTH)
    namespace = models.CharField(max_length=NAME_LENGTH)
    name = models.CharField(max_length=NAME_LENGTH)
    node = models.CharField(max_length=NODE_LENGTH)
    state = models.CharField(max_length=20, choices=_choices(words.ReservationState))
    allocations = models.JSONField(default=dict)
    annotations = models.JSONField(default=dict)
    labels = models.JSONField(default=dict)
    score = models.FloatField(default=0)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    changed_at = models.DateTimeField()
    bound_version = models.BigIntegerField(default=0)

    class Meta:
        indexes = [
            models.Index(fields=["expires_at"], name="hold_by_expiry", condition=Q(state="held")),
            models.Index(fields=["changed_at"], name="hold_binding", condition=Q(state="binding")),
        ]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} on {self.node}: {self.state}"


class Decision(models.Model):
    """A refusal that was answered: why not, with the numbers."""

    at = models.DateTimeField(db_index=True)
    question = models.CharField(max_length=20, choices=_choices(words.Question))
    namespace = models.CharField(max_length=NAME_LENGTH, blank=True)
    pod = models.CharField(max_length=NAME_LENGTH, blank=True)
    pod_uid = models.CharField(max_length=NAME_LENGTH, blank=True)
    verdict = models.CharField(max_length=20, choices=_choices(words.Refusal))
    message = models.TextField(blank=True)
    reasons = models.JSONField(default=dict)
    checks = models.JSONField(default=list)

    class Meta:
        indexes = [
            models.Index(fields=["namespace", "-id"], name="decision_by_namespace"),
            models.Index(fields=["pod", "-id"], name="decision_by_pod"),
            models.Index(fields=["verdict", "-id"], name="decision_by_verdict"),
        ]

    def __str__(self) -> str:
        return f"{self.question} {self.namespace}/{self.pod}: {self.verdict}"


class Finding(models.Model):
    """Something odd about a subject, since when. `key` tells two findings of one code apart."""

    code = models.CharField(max_length=40, choices=_choices(words.FindingCode))
    subject_kind = models.CharField(max_length=20, choices=_choices(words.SubjectKind))
    subject = models.CharField(max_length=600)
    node = models.CharField(max_length=NODE_LENGTH, blank=True)
    namespace = models.CharField(max_length=NAME_LENGTH, blank=True)
    name = models.CharField(max_length=NAME_LENGTH, blank=True)
    uid = models.CharField(max_length=NAME_LENGTH, blank=True)
    key = models.CharField(max_length=253, blank=True)
    detail = models.TextField()
    since = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["subject_kind", "subject", "code", "key"], name="one_finding_per_cause"
            )
        ]
        indexes = [
            models.Index(fields=["code", "id"], name="finding_by_code"),
            models.Index(fields=["namespace", "id"], name="finding_by_namespace"),
            models.Index(fields=["node", "id"], name="finding_by_node"),
        ]

    def __str__(self) -> str:
        return f"{self.code} {self.subject}"


class Event(models.Model):
    """The inbox: one watch event, stored before it is answered. `body` is what the codec reads."""

    received_at = models.DateTimeField()
    kind = models.CharField(max_length=20, choices=_choices(words.Kind))
    type = models.CharField(max_length=20, choices=_choices(words.EventType))
    namespace = models.CharField(max_length=NAME_LENGTH, blank=True)
    name = models.CharField(max_length=NAME_LENGTH)
    uid = models.CharField(max_length=NAME_LENGTH, blank=True)
    resource_version = models.BigIntegerField()
    history = models.IntegerField()
    body = models.JSONField(default=dict)
    state = models.CharField(
        max_length=20, choices=_choices(words.EventState), default=words.EventState.WAITING
    )
    replayed = models.BooleanField(default=False)
    attempts = models.IntegerField(default=0)
    rule = models.CharField(max_length=20, choices=_choices(words.Rule), null=True, blank=True)
    detail = models.TextField(blank=True)
    settled_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            # Its condition says more than that of the next, so that only who asks by `attempts` is led to it:
            # by name it would be read from end to end, once for each name.
            models.Index(
                fields=["attempts", "id"],
                name="event_waiting",
                condition=Q(state="waiting", attempts__gte=0),
            ),
            models.Index(
                fields=["kind", "namespace", "name"],
                name="event_waiting_by_name",
                condition=Q(state="waiting"),
            ),
            models.Index(fields=["id"], name="event_refused", condition=Q(state="refused")),
            models.Index(
                fields=["settled_at"], name="event_by_settling", condition=Q(settled_at__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.kind} {self.namespace}/{self.name} at {self.resource_version}"


class LedgerHead(models.Model):
    """The last sequence numbers given: of ledger lines, and of changes of the fleet's inventory.

    Locked last in every transaction that takes one, so sequence is commit order, and a reader that
    follows the tail misses no late commit.
    """

    id = models.SmallIntegerField(primary_key=True, default=1)
    seq = models.BigIntegerField(default=0)
    fleet = models.BigIntegerField(default=0)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="one_ledger_head")]

    def __str__(self) -> str:
        return f"at {self.seq}"


class LedgerEntry(models.Model):
    """One signed difference of one pod on one device. Append-only; partitioned by month of `at`.

    `cores` is in the device's unit, `quota_cores` in the unit quotas are judged in. Lines without a
    device (a repair of totals) carry zero amounts.
    """

    seq = models.BigIntegerField(primary_key=True)
    at = models.DateTimeField()
    pod_uid = models.CharField(max_length=NAME_LENGTH, blank=True)
    namespace = models.CharField(max_length=NAME_LENGTH, blank=True)
    node = models.CharField(max_length=NODE_LENGTH, blank=True)
    device = models.CharField(max_length=UUID_LENGTH, blank=True)
    vendor = models.CharField(max_length=63, blank=True)
    rule = models.CharField(max_length=20, choices=_choices(words.Rule))
    reason = models.TextField(blank=True)
    slots = models.BigIntegerField(default=0)
    memory_mib = models.BigIntegerField(default=0)
    cores = models.BigIntegerField(default=0)
    quota_cores = models.BigIntegerField(default=0)
    resource_version = models.BigIntegerField(default=0)

    class Meta:
        managed = False  # the migration writes the table in SQL: Django knows no partitions
        db_table = "hamiacct_ledgerentry"
        ordering = [F("seq").asc()]

    def __str__(self) -> str:
        return f"{self.seq} {self.rule} {self.pod_uid}"


class AuditRun(models.Model):
    """The last periodic audit: how many places of each book differed, and how many were compared."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    at = models.DateTimeField()
    seconds = models.FloatField()
    checked = models.JSONField(default=dict)
    discrepancies = models.JSONField(default=dict)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="one_audit_run")]

    def __str__(self) -> str:
        return f"{sum(self.discrepancies.values())} discrepancies at {self.at}"


class ApiToken(models.Model):
    """A caller's token, stored as the SHA-256 of its text."""

    name = models.CharField(max_length=100, unique=True)
    role = models.CharField(max_length=20, choices=_choices(words.Role))
    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.name} ({self.role})"

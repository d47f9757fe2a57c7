"""Large books, made by the database itself: as many rows as asked for, with the looks of real ones."""

from dataclasses import dataclass

from django.db import connection


@dataclass(frozen=True, slots=True)
class Size:
    """How many rows of each table; cards are eight a node, entries are spread over pods and cards."""

    nodes: int = 5_000
    pods: int = 50_000
    entries: int = 1_000_000
    lines: int = 200_000
    events: int = 200_000
    decisions: int = 100_000
    findings: int = 20_000
    quotas: int = 2_000


FULL = Size()
USUAL = Size(
    nodes=2_000,
    pods=20_000,
    entries=50_000,
    lines=20_000,
    events=20_000,
    decisions=5_000,
    findings=2_000,
    quotas=500,
)
NODES = """
INSERT INTO hamiacct_node (name, resource_version, history, deleted, unschedulable, contents, vendors,
  cordoned, pair_scores, labels, annotations, manifest, fleet_seq)
SELECT 'node-' || lpad(n::text, 5, '0'), n, 1, false, false, '', '{}', '[]', '{}', '{}', '{}', '{}', 0
FROM generate_series(1, %(nodes)s) AS n
"""
DEVICES = """
INSERT INTO hamiacct_device (id, node, uuid, vendor, "index", "order", model, numa, mode, healthy, cordoned,
  registered, ever_registered, slots_total, memory_mib_total, cores_total, slots_used,
  memory_mib_used, cores_used, mig_profiles, custom)
SELECT n, 'node-' || lpad(((n - 1) / 8 + 1)::text, 5, '0'), 'GPU-' || n,
  CASE WHEN n %% 50 = 0 THEN 'DCU' ELSE 'NVIDIA' END,
  n %% 8, n %% 8, 'NVIDIA A100', 0, 'hami-core', true, false, true, true, 100, 81920, 100,
  25, 81920 * (n %% 97) / 100, 50, '[]', '{}'
FROM generate_series(1, %(nodes)s * 8) AS n
"""
PODS = """
INSERT INTO hamiacct_pod (uid, namespace, name, node, vgpu_node, phase, state, inits_released, charged_as,
  rule, resource_version, history, ended_by, ended_version, deletion_timestamp, containers, allocations,
  best_effort, cross_namespace_affinity, bind_phase, scheduler_name, labels, annotations, changed_at)
SELECT 'uid-' || n, 'team-' || n %% 500, 'pod-' || lpad(n::text, 6, '0'),
  'node-' || lpad((n %% %(nodes)s + 1)::text, 5, '0'),
  'node-' || lpad((n %% %(nodes)s + 1)::text, 5, '0'), 'Running',
  CASE WHEN n %% 20 = 0 THEN 'peak' ELSE 'steady' END, false,
  CASE WHEN n %% 20 = 0 THEN 'effective' ELSE 'steady' END, 'charged', n, 1, '', 0, '',
  '[{"name": "warm", "class": "init", "run": "running", "limits": {}, "requests": {}, "privileged": false},
    {"name": "work", "class": "app", "run": "waiting", "limits": {}, "requests": {}, "privileged": false}]',
  '{"NVIDIA": {"node": "x", "groups": [[["GPU-1", "NVIDIA", 2048, 0]], [["GPU-1", "NVIDIA", 1024, 0]]],
    "slots_per_row": 1, "text": ""}}',
  true, false, '', '', '{}', '{}', now()
FROM generate_series(1, %(pods)s) AS n
"""
ENTRIES = """
INSERT INTO hamiacct_usageentry (pod_id, device_id, vendor, slots, memory_mib, cores, core_set, quota_cores)
SELECT 'uid-' || (n %% %(pods)s + 1), (n / %(pods)s * 7919 + n %% %(pods)s * 8) %% (%(nodes)s * 8) + 1,
  CASE WHEN n %% 50 = 0 THEN 'DCU' ELSE 'NVIDIA' END, 1, 2048, 2, 0, 2
FROM generate_series(1, %(entries)s) AS n
ON CONFLICT DO NOTHING
"""
LINES = """
INSERT INTO hamiacct_ledgerentry (seq, at, pod_uid, namespace, node, device, vendor, rule, reason, slots,
  memory_mib, cores, quota_cores, resource_version)
SELECT n, now() - (%(lines)s - n) * interval '1 second', 'uid-' || (n %% %(pods)s + 1), 'team-' || n %% 500,
  'node-' || lpad((n %% %(nodes)s + 1)::text, 5, '0'), 'GPU-' || n %% (%(nodes)s * 8), 'NVIDIA',
  CASE WHEN n %% 5 = 0 THEN 'shrunk' ELSE 'charged' END, 'made up', 1, 2048, 2, 2, n
FROM generate_series(1, %(lines)s) AS n;
UPDATE hamiacct_ledgerhead SET seq = %(lines)s
"""
EVENTS = """
INSERT INTO hamiacct_event (received_at, kind, type, namespace, name, uid, resource_version, history, body,
  state, replayed, attempts, detail, settled_at)
SELECT now(), 'Pod', 'MODIFIED', 'team-' || n %% 500, 'pod-' || lpad((n %% %(pods)s)::text, 6, '0'),
  'uid-' || n, n, 1, '{}', CASE WHEN n %% 20000 = 0 THEN 'refused' ELSE 'applied' END, false, 0, '', now()
FROM generate_series(1, %(events)s) AS n
"""
DECISIONS = """
INSERT INTO hamiacct_decision (at, question, namespace, pod, pod_uid, verdict, message, reasons, checks)
SELECT now(), 'fit', 'team-' || n %% 500, 'pod-' || n, 'uid-' || n, 'no-fit', 'made up', '{}', '[]'
FROM generate_series(1, %(decisions)s) AS n
"""
FINDINGS = """
INSERT INTO hamiacct_finding (code, subject_kind, subject, node, namespace, name, uid, key, detail, since)
SELECT CASE WHEN n %% 2 = 0 THEN 'overcommitted' ELSE 'usage-on-missing-device' END, 'Device',
  'node-' || n || '/GPU-' || n, 'node-' || lpad((n %% %(nodes)s + 1)::text, 5, '0'), '',
  'GPU-' || n, '', '', 'made up', now()
FROM generate_series(1, %(findings)s) AS n
"""
QUOTAS = """
INSERT INTO hamiacct_resourcequota (id, namespace, name, resource_version, history, deleted, limits,
  requests_keys, not_enforced, requirements, unknown_scopes)
SELECT n, 'team-' || n, 'gpu', n, 1, false,
  '[{"key": "limits.nvidia.com/gpumem", "vendor": "NVIDIA", "dimension": "memory",
    "amount": 100000, "spec": "100000"}]',
  '{}', '[]', '[]', '[]'
FROM generate_series(1, %(quotas)s) AS n;
INSERT INTO hamiacct_quotausage (quota_id, vendor, memory_mib, cores)
SELECT n, 'NVIDIA', n * 40, 0 FROM generate_series(1, %(quotas)s) AS n
"""


def fill(size: Size) -> None:
    """Fills empty books. Their totals do not agree: nothing here audits them."""
    with connection.cursor() as cursor:
        # What refers to what is right as it is made, so nobody needs to check it row by row.
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("SET LOCAL statement_timeout = 0")
        for statement in (NODES, DEVICES, PODS, ENTRIES, LINES, EVENTS, DECISIONS, FINDINGS, QUOTAS):
            sizes = {name: getattr(size, name) for name in Size.__slots__}
            for one in statement.split(";"):
                cursor.execute(one, sizes)
        cursor.execute("SET LOCAL session_replication_role = origin")
        cursor.execute("ANALYZE")

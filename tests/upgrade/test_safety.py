"""Every migration may be applied while the code before it still runs, or is excused with a reason."""

from collections.abc import Iterator

import pytest
from django.db import connection

from tests.upgrade import databases, safety, store

NAMES = store.names()

BEFORE_0003 = "code of before 0003 is stopped while it is applied (docs/operations.md, Upgrading)"
EXCUSES = {
    "0002_ledger": {
        "rows written under the change's locks: hamiacct_ledgerhead": "the first row of the ledger to come",
    },
    "0003_reservations": {
        "old code cannot insert: hamiacct_ledgerhead.fleet is NOT NULL without a default of the database": (
            "nobody inserts: 0002 made the only row there is"
        ),
        "old code cannot insert: hamiacct_node.fleet_seq is NOT NULL without a default of the database": (
            BEFORE_0003
        ),
        "writers wait for an index: hamiacct_node_fleet_seq_": "one row a node, a moment",
    },
}


def of_migration(name: str) -> set[str]:
    """The hazards of one migration, on rows of the days before it."""
    before = NAMES[NAMES.index(name) - 1]
    with databases.at(before):
        databases.fill(databases.state(before))
        connection.close()  # and with it what the session has counted
        with safety.watched() as change:
            databases.migrate(name)
        return safety.hazards(change)


@pytest.mark.parametrize("name", NAMES[1:])
def test_old_code_goes_on_while_it_is_applied(name: str) -> None:
    found, excuses = of_migration(name), EXCUSES.get(name, {})
    assert {one for one in found if not one.startswith(tuple(excuses))} == set()
    assert {one for one in excuses if not any(text.startswith(one) for text in found)} == set(), (
        "excused and not there"
    )


PLANTED = {
    "ALTER TABLE hamiacct_pod DROP COLUMN bind_time": "column gone: hamiacct_pod.bind_time",
    "ALTER TABLE hamiacct_pod RENAME COLUMN bind_time TO bound": "column gone: hamiacct_pod.bind_time",
    "DROP TABLE hamiacct_decision": "table gone: hamiacct_decision",
    "ALTER TABLE hamiacct_event ADD COLUMN more integer NOT NULL DEFAULT 0;"
    " ALTER TABLE hamiacct_event ALTER COLUMN more DROP DEFAULT": (
        "old code cannot insert: hamiacct_event.more is NOT NULL without a default of the database"
    ),
    "UPDATE hamiacct_event SET rule = 'charged' WHERE rule IS NULL;"
    " ALTER TABLE hamiacct_event ALTER COLUMN rule SET NOT NULL": (
        "old code may write NULL: hamiacct_event.rule is NOT NULL now"
    ),
    "ALTER TABLE hamiacct_device ALTER COLUMN index TYPE integer": "table rewritten: hamiacct_device",
    "ALTER TABLE hamiacct_event ADD COLUMN token uuid DEFAULT gen_random_uuid()": (
        "table rewritten: hamiacct_event"
    ),
    "ALTER TABLE hamiacct_pod ALTER COLUMN phase TYPE varchar(10)": (
        "column changed: hamiacct_pod.phase is character varying(10), was character varying(20)"
    ),
    "CREATE INDEX planted ON hamiacct_event (received_at)": "writers wait for an index: planted",
    "CREATE INDEX planted ON hamiacct_ledgerentry (rule)": "writers wait for an index: planted",
    "ALTER TABLE hamiacct_pod ADD CONSTRAINT planted CHECK (resource_version >= 0)": (
        "old code may break a constraint: planted"
    ),
    "ALTER TABLE hamiacct_usageentry DROP CONSTRAINT entry_not_negative;"
    " ALTER TABLE hamiacct_usageentry ADD CONSTRAINT entry_not_negative CHECK (slots >= 0)": (
        "a constraint is made anew: entry_not_negative"
    ),
    "ALTER TABLE hamiacct_usageentry DROP CONSTRAINT one_entry_per_pod_and_device": (
        "constraint gone: one_entry_per_pod_and_device"
    ),
    "DROP INDEX pod_by_node; CREATE INDEX pod_by_node ON hamiacct_pod (node)": (
        "writers wait for an index: pod_by_node"
    ),
    "UPDATE hamiacct_pod SET phase = upper(phase)": "rows written under the change's locks: hamiacct_pod",
    "DROP FUNCTION hamiacct_ensure_ledger_partitions": (
        "function gone: hamiacct_ensure_ledger_partitions(date,integer)"
    ),
    "CREATE TRIGGER planted BEFORE TRUNCATE ON hamiacct_pod FOR EACH STATEMENT"
    " EXECUTE FUNCTION hamiacct_ledger_is_append_only()": "a trigger comes: planted",
}
HARMLESS = (
    "ALTER TABLE hamiacct_event ADD COLUMN more integer NOT NULL DEFAULT 7",
    "ALTER TABLE hamiacct_node ADD COLUMN gone_at timestamptz",
    "DROP INDEX pod_by_state",
    "ALTER INDEX pod_by_state RENAME TO pod_by_stage",
    "CREATE TABLE hamiacct_new (id bigint PRIMARY KEY, name text); CREATE INDEX ON hamiacct_new (name)",
)


@pytest.fixture(scope="module")
def today() -> Iterator[None]:
    with databases.at(NAMES[-1]):
        databases.fill(databases.state(NAMES[-1]))
        yield


def done(statements: str) -> set[str]:
    """The hazards of some statements, which are undone afterwards."""
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        try:
            with safety.watched() as change:
                for statement in statements.split(";"):
                    cursor.execute(statement)
            return safety.hazards(change)
        finally:
            cursor.execute("ROLLBACK")


@pytest.mark.parametrize("statement", PLANTED)
def test_a_hazard_is_seen(today: None, statement: str) -> None:
    assert PLANTED[statement] in done(statement)


@pytest.mark.parametrize("statement", HARMLESS)
def test_what_does_no_harm_is_none(today: None, statement: str) -> None:
    assert done(statement) == set()


def test_an_index_may_be_made_while_others_write(today: None) -> None:
    with safety.watched() as change, connection.cursor() as cursor:
        cursor.execute("CREATE INDEX CONCURRENTLY planted ON hamiacct_event (received_at)")
    assert safety.hazards(change) == set()

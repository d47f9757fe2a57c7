"""The ledger's table in SQL: partitioned by month, append-only, and the rows that reading expects."""

from django.db import migrations

TABLE = """
CREATE TABLE hamiacct_ledgerentry (
    seq bigint NOT NULL,
    at timestamptz NOT NULL,
    pod_uid varchar(253) NOT NULL,
    namespace varchar(253) NOT NULL,
    node varchar(253) NOT NULL,
    device varchar(253) NOT NULL,
    vendor varchar(63) NOT NULL,
    rule varchar(20) NOT NULL,
    reason text NOT NULL,
    slots bigint NOT NULL,
    memory_mib bigint NOT NULL,
    cores bigint NOT NULL,
    quota_cores bigint NOT NULL,
    resource_version bigint NOT NULL,
    PRIMARY KEY (seq, at)
) PARTITION BY RANGE (at);
CREATE INDEX ledger_by_pod ON hamiacct_ledgerentry (pod_uid, seq);
CREATE INDEX ledger_by_device ON hamiacct_ledgerentry (node, device, seq);
CREATE INDEX ledger_by_namespace ON hamiacct_ledgerentry (namespace, seq);
CREATE TABLE hamiacct_ledgerentry_rest PARTITION OF hamiacct_ledgerentry DEFAULT;
"""

# A line once written stays as it is. The statement trigger guards TRUNCATE, which no row trigger sees;
# partitions need one of their own.
APPEND_ONLY = """
CREATE FUNCTION hamiacct_ledger_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the ledger is append-only: % refused', TG_OP USING ERRCODE = 'integrity_constraint_violation';
END $$;
CREATE TRIGGER ledger_lines_stay BEFORE UPDATE OR DELETE ON hamiacct_ledgerentry
    FOR EACH ROW EXECUTE FUNCTION hamiacct_ledger_is_append_only();
CREATE TRIGGER ledger_table_stays BEFORE TRUNCATE ON hamiacct_ledgerentry
    FOR EACH STATEMENT EXECUTE FUNCTION hamiacct_ledger_is_append_only();
CREATE TRIGGER ledger_table_stays BEFORE TRUNCATE ON hamiacct_ledgerentry_rest
    FOR EACH STATEMENT EXECUTE FUNCTION hamiacct_ledger_is_append_only();
"""

# Makes the partitions of this month and the next ones where they are missing; answers how many it made.
# Lines that already lie in the rest partition keep their month there: a partition over them is refused,
# and they are read all the same.
PARTITIONS = """
CREATE FUNCTION hamiacct_ensure_ledger_partitions(since date, months integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    made integer := 0;
    first date;
    part text;
BEGIN
    FOR offset_months IN 0 .. months - 1 LOOP
        first := (date_trunc('month', since) + make_interval(months => offset_months))::date;
        part := 'hamiacct_ledgerentry_' || to_char(first, 'YYYYMM');
        IF to_regclass(part) IS NULL THEN
            BEGIN
                EXECUTE format(
                    'CREATE TABLE %I PARTITION OF hamiacct_ledgerentry FOR VALUES FROM (%L) TO (%L)',
                    part, first::timestamp AT TIME ZONE 'UTC',
                    (first + interval '1 month')::timestamp AT TIME ZONE 'UTC');
                EXECUTE format(
                    'CREATE TRIGGER ledger_table_stays BEFORE TRUNCATE ON %I FOR EACH STATEMENT'
                    ' EXECUTE FUNCTION hamiacct_ledger_is_append_only()', part);
                made := made + 1;
            EXCEPTION WHEN check_violation THEN
                NULL;
            END;
        END IF;
    END LOOP;
    RETURN made;
END $$;
SELECT hamiacct_ensure_ledger_partitions(now()::date, 3);
"""

# Where 0001 alone was applied for a while, somebody may have made them by hand.
FIRST_ROWS = """
INSERT INTO hamiacct_ledgerhead (id, seq) VALUES (1, 0) ON CONFLICT DO NOTHING;
INSERT INTO hamiacct_feed (kind, history, applied_version) VALUES ('Pod', 1, 0), ('Node', 1, 0), ('ResourceQuota', 1, 0)
    ON CONFLICT DO NOTHING;
"""

BACK = """
DROP TABLE hamiacct_ledgerentry;
DROP FUNCTION hamiacct_ensure_ledger_partitions(date, integer);
DROP FUNCTION hamiacct_ledger_is_append_only();
DELETE FROM hamiacct_ledgerhead;
DELETE FROM hamiacct_feed;
"""


class Migration(migrations.Migration):
    """Adds the ledger."""

    dependencies = [("hamiacct", "0001_initial")]

    operations = [migrations.RunSQL(TABLE + APPEND_ONLY + PARTITIONS + FIRST_ROWS, BACK)]

"""Every table of ours at one moment: to be put back, and to be compared with another moment."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

Row = dict[str, Any]

# What differs between two runs that do the same: when it was, the numbers of rows, and in how many steps.
ACCIDENTAL = frozenset(
    {
        "id", "at", "since", "created_at", "expires_at", "changed_at", "attempts", "seq", "fleet",
        "fleet_seq", "seconds", "digest", "vgpu_time",
    }
)  # fmt: skip
# How many lines there are is no accident, which of them came first may be.
COUNTED = ("hamiacct_ledgerhead", "seq")
# What names a time, or depends on who else was there by then.
TELLING = {
    "hamiacct_ledgerentry": {"reason"},
    "hamiacct_reservation": {"annotations", "score"},
    "hamiacct_event": {"detail"},
}


NAMES = """
SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
    AND NOT relispartition AND relname LIKE 'hamiacct%' ORDER BY relname
"""
PARTS = "(SELECT relname FROM pg_class WHERE relispartition AND relkind = 'r')"
PARTITIONS = "partitions of the ledger"

Session = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class Photograph:
    """The rows of each table, and what partitions there are."""

    rows: dict[str, list[Row]]

    @classmethod
    def taken(cls, session: Session) -> Photograph:
        """As it is now."""
        names = {name: sql.Identifier(name) for (name,) in session.execute(NAMES)}
        tables: dict[str, sql.Composable] = {**names, PARTITIONS: sql.SQL(PARTS)}
        parts = [
            sql.SQL("SELECT coalesce(json_agg(t), '[]')::text FROM {} AS t").format(table)
            for table in tables.values()
        ]
        found = session.execute(sql.SQL(" UNION ALL ").join(parts)).fetchall()
        return cls({name: json.loads(text) for name, (text,) in zip(tables, found, strict=True)})

    def back(self, session: Session) -> str:
        """The statements that make the rows as they were. The ledger lets nobody do so who obeys triggers."""
        parts: list[sql.Composable] = [sql.SQL("BEGIN; SET LOCAL session_replication_role = replica")]
        for name, rows in self.rows.items():
            if name != PARTITIONS:
                table = sql.Identifier(name)
                parts.append(sql.SQL("DELETE FROM {}").format(table))
                if rows:
                    insert = sql.SQL(
                        "INSERT INTO {0} SELECT * FROM json_populate_recordset(NULL::{0}, {1}::json)"
                    )
                    parts.append(insert.format(table, sql.Literal(json.dumps(rows))))
        return sql.SQL("; ").join([*parts, sql.SQL("COMMIT")]).as_string(session)

    def essence(self, without: frozenset[str] = frozenset()) -> dict[str, list[str]]:
        """What two runs that do the same have in common, table by table."""
        devices = {row["id"]: f"{row['node']}/{row['uuid']}" for row in self.rows["hamiacct_device"]}
        quotas = {
            row["id"]: f"{row['namespace']}/{row['name']}" for row in self.rows["hamiacct_resourcequota"]
        }
        names = {"device_id": devices, "quota_id": quotas}
        return {
            table: sorted(
                json.dumps(
                    {
                        column: names[column][value] if column in names else value
                        for column, value in row.items()
                        if (column not in ACCIDENTAL or (table, column) == COUNTED)
                        and column not in TELLING.get(table, ())
                    },
                    sort_keys=True,
                )
                for row in rows
            )
            for table, rows in self.rows.items()
            if table not in without
        }

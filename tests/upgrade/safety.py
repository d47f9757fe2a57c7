"""What a migration would do to code that still runs: seen in PostgreSQL's own catalogue, not read from SQL.

A change of the schema is watched on a database with rows in it. What was there before and is not what it was
afterwards, what old code cannot write any more, and what takes long while a lock keeps old code waiting, are
hazards. It does not matter how the change was written: by Django's operations, in SQL, or in Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django.db import connection


class Column(NamedTuple):
    """A column as old code meets it."""

    type: str
    not_null: bool
    fills_itself: bool


@dataclass(frozen=True)
class Catalogue:
    """What is there, by name; what is made anew has another number. `files` are where rows lie."""

    columns: Mapping[tuple[str, str], Column]
    files: Mapping[str, int]
    indexes: Mapping[str, tuple[str, int]]
    constraints: Mapping[str, tuple[str, int]]
    triggers: Mapping[str, str]
    functions: frozenset[str]

    @property
    def tables(self) -> frozenset[str]:
        return frozenset(table for table, _ in self.columns)

    @property
    def numbers_of_indexes(self) -> frozenset[int]:
        return frozenset(number for _, number in self.indexes.values())


COLUMNS = r"""
SELECT relname, attname, format_type(atttypid, atttypmod), attnotnull,
    atthasdef OR attidentity <> '' OR attgenerated <> ''
FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND relname LIKE 'hamiacct\_%'
    AND NOT relispartition AND attnum > 0 AND NOT attisdropped
"""
FILES = r"""
SELECT relname, pg_relation_filenode(oid)::bigint FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname LIKE 'hamiacct\_%'
"""
# Those of partitions come with that of the whole.
INDEXES = r"""
SELECT indexed.relname, owner.relname, indexed.oid::bigint FROM pg_index
    JOIN pg_class AS indexed ON indexed.oid = indexrelid JOIN pg_class AS owner ON owner.oid = indrelid
WHERE owner.relnamespace = 'public'::regnamespace AND owner.relname LIKE 'hamiacct\_%'
    AND NOT owner.relispartition
"""
CONSTRAINTS = r"""
SELECT conname, relname, pg_constraint.oid::bigint FROM pg_constraint JOIN pg_class ON pg_class.oid = conrelid
WHERE relnamespace = 'public'::regnamespace AND relname LIKE 'hamiacct\_%' AND NOT relispartition
    AND contype <> 'n'
"""
TRIGGERS = r"""
SELECT tgname, relname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
WHERE relname LIKE 'hamiacct\_%' AND NOT relispartition AND NOT tgisinternal
"""
FUNCTIONS = "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
WRITTEN = r"""
SELECT relname, n_tup_ins + n_tup_upd + n_tup_del FROM pg_stat_xact_user_tables
WHERE relname LIKE 'hamiacct\_%' AND n_tup_ins + n_tup_upd + n_tup_del > 0
"""


def catalogue() -> Catalogue:
    return Catalogue(
        {(table, name): Column(*rest) for table, name, *rest in _rows(COLUMNS)},
        dict(_rows(FILES)),
        {name: (table, number) for name, table, number in _rows(INDEXES)},
        {name: (table, number) for name, table, number in _rows(CONSTRAINTS)},
        dict(_rows(TRIGGERS)),
        frozenset(name for (name,) in _rows(FUNCTIONS)),
    )


def _rows(statement: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


@dataclass
class Change:
    """A change while it is watched: its statements, and in which tables it wrote rows."""

    before: Catalogue
    written_before: Mapping[str, int]
    statements: list[str] = field(default_factory=list)
    written: set[str] = field(default_factory=set)

    def note(self, execute: Callable[..., Any], statement: Any, *rest: Any) -> Any:
        """Django's wrapper of every statement."""
        answer = execute(statement, *rest)
        text = str(statement)
        if text != WRITTEN:
            self.statements.append(text)
            written = dict(_rows(WRITTEN))
            self.written |= {
                table for table, rows in written.items() if rows > self.written_before.get(table, 0)
            }
        return answer

    def made_beside(self, index: str) -> bool:
        """Whether an index was made while others write."""
        name = re.escape(index)
        return any(
            re.search(
                rf'CREATE\s+(UNIQUE\s+)?INDEX\s+CONCURRENTLY\s+(IF NOT EXISTS\s+)?"?{name}"?', text, re.I
            )
            for text in self.statements
        )


@contextmanager
def watched() -> Iterator[Change]:
    """Watches what is done to the schema inside."""
    change = Change(catalogue(), dict(_rows(WRITTEN)))
    with connection.execute_wrapper(change.note):
        yield change


def hazards(change: Change) -> set[str]:
    """What of it old code would feel."""
    return set(_hazards(change, change.before, catalogue()))


def _hazards(change: Change, before: Catalogue, after: Catalogue) -> Iterator[str]:
    old = before.tables
    for table in old - after.tables:
        yield f"table gone: {table}"
    for function in before.functions - after.functions:
        yield f"function gone: {function}"
    for (table, name), was in before.columns.items():
        now = after.columns.get((table, name))
        if table not in after.tables:
            continue
        if now is None:
            yield f"column gone: {table}.{name}"
        else:
            yield from _changes(f"{table}.{name}", was, now)
    for (table, name), now in after.columns.items():
        if table in old and (table, name) not in before.columns and now.not_null and not now.fills_itself:
            yield f"old code cannot insert: {table}.{name} is NOT NULL without a default of the database"
    for table, file in before.files.items():
        if after.files.get(table, file) != file:
            yield f"table rewritten: {table}"
    for index, (table, number) in after.indexes.items():
        is_new = before.indexes.get(index) != (table, number) and table in old
        if is_new and number not in before.numbers_of_indexes and not change.made_beside(index):
            yield f"writers wait for an index: {index}"
    for name, (table, number) in after.constraints.items():
        if table in old and name not in before.constraints:
            yield f"old code may break a constraint: {name}"
        elif table in old and before.constraints[name] != (table, number):
            yield f"a constraint is made anew: {name}"
    for name, (table, _) in before.constraints.items():
        if name not in after.constraints and table in after.tables:
            yield f"constraint gone: {name}"
    for name, table in after.triggers.items():
        if name not in before.triggers and table in old:
            yield f"a trigger comes: {name}"
    for table in change.written:
        if table in before.files:
            yield f"rows written under the change's locks: {table}"


def _changes(name: str, was: Column, now: Column) -> Iterator[str]:
    if was.type != now.type:
        yield f"column changed: {name} is {now.type}, was {was.type}"
    if now.not_null and not was.not_null:
        yield f"old code may write NULL: {name} is NOT NULL now"
    if was.fills_itself and not now.fills_itself:
        yield f"old code cannot insert: {name} lost its default of the database"

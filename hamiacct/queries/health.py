"""Whether the service can work: its database, the schema that this code expects, the broker."""

from __future__ import annotations

import redis
from django.conf import settings
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

PATIENCE_SECONDS = 1


def missing_migrations() -> tuple[str, ...]:
    """Migrations that this code has and the database has not. Raises OperationalError without a database."""
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return tuple(f"{migration.app_label}.{migration.name}" for migration, _ in plan)


def broker_answers() -> bool | None:
    """Whether the broker answers within a second; None where there is none to ask."""
    url = settings.HAMIACCT.redis_url
    if not url:
        return None
    try:
        with redis.Redis.from_url(
            url, socket_connect_timeout=PATIENCE_SECONDS, socket_timeout=PATIENCE_SECONDS
        ) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False

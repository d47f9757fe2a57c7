"""Fewer indexes to write with every event, none that a batch could be misled to, and room for new versions of rows.

Nobody looks for the beginning of a UID, and what a pod holds is found by the index of its constraint.
"""

import django.db.models.deletion
from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models

# A row that changes where it stands leaves the indexes alone, unless what they hold has changed.
ROOM = "ALTER TABLE hamiacct_pod SET (fillfactor = 85)", "ALTER TABLE hamiacct_usageentry SET (fillfactor = 85)"
NO_ROOM = "ALTER TABLE hamiacct_pod RESET (fillfactor)", "ALTER TABLE hamiacct_usageentry RESET (fillfactor)"


def _without(table: str, **indexes: str) -> migrations.RunSQL:
    """Drops indexes by name while others read and write; the way back makes them of what is said of each."""
    return migrations.RunSQL(
        [f"DROP INDEX CONCURRENTLY IF EXISTS {name}" for name in indexes],
        [f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON {table} ({of})" for name, of in indexes.items()],
    )


class Migration(migrations.Migration):
    """Changes indexes alone, one after the other, while others read and write.

    A new one is there before the old one goes. Cut short, it leaves an invalid index behind; see
    docs/operations.md, "Upgrading".
    """

    atomic = False
    dependencies = [("hamiacct", "0005_audit_run")]

    operations = [
        migrations.RenameIndex("event", old_name="event_waiting", new_name="event_waiting_before"),
        AddIndexConcurrently(
            "event",
            models.Index(
                condition=models.Q(("attempts__gte", 0), ("state", "waiting")),
                fields=["attempts", "id"],
                name="event_waiting",
            ),
        ),
        RemoveIndexConcurrently("event", "event_waiting_before"),
        migrations.RenameIndex("event", old_name="event_by_settling", new_name="event_by_settling_before"),
        AddIndexConcurrently(
            "event",
            models.Index(
                condition=models.Q(("settled_at__isnull", False)),
                fields=["settled_at"],
                name="event_by_settling",
            ),
        ),
        RemoveIndexConcurrently("event", "event_by_settling_before"),
        AddIndexConcurrently(
            "pod",
            models.Index(
                condition=models.Q(("look_again_at__isnull", False)),
                fields=["look_again_at"],
                name="pod_by_next_look",
            ),
        ),
        # By Django's own hand the foreign key would be dropped with its index and made anew, under locks of both
        # tables in an order that is nobody else's.
        migrations.SeparateDatabaseAndState(
            [_without("hamiacct_pod", hamiacct_pod_look_again_at_21126c6e="look_again_at")],
            [
                migrations.AlterField(
                    model_name="pod", name="look_again_at", field=models.DateTimeField(blank=True, null=True)
                )
            ],
        ),
        migrations.SeparateDatabaseAndState(
            [
                _without(
                    "hamiacct_usageentry",
                    hamiacct_usageentry_pod_id_3ec36ee4="pod_id",
                    hamiacct_usageentry_pod_id_3ec36ee4_like="pod_id varchar_pattern_ops",
                )
            ],
            [
                migrations.AlterField(
                    model_name="usageentry",
                    name="pod",
                    field=models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="entries",
                        to="hamiacct.pod",
                    ),
                )
            ],
        ),
        _without("hamiacct_pod", hamiacct_pod_uid_d4fdcef0_like="uid varchar_pattern_ops"),
        migrations.RunSQL(list(ROOM), list(NO_ROOM)),
    ]

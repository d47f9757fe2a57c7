"""Fewer indexes to write with every event, none that a batch could be misled to, and room for new versions of rows.

Nobody looks for the beginning of a UID, and what a pod holds is found by the index of its constraint.
"""

import django.db.models.deletion
from django.db import migrations, models

# A row that changes where it stands leaves the indexes alone, unless what they hold has changed.
ROOM = """
DROP INDEX IF EXISTS hamiacct_pod_uid_d4fdcef0_like;
ALTER TABLE hamiacct_pod SET (fillfactor = 85);
ALTER TABLE hamiacct_usageentry SET (fillfactor = 85);
"""
NO_ROOM = """
CREATE INDEX IF NOT EXISTS hamiacct_pod_uid_d4fdcef0_like ON hamiacct_pod (uid varchar_pattern_ops);
ALTER TABLE hamiacct_pod RESET (fillfactor);
ALTER TABLE hamiacct_usageentry RESET (fillfactor);
"""


class Migration(migrations.Migration):
    """Changes indexes alone."""

    dependencies = [("hamiacct", "0005_audit_run")]

    operations = [
        migrations.RemoveIndex(model_name="event", name="event_waiting"),
        migrations.RemoveIndex(model_name="event", name="event_by_settling"),
        migrations.AlterField(
            model_name="pod", name="look_again_at", field=models.DateTimeField(blank=True, null=True)
        ),
        migrations.AlterField(
            model_name="usageentry",
            name="pod",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="entries",
                to="hamiacct.pod",
            ),
        ),
        migrations.AddIndex(
            model_name="event",
            index=models.Index(
                condition=models.Q(("attempts__gte", 0), ("state", "waiting")),
                fields=["attempts", "id"],
                name="event_waiting",
            ),
        ),
        migrations.AddIndex(
            model_name="event",
            index=models.Index(
                condition=models.Q(("settled_at__isnull", False)),
                fields=["settled_at"],
                name="event_by_settling",
            ),
        ),
        migrations.AddIndex(
            model_name="pod",
            index=models.Index(
                condition=models.Q(("look_again_at__isnull", False)),
                fields=["look_again_at"],
                name="pod_by_next_look",
            ),
        ),
        migrations.RunSQL(ROOM, NO_ROOM),
    ]

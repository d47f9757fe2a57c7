"""Since when a node or a quota is gone, so that it can be forgotten. NULL where code before this one saw it go."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Adds two columns."""

    dependencies = [("hamiacct", "0006_lighter_indexes")]

    operations = [
        migrations.AddField(
            model_name="node", name="deleted_at", field=models.DateTimeField(blank=True, null=True)
        ),
        migrations.AddField(
            model_name="resourcequota", name="deleted_at", field=models.DateTimeField(blank=True, null=True)
        ),
    ]

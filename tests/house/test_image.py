"""The image holds requirements.txt and nothing of a developer's environment: that must be enough to start."""

import os
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]

# What web, worker, beat, watcher and every command load; Celery finds the rest of its parts by their names.
STARTS = """
import importlib, pkgutil, sys

class NotInTheImage:
    absent = frozenset(sys.argv[1:])

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] in cls.absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NotInTheImage)
import django
django.setup()
import hamiacct.server, hamiacct.wsgi, hamiacct.celery, hamiacct.tasks, hamiacct.urls
import celery.apps.worker, celery.apps.beat, celery.concurrency.prefork, celery.worker.consumer
import kombu.transport.redis
import hamiacct.management.commands as commands
for one in pkgutil.iter_modules(commands.__path__):
    importlib.import_module(f"{commands.__name__}.{one.name}")
"""


def canonical(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_process_starts_with_what_the_image_installs() -> None:
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    locked = {canonical(line.partition("==")[0]) for line in lines if re.match(r"[A-Za-z0-9]", line)}
    absent = sorted(
        module
        for module, distributions in packages_distributions().items()
        if locked.isdisjoint(map(canonical, distributions))
    )
    assert {"pytest", "hypothesis"} <= set(absent)
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "hamiacct.settings",
        "HAMIACCT_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
        "HAMIACCT_SECRET_KEY": "static",
    }
    started = subprocess.run(
        [sys.executable, "-c", STARTS, *absent], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert started.returncode == 0, started.stderr

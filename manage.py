#!/usr/bin/env python3
"""Django's door."""

import os
import sys

from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line

# What works on files alone starts without the settings of a service. No database is at this address, and
# nothing is signed with this key: a command that came to need either would fail.
NEEDS_NO_SERVICE = ("explain",)
NO_SERVICE = {
    "HAMIACCT_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
    "HAMIACCT_SECRET_KEY": "signs nothing",
}

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hamiacct.settings")
    if sys.argv[1:2] and sys.argv[1] in NEEDS_NO_SERVICE:
        os.environ.update({name: text for name, text in NO_SERVICE.items() if not os.environ.get(name)})
    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as fault:
        # 2, as commands say of what could not be found out: 1 is their answer to what they were asked.
        sys.stderr.write(f"{fault}\n")
        sys.exit(2)

"""The service's settings, and one more path: the empty view that answers are measured against."""

from hamiacct.settings import *  # noqa: F403 - all of them, by design

ROOT_URLCONF = "bench.urls"

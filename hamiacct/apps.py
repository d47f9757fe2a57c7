"""Django's hook."""

from django.apps import AppConfig


class HamiacctConfig(AppConfig):
    """The one application; `api` is a plain package of views."""

    name = "hamiacct"
    label = "hamiacct"
    verbose_name = "GPU accounts"

"""Django's hook."""

from django.apps import AppConfig
from django.core.exceptions import ImproperlyConfigured

from hamiacct import config


class HamiacctConfig(AppConfig):
    """The one application; `api` is a plain package of views."""

    name = "hamiacct"
    label = "hamiacct"
    verbose_name = "GPU accounts"

    def ready(self) -> None:
        """Reads the vendors once, so that an unreadable device-config.yaml stops the start."""
        try:
            config.vendors()
        except config.BadDeviceConfig as fault:
            raise ImproperlyConfigured(
                f"hamiacct cannot start with this HAMIACCT_DEVICE_CONFIG:\n{fault}"
            ) from None

"""What a WSGI server loads."""

import os

from django.conf import settings
from django.core.wsgi import get_wsgi_application

from hamiacct import sweeper

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hamiacct.settings")

application = get_wsgi_application()

if not settings.HAMIACCT.redis_url:
    sweeper.start()

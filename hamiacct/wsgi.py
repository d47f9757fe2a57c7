"""What a WSGI server loads."""

import gc
import os

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.urls import get_resolver

from hamiacct import sweeper

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hamiacct.settings")

application = get_wsgi_application()

# What is loaded now stays for good. Left to itself the garbage collector looks through all of it again and
# again while a large answer is made, which takes twice as long as making it.
_ = get_resolver().url_patterns
gc.freeze()

if not settings.HAMIACCT.redis_url:
    sweeper.start()

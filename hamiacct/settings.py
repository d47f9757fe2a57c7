"""Django's settings. What an operator may choose is in hamiacct.environment; the rest is decided here."""

import os
from datetime import timedelta
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured
from django.templatetags.static import static

from hamiacct import environment

try:
    HAMIACCT = environment.read(os.environ)
except environment.BadEnvironment as fault:
    raise ImproperlyConfigured(f"hamiacct cannot start with this environment:\n{fault}") from None

BASE_DIR = Path(__file__).resolve().parent.parent

SECRET_KEY = HAMIACCT.secret_key
DEBUG = HAMIACCT.debug
ALLOWED_HOSTS = list(HAMIACCT.allowed_hosts)
ROOT_URLCONF = "hamiacct.urls"
WSGI_APPLICATION = "hamiacct.wsgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en-us"
USE_I18N = False
FORMAT_MODULE_PATH = "hamiacct.formats"

INSTALLED_APPS = [
    "unfold",
    "unfold.contrib.filters",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "axes",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "hamiacct.apps.HamiacctConfig",
]

MIDDLEWARE = [
    "hamiacct.middleware.request_log",
    "hamiacct.middleware.probes",
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "hamiacct.middleware.content_security_policy",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "hamiacct.middleware.tls_before_us",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "axes.middleware.AxesMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        # Before those of the applications: the frame of every page of the admin is ours.
        "DIRS": [BASE_DIR / "hamiacct" / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

# One connection per thread, kept: cheaper than a pool. No statement may wait for a lock longer than an
# operator allows, none may run or leave its transaction open for longer than any of ours should take.
DATABASES = {"default": environment.database_of(HAMIACCT.database_url)}
DATABASES["default"] |= {
    "CONN_MAX_AGE": None,
    "CONN_HEALTH_CHECKS": True,
    "ATOMIC_REQUESTS": False,
    "OPTIONS": {
        "connect_timeout": "5",
        "application_name": "hamiacct",
        "options": (
            f"-c lock_timeout={round(HAMIACCT.lock_timeout_seconds * 1000)}"
            " -c statement_timeout=60000 -c idle_in_transaction_session_timeout=60000"
            # What is prepared (queries.statements) finds rows by keys, whatever the keys: one plan will do.
            " -c plan_cache_mode=force_generic_plan -c jit=off"
        ),
        **DATABASES["default"]["OPTIONS"],
    },
}

# Bodies have limits of their own, per endpoint and with an answer of their own (docs/api.md).
DATA_UPLOAD_MAX_MEMORY_SIZE = None
# A list of the admin may be confirmed with every row of it chosen by hand.
DATA_UPLOAD_MAX_NUMBER_FIELDS = 20_000

# Views say what they need through api.endpoint; one that does not is closed to everybody.
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "api.errors.problem_response",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
    "UNAUTHENTICATED_USER": None,
}

SPECTACULAR_SETTINGS = {
    "TITLE": "hamiacct",
    "DESCRIPTION": "GPU accounts for Kubernetes clusters whose cards are shared between pods.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_NAME_OVERRIDES": {
        "PodState": "hamiacct.accounting.words.PodState",
        "Rule": "hamiacct.accounting.words.Rule",
        "Outcome": "hamiacct.accounting.words.Outcome",
        "FindingCode": "hamiacct.accounting.words.FindingCode",
        "SubjectKind": "hamiacct.accounting.words.SubjectKind",
        "Kind": "hamiacct.accounting.words.Kind",
        "EventType": "hamiacct.accounting.words.EventType",
        "WatchState": "hamiacct.accounting.words.WatchState",
        "ReservationState": "hamiacct.accounting.words.ReservationState",
        "Question": "hamiacct.accounting.words.Question",
        "Refusal": "hamiacct.accounting.words.Refusal",
        "Book": "hamiacct.accounting.words.Book",
        "ContainerClass": "hamiacct.accounting.pods.ContainerClass",
    },
    "ENUM_ADD_EXPLICIT_BLANK_NULL_CHOICE": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
}

# Served by the web process itself, straight from the packages: nothing to collect, nothing from a CDN.
STATIC_URL = "/static/"
WHITENOISE_USE_FINDERS = True

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("MinimumLengthValidator", "CommonPasswordValidator", "NumericPasswordValidator")
]
LOGIN_URL = "admin:login"

# Who fails five times to log in, by name and from one address, waits a quarter of an hour; counted in the
# database, so by all web processes together. The address is the peer's: what a header says of it anybody can
# write. Behind a proxy that leaves the name, so a stranger can lock a name out, never for longer than that.
AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "django.contrib.auth.backends.ModelBackend"]
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_FAILURE_LIMIT = 5
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_RESET_ON_SUCCESS = True
AXES_LOCKOUT_CALLABLE = "hamiacct.logins.locked_out"
AXES_USERNAME_CALLABLE = "hamiacct.logins.name_to_count"
AXES_ENABLE_ADMIN = False
AXES_DISABLE_ACCESS_LOG = True
AXES_VERBOSE = False

# On loopback there is no TLS to insist on; anywhere else a cookie travels over TLS alone.
SESSION_COOKIE_SECURE = not HAMIACCT.loopback_only
CSRF_COOKIE_SECURE = not HAMIACCT.loopback_only
CSRF_TRUSTED_ORIGINS = [
    f"https://{'*' if host.startswith('.') else ''}{host}" for host in HAMIACCT.allowed_hosts if host != "*"
]
X_FRAME_OPTIONS = "DENY"
SILENCED_SYSTEM_CHECKS = [
    # Probes, kube-scheduler and kube-apiserver speak to the pod itself, where a redirect to TLS, or a browser
    # told to use nothing else, would only break: TLS is the ingress's, or HAMIACCT_TLS_CERT's.
    "security.W004",
    "security.W008",
    *(["security.W012", "security.W016"] if HAMIACCT.loopback_only else []),
]

UNFOLD = {
    "SITE_TITLE": "hamiacct",
    "SITE_HEADER": "hamiacct",
    "SITE_SUBHEADER": "GPU accounts",
    "SITE_SYMBOL": "memory",
    "SITE_URL": None,
    "SITE_FAVICONS": [
        {"rel": "icon", "type": "image/svg+xml", "href": lambda _: static("hamiacct/icon.svg")},
    ],
    "SHOW_VIEW_ON_SITE": False,
    "DASHBOARD_CALLBACK": "hamiacct.admin.overview.dashboard",
    "SIDEBAR": {"navigation": "hamiacct.admin.navigation.sections"},
    "STYLES": [lambda _: static("hamiacct/admin.css")],
    "SCRIPTS": [lambda _: static("hamiacct/admin.js")],
    "BORDER_RADIUS": "6px",
    "COLORS": {
        "primary": {
            "50": "#f0fdfa",
            "100": "#ccfbf1",
            "200": "#99f6e4",
            "300": "#5eead4",
            "400": "#2dd4bf",
            "500": "#14b8a6",
            "600": "#0f766e",
            "700": "#115e59",
            "800": "#134e4a",
            "900": "#134040",
            "950": "#042f2e",
        }
    },
}

LOGGING_CONFIG = "hamiacct.logs.configure"
LOGGING = {"level": HAMIACCT.log_level}

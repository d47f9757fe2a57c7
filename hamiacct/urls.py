"""The admin, and everything else as `api` lays it out; what reaches no view is answered as a problem too."""

from django.contrib import admin
from django.urls import include, path

handler400 = "api.errors.bad_request"
handler403 = "api.errors.permission_denied"
handler404 = "api.errors.page_not_found"
handler500 = "api.errors.server_error"

urlpatterns = [
    path("admin/", admin.site.urls),
    path("", include("api.urls")),
]

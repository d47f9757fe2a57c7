"""The service's paths, and the yardstick."""

from django.urls import include, path
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView


class Empty(APIView):
    """What Django, Django REST framework and our middleware cost when nothing is asked."""

    authentication_classes = ()
    permission_classes = ()

    def get(self, request: Request) -> Response:
        return Response({})


urlpatterns = [path("bench/empty", Empty.as_view()), path("", include("hamiacct.urls"))]

"""Why a pod's charge is what it is."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api import bodies, fields, problems
from api.endpoint import OF_BODIES, Endpoint
from api.ledger import LineSerializer, line_shape
from api.pods import HeldSerializer
from hamiacct import config
from hamiacct.accounting.errors import Malformed
from hamiacct.accounting.pods import ContainerClass
from hamiacct.accounting.words import Rule
from hamiacct.kube import manifests
from hamiacct.queries import explanations

MAX_BODY_BYTES = 8 * bodies.MIB

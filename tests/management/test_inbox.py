"""`manage.py inbox`: refused events are found, sent again, laid aside."""

from io import StringIO

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from rest_framework.test import APIClient

from hamiacct import models
from tests import watch

pytestmark = pytest.mark.django_db


def said(*words: str) -> str:
    out = StringIO()
    call_command("inbox", *words, stdout=out)
    return out.getvalue()


def refuse(api: APIClient, name: str) -> int:
    broken = watch.pod(name, "GPU-a 1 0")
    broken["status"]["phase"] = "Weird"
    api.post("/api/v1/events", watch.events(broken), format="json")
    return models.Event.objects.get(name=name).pk


def test_a_refused_event_is_listed_with_its_reason(api: APIClient) -> None:
    number = refuse(api, "odd")
    assert f"{number}  ADDED Pod team-a/odd" in said()
    assert "phase" in said()


def test_a_replayed_event_that_is_still_unreadable_stays_refused(api: APIClient) -> None:
    number = refuse(api, "odd")
    assert f"{number}: refused" in said("replay", str(number))
    assert models.Event.objects.get(pk=number).state == "refused"


def test_a_dismissed_event_is_not_listed_again(api: APIClient) -> None:
    number = refuse(api, "odd")
    assert said("dismiss", str(number)) == f"{number}: dismissed\n"
    assert said() == ""
    with pytest.raises(CommandError, match="not refused"):
        said("replay", str(number))

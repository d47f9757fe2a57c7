"""Serializer fields that several nouns share. Answers are shaped by hand; serializers describe them."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from rest_framework import serializers

from hamiacct.queries.usage import Room


def word(words: type[StrEnum], **options: Any) -> serializers.ChoiceField:
    """A word of one of the contract's closed lists."""
    return serializers.ChoiceField(choices=[(member.value, member.name) for member in words], **options)


class RoomSerializer(serializers.Serializer[Any]):
    """What there is of one thing, what of it is held, and what is left."""

    total = serializers.IntegerField()
    used = serializers.IntegerField()
    free = serializers.IntegerField()


def room(room: Room) -> dict[str, int]:
    """The shape of a room."""
    return {"total": room.total, "used": room.used, "free": room.free}

"""Query parameters, each declared once: for reading requests and for the OpenAPI document.

An empty value counts as not given. An unknown name, or one given twice, is a fault: a filter that was
misspelt would otherwise silently select everything.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from django.http import QueryDict
from drf_spectacular.utils import OpenApiParameter

from api.errors import BadRequest, Fault, escaped

INT64_MAX = 2**63 - 1
MAX_TEXT = 5000  # a cursor holds two names of 253 characters, escaped


@dataclass(frozen=True, slots=True)
class Parameter:
    """A text, taken as it is. `absent` is its value where it is not given."""

    name: str
    about: str
    absent: ClassVar[Any] = ""

    def read(self, text: str) -> Any:
        """The value; ValueError with a reason where it has none."""
        if "\x00" in text or len(text) > MAX_TEXT:
            raise ValueError(f"must be a text of at most {MAX_TEXT} characters, without NUL")
        return text

    def schema(self) -> dict[str, Any]:
        """Its JSON schema."""
        return {"type": "string"}

    def openapi(self) -> OpenApiParameter:
        """Its entry in the OpenAPI document."""
        return OpenApiParameter(self.name, self.schema(), OpenApiParameter.QUERY, description=self.about)


@dataclass(frozen=True, slots=True)
class Choice(Parameter):
    """A word of a closed list; None where it is not given."""

    words: type[StrEnum]
    absent: ClassVar[Any] = None

    def read(self, text: str) -> StrEnum:
        """The member of the list."""
        try:
            return self.words(text)
        except ValueError:
            raise ValueError(f"must be one of {', '.join(self.words)}") from None

    def schema(self) -> dict[str, Any]:
        """An enum."""
        return {"type": "string", "enum": [word.value for word in self.words]}


@dataclass(frozen=True, slots=True)
class Integer(Parameter):
    """A whole number within bounds."""

    at_least: int = 0
    at_most: int = INT64_MAX
    otherwise: int | None = None

    @property
    def absent(self) -> int | None:
        """The number where it is not given."""
        return self.otherwise

    def read(self, text: str) -> int:
        """The number."""
        # Twenty digits are more than 64 bits hold; Python refuses to read numbers of any length.
        if (
            text.isascii()
            and text.isdecimal()
            and len(text) < 20
            and self.at_least <= int(text) <= self.at_most
        ):
            return int(text)
        raise ValueError(f"must be a whole number from {self.at_least} to {self.at_most}")

    def schema(self) -> dict[str, Any]:
        """An integer with its bounds."""
        schema: dict[str, Any] = {"type": "integer", "minimum": self.at_least, "maximum": self.at_most}
        return schema if self.otherwise is None else {**schema, "default": self.otherwise}


@dataclass(frozen=True, slots=True)
class Seconds(Parameter):
    """A length of time; what is over `at_most` counts as that. None where it is not given."""

    at_most: float
    absent: ClassVar[Any] = None

    def read(self, text: str) -> float:
        """Seconds, not below zero."""
        try:
            seconds = float(text)
        except ValueError:
            seconds = math.nan
        if math.isnan(seconds) or seconds < 0:
            raise ValueError("must be a number of seconds, 0 or more")
        return min(seconds, self.at_most)

    def schema(self) -> dict[str, Any]:
        """A number."""
        return {"type": "number", "minimum": 0}


@dataclass(frozen=True, slots=True)
class Flag(Parameter):
    """Yes or no; None where it is not given."""

    absent: ClassVar[Any] = None
    meanings: ClassVar[Mapping[str, bool]] = {"1": True, "true": True, "0": False, "false": False}

    def read(self, text: str) -> bool:
        """Whether it says yes."""
        try:
            return self.meanings[text.lower()]
        except KeyError:
            raise ValueError("must be 1, 0, true or false") from None

    def schema(self) -> dict[str, Any]:
        """The four words; a bare boolean would promise that `1` is refused."""
        return {"type": "string", "enum": list(self.meanings)}


def read(given: QueryDict, declared: Sequence[Parameter]) -> dict[str, Any]:
    """The value of every declared parameter, by name. BadRequest tells every fault at once."""
    names = {parameter.name for parameter in declared}
    known = ", ".join(sorted(names)) or "none"
    faults = [
        _fault(name, f"unknown parameter; this path knows {known}") for name in given if name not in names
    ]
    values = {}
    for parameter in declared:
        texts = [text for text in given.getlist(parameter.name) if text]
        if len(texts) > 1:
            faults.append(_fault(parameter.name, "is given more than once"))
        elif not texts:
            values[parameter.name] = parameter.absent
        else:
            try:
                values[parameter.name] = parameter.read(texts[0])
            except ValueError as error:
                faults.append(_fault(parameter.name, str(error)))
    if faults:
        raise BadRequest(faults)
    return values


def _fault(name: str, detail: str) -> Fault:
    shown = name if name.isprintable() and len(name) <= 64 else f"{name[:64]!r}"
    return Fault(f"/query/{escaped(shown)}", f"{shown}: {detail}")

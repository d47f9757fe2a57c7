"""Reading one field of a manifest: the right type, a bounded size, or `Malformed` with a JSON pointer.

Details never quote more of a value than its type, so that a reduced manifest (`manifests.keep`) is
refused in the same words as the whole one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from hamiacct.accounting import quantities
from hamiacct.accounting.errors import Malformed, UnreadableQuantity
from hamiacct.kube.annotations import INT64_MAX, MAX_NAME, REPLACEMENT, clean, is_plain

MAX_ITEMS = 1024
"""More containers, statuses or conditions than any object has."""

MAX_TIMESTAMP = 63
"""Room for more decimals than any clock has."""

DEFAULT_NAMESPACE = "default"
"""Where Kubernetes puts an object that names no namespace."""

Manifest = Mapping[str, Any]

_TYPE_WORDS: dict[type, str] = {
    type(None): "nothing",
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "an object",
}


def type_word(value: object) -> str:
    """The JSON type of a value, for messages."""
    return _TYPE_WORDS.get(type(value), "something else")


def escaped(key: str) -> str:
    """One part of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1") if "/" in key or "~" in key else key


def shortened(value: str) -> str:
    """A text that can be stored, cut one character past what any name may have."""
    return clean(value[: MAX_NAME + 1] if len(value) > MAX_NAME else value)


def object_of(value: object, pointer: str) -> Manifest:
    """The value, which must be an object."""
    if not isinstance(value, dict):
        raise Malformed(f"must be an object, not {type_word(value)}", pointer)
    return value


def mapping(holder: Manifest, field: str, pointer: str) -> Manifest:
    """An object; absent and null are an empty one."""
    value = holder.get(field)
    if value is None:
        return {}
    if isinstance(value, dict):
        return value
    raise Malformed(f"must be an object, not {type_word(value)}", f"{pointer}/{escaped(field)}")


def items(holder: Manifest, field: str, pointer: str) -> list[Any]:
    """A list; absent and null are an empty one."""
    value = holder.get(field)
    if value is None:
        return []
    if not isinstance(value, list):
        raise Malformed(f"must be a list, not {type_word(value)}", f"{pointer}/{field}")
    if len(value) > MAX_ITEMS:
        raise Malformed(f"holds more than {MAX_ITEMS} items", f"{pointer}/{field}")
    return value


def text(holder: Manifest, field: str, pointer: str) -> str:
    """A text, shortened; absent and null are ""."""
    value = holder.get(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Malformed(f"must be a text, not {type_word(value)}", f"{pointer}/{escaped(field)}")
    return shortened(value)


def name(holder: Manifest, field: str, pointer: str) -> str:
    """A text that names something: stored and compared, so neither too long nor unstorable. "" if absent."""
    plain = holder.get(field)
    if plain is None:
        return ""
    if type(plain) is str and is_plain(plain):
        return plain
    value = text(holder, field, pointer)
    if len(value) > MAX_NAME:
        raise Malformed(f"is longer than {MAX_NAME} characters", f"{pointer}/{escaped(field)}")
    if not value.isascii() and REPLACEMENT in value:
        raise Malformed("holds characters that cannot be stored", f"{pointer}/{escaped(field)}")
    return value


def names(holder: Manifest, field: str, pointer: str) -> list[str]:
    """A list of names; absent and null are an empty one."""
    numbered = {str(number): value for number, value in enumerate(items(holder, field, pointer))}
    return [name(numbered, number, f"{pointer}/{field}") for number in numbered]


def required_name(holder: Manifest, field: str, pointer: str) -> str:
    """A name that must be there."""
    value = name(holder, field, pointer)
    if not value:
        raise Malformed(f"{field} is missing", f"{pointer}/{field}")
    return value


def namespace(metadata: Manifest, pointer: str) -> str:
    """The namespace of an object of a namespaced kind; absent is `default`, as for Kubernetes."""
    return name(metadata, "namespace", pointer) or DEFAULT_NAMESPACE


def version(metadata: Manifest, pointer: str) -> int:
    """`resourceVersion` as the integer it is compared as (decision 8); digits only, below 2**63."""
    value = metadata.get("resourceVersion")
    if value is None or value == "":
        raise Malformed("resourceVersion is missing", f"{pointer}/resourceVersion")
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 19:
        value = int(value)
    if type(value) is int and 0 <= value <= INT64_MAX:
        return value
    raise Malformed("resourceVersion must be digits, below 2**63", f"{pointer}/resourceVersion")


def optional_version(metadata: Manifest, pointer: str) -> int:
    """`resourceVersion`, 0 where a manifest that is only asked about has none."""
    if metadata.get("resourceVersion") in (None, ""):
        return 0
    return version(metadata, pointer)


def integer(holder: Manifest, field: str, pointer: str) -> int | None:
    """A whole number of 64 bit; None where it is absent or null."""
    value = holder.get(field)
    if value is None:
        return None
    if type(value) is not int or not -INT64_MAX <= value <= INT64_MAX:
        raise Malformed("must be a whole number of 64 bit", f"{pointer}/{field}")
    return value


def boolean(holder: Manifest, field: str, pointer: str) -> bool:
    """True or false; absent and null are false."""
    value = holder.get(field)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise Malformed(f"must be true or false, not {type_word(value)}", f"{pointer}/{field}")


def timestamp(holder: Manifest, field: str, pointer: str) -> str:
    """An RFC 3339 time with its zone, as written; "" where it is absent or null."""
    value = text(holder, field, pointer)
    if not value:
        return ""
    try:
        has_zone = datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        has_zone = False
    if not has_zone or not value.isascii() or len(value) > MAX_TIMESTAMP:
        raise Malformed("must be an RFC 3339 time with a zone", f"{pointer}/{field}")
    return value


def texts(holder: Manifest, field: str, wanted: Collection[str], pointer: str) -> dict[str, str]:
    """The wanted keys of labels or annotations, cleaned."""
    found = {}
    for key, value in mapping(holder, field, pointer).items():
        if key in wanted:
            if not isinstance(value, str):
                where = f"{pointer}/{field}/{escaped(key)}"
                raise Malformed(f"must be a text, not {type_word(value)}", where)
            found[key] = clean(value)
    return found


def quantity(value: object, pointer: str) -> str:
    """A quantity as it was written; whether it is one is asked later."""
    try:
        return clean(quantities.text_of(value))
    except UnreadableQuantity as error:
        raise Malformed(error.detail, pointer) from error


def all_texts(holder: Manifest, field: str, pointer: str) -> dict[str, str]:
    """All labels of an object, cleaned."""
    found = stored_texts(mapping(holder, field, pointer))
    if len(found) > MAX_ITEMS:
        raise Malformed(f"holds more than {MAX_ITEMS} items", f"{pointer}/{field}")
    for key, value in found.items():
        if not isinstance(value, str):
            where = f"{pointer}/{field}/{escaped(key)}"
            raise Malformed(f"must be a text, not {type_word(value)}", where)
    return found


def stored_texts(labels: Manifest) -> dict[str, Any]:
    """Labels with keys and texts cleaned; keys that are no texts are none."""
    return {
        shortened(key): shortened(value) if isinstance(value, str) else value
        for key, value in labels.items()
        if isinstance(key, str)
    }

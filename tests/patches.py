"""JSON patches (RFC 6902) as kube-apiserver applies them, as far as admission writes them."""

import base64
import copy
import json
from typing import Any


def applied(manifest: Any, patch: list[dict[str, Any]]) -> Any:
    """The manifest with every operation done; an operation that the apiserver would refuse fails."""
    patched = copy.deepcopy(manifest)
    for operation in patch:
        assert operation["op"] == "add"
        *holders, last = [
            part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]
        ]
        holder = patched
        for part in holders:
            holder = holder[int(part)] if isinstance(holder, list) else holder[part]
        if isinstance(holder, list):
            assert last == "-"
            holder.append(operation["value"])
        else:
            holder[last] = operation["value"]
    return patched


def patch_in(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """The operations in an AdmissionReview's answer."""
    response = answer["response"]
    if "patch" not in response:
        assert "patchType" not in response
        return []
    assert response["patchType"] == "JSONPatch"
    operations: list[dict[str, Any]] = json.loads(base64.b64decode(response["patch"]))
    assert operations
    return operations

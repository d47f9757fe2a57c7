"""Pods that are asked about, in one line each."""

from typing import Any

GPU = {"gpu": "nvidia.com/gpu", "gpumem": "nvidia.com/gpumem", "gpucores": "nvidia.com/gpucores"}


def limits(**amounts: Any) -> dict[str, str]:
    """Limits in shorthand: gpu, gpumem, gpucores, gpumem-percentage; one card where none is said."""
    named = {"gpu": 1, **amounts}
    return {GPU.get(name, f"nvidia.com/{name}"): str(amount) for name, amount in named.items()}


def asking(
    name: str = "asks",
    *containers: dict[str, str] | None,
    namespace: str = "team-a",
    uid: str | None = None,
    inits: int = 0,
    annotations: dict[str, str] | None = None,
    **amounts: Any,
) -> dict[str, Any]:
    """A pod that is not bound yet; each container has these limits, the first `inits` are init containers.

    asking("p", gpumem=3000)                    one container
    asking("p", {}, limits(gpumem=3000))        the second of two
    """
    shown = [
        {"name": f"c{number}", "resources": {"limits": one}}
        for number, one in enumerate(containers or [limits(**amounts)])
    ]
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}" if uid is None else uid,
            "annotations": annotations or {},
        },
        "spec": {"initContainers": shown[:inits], "containers": shown[inits:]},
        "status": {"phase": "Pending"},
    }

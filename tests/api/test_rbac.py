"""deploy/rbac.yaml: with its roles alone everything works, and each of their verbs is used."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from hamiacct.accounting.errors import Unavailable
from hamiacct.kube import client
from tests.kubeapi.server import ApiServer, Fault
from tests.scheduling import World, seconds_ago

RBAC = Path(__file__).parents[2] / "deploy" / "rbac.yaml"


def rules(role: str) -> list[dict[str, Any]]:
    [found] = [
        one
        for one in yaml.safe_load_all(RBAC.read_text())
        if (one["kind"], one["metadata"]["name"]) == ("ClusterRole", role)
    ]
    return list(found["rules"])


def allowed(role: str) -> set[tuple[str, str, str]]:
    """Verb, resource, subresource."""
    return {
        (verb, *resource.partition("/")[::2])
        for rule in rules(role)
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_a_scheduler_needs_what_its_role_allows(world: World) -> None:
    for name in ("p", "q"):
        world.add_pod(name)
    world.add_pod("other", hold=False)
    world.add_lease(holder="")
    cluster = world.cluster
    cluster.verbs.clear()
    cluster.restrict(rules("hamiacct-scheduler"))
    world.set_lock(seconds_ago(1, "team-a,other"))
    assert "is held by team-a/other" in world.bind("p")
    world.set_lock(None)
    cluster.fail("POST", "/binding", Fault.CONFLICT)
    assert "409" in world.bind("q")  # every step is undone
    cluster.fail("POST", "/binding", Fault.CUT_AFTER)
    assert world.bind("p") == ""
    assert len(world.events()) >= 3
    assert cluster.verbs == allowed("hamiacct-scheduler")


def test_a_watcher_needs_what_its_role_allows(cluster: ApiServer, tmp_path: Path) -> None:
    cluster.restrict(rules("hamiacct-watcher"))
    found = client.connect(cluster.kubeconfig(tmp_path))
    assert found is not None
    found.namespace("kube-system")
    for kind in client.PLURALS:
        page = found.page(kind, limit=1)
        with found.watch(kind, version=page.version, seconds=1):
            pass
    # The right to look at one object goes with the right to list them.
    unused = {("get", plural, "") for plural in client.PLURALS.values()}
    assert cluster.verbs == allowed("hamiacct-watcher") - unused
    with pytest.raises(Unavailable, match="403"):
        found.namespace("default")
    with pytest.raises(Unavailable, match="403"):
        found.lease("kube-system", "hami-scheduler")

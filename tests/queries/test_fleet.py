"""The fleet as columns straight from the database is the fleet as nodes read one by one."""

from random import Random
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from hamiacct import models
from hamiacct.accounting.fleet import Fleet
from hamiacct.accounting.policies import NodePolicy
from hamiacct.queries import fleet

pytestmark = pytest.mark.django_db

PROFILES = [{"name": "1g.10gb", "memory_mib": 10240, "cores": 14, "size": 1, "placements": [[0, 1], [1, 1]]}]


def one_in(number: int, chance: Random) -> bool:
    return chance.randrange(number) == 0


def a_device(node: str, number: int, chance: Random, odd: bool) -> models.Device:
    """A card in order; an odd one may be anything."""
    seldom: dict[str, Any] = {}
    if odd:
        seldom = chance.choice(
            (
                {"vendor": "AWSNeuron", "model": "AWSNeuron"},
                {"vendor": "Ascend910B4", "custom": {"NetworkID": 1}},
                {"custom": {"linkZone": 1}},
                {"mode": "mig"},
                {"healthy": False, "cordoned": True},
                {"numa": -1},
                {"numa": 2**40},
                {"memory_mib_total": 2**31},
                {"index": 0, "order": 0},
                {"index": 1, "order": 2},
                {"registered": False},
            )
        )
    values: dict[str, Any] = {
        "vendor": "NVIDIA",
        "index": number,
        "order": chance.choice((number, 0)),
        "model": chance.choice(("NVIDIA A100", "NVIDIA H100")),
        "numa": number % 2,
        "mode": "hami-core",
        "healthy": not one_in(9, chance),
        "registered": True,
        "ever_registered": True,
        "slots_total": 10,
        "memory_mib_total": 81920,
        "cores_total": 100,
        "slots_used": chance.randint(0, 11),
        "memory_mib_used": chance.randint(0, 90000),
        "cores_used": chance.randint(0, 110),
    } | seldom
    return models.Device(node=node, uuid=f"GPU-{chance.choice('abc')}-{number}", **values)


def fill(chance: Random) -> None:
    """Nodes, most of them plain."""
    for place in range(60):
        name = chance.choice(("n", "N", "node-", "ä")) + str(place)
        odd = one_in(2, chance)
        more: dict[str, Any] = {}
        if odd:
            more = chance.choice(
                ({}, {}, {"pair_scores": {"a": {"b": 1}}}, {"labels": {"a": "b"}}, {"deleted": True})
            )
        models.Node.objects.create(name=name, resource_version=1, **more)
        number = 33 if odd and one_in(5, chance) else chance.choice((0, 1, 4, 8))
        models.Device.objects.bulk_create(
            a_device(name, card, chance, odd and one_in(3, chance)) for card in range(number)
        )
    models.Device.objects.create(node="nobody", uuid="GPU-z", vendor="NVIDIA", registered=True)


def loaded() -> Fleet:
    kept = fleet._Kept()
    fleet._load_all(kept)
    return kept.fleet


@pytest.mark.parametrize("seed", range(4))
def test_columns_from_the_database_are_the_nodes_read_one_by_one(seed: int) -> None:
    fill(Random(seed))
    one_by_one = {node.name: node for node in fleet.load(None)}
    found, expected = loaded(), Fleet.of(one_by_one.values())
    assert {name: found.node(name) for name in found.names} == one_by_one
    assert {name: expected.node(name) for name in expected.names} == one_by_one
    for policy in NodePolicy:
        best = [found.names[place] for place in found.order(policy)]
        assert best == [expected.names[place] for place in expected.order(policy)]
    for name in found.names:
        here, there = found.inventory.names.places[name], expected.inventory.names.places[name]
        assert found.inventory.uuids[here] == expected.inventory.uuids[there]
    # Most were never made into objects.
    assert len(found.inventory.peculiar) < len(found) / 2


def test_no_nodes_and_cards_of_none() -> None:
    assert len(loaded()) == 0
    models.Device.objects.create(node="nobody", uuid="GPU-z", vendor="NVIDIA", registered=True)
    assert len(loaded()) == 0


def test_plain_nodes_are_one_statement_however_many() -> None:
    for place in range(2 * fleet.NODES_AT_ONCE + 1):
        models.Node.objects.create(name=f"n{place}", resource_version=1)
    with CaptureQueriesContext(connection) as taken:
        assert len(loaded()) == 2 * fleet.NODES_AT_ONCE + 1
    asked = [one["sql"] for one in taken if not one["sql"].startswith("PREPARE")]
    assert len(asked) == 1, asked


def test_a_node_that_goes_while_it_is_read_is_not_offered_as_it_was_before() -> None:
    """A tail tells that it changed, and when it is read it is gone: how it had changed nobody can tell."""
    models.Node.objects.create(name="n1", resource_version=1)
    kept = fleet._Kept()
    fleet._load_all(kept)
    assert "n1" in kept.fleet
    ledger_seq, fleet_seq = kept.numbers
    changed = fleet.Tail(kept.numbers, ledger_seq, fleet_seq + 1, [], {"n1": False})
    models.Node.objects.update(deleted=True)
    fleet._follow(kept, changed)
    assert "n1" not in kept.fleet

"""What the apiserver charges; the rest of the quota state is tested through its endpoint."""

from hamiacct.accounting.pods import Container, ContainerClass
from hamiacct.queries.quotas import apiserver_charge

INIT, SIDECAR, APP = ContainerClass.INIT, ContainerClass.SIDECAR, ContainerClass.APP


def containers(*said: tuple[ContainerClass, str]) -> list[Container]:
    return [
        Container(position, f"c{position}", kind, limits={"x.com/gpu": amount})
        for position, (kind, amount) in enumerate(said)
    ]


def test_an_init_container_is_charged_with_the_sidecars_before_it() -> None:
    assert apiserver_charge(containers((SIDECAR, "2"), (INIT, "20"), (APP, "10"))) == {"x.com/gpu": 22}


def test_and_not_with_those_after_it() -> None:
    assert apiserver_charge(containers((INIT, "20"), (SIDECAR, "2"), (APP, "10"))) == {"x.com/gpu": 20}


def test_a_request_goes_before_a_limit() -> None:
    both = Container(0, "c", APP, limits={"a": "5", "b": "5"}, requests={"a": "3"})
    assert apiserver_charge([both]) == {"a": 3, "b": 5}


def test_quantities_are_read_as_kubernetes_does() -> None:
    assert apiserver_charge(containers((APP, "1k"), (APP, "1500m"))) == {"x.com/gpu": 1002}


def test_what_cannot_be_read_is_not_charged() -> None:
    assert apiserver_charge(containers((APP, "many"), (APP, "1"))) == {"x.com/gpu": 1}

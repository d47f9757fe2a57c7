"""The clusters that every test here is tried on."""

from collections.abc import Iterator

import pytest

from tests.cluster.clusters import KUBECONFIG, Cluster, given_cluster, own_cluster


@pytest.fixture(params=["own", "given"], scope="module")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The API server of the tests, and the one of HAMIACCT_TEST_KUBECONFIG."""
    if request.param == "own":
        with own_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
            yield cluster
        return
    if not KUBECONFIG:
        pytest.skip("HAMIACCT_TEST_KUBECONFIG is not set")
    with given_cluster() as cluster:
        yield cluster

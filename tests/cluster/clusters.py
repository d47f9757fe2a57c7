"""A cluster as its clients see it: the API server of the tests, or any other that a kubeconfig leads to."""

import contextlib
import json
import os
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import orjson
import yaml
from lightkube.config import client_adapter
from lightkube.config.kubeconfig import KubeConfig

from tests.kubeapi.server import ApiServer
from tests.waiting import until

Object = dict[str, Any]

KUBECONFIG = os.environ.get("HAMIACCT_TEST_KUBECONFIG", "")
"""The cluster to try this on besides the tests' own, by somebody who may do everything there."""

ROLES = Path(__file__).parents[2] / "deploy/rbac.yaml"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ACCOUNT_SECONDS = 4 * 3600
JSON, MERGE_PATCH = "application/json", "application/merge-patch+json"


class Refused(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, body: Any) -> None:
        self.status = status
        self.body = body
        super().__init__(f"{status}: {body}")


class Cluster:
    """Calls, each sent once. What is made here bears the name of this run, and `clean` removes it."""

    def __init__(self, kubeconfig: Path, api: ApiServer | None = None) -> None:
        self.kubeconfig = kubeconfig
        self.api = api
        self.run = f"hamiacct-{uuid.uuid4().hex[:8]}"
        chosen = KubeConfig.from_file(kubeconfig).get()
        assert chosen is not None
        limits = httpx2.Timeout(30.0)
        self._http = client_adapter.Client(
            chosen, client_adapter.ConnectionParams(timeout=limits, trust_env=False)
        )
        self._namespaces: list[str] = []
        self._nodes: list[str] = []
        self._roles: list[str] = []

    def call(self, method: str, path: str, body: Any = None, kind: str = JSON, **query: Any) -> Object:
        """The answer; Refused where it is a failure."""
        response = self._http.request(
            method,
            path,
            params=query,
            content=None if body is None else orjson.dumps(body),
            headers={"Content-Type": kind},
        )
        document = orjson.loads(response.content)
        if response.status_code >= 400:
            raise Refused(response.status_code, document)
        assert isinstance(document, dict)
        return document

    def status_of(self, method: str, path: str, body: Any = None, kind: str = JSON, **query: Any) -> int:
        """How the call is answered."""
        try:
            self.call(method, path, body, kind, **query)
        except Refused as refused:
            return refused.status
        return 200

    def watch(self, path: str, seconds: int = 1, **query: Any) -> list[Object]:
        """The events of a watch of so many seconds."""
        if self.api is not None:
            self.api.watch_seconds = 0.05  # it tells all there is at once
        asked = {"watch": "true", "timeoutSeconds": seconds, **query}
        with self._http.stream("GET", path, params=asked) as response:
            if response.status_code >= 400:
                raise Refused(response.status_code, orjson.loads(response.read()))
            return [orjson.loads(line) for line in response.iter_lines()]

    # --- objects

    def add_namespace(self, suffix: str) -> str:
        """A namespace of this run. The tests' own server knows no namespaces, and needs none."""
        name = f"{self.run}-{suffix}-{len(self._namespaces)}"
        if self.api is None:
            self.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        self._namespaces.append(name)
        return name

    def add_node(self, name: str, annotations: dict[str, str]) -> Object:
        """A node that no kubelet looks after."""
        self._nodes.append(name)
        return self.call(
            "POST", "/api/v1/nodes", {"metadata": {"name": name, "annotations": annotations}, "status": {}}
        )

    def add(self, plural: str, namespace: str, manifest: Object) -> Object:
        """A new object."""
        return self.call("POST", f"/api/v1/namespaces/{namespace}/{plural}", manifest)

    def patch(self, path: str, changes: Object) -> Object:
        """A merge patch."""
        return self.call("PATCH", path, changes, MERGE_PATCH)

    def bind(self, pod: str, name: str, node: str) -> None:
        """Puts the pod of this path on a node."""
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
        self.call("POST", f"{pod}/binding", binding | {"target": {"kind": "Node", "name": node}})

    def delete(self, path: str, **query: Any) -> None:
        """Away with it, or on its way."""
        self.call("DELETE", path, **query)

    def list(self, path: str, *, limit: int = 500) -> list[Object]:
        """A fresh list, page by page."""
        items: list[Object] = []
        token: dict[str, str] = {}
        while True:
            page = self.call("GET", path, limit=limit, **token)
            items += page["items"]
            if not page["metadata"].get("continue"):
                return items
            token = {"continue": page["metadata"]["continue"]}

    # --- somebody who may do less

    def account(self, folder: Path, role: str) -> Path:
        """The kubeconfig of an account that may do what this ClusterRole of deploy/rbac.yaml says."""
        manifests = [one for one in yaml.safe_load_all(ROLES.read_text()) if one]
        (rules,) = [
            one["rules"]
            for one in manifests
            if one["kind"] == "ClusterRole" and one["metadata"]["name"] == role
        ]
        name = f"{self.run}-{role}-{len(self._roles)}"
        self._roles.append(name)
        if self.api is not None:
            self.api.tokens.add(name)
            self.api.restrict(rules, token=name)
            return self.api.kubeconfig(folder, token=name, name=role)
        namespace = self._namespaces[0]
        self.call("POST", f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules})
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
        binding = {"metadata": {"name": name}, "roleRef": reference}
        subjects = [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]
        self.call("POST", f"{RBAC}/clusterrolebindings", binding | {"subjects": subjects})
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        self.call("POST", accounts, {"metadata": {"name": name}})
        lasting = {"spec": {"expirationSeconds": ACCOUNT_SECONDS}}
        token = self.call("POST", f"{accounts}/{name}/token", lasting)["status"]["token"]
        whole = yaml.safe_load(self.kubeconfig.read_text())
        for one in whole["users"]:
            one["user"] = {"token": token}
        path = folder / f"{role}.yaml"
        path.write_text(json.dumps(whole))  # JSON is YAML
        return path

    # --- the end

    def clean(self) -> None:
        """Removes what this run made."""
        for name in self._roles if self.api is None else ():
            self.delete(f"{RBAC}/clusterrolebindings/{name}")
            self.delete(f"{RBAC}/clusterroles/{name}")
        with contextlib.suppress(Refused):
            for name in self._nodes:
                if self.status_of("GET", f"/api/v1/nodes/{name}") == 200:
                    self.delete(f"/api/v1/nodes/{name}")
        paths = [f"/api/v1/namespaces/{name}" for name in self._namespaces] if self.api is None else []
        for path in paths:
            self.delete(f"{path}/pods", gracePeriodSeconds=0)
            self.delete(f"{path}/resourcequotas")
            self.delete(path)
        try:
            until(lambda: all(self.status_of("GET", path) == 404 for path in paths), 10)
        except TimeoutError:
            # An API server without controllers: nobody else finishes them off.
            for path in paths:
                namespace = self.call("GET", path)
                self.call("PUT", f"{path}/finalize", {**namespace, "spec": {"finalizers": []}})
        self._http.close()


@contextlib.contextmanager
def own_cluster(folder: Path) -> Iterator[Cluster]:
    """The API server of the tests."""
    with ApiServer() as api:
        cluster = Cluster(api.kubeconfig(folder), api)
        yield cluster
        cluster.clean()


@contextlib.contextmanager
def given_cluster() -> Iterator[Cluster]:
    """The cluster of HAMIACCT_TEST_KUBECONFIG."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a certificate that nobody vouches for
        cluster = Cluster(Path(KUBECONFIG))
        try:
            yield cluster
        finally:
            cluster.clean()

"""How the API server is reached: from within the cluster, and by what programs print."""

import json
import shutil
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hamiacct.accounting.errors import Unavailable
from hamiacct.kube import client
from tests import watch
from tests.kubeapi.server import TOKEN, ApiServer


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 that is its own authority, and its key."""
    made, key = folder / f"{name}.crt", folder / f"{name}.key"
    words = "req -x509 -nodes -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -days 1 -subj /CN=kubernetes"
    command = ["openssl", *words.split(), "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(made)], check=True, capture_output=True)
    return made, key


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ApiServer, Path]]:
    """An API server with TLS, and the folder that a pod's service account is mounted at."""
    if shutil.which("openssl") is None:
        pytest.skip("certificates are made by openssl")
    made, key = certificate(tmp_path, "ca")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made, key)
    server = ApiServer()
    server._http.socket = context.wrap_socket(server._http.socket, server_side=True)
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "namespace").write_text("hamiacct")
    monkeypatch.setattr(client, "SERVICE_ACCOUNT", str(tmp_path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", server.url.rpartition(":")[2])
    client.forget_connections()
    with server:
        server.create(watch.node("n1"))
        yield server, tmp_path
    client.forget_connections()


def test_a_pod_of_the_cluster_needs_no_kubeconfig(account: tuple[ApiServer, Path]) -> None:
    found = client.connect(None)
    assert found is not None
    assert found.node("n1")["metadata"]["name"] == "n1"


def test_a_token_that_was_replaced_is_read_again(account: tuple[ApiServer, Path]) -> None:
    server, folder = account
    found = client.connect(None)
    assert found is not None
    found.node("n1")
    server.revoke()
    with pytest.raises(client.Unauthorized):
        found.node("n1")
    server.tokens.add("a-new-token")
    (folder / "token").write_text("a-new-token\n")
    assert found.node("n1")["metadata"]["name"] == "n1"
    (folder / "token").unlink()
    server.tokens.clear()
    with pytest.raises(Unavailable, match="credentials cannot be used"):
        found.node("n1")


def test_an_api_server_of_another_authority_is_not_believed(account: tuple[ApiServer, Path]) -> None:
    certificate(account[1], "ca")  # in place of the server's own
    found = client.connect(None)
    assert found is not None
    with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
        found.node("n1")


def test_outside_a_cluster_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert client.connect(None) is None


@pytest.fixture
def by_program(tmp_path: Path) -> Iterator[Callable[..., client.Client]]:
    """A client whose token is printed by a program."""
    with ApiServer() as server:
        server.create(watch.node("n1"))

        def connected(text: str, *, command: str = "/bin/echo", version: str = "v1beta1") -> client.Client:
            kubeconfig = server.kubeconfig(tmp_path)
            whole = json.loads(kubeconfig.read_text())
            program = {"apiVersion": f"client.authentication.k8s.io/{version}", "command": command}
            whole["users"][0]["user"] = {"exec": {**program, "args": [text]}}
            kubeconfig.write_text(json.dumps(whole))
            found = client.connect(kubeconfig)
            assert found is not None
            return found

        yield connected


def test_a_program_prints_the_token(by_program: Callable[..., client.Client]) -> None:
    found = by_program(json.dumps({"status": {"token": TOKEN}}))
    assert found.node("n1")["metadata"]["name"] == "n1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no JSON", {}),
        ("{}", {}),
        ("", {"command": "/nowhere/aws"}),
        ("", {"command": "/bin/false"}),
        ("{}", {"version": "v1"}),
    ],
)
def test_a_program_that_prints_none_is_an_error(
    by_program: Callable[..., client.Client], text: str, words: dict[str, str]
) -> None:
    with pytest.raises(Unavailable, match="credentials cannot be used"):
        by_program(text, **words).node("n1")

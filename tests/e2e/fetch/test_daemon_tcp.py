"""The daemon at a TCP address: real processes, and callers with the right token, a wrong one and none."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

import minfer.store
from e2e.fetch import servers
from e2e.fetch.daemons import Place, place, wait_until
from e2e.fetch.hub import Hub, Repository
from gguf_bytes import whole_file
from minfer.store.daemon import connect
from minfer.store.daemon_client import TokenRefusedError
from minfer.store.rpc import grpc, services
from minfer.store.settings import Settings
from minfer.store.tcp import BadTokenError
from minfer.store.v1 import store_pb2 as pb

BODY = whole_file().build()
MODEL = "hf:acme/tiny-GGUF:q4_0"
PATH = "hf/acme/tiny-GGUF/tiny-Q4_0.gguf"


@pytest.fixture
def here() -> Iterator[Place]:
    with servers.serving({}) as server:
        hub = Hub(server, {"acme/tiny-GGUF": Repository({"tiny-Q4_0.gguf": BODY})})
        with place(HF_ENDPOINT=hub.server.url) as found:
            yield found


@pytest.fixture
def address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture
def token_file(here: Place) -> Path:
    return here.directory / "token"


@pytest.fixture
def listening(here: Place, address: str, token_file: Path) -> Place:
    """`here` with a daemon at the socket and at `address`, the token in `token_file`."""
    code, _, stderr = here.run("daemon", "start", "--listen", address, "--token-file", str(token_file))
    assert code == 0, stderr
    return here


def over_tcp(here: Place, address: str, **environment: str) -> Settings:
    return Settings.of({**here.environment, "MINFER_STORE_SOCKET": f"tcp://{address}", **environment})


def test_with_the_token_everything_works(listening: Place, address: str, token_file: Path) -> None:
    assert token_file.stat().st_mode & 0o777 == 0o600
    (daemon,) = listening.pids()
    settings = over_tcp(listening, address, MINFER_STORE_TOKEN_FILE=str(token_file))
    resolved = minfer.store.resolve(MODEL, settings=settings)
    assert (resolved.path, resolved.source) == (listening.cache / PATH, "fetched")
    assert resolved.path.read_bytes() == BODY
    token = token_file.read_text().strip()
    with connect(over_tcp(listening, address, MINFER_STORE_TOKEN=token)) as client:
        status = client.status()
        assert (status.server.pid, status.tcp_address, status.idle_s) == (daemon, address, 60)
        assert [model.path for model in client.models()] == [PATH]
        assert [found.state for found in client.verify()] == ["verified"]
        with client.hold(PATH.rpartition("/")[2]):
            assert next(client.watch())[0] == "present"
    with listening.client() as local:  # one daemon, and its own user needs no token
        assert local.server().pid == daemon
    code, stdout, _ = listening.run("daemon", "status", MINFER_STORE_SOCKET=f"tcp://{address}")
    assert (code, stdout.startswith("not running")) == (2, False)
    environment = {"MINFER_STORE_SOCKET": f"tcp://{address}", "MINFER_STORE_TOKEN_FILE": str(token_file)}
    assert f"also listening at {address}" in listening.run("daemon", "status", **environment)[1]
    assert listening.run("daemon", "stop", **environment)[0] == 0
    wait_until(lambda: not listening.pids())


@pytest.mark.parametrize("token", ["wrong-but-long-enough-for-one", "x" * 512])
def test_a_wrong_token_is_told_and_nothing_is_fetched(listening: Place, address: str, token: str) -> None:
    settings = over_tcp(listening, address, MINFER_STORE_TOKEN=token)
    with pytest.raises(TokenRefusedError, match="does not take this token"):
        minfer.store.resolve(MODEL, settings=settings)
    environment = {"MINFER_STORE_SOCKET": f"tcp://{address}", "MINFER_STORE_TOKEN": token}
    code, stdout, stderr = listening.run("resolve", MODEL, **environment)
    assert (code, stdout, "MINFER_STORE_TOKEN_FILE" in stderr, token in stderr) == (7, "", True, False)
    code, stdout, _ = listening.run("doctor", "--json", MINFER_OFFLINE="1", **environment)
    assert (code, "does not take this token" in stdout) == (8, True)
    assert not list(listening.cache.rglob("*.gguf"))


def test_no_token_is_an_error_of_usage(listening: Place, address: str) -> None:
    with pytest.raises(BadTokenError, match="none is set"):
        minfer.store.resolve(MODEL, settings=over_tcp(listening, address))
    code, _, stderr = listening.run("resolve", MODEL, MINFER_STORE_SOCKET=f"tcp://{address}")
    assert (code, "MINFER_STORE_TOKEN_FILE" in stderr) == (2, True)


Metadata = Sequence[tuple[str, str]]
Call = Callable[[Any, Metadata], object]


def _store_call(name: str) -> Call:
    method = pb.DESCRIPTOR.services_by_name["ModelStoreService"].methods_by_name[name]

    def call(channel: Any, metadata: Metadata) -> object:  # noqa: ANN401 — gRPC has no types
        request = getattr(pb, method.input_type.name)()
        answer = getattr(services.ModelStoreServiceStub(channel), name)(
            request, metadata=metadata, timeout=10
        )
        return next(answer) if method.server_streaming else answer

    return call


def _health(channel: Any, metadata: Metadata) -> object:  # noqa: ANN401
    stub = health_pb2_grpc.HealthStub(channel)
    return stub.Check(health_pb2.HealthCheckRequest(), metadata=metadata, timeout=10)


def _health_watch(channel: Any, metadata: Metadata) -> object:  # noqa: ANN401
    stub = health_pb2_grpc.HealthStub(channel)
    return next(stub.Watch(health_pb2.HealthCheckRequest(), metadata=metadata, timeout=10))


def _reflection(channel: Any, metadata: Metadata) -> object:  # noqa: ANN401
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    asked = [reflection_pb2.ServerReflectionRequest(list_services="")]
    return next(stub.ServerReflectionInfo(iter(asked), metadata=metadata, timeout=10))


def _unknown(channel: Any, metadata: Metadata) -> object:  # noqa: ANN401
    return channel.unary_unary("/minfer.store.v1.ModelStoreService/Nothing")(
        b"", metadata=metadata, timeout=10
    )


CALLS: dict[str, Call] = {
    **{m.name: _store_call(m.name) for m in pb.DESCRIPTOR.services_by_name["ModelStoreService"].methods},
    "health": _health,
    "health watch": _health_watch,
    "reflection": _reflection,
    "a name that is none": _unknown,
}


def test_without_the_token_every_call_has_the_same_answer(
    listening: Place, address: str, token_file: Path
) -> None:
    """Of each service, of names that exist and that do not: who has no token learns nothing."""
    token = token_file.read_text().strip()
    unfit: list[Metadata] = [
        (),
        (("authorization", ""),),
        (("authorization", token),),
        (("authorization", f"Basic {token}"),),
        (("authorization", f"Bearer {token[:-1]}"),),
        (("authorization", f"Bearer {token}x"),),
        (("authorization", f"Bearer {token}"), ("authorization", f"Bearer {token}")),
        (("token", token),),
    ]
    answers = set()
    with grpc.insecure_channel(f"ipv4:{address}") as channel:
        for name, call in CALLS.items():
            for metadata in unfit:
                with pytest.raises(grpc.RpcError) as caught:
                    call(channel, metadata)
                error = caught.value
                answers.add((error.code(), error.details(), tuple(error.trailing_metadata() or ())))
                assert error.code() is grpc.StatusCode.UNAUTHENTICATED, (name, metadata)
        assert answers == {(grpc.StatusCode.UNAUTHENTICATED, "a token is needed", ())}
        fit = [("authorization", f"Bearer {token}")]
        assert isinstance(_health(channel, fit), health_pb2.HealthCheckResponse)
        assert "ModelStoreService" in str(_reflection(channel, fit))
        with pytest.raises(grpc.RpcError) as unknown:
            _unknown(channel, fit)
        assert unknown.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert len(listening.pids()) == 1


def test_refused_calls_do_not_keep_it_from_leaving(here: Place, address: str, token_file: Path) -> None:
    here.environment["MINFER_STORE_IDLE"] = "1"
    assert here.run("daemon", "start", "--listen", address, "--token-file", str(token_file))[0] == 0
    with grpc.insecure_channel(f"ipv4:{address}") as channel:

        def knock() -> bool:
            with pytest.raises(grpc.RpcError):
                _health(channel, ())
            return not here.pids()

        wait_until(knock)


def test_an_address_that_others_can_reach_takes_a_flag(here: Place, address: str, token_file: Path) -> None:
    port = address.rpartition(":")[2]
    words = ["daemon", "start", "--token-file", str(token_file), "--listen"]
    for host in ("0.0.0.0", "[::]", "192.0.2.1"):
        code, _, stderr = here.run(*words, f"{host}:{port}")
        assert (code, "--allow-remote" in stderr) == (2, True), host
    for text in ("example.org:80", "unix:80", "127.0.0.1", ":80", "127.0.0.1:0", "127.0.0.1:70000", "[x]:80"):
        assert here.run(*words, text)[0] == 2, text
    assert here.pids() == []
    assert here.run(*words, f"0.0.0.0:{port}", "--allow-remote")[0] == 0
    settings = over_tcp(here, f"localhost:{port}", MINFER_STORE_TOKEN_FILE=str(token_file))
    with connect(settings) as client:
        assert client.server().pid in here.pids()


def test_without_a_token_it_does_not_listen(here: Place, address: str, token_file: Path) -> None:
    assert here.run("daemon", "start", "--listen", address)[0] == 2
    assert here.run("daemon", "start", "--listen", address, MINFER_STORE_TOKEN="short")[0] == 2
    token_file.write_text("a-token-that-others-may-read\n")
    token_file.chmod(0o644)
    code, _, stderr = here.run("daemon", "start", "--listen", address, "--token-file", str(token_file))
    assert (code, "chmod 600" in stderr) == (2, True)
    assert here.run("daemon", "start", "--token-file", str(token_file))[0] == 2
    assert here.pids() == []


def test_the_token_is_on_no_command_line_and_in_no_log(
    listening: Place, address: str, token_file: Path
) -> None:
    token = token_file.read_text().strip().encode()
    (daemon,) = listening.pids()
    assert token not in Path(f"/proc/{daemon}/cmdline").read_bytes()
    wrong = over_tcp(listening, address, MINFER_STORE_TOKEN="another-token-of-some-length")
    with pytest.raises(TokenRefusedError):
        connect(wrong)
    assert token not in Path(f"{listening.socket}.log").read_bytes()


def test_where_nobody_listens_a_child_does_the_work(here: Place, address: str) -> None:
    settings = over_tcp(here, address, MINFER_STORE_TOKEN="a-token-of-enough-length")
    assert minfer.store.resolve(MODEL, settings=settings).path.read_bytes() == BODY
    assert here.pids() == []


def test_one_cache_has_one_daemon(listening: Place, address: str, token_file: Path) -> None:
    words = ["daemon", "start", "--token-file", str(token_file), "--listen"]
    assert listening.run(*words, address)[0] == 0
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        code, _, stderr = listening.run(*words, f"127.0.0.1:{probe.getsockname()[1]}")
    assert (code, "running already" in stderr) == (1, True)
    other = replace(over_tcp(listening, address), cache=listening.directory / "other")
    with place() as elsewhere:
        code, _, stderr = elsewhere.run(*words, address)
        assert (code, "did not start" in stderr) == (7, True)
        log = Path(f"{elsewhere.socket}.log").read_text()
        assert f"not possible to listen at {address}" in log
        assert "Traceback" not in log
    assert other.cache != listening.cache
    assert len(listening.pids()) == 1


def test_only_what_sources_read_travels(here: Place) -> None:
    from minfer.store.messages import caller_message

    secret = {"AWS_SECRET_ACCESS_KEY": "x", "MINFER_STORE_TOKEN": "y", "DATABASE_URL": "z"}
    wanted = {"HF_TOKEN": "a", "https_proxy": "b", "PIP_INDEX_URL": "c", "HOME": "d", "NO_PROXY": "e"}
    message = caller_message(Settings(here.cache, False, {**secret, **wanted}))
    assert {os.fsdecode(each.name): os.fsdecode(each.value) for each in message.environment} == wanted

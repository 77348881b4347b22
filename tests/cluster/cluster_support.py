"""Real schedulers, workers, object stores and SSH servers on this machine, workers in network namespaces of their own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HEALTHY = Path(__file__).parents[2] / "sample_traces" / "healthy"
START_S = 60


def wait_until(condition: Callable[[], bool], what: str, timeout: float = START_S) -> None:
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, f"not within {timeout} s: {what}"
        time.sleep(0.1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port


def answers(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False


@contextlib.contextmanager
def process(command: list[str], **options: object) -> Iterator[subprocess.Popen]:
    started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)  # type: ignore[call-overload]
    try:
        yield started
    finally:
        started.terminate()
        try:
            started.wait(2)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


class Network:
    """A bridge with namespaces behind it, or plain loopback where the machine allows none."""

    def __init__(self) -> None:
        self.tag = f"dg{os.getpid() % 100_000}"
        self.host = "127.0.0.1"
        self.spaces: list[str] = []
        self.why_not: str | None = None
        self._bridge = f"{self.tag}br"
        self._subnet = f"10.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}"
        try:
            self._ip("link", "add", self._bridge, "type", "bridge")
            self._ip("addr", "add", f"{self._subnet}.1/24", "dev", self._bridge)
            self._ip("link", "set", self._bridge, "up")
            for number in range(2):
                self._add_space(number)
            self.host = f"{self._subnet}.1"
        except (OSError, subprocess.CalledProcessError) as error:
            self.close()
            self.why_not = f"no network namespaces here: {getattr(error, 'stderr', error) or error}"

    def _add_space(self, number: int) -> None:
        name, outer, inner = f"{self.tag}-{number}", f"{self.tag}v{number}", f"{self.tag}w{number}"
        self._ip("netns", "add", name)
        self.spaces.append(name)
        self._ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", name)
        self._ip("link", "set", outer, "master", self._bridge, "up")
        self._ip("-n", name, "addr", "add", f"{self._subnet}.{10 + number}/24", "dev", inner)
        for device in ("lo", inner):
            self._ip("-n", name, "link", "set", device, "up")

    def inside(self, number: int) -> list[str]:
        """What to put before a command to run it in a namespace."""
        return ["ip", "netns", "exec", self.spaces[number]] if self.spaces else []

    def close(self) -> None:
        for name in self.spaces:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        self.spaces = []
        with contextlib.suppress(OSError):
            subprocess.run(["ip", "link", "del", self._bridge], check=False, capture_output=True)

    @staticmethod
    def _ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


class Cluster:
    """A scheduler here and two workers, one a namespace, that work in another folder than the client."""

    def __init__(
        self, network: Network, folder: Path, *, preload: str = "", environment: dict[str, str] | None = None
    ) -> None:
        self._stack = contextlib.ExitStack()
        self.workers: list[subprocess.Popen] = []
        port = free_port()
        self.address = f"tcp://{network.host}:{port}"
        everywhere = {**os.environ, "DASK_LOGGING__DISTRIBUTED": "error", **(environment or {})}
        folder.mkdir(parents=True, exist_ok=True)
        dask = [sys.executable, "-m", "dask"]
        try:
            self.scheduler = self._start(
                [*dask, "scheduler", "--host", network.host, "--port", str(port), "--no-dashboard"], everywhere, folder
            )
            wait_until(lambda: answers(network.host, port), "scheduler")
            for number in range(2):
                scratch = folder / f"worker{number}"
                command = [
                    *dask,
                    "worker",
                    self.address,
                    "--nthreads",
                    "1",
                    "--no-nanny",
                    "--no-dashboard",
                    "--local-directory",
                    str(scratch),
                ]
                if preload:
                    (folder / "preload.py").write_text(preload)
                    command += ["--preload", str(folder / "preload.py")]
                scratch.mkdir()
                self.workers.append(self._start(network.inside(number) + command, everywhere, scratch))
            self.await_workers(2)
        except BaseException:
            self.close()
            raise

    def _start(self, command: list[str], environment: dict[str, str], folder: Path) -> subprocess.Popen:
        return self._stack.enter_context(process(command, env=environment, cwd=folder))

    def await_workers(self, count: int) -> None:
        from distributed import Client

        with Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(count, timeout=START_S)

    def tasks(self) -> int:
        """How many tasks the scheduler still knows."""
        from distributed import Client

        with Client(self.address, set_as_default=False) as client:
            return int(client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)))

    def kill(self, number: int) -> None:
        os.kill(self.workers[number].pid, signal.SIGKILL)

    def close(self) -> None:
        self._stack.close()


@contextlib.contextmanager
def object_store(host: str, folder: Path) -> Iterator[str]:
    """An S3 server; gives its address."""
    port = free_port()
    command = [str(Path(sys.executable).with_name("moto_server")), "-H", host, "-p", str(port)]
    with process(command, cwd=folder):
        wait_until(lambda: answers(host, port), "S3 server")
        yield f"http://{host}:{port}"


@contextlib.contextmanager
def ssh_server(host: str, folder: Path) -> Iterator[str]:
    """OpenSSH with a key of its own in ``folder``/.ssh; gives the URL of its root, for a HOME of ``folder``."""
    keys = folder / ".ssh"
    keys.mkdir()
    for name in ("host", "id_ed25519"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / name)], check=True)
    shutil.copy(keys / "id_ed25519.pub", keys / "authorized_keys")
    port = free_port()
    (keys / "sshd_config").write_text(
        f"ListenAddress {host}\nPort {port}\nHostKey {keys}/host\nAuthorizedKeysFile {keys}/authorized_keys\nPidFile none\n"
        "StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\nSubsystem sftp internal-sftp\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    with process([str(shutil.which("sshd") or "/usr/sbin/sshd"), "-D", "-f", str(keys / "sshd_config")]):
        wait_until(lambda: answers(host, port), "sshd")
        yield f"sftp://root@{host}:{port}"


def rows(store: Path, *, instead: tuple[str, str] | None = None) -> dict[str, list[str]]:
    """All tables of a store, sorted, without the times that reading took; ``instead`` renames the sources."""
    found = {}
    with duckdb.connect(str(store), read_only=True) as connection:
        for (name,) in connection.execute("SELECT table_name FROM duckdb_tables() ORDER BY ALL").fetchall():
            columns = ", ".join(
                f'"{column}"'
                for (column,) in connection.execute(
                    "SELECT column_name FROM duckdb_columns() WHERE table_name = ? AND column_name <> 'read_ns' ORDER BY column_index",
                    [name],
                ).fetchall()
            )
            texts = map(repr, connection.execute(f'SELECT {columns} FROM "{name}"').fetchall())
            found[name] = sorted(text.replace(*instead) if instead else text for text in texts)
    return found

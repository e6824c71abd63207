"""Throwaway etcd: a real server, or three, in a folder of its own, gone afterwards.

It keeps what it acknowledges, as any other does, so that killing its nodes means something.
"""

import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

import httpx

from counterfoil.core.errors import UnavailableError, UsageError
from counterfoil.local.certificates import Certificates, make_certificates
from counterfoil.local.etcd_tool import find_program, run_tool, tool_environment

SIZES = (1, 3)
HOST = "127.0.0.1"
TIMING = {
    1: ("--heartbeat-interval=10", "--election-timeout=100"),
    3: ("--heartbeat-interval=50", "--election-timeout=500"),
}
"""Short ones: elections end within a second or so, and leases of one second can be had."""

ROOT = "root"
"""User and role that etcd wants before it asks anybody for a password."""

STARTS_MAX = 5
"""Another program may take a port between our look and the server's."""

READY_LOOKS_MAX = 1_200
LOOK_SECONDS = 0.05
"""Together a minute: three nodes on a busy machine, many times over."""

CALL_SECONDS = 10
STOP_SECONDS = 30


class LocalEtcd:
    """One or three nodes of etcd on 127.0.0.1; a context manager.

    Args:
        nodes: How many, 1 or 3.
        tls: Whether clients need a certificate, and see one.
        flags: More of etcd's own, for each node.

    Attributes:
        folder: Where everything of it is; empty before it is started.
        certificates: What clients use; None without `tls`.
        password: Of every user that is made with it; random.
    """

    def __init__(self, nodes: int = 1, *, tls: bool = False, flags: Sequence[str] = ()) -> None:
        if nodes not in SIZES:
            raise UsageError("a throwaway etcd has one node or three")
        self.folder = Path()
        self.certificates: Certificates | None = None
        self.password = secrets.token_urlsafe(24)
        self._size = nodes
        self._has_tls = tls
        self._more = tuple(flags)
        self._has_auth = False
        self._program = ""
        self._ports: tuple[tuple[int, int], ...] = ()
        self._nodes: dict[int, subprocess.Popen[bytes]] = {}
        self._client: httpx.Client | None = None

    def __enter__(self) -> "LocalEtcd":
        """Make the nodes and start them.

        Raises:
            ConfigError: etcd is not installed.
            UnavailableError: It does not start.
        """
        self._program = find_program("etcd")
        self.folder = Path(tempfile.mkdtemp(prefix="counterfoil-etcd-"))
        try:
            if self._has_tls:
                self.certificates = make_certificates(self.folder / "tls")
            self._client = httpx.Client(verify=self._trust(), timeout=CALL_SECONDS, trust_env=False)
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the nodes, and remove their folder."""
        self._remove()

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Host and port of each node, in order."""
        return tuple(f"{HOST}:{port}" for port, _ in self._ports)

    def url(self, prefix: str = "counterfoil", *, user: str = "") -> str:
        """Return how to connect; the password is `password`, and not in it."""
        before = f"{quote(user)}@" if user else ""
        after = ""
        if self.certificates is not None:
            files = self.certificates
            after = f"?tls=true&ca={files.ca}&cert={files.client}&key={files.client_key}"
        return f"etcd://{before}{','.join(self.endpoints)}/{quote(prefix)}{after}"

    def pid(self, node: int) -> int:
        """Return the process id of a node.

        Raises:
            UsageError: It does not run.
        """
        return self._running(node).pid

    def start(self) -> None:
        """Start all nodes that do not run, and wait until they serve.

        Raises:
            UnavailableError: They do not; the message holds the end of a log.
        """
        is_first = not self._ports
        for _ in range(STARTS_MAX if is_first else 1):
            self._ports = self._ports or _free_ports(self._size)
            for node in range(self._size):
                self._launch(node)
            if self._is_serving():
                return
            self._kill_all()
            if is_first:
                self._ports = ()
                shutil.rmtree(self.folder / "data", ignore_errors=True)
        raise UnavailableError(f"etcd does not start: {self._log_end()}")

    def stop(self) -> None:
        """Stop all nodes in order; nothing for those that do not run."""
        for node in tuple(self._nodes):
            self._end(node, signal.SIGTERM)

    def kill(self, node: int) -> None:
        """Kill a node at once.

        Raises:
            UsageError: It does not run.
        """
        self._running(node)
        self._end(node, signal.SIGKILL)

    def restart(self, node: int) -> None:
        """Start a node that does not run, with what it has on disk.

        Waits until every node that runs serves, if they are enough for a quorum.

        Raises:
            UsageError: It runs.
            UnavailableError: It does not come back.
        """
        if node in self._nodes:
            raise UsageError(f"node {node} runs")
        self._launch(node)
        has_quorum = len(self._nodes) > self._size // 2
        if has_quorum and not self._is_serving():
            raise UnavailableError(f"etcd does not come back: {self._log_end()}")

    def pause(self, node: int) -> None:
        """Let a node stand still: it keeps its connections and answers nothing.

        Raises:
            UsageError: It does not run.
        """
        self._running(node).send_signal(signal.SIGSTOP)

    def resume(self, node: int) -> None:
        """Let a node that stands still go on.

        Raises:
            UsageError: It does not run.
        """
        self._running(node).send_signal(signal.SIGCONT)

    def leader(self) -> int:
        """Return which node leads.

        Raises:
            UnavailableError: There is none, for longer than an election takes.
        """
        for _ in range(READY_LOOKS_MAX):
            for node in tuple(self._nodes):
                status = self._status(node)
                if status is not None and status[0] == status[1]:
                    return node
            time.sleep(LOOK_SECONDS)
        raise UnavailableError("etcd has no leader")

    def enable_auth(self) -> None:
        """Let etcd ask who calls; `root` has the password, and may do everything.

        Raises:
            UnavailableError: etcd does not answer, or refuses.
        """
        self._tell("user", "add", f"{ROOT}:{self.password}")
        self._tell("role", "add", ROOT)
        self._tell("user", "grant-role", ROOT, ROOT)
        self._tell("auth", "enable")
        self._has_auth = True

    def add_user(self, user: str, prefix: str) -> None:
        """Make a user with the password, who may read and write below a prefix.

        Raises:
            UnavailableError: etcd does not answer, or refuses.
        """
        self._tell("user", "add", f"{user}:{self.password}")
        self._tell("role", "add", user)
        self._tell("role", "grant-permission", "--prefix=true", user, "readwrite", f"{prefix}/")
        self._tell("user", "grant-role", user, user)

    def save(self, file: Path) -> None:
        """Write a snapshot of everything to a file.

        Raises:
            UnavailableError: etcd does not answer, or refuses.
        """
        self._tell("snapshot", "save", str(file), endpoints=self.endpoints[:1])

    def restore(self, file: Path) -> None:
        """Stop all nodes, and start them with a snapshot in place of what they had.

        Raises:
            UnavailableError: The snapshot cannot be used, or they do not start.
        """
        self.stop()
        shutil.rmtree(self.folder / "data")
        (self.folder / "data").mkdir()
        for node in range(self._size):
            self._tell(
                *("snapshot", "restore", str(file)),
                *(f"--name=node{node}", f"--data-dir={self._home(node)}"),
                f"--initial-cluster={self._cluster()}",
                f"--initial-advertise-peer-urls=http://{HOST}:{self._ports[node][1]}",
            )
        self.start()

    def _tell(self, *words: str, endpoints: Sequence[str] | None = None) -> None:
        """Give etcd's own tool a command."""
        run_tool(
            words,
            endpoints=endpoints or self.endpoints,
            certificates=self.certificates,
            login=f"{ROOT}:{self.password}" if self._has_auth else "",
            secret=self.password,
        )

    def _launch(self, node: int) -> None:
        if node in self._nodes:
            return
        self._home(node).parent.mkdir(exist_ok=True)
        with self._log(node).open("ab") as log:
            self._nodes[node] = subprocess.Popen(
                [self._program, *TIMING[self._size], *self._flags(node), *self._more],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=tool_environment(),
                start_new_session=True,
            )

    def _flags(self, node: int) -> tuple[str, ...]:
        client, peer = self._ports[node]
        scheme = "http" if self.certificates is None else "https"
        flags = (
            f"--name=node{node}",
            f"--data-dir={self._home(node)}",
            f"--listen-client-urls={scheme}://{HOST}:{client}",
            f"--advertise-client-urls={scheme}://{HOST}:{client}",
            f"--listen-peer-urls=http://{HOST}:{peer}",
            f"--initial-advertise-peer-urls=http://{HOST}:{peer}",
            f"--initial-cluster={self._cluster()}",
            "--log-level=warn",
        )
        if self.certificates is None:
            return flags
        return (
            *flags,
            f"--cert-file={self.certificates.server}",
            f"--key-file={self.certificates.server_key}",
            f"--trusted-ca-file={self.certificates.ca}",
            "--client-cert-auth",
        )

    def _cluster(self) -> str:
        peers = (peer for _, peer in self._ports)
        return ",".join(f"node{node}=http://{HOST}:{peer}" for node, peer in enumerate(peers))

    def _is_serving(self) -> bool:
        """Wait until every node that was started serves; False if one does not."""
        for _ in range(READY_LOOKS_MAX):
            if any(node.poll() is not None for node in self._nodes.values()):
                return False
            if all(self._is_healthy(node) for node in self._nodes):
                return True
            time.sleep(LOOK_SECONDS)
        return False

    def _is_healthy(self, node: int) -> bool:
        try:
            answer = self._http().get(f"{self._base(node)}/health")
        except httpx.TransportError:
            return False
        return answer.is_success

    def _status(self, node: int) -> tuple[str, str] | None:
        """Return who a node is and who it says leads; None if it does not answer."""
        try:
            answer = self._http().post(f"{self._base(node)}/v3/maintenance/status", content=b"{}")
        except httpx.TransportError:
            return None
        if not answer.is_success:
            return None
        status = answer.json()
        return str(status["header"]["member_id"]), str(status.get("leader", ""))

    def _base(self, node: int) -> str:
        return f"{'http' if self.certificates is None else 'https'}://{self.endpoints[node]}"

    def _http(self) -> httpx.Client:
        if self._client is None:
            raise UsageError("the throwaway etcd was not started")
        return self._client

    def _trust(self) -> ssl.SSLContext | bool:
        if self.certificates is None:
            return True
        context = ssl.create_default_context(cafile=self.certificates.ca)
        context.load_cert_chain(self.certificates.client, self.certificates.client_key)
        return context

    def _running(self, node: int) -> subprocess.Popen[bytes]:
        if node not in self._nodes:
            raise UsageError(f"node {node} does not run")
        return self._nodes[node]

    def _end(self, node: int, how: signal.Signals) -> None:
        process = self._nodes.pop(node)
        process.send_signal(how)
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS)

    def _kill_all(self) -> None:
        for node in tuple(self._nodes):
            self._end(node, signal.SIGKILL)

    def _remove(self) -> None:
        self._kill_all()
        if self._client is not None:
            self._client.close()
        if self.folder != Path():
            shutil.rmtree(self.folder, ignore_errors=True)

    def _home(self, node: int) -> Path:
        return self.folder / "data" / f"node{node}"

    def _log(self, node: int) -> Path:
        return self.folder / f"node{node}.log"

    def _log_end(self) -> str:
        texts = [
            self._log(node).read_text(encoding="utf-8", errors="replace")
            for node in range(self._size)
            if self._log(node).exists()
        ]
        return " ".join(" ".join(texts).split())[-300:] or "it wrote no log"


def _free_ports(size: int) -> tuple[tuple[int, int], ...]:
    """Return a port for clients and one for peers, for each node."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(size * 2)]
        for probe in probes:
            probe.bind((HOST, 0))
        ports = [int(probe.getsockname()[1]) for probe in probes]
    return tuple(zip(ports[::2], ports[1::2], strict=True))

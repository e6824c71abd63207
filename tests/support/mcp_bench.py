"""MCP servers in processes of their own, and benches over them; each is a fresh tenant."""

import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from counterfoil.adapters.mcp import (
    Ask,
    Fields,
    Http,
    Server,
    Stdio,
    Tool,
    Variable,
    Watch,
    When,
    open_mcp,
)
from counterfoil.adapters.mcp.adapter import McpAdapter
from counterfoil.adapters.mcp.kinds import kinds_of
from counterfoil.adapters.mcp.listing import listing_of
from counterfoil.core.intent import KindSpec
from counterfoil.core.words import Level, Risk
from counterfoil.ports import Adapter
from counterfoil.testing.adapter_bench import AdapterBench, Call, Trait
from tests.support import mcp_shop as shops
from tests.support.http_proxy import PIECE, RESET, HttpProxy, _whole
from tests.support.sources import ROOT

PATIENCE_SECONDS = 60
CALL_MS = 10_000
HTTP, STDIO = "http", "stdio"
RELAY = Path(__file__).with_name("mcp_nursery.py")
_tenants = itertools.count(1)


@dataclass(kw_only=True)
class Desk:
    """One place of tickets, served over HTTP and over stdio.

    Attributes:
        place: Where its tickets are.
        listener: Of HTTP; it outlives its processes, so that requests wait for the next.
        nursery: Of the servers.
        path: Where that is reached.
    """

    place: str
    path: str
    listener: socket.socket
    nursery: socket.socket
    _parent: "subprocess.Popen[bytes] | None" = None
    _http: tuple[int, socket.socket] | None = None

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def start_nursery(self) -> None:
        fd = self.nursery.fileno()
        flags = ["-O"] if sys.flags.optimize else []
        self._parent = subprocess.Popen(
            [sys.executable, *flags, "-m", "tests.support.mcp_nursery", self.place, str(fd)],
            cwd=ROOT,
            pass_fds=[fd],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def start(self) -> None:
        """Have the server over HTTP forked; the line to it ends with it."""
        line = socket.socket(socket.AF_UNIX)
        line.settimeout(PATIENCE_SECONDS)
        line.connect(self.path)
        socket.send_fds(line, [b"http"], [self.listener.fileno()])
        self._http = int(line.recv(PIECE)), line

    def kill(self) -> None:
        if self._http is not None:
            pid, line = self._http
            os.kill(pid, signal.SIGKILL)
            with line, suppress(ConnectionResetError):
                line.recv(PIECE)
            self._http = None

    def close(self) -> None:
        self.kill()
        if self._parent is not None:
            self._parent.communicate(timeout=PATIENCE_SECONDS)
        self.listener.close()
        self.nursery.close()


@contextmanager
def running(folder: Path) -> Generator[Desk]:
    """A place that is served."""
    place = str(folder / "desk.db")
    shops.create(place)
    with tempfile.TemporaryDirectory(prefix="counterfoil-") as short:
        path = f"{short}/nursery"
        nursery = socket.socket(socket.AF_UNIX)
        nursery.bind(path)
        nursery.listen(128)
        desk = Desk(
            place=place,
            path=path,
            listener=socket.create_server(("127.0.0.1", 0), backlog=256),
            nursery=nursery,
        )
        try:
            desk.start_nursery()
            desk.start()
            yield desk
        finally:
            desk.close()


STATUSES = {
    "gone": "404 Not Found",
    "401": "401 Unauthorized",
    "403": "403 Forbidden",
    "405": "405 Method Not Allowed",
    "500": "500 Internal Server Error",
    "307": "307 Temporary Redirect\r\nLocation: /elsewhere",
}
NAME = re.compile(rb'("id":"[0-9a-f]+-)([0-9]+)"')
EVENTS, JSON = "text/event-stream", "application/json"
DONE = b'"result":{"content":[],"structuredContent":{"ticket":{"id":7}}}'
REFUSED = b'"error":{"code":-32602,"message":"no"}'
ANSWERS: dict[str, tuple[str, str, bytes]] = {
    "own error": ("400 Bad Request", JSON, b'"id":OWN,' + REFUSED),
    "another's error": ("400 Bad Request", JSON, b'"id":"another",' + REFUSED),
    "nobody's error": ("400 Bad Request", JSON, b'"id":null,' + REFUSED),
    "another's result": ("200 OK", JSON, b'"id":"another",' + DONE),
    "nobody's event": ("200 OK", EVENTS, b'"id":null,' + REFUSED),
    "another's event": ("200 OK", EVENTS, b'"id":"another",' + DONE),
    "another's event, no text": ("200 OK", EVENTS, b'"a":"\xff","id":"another",' + DONE),
    "a call that answers": ("200 OK", EVENTS, b'"id":OWN,"method":"ping",' + DONE),
}
"""What is answered to a request that was carried out, without what each message holds."""


class McpProxy(HttpProxy):
    """A proxy that hears an answer to its end, since that is a stream of events.

    Fates of a request: "lose" (it is carried out, its answer is lost), one of `STATUSES`
    (it goes nowhere, and this is answered), one of `ANSWERS` (it is carried out, and this is
    answered), "swap" (the answer names an earlier request).
    """

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            client.settimeout(PATIENCE_SECONDS)
            request = _whole(client)
            fate = self._fate(request)
            if fate in STATUSES:
                head = f"HTTP/1.1 {STATUSES[fate]}\r\nContent-Length: 0\r\n\r\n"
                client.sendall(head.encode())
            elif fate == "lose":
                self._heard(request)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            elif fate in ANSWERS:
                self._heard(request)
                client.sendall(_answer(request, *ANSWERS[fate]))
            elif fate == "swap":
                client.sendall(NAME.sub(_earlier, self._heard(request)))
            else:
                self._pass_on(request, client)

    def _heard(self, request: bytes) -> bytes:
        heard = b""
        with socket.create_connection(self._service, PATIENCE_SECONDS) as service:
            service.sendall(request)
            while not heard.endswith((b"0\r\n\r\n", b"}")) and (piece := service.recv(PIECE)):
                heard += piece
        return heard


def _answer(request: bytes, status: str, kind: str, body: bytes) -> bytes:
    own = NAME.search(request)
    message = b'{"jsonrpc":"2.0",' + body.replace(b"OWN", own[0][5:] if own else b"") + b"}"
    if kind == EVENTS:
        message = b"data: " + message + b"\n\n"
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(message)}\r\n\r\n"
    return head.encode() + message


def _earlier(name: re.Match[bytes]) -> bytes:
    number = str(int(name[2]) - 1).zfill(len(name[2]))
    return name[1] + number.encode() + b'"'


def is_write(head: bytes) -> bool:
    """Whether a request calls a tool that writes."""
    return head.startswith(b"POST ") and b"_ticket" in head and b"find_ticket" not in head


def is_question(head: bytes) -> bool:
    """Whether a request calls the tool that is asked for a receipt."""
    return head.startswith(b"POST ") and b"tools/call" in head and b"find_ticket" in head


@dataclass(kw_only=True)
class Door:
    """One tenant's way to a desk.

    Attributes:
        desk: The desk.
        tenant: Who calls.
        reach: How.
        proxy: Between adapter and desk, where they speak HTTP.
    """

    desk: Desk
    tenant: str
    reach: Http | Stdio
    proxy: McpProxy | None = None
    _opened: list[McpAdapter] = field(default_factory=list)

    def tickets(self) -> list[dict[str, Any]]:
        return shops.tickets(self.desk.place, self.tenant)

    def calls(self, tool: str = "create_ticket") -> int:
        return shops.calls(self.desk.place, self.tenant, tool)

    def fault(self, name: str) -> None:
        shops.set_fault(self.desk.place, self.tenant, name)

    def disturb(self) -> None:
        shops.disturb(self.desk.place, self.tenant)

    def lose(self) -> None:
        if self.proxy is None:
            self.fault("die-after")
        else:
            self.proxy.arm("lose", is_write)

    def open(self, server: Server, **more: Any) -> McpAdapter:
        given: dict[str, Any] = {"now_ms": now_ms} | more
        adapter = open_mcp(server, **given)
        self._opened.append(adapter)
        return adapter

    def close(self) -> None:
        while self._opened:
            self._opened.pop().close()
        if self.proxy is not None:
            self.proxy.close()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def door(desk: Desk, way: str = HTTP, **more: Any) -> Door:
    tenant = f"tenant-{os.getpid()}-{next(_tenants):04}"
    if way == STDIO:
        command = (sys.executable, "-S", "-E", str(RELAY), desk.path, tenant)
        return Door(desk=desk, tenant=tenant, reach=Stdio(command=command, **more))
    name = f"TOKEN_OF_{tenant.replace('-', '_').upper()}"
    os.environ[name] = tenant
    proxy = McpProxy(desk.port)
    reach = Http(
        url=f"http://127.0.0.1:{proxy.port}/mcp",
        headers={"Authorization": Variable(name=name, form="Bearer {}")},
    )
    return Door(desk=desk, tenant=tenant, reach=reach, proxy=proxy)


# ---------------------------------------------------------------- declarations

KEPT = Fields(id="/id", key="/reference", digest="/intent", run="/run", committed_at="/created")
MARKS: dict[str, Any] = {"reference": "key", "intent": "digest", "run": "run"}
FIND = Ask(tool="find_ticket", marks={"reference": "key"}, receipt="/ticket")
REPLAYED = When(at="/replayed", equals=True)


def create(level: Level, **more: Any) -> Tool:
    """Declare `tickets.create` as its level needs it, changed by `more`."""
    kept: dict[str, Any] = {"marks": MARKS, "look_up": FIND, "answer": "/ticket", "fields": KEPT}
    declared: dict[Level, dict[str, Any]] = {
        Level.DEDUPLICATING: {"tool": "create_ticket", "replayed": REPLAYED} | kept,
        Level.QUERYABLE: {"tool": "plain_ticket"} | kept,
        Level.BLIND: {"tool": "plain_ticket", "answer": "/ticket", "fields": Fields(id="/id")},
    }
    given: dict[str, Any] = {"call_ms": CALL_MS} | declared[level] | more
    return Tool(name="tickets.create", level=level, **given)


def server(
    reach: Http | Stdio, level: Level, *, is_watched: bool = True, instance: str = "", **more: Any
) -> Server:
    """Declare a desk with `tickets.create` at a level, a read and a verification."""
    watch = Watch(tool="state", version="/version", account="/account")
    return Server(
        name="desk",
        reach=reach,
        tools=(
            create(level, **more),
            Tool(name="desk.state", tool="state", risk=Risk.READ_ONLY),
            Tool(
                name="desk.check",
                tool="check",
                risk=Risk.VERIFICATION,
                passes=When(at="/version"),
            ),
        ),
        watch=watch if is_watched else None,
        instance=instance,
    )


SCOPE: dict[str, tuple[str, ...]] = {
    "tools": ("create_ticket", "plain_ticket", "state", "check", "find_ticket")
}
GARBLED = (
    Call(kind="tickets.create", arguments={}),
    Call(kind="tickets.create", arguments={"title": 7}),
    Call(kind="tickets.create", arguments={"title": "a" * 81}),
    Call(kind="tickets.create", arguments={"title": b"raw"}),
    Call(kind="tickets.create", arguments={"title": "a", "lines": ["b"]}),
    Call(kind="tickets.create", arguments={"title": "a", "more": 1}),
    Call(kind="tickets.create", arguments={"title": "a", "reference": ["key"]}),
    Call(kind="desk.state", arguments={"more": 1}),
    Call(kind="desk.check", arguments={"place": 1}),
)


# ---------------------------------------------------------------- benches


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A declaration that must pass.

    Attributes:
        name: For the test id.
        way: Over what it is reached.
        level: Level of `tickets.create`.
        traits: What its bench can do, and what else is known of it.
        more: How `tickets.create` differs.
        is_watched: Whether the environment is observed.
    """

    name: str
    way: str
    level: Level
    traits: frozenset[Trait]
    more: dict[str, Any] = field(default_factory=dict)
    is_watched: bool = True


SEEN = frozenset({Trait.DISTURBS, Trait.LOSES_ANSWERS})
FAR = SEEN | {Trait.CUTS_OFF}
CANDIDATES = (
    Candidate(name="http deduplicating", way=HTTP, level=Level.DEDUPLICATING, traits=FAR),
    Candidate(
        name="stdio deduplicating, shared keys, unwatched",
        way=STDIO,
        level=Level.DEDUPLICATING,
        traits=frozenset({Trait.LOSES_ANSWERS, Trait.SHARED_KEYS}),
        more={
            "fields": Fields(id="/id", key="/reference"),
            "marks": {"reference": "key"},
            "conflict": When(at="/conflict", equals=True),
        },
        is_watched=False,
    ),
    Candidate(name="stdio queryable", way=STDIO, level=Level.QUERYABLE, traits=SEEN),
    Candidate(name="http blind", way=HTTP, level=Level.BLIND, traits=FAR),
    Candidate(name="stdio deduplicating", way=STDIO, level=Level.DEDUPLICATING, traits=SEEN),
)


def bench_of(
    candidate: Candidate,
    desk: Desk,
    wrap: Callable[[Adapter], Adapter] = lambda adapter: adapter,
) -> AdapterBench:
    """Return a fresh tenant of a desk, reached through adapters that `wrap` may spoil."""
    at = door(desk, candidate.way)
    declared = server(at.reach, candidate.level, is_watched=candidate.is_watched, **candidate.more)
    return AdapterBench(
        open=lambda: wrap(at.open(declared)),
        write=lambda number: Call(
            kind="tickets.create", arguments={"title": f"A-{number}", "lines": [1, 2]}
        ),
        count=lambda: len(at.tickets()),
        close=at.close,
        reads=(
            Call(kind="desk.state", arguments={}),
            Call(kind="desk.check", arguments={"place": "here"}),
        ),
        garbled=GARBLED,
        scope=SCOPE,
        traits=candidate.traits,
        disturb=at.disturb,
        lose_answer=at.lose,
        cut_off=at.proxy.close if at.proxy else lambda: None,
    )


def spec_of(candidate: Candidate) -> KindSpec:
    """Return what a candidate declares of `tickets.create`, without any desk."""
    declared = server(Stdio(command=("none",)), candidate.level, **candidate.more)
    listing = listing_of(declared, shops.tools_of(lambda _: False))
    return kinds_of(declared, listing)["tickets.create"].spec

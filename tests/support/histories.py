"""Clients that call one head register at random, and write down what they saw.

Run as `python -m tests.support.histories SERVER PLACE SEED CLIENTS CALLS`: it says "ready",
waits for a line, and prints its calls as JSON. Clients of several processes share the
machine's monotonic clock.
"""

import random
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import msgspec
from msgspec.structs import replace

from counterfoil.core.errors import (
    HeadMissingError,
    LeaseLostError,
    StaleHeadError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.words import RunId
from counterfoil.ports import Advance, Head, HeadRegister
from counterfoil.stores import etcd, postgres, sqlite
from counterfoil.testing.store_bench import digest_of
from tests.support.linearizable import UNKNOWN, Call, Terms
from tests.support.sources import ROOT

RUNS = (RunId("run-1"), RunId("run-2"))
"""Few, so that clients meet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """How clients of one kind of register behave.

    Attributes:
        terms: How exactly the register counts.
        ttls_ms: Terms of leases; some end while others are at it.
        pause_ms: Longest pause between two calls.
        nap_ms: Now and then a longer one, in which the longest lease ends.
    """

    terms: Terms
    ttls_ms: tuple[int, ...]
    pause_ms: int
    nap_ms: int


MS = 1_000
QUICK = Pace(
    terms=Terms(early_us=5 * MS, late_us=50 * MS), ttls_ms=(20, 50, 150), pause_ms=12, nap_ms=180
)
"""Clocks of milliseconds: rounded down at both ends, and slewed a little."""

SLOW = Pace(
    terms=Terms(early_us=5 * MS, late_us=float("inf")), ttls_ms=(1_000,), pause_ms=100, nap_ms=2_500
)
"""Leases of etcd end when it gets round to it, and may be kept alive by what is refused."""

HOLDING = {"read": 2, "create": 0.2, "acquire": 0.5, "renew": 2, "advance": 8, "release": 1.5}
WAITING = {"read": 3, "create": 0.5, "acquire": 6, "renew": 0.5, "advance": 1, "release": 0.3}
"""How often a client makes each call, when it believes that it holds the run or that not."""

OLD_SHARE, HELD_SHARE, NAPS_SHARE = 0.15, 0.7, 0.04
"""Of calls that are made with a head that is old; of those on a run that one holds; of
pauses that are long."""

OPENINGS_MAX = 20
"""Answers to an opening may be lost too."""


@dataclass(kw_only=True)
class Client:
    """One thread of one worker.

    Attributes:
        number: Its own among all clients.
        heads: Its connection.
        chance: What it does next.
        pace: How fast.
        calls: What it did and saw.
    """

    number: int
    heads: HeadRegister
    chance: random.Random
    pace: Pace
    calls: list[Call] = field(default_factory=list)
    _seen: dict[RunId, list[Head]] = field(default_factory=dict)
    _held: dict[RunId, list[Head]] = field(default_factory=dict)
    _lost: set[str] = field(default_factory=set)

    def work(self, count: int) -> None:
        for _ in range(count):
            believed = [run_id for run_id in RUNS if self._believes(run_id)]
            is_drawn = believed and self.chance.random() < HELD_SHARE
            self._step(self.chance.choice(believed if is_drawn else RUNS))
            pause_ms = self.chance.random() ** 2 * self.pace.pause_ms
            is_nap = self.chance.random() < NAPS_SHARE
            select.select([], [], [], (self.pace.nap_ms if is_nap else pause_ms) / 1_000)

    def _believes(self, run_id: RunId) -> bool:
        """Return whether this client has no reason to doubt that it holds the run."""
        seen, held = self._seen.get(run_id, []), self._held.get(run_id, [])
        return bool(held) and seen[-1].nonce == held[-1].nonce not in self._lost

    def _step(self, run_id: RunId) -> None:
        seen, held = self._seen.setdefault(run_id, []), self._held.setdefault(run_id, [])
        kinds = ["read", "create"] + ["acquire"] * bool(seen)
        kinds += ["renew", "advance", "release"] * bool(held)
        weights = HOLDING if self._believes(run_id) else WAITING
        kind = self.chance.choices(kinds, [weights[each] for each in kinds])[0]
        expected = None
        if kind == "acquire":
            expected = self._one_of(seen)
        elif kind not in {"read", "create"}:
            expected = self._one_of(held)
        name = f"{self.number} {len(self.calls)}"
        call = Call(
            client=self.number,
            kind=kind,
            run_id=run_id,
            invoked_us=_now_us(),
            answered_us=0,
            expected=expected,
            checkpoint=digest_of(name),
            status=self.chance.choice(("active", "active", "frozen")),
            owner=f"client {self.number}",
            nonce=f"nonce {name}",
            ttl_ms=self.chance.choice(self.pace.ttls_ms),
        )
        made = self._made(call)
        if made is None:
            return
        self.calls.append(made)
        if made.head is not None:
            seen.append(made.head)
            if kind != "read":
                held.append(made.head)
        elif made.answer == "LeaseLostError" and kind != "acquire" and expected is not None:
            self._lost.add(expected.nonce)

    def _one_of(self, heads: Sequence[Head]) -> Head:
        """Return the newest head that is known, or now and then an old one."""
        return self.chance.choice(heads) if self.chance.random() < OLD_SHARE else heads[-1]

    def _made(self, call: Call) -> Call | None:
        """Make a call, and return it with its answer; None where nothing happened."""
        try:
            head, answer = _act(self.heads, call), call.answer
        except UnavailableError:
            return None
        except UnknownOutcomeError:
            head, answer = None, UNKNOWN
        except (StaleHeadError, LeaseLostError, HeadMissingError) as error:
            head, answer = None, type(error).__name__
        return replace(call, answered_us=_now_us(), head=head, answer=answer)


def _now_us() -> int:
    return time.monotonic_ns() // 1_000


def _act(heads: HeadRegister, call: Call) -> Head | None:
    if call.kind == "read":
        return heads.read(call.run_id)
    if call.kind == "create":
        return heads.create(call.run_id, call.checkpoint, call.owner, call.nonce, call.ttl_ms)
    expected = call.expected
    if expected is None:
        raise ValueError("the call needs a head")
    match call.kind:
        case "acquire":
            return heads.acquire(expected, call.owner, call.nonce, call.ttl_ms)
        case "renew":
            return heads.renew(expected, call.ttl_ms)
        case "advance":
            move = Advance(
                expected=expected,
                checkpoint=call.checkpoint,
                status=call.status,
                ttl_ms=call.ttl_ms,
            )
            return heads.advance([move])[0]
        case _:
            heads.release(expected)
            return None


def recorded(
    opens: Callable[[], HeadRegister], pace: Pace, *, seed: int, clients: int, calls: int
) -> list[Call]:
    """Let clients of this process call a register, each by a connection of its own.

    Args:
        opens: Opens the register; what it returns is closed.
        pace: How fast.
        seed: Differs for each process.
        clients: How many.
        calls: Of each client.
    """
    made = [
        Client(
            number=seed * 100 + number,
            heads=opens(),
            chance=random.Random(seed * 100 + number),
            pace=pace,
        )
        for number in range(clients)
    ]
    try:
        with ThreadPoolExecutor(max_workers=clients) as pool:
            for done in [pool.submit(client.work, calls) for client in made]:
                done.result()
    finally:
        for client in made:
            client.heads.close()
    return [call for client in made for call in client.calls]


class Server(Enum):
    """Registers that processes share."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"
    ETCD = "etcd"

    @property
    def pace(self) -> Pace:
        """How its clients behave."""
        return SLOW if self is Server.ETCD else QUICK

    def open(self, place: str) -> HeadRegister:
        """Open the register at a path or a url, which is there, however often it takes."""
        for _ in range(OPENINGS_MAX):
            with suppress(UnavailableError):
                return self._opened(place)
        raise UnavailableError(f"{self.value} cannot be opened")

    def _opened(self, place: str) -> HeadRegister:
        match self:
            case Server.SQLITE:
                return sqlite.open_heads(
                    Path(place), create=False, now_ms=_wall_ms, incarnation=lambda: ""
                )
            case Server.POSTGRES:
                return postgres.open_heads(place, create=False)
            case Server.ETCD:
                return etcd.open_heads(place, create=False)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def recorded_by_processes(
    server: Server, places: Sequence[str], *, seed: int, clients: int, calls: int
) -> list[Call]:
    """Let a process of its own work at each place, all at once, and return all calls.

    Args:
        server: What lies there.
        places: A path or a url for each process; all lead to one register.
        seed: Of what they do.
        clients: Of each process.
        calls: Of each client.
    """

    def command(number: int, place: str) -> list[str]:
        words = (server.value, place, seed * 10 + number, clients, calls)
        return [sys.executable, "-m", "tests.support.histories", *map(str, words)]

    workers = [
        subprocess.Popen(
            command(number, place),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number, place in enumerate(places)
    ]
    texts: list[str] = []
    try:
        for worker in workers:
            if worker.stdout is None or worker.stdout.readline() != "ready\n":
                raise ChildProcessError("a client does not start")
        with ThreadPoolExecutor(max_workers=len(workers)) as pool:
            texts += [text for text, _ in pool.map(lambda each: each.communicate("go\n"), workers)]
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    return [call for text in texts for call in msgspec.json.decode(text, type=list[Call])]


def main(kind: str, place: str, seed: str, clients: str, calls: str) -> None:
    """Be one process of clients."""
    server = Server(kind)
    register = server.open(place)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    made = recorded(
        lambda: server.open(place),
        server.pace,
        seed=int(seed),
        clients=int(clients),
        calls=int(calls),
    )
    register.close()
    sys.stdout.write(msgspec.json.encode(made).decode())


if __name__ == "__main__":
    main(*sys.argv[1:])

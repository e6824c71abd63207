"""The client of etcd's JSON gateway: several nodes, one that is asked.

Asking may be repeated, at other nodes too, for a bounded time: reads, and what only ever
lengthens or grants a lease. Acting is sent once. Only where the connection was not made
does it go to another node; after that an answer that does not come is unknown.
"""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import TypeVar

import httpx
import msgspec

from counterfoil.core.errors import (
    CounterfoilError,
    FormatError,
    RollbackError,
    UnavailableError,
    UnknownOutcomeError,
    UsageError,
)
from counterfoil.stores.etcd_address import Address, trust
from counterfoil.stores.etcd_refusals import (
    EXISTS,
    NO_LEASE,
    UNTRUSTED,
    UNWANTED,
    certain_error,
    read_refusal,
    tls_reason,
    untrusted,
    unwanted,
)
from counterfoil.stores.etcd_wire import (
    GrantAnswer,
    Header,
    KeepLine,
    KeptLease,
    RevokeAnswer,
    TokenAnswer,
    Txn,
    TxnAnswer,
)

ROUNDS_MAX = 100
"""How often each node is asked at most; the patience ends before."""

PAUSE_SECONDS = 0.1
"""Between rounds, so that a cluster that elects a leader is not asked without end."""

TXN = "/v3/kv/txn"
GRANT = "/v3/lease/grant"
KEEP = "/v3/lease/keepalive"
REVOKE = "/v3/lease/revoke"
LOGIN = "/v3/auth/authenticate"

KEEPS_MAX = 16
"""Leases in one request to keep alive. It is a stream, and the gateway stops reading it
when it begins to answer: what it has read by then, 512 bytes, is certain to count."""

SETTLED = {GRANT: EXISTS, REVOKE: NO_LEASE}
"""What etcd says where what it is asked for is so already."""

LIMITS = httpx.Limits(max_connections=64, max_keepalive_connections=64, keepalive_expiry=30)
"""Threads that wait for a connection wait no longer than for an answer."""

NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
"""No connection, so that nothing has left."""

Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """How long to wait, in seconds.

    Attributes:
        connect: For a connection to one node.
        ask: For one answer that may be asked for again.
        act: For the answer to a write.
        bound: For all tries of asking.
    """

    connect: float = 2.0
    ask: float = 3.0
    act: float = 5.0
    bound: float = 10.0


PATIENCE = Patience()


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """What became of leases that were to be kept alive.

    Attributes:
        ttls: Granted term in seconds by lease; 0 where it has ended.
        term: Of the leader that kept them; 0 when it may have been an earlier one.
    """

    ttls: dict[int, int]
    term: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Request:
    """What is posted; a write is sent once, all else may be repeated."""

    path: str
    body: bytes
    run_id: str = ""
    repeats: bool = True


class _SettledError(Exception):
    """What was asked for is so already."""


class _TroubleError(Exception):
    """One try came to nothing that can be believed."""

    def __init__(self, what: str, *, was_sent: bool) -> None:
        super().__init__(what, was_sent)
        self.what = what
        self.was_sent = was_sent


class Gateway:
    """One connection pool to one cluster; safe to share by threads, not across a fork."""

    def __init__(self, address: Address, client: httpx.Client, patience: Patience) -> None:
        self.address = address
        self._client = client
        self._patience = patience
        self._process_id = os.getpid()
        self._lock = Lock()
        self._is_closed = False
        self._number = 0
        self._token = ""
        self._cluster = ""
        self._revision = 0
        self._terms: dict[str, int] = {}

    def ask(self, txn: Txn, run_id: str = "") -> TxnAnswer:
        """Return the answer to a transaction that only reads, linearizably.

        Raises:
            UnavailableError: No node answers, for longer than the patience.
            FormatError: The answer is not etcd's.
            RollbackError: The cluster is at an earlier moment than it was.
        """
        floor = self._revision
        content = self._again(_Request(path=TXN, body=txn.encode(), run_id=run_id))
        return self._read_txn(content, txn, floor, run_id)

    def act(self, txn: Txn, run_id: str = "") -> TxnAnswer:
        """Return the answer to a transaction that writes, sent once.

        Raises:
            UnavailableError: Nothing was sent.
            UnknownOutcomeError: It was sent, and no answer that can be believed came.
            LeaseLostError: It puts a key on a lease that has ended; nothing happened.
        """
        floor = self._revision
        content = self._once(_Request(path=TXN, body=txn.encode(), run_id=run_id, repeats=False))
        try:
            return self._read_txn(content, txn, floor, run_id)
        except CounterfoilError as error:
            raise UnknownOutcomeError(
                f"etcd answered a write oddly: {error.message}", run_id
            ) from error

    def grant(self, lease_id: int, ttl_s: int) -> bool:
        """Grant a lease of at least `ttl_s` seconds; False if there is one of this id.

        Raises:
            UnavailableError: No node answers, or less was granted; if there is a lease
                it ends by itself.
        """
        body = msgspec.json.encode({"ID": str(lease_id), "TTL": str(ttl_s)})
        try:
            answer = _decoded(self._again(_Request(path=GRANT, body=body)), GrantAnswer)
        except _SettledError:
            return False
        self._check_header(answer.header)
        if int(answer.id) != lease_id or int(answer.ttl) < ttl_s:
            raise UnavailableError("etcd granted another lease than it was asked for")
        return True

    def keep(self, lease_ids: tuple[int, ...]) -> Kept:
        """Begin the terms of leases anew, in few requests.

        Raises:
            UnavailableError: No node answers; some of them may have been kept alive.
        """
        with self._lock:
            terms = dict(self._terms)
        kept: list[KeptLease] = []
        for _ in lease_ids:
            if len(kept) < len(lease_ids):
                kept += self._keep_some(lease_ids[len(kept) : len(kept) + KEEPS_MAX])
        leaders = {int(each.header.raft_term) for each in kept}
        leaders |= {terms.get(each.header.member_id, 0) for each in kept}
        return Kept(
            ttls={int(each.id): int(each.ttl) for each in kept},
            term=leaders.pop() if len(leaders) == 1 else 0,
        )

    def _keep_some(self, lease_ids: tuple[int, ...]) -> list[KeptLease]:
        """Return what one answer says, of the first of these leases at least."""
        body = b"\n".join(msgspec.json.encode({"ID": str(each)}) for each in lease_ids)
        content = self._again(_Request(path=KEEP, body=body))
        lines = [_decoded(line, KeepLine).result for line in content.splitlines() if line.strip()]
        kept = [line for line in lines if line is not None]
        if not kept or [int(each.id) for each in kept] != list(lease_ids[: len(kept)]):
            raise UnavailableError("etcd did not say whether it kept a lease alive")
        for each in kept:
            self._check_header(each.header)
        return kept

    def revoke(self, lease_id: int) -> None:
        """End a lease, with every key on it; nothing if there is none.

        Raises:
            UnavailableError: No node answers; it ends by itself.
        """
        body = msgspec.json.encode({"ID": str(lease_id)})
        with suppress(_SettledError):
            _decoded(self._again(_Request(path=REVOKE, body=body)), RevokeAnswer)

    def close(self) -> None:
        """Let go of connections; a second time does nothing."""
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
        if not was_closed and self._process_id == os.getpid():
            self._client.close()

    def _once(self, request: _Request) -> bytes:
        """Return the body of the answer to a request that is sent once."""
        what = ""
        for number in self._order():
            try:
                return self._try(number, request, self._patience.act)
            except _TroubleError as trouble:
                what = trouble.what
                if trouble.was_sent:
                    raise UnknownOutcomeError(
                        f"etcd at {self._name(number)} did not say what became of a write: {what}",
                        request.run_id,
                    ) from trouble
        raise self._unavailable(what, request.run_id)

    def _again(self, request: _Request) -> bytes:
        """Return the body of the answer to a request that may be repeated."""
        ends_at = time.monotonic() + self._patience.bound
        what = ""
        for _ in range(ROUNDS_MAX):
            was_sent = False
            for number in self._order():
                left = ends_at - time.monotonic()
                if left <= 0:
                    raise self._unavailable(what, request.run_id)
                try:
                    return self._try(number, request, min(left, self._patience.ask))
                except _TroubleError as trouble:
                    what, was_sent = trouble.what, was_sent or trouble.was_sent
            if not was_sent:
                break  # no node is there at all
            time.sleep(PAUSE_SECONDS)
        raise self._unavailable(what, request.run_id)

    def _try(self, number: int, request: _Request, seconds: float) -> bytes:
        """Return the body of one node's answer; another node is asked first after trouble."""
        self._check_usable()
        answer = self._post(number, request, seconds)
        if self._is_token_old(answer):
            self._token = ""
            answer = self._post(number, request, seconds)
        if answer.is_success:
            self._number = number
            return answer.content
        refusal = read_refusal(answer.status_code, answer.content)
        if request.path in SETTLED and refusal.says(SETTLED[request.path]):
            raise _SettledError
        error = certain_error(refusal, self.address, request.run_id)
        if error is not None:
            raise error
        self._move_on(number)
        what = refusal.message or f"HTTP {refusal.status}"
        raise _TroubleError(what, was_sent=not refusal.wants_token)

    def _is_token_old(self, answer: httpx.Response) -> bool:
        """Return whether etcd refused to look at a request before it knows anew who we are."""
        if answer.is_success or not self.address.user:
            return False
        return read_refusal(answer.status_code, answer.content).wants_token

    def _post(self, number: int, request: _Request, seconds: float) -> httpx.Response:
        token = self._login() if self.address.user and request.path != LOGIN else ""
        headers = {"Authorization": token} if token else {}
        timeout = httpx.Timeout(seconds, connect=min(seconds, self._patience.connect))
        url = self.address.endpoints[number] + request.path
        try:
            return self._client.post(url, content=request.body, headers=headers, timeout=timeout)
        except NOT_SENT as error:
            if tls_reason(error, UNTRUSTED):
                raise untrusted(self.address) from error
            raise _TroubleError(type(error).__name__, was_sent=False) from error
        except httpx.HTTPError as error:
            if request.repeats and (reason := tls_reason(error, UNWANTED)):
                raise unwanted(self.address, reason) from error
            self._move_on(number)
            raise _TroubleError(type(error).__name__, was_sent=True) from error
        except RuntimeError as error:
            if self._is_closed:
                raise self._closed() from error
            raise

    def _move_on(self, number: int) -> None:
        self._number = (number + 1) % len(self.address.endpoints)

    def _login(self) -> str:
        """Return a token that says who we are; several threads may each get one."""
        token = self._token
        if not token:
            body = msgspec.json.encode(
                {"name": self.address.user, "password": self.address.password}
            )
            token = self._token = _decoded(
                self._again(_Request(path=LOGIN, body=body)), TokenAnswer
            ).token
        return token

    def _order(self) -> tuple[int, ...]:
        """Return the numbers of all nodes, the one that is asked first before the others."""
        first, size = self._number, len(self.address.endpoints)
        return tuple((first + step) % size for step in range(size))

    def _read_txn(self, content: bytes, txn: Txn, floor: int, run_id: str) -> TxnAnswer:
        answer = _decoded(content, TxnAnswer)
        if not answer.fits(txn):
            raise FormatError("etcd answered another transaction than it was asked", run_id)
        self._check_header(answer.header)
        revision = int(answer.header.revision)
        if revision < floor:
            raise RollbackError(
                f"etcd at {self.address.hosts} is at revision {revision}, after {floor} before",
                run_id,
            )
        with self._lock:
            self._revision = max(self._revision, revision)
        return answer

    def _check_header(self, header: Header) -> None:
        """Keep who answered under which leader, and refuse another cluster's answer."""
        with self._lock:
            self._cluster = self._cluster or header.cluster_id
            cluster = self._cluster
            self._terms[header.member_id] = int(header.raft_term)
        if header.cluster_id != cluster:
            raise FormatError(f"{self.address.hosts} are nodes of two clusters, or of another one")

    def _check_usable(self) -> None:
        if self._is_closed:
            raise self._closed()
        if self._process_id != os.getpid():
            raise UsageError("the etcd client was opened before a fork; open it again after it")

    def _closed(self) -> UsageError:
        return UsageError("the etcd client was closed by its user")

    def _unavailable(self, what: str, run_id: str = "") -> UnavailableError:
        return UnavailableError(f"etcd at {self.address.hosts} cannot be reached: {what}", run_id)

    def _name(self, number: int) -> str:
        return self.address.endpoints[number].partition("://")[2]


def open_gateway(address: Address, patience: Patience = PATIENCE) -> Gateway:
    """Return a client, having read the certificates; no node is asked yet.

    Raises:
        ConfigError: A certificate or key cannot be used.
    """
    client = httpx.Client(verify=trust(address), trust_env=False, limits=LIMITS)
    return Gateway(address, client, patience)


def _decoded(content: bytes, kind: type[Answer]) -> Answer:
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise FormatError(f"an answer is not etcd's: {error}") from error

"""One exchange: one fresh connection to a checked address, one request, one bounded answer.

Nothing is repeated and nothing is followed. A connection is used once, so that no call
meets one that its service is about to close, and none goes to a name whose certificate
was not checked. What is certain is whether a byte of the request was sent.
"""

import ssl
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpcore
import httpx

from counterfoil.adapters.http.address import Reach, checked
from counterfoil.adapters.http.credentials import without
from counterfoil.core.errors import UnavailableError, UnknownOutcomeError

ANSWER_BYTES_MAX = 1024 * 1024
"""Body that is read of an answer; it is a document and no archive."""

AGENT = "counterfoil"
"""Who calls, for the service's log."""

LINE = "counterfoil.line"
"""Name under which a request carries its `Line` to the transport."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Request:
    """What is sent.

    Attributes:
        method: In capitals.
        url: Absolute; no user in it.
        headers: Names and values, secrets read.
        content: Body; None for none.
        hidden: Secrets, which are hidden in the answer.
    """

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    content: bytes | None = None
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What came back.

    Attributes:
        status: HTTP status.
        headers: By name in lower case; of a name that came twice, both with a comma.
        body: Without secrets; None when it was longer than its bound, or was
            compressed though it must not be.
        hidden: Secrets of the request, which are hidden in the body.
    """

    status: int
    headers: dict[str, str]
    body: bytes | None
    hidden: tuple[str, ...] = field(default=(), repr=False)


@dataclass(kw_only=True, slots=True)
class Deadline:
    """The moment at which a call must be over.

    Attributes:
        ends: On the monotonic clock, in seconds.
    """

    ends: float

    def left(self) -> float:
        """Return the seconds that are left, 0 when none are."""
        return max(0.0, self.ends - time.monotonic())


def deadline_in(milliseconds: int) -> Deadline:
    """Return a deadline that is so far from here."""
    return Deadline(ends=time.monotonic() + milliseconds / 1000)


class Line(httpcore.NetworkBackend):
    """Makes one connection, and knows whether anything was sent on it.

    Args:
        reach: Where it may go.
        deadline: When it must be over.
        is_plain: Whether it is not encrypted.
    """

    def __init__(self, reach: Reach, deadline: Deadline, *, is_plain: bool) -> None:
        self.is_sent = False
        self.deadline = deadline
        self._reach = reach
        self._is_plain = is_plain
        self._system = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first address of a host that answers, once all were judged."""
        addresses = checked(
            self._reach, host, port, is_plain=self._is_plain, seconds=self.deadline.left()
        )
        failed: httpcore.NetworkError | httpcore.TimeoutException | None = None
        for number, address in enumerate(addresses):
            share = self.left(httpcore.ConnectTimeout) / (len(addresses) - number)
            try:
                stream = self._system.connect_tcp(
                    address, port, share, local_address, socket_options
                )
                return Wire(stream, self)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
        raise failed or httpcore.ConnectError("no address")

    def left(self, over: type[httpcore.TimeoutException]) -> float:
        """Return the seconds that are left, more than 0.

        Raises:
            httpcore.TimeoutException: None are; of the class `over`.
        """
        left = self.deadline.left()
        if not left:
            raise over("the time for this call is over")
        return left


class Wire(httpcore.NetworkStream):
    """A connection on which every move ends with the deadline of its line."""

    def __init__(self, inner: httpcore.NetworkStream, line: Line) -> None:
        self._inner = inner
        self._line = line

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read what is there, before the deadline."""
        return self._inner.read(max_bytes, self._line.left(httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send all of it, before the deadline; each piece is given what time is left."""
        socket = self._inner.get_extra_info("socket")
        while buffer:
            socket.settimeout(self._line.left(httpcore.WriteTimeout))
            self._line.is_sent = True
            try:
                buffer = buffer[socket.send(buffer) :]
            except TimeoutError as error:
                raise httpcore.WriteTimeout(str(error)) from error
            except OSError as error:
                raise httpcore.WriteError(str(error)) from error

    def close(self) -> None:
        """Hang up."""
        self._inner.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        """Encrypt; the certificate must be of the name, not of the address."""
        left = self._line.left(httpcore.ConnectTimeout)
        return Wire(self._inner.start_tls(ssl_context, server_hostname, left), self._line)


class _Body(httpx.SyncByteStream):
    """The body of an answer; closing it ends the connection."""

    def __init__(self, pool: httpcore.ConnectionPool, answer: httpcore.Response) -> None:
        self._pool = pool
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        yield from self._answer.iter_stream()

    def close(self) -> None:
        self._answer.close()
        self._pool.close()


class Transport(httpx.BaseTransport):
    """Sends each request of a client on the line that it carries.

    Args:
        tls: Whom to trust; None for those whom the system trusts, who are read at the
            first call that is encrypted.
    """

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self._tls = tls

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send it, and return the answer with its body unread."""
        if self._tls is None and request.url.scheme == "https":
            self._tls = ssl.create_default_context()
        pool = httpcore.ConnectionPool(
            ssl_context=self._tls,
            max_keepalive_connections=0,
            network_backend=request.extensions[LINE],
        )
        url = request.url
        try:
            answer = pool.handle_request(
                httpcore.Request(
                    method=request.method,
                    url=httpcore.URL(
                        scheme=url.raw_scheme,
                        host=url.raw_host,
                        port=url.port,
                        target=url.raw_path,
                    ),
                    headers=request.headers.raw,
                    content=request.read(),
                )
            )
        except BaseException:
            pool.close()
            raise
        return httpx.Response(
            status_code=answer.status, headers=answer.headers, stream=_Body(pool, answer)
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    """Makes exchanges; safe to share by threads.

    Attributes:
        reach: Where they may go.
        client: Builds requests, and reads no setting of the machine.
    """

    reach: Reach
    client: httpx.Client = field(repr=False)

    def send(
        self, request: Request, deadline: Deadline, *, bytes_max: int = ANSWER_BYTES_MAX
    ) -> Answer:
        """Send a request once, and return its answer, of whose body so much is read.

        Raises:
            PermissionDeniedError: The host has an address that may not be called.
            UnavailableError: No byte of it was sent.
            UnknownOutcomeError: It was sent, and no whole answer came in time.
        """
        line = Line(self.reach, deadline, is_plain=request.url.startswith("http://"))
        try:
            answer = self.client.send(self._built(request, line), stream=True)
            try:
                return _read(answer, request.hidden, bytes_max)
            finally:
                answer.close()
        except _FAILURES as error:
            host = urlsplit(request.url).netloc
            what = f"{request.method} of {host:.260} ended with {type(error).__name__}"
            if line.is_sent:
                raise UnknownOutcomeError(f"{what} after it was sent") from error
            raise UnavailableError(f"{what} before it was sent") from error

    def _built(self, request: Request, line: Line) -> httpx.Request:
        return self.client.build_request(
            request.method,
            request.url,
            headers=list(request.headers),
            content=request.content,
            extensions={LINE: line},
        )


_FAILURES = (
    httpcore.NetworkError,
    httpcore.TimeoutException,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
    httpcore.ConnectionNotAvailable,
    httpx.HTTPError,
    httpx.InvalidURL,
    httpx.StreamError,
    OSError,
)


def open_exchange(reach: Reach, tls: ssl.SSLContext | None) -> Exchange:
    """Return exchanges that follow nothing, and read no proxy or password of the machine."""
    client = httpx.Client(transport=Transport(tls), follow_redirects=False, trust_env=False)
    client.headers = httpx.Headers({"Accept-Encoding": "identity", "User-Agent": AGENT})
    return Exchange(reach=reach, client=client)


def _read(answer: httpx.Response, hidden: tuple[str, ...], bytes_max: int) -> Answer:
    headers = {name.lower(): value for name, value in answer.headers.items()}
    body = bytearray()
    is_whole = headers.get("content-encoding", "identity").lower() == "identity"
    for piece in answer.iter_raw() if is_whole else ():
        body += piece
        if len(body) > bytes_max:
            is_whole = False
            break
    return Answer(
        status=answer.status_code,
        headers=headers,
        body=without(bytes(body), hidden) if is_whole else None,
        hidden=hidden,
    )

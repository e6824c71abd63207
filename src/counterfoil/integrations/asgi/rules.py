"""What a service declares about its keys, before the first request."""

import re
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from counterfoil.core.errors import ConfigError

Scope: TypeAlias = MutableMapping[str, Any]
"""Scope of an ASGI connection; ASGI itself types its values no closer."""

MEBIBYTE = 1024 * 1024
DAY_MS = 24 * 60 * 60 * 1000

LEASE_MS_MAX = DAY_MS
"""A request that takes longer is a job, and wants an answer of its own."""

RETENTION_MS_MAX = 3660 * DAY_MS
"""Ten years, the longest that books are commonly kept."""

FIELD_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""RFC 9110, 5.1 and 5.6.2."""

MARGIN_MS = DAY_MS
"""How long a receipt is kept beyond its retention: the clock that dated it may have been behind,
and a request that was sent in time may wait for long on its way."""

BYTES_MAX = 64 * MEBIBYTE
"""A body is held in memory as a whole, and as one value in a row."""


class Commits(StrEnum):
    """How an effect and its receipt are committed; what a death in between leaves.

    APART: one after the other. A key whose request died is unknown until a person settles it.
    TOGETHER: in one transaction of the service, by `PromisedReceipt.commit_in`. A key whose
        request died has no effect, and the next request with it is executed.
    REPEATABLE: apart, but executing twice does no harm, so the next request is executed.
    """

    APART = "apart"
    TOGETHER = "together"
    REPEATABLE = "repeatable"


def posts_and_patches(scope: Scope) -> bool:
    """Return whether a request is of a method that HTTP calls not idempotent."""
    return scope["method"] in ("PATCH", "POST")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """What holds for the keys of a service.

    Attributes:
        methods: Methods whose keys are heeded; with others a key means nothing.
        requires: Whether a request without a key is refused; of others it is executed
            without a receipt.
        commits: How effect and receipt are committed, for all requests or by request.
        client: Header whose value tells clients apart, or a function that names the client,
            by an empty name where it cannot. None says that the service has one client only.
        headers: Headers that belong to the request, and so to its fingerprint.
        bare_keys: Whether a key without quotes is a key too.
        lease_ms: How long a request counts as under way, 1 to `LEASE_MS_MAX`.
        retention_ms: How long a receipt is kept at least, 1 to `RETENTION_MS_MAX`.
        body_bytes_max: Longest body of a request with a key, 1 to `BYTES_MAX`.
        answer_bytes_max: Longest body of an answer to it, 1 to `BYTES_MAX`.
        receipts_path: Where receipts are read.
        documentation: URL of the page that says this to clients; empty for none.

    Raises:
        ConfigError: One of them is out of its bounds.
    """

    methods: tuple[str, ...] = ("DELETE", "PATCH", "POST", "PUT")
    requires: Callable[[Scope], bool] = posts_and_patches
    commits: Commits | Callable[[Scope], Commits] = Commits.APART
    client: str | Callable[[Scope], str] | None = "authorization"
    headers: tuple[str, ...] = ("content-encoding", "content-type")
    bare_keys: bool = False
    lease_ms: int = 60_000
    retention_ms: int = DAY_MS
    body_bytes_max: int = MEBIBYTE
    answer_bytes_max: int = MEBIBYTE
    receipts_path: str = "/counterfoil/receipts"
    documentation: str = ""

    def __post_init__(self) -> None:
        for name, value, most in (
            ("lease_ms", self.lease_ms, LEASE_MS_MAX),
            ("retention_ms", self.retention_ms, RETENTION_MS_MAX),
            ("body_bytes_max", self.body_bytes_max, BYTES_MAX),
            ("answer_bytes_max", self.answer_bytes_max, BYTES_MAX),
        ):
            if not 1 <= value <= most:
                raise ConfigError(f"{name} is {value}, the bounds are 1 and {most}")
        fields = [("headers", name) for name in self.headers]
        if isinstance(self.client, str):
            fields.append(("client", self.client))
        for rule, name in fields:
            if FIELD_NAME.fullmatch(name) is None:
                raise ConfigError(f"{rule} holds {name!r:.80}, which is no name of a header")
        path = self.receipts_path
        if not path.startswith("/") or path.endswith("/") or not path.isascii():
            raise ConfigError(
                f"receipts_path is {path!r:.80}: it starts with a slash, and does not end with one"
            )
        url = self.documentation
        if not (url.isascii() and url.isprintable()) or set(url) & set(' <>"'):
            raise ConfigError(f"documentation is {url!r:.80}, which is no URL")

    def commits_of(self, scope: Scope) -> Commits:
        """Return how effect and receipt of a request are committed."""
        return self.commits if isinstance(self.commits, Commits) else self.commits(scope)

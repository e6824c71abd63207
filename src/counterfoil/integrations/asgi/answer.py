"""An answer of the service, as it is kept and sent: status, headers, body.

Its fields are named as those of Starlette's `Response`, so either can be committed.
"""

import base64
import json
from collections.abc import Iterable
from typing import Protocol

import msgspec

from counterfoil.core.errors import ContractError, FormatError

Headers = tuple[tuple[bytes, bytes], ...]

STATUS_MIN = 200
STATUS_MAX = 599
"""Final answers; those below are interim (RFC 9110, 15)."""

ERROR_STATUS_MIN = 400
"""Answers from here on say that the request failed."""


class Response(Protocol):
    """A whole answer, such as `Answer` or a Starlette or FastAPI response with a body."""

    @property
    def status_code(self) -> int:
        """Status, 200 to 599."""
        ...

    @property
    def raw_headers(self) -> Iterable[tuple[bytes, bytes]]:
        """Names and values, in order."""
        ...

    @property
    def body(self) -> bytes | memoryview:
        """All bytes of the body."""
        ...


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer.

    Attributes:
        status_code: Status, 200 to 599.
        raw_headers: Names and values, in the order of sending.
        body: All bytes of the body.
    """

    status_code: int
    raw_headers: Headers = ()
    body: bytes = b""


def whole(response: Response, *, bytes_max: int) -> Answer:
    """Return a response as it can be kept.

    Raises:
        ContractError: It has no body of bytes, such as one that is streamed; the body is
            longer than `bytes_max`; or the status is no final one.
    """
    if not hasattr(response, "body"):
        raise ContractError("the answer is streamed, so it cannot be kept")
    kept = bytes(response.body)
    if len(kept) > bytes_max:
        raise ContractError(f"the answer has {len(kept)} bytes, the bound is {bytes_max}")
    if not STATUS_MIN <= response.status_code <= STATUS_MAX:
        raise ContractError(f"{response.status_code} is not the status of a final answer")
    headers = tuple((bytes(name), bytes(value)) for name, value in response.raw_headers)
    return Answer(status_code=response.status_code, raw_headers=headers, body=kept)


def header_text(headers: Headers) -> str:
    """Return headers as the journal keeps them: a JSON list of pairs, in ASCII."""
    pairs = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in headers]
    return json.dumps(pairs)


def header_pairs(text: str) -> list[tuple[str, str]]:
    """Return the headers that `header_text` was given, as text in Latin-1.

    Raises:
        FormatError: It did not write this.
    """
    try:
        return msgspec.json.decode(text, type=list[tuple[str, str]])
    except msgspec.MsgspecError as error:
        raise FormatError("the headers of a receipt are not in the form that we write") from error


def kept_headers(text: str) -> Headers:
    """Return the headers that `header_text` was given.

    Raises:
        FormatError: It did not write this.
    """
    try:
        return tuple(
            (name.encode("latin-1"), value.encode("latin-1")) for name, value in header_pairs(text)
        )
    except UnicodeEncodeError as error:
        raise FormatError("a header of a receipt is not in Latin-1") from error


def base64_text(body: bytes) -> str:
    """Return a body as text for JSON."""
    return base64.b64encode(body).decode("ascii")

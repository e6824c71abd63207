"""The way to one bucket: what is sent, and every way it fails in our own words.

Nothing is sent twice: botocore's retries and redirects are off. A request that has an
effect is signed with its deadline, so that the service itself refuses it afterwards. It
goes over a connection of its own, so that no connection that was closed while idle is
taken for an answer that was lost.

Source: "Authenticating Requests: Using Query Parameters (AWS Signature Version 4)",
Amazon S3 API Reference, for `X-Amz-Date` and `X-Amz-Expires`.
"""

import re
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, Protocol, cast
from urllib.parse import parse_qs, urlsplit

import boto3
from botocore.awsrequest import AWSPreparedRequest, AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ProxyConnectionError,
)
from botocore.httpsession import URLLib3Session
from botocore.parsers import ResponseParserError

from counterfoil.adapters.s3.signing import resigned
from counterfoil.core.errors import ConfigError, UnavailableError
from counterfoil.core.words import Json

CONNECTIONS_MAX = 16
"""Connections of one adapter: more than the threads of a usual worker."""

REQUEST_ID = "x-amz-request-id"
"""Header of every answer of S3's own: what has none is of something in between."""

LOST = 0
"""Stands for the status of an answer that did not come."""

SUCCESSES = range(200, 300)

_CODE = re.compile(rb"<Code>([A-Za-z0-9.]{1,80})</Code>")
_ETAG = re.compile(rb"<ETag>(?:&quot;|&#34;|\")?([!#-%'-~]{1,200}?)(?:&quot;|&#34;|\")?</ETag>")
_METHODS = {
    "put_object": "PUT",
    "copy_object": "PUT",
    "delete_object": "DELETE",
    "complete_multipart_upload": "POST",
    "get_object": "GET",
}
_NO_OTHER_ENDPOINT: dict[str, Any] = {"ignore_configured_endpoint_urls": True}
"""The scope names the endpoint that is an argument; not every version of the stubs knows this."""

_ID = "ResponseMetadata"
_TOLD = {
    "create_multipart_upload": "UploadId",
    "get_object": "ETag",
    "head_object": "ETag",
    "list_object_versions": "IsTruncated",
    "list_objects_v2": "IsTruncated",
    "list_parts": "IsTruncated",
    "put_object": "ETag",
    "upload_part": "ETag",
}
"""What S3 tells with each success: an empty answer must not be taken for an empty bucket."""

_ANSWERS_IN_ITS_BODY = ("copy_object", "complete_multipart_upload")
"""Operations that S3 may answer with 200 and an error in the body."""


class Client(Protocol):
    """What is used of boto3's S3 client beside its operations, which it makes at run time."""

    meta: Any

    def generate_presigned_url(self, operation: str, /, **members: Json) -> str:
        """Return an address that holds a signature."""
        ...

    def close(self) -> None:
        """Let go of the connections."""
        ...


class Session(Protocol):
    """What is used of boto3's session; its own types name a package per service."""

    def get_credentials(self) -> Credentials | None:
        """Return credentials, or None."""
        ...

    def client(self, service: str, *, endpoint_url: str | None, config: Config) -> Client:
        """Return a client of a service."""
        ...


class Way(NamedTuple):
    """A client, and who it signs as."""

    client: Client
    credentials: Credentials


Operation = Callable[..., dict[str, Any]]
"""One operation of the client, which takes the members of its request by name."""


class AnswerError(Exception):
    """The service answered, and not with success; never leaves this package.

    Attributes:
        status: HTTP status.
        code: The service's own name for it.
        at: Moment of the answer, by the service's clock, in whole seconds; 0 unknown.
        is_of_s3: Whether it is the word of S3 on an object that there may be, and not
            that of something in between, or on a bucket that is gone.
    """

    def __init__(self, status: int, code: str, at: int, *, is_of_s3: bool) -> None:
        super().__init__(status, code, at, is_of_s3)
        self.status = status
        self.code = code
        self.at = at
        self.is_of_s3 = is_of_s3


@dataclass(frozen=True, kw_only=True, slots=True)
class Signed:
    """A request that the service accepts until its deadline, and not once more.

    Attributes:
        operation: Name of the operation.
        url: With the signature in it: nothing may show it.
        headers: Those that are signed.
        until: Deadline, by the service's clock, in whole seconds.
    """

    operation: str
    url: str
    headers: Mapping[str, str]
    until: int

    def __repr__(self) -> str:
        return f"Signed({self.operation}, until={self.until})"


@dataclass(frozen=True, kw_only=True, slots=True)
class Sent:
    """What became of a request that has an effect.

    Attributes:
        status: HTTP status, or `LOST`.
        code: The service's own name for an error.
        etag: ETag of what was written, without its quotes; empty when not told.
        version: Version id of what was written; empty when there is none.
        at: Moment of the answer, by the service's clock, in whole seconds; 0 unknown.
    """

    status: int
    code: str = ""
    etag: str = ""
    version: str = ""
    at: int = 0


class Wire:
    """The connections to one service; `close` lets go of them.

    Args:
        way: What `connect` made.
        bucket: Name of the bucket.
        request_s: Longest that a request waits for its answer, in seconds.
    """

    def __init__(self, way: Way, *, bucket: str, request_s: int) -> None:
        client, self._credentials = way
        self._client = client
        self._sender = URLLib3Session(timeout=request_s)
        self._seen = threading.local()
        self.bucket = bucket
        self.endpoint = str(client.meta.endpoint_url)
        client.meta.events.register("before-sign.s3", self._note_headers)
        client.meta.events.register("before-send.s3", self._stay)

    def __repr__(self) -> str:
        return f"Wire({self.endpoint}, {self.bucket})"

    def ask(self, doing: str, operation: str, *fine: int, **members: Json) -> dict[str, Any]:
        """Make one request that may be made again.

        Args:
            doing: What for, for people.
            operation: Name of the operation.
            fine: Statuses beside success that the caller understands.
            members: Of the request; the bucket is added.

        Raises:
            AnswerError: The service answered with one of `fine`.
            UnavailableError: It answered otherwise, or not at all.
        """
        try:
            act = cast("Operation", getattr(self._client, operation))  # made at run time
            answer = act(Bucket=self.bucket, **members)
        except ClientError as error:
            refused = _answer(error)
            if refused.status in fine and refused.is_of_s3:
                raise refused from error
            raise UnavailableError(
                f"{doing}: the service answers {refused.status} {refused.code}"
            ) from error
        except (BotoCoreError, ResponseParserError, OSError) as error:
            raise UnavailableError(f"{doing}: {type(error).__name__}") from error
        if _TOLD.get(operation, _ID) not in answer:
            raise UnavailableError(f"{doing}: the answer is not one of S3")
        return answer

    def sign(self, operation: str, lasts_s: int, **members: Json) -> Signed:
        """Return a request that the service accepts for so many seconds from now.

        Raises:
            UnavailableError: There are no credentials at hand.
        """
        given = {"Bucket": self.bucket, **members}
        try:
            url = self._client.generate_presigned_url(operation, Params=given, ExpiresIn=lasts_s)
        except (BotoCoreError, OSError) as error:
            raise UnavailableError(f"a request cannot be signed: {type(error).__name__}") from error
        query = parse_qs(urlsplit(url).query)
        signed_at = datetime.strptime(query["X-Amz-Date"][0], "%Y%m%dT%H%M%S%z")
        until = int(signed_at.timestamp()) + int(query["X-Amz-Expires"][0])
        return Signed(operation=operation, url=url, headers=self._seen.headers, until=until)

    def sign_at(self, at: int, operation: str, lasts_s: int, **members: Json) -> Signed:
        """Return a request as it would have been signed at a moment, in whole seconds UTC.

        Raises:
            UnavailableError: There are no credentials at hand.
        """
        signed = self.sign(operation, lasts_s, **members)
        url = resigned(
            signed.url,
            signed.headers,
            _METHODS[operation],
            self._credentials,
            region=str(self._client.meta.region_name),
            lasts_s=lasts_s,
            at=at,
        )
        return replace(signed, url=url, until=at + lasts_s)

    def send(self, signed: Signed, body: bytes = b"") -> Sent:
        """Send a signed request once, and say what became of it.

        Raises:
            UnavailableError: No connection came about, so nothing was sent.
        """
        headers = {**signed.headers, "Connection": "close"}
        request = AWSRequest(
            method=_METHODS[signed.operation], url=signed.url, headers=headers, data=body or None
        ).prepare()
        if body == b"" and request.method in ("PUT", "POST"):
            request.headers["Content-Length"] = "0"
        self._stay(request)
        try:
            answer = self._sender.send(request)
            raw = bytes(answer.content)
        except (EndpointConnectionError, ConnectTimeoutError, ProxyConnectionError) as error:
            # The driver's words hold the url, and that holds a signature.
            raise UnavailableError(f"no connection: {type(error).__name__}") from None
        except (BotoCoreError, OSError):
            return Sent(status=LOST)
        return _sent(signed.operation, answer.status_code, answer.headers, raw)

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()
        self._sender.close()

    def _note_headers(self, request: AWSRequest, **_: object) -> None:
        self._seen.headers = {name: _as_text(value) for name, value in request.headers.items()}

    def _stay(self, request: AWSPreparedRequest, **_: object) -> None:
        """Refuse to leave the endpoint, wherever a service points to."""
        ours, theirs = urlsplit(self.endpoint), urlsplit(str(request.url))
        hosts = (ours.netloc, f"{self.bucket}.{ours.netloc}")
        if theirs.scheme != ours.scheme or theirs.netloc not in hosts:
            raise UnavailableError(
                f"the service of {self.endpoint} points elsewhere, which is not followed"
            )


def connect(session: Session | None, endpoint: str | None, bucket: str, wait_s: int) -> Way:
    """Return a client that makes each request once.

    Args:
        session: Where credentials and region come from; boto3's own chain when None.
        endpoint: Address of the service; AWS's own of the region when None.
        bucket: Name of the bucket.
        wait_s: Longest wait for an answer, in seconds.

    Raises:
        ConfigError: Region or endpoint cannot be used, or there are no credentials.
    """
    # A certificate covers one part of a host, and services that are not AWS want no more.
    is_in_path = endpoint is not None or "." in bucket
    config = Config(
        signature_version="s3v4",
        connect_timeout=wait_s,
        read_timeout=wait_s,
        max_pool_connections=CONNECTIONS_MAX,
        **_NO_OTHER_ENDPOINT,
        retries={"total_max_attempts": 1, "mode": "standard"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path" if is_in_path else "virtual"},
    )
    try:
        # boto3 makes its operations at run time
        used = session or cast("Session", boto3.Session())
        credentials = used.get_credentials()
        if credentials is None:
            raise ConfigError(
                "there are no credentials for s3",
                move="set them as boto3 looks for them: environment, profile or role",
            )
        return Way(used.client("s3", endpoint_url=endpoint, config=config), credentials)
    except (BotoCoreError, ValueError) as error:
        raise ConfigError(f"s3 cannot be set up: {type(error).__name__}") from error


def moment(headers: Mapping[str, str], name: str = "date") -> int:
    """Return a header's moment in whole seconds UTC; 0 when there is none."""
    with suppress(ValueError, TypeError):
        return int(parsedate_to_datetime(headers[name]).timestamp()) if name in headers else 0
    return 0


def headers_of(answer: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the headers of an answer, by names in lower case."""
    headers: Mapping[str, str] = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return headers


def bare(etag: str) -> str:
    """Return an ETag without its quotes."""
    return etag.strip('"')


def _answer(error: ClientError) -> AnswerError:
    answer = cast("dict[str, Any]", error.response)  # a parsed answer, whose members vary
    status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", LOST))
    code = str(answer.get("Error", {}).get("Code", ""))[:80]
    headers = headers_of(answer)
    is_of_s3 = REQUEST_ID in headers and (status, code) != (404, "NoSuchBucket")
    return AnswerError(status, code, moment(headers), is_of_s3=is_of_s3)


def _sent(operation: str, status: int, headers: Mapping[str, str], raw: bytes) -> Sent:
    lower = {name.lower(): value for name, value in headers.items()}
    code, etag = _CODE.search(raw), _ETAG.search(raw)
    is_empty = operation in _ANSWERS_IN_ITS_BODY and (code is not None or etag is None)
    if REQUEST_ID not in lower or (status in SUCCESSES and is_empty):
        status = LOST
    told = etag.group(1).decode() if etag else bare(lower.get("etag", ""))
    return Sent(
        status=status,
        code=code.group(1).decode() if code else "",
        etag=told,
        version=lower.get("x-amz-version-id", ""),
        at=moment(lower),
    )


def _as_text(value: str | bytes) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else value

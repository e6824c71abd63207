"""Signatures for another moment than this one, to find out whether deadlines are kept."""

from collections.abc import Mapping
from datetime import UTC, datetime
from http.client import HTTPMessage
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

OF_SIGNATURES = "X-Amz-"
"""What the names of all parameters of a signature begin with."""

FORM = "%Y%m%dT%H%M%SZ"


def resigned(
    url: str,
    headers: Mapping[str, str],
    method: str,
    credentials: Credentials,
    *,
    region: str,
    lasts_s: int,
    at: int,
) -> str:
    """Return a signed address as it would have been at a moment, in whole seconds UTC."""
    parts = urlsplit(url)
    rest = [
        (name, value)
        for name, value in parse_qsl(parts.query, keep_blank_values=True)
        if not name.startswith(OF_SIGNATURES)
    ]
    plain = urlunsplit(parts._replace(query=urlencode(rest)))
    request = AWSRequest(method=method, url=plain, headers=dict(headers))
    _AtMoment(credentials, region, lasts_s, at).add_auth(request)
    return str(request.url)


class _AtMoment(S3SigV4QueryAuth):
    """The driver's own signer, but for the time.

    Args:
        credentials: Who signs.
        region: Where.
        lasts_s: For how long, in seconds.
        at: Moment, in whole seconds UTC.
    """

    def __init__(self, credentials: Credentials, region: str, lasts_s: int, at: int) -> None:
        super().__init__(credentials, "s3", region, lasts_s)
        self._at = datetime.fromtimestamp(at, UTC).strftime(FORM)

    def headers_to_sign(self, request: AWSRequest) -> HTTPMessage:
        """Set the moment, which is read only after this."""
        request.context["timestamp"] = self._at
        return super().headers_to_sign(request)

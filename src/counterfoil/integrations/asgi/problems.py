"""What the middleware answers by itself: problem details as RFC 9457 has them.

None of these is a receipt. A client tells them by their type, `urn:counterfoil:NAME`.
"""

import json
from dataclasses import dataclass
from typing import TypeAlias

from counterfoil.integrations.asgi.answer import Answer

RETRY_AFTER_SECONDS = b"1"
"""When to ask again while the first call is under way."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One kind of refusal.

    Attributes:
        name: Last part of its type.
        status: HTTP status.
        title: What it is, for people, the same each time.
        is_passing: Whether the same request may be answered otherwise in a moment.
    """

    name: str
    status: int
    title: str
    is_passing: bool = False


Refusal: TypeAlias = tuple[Problem, str]
"""A refusal, and what happened here with the next move."""

MISSING_KEY = Problem(name="missing-key", status=400, title="Idempotency-Key is missing")
MISSING_CLIENT = Problem(name="missing-client", status=400, title="The client is not named")
INVALID_KEY = Problem(name="invalid-key", status=400, title="Idempotency-Key is not valid")
INVALID_HEADER = Problem(name="invalid-header", status=400, title="A header is not valid")
INVALID_BODY = Problem(name="invalid-body", status=400, title="The body is not valid")
TOO_LARGE = Problem(name="body-too-large", status=413, title="The body is too large")
OTHER_PAYLOAD = Problem(
    name="other-payload", status=422, title="Idempotency-Key is used for another request"
)
IN_FLIGHT = Problem(
    name="in-flight",
    status=409,
    title="A request with this Idempotency-Key is under way",
    is_passing=True,
)
UNKNOWN = Problem(
    name="outcome-unknown",
    status=409,
    title="Nobody knows whether the first request with this Idempotency-Key took effect",
)
NOT_STORED = Problem(
    name="outcome-unknown",
    status=503,
    title="The request was executed, and its answer could not be stored",
    is_passing=True,
)
SUPERSEDED = Problem(
    name="superseded",
    status=409,
    title="Another request with this Idempotency-Key took over",
    is_passing=True,
)
FORBIDDEN = Problem(
    name="forbidden-key", status=403, title="This Idempotency-Key was made impossible"
)
STALE_FENCE = Problem(name="stale-fence", status=412, title="The lease of this run was taken over")
OTHER_CLIENT = Problem(name="other-client", status=412, title="The request is another client's")
OTHER_COMMITS = Problem(
    name="other-commits", status=412, title="Effect and receipt are committed in another way"
)
NO_RECEIPT = Problem(name="no-receipt", status=404, title="There is no receipt under this key")
NO_METHOD = Problem(name="no-method", status=405, title="Receipts have no such method")
UNAVAILABLE = Problem(
    name="unavailable",
    status=503,
    title="Receipts cannot be kept now, so nothing was executed",
    is_passing=True,
)
NOT_COMMITTED = Problem(
    name="not-committed", status=500, title="The service answered without committing the receipt"
)
UNANSWERED = Problem(name="unanswered", status=500, title="The service failed without an answer")
ANSWER_TOO_LARGE = Problem(
    name="answer-too-large", status=500, title="The answer is larger than a receipt can hold"
)


def problem(kind: Problem, detail: str, *, documentation: str = "") -> Answer:
    """Return an answer of type `application/problem+json`.

    Args:
        kind: What it is.
        detail: What happened here, and the next move; it names no secret.
        documentation: Page to link; empty for none.
    """
    body = json.dumps(
        {
            "type": f"urn:counterfoil:{kind.name}",
            "title": kind.title,
            "status": kind.status,
            "detail": detail,
        }
    ).encode("ascii")
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-language", b"en"),
        (b"content-length", str(len(body)).encode("ascii")),
    ]
    if kind.is_passing:
        headers.append((b"retry-after", RETRY_AFTER_SECONDS))
    if documentation:
        link = f'<{documentation}>; rel="describedby"; type="text/html"'
        headers.append((b"link", link.encode("ascii")))
    return Answer(status_code=kind.status, raw_headers=tuple(headers), body=body)

"""What an answer of a service says, and which error or receipt follows from it.

Only what a service says in so many words is believed. Every status that is not known to
mean that nothing happened leaves a write unknown.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

from counterfoil.adapters.http.credentials import veiled
from counterfoil.adapters.http.declare import Endpoint, Fields, Meaning, When
from counterfoil.adapters.http.wire import ANSWER_BYTES_MAX, Answer
from counterfoil.core.errors import (
    ConfigError,
    CounterfoilError,
    FencedError,
    IdempotencyConflictError,
    PermissionDeniedError,
    RefusedError,
    StaleObservationError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.words import Json, Level
from counterfoil.pointers import at, moment_at, text_at

REFUSALS = frozenset(
    {400, 401, 402, 403, 404, 405, 406, 410, 411, 412, 413, 414, 415, 416, 417}
    | {421, 426, 428, 431, 451}
)
"""The request was understood and not carried out (RFC 9110, 15.5, and RFC 6585)."""

IN_FLIGHT = 409
OTHER_PAYLOAD = 422
"""As the draft on Idempotency-Key has them; elsewhere both are plain refusals."""

KEEPING = (Level.TRANSACTIONAL, Level.DEDUPLICATING)
"""Levels of services that keep keys."""

TOO_MANY = 429

RECEIPT = "counterfoil-receipt"
"""Header of answers that are on record at the middleware."""

COMMITS = "counterfoil-commits"
"""Header of the same answers, with how the receipt was committed."""

PROBLEM = "urn:counterfoil:"
STALE_FENCE = f"{PROBLEM}stale-fence"
NO_RECEIPT = f"{PROBLEM}no-receipt"
OTHER_COMMITS = f"{PROBLEM}other-commits"
FORBIDDEN_KEY = f"{PROBLEM}forbidden-key"
OWN_PROBLEMS: Mapping[str, Meaning] = {
    STALE_FENCE: Meaning.REFUSED,
    FORBIDDEN_KEY: Meaning.REFUSED,
    OTHER_COMMITS: Meaning.REFUSED,
    f"{PROBLEM}missing-key": Meaning.REFUSED,
    f"{PROBLEM}missing-client": Meaning.REFUSED,
    f"{PROBLEM}invalid-key": Meaning.REFUSED,
    f"{PROBLEM}invalid-header": Meaning.REFUSED,
    f"{PROBLEM}body-too-large": Meaning.REFUSED,
    f"{PROBLEM}other-payload": Meaning.CONFLICT,
    f"{PROBLEM}in-flight": Meaning.IN_FLIGHT,
    f"{PROBLEM}unavailable": Meaning.UNAVAILABLE,
}
"""What the middleware says of itself; its other problems leave a write unknown."""

TITLE_CHARS_MAX = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """What a receipt, as a service shows it, says of an effect.

    Attributes:
        id: The service's id; empty when it should be there and is not.
        key: The key; empty when it is not kept.
        digest: The intent digest; empty when it is not kept.
        run: The run; empty when it is not kept.
        committed_at_ms: When, UTC; 0 when unknown.
    """

    id: str
    key: str
    digest: str
    run: str
    committed_at_ms: int


def shown(fields: Fields, document: Json, key: str) -> Shown:
    """Return what a receipt says, the key standing for an id that is not kept."""
    return Shown(
        id=text_at(document, fields.id) if fields.id else key,
        key=text_at(document, fields.key),
        digest=text_at(document, fields.digest),
        run=text_at(document, fields.run),
        committed_at_ms=moment_at(document, fields.committed_at),
    )


def document_of(answer: Answer) -> Json:
    """Return the body as a value: JSON, text, or bytes; None when there is none."""
    body = answer.body
    if not body:
        return None
    if "json" in answer.headers.get("content-type", "") or body[:1] in (b"{", b"["):
        with suppress(ValueError, RecursionError):
            return veiled(json.loads(body), answer.hidden)
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return body


def fits(when: When, answer: Answer) -> bool:
    """Return whether an answer is the one that is meant."""
    is_meant = answer.status == when.status if when.status else is_success(answer)
    is_meant = is_meant and (not when.header or when.header.lower() in answer.headers)
    if not is_meant or not when.at:
        return is_meant
    found = at(document_of(answer), when.at)
    if when.equals is None:
        return found is not None
    return isinstance(found, bool) == isinstance(when.equals, bool) and found == when.equals


def is_success(answer: Answer) -> bool:
    """Return whether the status is 2xx."""
    return 200 <= answer.status <= 299


def meaning_of(endpoint: Endpoint, answer: Answer, *, is_recorded: bool | None) -> Meaning:
    """Return what an answer says of a write.

    Args:
        endpoint: What was called.
        answer: Its answer.
        is_recorded: Whether the service's receipts hold this answer; None where it
            keeps none.
    """
    problem = problem_of(answer)
    if is_recorded is False and problem.startswith(PROBLEM):
        return OWN_PROBLEMS.get(problem, Meaning.UNKNOWN)
    for when, meaning in endpoint.means:
        if fits(when, answer):
            return meaning
    if is_success(answer):
        return Meaning.UNKNOWN if is_recorded is False else Meaning.DONE
    if answer.status == TOO_MANY:
        return Meaning.REFUSED if is_recorded else Meaning.UNAVAILABLE
    if answer.status in (IN_FLIGHT, OTHER_PAYLOAD):
        keeps_keys = endpoint.key_form != "none" and endpoint.level in KEEPING
        if is_recorded or not keeps_keys:
            return Meaning.REFUSED
        return Meaning.IN_FLIGHT if answer.status == IN_FLIGHT else Meaning.CONFLICT
    return Meaning.REFUSED if answer.status in REFUSALS else Meaning.UNKNOWN


def problem_of(answer: Answer) -> str:
    """Return the type of an `application/problem+json` answer, or an empty string."""
    if "problem+json" not in answer.headers.get("content-type", ""):
        return ""
    return text_at(document_of(answer), "/type")


def is_replay(endpoint: Endpoint, answer: Answer) -> bool:
    """Return whether an answer shows an earlier effect of the key."""
    says_so = answer.headers.get("idempotent-replayed", "").strip("?").lower() in ("true", "1")
    return says_so or (endpoint.replayed is not None and fits(endpoint.replayed, answer))


def refusal(endpoint: Endpoint, answer: Answer) -> CounterfoilError:
    """Return the error of an answer that says that nothing happened."""
    problem = problem_of(answer)
    what = f"{endpoint.name} is refused with status {answer.status}{_title(answer)}"
    if problem == STALE_FENCE:
        return FencedError("the service knows a newer lease")
    if problem == OTHER_COMMITS:
        return ConfigError(
            f"{endpoint.name} is {endpoint.level}, and the service commits its receipt otherwise",
            move="declare a lower level, or have the service commit both together",
        )
    if problem == FORBIDDEN_KEY:
        return PermissionDeniedError("the key was made impossible")
    if answer.status in (401, 403):
        return PermissionDeniedError(what)
    if answer.status == 412:
        return StaleObservationError(what)
    return RefusedError(what)


def raise_for(endpoint: Endpoint, answer: Answer, meaning: Meaning) -> NoReturn:
    """Raise what an answer means that is no receipt.

    Raises:
        CounterfoilError: Of the family that fits the meaning.
    """
    match meaning:
        case Meaning.REFUSED:
            raise refusal(endpoint, answer)
        case Meaning.CONFLICT:
            raise IdempotencyConflictError("the service holds another request under the key")
        case Meaning.UNAVAILABLE:
            raise UnavailableError(f"{endpoint.name} is put off with status {answer.status}")
        case Meaning.IN_FLIGHT:
            raise UnknownOutcomeError("the first call under the key is still under way")
        case Meaning.DONE | Meaning.UNKNOWN:
            raise UnknownOutcomeError(
                f"{endpoint.name} was answered with status {answer.status}{_title(answer)}, "
                "which says nothing"
            )


def read_result(endpoint: Endpoint, answer: Answer) -> Json:
    """Return the result of a read or a verification.

    Raises:
        PermissionDeniedError: It is redirected, or may not be read.
        RefusedError: The service refuses it.
        UnavailableError: The service does not answer it now, or at too great length.
    """
    if answer.body is None:
        raise UnavailableError(
            f"the answer to {endpoint.name} has more than {ANSWER_BYTES_MAX} bytes, or is packed"
        )
    if endpoint.passes is not None and (answer.status < 500 or endpoint.passes.status >= 500):
        passed = fits(endpoint.passes, answer)
        return {"passed": passed, "status": answer.status, "answer": document_of(answer)}
    if is_success(answer):
        return document_of(answer)
    if 300 <= answer.status <= 399:
        raise PermissionDeniedError(f"{endpoint.name} is redirected, and no redirect is followed")
    if answer.status >= 500 or answer.status == TOO_MANY:
        raise UnavailableError(f"{endpoint.name} is answered with status {answer.status}")
    raise refusal(endpoint, answer)


def _title(answer: Answer) -> str:
    """Return the title of a problem, which is the same for all problems of its type."""
    title = text_at(document_of(answer), "/title") if problem_of(answer) else ""
    return f", {title[:TITLE_CHARS_MAX]!r}" if title else ""

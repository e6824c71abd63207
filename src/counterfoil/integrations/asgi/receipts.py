"""Receipts as clients read them: one by key, none made impossible, a fence raised.

A client sees its own keys alone. Who it is, the same rule says as for its requests.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from counterfoil.core.canonical import encode, shaped, strict_json
from counterfoil.core.errors import ContractError, CounterfoilError
from counterfoil.core.receipt import Served
from counterfoil.core.words import Json
from counterfoil.integrations.asgi import problems
from counterfoil.integrations.asgi.answer import Answer, base64_text, header_pairs
from counterfoil.integrations.asgi.call import OTHERS, authority_of, checked_fence, is_for
from counterfoil.integrations.asgi.field import KEY_CHARS_MAX, checked_key
from counterfoil.integrations.asgi.journal import Claim, Journal
from counterfoil.integrations.asgi.problems import Problem, problem
from counterfoil.integrations.asgi.rows import Row, Verdict
from counterfoil.integrations.asgi.rules import Commits, Rules, Scope

log = logging.getLogger("counterfoil.asgi")

BODY_BYTES_MAX = 4096
"""A run, a version and a nonce, at their bounds and escaped."""

FENCES = "fences"
"""Last part of the path where fences are raised."""


class Forbidding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body that makes a key impossible."""

    forbid: bool


class Taking(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body that raises a fence."""

    run: str
    lease_version: int
    nonce: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Desk:
    """What answers about receipts need.

    Attributes:
        journal: Where receipts are.
        rules: Of the service.
        now_ms: Clock, UTC.
    """

    journal: Journal
    rules: Rules
    now_ms: Callable[[], int]


def own_path(scope: Scope) -> str:
    """Return the path of a request below where the application is mounted."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path.removeprefix(root) if root and path.startswith(f"{root}/") else path


def is_below(scope: Scope, receipts_path: str) -> bool:
    """Return whether a request is about receipts."""
    path = own_path(scope)
    return path == receipts_path or path.startswith(f"{receipts_path}/")


def answered(desk: Desk, client: str, scope: Scope, body: bytes) -> Answer:
    """Return the answer to a client's request about receipts."""
    name = own_path(scope)[len(desk.rules.receipts_path) + 1 :]
    try:
        match scope["method"]:
            case "GET" if not name:
                return _json(_description(desk, client))
            case "GET":
                return _shown(desk, _looked_up(desk, client, checked_key(name)))
            case "PUT" if name:
                return _forbidden(desk, client, scope, checked_key(name), body)
            case "POST" if name == FENCES:
                return _taken(desk, client, body)
            case _:
                return _refused(desk, problems.NO_METHOD, "read one with GET, forbid one with PUT")
    except ContractError as error:
        return _refused(desk, problems.INVALID_BODY, error.message)
    except CounterfoilError as error:
        log.warning("a receipt was not looked at: %s", error)
        return _refused(desk, problems.UNAVAILABLE, "ask again in a moment")


def _description(desk: Desk, client: str) -> Json:
    commits = desk.rules.commits
    return {
        "instance": desk.journal.instance,
        "client": client,
        "commits": commits.value if isinstance(commits, Commits) else None,
        "retention_ms": desk.rules.retention_ms,
        "key_chars_max": KEY_CHARS_MAX,
        "body_bytes_max": desk.rules.body_bytes_max,
        "answer_bytes_max": desk.rules.answer_bytes_max,
    }


def _looked_up(desk: Desk, client: str, key: str) -> Claim:
    return desk.journal.look_up(client, key, now_ms=desk.now_ms())


def _forbidden(desk: Desk, client: str, scope: Scope, key: str, body: bytes) -> Answer:
    asked = shaped(strict_json(body, "body", bytes_max=BODY_BYTES_MAX), Forbidding, "body")
    if not asked.forbid:
        raise ContractError("forbid is false, and a key that is impossible stays so")
    authority = authority_of(scope)
    if not is_for(scope, client):
        return _refused(desk, *OTHERS)
    claim = desk.journal.forbid(
        client,
        key,
        run_id=authority.run,
        fence=authority.fence,
        now_ms=desk.now_ms(),
    )
    return _shown(desk, claim)


def _taken(desk: Desk, client: str, body: bytes) -> Answer:
    asked = shaped(strict_json(body, "body", bytes_max=BODY_BYTES_MAX), Taking, "body")
    run_id, fence = checked_fence(asked.run, asked.lease_version, asked.nonce)
    is_raised, served = desk.journal.take(client, run_id, fence)
    if not is_raised:
        return _refused(desk, problems.STALE_FENCE, "another worker holds the run")
    return _json(
        {
            "run": run_id,
            "lease_version": fence.lease_version,
            "nonce": fence.nonce,
            "served": _served(served),
        }
    )


def _shown(desk: Desk, claim: Claim) -> Answer:
    row = claim.row
    match claim.verdict:
        case Verdict.DONE if row is not None:
            return _json(_receipt(row))
        case Verdict.FORBIDDEN if row is not None:
            moment = row.committed_at_ms
            return _json({"key": row.key, "forbidden": True, "forbidden_at_ms": moment})
        case Verdict.STALE:
            return _refused(desk, problems.STALE_FENCE, "another worker holds the run")
        case Verdict.UNKNOWN:
            return _refused(desk, problems.UNKNOWN, "an operator of the service settles it")
        case Verdict.IN_FLIGHT:
            return _refused(desk, problems.IN_FLIGHT, "ask again in a moment")
        case _:
            return _refused(desk, problems.NO_RECEIPT, "nothing was executed under the key")


def _receipt(row: Row) -> Json:
    return {
        "id": row.attempt,
        "key": row.key,
        "fingerprint": row.fingerprint,
        "status": row.status,
        "headers": header_pairs(row.headers),
        "body_base64": base64_text(row.body),
        "committed_at_ms": row.committed_at_ms,
        "expires_at_ms": row.expires_at_ms,
        "client": row.client,
        "intent": row.intent,
        "run": row.run,
        "served": _served(row.served),
        "statement": row.statement,
        "commits": row.commits.value,
    }


def _served(served: Served | None) -> Json:
    if served is None:
        return None
    return {"generation": served.generation, "checkpoint": served.checkpoint}


def _json(value: Json) -> Answer:
    body = encode(value)
    headers = (
        (b"content-type", b"application/json"),
        (b"cache-control", b"no-store"),
        (b"content-length", str(len(body)).encode("ascii")),
    )
    return Answer(status_code=200, raw_headers=headers, body=body)


def _refused(desk: Desk, kind: Problem, detail: str) -> Answer:
    return problem(kind, detail, documentation=desk.rules.documentation)

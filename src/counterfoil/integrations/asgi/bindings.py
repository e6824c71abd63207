"""The values of the journal's statements, in the order that the statements name them."""

from counterfoil.core.receipt import Fence
from counterfoil.integrations.asgi.answer import Answer, header_text
from counterfoil.integrations.asgi.call import Call
from counterfoil.integrations.asgi.database import Value
from counterfoil.integrations.asgi.rows import Row, State
from counterfoil.integrations.asgi.rules import RETENTION_MS_MAX, Commits


def taken_over(call: Call, attempt: str, now_ms: int, lease_until_ms: int) -> tuple[Value, ...]:
    """Return the values of `TAKE_OVER`, but for the attempt that it takes over from."""
    authority = call.authority
    fence, served = authority.fence, authority.served
    return (
        fence.lease_version if fence else 0,
        fence.nonce if fence else "",
        served.generation if served else 0,
        served.checkpoint if served else "",
        authority.statement,
        call.commits.value,
        attempt,
        now_ms,
        lease_until_ms,
        call.client,
        call.key,
    )


def inserted(call: Call, attempt: str, now_ms: int, lease_until_ms: int) -> tuple[Value, ...]:
    """Return the values of `INSERT` for a claim."""
    authority = call.authority
    names = (call.client, call.key, State.IN_FLIGHT.value, call.fingerprint)
    claim = taken_over(call, attempt, now_ms, lease_until_ms)[:-2]
    return (*names, authority.intent, authority.run, *claim, 0, "[]", b"", 0, 0)


def tombstone(
    client: str, key: str, run_id: str, fence: Fence | None, now_ms: int
) -> tuple[Value, ...]:
    """Return the values of `INSERT` for a key that is made impossible."""
    version, nonce = (fence.lease_version, fence.nonce) if fence else (0, "")
    names = (client, key, State.FORBIDDEN.value, "", "", run_id, version, nonce, 0, "", "")
    return (*names, Commits.APART.value, "", now_ms, now_ms, 0, "[]", b"", now_ms, 0)


def finished(
    call: Call, attempt: str, answer: Answer, now_ms: int, retention_ms: int
) -> tuple[Value, ...]:
    """Return the values of `FINISH` for a request whose answer is kept after its effect."""
    kept = (alone(call.commits), *_kept(answer, now_ms, retention_ms))
    return (*kept, call.client, call.key, attempt)


def finishing(
    call: Call, attempt: str, answer: Answer, now_ms: int, retention_ms: int
) -> tuple[Value, ...]:
    """Return the values of `FINISH` for a request whose answer is committed with its effect."""
    kept = (Commits.TOGETHER.value, *_kept(answer, now_ms, retention_ms))
    return (*kept, call.client, call.key, attempt)


def settled(row: Row, answer: Answer, now_ms: int) -> tuple[Value, ...]:
    """Return the values of `FINISH` for a key that a person settles, for as long as can be."""
    kept = (alone(row.commits), *_kept(answer, now_ms, RETENTION_MS_MAX))
    return (*kept, row.client, row.key, row.attempt)


def alone(commits: Commits) -> str:
    """Return how a receipt was committed that is written by itself."""
    return (Commits.APART if commits is Commits.TOGETHER else commits).value


def _kept(answer: Answer, now_ms: int, retention_ms: int) -> tuple[Value, ...]:
    headers = header_text(answer.raw_headers)
    return (answer.status_code, headers, answer.body, now_ms, now_ms + retention_ms)

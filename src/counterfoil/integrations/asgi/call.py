"""One request with a key: whose it is, what it asks for, and on which authority.

The fingerprint is over method, path, query, the chosen headers and the body, each with
its length before it, so that no two requests run together to the same bytes.
"""

import hashlib
import hmac
from collections.abc import Sequence
from urllib.parse import unquote

import msgspec

from counterfoil.core.bounds import IDENTIFIER_CHARS_MAX, INTEGER_MAX
from counterfoil.core.errors import ContractError
from counterfoil.core.receipt import Fence, Served
from counterfoil.core.words import Digest, identifier
from counterfoil.integrations.asgi import problems
from counterfoil.integrations.asgi.field import parse_key
from counterfoil.integrations.asgi.problems import Refusal
from counterfoil.integrations.asgi.rules import Commits, Rules, Scope

KEY = b"idempotency-key"
FENCE = b"counterfoil-fence"
SERVED = b"counterfoil-served"
INTENT = b"counterfoil-intent"
STATEMENT = b"counterfoil-statement"
CLIENT = b"counterfoil-client"
COMMITS = b"counterfoil-commits"

CLIENT_LABEL = b"counterfoil client"
REQUEST_LABEL = b"counterfoil request"


UNNAMED: Refusal = (
    problems.MISSING_CLIENT,
    "send the credentials by which this service knows its clients, once",
)
OTHERS: Refusal = (
    problems.OTHER_CLIENT,
    "the credentials are not of the client that Counterfoil-Client names; look again",
)


class Authority(msgspec.Struct, frozen=True, kw_only=True):
    """What a client of ours says beside its request; empty for every other client.

    Attributes:
        run: The run; empty when the request belongs to none.
        fence: Its lease; present exactly when `run` is not empty.
        served: Checkpoint that carries the intent.
        intent: Digest of the intent.
        statement: Digest of the approval.
    """

    run: str = ""
    fence: Fence | None = None
    served: Served | None = None
    intent: str = ""
    statement: str = ""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One request with a key.

    Attributes:
        client: Digest that names the client.
        key: The key.
        fingerprint: Digest of the whole request.
        commits: How its effect and its receipt are committed.
        authority: What a client of ours says beside it.
    """

    client: str
    key: str
    fingerprint: str
    commits: Commits
    authority: Authority = Authority()


def call_of(scope: Scope, body: bytes, rules: Rules, secret: str) -> Call | Refusal:
    """Return the call that a request with a key makes, or why it is refused."""
    try:
        key = parse_key(values_of(scope, KEY), bare=rules.bare_keys)
    except ContractError as error:
        return problems.INVALID_KEY, error.message
    client = client_of(scope, rules, secret)
    if client is None:
        return UNNAMED
    commits = rules.commits_of(scope)
    try:
        authority = authority_of(scope)
        if not is_for(scope, client):
            return OTHERS
        if not accepts(scope, commits):
            return problems.OTHER_COMMITS, f"here they are committed {commits.value}"
    except ContractError as error:
        return problems.INVALID_HEADER, error.message
    return Call(
        client=client,
        key=key,
        fingerprint=fingerprint_of(scope, rules, body),
        commits=commits,
        authority=authority,
    )


def values_of(scope: Scope, name: bytes) -> list[bytes]:
    """Return the values of a header, in order; `name` is in lower case."""
    pairs: Sequence[tuple[bytes, bytes]] = scope["headers"]
    return [value for key, value in pairs if key.lower() == name]


def client_of(scope: Scope, rules: Rules, secret: str) -> str | None:
    """Return the digest that names a client, or None when nobody can tell who it is.

    Args:
        scope: Of the request.
        rules: Of the service.
        secret: Of the journal: who learns a digest cannot try tokens that would give it.
    """
    if rules.client is None:
        return _digest(CLIENT_LABEL, [], secret)
    if callable(rules.client):
        name = (rules.client(scope) or "").encode("utf-8", "surrogatepass")
    else:
        values = values_of(scope, rules.client.lower().encode("ascii"))
        name = values[0].strip() if len(values) == 1 else b""
    return _digest(CLIENT_LABEL, [name], secret) if name else None


def is_for(scope: Scope, client: str) -> bool:
    """Return whether a request is meant for its client: it names no other.

    Raises:
        ContractError: `Counterfoil-Client` is there twice, or is not of its form.
    """
    return not values_of(scope, CLIENT) or _single(scope, CLIENT) == client


def accepts(scope: Scope, commits: Commits) -> bool:
    """Return whether a client accepts how its effect and receipt will be committed.

    Raises:
        ContractError: `Counterfoil-Commits` is there twice, or is not of its form.
    """
    listed = _single(scope, COMMITS).split(",")
    return not values_of(scope, COMMITS) or commits.value in map(str.strip, listed)


def fingerprint_of(scope: Scope, rules: Rules, body: bytes) -> str:
    """Return the digest of a whole request."""
    path: bytes = scope.get("raw_path") or scope["path"].encode("utf-8", "surrogatepass")
    parts = [scope["method"].encode("ascii"), path, scope.get("query_string", b"")]
    for name in rules.headers:
        held = values_of(scope, name.lower().encode("ascii"))
        parts += [name.lower().encode("ascii"), str(len(held)).encode("ascii"), *held]
    return _digest(REQUEST_LABEL, [*parts, body])


def _digest(label: bytes, parts: Sequence[bytes], secret: str = "") -> str:
    hashed = hmac.new(secret.encode("ascii"), label, "sha256") if secret else hashlib.sha256(label)
    for part in parts:
        hashed.update(b"\n%d:" % len(part))
        hashed.update(part)
    return hashed.hexdigest()


def authority_of(scope: Scope) -> Authority:
    """Return what the headers `Counterfoil-*` say.

    Raises:
        ContractError: One is there twice, or is not of its form.
    """
    run, fence = _fence(_single(scope, FENCE))
    return Authority(
        run=run,
        fence=fence,
        served=_served(_single(scope, SERVED)),
        intent=_word(_single(scope, INTENT), INTENT),
        statement=_word(_single(scope, STATEMENT), STATEMENT),
    )


def checked_fence(run: str, lease_version: int, nonce: str) -> tuple[str, Fence]:
    """Return a run and its fence, if they can be.

    Raises:
        ContractError: An identifier is out of its bounds, or the version is.
    """
    if not 1 <= lease_version <= INTEGER_MAX:
        raise ContractError(f"lease_version is {lease_version}, the bounds are 1 and 2^53 - 1")
    fence = Fence(lease_version=lease_version, nonce=identifier(nonce, "nonce"))
    return identifier(run, "run"), fence


def _single(scope: Scope, name: bytes) -> str:
    values = values_of(scope, name)
    if len(values) > 1:
        raise ContractError(f"{_shown(name)} is there more than once")
    if not values:
        return ""
    text = values[0].decode("latin-1").strip()
    if not (text.isascii() and text.isprintable()):
        raise ContractError(f"{_shown(name)} holds other than printable ASCII characters")
    return text


def _shown(name: bytes) -> str:
    return name.decode("ascii").title()


def _fence(text: str) -> tuple[str, Fence | None]:
    if not text:
        return "", None
    parts = text.split(";")
    if len(parts) != 3:
        raise ContractError("Counterfoil-Fence is not RUN;VERSION;NONCE")
    run, version, nonce = parts
    return checked_fence(_unquoted(run), _number(version, "Counterfoil-Fence"), _unquoted(nonce))


def _served(text: str) -> Served | None:
    if not text:
        return None
    generation, mark, checkpoint = text.partition(";")
    if not mark:
        raise ContractError("Counterfoil-Served is not GENERATION;CHECKPOINT")
    return Served(
        generation=_number(generation, "Counterfoil-Served"),
        checkpoint=Digest(identifier(checkpoint, "Counterfoil-Served")),
    )


def _unquoted(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError as error:
        raise ContractError("Counterfoil-Fence is not UTF-8 under its percent signs") from error


def _number(text: str, field: str) -> int:
    if not (text.isdecimal() and len(text) <= 16 and int(text) <= INTEGER_MAX):
        raise ContractError(f"{field} holds {text!r:.40} where a number belongs")
    return int(text)


def _word(text: str, name: bytes) -> str:
    if len(text) > IDENTIFIER_CHARS_MAX:
        raise ContractError(
            f"{_shown(name)} has {len(text)} characters, the bound is {IDENTIFIER_CHARS_MAX}"
        )
    return text

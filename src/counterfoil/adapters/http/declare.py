"""What a user declares of a service: its requests, and what its answers mean.

Values alone; `kinds` judges whether they promise what their level can hold.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from counterfoil.adapters.http.credentials import Secret
from counterfoil.core.words import Json, Level, Risk

Header = str | Secret
"""A header's value, or where it is read right before each call."""

Mark = Literal["key", "digest", "run"]
"""What a request can carry in its body beside the planner's own members."""

KeyForm = Literal["quoted", "bare", "none"]
"""How the key stands in its header: as a structured-field string, as it is, or not at all."""


class Meaning(Enum):
    """What an answer says about a write.

    Attributes:
        DONE: It happened, now or under this key before.
        REFUSED: Nothing happened, and nothing will.
        UNAVAILABLE: Nothing happened, and the same call may be made later.
        CONFLICT: The key holds another request.
        IN_FLIGHT: The first call under the key is under way.
        UNKNOWN: It may have happened.
    """

    DONE = "done"
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"
    CONFLICT = "conflict"
    IN_FLIGHT = "in flight"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class When:
    """An answer that is meant: of a status, with a header, and a value in its JSON body.

    Attributes:
        status: HTTP status; 0 for any of 200 to 299.
        header: Name of a header that must be there; empty for none.
        at: JSON Pointer (RFC 6901) into the body; empty to look at the status alone.
        equals: The value that must stand there; None for any value but null.
    """

    status: int = 0
    header: str = ""
    at: str = ""
    equals: Json = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Fields:
    """Where a receipt, as the service shows it, holds what recovery compares.

    Each is a JSON Pointer into the receipt; empty where the service does not keep it.

    Attributes:
        id: The service's own id of the effect; the key stands for it where there is none.
        key: The key, to see that the receipt answers the question.
        digest: The intent digest, where the request carried it.
        run: The run, where the request carried it. Without it a key of one run is the
            same key in another.
        committed_at: When it happened: RFC 3339 text, seconds or milliseconds since 1970.
    """

    id: str = ""
    key: str = ""
    digest: str = ""
    run: str = ""
    committed_at: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """The request that asks the service for a receipt, by key or by business id.

    Attributes:
        url: Template with `{key}` and `{run}`, each percent-encoded; the key must be in
            it or in the body.
        method: "GET", or another that changes nothing.
        body: JSON that is sent, with `marks` put in; None for no body.
        marks: Per JSON Pointer into the body, what stands there.
        receipt: JSON Pointer to the receipt in the answer; where it leads nowhere or to
            null, there is no such effect.
        absent: Statuses that say that there is no such effect.
        linearizable: Whether the answer sees every effect that has landed.
    """

    url: str
    method: str = "GET"
    body: Json = None
    marks: Mapping[str, Mark] | None = None
    receipt: str = ""
    absent: tuple[int, ...] = (404,)
    linearizable: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Watch:
    """The request that observes the environment.

    Attributes:
        url: What is asked with GET.
        version: JSON Pointer to a whole number or a moment that every change raises.
        instance: JSON Pointer to the identity of the service; its addresses by default.
        fingerprint: JSON Pointer to what changes with the state. By default the answer's
            ETag, and the SHA-256 of its body where it has none.
        account: JSON Pointer to the account that the requests act as.
    """

    url: str
    version: str
    instance: str = ""
    fingerprint: str = ""
    account: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """One kind of request.

    The arguments of the kind are the names in the template, then those of `query`, and
    `body` for methods that have one.

    Attributes:
        name: The kind, such as "payments.charge".
        method: HTTP method, in capitals.
        url: Template: "https://api.example.com/v1/charges/{charge}". `{name}` is one
            segment; `{+name}` may hold several; `https://{host}/` takes the host too.
        risk: Risk class.
        level: What can be proved about a call whose answer was lost.
        permission: Capability that a policy must grant; the name by default.
        query: Names of query parameters that may be given.
        body: How a body is written: "json", "form", or "none" to allow none.
        key_form: How the key is written in its header.
        key_header: Name of that header.
        marks: Per JSON Pointer into the body, what the adapter puts there; for forms the
            pointer is a slash and a name. With "key" the body carries a business id.
        headers: Headers that this request has beside those of the service.
        if_match: Whether to send `If-Match` with the ETag that `watch` observed.
        look_up: How the service is asked for the receipt. A service that dedupes and has
            none is sent the same request again, while it keeps the key.
        answer: JSON Pointer to the receipt in the answer of the call itself.
        fields: Where a receipt holds what.
        means: What answers mean, where that is not what their status says; the first
            that fits counts.
        replayed: Answer that says that an earlier effect is shown; the header
            `Idempotent-Replayed: true` always does.
        passes: Answer by which a verification passes.
        call_ms: Longest that one call may take, look-ups included.
        in_flight_ms: How long after a call it may still land; None when unknown.
        key_retention_ms: How long the service keeps keys; None for ever. After it nothing
            is sent again. Needed where a write has neither `look_up` nor receipts to be
            asked for, and where it has receipts: those of the middleware are not for ever.
        cost_micros: Declared cost of one execution.
    """

    name: str
    method: str
    url: str
    risk: Risk = Risk.IRREVERSIBLE_WRITE
    level: Level = Level.BLIND
    permission: str = ""
    query: tuple[str, ...] = ()
    body: Literal["json", "form", "none"] = "json"
    key_form: KeyForm = "quoted"
    key_header: str = "Idempotency-Key"
    marks: Mapping[str, Mark] | None = None
    headers: Mapping[str, Header] | None = None
    if_match: bool = False
    look_up: Question | None = None
    answer: str = ""
    fields: Fields = Fields()
    means: tuple[tuple[When, Meaning], ...] = ()
    replayed: When | None = None
    passes: When | None = None
    call_ms: int = 10_000
    in_flight_ms: int | None = None
    key_retention_ms: int | None = None
    cost_micros: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """What holds for all requests of one service.

    Attributes:
        name: Name of the adapter.
        endpoints: Its kinds.
        receipts: Address of the receipts of a service behind Counterfoil's ASGI
            middleware; empty for every other service. The client that they name is the
            account, and their journal is part of the instance.
        watch: How the environment is observed; without it, it cannot be.
        headers: Headers of every request, such as the credentials.
        instance: Identity of the environment; the addresses of the service by default.
        account: Account to report with each state, where neither `watch` nor `receipts`
            name one.
        ask_ms: Longest look at the environment, or raising of a fence.
    """

    name: str
    endpoints: tuple[Endpoint, ...]
    receipts: str = ""
    watch: Watch | None = None
    headers: Mapping[str, Header] | None = None
    instance: str = ""
    account: str = ""
    ask_ms: int = 10_000

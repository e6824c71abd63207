"""What a user declares of a server: how it is reached, and what its tools mean.

Values alone; `kinds` judges whether they promise what their level can hold.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from counterfoil.core.words import Json, Level, Risk

Mark = Literal["key", "digest", "run"]
"""What a call can carry in its arguments beside the planner's own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Variable:
    """A secret by reference: read right before each connection, and kept nowhere.

    Attributes:
        name: Name of a variable in the environment of this process.
        form: What is handed on, "{}" standing for the secret: "Bearer {}".
    """

    name: str
    form: str = "{}"


Text = str | Variable
"""A text, or where it is read right before each connection."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stdio:
    """A server that is started as a child, and spoken to on its standard streams.

    Attributes:
        command: Program and arguments; no shell is between. A program without a slash is
            found on the PATH of this process.
        environment: All of its environment; nothing is inherited.
        folder: Its working folder; that of this process by default.
    """

    command: tuple[str, ...]
    environment: Mapping[str, Text] | None = None
    folder: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Http:
    """A server that is reached by streamable HTTP. No redirect is followed.

    Attributes:
        url: Its endpoint. Without TLS only to a loopback address; with a query, which may
            be a secret, only where the server's `instance` stands for it.
        headers: Headers of every request, such as the credentials.
        allows_plain: Whether it may be called without TLS elsewhere too.
    """

    url: str
    headers: Mapping[str, Text] | None = None
    allows_plain: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class When:
    """A result that is meant: one with a value in its structured content.

    Attributes:
        at: JSON Pointer (RFC 6901) into the structured content.
        equals: The value that must stand there; None for any value but null.
    """

    at: str
    equals: Json = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Fields:
    """Where a receipt, as the server shows it, holds what recovery compares.

    Each is a JSON Pointer into the receipt; empty where the server does not keep it. What
    lacks one of those that are declared is no receipt.

    Attributes:
        id: The server's own id of the effect; the key stands for it where there is none.
        key: The key, to see that an answer is the answer to this call. A tool that is
            looked up needs it.
        digest: The intent digest, where the call carried it.
        run: The run, where the call carried it. Without it a key of one run is the same
            key in another.
        committed_at: When it happened: RFC 3339 text, seconds or milliseconds since 1970.
    """

    id: str = ""
    key: str = ""
    digest: str = ""
    run: str = ""
    committed_at: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """The read tool that is asked for a receipt.

    Attributes:
        tool: Its name at the server.
        arguments: Its arguments, but for the marks.
        marks: Per argument, what stands there: "key" at least once, or "run".
        receipt: JSON Pointer to the receipt in its structured content. A null there, or an
            empty array around it, says that there is no such effect.
        is_missing_absent: Whether an object without that member says it too.
        linearizable: Whether the answer sees every effect that has landed.
    """

    tool: str
    marks: Mapping[str, Mark]
    arguments: Mapping[str, Json] | None = None
    receipt: str = ""
    is_missing_absent: bool = False
    linearizable: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Watch:
    """The read tool that observes the environment.

    Attributes:
        tool: Its name at the server.
        version: JSON Pointer to a whole number or a moment that every change raises.
        arguments: Its arguments.
        fingerprint: JSON Pointer to what changes with the state; the digest of the whole
            structured content by default.
        account: JSON Pointer to the account that the tools act as.
    """

    tool: str
    version: str
    arguments: Mapping[str, Json] | None = None
    fingerprint: str = ""
    account: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """One tool of a server as a kind.

    Attributes:
        name: The kind, such as "tickets.create".
        tool: The tool's name at the server.
        risk: Risk class. What the server says of the tool may raise it.
        level: What can be proved about a call whose answer was lost.
        permission: Capability that a policy must grant; the name by default.
        marks: Per argument of the tool, what the adapter puts there; the planner cannot.
            The key, the digest and the run travel in `_meta` in any case.
        look_up: How the server is asked for the receipt.
        answer: JSON Pointer to the receipt in the structured content of the call itself;
            with neither it nor `fields`, any whole answer that is no error will do.
        fields: Where a receipt holds what.
        replayed: Result that shows an earlier effect of the key.
        conflict: Result, also one that is an error, that says that the key holds another
            call.
        passes: Result by which a verification passes.
        is_error_final: Whether an error that the tool itself reports says that nothing
            happened and nothing will. Otherwise such a call is unknown.
        refused_codes: Codes of JSON-RPC errors that say the same.
        call_ms: Longest that one call may take, what is asked around it included.
        in_flight_ms: How long after a call it may still land; None when unknown.
        key_retention_ms: How long the server keeps keys; None for ever. After it nothing
            is sent again.
        cost_micros: Declared cost of one execution.
    """

    name: str
    tool: str
    risk: Risk = Risk.IRREVERSIBLE_WRITE
    level: Level = Level.BLIND
    permission: str = ""
    marks: Mapping[str, Mark] | None = None
    look_up: Ask | None = None
    answer: str = ""
    fields: Fields = Fields()
    replayed: When | None = None
    conflict: When | None = None
    passes: When | None = None
    is_error_final: bool = False
    refused_codes: tuple[int, ...] = ()
    call_ms: int = 10_000
    in_flight_ms: int | None = None
    key_retention_ms: int | None = None
    cost_micros: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """What holds for all tools of one server.

    Attributes:
        name: Name of the adapter.
        reach: How it is reached.
        tools: Its kinds.
        watch: How the environment is observed; without it, its identity alone is.
        instance: Identity of the environment; by default the address of the server, or
            its name where it is a child. What the server says of its tools is added.
        account: Account to report with each state, where `watch` names none.
    """

    name: str
    reach: Stdio | Http
    tools: tuple[Tool, ...]
    watch: Watch | None = None
    instance: str = ""
    account: str = ""

"""From declared tools to kinds: what each promises, takes and touches.

Nothing is declared that its level cannot hold. What the server says of a tool can raise
the risk of its kind and lower its level, and never the other way.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from counterfoil.adapters.mcp.declare import Ask, Fields, Http, Server, Stdio, Text, Tool, Variable
from counterfoil.adapters.mcp.listing import (
    Listing,
    is_said_to_write,
    lowered_level,
    raised_risk,
)
from counterfoil.adapters.mcp.schema import checker
from counterfoil.core.bounds import ARGUMENTS_BYTES_MAX
from counterfoil.core.canonical import canonical, native, normalise
from counterfoil.core.errors import ConfigError, ContractError
from counterfoil.core.intent import KindSpec
from counterfoil.core.words import Json, Level, Risk, identifier
from counterfoil.pointers import check_pointer

TOOLS = "tools"
"""Scope list: names of tools at the server."""

AMBIGUOUS_CODES = frozenset({-32700, -32600, -32601, -32603, -32000, -32001, 0})
"""Codes that the SDK itself makes up: its client when an answer is lost, cannot be read or
is a page of somebody else's (404 is -32601), its server (0) for whatever a tool raises."""

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """A tool with all that was read out of it.

    Attributes:
        tool: As it was declared.
        spec: What the engine knows of it.
    """

    tool: Tool
    spec: KindSpec


def check_server(server: Server) -> None:
    """Refuse what is wrong with a declaration, whatever the server says.

    Raises:
        ConfigError: It is not well formed, or promises what cannot be held.
    """
    try:
        identifier(server.name, "name")
        for tool in server.tools:
            identifier(tool.name, "name of a tool")
            identifier(tool.tool, f"tool of {tool.name}")
    except ContractError as error:
        raise ConfigError(f"server {server.name!r:.80}: {error.message}") from error
    if len({tool.name for tool in server.tools}) != len(server.tools):
        raise ConfigError(f"server {server.name} declares a kind twice")
    _check_reach(server)
    for tool in server.tools:
        _check_tool(tool)
        if tool.risk.writes:
            _check_level(tool)
    watch = server.watch
    if watch is not None:
        check_pointer(watch.version, "watch.version")
        check_pointer(watch.fingerprint, "watch.fingerprint")
        check_pointer(watch.account, "watch.account")


def kinds_of(server: Server, listing: Listing) -> dict[str, Kind]:
    """Return the kinds of a server by name.

    Raises:
        ConfigError: The server has no such tool, or one that cannot be what it is
            declared to be.
    """
    asks = [(tool.name, tool.look_up.tool) for tool in server.tools if tool.look_up]
    asks += [("watch", server.watch.tool)] if server.watch else []
    for name, asked in asks:
        shown = listing.tools.get(asked)
        if shown is None or is_said_to_write(shown):
            raise ConfigError(f"{name}: the server has no read tool {asked!r:.80} to ask")
    return {tool.name: _kind(server, tool, listing) for tool in server.tools}


def _kind(server: Server, tool: Tool, listing: Listing) -> Kind:
    shown = listing.tools.get(tool.tool)
    if shown is None:
        raise ConfigError(f"{tool.name}: the server has no tool {tool.tool!r:.80}")
    risk = raised_risk(tool, shown)
    if risk.writes and not tool.risk.writes and tool.look_up is not None:
        raise ConfigError(f"{tool.name} is declared as a read, and the server says it writes")
    try:
        check = checker(shown.input_schema, tool.marks or {})
    except ConfigError as error:
        raise ConfigError(f"{tool.name}: {error.message}") from error
    return Kind(
        tool=tool,
        spec=KindSpec(
            name=tool.name,
            adapter=server.name,
            risk=risk,
            level=lowered_level(tool, shown),
            permission=tool.permission or tool.name,
            normalise=_normaliser(tool, check),
            touches=_toucher(tool),
            call_ms=tool.call_ms,
            in_flight_ms=tool.in_flight_ms,
            key_retention_ms=tool.key_retention_ms,
            linearizable=tool.look_up.linearizable if tool.look_up else not risk.writes,
            cost_micros=tool.cost_micros,
        ),
    )


# ---------------------------------------------------------------- what is declared


def _check_reach(server: Server) -> None:
    reach = server.reach
    if isinstance(reach, Stdio):
        if not reach.command or not all(part and "\0" not in part for part in reach.command):
            raise ConfigError(f"command of {server.name} is empty, or has an empty part or a NUL")
        _check_texts(reach.environment, f"environment of {server.name}")
        return
    _check_url(server, reach)
    _check_texts(reach.headers, f"headers of {server.name}")


def _check_url(server: Server, reach: Http) -> None:
    """Refuse what is no address, or holds what may be a secret; none of it is quoted."""
    name = server.name
    try:
        url = urlsplit(reach.url)
        host, is_sound = url.hostname or "", url.port != 0
    except ValueError:
        raise ConfigError(f"url of {name} is no address") from None
    if "@" in url.netloc:
        raise ConfigError(
            f"url of {name} holds a user or a password", move="hand them on by a header"
        )
    if not is_sound or url.scheme not in ("http", "https") or not host:
        raise ConfigError(f"url of {name} is not of the form https://HOST/PATH")
    if url.fragment or not (reach.url.isascii() and reach.url.isprintable()):
        raise ConfigError(f"url of {name} has a fragment or odd characters")
    if "?" in reach.url and not server.instance:
        raise ConfigError(
            f"url of {name} has a query, which may be a secret and would stand in each state",
            move="set `instance`, which then stands for the address",
        )
    if url.scheme == "http" and host not in LOOPBACK and not reach.allows_plain:
        raise ConfigError(
            f"{name} would be called without TLS", move="use https, or set allows_plain"
        )


def _check_texts(texts: Mapping[str, Text] | None, field: str) -> None:
    for name, text in (texts or {}).items():
        if not name or not name.isascii() or not name.isprintable() or set(name) & set("= :"):
            raise ConfigError(f"{field}: {name!r:.60} is no name")
        shown = text.form if isinstance(text, Variable) else text
        if not shown.isprintable():
            raise ConfigError(f"{field}: {name} holds unprintable characters")
        if isinstance(text, Variable) and ("{}" not in text.form or not text.name):
            raise ConfigError(f"{field}: {name} names no variable, or has no {{}} in its form")


def _check_tool(tool: Tool) -> None:
    name = tool.name
    if tool.risk is Risk.CONTROL:
        raise ConfigError(f"{name} is of risk control, which belongs to the runtime")
    if (tool.risk is Risk.VERIFICATION) != (tool.passes is not None):
        raise ConfigError(f"{name}: `passes` belongs to verifications, and each needs it")
    if not tool.risk.writes and (tool.marks or tool.look_up):
        raise ConfigError(f"{name} is a read, which has no key, no marks and no look_up")
    if tool.call_ms < 1:
        raise ConfigError(f"{name} has a call_ms of {tool.call_ms}, below 1")
    if odd := sorted(AMBIGUOUS_CODES.intersection(tool.refused_codes)):
        raise ConfigError(f"refused_codes of {name}: {odd[0]} is also said when an answer is lost")
    checked: list[tuple[str, str]] = [("answer", tool.answer)]
    checked += [(f"fields.{each}", getattr(tool.fields, each)) for each in Fields.__annotations__]
    checked += [("when", when.at) for when in (tool.replayed, tool.conflict, tool.passes) if when]
    for where, pointer in checked:
        check_pointer(pointer, f"{where} of {name}")
    if tool.look_up is not None:
        _check_ask(name, tool.look_up)


def _check_ask(name: str, asked: Ask) -> None:
    check_pointer(asked.receipt, f"look_up.receipt of {name}")
    marks = asked.marks
    if "key" not in marks.values() or "digest" in marks.values():
        raise ConfigError(f"look_up of {name} asks for a key, and knows no digest")
    if twice := sorted(set(marks) & set(asked.arguments or {})):
        raise ConfigError(f"look_up of {name}: the argument {twice[0]!r:.80} is given twice")


def _check_level(tool: Tool) -> None:
    name, level, asked = tool.name, tool.level, tool.look_up
    if level in (Level.CONDITIONAL, Level.TRANSACTIONAL):
        raise ConfigError(f"{name} is {level}, which no tool can be shown to be")
    if level is Level.BLIND:
        if asked is not None:
            raise ConfigError(f"{name} can be asked, so it is more than blind")
        return
    if asked is None:
        raise ConfigError(
            f"{name} is {level} and cannot be asked",
            move="declare its look_up, or its level as blind",
        )
    if not tool.fields.key:
        raise ConfigError(
            f"{name} has a look_up and no fields.key, so that whose receipt it shows is not seen",
            move="declare where the receipt holds the key",
        )
    if not asked.linearizable and level is not Level.QUERYABLE:
        raise ConfigError(f"{name}: without a linearizable look-up it is queryable at most")


# ---------------------------------------------------------------- what is proposed


def _normaliser(
    tool: Tool, check: Callable[[dict[str, Json]], None]
) -> Callable[[dict[str, Json]], dict[str, Json]]:
    marks = tool.marks or {}

    def checked(arguments: dict[str, Json]) -> dict[str, Json]:
        for name in arguments:
            if name in marks:
                raise ContractError(f"arguments.{name} is put in by the adapter, not proposed")
        given: dict[str, Any] = {
            name: normalise(value, f"arguments.{name}") for name, value in arguments.items()
        }
        if native(given) != given:
            raise ContractError("the arguments hold bytes, which no tool takes")
        size = len(canonical(given))
        if size > ARGUMENTS_BYTES_MAX:
            raise ContractError(
                f"the arguments have {size} bytes, the bound is {ARGUMENTS_BYTES_MAX}"
            )
        check(given)
        return given

    return checked


def _toucher(tool: Tool) -> Callable[[dict[str, Json]], tuple[tuple[str, str], ...]]:
    def touches(arguments: dict[str, Json]) -> tuple[tuple[str, str], ...]:
        return ((TOOLS, tool.tool),)

    return touches

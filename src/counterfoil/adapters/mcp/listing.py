"""What a server says of its tools: data that pins them, and that may make us warier.

The declarations of all tools that are used have one digest, which is part of the
environment's identity. A tool that says something else of itself is in another one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mcp.types import Tool as Shown

from counterfoil.adapters.mcp.declare import Server, Tool
from counterfoil.core.canonical import canonical, digest, storable
from counterfoil.core.errors import ContractError, UnavailableError
from counterfoil.core.words import Level, Risk

PIN_CHARS = 32
"""128 bits of a digest: nobody finds two declarations with one of these."""

BASE_CHARS_MAX = 150
"""An instance is an identifier, and the pin must fit behind its base."""

SAYING = {"name", "title", "description", "input_schema", "output_schema", "annotations"}
"""What of a declaration is pinned; icons and notes of a server's own are not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """The tools that are used, as the server declares them.

    Attributes:
        tools: By their names at the server; missing ones are missing.
        pin: Start of the digest of all of that.
    """

    tools: Mapping[str, Shown]
    pin: str


def listing_of(server: Server, shown: Iterable[Shown]) -> Listing:
    """Return what a server says of the tools that are used.

    Raises:
        UnavailableError: A tool is listed twice, or its declaration cannot be read.
    """
    used = used_tools(server)
    tools: dict[str, Shown] = {}
    for tool in shown:
        if tool.name in used and tool.name in tools:
            raise UnavailableError(f"the server lists the tool {tool.name!r:.80} twice")
        if tool.name in used:
            tools[tool.name] = tool
    said = {
        name: tool.model_dump(mode="json", by_alias=True, exclude_none=True, include=SAYING)
        for name, tool in tools.items()
    }
    try:
        raw = canonical(storable(said))
    except ContractError as error:
        raise UnavailableError(f"the tools cannot be read: {error.message}") from error
    return Listing(tools=tools, pin=digest(raw)[:PIN_CHARS])


def used_tools(server: Server) -> frozenset[str]:
    """Return the names of all tools that are called, look-ups and observations included."""
    names = [tool.tool for tool in server.tools]
    names += [tool.look_up.tool for tool in server.tools if tool.look_up]
    names += [server.watch.tool] if server.watch else []
    return frozenset(names)


def pinned(base: str, listing: Listing) -> str:
    """Return the identity of an environment in which the tools are these."""
    if len(base) > BASE_CHARS_MAX:
        told_apart = digest(base.encode())[:PIN_CHARS]
        base = f"{base[: BASE_CHARS_MAX - PIN_CHARS - 1]}~{told_apart}"
    return f"{base}#{listing.pin}"


def raised_risk(tool: Tool, shown: Shown) -> Risk:
    """Return the risk class, as high as it was declared and as high as the server says.

    What is said not to be read-only is no read. What is said to destroy cannot be taken
    back; where nothing is said of that, the protocol takes it to destroy.
    """
    says = shown.annotations
    if says is None or says.read_only_hint:
        return tool.risk
    if tool.risk.writes:
        return Risk.IRREVERSIBLE_WRITE if says.destructive_hint else tool.risk
    if says.read_only_hint is False or says.destructive_hint:
        is_mild = says.destructive_hint is False
        return Risk.REVERSIBLE_WRITE if is_mild else Risk.IRREVERSIBLE_WRITE
    return tool.risk


def lowered_level(tool: Tool, shown: Shown) -> Level:
    """Return the level; a tool that is said not to be idempotent is sent no call again."""
    says = shown.annotations
    is_said_to_repeat = says is not None and says.idempotent_hint is False
    if is_said_to_repeat and tool.level is Level.DEDUPLICATING:
        return Level.QUERYABLE
    return tool.level


def is_said_to_write(shown: Shown) -> bool:
    """Return whether the server says that a tool changes something."""
    says = shown.annotations
    if says is None or says.read_only_hint:
        return False
    return says.read_only_hint is False or bool(says.destructive_hint)

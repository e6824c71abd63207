"""Tools of MCP servers as kinds: over stdio and streamable HTTP, by the official SDK.

Level by declaration: `deduplicating`, `queryable` or `blind`. Needs the extra `mcp`.
"""

import ssl
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from counterfoil.adapters.mcp.declare import (
    Ask,
    Fields,
    Http,
    Server,
    Stdio,
    Tool,
    Variable,
    Watch,
    When,
)
from counterfoil.core.errors import ConfigError

if TYPE_CHECKING:
    from counterfoil.adapters.mcp.adapter import McpAdapter

__all__ = [
    "Ask",
    "Fields",
    "Http",
    "Server",
    "Stdio",
    "Tool",
    "Variable",
    "Watch",
    "When",
    "open_mcp",
]


def unique_name() -> str:
    """Return a name that no other session has."""
    return uuid.uuid4().hex


def open_mcp(
    server: Server,
    *,
    now_ms: Callable[[], int],
    tls: ssl.SSLContext | None = None,
    unique: Callable[[], str] = unique_name,
) -> "McpAdapter":
    """Open a server as an environment: connect, and see what it says of its tools.

    Args:
        server: What is declared of it.
        now_ms: Clock for receipts of servers that name no time, UTC, in milliseconds.
        tls: Whom to trust; by default those whom the system trusts.
        unique: Names a session as no other one is named.

    Raises:
        ConfigError: A declaration is not well formed or promises what cannot be held, the
            server has no such tools, or the SDK is not installed.
        UnavailableError: The server does not answer.
    """
    try:
        from counterfoil.adapters.mcp import adapter as adapters  # noqa: PLC0415 - an extra
        from counterfoil.adapters.mcp.kinds import check_server  # noqa: PLC0415 - an extra
        from counterfoil.adapters.mcp.loop import Loop  # noqa: PLC0415 - an extra
        from counterfoil.adapters.mcp.site import Site  # noqa: PLC0415 - an extra
    except ImportError as error:
        if (error.name or "").startswith("counterfoil"):
            raise
        raise ConfigError(
            f"the mcp adapter needs {error.name}, which is not installed",
            move="install the extra: pip install 'counterfoil[mcp]'",
        ) from error
    check_server(server)
    site = Site(server, tls, unique)
    loop = Loop(f"mcp-{server.name}")
    try:
        seconds = adapters.OBSERVE_MS / 1000
        return loop.run(adapters.opened(server, site, loop, now_ms), seconds)
    except BaseException:
        loop.close(site.close(), adapters.CLOSE_SECONDS)
        raise

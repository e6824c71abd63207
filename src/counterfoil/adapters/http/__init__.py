"""Services of HTTP: requests under idempotency keys, and receipts by asking.

Level by declaration: `deduplicating`, `queryable` or `blind`; `transactional` where the
service stands behind Counterfoil's ASGI middleware. Needs the extra `http`.
"""

import ssl
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from counterfoil.adapters.http.address import Reach, Resolve, networks_of, system_resolve
from counterfoil.adapters.http.credentials import Secret
from counterfoil.adapters.http.declare import (
    Endpoint,
    Fields,
    Meaning,
    Question,
    Service,
    Watch,
    When,
)
from counterfoil.core.errors import ConfigError

if TYPE_CHECKING:
    from counterfoil.adapters.http.adapter import HttpAdapter

__all__ = [
    "Endpoint",
    "Fields",
    "Meaning",
    "Question",
    "Secret",
    "Service",
    "Watch",
    "When",
    "open_http",
]


def open_http(
    service: Service,
    *,
    now_ms: Callable[[], int],
    networks: tuple[str, ...] = (),
    tls: ssl.SSLContext | None = None,
    resolve: Resolve = system_resolve,
    pause: Callable[[float], None] = time.sleep,
) -> "HttpAdapter":
    """Open a service as an environment; nothing is sent yet.

    Args:
        service: What is declared of it.
        now_ms: Clock for receipts of services that name no time, UTC, in milliseconds.
        networks: Networks, such as "10.1.0.0/16", that may be called though they are not
            of the public internet, or without TLS. None by default.
        tls: Whom to trust; by default those whom the system trusts.
        resolve: Finds the addresses of a name.
        pause: Waits for so many seconds, between two look-ups.

    Raises:
        ConfigError: A declaration is not well formed or promises what cannot be held, or
            httpx is not installed.
    """
    reach = Reach(networks=networks_of(networks), resolve=resolve)
    try:
        from counterfoil.adapters.http.adapter import HttpAdapter  # noqa: PLC0415 - an extra
        from counterfoil.adapters.http.wire import open_exchange  # noqa: PLC0415 - an extra
    except ImportError as error:
        if (error.name or "").startswith("counterfoil"):
            raise
        raise ConfigError(
            f"the http adapter needs {error.name}, which is not installed",
            move="install the extra: pip install 'counterfoil[http]'",
        ) from error
    return HttpAdapter(service, open_exchange(reach, tls), now_ms=now_ms, pause=pause)

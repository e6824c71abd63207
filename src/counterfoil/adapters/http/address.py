"""Which addresses a call may go to, and how a name becomes one of them.

A name is resolved once per call. Every address that it has is judged, and the
connection goes to one of those that were judged, so that a name that changes between
check and use changes nothing.

Source: the IANA registries of special-purpose addresses for IPv4 and IPv6 (RFC 6890), and
that of IPv6 address space, of which only 2000::/3 is global unicast.
"""

import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from threading import Thread

from counterfoil.core.errors import ConfigError, PermissionDeniedError, UnavailableError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Resolve = Callable[[str, int], tuple[str, ...]]
"""From host and port to the addresses of a name; raises OSError."""

ADDRESSES_MAX = 64
"""Addresses of one name; more are no service."""

TRANSLATED = IPv6Network("64:ff9b::/96")
"""IPv4 addresses as NAT64 writes them (RFC 6052): each is judged as what it stands for."""

GLOBAL_UNICAST = IPv6Network("2000::/3")
"""All else of IPv6 is for one link, site, machine or group, or for nothing yet."""

SPECIAL: tuple[Network, ...] = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.31.196.0/24",
            "192.52.193.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "192.175.48.0/24",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",
            "240.0.0.0/4",
            "2001::/23",
            "2001:db8::/32",
            "2002::/16",
            "2620:4f:8000::/48",
            "3fff::/20",
        ),
    )
)
"""Ranges with a purpose of their own, groups and what is kept back for later among them.

Of IPv6 those within `GLOBAL_UNICAST`: Teredo, ORCHID and other protocols, examples, 6to4, and
servers that answer for private names. None of them holds a service that a plan may call.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reach:
    """Where calls may go.

    Attributes:
        networks: Networks that are allowed though they are not public, or without TLS.
        resolve: Finds the addresses of a name.
    """

    networks: tuple[Network, ...]
    resolve: Resolve


def networks_of(texts: tuple[str, ...]) -> tuple[Network, ...]:
    """Return networks as they are written in a configuration.

    Raises:
        ConfigError: A text is no address and no network.
    """
    try:
        return tuple(ip_network(text) for text in texts)
    except ValueError as error:
        raise ConfigError(f"networks: {error!s:.200}") from error


def system_resolve(host: str, port: int) -> tuple[str, ...]:
    """Return the addresses that the system's resolver gives."""
    rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(row[4][0]) for row in rows))


def checked(reach: Reach, host: str, port: int, *, is_plain: bool, seconds: float) -> list[str]:
    """Return the addresses of a host, every one of which may be called.

    Args:
        reach: What is allowed.
        host: Name or address.
        port: Port.
        is_plain: Whether the call is not encrypted.
        seconds: Longest that the resolver may take.

    Raises:
        PermissionDeniedError: One of the addresses may not be called.
        UnavailableError: The name has no address, or the resolver does not answer.
    """
    addresses: list[str] = []
    for text in _found(reach.resolve, host, port, seconds):
        address = ip_address(text)
        is_named = any(address in network for network in reach.networks)
        if not is_named and not is_public(address):
            raise PermissionDeniedError(
                f"{host:.253} leads to {address}, which is no public address",
                move="call another service, or have its network allowed by a person",
            )
        if not is_named and is_plain:
            raise PermissionDeniedError(
                f"{host:.253} would be called without TLS",
                move="use https, or have its network allowed by a person",
            )
        addresses.append(text)
    return addresses


def is_public(address: Address) -> bool:
    """Return whether an address is of the public internet, and has no other purpose."""
    if isinstance(address, IPv6Address):
        if address in TRANSLATED:
            return is_public(IPv4Address(int(address) & 0xFFFF_FFFF))
        if address not in GLOBAL_UNICAST:
            return False
    return not any(address in network for network in SPECIAL)


def _found(resolve: Resolve, host: str, port: int, seconds: float) -> tuple[str, ...]:
    """Ask the resolver, which has no limit of its own, for a limited time."""
    with suppress(ValueError):
        return (str(ip_address(host.strip("[]"))),)
    answers: list[tuple[str, ...]] = []

    def ask() -> None:
        with suppress(OSError, UnicodeError):
            answers.append(resolve(host, port))

    asking = Thread(target=ask, daemon=True)
    asking.start()
    asking.join(max(0.0, seconds))
    found = answers[0] if answers else ()
    if not found or len(found) > ADDRESSES_MAX:
        raise UnavailableError(f"the addresses of {host:.253} cannot be found now")
    return found

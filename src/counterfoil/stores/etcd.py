"""Open a head register in etcd, as its url says.

etcd keeps what it acknowledges on most of its members, so heads outlive the machine that
wrote them. Checkpoints do not belong there.
"""

import os
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from counterfoil.core.errors import HeadMissingError, UnknownOutcomeError
from counterfoil.stores.etcd_address import PASSWORD_VARIABLE, parse_address
from counterfoil.stores.etcd_gateway import PATIENCE, Gateway, Patience, open_gateway
from counterfoil.stores.etcd_heads import BATCH_MAX, EtcdHeads
from counterfoil.stores.etcd_judging import one_row
from counterfoil.stores.etcd_records import Keys, decode_incarnation
from counterfoil.stores.etcd_wire import Txn, are_absent, get, is_absent, put

__all__ = ["BATCH_MAX", "PASSWORD_VARIABLE", "EtcdHeads", "Patience", "open_heads"]


def wall_ms() -> int:
    """Return this machine's wall clock, UTC, in milliseconds: what heads tell people."""
    return time.time_ns() // 1_000_000


def random_name() -> str:
    """Return random text that names a register."""
    return secrets.token_hex(16)


def open_heads(
    url: str,
    *,
    create: bool,
    environment: Mapping[str, str] = os.environ,
    now_ms: Callable[[], int] = wall_ms,
    incarnation: Callable[[], str] = random_name,
    patience: Patience = PATIENCE,
) -> EtcdHeads:
    """Open the head register that a url names.

    Args:
        url: `etcd://USER@HOST:PORT,HOST:PORT/PREFIX?tls=true&ca=FILE&cert=FILE&key=FILE`.
            One or more hosts; port 2379, prefix `counterfoil` and no TLS by default.
        create: Whether to set the register up if there is none below the prefix.
        environment: Variables; the user's password is in `COUNTERFOIL_ETCD_PASSWORD`.
        now_ms: The machine's wall clock, UTC, in milliseconds. Nothing is judged by it.
        incarnation: Gives random text; called once in the life of the register.
        patience: How long to wait for answers.

    Raises:
        HeadMissingError: There is no register, and it is not to be created.
        ConfigError: The url, a certificate or a password is not as it must be, or etcd
            does not let the user in.
        FormatError: What lies there is not as we write it.
        UnavailableError: No node answers, or not enough of them.
    """
    address = parse_address(url, environment)
    gateway = open_gateway(address, patience)
    try:
        if create:
            _set_up(gateway, incarnation())
        return EtcdHeads(gateway, _name_of(gateway), now_ms)
    except BaseException:
        gateway.close()
        raise


def _set_up(gateway: Gateway, name: str) -> None:
    """Name the register, unless it has a name; what became of it is read afterwards.

    Heads without a name are what is left of a register, and are not taken for a new one.
    """
    keys = Keys(prefix=gateway.address.prefix)
    compare = is_absent(keys.register), are_absent(keys.of("head", ""), keys.end("head"))
    with suppress(UnknownOutcomeError):
        gateway.act(Txn(compare=compare, success=(put(keys.register, name.encode("ascii")),)))


def _name_of(gateway: Gateway) -> str:
    address = gateway.address
    row = one_row(gateway.ask(Txn(success=(get(Keys(prefix=address.prefix).register),))).ranges[0])
    if row is None:
        raise HeadMissingError(
            f"there is no head register below {address.prefix}/ in etcd at {address.hosts}"
        )
    return decode_incarnation(row)

"""A place of a drill's own on a server that is somebody's: made, used, and cleared away."""

import os
import secrets
from urllib.parse import parse_qsl, urlsplit

from counterfoil.core.errors import CounterfoilError, UnavailableError
from counterfoil.urls import Scheme, shown

LETTERS = 8
LOCK_WAIT = "20s"
"""How long to wait for what killed workers left locked; a server soon sees that they are gone."""


def new_mark() -> str:
    """Return letters that no other drill has."""
    return secrets.token_hex(LETTERS // 2)


def own_url(url: str, mark: str) -> str:
    """Return the URL of a place of the drill's own at the same server.

    A file stays what it is, and so does a schema that is named.
    """
    parts = urlsplit(url)
    if parts.scheme == Scheme.ETCD:
        prefix = parts.path.strip("/") or "counterfoil"
        return parts._replace(path=f"/{prefix}-drill-{mark}").geturl()
    if parts.scheme == Scheme.POSTGRESQL and "schema" not in dict(parse_qsl(parts.query)):
        before = f"{parts.query}&" if parts.query else ""
        return parts._replace(query=f"{before}schema=counterfoil_drill_{mark}").geturl()
    return url


def clear(url: str) -> str:
    """Clear a place of the drill's own away, and return a sentence if it is still there."""
    try:
        if urlsplit(url).scheme == Scheme.ETCD:
            _delete_prefix(url)
        else:
            _drop_schema(url)
    except CounterfoilError as error:
        return f"{shown(url)} could not be cleared away: {error.message}"
    return ""


def _drop_schema(url: str) -> None:
    import psycopg  # noqa: PLC0415 - an extra
    from psycopg import sql  # noqa: PLC0415 - an extra

    from counterfoil.stores.postgres_url import parse_url  # noqa: PLC0415 - needs that extra

    place = parse_url(url)
    try:
        with psycopg.connect(place.conninfo, autocommit=True) as connection:
            connection.execute(sql.SQL("SET lock_timeout = {}").format(sql.Literal(LOCK_WAIT)))
            connection.execute(
                sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(place.schema))
            )
    except psycopg.Error as error:
        raise UnavailableError(f"the schema {place.schema} is not dropped") from error


def _delete_prefix(url: str) -> None:
    from counterfoil.stores.etcd_address import parse_address  # noqa: PLC0415 - an extra
    from counterfoil.stores.etcd_gateway import PATIENCE, open_gateway  # noqa: PLC0415 - an extra
    from counterfoil.stores.etcd_wire import Txn  # noqa: PLC0415 - an extra

    address = parse_address(url, os.environ)
    gateway = open_gateway(address, PATIENCE)
    first, end = f"{address.prefix}/".encode(), f"{address.prefix}0".encode()  # "0" follows "/"
    try:
        gateway.act(Txn(success=({"request_delete_range": {"key": first, "range_end": end}},)))
    finally:
        gateway.close()

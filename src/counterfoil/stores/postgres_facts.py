"""Ask a PostgreSQL server what it is, over a connection of its own that writes nothing."""

from collections.abc import Callable

import msgspec
import psycopg

from counterfoil.core.errors import UnavailableError
from counterfoil.stores.facts import PostgresFacts
from counterfoil.stores.postgres_driver import connect, translated, typed
from counterfoil.stores.postgres_url import Place, parse_url

_SERVER = """
SELECT (SELECT system_identifier::text FROM pg_control_system()),
    (SELECT oid::text FROM pg_database WHERE datname = current_database()),
    current_setting('server_version_num')::integer,
    pg_is_in_recovery(),
    current_setting('fsync'),
    current_setting('full_page_writes'),
    current_setting('synchronous_commit'),
    current_setting('synchronous_standby_names') <> '',
    pg_backend_pid(),
    current_user::text,
    coalesce((SELECT pg_has_role(nspowner, 'MEMBER') FROM pg_namespace WHERE nspname = %s), false)
"""
_CLOCK = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_IS_THERE = "SELECT to_regclass('{schema}.counterfoil_schema') IS NOT NULL"
_VERSIONS = "SELECT name, version FROM {schema}.counterfoil_schema ORDER BY name"


class _Server(msgspec.Struct, frozen=True, array_like=True):
    cluster: str
    database: str
    version: int
    is_standby: bool
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    synchronous_standbys: bool
    process_id: int
    role: str
    owns_schema: bool


def postgres_facts(url: str, now_ms: Callable[[], int]) -> PostgresFacts:
    """Return what the server of `url` says of itself.

    Args:
        url: As `open_store` takes it.
        now_ms: This machine's wall clock, UTC, in milliseconds.

    Raises:
        ConfigError: The url is malformed, or the server does not let us in.
        UnavailableError: It cannot be reached.
    """
    place = parse_url(url)
    with connect(place) as connection:
        try:
            return _asked(connection, place, now_ms)
        except psycopg.Error as error:
            raise translated(error, place, writes=False) from error


def _asked(
    connection: "psycopg.Connection[tuple[object, ...]]", place: Place, now_ms: Callable[[], int]
) -> PostgresFacts:
    def rows(query: str, *bindings: str) -> list[tuple[object, ...]]:
        found = connection.execute(place.sql(query), bindings).fetchall()
        return [tuple(row) for row in found]

    server = typed(_one(rows(_SERVER, place.schema), place), _Server)
    sent_ms = now_ms()
    (clock_ms,) = typed(_one(rows(_CLOCK), place), tuple[int])
    came_ms = now_ms()
    (is_there,) = typed(_one(rows(_IS_THERE), place), tuple[bool])
    versions = [typed(row, tuple[str, int]) for row in rows(_VERSIONS)] if is_there else []
    return PostgresFacts(
        name=place.name,
        identity=(server.cluster, server.database, place.schema),
        version=server.version,
        is_standby=server.is_standby,
        fsync=server.fsync,
        full_page_writes=server.full_page_writes,
        synchronous_commit=server.synchronous_commit,
        synchronous_standbys=server.synchronous_standbys,
        clock_ahead_ms=clock_ms - (sent_ms + came_ms) // 2,
        round_trip_ms=came_ms - sent_ms,
        # A pooler answers the start of a session itself, with a number of its own.
        has_pooler=server.process_id != connection.info.backend_pid,
        is_encrypted=bool(connection.pgconn.ssl_in_use),
        verifies_server=connection.info.get_parameters().get("sslmode") == "verify-full",
        role=server.role,
        owns_schema=server.owns_schema,
        versions=dict(versions),
    )


def _one(rows: list[tuple[object, ...]], place: Place) -> tuple[object, ...]:
    """Return the only row of an answer.

    Raises:
        UnavailableError: What answers is no server that we know.
    """
    if len(rows) != 1:
        raise UnavailableError(f"{place.name} gave no answer to a question of one row")
    return rows[0]

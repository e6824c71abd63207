"""Databases: statements that an operator registers, each change and its receipt one commit.

Level `transactional`. PostgreSQL by psycopg, SQLite by apsw, others by a driver of PEP
249. Receipts, fences and forbidden keys lie in tables of the database itself, which
`install_sql` makes. Planners name statements and give values; SQL is never theirs.
"""

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

from counterfoil.adapters.sql import kinds as _kinds
from counterfoil.adapters.sql.adapter import SqlAdapter
from counterfoil.adapters.sql.database import Database
from counterfoil.adapters.sql.dbapi import Dbapi, DbapiDatabase
from counterfoil.adapters.sql.installing import Installed, install
from counterfoil.adapters.sql.kinds import CALL_MS, NAME
from counterfoil.adapters.sql.sqlite import SqliteDatabase, is_open_otherwise
from counterfoil.adapters.sql.statements import Statement, check_text, registered
from counterfoil.adapters.sql.trouble import Trouble, meaning
from counterfoil.core.errors import ConfigError, ContractError
from counterfoil.core.words import Risk, identifier

__all__ = ["Dbapi", "Installed", "SqlAdapter", "Statement", "install_sql", "open_sql"]

SQLITE = "sqlite:"
POSTGRESQL = ("postgresql://", "postgres://")

CALL_MS_MIN, CALL_MS_MAX = 100, 600_000
"""Shorter calls only fail, and longer ones outlast leases."""


def open_sql(
    target: str | Dbapi,
    *,
    statements: Mapping[str, Statement],
    now_ms: Callable[[], int],
    name: str = NAME,
    watch: str = "",
    risk: Risk = Risk.IRREVERSIBLE_WRITE,
    call_ms: int = CALL_MS,
) -> SqlAdapter:
    """Open a database as an environment.

    Args:
        target: `sqlite:PATH`, `postgresql://USER@HOST/DATABASE?schema=NAME`, or a driver of
            PEP 249 with a connection factory.
        statements: What planners may run, by the name that they give.
        now_ms: Clock for receipts, UTC, in milliseconds.
        name: Name of the adapter, and first part of its kinds.
        watch: A query without parameters for the rows that the fingerprint covers, at most
            10,000; by default nothing of the content is observed, and expectations of
            statements alone say what must hold.
        risk: Risk class of changes: one of the two that write.
        call_ms: Longest call, 100 to 600,000 milliseconds; locks are waited for half of it.

    Raises:
        ConfigError: A statement, the watch or a bound cannot be used, a driver is not
            installed, nobody has set the database up, it loses commits, or its file is open
            in this process by other means.
        UnavailableError: The database cannot be reached.
    """
    _check_options(name, risk, call_ms)
    database = _database(target)
    if watch:
        check_text("the watch", watch, database.reads)
    known = registered(statements, database.style, database.reads)
    specs = _kinds.kinds(name, known, risk=risk, call_ms=call_ms)
    adapter = SqlAdapter(database, statements=known, specs=specs, watch=watch, now_ms=now_ms)
    try:
        adapter.observe({})
        database.check()
    except Trouble as trouble:
        adapter.close()
        raise meaning(trouble) from trouble
    except BaseException:
        adapter.close()
        raise
    return adapter


def install_sql(target: str | Dbapi) -> Installed:
    """Make the tables of receipts in a database; what is there is kept.

    Args:
        target: As for `open_sql`. In a SQLite file and for a driver of PEP 249 they are
            named `counterfoil_…`, in PostgreSQL they lie in the schema `counterfoil_sql`
            or in that of the URL.

    Raises:
        ConfigError: The target cannot be used, its user may not make tables, or its file
            is open in this process by other means.
        UnavailableError: It cannot be reached.
    """
    database = _database(target)
    try:
        return install(database, secrets.token_hex(16))
    finally:
        database.close()


def _check_options(name: str, risk: Risk, call_ms: int) -> None:
    try:
        identifier(name, "name")
    except ContractError as error:
        raise ConfigError(error.message) from error
    if not risk.writes:
        raise ConfigError(f"risk is {risk}, and changes write")
    if not CALL_MS_MIN <= call_ms <= CALL_MS_MAX:
        raise ConfigError(f"call_ms is {call_ms}, not {CALL_MS_MIN} to {CALL_MS_MAX}")


def _database(target: str | Dbapi) -> Database:
    if isinstance(target, Dbapi):
        return DbapiDatabase(target)
    if target.startswith(SQLITE):
        path = Path(target.removeprefix(SQLITE)).resolve()
        if not path.is_file():
            raise ConfigError(f"there is no database file at {path}")
        if is_open_otherwise(path):
            raise ConfigError(
                f"{path} is open in this process by other means than apsw, which would drop its "
                "locks",
                move="close it there, open it with apsw, or leave it to another process",
            )
        return SqliteDatabase(path)
    if target.startswith(POSTGRESQL):
        try:
            from counterfoil.adapters.sql.postgres import PostgresDatabase  # noqa: PLC0415 - of an extra
        except ImportError as error:
            raise ConfigError(
                "PostgreSQL needs psycopg", move="install the extra counterfoil[sql]"
            ) from error
        return PostgresDatabase(target)
    raise ConfigError("a database is named by sqlite:PATH or postgresql://USER@HOST/DATABASE")

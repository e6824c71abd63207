"""Opening a journal of receipts, and making its tables once.

Opening never makes tables: a journal that is gone would come back empty, and every key
would look as if it had never been used.
"""

import secrets
from pathlib import Path

import msgspec

from counterfoil.core.errors import ConfigError, FormatError
from counterfoil.integrations.asgi import statements
from counterfoil.integrations.asgi.database import Database
from counterfoil.integrations.asgi.journal import Journal
from counterfoil.integrations.asgi.sqlite import INSTALL, open_file

SCHEMES = ("postgresql://", "postgres://")


def open_journal(place: str | Path, *, schema: str = "public") -> Journal:
    """Open the journal of receipts at a place.

    Args:
        place: Path of a SQLite file, or a `postgresql://` URL.
        schema: Schema of the tables in PostgreSQL.

    Raises:
        ConfigError: The extra `counterfoil[postgresql]` is missing, or the place cannot be used.
        FormatError: There is no journal, or it is of another version.
        UnavailableError: It cannot be reached now.
    """
    database = _opened(place, schema, create=False)
    try:
        instance, secret = _names(database)
        return Journal(database, instance=instance, secret=secret)
    except BaseException:
        database.close()
        raise


def install_journal(place: str | Path, *, schema: str = "public") -> None:
    """Make the tables of a journal of receipts, where they are not there.

    Several programs may do it at once, and twice does no harm.

    Args:
        place: Path of a SQLite file, which is made too, or a `postgresql://` URL.
        schema: Schema of the tables in PostgreSQL, which must be there.

    Raises:
        ConfigError: The extra `counterfoil[postgresql]` is missing, or the place cannot be used.
        FormatError: A journal of another version is there.
        UnavailableError: It cannot be reached now.
    """
    database = _opened(place, schema, create=True)
    try:
        with database.transaction(writes=True) as run:
            for statement in (database.lock, *statements.TABLES):
                if statement:
                    run(database.spelt(statement), ())
            values = (statements.VERSION, secrets.token_hex(16), secrets.token_hex(32))
            run(database.spelt(statements.FOUND), values)
        _names(database)
    finally:
        database.close()


def _opened(place: str | Path, schema: str, *, create: bool) -> Database:
    if not str(place).startswith(SCHEMES):
        return open_file(Path(place), create=create)
    try:
        from counterfoil.integrations.asgi.postgres import open_server  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(
            "receipts in PostgreSQL need psycopg",
            move="install counterfoil[postgresql] and start again",
        ) from error
    return open_server(str(place), schema)


def _names(database: Database) -> tuple[str, str]:
    """Return the journal's name, and its secret."""
    with database.transaction(writes=False) as run:
        rows = run(database.spelt(statements.INSTANCE), ())
    if not rows:
        raise FormatError("the journal of receipts was never finished", move=INSTALL)
    version, instance, secret = msgspec.convert(rows[0], tuple[int, str, str])
    if version != statements.VERSION:
        raise FormatError(
            f"the journal of receipts has version {version}, this program {statements.VERSION}"
        )
    return instance, secret

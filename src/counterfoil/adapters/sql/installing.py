"""Making the tables of receipts in a database: the one place that defines anything there."""

from dataclasses import dataclass
from time import monotonic

from counterfoil.adapters.sql.database import Connection, Database, transact
from counterfoil.adapters.sql.receipts import TABLES, Book
from counterfoil.adapters.sql.trouble import Trouble, meaning

INSTALL_SECONDS = 30.0
"""Longest wait for another installer, and for locks on the catalogue."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Installed:
    """What stands in a database after an installation.

    Attributes:
        where: The database, without a password.
        instance: Identity of the environment that it is.
        made: Tables that were made by this call; empty where all were there.
    """

    where: str
    instance: str
    made: tuple[str, ...]


def install(database: Database, instance: str) -> Installed:
    """Make what is missing, and leave what is there.

    Args:
        database: Where.
        instance: Random; the identity of the environment, if it has none yet.

    Raises:
        ConfigError: The user may not make tables, or they are of another version.
        UnavailableError: The database cannot be reached; nothing was made. After a lost
            answer calling again tells.
    """
    ends_at = monotonic() + INSTALL_SECONDS
    try:
        return transact(
            database,
            lambda connection: _made(database, connection, instance),
            writes=True,
            ends_at=ends_at,
        )
    except Trouble as trouble:
        raise meaning(trouble, is_repeatable=True) from trouble


def _made(database: Database, connection: Connection, instance: str) -> Installed:
    database.guard(connection)
    missing = [name for name in TABLES if not database.has_table(connection, name)]
    for name in missing:
        text = TABLES[name].replace("{text}", database.text_type)
        connection.run(text.replace(f"{{{name}}}", f"{database.prefix}{name}"), {}, 1)
    book = Book(database, connection)
    if not book.has_environment():
        book.set_up(instance)
    standing = book.standing()
    made = tuple(f"{database.prefix}{name}" for name in missing)
    return Installed(where=database.title, instance=standing.instance, made=made)

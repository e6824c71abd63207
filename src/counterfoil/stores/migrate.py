"""How a database gets its tables: numbered scripts, each in one transaction.

`user_version` says which scripts a file has seen, `application_id` whose file it is. A
file from a later release is refused: what it means is not known here.
"""

from dataclasses import dataclass
from functools import cache
from importlib import resources

from counterfoil.core.errors import ConfigError, FormatError
from counterfoil.stores.sqlite_driver import Connection, connect


@dataclass(frozen=True, kw_only=True, slots=True)
class Schema:
    """One kind of database.

    Attributes:
        name: Scripts are `sql/NAME_001.sql` and on.
        version: Number of the last script.
        application_id: What `PRAGMA application_id` says of such a file.
        page_bytes: Size of a page, chosen so that rows leave little of it empty.
        is_small: Whether the whole file is checked each time it is opened.
    """

    name: str
    version: int
    application_id: int
    page_bytes: int
    is_small: bool


def migrate(connection: Connection, schema: Schema) -> None:
    """Bring a database to the newest version, one transaction for each script.

    Raises:
        ConfigError: The database is another program's or a later release's.
        FormatError: Its tables are not those that our scripts make.
        apsw.Error: As the driver says; the caller translates it.
    """
    while _step(connection, schema):
        pass
    if _tables(connection) != _expected(schema):
        raise FormatError(f"the tables are not those of a {schema.name} database")


def create(connection: Connection, schema: Schema) -> None:
    """Make an empty database one of this kind, with all its tables."""
    connection.execute(f"PRAGMA application_id = {schema.application_id}")
    migrate(connection, schema)


def _step(connection: Connection, schema: Schema) -> bool:
    """Run the next script, and return whether there may be another."""
    if _version(connection, schema) == schema.version:
        return False
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _version(connection, schema)
        if version < schema.version:
            connection.execute(_script(schema.name, version + 1))
            connection.execute(f"PRAGMA user_version = {version + 1}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return True


def _version(connection: Connection, schema: Schema) -> int:
    application_id = connection.pragma("application_id")
    version = connection.pragma("user_version")
    if application_id != schema.application_id:
        raise ConfigError(f"the database is not a {schema.name} database of this program")
    if not isinstance(version, int) or not 0 <= version <= schema.version:
        raise ConfigError(
            f"the {schema.name} database has version {version}, this release knows "
            f"{schema.version}",
            move="use the release that wrote it, or a later one",
        )
    return version


def _script(name: str, version: int) -> str:
    folder = resources.files("counterfoil.stores") / "sql"
    return (folder / f"{name}_{version:03}.sql").read_text(encoding="utf-8")


def _tables(connection: Connection) -> list[tuple[object, ...]]:
    query = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name"
    # What ANALYZE leaves behind belongs to SQLite and holds no row of ours.
    rows = connection.execute(query).fetchall()
    return [row for row in rows if not str(row[1]).startswith("sqlite_stat")]


@cache
def _expected(schema: Schema) -> list[tuple[object, ...]]:
    connection = connect(None)
    try:
        for version in range(1, schema.version + 1):
            connection.execute(_script(schema.name, version))
        return _tables(connection)
    finally:
        connection.close()

"""How a PostgreSQL database gets its tables: numbered scripts, each in one transaction.

Scripts expand first and contract later: what one release stops using, a later script
drops. The table `counterfoil_schema` says which scripts a part has seen. A database from
a later release is refused: what it means is not known here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources

from counterfoil.core.errors import ConfigError, CounterfoilError
from counterfoil.stores.postgres_driver import Cursor
from counterfoil.stores.postgres_pool import Access

TURN = 0x43464664
"""Number of the lock that lets one process at a time make tables; it ends with its transaction."""

_TABLE = """
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE IF NOT EXISTS {schema}.counterfoil_schema (
    name    text    COLLATE "C" PRIMARY KEY,
    version integer NOT NULL CHECK (version > 0)
);
"""
# A catalogue that is read as a table: its caches may not know what another session just made.
_IS_THERE = """
SELECT EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'counterfoil_schema')
"""
_VERSION = "SELECT version FROM {schema}.counterfoil_schema WHERE name = %s"
_KEEP = """
INSERT INTO {schema}.counterfoil_schema (name, version) VALUES (%s, %s)
ON CONFLICT (name) DO UPDATE SET version = excluded.version
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One kind of tables.

    Attributes:
        name: Scripts are `sql/postgres_NAME_001.sql` and on.
        version: Number of the last script.
        missing: Makes the error for a database without them, of what it says.
    """

    name: str
    version: int
    missing: Callable[[str], CounterfoilError]


def prepare(access: Access, part: Part, *, create: bool) -> None:
    """See to it that a part has its tables, of the version that this release knows.

    Raises:
        ConfigError: They are of a later release, or may not be made by this user.
        CounterfoilError: They are missing and not to be created: `part.missing`.
        UnavailableError: Nothing happened.
        UnknownOutcomeError: The answer was lost; try again, it does no harm.
    """
    version = _version(access, part)
    if version == 0 and not create:
        raise part.missing(
            f"{access.place.name} has no {part.name} tables in schema {access.place.schema}"
        )
    if version < part.version:
        _migrate(access, part)


def parts_of(access: Access) -> tuple[str, ...]:
    """Return the names of the parts that a schema holds."""
    if not _is_there(access):
        return ()
    query = access.place.sql("SELECT name FROM {schema}.counterfoil_schema ORDER BY name")
    return tuple(name for (name,) in access.rows(tuple[str], query, ()))


def script(name: str) -> str:
    """Return the text of `sql/postgres_NAME.sql`."""
    folder = resources.files("counterfoil.stores") / "sql"
    return (folder / f"postgres_{name}.sql").read_text(encoding="utf-8")


def _is_there(access: Access) -> bool:
    (row,) = access.rows(tuple[bool], access.place.sql(_IS_THERE), (access.place.schema,))
    return row[0]


def _version(access: Access, part: Part) -> int:
    if not _is_there(access):
        return 0
    rows = access.rows(tuple[int], access.place.sql(_VERSION), (part.name,))
    return _checked(rows[0][0] if rows else 0, access, part)


def _checked(version: int, access: Access, part: Part) -> int:
    if version > part.version:
        raise ConfigError(
            f"the {part.name} tables of {access.place.name} have version {version}, this release "
            f"knows {part.version}",
            move="use the release that made them, or a later one",
        )
    return version


def _migrate(access: Access, part: Part) -> None:
    """Run what is missing; of several processes at once, one does and the others find it done."""
    sql = access.place.sql
    with access.transaction() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (TURN,))
        version = _checked(_locked_version(cursor, access, part), access, part)
        if version == 0:
            cursor.execute(sql(_TABLE), prepare=False)
        for number in range(version + 1, part.version + 1):
            cursor.execute(sql(script(f"{part.name}_{number:03}")), prepare=False)
            cursor.execute(sql(_KEEP), (part.name, number))


def _locked_version(cursor: Cursor, access: Access, part: Part) -> int:
    sql = access.place.sql
    found = cursor.execute(sql(_IS_THERE), (access.place.schema,)).fetchone()
    if found is None or not found[0]:
        return 0
    row = cursor.execute(sql(_VERSION), (part.name,)).fetchone()
    return 0 if row is None else int(row[0])

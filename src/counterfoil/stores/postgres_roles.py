"""What the roles of a PostgreSQL database may do: workers act by the rules, readers read.

The tables belong to whoever created them, and that role can change the rules themselves.
Workers connect as another one, so that neither a mistake nor injected SQL turns time back.
"""

import re

from counterfoil.core.errors import ConfigError
from counterfoil.stores.postgres_pool import Access, access
from counterfoil.stores.postgres_schema import parts_of, script
from counterfoil.stores.postgres_url import parse_url

ROLE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")
"""A name that stands between quotes as it is."""

_SECTION = re.compile(r"^-- part: (\w+), role: (\w+)$", re.MULTILINE)
_POWERS = """
SELECT rolsuper, pg_has_role(rolname, nspowner, 'MEMBER')
FROM pg_roles LEFT JOIN pg_namespace ON nspname = %s WHERE rolname = %s
"""

_OWNS = "SELECT pg_has_role(nspowner, 'USAGE') FROM pg_namespace WHERE nspname = %s"


def grant_roles(url: str, *, worker: str = "", reader: str = "") -> None:
    """Let a role work, and another one read, in the schema of `url`; twice is once.

    A worker does all that a run needs. It changes and deletes no checkpoint that another
    follows, lowers no head and gives no lease version twice, deletes no head, and names
    no register anew; nor does it replace the functions that see to that. A reader reads
    everything but the nonces of leases.

    Args:
        url: The schema, as the role that owns it.
        worker: Name of a role that exists; empty to leave it out.
        reader: Name of a role that exists; empty to leave it out.

    Raises:
        ConfigError: There is no such role, it could do all that the owner can, there are
            no tables of ours, or whoever is connected may not grant.
        UnavailableError: Nothing happened.
        UnknownOutcomeError: The answer was lost; grant again.
    """
    place = parse_url(url)
    way = access(place)
    try:
        _check_owner(way)
        named = {kind: name for kind, name in (("worker", worker), ("reader", reader)) if name}
        for name in named.values():
            _check_role(way, name)
        parts = ("schema", *parts_of(way))
        with way.transaction() as cursor:
            for kind, name in named.items():
                for text in _sections(parts, kind):
                    cursor.execute(place.sql(text.replace("{role}", f'"{name}"')), prepare=False)
    finally:
        way.close()


def _check_owner(way: Access) -> None:
    """Refuse to grant as one who may not: the server would only warn."""
    place = way.place
    rows = way.rows(tuple[bool], place.sql(_OWNS), (place.schema,)) if parts_of(way) else []
    if not rows:
        raise ConfigError(f"{place.name} has no tables of ours in schema {place.schema}")
    if rows != [(True,)]:
        raise ConfigError(
            f"the schema {place.schema} of {place.name} belongs to another role",
            move="connect as the role that made its tables",
        )


def _check_role(way: Access, name: str) -> None:
    if ROLE.fullmatch(name) is None:
        raise ConfigError("a role has a name of letters, digits, _ and -, and at most 63 of them")
    query = way.place.sql(_POWERS)
    rows = way.rows(tuple[bool, bool | None], query, (way.place.schema, name))
    if not rows:
        raise ConfigError(
            f"{way.place.name} has no role {name}", move=f'run CREATE ROLE "{name}" LOGIN first'
        )
    if any(rows[0]):
        raise ConfigError(
            f"the role {name} is a superuser or owns the schema, so no rule holds it",
            move="name another role, and connect workers as that one",
        )


def _sections(parts: tuple[str, ...], kind: str) -> list[str]:
    """Return the grants of one kind of role for the parts that are there."""
    _, *found = _SECTION.split(script("roles"))
    sections = zip(found[::3], found[1::3], found[2::3], strict=True)
    return [text for part, role, text in sections if part in parts and role == kind]

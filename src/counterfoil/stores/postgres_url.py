"""What a PostgreSQL URL says: where to connect, and how this program uses it.

`schema`, `pool`, `prepare` and `timeout` are ours; every other parameter is libpq's. A
password may stand in the URL, and never stands in a message.
"""

import re
from dataclasses import dataclass, field

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from counterfoil.core.errors import ConfigError

SCHEMA_DEFAULT = "counterfoil"
SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,39}")
"""Lower-case, so that it is the same with and without quotes; room for a channel's name."""

POOL_DEFAULT, POOL_MAX = 8, 64
"""Connections of one process: a server usually allows a hundred in all."""

ANSWER_SECONDS_DEFAULT, ANSWER_SECONDS_MAX = 8, 600
"""Longest wait for an answer: many times what a write takes on a busy disk, and less than a
third of a lease by default, so that one dead connection leaves time for a second renewal."""

SCHEMES = ("postgresql://", "postgres://")
OURS = ("schema", "pool", "prepare", "timeout")
BOOLEANS = {"true": True, "false": False}

DEFAULTS = {
    "application_name": "counterfoil",
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "8000",
}
"""A network that has gone is noticed within some ten seconds."""

WRITABLE = ("read-write", "primary")
"""Heads are read where they are written: a standby answers with what was."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """One schema of one database, and how to reach it.

    Attributes:
        conninfo: What libpq connects with; it may hold a password.
        name: For people; without one.
        schema: Where our tables are.
        pool_max: Connections at once, 1 to `POOL_MAX`.
        prepares: Whether statements are prepared, which most poolers cannot carry.
        answer_seconds: Longest wait for an answer, 1 to `ANSWER_SECONDS_MAX`.
    """

    conninfo: str = field(repr=False)
    name: str
    schema: str
    pool_max: int
    prepares: bool
    answer_seconds: int

    def sql(self, text: str) -> bytes:
        """Return statements with `{schema}` replaced."""
        return text.replace("{schema}", f'"{self.schema}"').encode()


def parse_url(url: str) -> Place:
    """Return what `url` says.

    Raises:
        ConfigError: It is no PostgreSQL URL, or a parameter is unknown or out of range.
    """
    if not url.startswith(SCHEMES):
        raise ConfigError("a PostgreSQL URL starts with postgresql://")
    base, _, query = url.partition("?")
    ours: dict[str, str] = {}
    theirs: list[str] = []
    for given in filter(None, query.split("&")):
        name, _, value = given.partition("=")
        if name not in OURS:
            theirs.append(given)
        elif ours.setdefault(name, value) != value:
            raise ConfigError(f"the parameter {name} of a PostgreSQL URL is given twice")
    settings = _libpq(f"{base}?{'&'.join(theirs)}" if theirs else base)
    schema = ours.get("schema", SCHEMA_DEFAULT)
    if SCHEMA.fullmatch(schema) is None:
        raise ConfigError("the schema of a PostgreSQL URL is a lower-case name of 1 to 40 letters")
    prepare = ours.get("prepare", "false")
    if prepare not in BOOLEANS:
        raise ConfigError("the parameter prepare of a PostgreSQL URL is true or false")
    return Place(
        conninfo=make_conninfo("", **settings),
        name=_shown(settings),
        schema=schema,
        pool_max=_number(ours, "pool", POOL_DEFAULT, POOL_MAX),
        prepares=BOOLEANS[prepare],
        answer_seconds=_number(ours, "timeout", ANSWER_SECONDS_DEFAULT, ANSWER_SECONDS_MAX),
    )


def _libpq(url: str) -> dict[str, str]:
    try:
        given = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except ProgrammingError:
        # libpq quotes the URL, password and all, so its message stays here.
        raise ConfigError("the PostgreSQL URL is malformed, or has an unknown parameter") from None
    if given.setdefault("target_session_attrs", WRITABLE[0]) not in WRITABLE:
        raise ConfigError(f"target_session_attrs is one of {', '.join(WRITABLE)}")
    return {**DEFAULTS, **given, "client_encoding": "utf8"}


def _number(ours: dict[str, str], name: str, default: int, most: int) -> int:
    text = ours.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most))):
        text = "0"
    if not 1 <= int(text) <= most:
        raise ConfigError(f"the parameter {name} of a PostgreSQL URL is a number from 1 to {most}")
    return int(text)


def _shown(settings: dict[str, str]) -> str:
    host = settings.get("host") or settings.get("hostaddr") or settings.get("service") or "here"
    port = f":{settings['port']}" if "port" in settings else ""
    return f"the database {settings.get('dbname', '')!r} at {host}{port}"

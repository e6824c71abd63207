"""Where checkpoints and heads lie, as a url says it; its password is never shown.

What the parts of a server's url mean, its database and its parameters, is known where
that server is opened, and there it is judged.
"""

import re
from enum import StrEnum
from urllib.parse import parse_qsl, unquote, urlsplit

from counterfoil.core.errors import ConfigError

URL_CHARS_MAX = 2_000
"""A user, a password, a few hosts and a few paths of certificates."""

PORT_MAX = 65_535
POSTGRESQL_PORT = "5432"
SCHEMA = "counterfoil"
"""Schema of tables where a url names none."""

HIDDEN = "***"
LOOPBACK = ("localhost", "::1")
LOOPBACK_START = "127."

_SECRET = re.compile(r"([?&][^=&]*(?:pass|secret|token)[^=&]*=)[^&#]*", re.IGNORECASE)
_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\[\]@/?#]+)(?::(?P<port>[0-9]{1,5}))?")


class Scheme(StrEnum):
    """What a url starts with: the kind of place."""

    MEMORY = "memory"
    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"
    ETCD = "etcd"


SERVERS = frozenset({Scheme.POSTGRESQL, Scheme.ETCD})
"""Places that are reached over a network, and that `counterfoil init` alone sets up."""

FORMS = {
    Scheme.MEMORY: "'memory:'",
    Scheme.SQLITE: "'sqlite:PATH'",
    Scheme.POSTGRESQL: "'postgresql://USER@HOST:PORT/DATABASE'",
    Scheme.ETCD: "'etcd://USER@HOST:PORT/PREFIX'",
}


def shown(url: str) -> str:
    """Return a url as people may see it: what could be a password is hidden.

    Whatever stands between the user's name and the last "@" counts, so that a password
    with characters that a url must not hold is hidden too.
    """
    scheme, colon, rest = url.partition(":")
    if scheme in {Scheme.MEMORY, Scheme.SQLITE} or not colon:
        return url
    before, at, after = rest.rpartition("@")
    if at:
        user, has_password, _ = before.removeprefix("//").partition(":")
        is_known = rest.startswith("//") and scheme in SERVERS
        before = f"//{user}:{HIDDEN}" if has_password else before
        before = before if is_known else HIDDEN
    return _SECRET.sub(rf"\1{HIDDEN}", f"{scheme}:{before}{at}{after}")


def has_password(url: str) -> bool:
    """Return whether a url holds what must not be shown."""
    return shown(url) != url


def scheme_of(url: str, field: str, allowed: tuple[Scheme, ...]) -> Scheme:
    """Return what kind of place a url names, having looked at its form.

    Args:
        url: As it is set.
        field: Name of the setting, for messages.
        allowed: Schemes that the setting takes.

    Raises:
        ConfigError: It is of another scheme, or names no host, or is not well formed.
    """
    name, colon, rest = url.partition(":")
    found = next((each for each in allowed if colon and each == name), None)
    if found is Scheme.MEMORY and rest:
        found = None
    if found is None or (found is Scheme.SQLITE and not rest):
        forms = [FORMS[each] for each in allowed]
        known = f"{', '.join(forms[:-1])} nor {forms[-1]}"
        raise ConfigError(f"{field} {shown(url)!r:.100} is neither {known}")
    if found in SERVERS:
        _check_server(url, field, FORMS[found])
    return found


def _check_server(url: str, field: str, form: str) -> None:
    """Refuse a url that names no host, without saying what it holds."""
    if len(url) > URL_CHARS_MAX or not url.isprintable() or " " in url:
        raise ConfigError(
            f"{field} is longer than {URL_CHARS_MAX} characters, or holds a space or a "
            "character that is not printable"
        )
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"{field} is not of the form {form}") from error
    if not url.startswith(f"{parts.scheme}://") or parts.fragment:
        raise ConfigError(f"{field} {shown(url)!r:.100} is not of the form {form}")
    hosts = _hosts(parts.netloc)
    if not all(hosts):
        raise ConfigError(f"{field} {shown(url)!r:.100} names no host, or not all of them")
    for host in hosts:
        match = _HOST.fullmatch(host)
        if match is None or not 0 < int(match["port"] or 1) <= PORT_MAX:
            raise ConfigError(
                f"{field} {shown(url)!r:.100} has a host or port that cannot be read",
                move="write each host as HOST:PORT, with commas between, and %40 for an @ "
                "in a password",
            )


def _hosts(place: str) -> list[str]:
    return place.rpartition("@")[2].split(",")


def hosts_of(url: str) -> tuple[str, ...]:
    """Return the names or addresses of a server's url, in lower case, without ports."""
    found = (_HOST.fullmatch(host) for host in _hosts(urlsplit(url).netloc))
    return tuple(unquote(each["host"]).strip("[]").lower() for each in found if each)


def is_on_this_machine(url: str) -> bool:
    """Return whether every host of a url is this machine, by its name alone."""
    return all(host in LOOPBACK or host.startswith((LOOPBACK_START, "/")) for host in hosts_of(url))


def are_one_database(store_url: str, heads_url: str) -> bool:
    """Return whether two urls certainly name one schema of one PostgreSQL database.

    Two names of one server count as two servers: then each commit is two transactions,
    which is slower and no less safe. So do two users, since neither need be allowed
    what the other is.
    """
    start = f"{Scheme.POSTGRESQL}://"
    if not (store_url.startswith(start) and heads_url.startswith(start)):
        return False
    return _normal(store_url) == _normal(heads_url)


def _normal(url: str) -> tuple[object, ...]:
    parts = urlsplit(url)
    user = unquote(parts.netloc.rpartition("@")[0].partition(":")[0])
    matches = [_HOST.fullmatch(host) for host in _hosts(parts.netloc)]
    hosts = tuple(
        (unquote(each["host"]).lower(), each["port"] or POSTGRESQL_PORT)
        for each in matches
        if each is not None
    )
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    schema = query.pop("schema", SCHEMA)
    return user, hosts, unquote(parts.path.strip("/")), schema, tuple(sorted(query.items()))

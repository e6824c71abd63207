"""Where an etcd is and how it is entered, as its url says it.

The password comes from the environment and is in no message. What a url holds beyond a
user's name, hosts, a prefix and four parameters is refused, not ignored.
"""

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from counterfoil.core.errors import ConfigError

PASSWORD_VARIABLE = "COUNTERFOIL_ETCD_PASSWORD"  # noqa: S105 - the name of it, not one
FORM = "etcd://USER@HOST:PORT,HOST:PORT/PREFIX?tls=true&ca=FILE&cert=FILE&key=FILE"
PORT = "2379"
PORT_MAX = 65_535
PREFIX = "counterfoil"
PARAMETERS = ("tls", "ca", "cert", "key")
ENDPOINTS_MAX = 9
"""etcd itself advises against more than seven members."""

_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")
_PREFIX = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Address:
    """One cluster and one prefix in it.

    Attributes:
        endpoints: Scheme, host and port of each node that may be asked.
        prefix: First segment of every key.
        user: Who we are to etcd; empty where it does not ask.
        password: The user's; in no text that shows this.
        ca: Certificate that signs the nodes' own; None for those the system trusts.
        cert: Our certificate; None without one.
        key: Its private key.
    """

    endpoints: tuple[str, ...]
    prefix: str
    user: str
    password: str = field(repr=False)
    ca: Path | None
    cert: Path | None
    key: Path | None

    @property
    def uses_tls(self) -> bool:
        """Whether every connection is encrypted."""
        return all(each.startswith("https:") for each in self.endpoints)

    @property
    def hosts(self) -> str:
        """Hosts and ports for messages."""
        return ", ".join(each.partition("://")[2] for each in self.endpoints)


def parse_address(url: str, environment: Mapping[str, str]) -> Address:
    """Return what a url says, with the password of the environment.

    Args:
        url: As `FORM`; port 2379 and prefix `counterfoil` where it names none.
        environment: Variables, of which `COUNTERFOIL_ETCD_PASSWORD` counts.

    Raises:
        ConfigError: It is of another form, holds a password, names a user for whom
            there is none, or certificates without TLS.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise _malformed("cannot be read") from error
    if parts.scheme != "etcd" or parts.fragment:
        raise _malformed("is of another form")
    before, _, places = parts.netloc.rpartition("@")
    user, has_password, _ = before.partition(":")
    if has_password:
        raise ConfigError(
            "the url of an etcd holds a password, which others may read",
            move=f"take it out, and set the environment variable {PASSWORD_VARIABLE}",
        )
    given = _parameters(parts.query)
    scheme = "https" if given["tls"] == "true" else "http"
    files = {name: Path(given[name]) if given[name] else None for name in ("ca", "cert", "key")}
    if any(files.values()) and scheme == "http":
        raise _malformed("names certificates and not tls=true")
    if (files["cert"] is None) != (files["key"] is None):
        raise _malformed("names one of cert and key without the other")
    return Address(
        endpoints=tuple(f"{scheme}://{place}" for place in _places(places)),
        prefix=_prefix(parts.path),
        user=unquote(user),
        password=_password(unquote(user), environment),
        ca=files["ca"],
        cert=files["cert"],
        key=files["key"],
    )


def trust(address: Address) -> ssl.SSLContext | bool:
    """Return whom we trust and what we show, having read the certificates; False without TLS.

    Raises:
        ConfigError: A certificate or key cannot be used.
    """
    if not address.uses_tls:
        return False  # nothing is encrypted, so that there is nothing to verify
    try:
        context = ssl.create_default_context(cafile=address.ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if address.cert is not None:
            context.load_cert_chain(address.cert, address.key)
    except OSError as error:
        raise ConfigError(
            f"a certificate or key in the url of the etcd cannot be used: {error.strerror}",
            move="check ca, cert and key in it, and who may read these files",
        ) from error
    return context


def _places(text: str) -> list[str]:
    places = text.split(",")
    if len(places) > ENDPOINTS_MAX:
        raise _malformed(f"names more than {ENDPOINTS_MAX} hosts")
    found: list[str] = []
    for place in places:
        match = _HOST.fullmatch(place)
        if match is None or not 0 < int(match["port"] or PORT) <= PORT_MAX:
            raise _malformed("has a host or port that cannot be read")
        found.append(f"{match['host'].lower()}:{int(match['port'] or PORT)}")
    if len(set(found)) != len(found):
        raise _malformed("names a host twice")
    return found


def _prefix(path: str) -> str:
    prefix = unquote(path.strip("/")) or PREFIX
    if _PREFIX.fullmatch(prefix) is None:
        raise _malformed(
            "has a prefix that is not up to 100 letters, digits, dots, dashes and underscores"
        )
    return prefix


def _parameters(query: str) -> dict[str, str]:
    pairs = parse_qsl(query, keep_blank_values=True)
    unknown = sorted({name for name, _ in pairs} - set(PARAMETERS))
    if unknown:
        raise _malformed(f"has the parameter {unknown[0]!r:.40}, which means nothing here")
    given = dict(pairs)
    if len(given) != len(pairs) or not all(given.values()):
        raise _malformed("has a parameter twice, or one without a value")
    if given.get("tls", "false") not in {"true", "false"}:
        raise _malformed("says neither tls=true nor tls=false")
    return {name: given.get(name, "") for name in PARAMETERS}


def _password(user: str, environment: Mapping[str, str]) -> str:
    password = environment.get(PASSWORD_VARIABLE, "")
    if user and not password:
        raise ConfigError(
            f"the url of an etcd names the user {user!r:.100}, and there is no password",
            move=f"set the environment variable {PASSWORD_VARIABLE}",
        )
    return password if user else ""


def _malformed(what: str) -> ConfigError:
    return ConfigError(f"the url of an etcd {what}", move=f"write it as {FORM}")

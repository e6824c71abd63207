"""Addresses with places in them, and what may be put there.

A value is text of its own place and nothing more: it cannot end a segment, climb out of
a path, begin a query or name another host, in whatever spelling.
"""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import quote

from counterfoil.core.errors import ConfigError, ContractError
from counterfoil.core.task import canonical_path
from counterfoil.core.words import Json, identifier

URL_CHARS_MAX = 8_000
"""An address, with its query; about what servers take (RFC 9110, 4.1)."""

HOST = "host"
"""The one place that may stand for the host."""

_PLACE = re.compile(r"\{(\+?)([a-z][a-z0-9_]*)\}")
_FORM = re.compile(r"(https?)://([^/?#@{}]+|\{host\})(/[^?#]*)?(?:\?([^#]*))?")
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST = re.compile(rf"((?:{_LABEL}\.)*{_LABEL})(?::([1-9][0-9]{{0,4}}))?")
_ADDRESS = re.compile(r"\[([0-9a-f:.]+)\](?::([1-9][0-9]{0,4}))?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
NAME_CHARS_MAX = 253
"""A name in DNS, as text (RFC 1035, 2.3.4)."""

PORT_MAX = 65_535
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Template:
    """An address with places.

    Attributes:
        scheme: "http" or "https".
        host: Host, with its port unless that is the scheme's own; empty where an
            argument names it.
        path: With its places, beginning with a slash.
        query: With its places; empty when there is none.
        places: Names of the places, and whether each may hold several segments.
    """

    scheme: str
    host: str
    path: str
    query: str
    places: dict[str, bool]

    @property
    def origin(self) -> str:
        """Scheme and host as the identity of a service; empty where it is an argument's."""
        return f"{self.scheme}://{self.host}" if self.host else ""


def parse_template(text: str, field: str) -> Template:
    """Read a template.

    Raises:
        ConfigError: It is no absolute http address, or has a user, a fragment, a host
            that is not in lower case, or a place twice.
    """
    form = _FORM.fullmatch(text) if text.isascii() and text.isprintable() else None
    if form is None or " " in text:
        raise ConfigError(f"{field} {text!r:.120} is not of the form https://HOST/PATH?QUERY")
    scheme, host, path, query = form[1], form[2], form[3] or "/", form[4] or ""
    places = {name: bool(plus) for plus, name in _PLACE.findall(f"{path}?{query}")}
    if len(places) != len(_PLACE.findall(f"{path}?{query}")) or HOST in places:
        raise ConfigError(f"{field} {text!r:.120} has a place twice, or a host that is no host")
    if re.search(r"[{}]", _PLACE.sub("", path + query)):
        raise ConfigError(f"{field} {text!r:.120} has a brace that is no place")
    if "//" in path or any(part in (".", "..") or "%" in part for part in path.split("/")):
        raise ConfigError(f"{field} {text!r:.120} has a path that is not in its one spelling")
    if host == "{host}":
        return Template(scheme=scheme, host="", path=path, query=query, places=places)
    host = host.removesuffix(_DEFAULT_PORTS[scheme])
    if not (_is_name(host) or _is_bracketed(host)):
        raise ConfigError(f"{field} {text!r:.120} has a host that is not in plain lower case")
    return Template(scheme=scheme, host=host, path=path, query=query, places=places)


def names_of(template: Template) -> tuple[str, ...]:
    """Return the names that a template needs values for."""
    return (*(() if template.host else (HOST,)), *template.places)


def check_value(template: Template, name: str, value: Json) -> None:
    """Refuse a value that could be more than the text of its place.

    Raises:
        ContractError: It is neither text nor a whole number, is empty or out of bounds,
            holds what ends a segment or climbs out of a path, or is no name of a host.
    """
    field = f"arguments.{name}"
    if name == HOST and not template.host:
        _check_host(template, value, field)
    elif isinstance(value, int) and not isinstance(value, bool):
        return
    elif template.places[name]:
        canonical_path(value.removesuffix("/") if isinstance(value, str) else value, field)
    else:
        text = identifier(value, field)
        if text in (".", "..") or "/" in text or "\\" in text:
            raise ContractError(f"{field} {text!r:.80} is more than one segment of a path")


def _check_host(template: Template, value: Json, field: str) -> None:
    is_host = isinstance(value, str) and _is_name(value)
    if not is_host or value.endswith(_DEFAULT_PORTS[template.scheme]):
        raise ContractError(
            f"{field} is no host in its one spelling: lower case, a port only where it is "
            "not the usual one"
        )


def _is_name(host: str) -> bool:
    """Return whether a host is a name of DNS, or an address as it is usually written.

    What ends in a number is an address, also as 127.1, 0x7f.1 or 2130706433.
    """
    form = _HOST.fullmatch(host)
    if form is None or len(form[1]) > NAME_CHARS_MAX or int(form[2] or 0) > PORT_MAX:
        return False
    if not _NUMBER.fullmatch(form[1].rpartition(".")[2]):
        return True
    return _is_spelt(IPv4Address, form[1])


def _is_bracketed(host: str) -> bool:
    """Return whether a host is an address of IPv6 in its one spelling."""
    form = _ADDRESS.fullmatch(host)
    return form is not None and int(form[2] or 0) <= PORT_MAX and _is_spelt(IPv6Address, form[1])


def _is_spelt(kind: type[IPv4Address | IPv6Address], text: str) -> bool:
    try:
        return str(kind(text)) == text
    except ValueError:
        return False


def host_of(template: Template, values: dict[str, Json]) -> str:
    """Return the host that a call goes to, as scopes name it."""
    return template.host or str(values[HOST])


def path_of(template: Template, values: dict[str, Json]) -> str:
    """Return the path that a call goes to, as scopes name it: no slash first, "." for none."""
    return _PLACE.sub(lambda place: str(values[place[2]]), template.path).lstrip("/") or "."


def expanded(template: Template, values: dict[str, Json]) -> str:
    """Return the address with each value in its place, percent-encoded."""

    def put(place: re.Match[str]) -> str:
        return quote(str(values[place[2]]), safe="/" if place[1] else "")

    query = f"?{_PLACE.sub(put, template.query)}" if template.query else ""
    path = _PLACE.sub(put, template.path)
    return f"{template.scheme}://{host_of(template, values)}{path}{query}"

"""From declared endpoints to kinds: what each promises, takes and touches.

Nothing is declared that its level cannot hold: a level above `blind` can be asked or sends
the same again, one that dedupes carries a key, and `transactional` needs the service's own
receipts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlencode

from counterfoil.adapters.http.credentials import Secret
from counterfoil.adapters.http.declare import Endpoint, Fields, Header, Question, Service
from counterfoil.adapters.http.pointer import can_put
from counterfoil.adapters.http.template import (
    URL_CHARS_MAX,
    Template,
    check_value,
    expanded,
    host_of,
    names_of,
    parse_template,
    path_of,
)
from counterfoil.core.canonical import native, normalise
from counterfoil.core.errors import ConfigError, ContractError
from counterfoil.core.intent import KindSpec
from counterfoil.core.task import PATHS
from counterfoil.core.words import Json, Level, Risk, identifier
from counterfoil.pointers import check_pointer

HOSTS = "hosts"
METHODS = "methods"
"""Scope lists beside `PATHS`."""

WITH_BODY = ("POST", "PUT", "PATCH")
READING = ("GET", "HEAD", "OPTIONS", "POST")
"""Methods of a read: a search may be posted."""

WRITING = ("POST", "PUT", "PATCH", "DELETE")
BODY = "body"

RESERVED_HEADERS = (
    "content-length",
    "transfer-encoding",
    "connection",
    "host",
    "accept-encoding",
    "expect",
    "upgrade",
    "te",
    "trailer",
)
"""Headers that belong to the connection."""

CREDENTIALS = ("authorization", "cookie")
"""Headers by which services tell clients apart."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """An endpoint with all that was read out of it.

    Attributes:
        endpoint: As it was declared.
        url: Its address.
        spec: What the engine knows of it.
    """

    endpoint: Endpoint
    url: Template
    spec: KindSpec


def kinds_of(service: Service) -> dict[str, Kind]:
    """Return the kinds of a service by name.

    Raises:
        ConfigError: A declaration is not well formed, or promises what cannot be held.
    """
    try:
        _check_service(service)
        found = {each.name: _kind(service, each) for each in service.endpoints}
    except ContractError as error:
        raise ConfigError(f"service {service.name!r:.80}: {error.message}") from error
    if len(found) != len(service.endpoints):
        raise ConfigError(f"service {service.name} declares an endpoint twice")
    return found


def _kind(service: Service, endpoint: Endpoint) -> Kind:
    identifier(endpoint.name, "name of an endpoint")
    url = parse_template(endpoint.url, f"url of {endpoint.name}")
    _check_request(endpoint, url)
    _check_pointers(endpoint)
    asked = endpoint.look_up
    if asked is not None:
        _check_question(endpoint.name, asked)
    if endpoint.if_match and service.watch is None:
        raise ConfigError(f"{endpoint.name} sends If-Match, and no `watch` observes an ETag")
    has_receipts = bool(service.receipts) and endpoint.risk.writes and asked is None
    has_receipts = has_receipts and endpoint.level is not Level.BLIND
    if endpoint.risk.writes:
        _check_level(endpoint, has_receipts=has_receipts)
    if has_receipts:
        _check_client(service, endpoint)
    return Kind(
        endpoint=endpoint,
        url=url,
        spec=KindSpec(
            name=endpoint.name,
            adapter=service.name,
            risk=endpoint.risk,
            level=endpoint.level,
            permission=endpoint.permission or endpoint.name,
            normalise=_normaliser(endpoint, url),
            touches=_toucher(endpoint, url),
            call_ms=endpoint.call_ms,
            in_flight_ms=endpoint.in_flight_ms,
            key_retention_ms=endpoint.key_retention_ms,
            can_be_asked=has_receipts or asked is not None or not endpoint.risk.writes,
            linearizable=asked.linearizable if asked else endpoint.level is not Level.BLIND,
            fences=has_receipts,
            forbids=has_receipts,
            cost_micros=endpoint.cost_micros,
        ),
    )


# ---------------------------------------------------------------- what is declared


def _check_service(service: Service) -> None:
    identifier(service.name, "name")
    for field in ("instance", "account"):
        if getattr(service, field):
            identifier(getattr(service, field), field)
    if service.ask_ms < 1:
        raise ConfigError(f"service {service.name} has an ask_ms of {service.ask_ms}, below 1")
    _check_headers(service.headers, f"headers of {service.name}")
    if service.receipts:
        _check_fixed(service.receipts, "receipts")
        if service.account or (service.watch is not None and service.watch.account):
            raise ConfigError(
                f"service {service.name} has receipts, which name the account of its client",
                move="leave `account` out",
            )
    watch = service.watch
    if watch is not None:
        _check_fixed(watch.url, "watch.url")
        for field in ("version", "instance", "fingerprint", "account"):
            check_pointer(getattr(watch, field), f"watch.{field}")


def _check_fixed(url: str, field: str) -> None:
    template = parse_template(url, field)
    if names_of(template):
        raise ConfigError(f"{field} {url!r:.120} has places, and nothing to put there")


def _check_request(endpoint: Endpoint, url: Template) -> None:
    name = endpoint.name
    methods = WRITING if endpoint.risk.writes else READING
    if endpoint.method not in methods:
        raise ConfigError(f"{name} has the method {endpoint.method!r:.20}, not {methods}")
    if endpoint.risk is Risk.CONTROL:
        raise ConfigError(f"{name} is of risk control, which belongs to the runtime")
    if (endpoint.risk is Risk.VERIFICATION) != (endpoint.passes is not None):
        raise ConfigError(f"{name}: `passes` belongs to verifications, and each needs it")
    taken = [*names_of(url), *endpoint.query, BODY]
    if len(set(taken)) != len(taken):
        raise ConfigError(f"{name} has two arguments of one name, or one named {BODY}")
    for query in endpoint.query:
        identifier(query, f"query of {name}")
    if endpoint.marks and not has_body(endpoint):
        raise ConfigError(f"{name} has marks and no body")
    if endpoint.call_ms < 1:
        raise ConfigError(f"{name} has a call_ms of {endpoint.call_ms}, below 1")
    _check_headers(endpoint.headers, f"headers of {name}")
    _check_headers({endpoint.key_header: "key"}, f"key_header of {name}")


def _check_headers(headers: Mapping[str, Header] | None, field: str) -> None:
    for name, value in (headers or {}).items():
        is_token = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
        if not is_token or name.lower() in RESERVED_HEADERS:
            raise ConfigError(f"{field}: {name!r:.60} is no header that may be set")
        if isinstance(value, Secret):
            _check_secret(value, f"{field}, {name}")
        elif not (value.isascii() and value.isprintable()):
            raise ConfigError(f"{field}: {name} holds what no header can")


def _check_secret(secret: Secret, field: str) -> None:
    if bool(secret.environment) == bool(secret.command):
        raise ConfigError(f"{field}: a secret has an environment variable or a command")
    if not (secret.form.isascii() and secret.form.isprintable() and "{}" in secret.form):
        raise ConfigError(f"{field}: the form of a secret holds {{}} and printable ASCII")


def _check_pointers(endpoint: Endpoint) -> None:
    fields, name = endpoint.fields, endpoint.name
    checked: list[tuple[str, str]] = [("answer", endpoint.answer)]
    checked += [(f"fields.{each}", getattr(fields, each)) for each in Fields.__dataclass_fields__]
    checked += [("means", when.at) for when, _ in endpoint.means]
    checked += [("replayed", when.at) for when in (endpoint.replayed, endpoint.passes) if when]
    checked += [("look_up.receipt", endpoint.look_up.receipt)] if endpoint.look_up else []
    for where, pointer in checked:
        check_pointer(pointer, f"{where} of {name}")
    for pointer in endpoint.marks or {}:
        check_pointer(pointer, f"marks of {name}")
        if not pointer or (endpoint.body == "form" and pointer.count("/") != 1):
            raise ConfigError(f"marks of {name}: {pointer!r:.80} is no place in its body")


def _check_question(name: str, asked: Question) -> None:
    url = parse_template(asked.url, f"look_up of {name}")
    marks = asked.marks or {}
    unknown = set(names_of(url)) - {"key", "run"}
    if unknown or ("key" not in url.places and "key" not in marks.values()):
        raise ConfigError(f"look_up of {name} asks for a key, and for nothing but key and run")
    if any(url.places.values()) or "digest" in marks.values():
        raise ConfigError(f"look_up of {name}: a key is one segment, and knows no digest")
    if asked.method not in READING or (marks and asked.method not in WITH_BODY):
        raise ConfigError(f"look_up of {name} cannot be made with {asked.method!r:.20}")
    for pointer in marks:
        check_pointer(pointer, f"look_up.marks of {name}")
        if not pointer or not can_put(asked.body, pointer):
            raise ConfigError(f"look_up.marks of {name}: something stands at {pointer!r:.80}")


def _check_level(endpoint: Endpoint, *, has_receipts: bool) -> None:
    name, level, asked = endpoint.name, endpoint.level, endpoint.look_up
    if level is Level.CONDITIONAL:
        raise ConfigError(f"{name} is conditional, which no service is by HTTP alone")
    if level is Level.BLIND:
        if asked is not None:
            raise ConfigError(f"{name} can be asked, so it is more than blind")
        return
    if level is Level.TRANSACTIONAL and (asked is not None or not has_receipts):
        raise ConfigError(f"{name} is transactional by the receipts of its service alone")
    if asked is None and not has_receipts and level is not Level.DEDUPLICATING:
        raise ConfigError(
            f"{name} is {level} and cannot be asked",
            move="declare its look_up, or its level as blind",
        )
    if asked is None and endpoint.key_retention_ms is None:
        raise ConfigError(
            f"{name} states no key_retention_ms, the time for which the service keeps its keys",
            move="declare it, or the look_up of a service that keeps them for ever",
        )
    is_marked = asked is not None and "key" in (endpoint.marks or {}).values()
    if endpoint.key_form == "none" and not is_marked:
        raise ConfigError(f"{name} is {level} and carries no key, so it can never be found")
    if asked is not None and not asked.linearizable and level is not Level.QUERYABLE:
        raise ConfigError(f"{name}: without a linearizable look-up it is queryable at most")


def _check_client(service: Service, endpoint: Endpoint) -> None:
    """Refuse headers that make a call another client than the one that asks for its receipt."""
    common = {name.lower() for name in service.headers or {}} | {*CREDENTIALS}
    for name, value in (endpoint.headers or {}).items():
        if isinstance(value, Secret) or name.lower() in common:
            raise ConfigError(
                f"{endpoint.name} has its own header {name}, which its receipts are not asked with",
                move="have it in the headers of the service, or declare a service of its own",
            )


# ---------------------------------------------------------------- what is proposed


def has_body(endpoint: Endpoint) -> bool:
    """Return whether a call may carry a body."""
    return endpoint.method in WITH_BODY and endpoint.body != "none"


def _normaliser(endpoint: Endpoint, url: Template) -> Callable[[dict[str, Json]], dict[str, Json]]:
    required = names_of(url)
    optional = (*endpoint.query, *((BODY,) if has_body(endpoint) else ()))

    def checked(arguments: dict[str, Json]) -> dict[str, Json]:
        for name in required:
            if name not in arguments:
                raise ContractError(f"{endpoint.name} lacks its argument {name}")
        for name in arguments:
            if name not in (*required, *optional):
                raise ContractError(f"{endpoint.name} takes no argument {name!r:.80}")
        given = {name: normalise(value, f"arguments.{name}") for name, value in arguments.items()}
        for name in required:
            check_value(url, name, given[name])
        for name in endpoint.query:
            _check_scalar(given.get(name), f"arguments.{name}")
        if has_body(endpoint):
            _check_body(endpoint, given.get(BODY))
        address = _address(endpoint, url, given)
        if len(address) > URL_CHARS_MAX:
            raise ContractError(
                f"the address has {len(address)} characters, the bound is {URL_CHARS_MAX}"
            )
        return given

    return checked


def _check_scalar(value: Json, field: str) -> None:
    if value is not None and not isinstance(value, str | int | float):
        raise ContractError(f"{field} is neither text nor a number nor a truth value")


def _check_body(endpoint: Endpoint, body: Json) -> None:
    needs_object = endpoint.body == "form" or bool(endpoint.marks)
    if needs_object and body is not None and not isinstance(body, dict):
        raise ContractError("arguments.body is no object")
    if native(body) != body:
        raise ContractError("arguments.body holds bytes, which JSON and forms cannot")
    if endpoint.body == "form":
        members = cast("dict[str, Json]", body or {})  # a JSON object, or none
        for name, value in members.items():
            _check_scalar(value, f"arguments.body.{name:.40}")
    for pointer in endpoint.marks or {}:
        if not can_put(body, pointer):
            raise ContractError(f"arguments.body has something at {pointer}, which is not its own")


def address_of(kind: Kind, arguments: dict[str, Json]) -> str:
    """Return the address of a call, with its query."""
    return _address(kind.endpoint, kind.url, arguments)


def _address(endpoint: Endpoint, url: Template, arguments: dict[str, Json]) -> str:
    address = expanded(url, arguments)
    given = {name: arguments[name] for name in endpoint.query if arguments.get(name) is not None}
    if not given:
        return address
    return f"{address}{'&' if url.query else '?'}{as_form(given)}"


def as_form(members: Mapping[str, Json]) -> str:
    """Return scalars as a form or a query writes them."""
    return urlencode({name: _written(value) for name, value in members.items()})


def _written(value: Json) -> str:
    match value:
        case True:
            return "true"
        case False:
            return "false"
        case None:
            return ""
        case _:
            return str(value)


def _toucher(
    endpoint: Endpoint, url: Template
) -> Callable[[dict[str, Json]], tuple[tuple[str, str], ...]]:
    def touches(arguments: dict[str, Json]) -> tuple[tuple[str, str], ...]:
        return (
            (HOSTS, host_of(url, arguments)),
            (METHODS, endpoint.method),
            (PATHS, path_of(url, arguments)),
        )

    return touches

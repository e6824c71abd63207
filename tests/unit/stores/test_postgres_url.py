"""A PostgreSQL URL says where and how, and is never shown with its password."""

import traceback

import pytest

from counterfoil.core.errors import ConfigError
from counterfoil.stores.postgres_url import parse_url

URL = "postgresql://app:secret@db.example:6432/shop"


def test_what_is_not_said_has_a_default() -> None:
    place = parse_url(URL)
    assert (place.schema, place.pool_max, place.prepares) == ("counterfoil", 8, False)
    assert place.answer_seconds == 8
    for setting in (
        "target_session_attrs=read-write",
        "client_encoding=utf8",
        "connect_timeout=5",
        "dbname=shop",
        "host=db.example",
        "port=6432",
        "password=secret",
    ):
        assert setting in place.conninfo.split()


def test_what_is_said_counts() -> None:
    place = parse_url(
        f"{URL}?schema=other_1&sslmode=verify-full&pool=64&prepare=true&connect_timeout=9&timeout=600"
    )
    assert (place.schema, place.pool_max, place.prepares) == ("other_1", 64, True)
    assert place.answer_seconds == 600
    assert {"sslmode=verify-full", "connect_timeout=9"} <= set(place.conninfo.split())


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("postgres:///shop", id="no host"),
        pytest.param("postgresql://a:1,b:2/shop?target_session_attrs=primary", id="two hosts"),
        pytest.param("postgresql://[::1]:5432/shop", id="an address of version 6"),
        pytest.param("postgresql://%2Frun%2Fpostgresql/shop", id="a socket"),
        pytest.param("postgresql:///?service=shop", id="a service"),
        pytest.param("postgresql://host/shop?", id="an empty query"),
    ],
)
def test_every_form_of_libpq_is_taken(url: str) -> None:
    assert parse_url(url).schema == "counterfoil"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        pytest.param("mysql://app:secret@host/shop", "starts with", id="another scheme"),
        pytest.param("app:secret@host/shop", "starts with", id="no scheme"),
        pytest.param("postgresql://app:secret@[::1/shop", "malformed", id="half a bracket"),
        pytest.param(f"{URL}?colour=red", "unknown parameter", id="an unknown parameter"),
        pytest.param(f"{URL}?sslmode", "malformed", id="a parameter without a value"),
        pytest.param(f"{URL}?schema=A", "lower-case", id="a schema with a capital"),
        pytest.param(f"{URL}?schema=1a", "lower-case", id="a schema with a digit first"),
        pytest.param(f"{URL}?schema=", "lower-case", id="an empty schema"),
        pytest.param(f"{URL}?schema={'a' * 41}", "lower-case", id="a long schema"),
        pytest.param(f'{URL}?schema=a"b', "lower-case", id="a schema with a quote"),
        pytest.param(f"{URL}?pool=0", "1 to 64", id="no connections"),
        pytest.param(f"{URL}?pool=65", "1 to 64", id="too many connections"),
        pytest.param(f"{URL}?pool=-1", "1 to 64", id="a negative pool"),
        pytest.param(f"{URL}?pool=many", "1 to 64", id="a pool in words"),
        pytest.param(f"{URL}?timeout=601", "1 to 600", id="a long wait"),
        pytest.param(f"{URL}?prepare=yes", "true or false", id="another word for true"),
        pytest.param(f"{URL}?pool=1&pool=2", "given twice", id="two answers"),
        pytest.param(f"{URL}?target_session_attrs=any", "target_session", id="any server"),
        pytest.param(f"{URL}?target_session_attrs=standby", "target_session", id="a standby"),
    ],
)
def test_what_cannot_be_used_is_refused_without_its_password(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        parse_url(url)
    assert "secret" not in "".join(traceback.format_exception(caught.value))


def test_a_place_shows_no_password() -> None:
    place = parse_url(URL)
    assert place.name == "the database 'shop' at db.example:6432"
    assert "secret" not in repr(place)


def test_statements_name_the_schema_in_quotes() -> None:
    assert parse_url(f"{URL}?schema=user").sql("TABLE {schema}.head") == b'TABLE "user".head'

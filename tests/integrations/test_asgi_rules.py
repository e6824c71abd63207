"""Keys in their field, requests and their fingerprints, and what a service may declare."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.core.errors import ConfigError, ContractError
from counterfoil.integrations.asgi import Commits, Rules
from counterfoil.integrations.asgi.call import client_of, fingerprint_of
from counterfoil.integrations.asgi.field import parse_key

PRINTABLE = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=255)


def quoted(key: str) -> bytes:
    return b'"' + key.replace("\\", "\\\\").replace('"', '\\"').encode() + b'"'


@given(PRINTABLE)
def test_every_printable_key_can_be_sent(key: str) -> None:
    assert parse_key([quoted(key)], bare=False) == key


@given(st.binary(max_size=40))
def test_a_field_is_a_key_within_its_bounds_or_is_refused(field: bytes) -> None:
    try:
        key = parse_key([field], bare=True)
    except ContractError:
        return
    assert 1 <= len(key) <= 255
    assert key.isascii()
    assert key.isprintable()


@pytest.mark.parametrize(
    "field",
    [
        pytest.param(b'"k"', id="a string"),
        pytest.param(b"  k ", id="a bare token"),
        pytest.param(b'"k";a', id="a parameter without a value"),
        pytest.param(b'"k";a=1;b=?1;c=tok;d="s";e=:aGk=:;f=-1.5', id="parameters of every kind"),
        pytest.param(b'"k" ', id="a space after it"),
    ],
)
def test_a_key_is_read(field: bytes) -> None:
    assert parse_key([field], bare=True) == "k"


@pytest.mark.parametrize(
    "field",
    [
        pytest.param(b"8e03978e-40d5-43e8-bc93-6894a57f9324", id="a UUID"),
        pytest.param(b"a/b+c=", id="base64"),
        pytest.param(b"run:step.1", id="colon and dot"),
    ],
)
def test_a_bare_key_is_read_where_it_is_taken(field: bytes) -> None:
    assert parse_key([field], bare=True) == field.decode()


@pytest.mark.parametrize(
    "field",
    [
        pytest.param(b"two words", id="white space"),
        pytest.param(b"a,b", id="a comma"),
        pytest.param(b"a;b", id="a semicolon"),
        pytest.param(b'"k"; A=1', id="a parameter in capitals"),
        pytest.param(b'"k";a=', id="a parameter without what it promises"),
        pytest.param(b'"k"x', id="text after a string"),
        pytest.param(b'"tab\there"', id="a tab"),
        pytest.param(b"k" * 256, id="too long"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_what_is_neither_string_nor_token_is_refused(field: bytes) -> None:
    with pytest.raises(ContractError):
        parse_key([field], bare=True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lease_ms", 0),
        ("lease_ms", 24 * 60 * 60 * 1000 + 1),
        ("retention_ms", 0),
        ("retention_ms", 3660 * 24 * 60 * 60 * 1000 + 1),
        ("body_bytes_max", 0),
        ("body_bytes_max", 64 * 1024 * 1024 + 1),
        ("answer_bytes_max", 0),
        ("answer_bytes_max", 64 * 1024 * 1024 + 1),
        ("client", ""),
        ("client", "x account"),
        ("client", "x-accöunt"),
        ("headers", ("content-type", "")),
        ("receipts_path", "receipts"),
        ("receipts_path", "/receipts/"),
        ("receipts_path", "/"),
        ("receipts_path", "/réceipts"),
        ("documentation", "https://a.example/ b"),
        ("documentation", 'https://a.example/>;"'),
        ("documentation", "https://a.example/\r\nx: y"),
    ],
)
def test_a_rule_out_of_bounds_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        Rules(**{name: value})


def scope(path: str = "/", *headers: tuple[bytes, bytes], query: bytes = b"") -> dict[str, Any]:
    return {"method": "POST", "path": path, "query_string": query, "headers": list(headers)}


@given(
    st.lists(
        st.tuples(st.text(max_size=5), st.binary(max_size=5), st.binary(max_size=5)), unique=True
    )
)
def test_two_requests_never_have_one_fingerprint(requests: list[tuple[str, bytes, bytes]]) -> None:
    found = {
        fingerprint_of(scope(f"/{path}", query=query), Rules(), body)
        for path, query, body in requests
    }
    assert len(found) == len(requests)


def test_two_headers_are_not_one() -> None:
    name = b"content-type"
    apart = scope("/", (name, b"a"), (name, b"b"))
    joined = scope("/", (name, b"ab"))
    assert fingerprint_of(apart, Rules(), b"") != fingerprint_of(joined, Rules(), b"")


def test_a_name_of_a_header_is_of_no_case() -> None:
    one, two = scope("/", (b"Content-Type", b"a")), scope("/", (b"content-type", b"a"))
    assert fingerprint_of(one, Rules(), b"") == fingerprint_of(two, Rules(), b"")


def test_headers_that_are_chosen_belong_to_the_request() -> None:
    rules = Rules(headers=("X-Tenant",))
    one, two = scope("/", (b"x-tenant", b"a")), scope("/", (b"x-tenant", b"b"))
    assert fingerprint_of(one, rules, b"") != fingerprint_of(two, rules, b"")


TOKEN = (b"authorization", b"Bearer a")


@pytest.mark.parametrize("rules", [Rules(), Rules(client=lambda _: "Bearer a")])
def test_a_client_is_named_by_a_digest_that_only_its_journal_can_make(rules: Rules) -> None:
    digests = [client_of(scope("/", TOKEN), rules, secret) for secret in ("one", "two", "one")]
    assert (digests[0] == digests[2], len(set(digests)), len(digests[0] or "")) == (True, 2, 64)


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(Rules(client="X-Account"), id="by another header"),
        pytest.param(Rules(client=lambda found: found["path"]), id="by a function"),
    ],
)
def test_clients_are_told_apart(rules: Rules) -> None:
    found = {
        client_of(scope(f"/{name}", (b"x-account", name.encode())), rules, "secret")
        for name in ("a", "a", "b")
    }
    assert (len(found), None in found) == (2, False)


@pytest.mark.parametrize(
    ("headers", "rules"),
    [
        pytest.param([], Rules(), id="no header"),
        pytest.param([(b"authorization", b"")], Rules(), id="an empty one"),
        pytest.param([(b"authorization", b" \t")], Rules(), id="blanks"),
        pytest.param([TOKEN, TOKEN], Rules(), id="the header twice"),
        pytest.param([TOKEN], Rules(client="x-account"), id="another header"),
        pytest.param([TOKEN], Rules(client=lambda _: ""), id="a function that names nobody"),
    ],
)
def test_who_is_not_named_is_nobody(headers: list[tuple[bytes, bytes]], rules: Rules) -> None:
    assert client_of(scope("/", *headers), rules, "secret") is None


def test_all_are_one_client_only_where_the_rules_say_so() -> None:
    found = {client_of(scope("/", *each), Rules(client=None), "secret") for each in ([], [TOKEN])}
    assert (len(found), None in found) == (1, False)


def test_how_receipts_commit_may_differ_by_request() -> None:
    rules = Rules(
        commits=lambda found: Commits.TOGETHER if found["path"] == "/a" else Commits.APART
    )
    assert [rules.commits_of(scope(path)) for path in ("/a", "/b")] == [
        Commits.TOGETHER,
        Commits.APART,
    ]

"""A url says where an etcd is, and says nothing that it does not mean."""

import pickle
from pathlib import Path

import pytest

from counterfoil.core.errors import ConfigError
from counterfoil.stores.etcd_address import ENDPOINTS_MAX, PASSWORD_VARIABLE, parse_address, trust

SECRET = "correct horse"
ENTERED = {PASSWORD_VARIABLE: SECRET}


@pytest.mark.parametrize(
    ("url", "endpoints", "prefix"),
    [
        pytest.param("etcd://one", ("http://one:2379",), "counterfoil", id="a host alone"),
        pytest.param("etcd://One:1/", ("http://one:1",), "counterfoil", id="a port"),
        pytest.param(
            "etcd://one,two:2,[::1]:3/team.a-b_c",
            ("http://one:2379", "http://two:2", "http://[::1]:3"),
            "team.a-b_c",
            id="several hosts and a prefix",
        ),
        pytest.param("etcd://one/x?tls=true", ("https://one:2379",), "x", id="with TLS"),
        pytest.param("etcd://one/x?tls=false", ("http://one:2379",), "x", id="without it"),
    ],
)
def test_a_url_names_nodes_and_a_prefix(url: str, endpoints: tuple[str, ...], prefix: str) -> None:
    address = parse_address(url, {})
    assert (address.endpoints, address.prefix) == (endpoints, prefix)
    assert address.uses_tls == endpoints[0].startswith("https")


def test_a_user_has_the_password_of_the_environment() -> None:
    address = parse_address("etcd://us%40er@one", ENTERED)
    assert (address.user, address.password) == ("us@er", SECRET)


def test_nobody_has_no_password() -> None:
    assert parse_address("etcd://one", ENTERED).password == ""


def test_a_password_is_in_no_text_of_an_address() -> None:
    address = parse_address("etcd://user@one", ENTERED)
    assert SECRET not in f"{address!r} {address} {address.hosts}"


def test_certificates_are_files() -> None:
    address = parse_address("etcd://one?tls=true&ca=/a&cert=/b&key=%2Fc%20d", {})
    assert (address.ca, address.cert, address.key) == (Path("/a"), Path("/b"), Path("/c d"))


MALFORMED = {
    "another scheme": "http://one",
    "no host": "etcd:///prefix",
    "an empty host": "etcd://one,,two",
    "a port that is none": "etcd://one:0",
    "a port that is too high": "etcd://one:65536",
    "a host twice": "etcd://one,one:2379",
    "too many hosts": "etcd://" + ",".join(f"h{n}" for n in range(ENDPOINTS_MAX + 1)),
    "a host with a space": "etcd://a b",
    "an address that is none": "etcd://[::1",
    "a prefix of two parts": "etcd://one/a/b",
    "a prefix with an odd letter": "etcd://one/%00",
    "a prefix that is too long": "etcd://one/" + "x" * 101,
    "an unknown parameter": "etcd://one?tsl=true",
    "a parameter twice": "etcd://one?tls=true&tls=false",
    "a parameter without a value": "etcd://one?tls=",
    "a tls that is neither": "etcd://one?tls=yes",
    "certificates without TLS": "etcd://one?ca=/a",
    "a certificate without its key": "etcd://one?tls=true&cert=/a",
    "a key without its certificate": "etcd://one?tls=true&key=/a",
    "a fragment": "etcd://one#x",
    "a password": f"etcd://user:{SECRET.replace(' ', '%20')}@one",
}


@pytest.mark.parametrize("url", MALFORMED.values(), ids=MALFORMED)
def test_what_a_url_does_not_mean_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_address(url, ENTERED)
    said = f"{caught.value} {pickle.dumps(caught.value)!r}"
    assert SECRET not in said
    assert "correct%20horse" not in said


def test_a_user_without_a_password_is_refused() -> None:
    with pytest.raises(ConfigError, match=PASSWORD_VARIABLE):
        parse_address("etcd://user@one", {})


def test_without_tls_nothing_is_read() -> None:
    assert trust(parse_address("etcd://one", {})) is False


def test_a_root_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    address = parse_address(f"etcd://one?tls=true&ca={tmp_path / 'nowhere'}", {})
    with pytest.raises(ConfigError, match="No such file"):
        trust(address)

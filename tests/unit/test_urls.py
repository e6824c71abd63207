"""A url says where something lies, and its password is never seen."""

from pathlib import Path

import pytest

from counterfoil.core.errors import ConfigError
from counterfoil.places import HEADS_SCHEMES, STORE_SCHEMES, places_of
from counterfoil.settings import Heads, Keys, Settings, Store
from counterfoil.urls import Scheme, are_one_database, has_password, is_on_this_machine, shown
from counterfoil.urls import scheme_of as scheme_of_url

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        pytest.param(f"postgresql://a:{SECRET}@h/d", "postgresql://a:***@h/d", id="a password"),
        pytest.param(f"etcd://a:{SECRET}@h:1,i:2/p", "etcd://a:***@h:1,i:2/p", id="of etcd"),
        pytest.param(f"postgresql://a:x@{SECRET}@h/d", "postgresql://a:***@h/d", id="an @ in it"),
        pytest.param(f"postgresql://a:x/{SECRET}@h/d", "postgresql://a:***@h/d", id="a / in it"),
        pytest.param(f"postgresql://a:?{SECRET}@h/d", "postgresql://a:***@h/d", id="a ? in it"),
        pytest.param(f"postgresql://a:#{SECRET}@h/d", "postgresql://a:***@h/d", id="a # in it"),
        pytest.param(
            f"postgresql://a@h/d?password={SECRET}&schema=s",
            "postgresql://a@h/d?password=***&schema=s",
            id="a parameter",
        ),
        pytest.param(
            f"postgresql://a@h/d?schema=s&sslpassword={SECRET}",
            "postgresql://a@h/d?schema=s&sslpassword=***",
            id="of a key",
        ),
        pytest.param(f"mysql://a:{SECRET}@h/d", "mysql:***@h/d", id="an unknown scheme"),
        pytest.param(f"a:{SECRET}@h/d", "a:***@h/d", id="no scheme"),
        pytest.param(f"postgresql:a:{SECRET}@h", "postgresql:***@h", id="no slashes"),
    ],
)
def test_what_could_be_a_password_is_hidden(url: str, expected: str) -> None:
    assert (shown(url), has_password(url)) == (expected, True)


@pytest.mark.parametrize(
    "url",
    [
        "memory:",
        "sqlite:a@b:c/d.db",
        "postgresql://h/d",
        "postgresql://a@h:5432/d?schema=s",
        "postgresql://a@[::1]:5432/d",
        "etcd://a@h:2379,i:2379/p?tls=true&ca=/x",
    ],
)
def test_a_url_without_one_is_shown_as_it_is(url: str) -> None:
    assert (shown(url), has_password(url)) == (url, False)


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("", id="nothing"),
        pytest.param("sqlite:", id="no path"),
        pytest.param("memory:x", id="memory has no place"),
        pytest.param("postgres://a@h/d", id="a short name"),
        pytest.param("mysql://a@h/d", id="an unknown scheme"),
        pytest.param("POSTGRESQL://a@h/d", id="capitals"),
        pytest.param("postgresql:a@h/d", id="no slashes"),
        pytest.param("postgresql:///d", id="no host"),
        pytest.param("postgresql://a@/d", id="a user and no host"),
        pytest.param("etcd://h:1,,i:2/p", id="an empty host between others"),
        pytest.param("etcd://h:1,:2/p", id="a port alone"),
        pytest.param("postgresql://h:0/d", id="port 0"),
        pytest.param("postgresql://h:65536/d", id="a port too large"),
        pytest.param("postgresql://h:x/d", id="a port that is no number"),
        pytest.param("postgresql://h/d#x", id="a fragment"),
        pytest.param("postgresql://[::1/d", id="half an address"),
        pytest.param("postgresql://h/a b", id="a space"),
        pytest.param("postgresql://h/\x1b", id="a control character"),
        pytest.param(f"postgresql://h/{'d' * 2_000}", id="too long"),
    ],
)
@pytest.mark.parametrize("field", ["store.url", "heads.url"])
def test_a_url_that_cannot_be_used_is_refused_by_the_name_of_its_setting(
    url: str, field: str
) -> None:
    schemes = STORE_SCHEMES if field == "store.url" else HEADS_SCHEMES
    with pytest.raises(ConfigError, match=field):
        scheme_of_url(url, field, schemes)


@pytest.mark.parametrize(
    ("url", "scheme"),
    [
        ("memory:", Scheme.MEMORY),
        ("sqlite:x.db", Scheme.SQLITE),
        ("postgresql://h/d", Scheme.POSTGRESQL),
        ("postgresql://a@%2Frun%2Fpostgresql/d", Scheme.POSTGRESQL),
        ("postgresql://a:b@[::1]:5432,h/d?schema=s", Scheme.POSTGRESQL),
        ("etcd://h:2379,i:2379/p", Scheme.ETCD),
    ],
)
def test_a_url_names_a_kind_of_place(url: str, scheme: Scheme) -> None:
    assert scheme_of_url(url, "heads.url", HEADS_SCHEMES) is scheme


def test_checkpoints_do_not_lie_in_etcd() -> None:
    with pytest.raises(ConfigError, match=r"store\.url"):
        scheme_of_url("etcd://h/p", "store.url", STORE_SCHEMES)


@pytest.mark.parametrize(
    ("store", "heads", "expected"),
    [
        pytest.param("postgresql://a@h/d", "postgresql://a@h/d", True, id="the same"),
        pytest.param("postgresql://a@h:5432/d", "postgresql://a@H/d", True, id="the usual port"),
        pytest.param(
            "postgresql://a@h/d", "postgresql://a@h/d?schema=counterfoil", True, id="our schema"
        ),
        pytest.param("postgresql://a:x@h/d", "postgresql://a@h/d", True, id="a password in one"),
        pytest.param("postgresql://a@h/%64", "postgresql://a@h/d", True, id="another spelling"),
        pytest.param("postgresql://a@h/d", "postgresql://b@h/d", False, id="another user"),
        pytest.param("postgresql://a@h/d", "postgresql://a@h/e", False, id="another database"),
        pytest.param("postgresql://a@h/d", "postgresql://a@h:1/d", False, id="another port"),
        pytest.param("postgresql://a@h/d", "postgresql://a@i/d", False, id="another host"),
        pytest.param(
            "postgresql://a@localhost/d", "postgresql://a@127.0.0.1/d", False, id="in doubt"
        ),
        pytest.param(
            "postgresql://a@h/d", "postgresql://a@h/d?schema=s", False, id="another schema"
        ),
        pytest.param("postgresql://a@h/d", "etcd://a@h/d", False, id="another kind"),
        pytest.param("sqlite:x", "sqlite:x", False, id="files"),
    ],
)
def test_two_urls_are_one_database_only_if_that_is_certain(
    store: str, heads: str, expected: bool
) -> None:
    assert (are_one_database(store, heads), are_one_database(heads, store)) == (expected, expected)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("etcd://127.0.0.1:1,127.0.0.1:2/p", True),
        ("postgresql://a@localhost/d", True),
        ("postgresql://a@[::1]/d", True),
        ("postgresql://a@%2Frun/d", True),
        ("etcd://127.0.0.1:1,h:2/p", False),
        ("postgresql://a@h/d", False),
    ],
)
def test_a_server_is_on_this_machine_if_all_its_hosts_are(url: str, expected: bool) -> None:
    assert is_on_this_machine(url) == expected


def test_settings_and_places_hold_a_password_and_show_none(tmp_path: Path) -> None:
    url = f"postgresql://a:{SECRET}@h/d"
    settings = Settings(
        store=Store(url=url), heads=Heads(url=url), keys=Keys(source="env:COUNTERFOIL_KEY")
    )
    places = places_of(tmp_path, settings)
    assert (places.store_url, places.heads_url) == (url, url)
    texts = [repr(settings), repr(settings.store), repr(places), str(settings.heads)]
    assert [text for text in texts if SECRET in text] == []


@pytest.mark.parametrize("field", ["store", "heads"])
def test_a_refusal_of_a_url_shows_no_password(tmp_path: Path, field: str) -> None:
    text = f"mysql://a:{SECRET}@h/d"
    settings = (
        Settings(store=Store(url=text)) if field == "store" else Settings(heads=Heads(url=text))
    )
    with pytest.raises(ConfigError, match=rf"{field}\.url 'mysql:\*\*\*@h/d'"):
        places_of(tmp_path, settings)

"""Who is let in to etcd, over which connection, and what they are told who are not."""

import signal
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from counterfoil.core.errors import ConfigError, CounterfoilError, UnavailableError
from counterfoil.local.certificates import make_certificates
from counterfoil.local.etcd import LocalEtcd
from counterfoil.stores.etcd import EtcdHeads, Patience, open_heads
from counterfoil.stores.etcd_address import PASSWORD_VARIABLE
from counterfoil.testing.store_bench import RUN, created, move
from tests.support.etcd import fresh_prefix, opened

LONG_MS = 600_000
OURS, THEIRS = "ours", "theirs"


@pytest.fixture(scope="module")
def guarded() -> Generator[LocalEtcd]:
    """A node that wants certificates and passwords."""
    with LocalEtcd(tls=True) as server:
        server.enable_auth()
        for user in (OURS, THEIRS):
            server.add_user(user, user)
        yield server


@pytest.fixture(scope="module")
def plain() -> Generator[LocalEtcd]:
    with LocalEtcd() as server:
        yield server


def entered(server: LocalEtcd, prefix: str, user: str) -> EtcdHeads:
    return opened(server, prefix, user=user)


def test_a_user_reads_and_writes_below_its_prefix(guarded: LocalEtcd) -> None:
    heads = entered(guarded, OURS, OURS)
    head = heads.create(RUN, "a" * 64, "one", "nonce", LONG_MS)
    (moved,) = heads.advance([move(head, ttl_ms=LONG_MS)])
    moved = heads.renew(moved, LONG_MS * 2)
    assert heads.read(RUN) == moved
    heads.release(moved, 1_000)
    assert heads.claimable(9) == ()
    assert [each.run_id for each in heads.heads("", 9)] == [RUN]
    heads.close()


@pytest.mark.parametrize("create", [True, False])
def test_a_user_of_another_prefix_is_refused(guarded: LocalEtcd, create: bool) -> None:
    with pytest.raises(ConfigError, match="'theirs' read and write below ours/") as caught:
        opened(guarded, OURS, user=THEIRS, create=create)
    assert guarded.password not in repr(caught.value)


def test_a_wrong_password_is_refused(guarded: LocalEtcd) -> None:
    with pytest.raises(ConfigError, match="does not know the user 'ours'") as caught:
        opened(guarded, OURS, user=OURS, environment={PASSWORD_VARIABLE: "wrong"})
    assert "wrong" not in shown(caught.value)


def shown(error: BaseException) -> str:
    """Return everything that an error and what is behind it could show."""
    texts: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        texts += [str(cause), repr(cause), *map(repr, cause.args)]
        cause = cause.__cause__ or cause.__context__
    return " ".join(texts)


def test_nobody_is_refused_too(guarded: LocalEtcd) -> None:
    with pytest.raises(ConfigError, match="its url names no user"):
        opened(guarded, OURS)


def test_a_user_where_nobody_is_asked_is_refused(plain: LocalEtcd) -> None:
    with pytest.raises(ConfigError, match="asks nobody for a password"):
        opened(plain, fresh_prefix(), user=OURS)


def test_a_right_that_is_taken_away_ends_the_writes(guarded: LocalEtcd) -> None:
    guarded.add_user("guest", "guest")
    heads = entered(guarded, "guest", "guest")
    head = created(heads, ttl_ms=LONG_MS)
    guarded._tell("user", "revoke-role", "guest", "guest")
    with pytest.raises(ConfigError, match="does not let 'guest'"):
        heads.advance([move(head, ttl_ms=LONG_MS)])
    guarded._tell("user", "grant-role", "guest", "guest")
    heads.advance([move(head, ttl_ms=LONG_MS)])
    heads.close()


@pytest.mark.parametrize("how", ["read", "write"])
def test_a_token_that_etcd_has_forgotten_is_asked_for_anew(guarded: LocalEtcd, how: str) -> None:
    """Tokens live in the memory of nodes; a request under an old one is not looked at."""
    guarded.add_user(f"late-{how}", f"late-{how}")
    heads = entered(guarded, f"late-{how}", f"late-{how}")
    head = created(heads, ttl_ms=LONG_MS)
    heads._gateway._token = "forgotten.1"
    if how == "read":
        assert heads.read(RUN) == head
    else:
        heads.advance([move(head, ttl_ms=LONG_MS)])
    assert heads._gateway._token != "forgotten.1"
    heads.close()


def test_a_node_that_was_started_again_is_entered_again(guarded: LocalEtcd) -> None:
    heads = entered(guarded, THEIRS, THEIRS)
    head = created(heads, ttl_ms=LONG_MS)
    guarded.kill(0)
    with pytest.raises(UnavailableError):
        heads.read(RUN)
    guarded.restart(0)
    heads.advance([move(head, ttl_ms=LONG_MS)])
    heads.close()


# ---------------------------------------------------------------- certificates


def other_root(url: str, folder: Path) -> str:
    """Trust a root that did not sign the node's certificate."""
    before, _, after = url.partition("ca=")
    return f"{before}ca={make_certificates(folder).ca}&{after.partition('&')[2]}"


def other_client(url: str, folder: Path) -> str:
    """Show a certificate that the node's root did not sign."""
    made = make_certificates(folder)
    return f"{url.partition('&cert=')[0]}&cert={made.client}&key={made.client_key}"


def no_client(url: str, folder: Path) -> str:
    return url.partition("&cert=")[0]


def no_tls(url: str, folder: Path) -> str:
    return url.partition("?")[0]


def no_file(url: str, folder: Path) -> str:
    return url.replace("client.pem", "nowhere.pem")


def no_key(url: str, folder: Path) -> str:
    empty = folder / "empty"
    empty.write_bytes(b"")
    return f"{url.partition('&key=')[0]}&key={empty}"


REFUSED = {
    "another root": (other_root, "is not signed by the one that is trusted"),
    "another's certificate": (other_client, "does not accept our certificate"),
    "no certificate": (no_client, "does not accept our certificate, or wants one"),
    "a file that is not there": (no_file, "cannot be used"),
    "an empty key": (no_key, "cannot be used"),
}


@pytest.mark.parametrize(("change", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_connection_that_one_side_does_not_trust_is_refused(
    guarded: LocalEtcd, tmp_path: Path, change: Callable[[str, Path], str], sentence: str
) -> None:
    url = change(guarded.url(OURS, user=OURS), tmp_path)
    with pytest.raises(ConfigError, match=sentence) as caught:
        open_heads(url, create=False, environment={PASSWORD_VARIABLE: guarded.password})
    assert guarded.password not in shown(caught.value)


def test_a_node_is_not_talked_to_in_the_clear_if_it_wants_tls_nor_otherwise(
    guarded: LocalEtcd, plain: LocalEtcd
) -> None:
    """Nodes end such a connection without a word, as one does that dies."""
    hurry = Patience(bound=0.5)
    environment = {PASSWORD_VARIABLE: guarded.password}
    clear = no_tls(guarded.url(OURS, user=OURS), Path())
    for url in (clear, f"{plain.url('any')}?tls=true"):
        with pytest.raises(UnavailableError):
            open_heads(url, create=False, environment=environment, patience=hurry)


def test_no_error_of_a_guarded_node_shows_the_password(guarded: LocalEtcd) -> None:
    heads = entered(guarded, OURS, OURS)
    assert guarded.password not in repr(heads._gateway.address)
    guarded._end(0, signal.SIGKILL)
    with pytest.raises(CounterfoilError) as caught:
        heads.read(RUN)
    assert guarded.password not in shown(caught.value)
    guarded.restart(0)
    heads.close()

"""Databases that answer, and take no writes: what they do not know of is not absent."""

from collections.abc import Generator

import pytest

from counterfoil.core.errors import UnavailableError
from counterfoil.integrations.asgi import Commits, install_journal, open_journal
from counterfoil.integrations.asgi.call import Call
from counterfoil.integrations.asgi.rows import Verdict
from counterfoil.local.postgres import SETTINGS, LocalPostgres
from tests.support.asgi_bench import new_key
from tests.support.postgres import execute, fresh_database

pytest_plugins = ["tests.support.postgres"]

NOW_MS = 1_700_000_000_000
NAME = f"db_{new_key()}"
CALL = Call(client="c", key="key", fingerprint="f", commits=Commits.APART)


@pytest.fixture(scope="module")
def standby(postgres: LocalPostgres) -> Generator[LocalPostgres]:
    """A server that follows another one, as a primary leaves it; it has a journal of its own."""
    server = LocalPostgres()
    server.password = postgres.password  # so that one URL is good for both
    with pytest.MonkeyPatch.context() as patch, server:
        server.stop()
        patch.setitem(SETTINGS, "wal_level", "replica")
        server.start()
        install_journal(server.create_database(NAME))
        server.stop()
        (server.folder / "data" / "standby.signal").touch()
        server.start()
        yield server


@pytest.mark.parametrize(
    "servers",
    [
        pytest.param("", id="as its URL is"),
        pytest.param("?target_session_attrs=any", id="as a pooler may lend it"),
    ],
)
def test_a_standby_is_not_asked(standby: LocalPostgres, servers: str) -> None:
    place = standby.url(NAME)
    assert execute(place, "SELECT pg_is_in_recovery()") == [(True,)]
    with pytest.raises(UnavailableError):
        open_journal(place + servers).look_up("c", "key", now_ms=NOW_MS)


def test_the_server_that_takes_writes_is_asked_wherever_it_is_in_the_url(
    standby: LocalPostgres, postgres: LocalPostgres
) -> None:
    place = postgres.create_database(NAME)
    install_journal(place)
    both = standby.url(NAME).replace(f"/{NAME}", f",127.0.0.1:{postgres.port}/{NAME}")
    journal = open_journal(both)
    journal.claim(CALL, "one", now_ms=NOW_MS, lease_ms=1_000)
    found = journal.look_up("c", "key", now_ms=NOW_MS).verdict
    journal.close()
    assert found is Verdict.IN_FLIGHT


def test_a_database_that_became_read_only_is_not_asked(postgres: LocalPostgres) -> None:
    place = fresh_database(postgres)
    install_journal(place)
    name = place.rpartition("/")[2]
    execute(place, f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    with pytest.raises(UnavailableError):
        open_journal(place)

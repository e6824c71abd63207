"""Tables are made once, by whoever may, and never taken for what they are not."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from counterfoil.core.archive import SEAL
from counterfoil.core.errors import (
    ConfigError,
    CounterfoilError,
    FormatError,
    HeadMissingError,
    RollbackError,
    UnavailableError,
    UsageError,
)
from counterfoil.local import postgres as local
from counterfoil.local.postgres import LocalPostgres
from counterfoil.stores import postgres as ports
from counterfoil.stores import postgres_pool, postgres_schema
from counterfoil.stores.postgres import open_heads, open_inbox, open_joint, open_store
from counterfoil.testing.store_bench import RUN, checkpoint, created
from tests.support.postgres import execute, fresh_database

pytest_plugins = ["tests.support.postgres"]

OPENS: dict[str, tuple[Callable[..., Any], type[CounterfoilError]]] = {
    "store": (open_store, RollbackError),
    "heads": (open_heads, HeadMissingError),
    "inbox": (open_inbox, ConfigError),
}
PROCESSES = 4
OPENER = """
import sys
from counterfoil.stores import postgres
sys.stdin.read(1)
for part in ("store", "heads", "inbox"):
    getattr(postgres, "open_" + part)(sys.argv[1], create=True).close()
heads = postgres.open_heads(sys.argv[1], create=False)
print(heads.create(sys.argv[2], "0" * 64, "one", "nonce", 1_000).incarnation)
heads.close()
"""


@pytest.mark.parametrize("part", OPENS)
def test_tables_that_are_missing_are_not_made_unasked(postgres: LocalPostgres, part: str) -> None:
    url = fresh_database(postgres)
    opens, error = OPENS[part]
    for other in OPENS:
        if other != part:
            OPENS[other][0](url, create=True).close()
    with pytest.raises(error, match=f"has no {part} tables"):
        opens(url, create=False)
    assert execute(url, "SELECT count(*) FROM counterfoil.counterfoil_schema") == [(2,)]


def test_an_empty_database_stays_empty_when_nothing_may_be_made(postgres: LocalPostgres) -> None:
    url = fresh_database(postgres)
    with pytest.raises(RollbackError):
        open_store(url, create=False)
    with pytest.raises(RollbackError):
        open_joint(url)
    query = "SELECT count(*) FROM pg_namespace WHERE nspname = 'counterfoil'"
    assert execute(url, query) == [(0,)]


def test_a_joint_needs_both_its_parts(postgres: LocalPostgres) -> None:
    url = fresh_database(postgres)
    open_store(url, create=True).close()
    with pytest.raises(HeadMissingError):
        open_joint(url)


@pytest.mark.parametrize("part", OPENS)
def test_tables_of_a_later_release_are_refused(postgres: LocalPostgres, part: str) -> None:
    url = fresh_database(postgres)
    opens, _ = OPENS[part]
    opens(url, create=True).close()
    later = "UPDATE counterfoil.counterfoil_schema SET version = version + 1 WHERE name = %s"
    execute(url, later, part)
    known = getattr(ports, part.upper()).version
    for create in (True, False):
        with pytest.raises(ConfigError, match=f"version {known + 1}, this release knows {known}"):
            opens(url, create=create)


@pytest.mark.parametrize(
    ("later", "version"),
    [
        pytest.param("ALTER TABLE {schema}.statement ADD COLUMN more text", 2, id="it works"),
        pytest.param("ALTER TABLE {schema}.nothing ADD COLUMN more text", 1, id="it fails"),
    ],
)
def test_a_later_script_runs_once_on_what_an_earlier_release_made(
    postgres: LocalPostgres, monkeypatch: pytest.MonkeyPatch, later: str, version: int
) -> None:
    url = fresh_database(postgres)
    before = open_inbox(url, create=True)
    before.put(RUN, b"statement")
    read, ran = postgres_schema.script, list[str]()

    def script(name: str) -> str:
        ran.append(name)
        return later if name == "inbox_002" else read(name)

    monkeypatch.setattr(postgres_schema, "script", script)
    monkeypatch.setattr(ports, "INBOX", replace(ports.INBOX, version=2))
    for _ in range(2):
        with suppress(CounterfoilError):
            open_inbox(url, create=False).close()
    assert ran == ["inbox_002"] * (1 if version == 2 else 2)
    kept = "SELECT version FROM counterfoil.counterfoil_schema WHERE name = 'inbox'"
    assert execute(url, kept) == [(version,)]
    assert before.pending(RUN, 9) == (b"statement",)  # the earlier release goes on
    before.close()


def test_processes_that_make_tables_at_once_make_them_once(postgres: LocalPostgres) -> None:
    url = fresh_database(postgres)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", OPENER, url, f"run {number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("!")
        process.stdin.flush()
    answers = {process.communicate()[0] for process in processes}
    assert [process.returncode for process in processes] == [0] * PROCESSES
    assert len(answers) == 1, "every process has the same register"


def test_opening_again_keeps_everything(postgres: LocalPostgres) -> None:
    url = fresh_database(postgres)
    store, heads = open_store(url, create=True), open_heads(url, create=True)
    store.put([checkpoint(0)])
    head = created(heads)
    store.close()
    heads.close()
    store, heads = open_store(url, create=True), open_heads(url, create=True)
    assert store.trace(RUN, -1, 9) == (checkpoint(0),)
    assert heads.read(RUN) == head
    store.close()
    heads.close()


def test_schemas_of_one_database_are_kept_apart(postgres: LocalPostgres) -> None:
    url = fresh_database(postgres)
    one = open_heads(f"{url}?schema=one", create=True)
    two = open_heads(f"{url}?schema=two", create=True)
    head = created(one)
    assert two.read(RUN) is None
    assert created(two).incarnation != head.incarnation
    one.close()
    assert two.read(RUN) is not None
    two.close()


def test_tables_that_are_gone_are_damage(postgres: LocalPostgres) -> None:
    url = fresh_database(postgres)
    heads = open_heads(url, create=True)
    execute(url, "DROP SCHEMA counterfoil CASCADE")
    with pytest.raises(FormatError):
        heads.read(RUN)
    with pytest.raises(FormatError):
        created(heads)
    heads.close()


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
def test_a_server_that_may_lose_commits_is_refused(
    fragile: LocalPostgres, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    url = fresh_database(fragile)
    with monkeypatch.context() as patch:
        patch.setitem(local.SETTINGS, setting, "off")
        fragile.restart()
    try:
        with pytest.raises(ConfigError, match="loses commits"):
            open_store(url, create=True)
    finally:
        fragile.restart()


def test_a_server_that_is_too_old_is_refused(
    postgres: LocalPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_pool, "SERVER_VERSION_MIN", 99_00_00)
    with pytest.raises(ConfigError, match="the oldest that can be used is 99"):
        open_store(fresh_database(postgres), create=True)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        pytest.param(("test_", "no_such_"), ConfigError, id="a database that is not there"),
        pytest.param(("app:", "nobody:"), ConfigError, id="a role that is not there"),
        pytest.param(("app:", "app:not-"), ConfigError, id="a wrong password"),
        pytest.param(("127.0.0.1", "127.0.0.9"), UnavailableError, id="a server that is not there"),
    ],
)
def test_what_cannot_be_opened_is_said_without_the_password(
    postgres: LocalPostgres, change: tuple[str, str], error: type[CounterfoilError]
) -> None:
    url = fresh_database(postgres).replace(*change)
    with pytest.raises(error) as caught:
        open_store(url, create=True)
    chain, seen = caught.value, list[BaseException]()
    while chain is not None:
        seen.append(chain)
        chain = chain.__cause__ or chain.__context__
    assert postgres.password not in "".join(f"{each!r} {each}" for each in seen)


def test_a_port_that_was_closed_says_so_and_leaves_the_others_open(
    postgres: LocalPostgres,
) -> None:
    url = fresh_database(postgres)
    store, heads = open_store(url, create=True), open_heads(url, create=True)
    joint = open_joint(url)
    store.close()
    with pytest.raises(UsageError, match="was closed"):
        store.put([checkpoint(0)])
    assert heads.read(RUN) is None
    heads.close()
    assert joint.commit([], []) == ()
    joint.close()


def test_a_fork_is_told_to_open_its_own(postgres: LocalPostgres) -> None:
    heads = open_heads(fresh_database(postgres), create=True)
    head = created(heads)
    child = os.fork()
    if child == 0:
        try:
            heads.read(RUN)
        except UsageError as error:
            os._exit(7 if "before a fork" in str(error) else 8)
        finally:
            os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert heads.read(RUN) == head
    heads.close()


def test_ports_of_one_url_share_their_connections(postgres: LocalPostgres) -> None:
    url = fresh_database(postgres)
    ports = [opens(f"{url}?pool=1", create=True) for opens, _ in OPENS.values()]
    count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> %s"
    (alone,) = execute(url, count.replace("%s", "pg_backend_pid()"))
    assert alone == (1,)
    for port in ports:
        port.close()


def test_a_store_of_the_first_release_takes_archives_and_lets_its_roles_read_them(
    postgres: LocalPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = fresh_database(postgres)
    row = checkpoint(0)
    with monkeypatch.context() as earlier:
        earlier.setattr(ports, "STORE", replace(ports.STORE, version=1))
        before = open_store(url, create=True)
        before.put([row, checkpoint(1)])
    role = f"reader_{os.getpid()}_of_old"
    execute(url, f"CREATE ROLE {role}")
    execute(url, f"GRANT SELECT ON counterfoil.checkpoint TO {role}")
    store = open_store(url, create=False)
    store.archive(RUN, SEAL, b"seal")
    assert store.collect(RUN, checkpoint(1).digest, 1, 9) == 1
    assert before.get(RUN, row.digest) is None
    query = "SELECT has_table_privilege(%s, 'counterfoil.archive', 'SELECT')"
    assert execute(url, query, role) == [(True,)]
    execute(url, f"DROP OWNED BY {role}")
    execute(url, f"DROP ROLE {role}")
    before.close()
    store.close()

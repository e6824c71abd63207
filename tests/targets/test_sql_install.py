"""The tables of receipts are made once, by whoever may, and nothing opens without them."""

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event
from time import monotonic

import apsw
import pytest
from typer.testing import CliRunner

from counterfoil.adapters.sql import Dbapi, Statement, install_sql, open_sql, sqlite
from counterfoil.adapters.sql.sqlite import OPEN_FILES, SqliteDatabase, is_open_otherwise
from counterfoil.cli import app
from counterfoil.core.errors import ConfigError, UnavailableError
from counterfoil.core.words import Key
from counterfoil.local.postgres import SETTINGS, LocalPostgres
from tests.support.postgres import execute, fresh_database
from tests.support.sources import ROOT
from tests.support.sql_bench import NOW_MS, noted
from tests.support.sql_scene import FENCE, RUN, asked

pytest_plugins = ["tests.support.postgres"]

KNOWN = {"one": Statement(text="SELECT 1", is_query=True)}
GRANTS = re.compile(r"^GRANT .*;$", re.MULTILINE)
INSTALLERS = 6
LOOKS_MADE = 300
TABLES = {"environment", "fence", "receipt", "forbidden"}


@pytest.fixture
def file(tmp_path: Path) -> str:
    apsw.Connection(str(tmp_path / "shop.db")).execute("CREATE TABLE note (line TEXT)")
    return f"sqlite:{tmp_path / 'shop.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def target(request: pytest.FixtureRequest) -> str:
    if request.param == "sqlite":
        return str(request.getfixturevalue("file"))
    return fresh_database(request.getfixturevalue("postgres"))


def test_a_second_installation_changes_nothing(target: str) -> None:
    first, second = install_sql(target), install_sql(target)
    assert {name.rpartition("counterfoil_")[2] for name in first.made} == TABLES
    assert (second.made, second.instance) == ((), first.instance)


def test_installers_at_once_make_one_environment(target: str) -> None:
    with ThreadPoolExecutor(INSTALLERS) as pool:
        made = list(pool.map(lambda _: install_sql(target), range(INSTALLERS)))
    assert len({each.instance for each in made}) == 1
    assert sorted(len(each.made) for each in made) == [0] * (INSTALLERS - 1) + [len(TABLES)]


def test_connections_that_come_and_go_in_other_threads_are_known_as_ours(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "LOOKS", 1)
    path, is_over = Path(file.removeprefix("sqlite:")), Event()

    def come_and_go() -> None:
        while not is_over.is_set():
            SqliteDatabase(path).begin(writes=False, ends_at=monotonic() + 60).end()

    with ThreadPoolExecutor() as pool:
        busy = pool.submit(come_and_go)
        found = [is_open_otherwise(path) for _ in range(LOOKS_MADE)]
        is_over.set()
    assert (busy.exception(), any(found)) == (None, False)


def test_nothing_opens_before_the_installation(target: str) -> None:
    with pytest.raises(ConfigError, match="counterfoil adapters sql install"):
        open_sql(target, statements=KNOWN, now_ms=lambda: NOW_MS)


def test_tables_of_another_version_are_refused(target: str) -> None:
    install_sql(target)
    text = "UPDATE {}counterfoil_environment SET schema_version = 2"
    if target.startswith("sqlite:"):
        apsw.Connection(target.removeprefix("sqlite:")).execute(text.replace("{}", ""))
    else:
        execute(target, text.replace("{}", "counterfoil_sql."))
    with pytest.raises(ConfigError, match="version 1"):
        open_sql(target, statements=KNOWN, now_ms=lambda: NOW_MS)
    with pytest.raises(ConfigError, match="version 1"):
        install_sql(target)


def test_a_role_that_may_make_no_tables_is_told_so(postgres: LocalPostgres) -> None:
    url = fresh_database(postgres)
    execute(url, f"CREATE ROLE clerk LOGIN PASSWORD '{postgres.password}'")
    database = url.rpartition("/")[2]
    with pytest.raises(ConfigError, match="42501"):
        install_sql(postgres.url(database, user="clerk"))
    execute(url, "DROP ROLE clerk")


def test_a_role_with_what_the_guide_grants_can_act(postgres: LocalPostgres) -> None:
    url = fresh_database(postgres)
    install_sql(url)
    execute(url, "CREATE TABLE note (line text)")
    execute(url, f"CREATE ROLE worker LOGIN PASSWORD '{postgres.password}'")
    try:
        execute(url, "GRANT INSERT ON note TO worker")
        for grant in GRANTS.findall((ROOT / "docs" / "how-to" / "sql.md").read_text("utf-8")):
            execute(url, grant.replace("shop_worker", "worker"))
        text = "INSERT INTO note VALUES (%(line)s)"
        adapter = open_sql(
            postgres.url(url.rpartition("/")[2], user="worker"),
            statements={"note": Statement(text=text, parameters={"line": str})},
            now_ms=lambda: NOW_MS,
        )
        adapter.take(RUN, FENCE)
        sent = asked(adapter, noted(1))
        assert sent.prestate.account == "worker"
        adapter.execute(sent)
        adapter.forbid(RUN, Key("key-2"), sent.kind, FENCE)
        adapter.close()
        assert execute(url, "SELECT line FROM note") == [("line 1",)]
    finally:
        execute(url, "DROP OWNED BY worker")
        execute(url, "DROP ROLE worker")


def test_a_wrong_password_is_not_shown(postgres: LocalPostgres) -> None:
    url = fresh_database(postgres).replace(postgres.password, "hunter2")
    with pytest.raises(ConfigError) as caught:
        install_sql(url)
    assert "hunter2" not in str(caught.value)


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(UnavailableError) as caught:
        install_sql("postgresql://app:hunter2@127.0.0.1:1/shop")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:/nowhere/shop.db",
        "mysql://app@host/shop",
        "postgresql://app@host/shop?schema=Not-One",
        "postgresql://app:hunter2@host/shop?no_such_option=1",
    ],
)
def test_an_address_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        install_sql(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("row", [pytest.param("T25", id="T25 no sync")])
def test_a_server_that_loses_commits_is_refused(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could forget an effect that a run has long recorded."""
    monkeypatch.setitem(SETTINGS, "fsync", "off")
    with LocalPostgres() as server:
        install_sql(server.url())
        with pytest.raises(ConfigError, match="fsync"):
            open_sql(server.url(), statements=KNOWN, now_ms=lambda: NOW_MS)


def test_a_place_without_its_driver_names_the_extra(file: str) -> None:
    """Importing the package needs no driver of a server."""
    text = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from counterfoil.adapters.sql import install_sql\n"
        "try: install_sql('postgresql://app@host/shop')\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", text], check=True, capture_output=True, text=True, timeout=60
    )
    assert answer.stdout.startswith("ConfigError")
    assert "counterfoil[sql]" in answer.stdout


def test_a_command_installs_and_says_what_it_did(file: str) -> None:
    runner = CliRunner()
    first = runner.invoke(app, ["adapters", "sql", "install", file, "--json"])
    second = runner.invoke(app, ["adapters", "sql", "install", file, "--json"])
    assert (first.exit_code, second.exit_code) == (0, 0)
    made, kept = json.loads(first.stdout), json.loads(second.stdout)
    assert len(made["made"]) == len(TABLES)
    assert kept == {**made, "made": []}
    told = runner.invoke(app, ["adapters", "sql", "install", file])
    assert "nothing changed" in told.stdout


def by_sqlite3(path: Path) -> Callable[[], None]:
    db = sqlite3.connect(path)
    db.execute("SELECT count(*) FROM sqlite_master").fetchall()
    return db.close


def plainly(path: Path) -> Callable[[], None]:
    return path.open("rb").close


@pytest.mark.skipif(not OPEN_FILES.exists(), reason="only Linux tells which files are open")
@pytest.mark.parametrize("opens", [by_sqlite3, plainly])
def test_a_file_that_is_open_by_other_means_is_refused(
    opens: Callable[[Path], Callable[[], None]], file: str
) -> None:
    """Whoever closes it drops the locks of this whole process, in the middle of a change."""
    install_sql(file)
    close = opens(Path(file.removeprefix("sqlite:")))
    for act in (
        lambda: install_sql(file),
        lambda: open_sql(file, statements=KNOWN, now_ms=lambda: NOW_MS).close(),
    ):
        with pytest.raises(ConfigError, match="other means than apsw"):
            act()
    close()
    open_sql(file, statements=KNOWN, now_ms=lambda: NOW_MS).close()


def test_a_file_may_be_open_by_apsw_many_times(file: str) -> None:
    install_sql(file)
    with closing(apsw.Connection(file.removeprefix("sqlite:"))) as db:
        db.execute("SELECT count(*) FROM sqlite_master").fetchall()
        open_sql(file, statements=KNOWN, now_ms=lambda: NOW_MS).close()


def test_a_driver_of_the_users_installs_too(file: str) -> None:
    place = Dbapi(module=sqlite3, connect=lambda: sqlite3.connect(file.removeprefix("sqlite:")))
    first, second = install_sql(place), install_sql(place)
    assert (len(first.made), second.made, second.instance) == (len(TABLES), (), first.instance)
    open_sql(file, statements=KNOWN, now_ms=lambda: NOW_MS).close()

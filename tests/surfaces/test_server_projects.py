"""Projects on real servers: set up, run, killed, recovered, looked at, and refused."""

import json
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest

from counterfoil.adapters.function import Effects
from counterfoil.compose import open_keeper, open_records
from counterfoil.core.errors import ConfigError, HeadMissingError
from counterfoil.core.task import Policy, Task
from counterfoil.core.words import RunId
from counterfoil.engine.session import Session
from counterfoil.local.etcd import LocalEtcd
from counterfoil.local.postgres import LocalPostgres
from counterfoil.settings import Heads, Settings, Store, read_settings
from tests.support.postgres import Pooler, execute, fresh_database
from tests.support.server_projects import (
    DIED,
    PAIRS,
    RUN,
    STEPS,
    ServerProject,
    write_project,
)

pytest_plugins = ["tests.support.postgres", "tests.support.server_projects"]

ALL = [str(number) for number in range(STEPS)]


@pytest.fixture(params=list(PAIRS))
def pair(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("NO_COLOR", "FORCE_COLOR", "COUNTERFOIL_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


@pytest.fixture
def filling(pair: str, home: Path, postgres: LocalPostgres, lone_etcd: LocalEtcd) -> ServerProject:
    """A project of each pair, which nobody has set up."""
    store, heads = PAIRS[pair](postgres, lone_etcd, f"prefix-{home.name}")
    return write_project(home / "project", store=store, heads=heads)


@pytest.fixture
def joint(home: Path, postgres: LocalPostgres) -> ServerProject:
    """A project in one database, which nobody has set up."""
    url = fresh_database(postgres)
    return write_project(home / "project", store=url, heads=url)


@pytest.fixture
def apart(home: Path, postgres: LocalPostgres) -> ServerProject:
    """A project in two databases that was set up and has a run."""
    project = write_project(
        home / "project", store=fresh_database(postgres), heads=fresh_database(postgres)
    )
    assert project.init() == 0
    assert project.work().returncode == 0
    return project


def settings_of(project: ServerProject) -> Settings:
    return read_settings(project.folder)


def no_secret(text: str, *urls: str) -> bool:
    return not any((urlsplit(url).password or "-" * 99) in text for url in urls)


# ------------------------------------------------------------------ every pair


@pytest.mark.parametrize("dies", ["before 2", "after 2"])
def test_a_killed_run_goes_on_and_every_effect_happens_once(
    filling: ServerProject, dies: str
) -> None:
    assert filling.init() == 0
    killed = filling.work(dies=dies)
    assert killed.returncode == DIED, killed.stderr
    successor = filling.work()
    assert (successor.returncode, filling.arrivals()) == (0, ALL), successor.stderr


def test_a_finished_run_is_read_and_verified(filling: ServerProject) -> None:
    assert filling.init() == 0
    assert filling.work().returncode == 0
    (row,) = filling.facts("runs")["runs"]
    shown = filling.facts("show", RUN)
    trace = filling.facts("trace", RUN)["events"]
    assert (row["run"], shown["run"], len(trace) > STEPS) == (RUN, RUN, True)
    assert filling.call("verify", RUN).exit_code == 0


def test_setting_up_twice_changes_nothing(filling: ServerProject) -> None:
    assert filling.init() == 0
    assert filling.work().returncode == 0
    again = filling.facts("init", str(filling.folder))
    assert (again["made"], filling.arrivals()) == ([], ALL)
    assert filling.work().returncode == 0
    assert filling.arrivals() == ALL


def test_doctor_finds_every_pair_sound(filling: ServerProject) -> None:
    assert filling.init() == 0
    code, lines, cases = filling.checks()
    assert code == 0, lines
    assert [line for line in lines.values() if line["state"] == "fail"] == []
    assert set(cases) >= {"checkpoints_restored", "heads_restored", "both_restored"}


# ------------------------------------------------------------------ set up by init alone


def test_a_program_makes_nothing_on_a_server(joint: ServerProject) -> None:
    url = settings_of(joint).store.url
    with pytest.raises(ConfigError):
        open_keeper(joint.folder, effects=Effects())
    assert joint.error("runs") == (2, "ConfigError")
    assert execute(url, "SELECT to_regclass('counterfoil.head') IS NULL") == [(True,)]


def test_a_program_with_keys_from_elsewhere_makes_nothing_on_a_server(
    joint: ServerProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (joint.folder / "counterfoil.toml").open("a") as opened:
        opened.write('\n[keys]\nsource = "env:SOME_KEY"\n')
    monkeypatch.setenv("SOME_KEY", bytes(range(32)).hex())
    with pytest.raises(ConfigError, match="counterfoil init"):
        open_keeper(joint.folder, effects=Effects())
    url = settings_of(joint).store.url
    assert execute(url, "SELECT to_regclass('counterfoil.head') IS NULL") == [(True,)]
    assert joint.init() == 0
    open_keeper(joint.folder, effects=Effects()).close()


def test_another_machine_makes_no_second_key(joint: ServerProject, home: Path) -> None:
    assert joint.init() == 0
    shutil.rmtree(home / "config")
    assert joint.error("init", str(joint.folder)) == (2, "ConfigError")
    assert not (home / "config").exists()


def test_what_is_in_a_schema_already_is_left_alone(joint: ServerProject) -> None:
    url = settings_of(joint).store.url
    execute(url, "CREATE SCHEMA counterfoil")
    execute(url, "CREATE TABLE counterfoil.head AS SELECT 7 AS theirs")
    assert joint.init() != 0
    assert execute(url, "SELECT theirs FROM counterfoil.head") == [(7,)]


def test_settings_in_code_are_as_good_as_a_file(joint: ServerProject) -> None:
    assert joint.init() == 0
    given = settings_of(joint)
    (joint.folder / "counterfoil.toml").write_text("")
    with open_keeper(joint.folder, settings=given, effects=Effects()) as keeper:
        assert (keeper.parts.joint is not None, keeper.parts.heads.heads("", 9)) == (True, ())


def test_two_databases_have_no_joint(apart: ServerProject) -> None:
    with open_records(apart.folder) as keeper:
        assert keeper.parts.joint is None


# ------------------------------------------------------------------ refused


def test_an_emptied_register_is_refused_and_not_made_anew(apart: ServerProject) -> None:
    execute(settings_of(apart).heads.url, "DROP SCHEMA counterfoil CASCADE")
    assert apart.error("runs") == (4, "HeadMissingError")
    assert apart.error("init", str(apart.folder)) == (4, "HeadMissingError")
    assert (apart.work().returncode != 0, apart.arrivals()) == (True, ALL)


def test_an_emptied_prefix_is_refused_and_not_made_anew(
    home: Path, postgres: LocalPostgres
) -> None:
    with LocalEtcd() as etcd:
        project = write_project(
            home / "project", store=fresh_database(postgres), heads=etcd.url("some")
        )
        assert (project.init(), project.work().returncode) == (0, 0)
        empty = home / "empty.db"
        with LocalEtcd() as other:
            other.save(empty)
        etcd.restore(empty)
        assert project.error("runs") == (4, "HeadMissingError")
        assert project.error("init", str(project.folder)) == (4, "HeadMissingError")
        assert (project.work().returncode != 0, project.arrivals()) == (True, ALL)


def test_a_register_that_lost_its_rows_refuses_the_runs_it_had(apart: ServerProject) -> None:
    url = settings_of(apart).heads.url
    execute(url, "ALTER TABLE counterfoil.head DISABLE TRIGGER USER")
    execute(url, "DELETE FROM counterfoil.head")
    ended = apart.work()
    assert (ended.returncode, HeadMissingError.__name__ in ended.stderr) == (1, True)
    assert apart.arrivals() == ALL


def test_an_emptied_store_is_refused_and_not_made_anew(apart: ServerProject) -> None:
    execute(settings_of(apart).store.url, "DROP SCHEMA counterfoil CASCADE")
    assert apart.error("runs") == (4, "RollbackError")
    assert apart.error("init", str(apart.folder)) == (4, "RollbackError")
    assert (apart.work().returncode != 0, apart.arrivals()) == (True, ALL)


def test_both_emptied_are_refused_until_somebody_sets_up(apart: ServerProject) -> None:
    for url in (settings_of(apart).store.url, settings_of(apart).heads.url):
        execute(url, "DROP SCHEMA counterfoil CASCADE")
    assert apart.error("runs") == (2, "ConfigError")
    assert (apart.work().returncode != 0, apart.arrivals()) == (True, ALL)


@pytest.mark.parametrize("side", ["store", "heads"])
def test_a_wrong_password_is_refused_and_never_shown(apart: ServerProject, side: str) -> None:
    file = apart.folder / "counterfoil.toml"
    given = settings_of(apart)
    right = given.store.url if side == "store" else given.heads.url
    wrong = right.replace(urlsplit(right).password or "", "hunter2")
    file.write_text(file.read_text().replace(right, wrong))
    for words in (("runs",), ("doctor",), ("init", str(apart.folder))):
        answer = apart.call(*words, "--json")
        said = answer.stdout + answer.stderr
        assert (answer.exit_code, "hunter2" in said, f"{side}.url" in said) == (2, False, True)


@pytest.mark.parametrize("pair", ["postgresql+postgresql", "postgresql+another"], indirect=True)
def test_nothing_that_is_printed_holds_a_password(filling: ServerProject) -> None:
    given = settings_of(filling)
    said = ""
    for words in (("init", str(filling.folder)), ("doctor",), ("runs",)):
        for form in ((), ("--json",)):
            answer = filling.call(*words, *form)
            said += answer.stdout + answer.stderr
    with open_records(filling.folder) as keeper:
        said += repr(keeper.parts) + repr(given) + repr(filling.places)
    assert no_secret(said, given.store.url, given.heads.url)
    assert "***" in said


def test_a_server_that_is_down_is_one_sentence_and_exit_7(home: Path) -> None:
    with LocalPostgres() as server:
        url = fresh_database(server)
        project = write_project(home / "project", heads=url)
        assert project.init() == 0
        server.stop()
        assert project.error("runs") == (7, "UnavailableError")
        answer = project.call("runs")
        assert (len(answer.stderr.strip().splitlines()), "Traceback" in answer.stderr) == (1, False)
        code, lines, _ = project.checks()
        assert (code, lines["heads"]["state"], lines["checkpoints"]["state"]) == (7, "fail", "ok")
        server.start()
        assert project.work().returncode == 0


@pytest.mark.parametrize(
    ("blocked", "extra", "pair"),
    [
        ("psycopg", "postgresql", "postgresql+sqlite"),
        ("psycopg_pool", "postgresql", "sqlite+postgresql"),
        ("httpx", "etcd", "sqlite+etcd"),
    ],
    indirect=["pair"],
)
def test_a_missing_extra_is_named(filling: ServerProject, blocked: str, extra: str) -> None:
    (filling.folder / "fill.py").write_text(
        f"import sys; sys.modules[{blocked!r}] = None\n"
        "from counterfoil.cli import app; app(['init', '.', '--json'])\n"
    )
    answer = filling.work()
    error = json.loads(answer.stderr)["error"]
    assert (answer.returncode, error["name"]) == (2, "ConfigError")
    assert f"counterfoil[{extra}]" in error["next"]


def test_files_alone_import_no_driver(home: Path) -> None:
    project = write_project(home / "project")
    assert project.init() == 0
    (project.folder / "fill.py").write_text(
        "import sys, counterfoil as cf\n"
        "with cf.open('.'): pass\n"
        "print([m for m in ('psycopg', 'psycopg_pool', 'httpx') if m in sys.modules])\n"
    )
    assert project.work().stdout == "[]\n"


@pytest.mark.parametrize(
    ("side", "query"),
    [("store", "nonsense=1"), ("heads", "nonsense=1"), ("heads", "schema=No%20Name")],
)
def test_an_unknown_parameter_is_refused_by_the_name_of_its_setting(
    joint: ServerProject, side: str, query: str
) -> None:
    given = settings_of(joint)
    wrong = f"{given.store.url}?{query}"
    store = Store(url=wrong) if side == "store" else given.store
    heads = Heads(url=wrong) if side == "heads" else given.heads
    settings = Settings(project=given.project, store=store, heads=heads)
    assert joint.init() == 0
    with pytest.raises(ConfigError, match=rf"{side}\.url"):
        open_keeper(joint.folder, settings=settings, effects=Effects())


# ------------------------------------------------------------------ who wakes a worker


@pytest.mark.parametrize("name", ["joint", "apart"])
def test_a_worker_that_rests_hears_of_a_run_at_once(
    name: str, request: pytest.FixtureRequest
) -> None:
    project: ServerProject = request.getfixturevalue(name)
    project.init()
    ended: list[str] = []

    def program(run: Session) -> None:
        run.cancel("that was all")
        ended.append(run.run_id)

    task = Task(id="nothing", policy=Policy())
    with open_keeper(project.folder, effects=Effects()) as keeper:
        keeper.program(task)(program)
        worker = keeper.worker(poll_ms=3_600_000)
        thread = Thread(target=worker.run)
        thread.start()
        for number in range(3):
            keeper.submit(task, f"woken-{number}")
            while len(ended) <= number:  # an hour, but for the bell
                time.sleep(0.01)
        worker.stop()
        keeper.submit(task, "left")
        thread.join()
    assert ended == ["woken-0", "woken-1", "woken-2"]


# ------------------------------------------------------------------ what doctor says


def test_one_database_is_said_to_turn_back_at_once(joint: ServerProject) -> None:
    assert joint.init() == 0
    _, lines, cases = joint.checks()
    assert (lines["independence"]["state"], cases["both_restored"]) == ("warn", "no")
    assert "one database" in lines["independence"]["found"]


def test_another_spelling_of_one_database_is_seen_through(joint: ServerProject) -> None:
    file = joint.folder / "counterfoil.toml"
    before, line, after = file.read_text().rpartition("@127.0.0.1")
    file.write_text(f"{before}@localhost{after}" if line else "")
    assert joint.init() == 0
    _, lines, cases = joint.checks()
    assert ("one database" in lines["independence"]["found"], cases["both_restored"]) == (
        True,
        "no",
    )
    with open_records(joint.folder) as keeper:
        assert keeper.parts.joint is None


def test_two_databases_of_one_server_are_said_to_be_restored_with_it(apart: ServerProject) -> None:
    _, lines, cases = apart.checks()
    assert ("of one server" in lines["independence"]["found"], cases["both_restored"]) == (
        True,
        "no",
    )


def test_checks_of_a_server_say_what_to_do(joint: ServerProject) -> None:
    assert joint.init() == 0
    _, lines, _ = joint.checks()
    states = {
        name: lines[name]["state"] for name in ("postgresql", "durability", "role", "password")
    }
    assert states == {"postgresql": "ok", "durability": "ok", "role": "warn", "password": "warn"}
    assert "fsync on, full_page_writes on" in lines["durability"]["found"]
    assert [line for line in lines.values() if line["state"] != "ok" and not line["mend"]] == []


def test_a_role_that_turns_synchronous_commit_off_is_warned_of(joint: ServerProject) -> None:
    assert joint.init() == 0
    url = settings_of(joint).store.url
    name = urlsplit(url).path.strip("/")
    execute(url, f"ALTER DATABASE {name} SET synchronous_commit = off")
    _, lines, _ = joint.checks()
    assert (lines["durability"]["state"], bool(lines["durability"]["mend"])) == ("warn", True)


def test_tables_of_a_later_release_are_refused(joint: ServerProject) -> None:
    assert joint.init() == 0
    execute(
        settings_of(joint).store.url,
        "UPDATE counterfoil.counterfoil_schema SET version = 99 WHERE name = 'store'",
    )
    code, lines, _ = joint.checks()
    assert (code, lines["checkpoints"]["state"], lines["heads"]["state"]) == (2, "fail", "ok")


def test_a_missing_register_is_told_with_4(apart: ServerProject) -> None:
    execute(settings_of(apart).heads.url, "DROP SCHEMA counterfoil CASCADE")
    code, lines, _ = apart.checks()
    assert (code, lines["heads"]["state"], lines["checkpoints"]["state"]) == (4, "fail", "ok")


# ------------------------------------------------------------------ roles


def as_role(project: ServerProject, url: str, role: str) -> None:
    """Make a role with the password of the url's user, and have the settings name it."""
    password = urlsplit(url).password
    execute(url, f"CREATE ROLE {role} LOGIN PASSWORD '{password}'")
    answer = project.call("init", str(project.folder), "--worker", role)
    assert answer.exit_code == 0, answer.stderr
    file = project.folder / "counterfoil.toml"
    file.write_text(file.read_text().replace("//app:", f"//{role}:"))


def test_a_worker_that_owns_nothing_does_all_that_a_run_needs(joint: ServerProject) -> None:
    url = settings_of(joint).store.url
    as_role(joint, url, f"worker_{os.getpid()}")
    assert joint.work(dies="after 2").returncode == DIED
    ended = joint.work()
    assert (ended.returncode, joint.arrivals()) == (0, ALL), ended.stderr
    code, lines, _ = joint.checks()
    assert (code, lines["role"]["state"]) == (0, "ok")
    assert joint.init() == 0


def test_roles_are_granted_in_postgresql_alone(home: Path) -> None:
    project = write_project(home / "project")
    answer = project.call("init", str(project.folder), "--reader", "someone", "--json")
    assert (answer.exit_code, json.loads(answer.stderr)["error"]["name"]) == (2, "ConfigError")


def test_a_role_that_is_not_there_is_named(joint: ServerProject) -> None:
    answer = joint.call("init", str(joint.folder), "--worker", "nobody_here")
    assert (answer.exit_code, "nobody_here" in answer.stderr) == (2, True)


# ------------------------------------------------------------------ poolers, users, members


def test_a_pooler_may_stand_before_a_server(
    home: Path, postgres: LocalPostgres, joint: ServerProject
) -> None:
    with Pooler(postgres, 3) as pooler:
        file = joint.folder / "counterfoil.toml"
        url = settings_of(joint).store.url
        file.write_text(file.read_text().replace(url, pooler.through(url)))
        assert joint.init() == 0
        assert joint.work(dies="after 2").returncode == DIED
        ended = joint.work()
        assert (ended.returncode, joint.arrivals()) == (0, ALL), ended.stderr
        code, lines, _ = joint.checks()
        assert (code, "a pooler lends" in lines["pooler"]["found"]) == (0, True)
        with open_records(joint.folder) as keeper:
            assert keeper.parts.bell is not None
            assert keeper.parts.bell.wait(1) is False


def test_a_bell_of_a_project_rings_for_a_statement(joint: ServerProject) -> None:
    assert joint.init() == 0
    with open_records(joint.folder) as keeper, ThreadPoolExecutor(1) as other:
        bell, inbox = keeper.parts.bell, keeper.parts.inbox
        assert bell is not None
        assert inbox is not None
        assert (bell.wait(1), bell.wait(1)) == (True, False)  # whoever begins to listen looks
        waits = other.submit(bell.wait, 30_000)
        inbox.put(RunId(RUN), b"statement")
        assert waits.result() is True


def test_a_cluster_with_users_and_certificates_keeps_heads(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalEtcd(tls=True) as etcd:
        etcd.add_user("app", "some")
        etcd.enable_auth()
        monkeypatch.setenv("COUNTERFOIL_ETCD_PASSWORD", etcd.password)
        project = write_project(home / "project", heads=etcd.url("some", user="app"))
        project.environment["COUNTERFOIL_ETCD_PASSWORD"] = etcd.password
        assert project.init() == 0
        assert project.work(dies="before 2").returncode == DIED
        ended = project.work()
        assert (ended.returncode, project.arrivals()) == (0, ALL), ended.stderr
        code, lines, cases = project.checks()
        assert (code, lines["auth"]["state"], lines["cluster"]["state"]) == (0, "ok", "warn")
        assert cases["quorum_lost"] == "partly"
        monkeypatch.setenv("COUNTERFOIL_ETCD_PASSWORD", "hunter2")
        for words in (("runs",), ("doctor",)):
            answer = project.call(*words, "--json")
            said = answer.stdout + answer.stderr
            assert (answer.exit_code, "hunter2" in said, "heads.url" in said) == (2, False, True)


def test_a_cluster_without_its_quorum_stops_runs_and_loses_nothing(home: Path) -> None:
    with LocalEtcd(3) as etcd:
        project = write_project(home / "project", heads=etcd.url("some"))
        assert project.init() == 0
        assert project.work(dies="after 1").returncode == DIED
        etcd.kill(0)
        code, lines, cases = project.checks()
        assert (code, lines["etcd"]["state"], cases["quorum_lost"]) == (0, "warn", "yes")
        etcd.kill(1)
        assert project.error("runs") == (7, "UnavailableError")
        assert project.checks()[0] == 7
        stopped = project.work()
        assert (stopped.returncode, "UnavailableError" in stopped.stderr) == (1, True)
        etcd.restart(0)
        ended = project.work()
        assert (ended.returncode, project.arrivals()) == (0, ALL), ended.stderr


@pytest.mark.parametrize("url", ["etcd://h/p?nonsense=1", "etcd://h/p/q", "etcd://a:hunter2@h/p"])
def test_what_an_etcd_url_may_not_hold_is_refused_by_the_name_of_its_setting(
    home: Path, url: str
) -> None:
    project = write_project(home / "project", heads=url)
    answer = project.call("init", str(project.folder))
    assert (answer.exit_code, "hunter2" in answer.stderr) == (2, False)
    assert "heads.url" in answer.stderr

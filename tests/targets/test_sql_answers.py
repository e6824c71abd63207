"""Whatever becomes of an answer of a database, the effect happens once, and nobody guesses."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from counterfoil.adapters.sql import Statement, install_sql, open_sql
from counterfoil.adapters.sql.database import TRIES_MAX
from counterfoil.core.errors import (
    FencedError,
    IdempotencyConflictError,
    RefusedError,
    StaleObservationError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.receipt import Answer
from counterfoil.core.words import Key, RunId
from counterfoil.local.postgres import LocalPostgres
from tests.support.postgres import Pooler, execute, fresh_database
from tests.support.sql_bench import SCOPE, Place, credited, noted, opened, postgres_place
from tests.support.sql_proxy import CommitProxy, Loss
from tests.support.sql_scene import (
    FENCE,
    NEWER,
    PAYMENT,
    RUN,
    asked,
    on_record,
    paid,
    raised,
    wait_for_lock,
)

pytest_plugins = ["tests.support.postgres"]


@pytest.fixture
def place(postgres: LocalPostgres) -> Iterator[Place]:
    place = postgres_place(postgres)
    yield place
    place.close()


def proxy_of(place: Place) -> CommitProxy:
    assert place.proxy is not None
    return place.proxy


# ---------------------------------------------------------------- C26


@pytest.mark.parametrize(
    ("loss", "answer", "call_ms"),
    [
        pytest.param(Loss.ANSWER, Answer.FOUND, 20_000, id="C26 a, after COMMIT was applied"),
        pytest.param(Loss.REQUEST, Answer.ABSENT, 20_000, id="C26 b, before COMMIT arrived"),
        pytest.param(Loss.SILENCE, Answer.FOUND, 3_000, id="C26 a, and the server goes silent"),
    ],
)
def test_a_lost_commit_is_unknown_and_settled_by_a_look_up(
    loss: Loss, answer: Answer, call_ms: int, place: Place
) -> None:
    adapter = place.adapter(call_ms=call_ms)
    sent = asked(adapter, *PAYMENT)
    proxy_of(place).lose(loss)
    assert isinstance(raised(lambda: adapter.execute(sent)), UnknownOutcomeError)
    assert on_record(place.adapter()).answer is answer
    receipt = place.adapter().execute(sent)
    assert receipt.replayed is (answer is Answer.FOUND)
    assert paid(place) == (1, 1)


@pytest.mark.parametrize("settled_by", ["C26 b, the same call again", "C26 b, a successor's fence"])
def test_a_commit_that_lands_late_is_waited_for(
    settled_by: str, place: Place, postgres: LocalPostgres
) -> None:
    proxy, adapter, successor = proxy_of(place), place.adapter(), place.adapter()
    sent = asked(adapter, *PAYMENT)
    proxy.lose(Loss.LATE)
    assert isinstance(raised(lambda: adapter.execute(sent)), UnknownOutcomeError)
    assert on_record(successor).answer is Answer.ABSENT
    with ThreadPoolExecutor(1) as pool:
        if settled_by.endswith("again"):
            waiting = pool.submit(lambda: successor.execute(sent).replayed)
        else:
            waiting = pool.submit(lambda: successor.take(RUN, NEWER) == sent.served)
        wait_for_lock(postgres.url(_database(place)))
        proxy.let_go()
        assert waiting.result()
    assert on_record(successor).answer is Answer.FOUND
    assert paid(place) == (1, 1)


def _database(place: Place) -> str:
    return str(place.target).partition("?")[0].rpartition("/")[2]


def test_a_commit_that_never_lands_does_not_hold_its_run_for_ever(place: Place) -> None:
    """[C26 b] The server ends what stays open longer than a call may take."""
    proxy, adapter = proxy_of(place), place.adapter(call_ms=3_000)
    sent = asked(adapter, *PAYMENT)
    proxy.lose(Loss.LATE)
    assert isinstance(raised(lambda: adapter.execute(sent)), UnknownOutcomeError)
    receipt = place.adapter().execute(sent)
    proxy.let_go()
    assert not receipt.replayed
    assert paid(place) == (1, 1)


def test_a_serialization_failure_is_tried_again(place: Place, postgres: LocalPostgres) -> None:
    """[C26 c] Another transaction changes the row first, and neither change is lost."""
    adapter = place.adapter()
    sent = asked(adapter, *PAYMENT)
    with (
        psycopg.connect(postgres.url(_database(place))) as rival,
        ThreadPoolExecutor(1) as pool,
    ):
        rival.execute(place.sql("UPDATE {schema}account SET balance = balance + 1").encode())
        call = pool.submit(adapter.execute, sent)
        wait_for_lock(postgres.url(_database(place)))
        rival.commit()
        call.result()
    assert (place.balance(), place.count) == (111, 1)


ALWAYS_FAILS = """
    CREATE SEQUENCE {schema}tries;
    CREATE FUNCTION {schema}fail() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM nextval('{schema}tries');
        RAISE EXCEPTION 'no' USING ERRCODE = '%code%';
    END $$;
    CREATE TRIGGER fails BEFORE INSERT ON {schema}note EXECUTE FUNCTION {schema}fail()
"""


@pytest.mark.parametrize(
    ("code", "family", "tries"),
    [
        pytest.param("40001", UnavailableError, TRIES_MAX, id="C26 c, serialization"),
        pytest.param("40P01", UnavailableError, TRIES_MAX, id="C26 c, deadlock"),
        pytest.param("53100", UnavailableError, 1, id="it says that it is full"),
        pytest.param("P0001", RefusedError, 1, id="a trigger of the operator's"),
    ],
)
def test_tries_are_bounded_and_nothing_happens(
    code: str, family: type[Exception], tries: int, place: Place
) -> None:
    place.do(ALWAYS_FAILS.replace("%code%", code))
    adapter = place.adapter()
    sent = asked(adapter, *PAYMENT)
    assert isinstance(raised(lambda: adapter.execute(sent)), family)
    assert place.do("SELECT last_value FROM {schema}tries") == [(tries,)]
    assert paid(place) == (0, 0)
    assert on_record(adapter).answer is Answer.ABSENT


@pytest.mark.parametrize("name", ["sqlite", "postgresql", "dbapi"])
def test_the_own_key_is_no_conflict_and_another_intent_is(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """[C26 C08] A retry gets its receipt; the key with another amount does not."""
    with opened(name, tmp_path, lambda: request.getfixturevalue("postgres")) as place:
        adapter = place.adapter()
        sent = asked(adapter, *PAYMENT)
        adapter.execute(sent)
        assert adapter.execute(sent).replayed
        other = asked(adapter, credited(99))
        assert isinstance(raised(lambda: adapter.execute(other)), IdempotencyConflictError)
        assert paid(place) == (1, 1)


# ---------------------------------------------------------------- servers that fail


@pytest.mark.parametrize("how", ["crash", "stop"])
def test_a_server_that_goes_down_in_between_leaves_nothing(
    how: str, fragile: LocalPostgres
) -> None:
    """[T20 T25] Before COMMIT is sent nothing has happened; after a restart it goes through."""
    place = postgres_place(fragile)
    try:
        adapter = place.adapter()
        sent = asked(adapter, *PAYMENT)
        getattr(fragile, how)()
        assert isinstance(raised(lambda: adapter.execute(sent)), UnavailableError)
        assert on_record(adapter).answer is Answer.UNKNOWN
        fragile.start()
        assert on_record(adapter).answer is Answer.ABSENT
        assert not adapter.execute(sent).replayed
        assert paid(place) == (1, 1)
    finally:
        fragile.start()
        place.close()


def test_a_server_that_crashes_after_the_commit_keeps_the_receipt(fragile: LocalPostgres) -> None:
    """[T25] What was acknowledged is there."""
    place = postgres_place(fragile)
    try:
        adapter = place.adapter()
        sent = asked(adapter, *PAYMENT)
        adapter.execute(sent)
        fragile.crash()
        fragile.start()
        assert adapter.execute(sent).replayed
        assert paid(place) == (1, 1)
    finally:
        place.close()


def test_a_statement_that_takes_too_long_is_given_up(place: Place) -> None:
    """The server itself ends it, so nothing has happened."""
    place.do(
        "CREATE FUNCTION {schema}nap() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_sleep(60); RETURN NEW; END $$;"
        "CREATE TRIGGER naps BEFORE INSERT ON {schema}note FOR EACH ROW "
        "EXECUTE FUNCTION {schema}nap()"
    )
    adapter = place.adapter(call_ms=2_000)
    sent = asked(adapter, *PAYMENT, timeout_ms=700)
    assert isinstance(raised(lambda: adapter.execute(sent)), UnavailableError)
    assert paid(place) == (0, 0)


def test_a_silent_server_is_waited_for_only_so_long(place: Place) -> None:
    """A backend that is stopped has not seen COMMIT, so nothing has happened."""
    adapter = place.adapter(call_ms=2_000)
    sent = asked(adapter, *PAYMENT, timeout_ms=700)
    (stopped,) = execute(
        str(place.target),
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'counterfoil' "
        "AND datname = current_database()",
    )
    os.kill(stopped[0], signal.SIGSTOP)
    try:
        assert isinstance(raised(lambda: adapter.execute(sent)), UnavailableError)
    finally:
        os.kill(stopped[0], signal.SIGCONT)
    assert paid(place) == (0, 0)
    assert not place.adapter().execute(sent).replayed


SMALL_BYTES = 1_000_000


@contextmanager
def small_tablespace(server: LocalPostgres) -> Iterator[Path]:
    """Mount a file system of its own, and let the server keep tables in it."""
    folder = server.folder / "small"
    folder.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SMALL_BYTES}", "tmpfs", folder], check=True
    )
    try:
        shutil.chown(folder, "postgres", "postgres")
        execute(server.url(), f"CREATE TABLESPACE small LOCATION '{folder}'")
        yield folder
        execute(server.url(), "DROP TABLESPACE small")
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
        folder.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a disk")
@pytest.mark.parametrize("row", [pytest.param("T25", id="T25 a server whose disk is full")])
def test_a_full_disk_of_a_server_does_nothing(
    row: str, place: Place, postgres: LocalPostgres
) -> None:
    with small_tablespace(postgres) as folder:
        place.do("ALTER TABLE {schema}note SET TABLESPACE small")
        ballast = folder / "ballast"
        with suppress(OSError):
            ballast.write_bytes(bytes(2 * SMALL_BYTES))
        adapter = place.adapter()
        sent = asked(adapter, *PAYMENT)
        assert isinstance(raised(lambda: adapter.execute(sent)), UnavailableError)
        assert paid(place) == (0, 0)
        ballast.unlink()
        assert not adapter.execute(sent).replayed
        assert paid(place) == (1, 1)
        place.do("ALTER TABLE {schema}note SET TABLESPACE pg_default")


def test_a_pooler_may_stand_between(postgres: LocalPostgres) -> None:
    """[C13] Each transaction gets another connection, and none leaves anything behind."""
    url = fresh_database(postgres)
    install_sql(url)
    execute(url, "CREATE TABLE note (line text)")
    known = {"note": Statement(text="INSERT INTO note VALUES (%(line)s)", parameters={"line": str})}
    with Pooler(postgres, 3) as pooler:
        adapter = open_sql(
            pooler.through(url), statements=known, now_ms=lambda: 1, watch="SELECT line FROM note"
        )
        for number in range(6):
            sent = asked(adapter, noted(number), key=Key(f"key-{number}"))
            assert not adapter.execute(sent).replayed
            assert adapter.execute(sent).replayed
        adapter.close()
    assert len(execute(url, "SELECT line FROM note")) == 6


# ---------------------------------------------------------------- others who act


@pytest.mark.parametrize("name", ["sqlite", "postgresql", "dbapi"])
def test_a_change_by_somebody_else_makes_the_call_stale(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with opened(name, tmp_path, lambda: request.getfixturevalue("postgres")) as place:
        adapter = place.adapter()
        sent = asked(adapter, *PAYMENT)
        place.note("theirs")
        assert isinstance(raised(lambda: adapter.execute(sent)), StaleObservationError)
        assert paid(place) == (0, 0)
        again = asked(adapter, *PAYMENT, key=Key("key-2"))
        adapter.execute(again)
        assert place.lines == ["line paid", "theirs"]


def test_a_change_by_somebody_else_while_the_call_is_open_makes_it_stale(
    place: Place, postgres: LocalPostgres
) -> None:
    """The call waits for a row that the rival has, and is undone with what it had seen."""
    adapter = place.adapter()
    sent = asked(adapter, *PAYMENT)
    with (
        psycopg.connect(postgres.url(_database(place))) as rival,
        ThreadPoolExecutor(1) as pool,
    ):
        rival.execute(place.sql("UPDATE {schema}account SET balance = balance + 1").encode())
        rival.execute(place.sql("INSERT INTO {schema}note VALUES ('x', 'rival')").encode())
        call = pool.submit(raised, lambda: adapter.execute(sent))
        wait_for_lock(postgres.url(_database(place)))
        rival.commit()
        assert isinstance(call.result(), StaleObservationError)
    assert (place.balance(), place.count) == (101, 0)


@pytest.mark.parametrize("name", ["sqlite", "postgresql", "dbapi"])
def test_an_unwatched_database_serves_runs_side_by_side(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Without a watch only statements say what must hold, so no run makes another stale."""
    with opened(name, tmp_path, lambda: request.getfixturevalue("postgres")) as place:
        one, two = place.adapter(watch=""), place.adapter(watch="")
        first = asked(one, noted(1))
        two.execute(asked(two, noted(2), key=Key("key-2"), run_id=RunId("run-2")))
        one.execute(first)
        assert place.count == 2


@pytest.mark.parametrize("name", ["sqlite", "postgresql", "dbapi"])
def test_a_former_worker_cannot_act_nor_give_up(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """[C04 C06] Both are refused in the transaction that would have done it."""
    with opened(name, tmp_path, lambda: request.getfixturevalue("postgres")) as place:
        former, successor = place.adapter(), place.adapter()
        former.take(RUN, FENCE)
        late = asked(former, *PAYMENT)
        successor.take(RUN, NEWER)
        assert isinstance(raised(lambda: former.execute(late)), FencedError)
        late_end = raised(lambda: former.forbid(RUN, late.key, late.kind, FENCE))
        assert isinstance(late_end, FencedError)
        assert paid(place) == (0, 0)
        successor.execute(asked(successor, *PAYMENT, fence=NEWER))
        assert paid(place) == (1, 1)


def test_a_database_in_the_place_of_another_is_another_environment(tmp_path: Path) -> None:
    """The same content under the same name, and no receipt is looked for in it."""
    with (
        opened("sqlite", tmp_path / "a", pytest.fail) as place,
        opened("sqlite", tmp_path / "b", pytest.fail) as other,
    ):
        adapter = place.adapter()
        sent = asked(adapter, *PAYMENT)
        (tmp_path / "b" / "target.db").replace(tmp_path / "a" / "target.db")
        assert isinstance(raised(lambda: adapter.execute(sent)), StaleObservationError)
        assert adapter.observe(SCOPE).state.instance != sent.prestate.instance
        assert paid(place) == (0, 0)
        assert other.stack is not place.stack

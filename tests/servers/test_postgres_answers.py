"""Whatever becomes of an answer, a caller is told what it may believe."""

import os
import signal
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import psycopg
import pytest

from counterfoil.core.errors import (
    ConfigError,
    CounterfoilError,
    FormatError,
    InvariantError,
    LeaseLostError,
    StaleHeadError,
    UnavailableError,
    UnknownOutcomeError,
    UsageError,
)
from counterfoil.local.postgres import LocalPostgres
from counterfoil.ports import Head, Mark
from counterfoil.stores.postgres import (
    PostgresHeads,
    PostgresInbox,
    PostgresJoint,
    PostgresStore,
    open_heads,
    open_inbox,
    open_joint,
    open_store,
)
from counterfoil.testing.store_bench import (
    OTHER_RUN,
    RUN,
    TTL_MS,
    checkpoint,
    created,
    digest_of,
    move,
    raced,
)
from tests.support.postgres import LossyProxy, execute, fresh_database

pytest_plugins = ["tests.support.postgres"]

LONG_MS = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Ports:
    """All ports of one database, reached by one URL."""

    store: PostgresStore
    heads: PostgresHeads
    inbox: PostgresInbox
    joint: PostgresJoint
    head: Head

    def seen(self) -> object:
        """Return all that can be read."""
        return (
            self.store.trace(RUN, -1, 99),
            self.store.marked(RUN),
            self.heads.heads("", 99),
            self.inbox.pending(RUN, 99),
        )


@contextmanager
def _opened(url: str) -> Generator[Ports]:
    with ExitStack() as stack:
        store = open_store(url, create=True)
        stack.callback(store.close)
        heads = open_heads(url, create=True)
        stack.callback(heads.close)
        inbox = open_inbox(url, create=True)
        stack.callback(inbox.close)
        joint = open_joint(url)
        stack.callback(joint.close)
        head = heads.read(RUN) or heads.create(RUN, digest_of("0"), "one", "nonce", LONG_MS)
        inbox.put(RUN, b"first")
        yield Ports(store=store, heads=heads, inbox=inbox, joint=joint, head=head)


def _commit(ports: Ports) -> None:
    row = checkpoint(1, salt="of a joint")
    ports.joint.commit([row], [move(ports.head, salt="of a joint")])


WRITES: dict[str, Callable[[Ports], object]] = {
    "put": lambda ports: ports.store.put([checkpoint(1)]),
    "mark": lambda ports: ports.store.mark(Mark(run_id=RUN, lease_version=1, envelope=b"mark")),
    "create": lambda ports: created(ports.heads, OTHER_RUN),
    "renew": lambda ports: ports.heads.renew(ports.head, LONG_MS * 9),
    "advance": lambda ports: ports.heads.advance([move(ports.head)]),
    "release": lambda ports: ports.heads.release(ports.head),
    "commit": _commit,
    "keep a statement": lambda ports: ports.inbox.put(RUN, b"second"),
    "discard a statement": lambda ports: ports.inbox.discard(RUN, b"first"),
}
READS: dict[str, Callable[[Ports], object]] = {
    "get": lambda ports: ports.store.get(RUN, digest_of("1")),
    "find": lambda ports: ports.store.find(RUN, "key"),
    "trace": lambda ports: ports.store.trace(RUN, -1, 9),
    "marked": lambda ports: ports.store.marked(RUN),
    "runs": lambda ports: ports.store.runs("", 9),
    "read": lambda ports: ports.heads.read(RUN),
    "heads": lambda ports: ports.heads.heads("", 9),
    "claimable": lambda ports: ports.heads.claimable(9),
    "pending": lambda ports: ports.inbox.pending(RUN, 9),
    "arrivals": lambda ports: ports.inbox.arrivals("", 9),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_whose_answer_is_lost_is_unknown_and_has_happened(
    postgres: LocalPostgres, write: Callable[[Ports], object]
) -> None:
    url = fresh_database(postgres)
    with LossyProxy(postgres.port) as proxy, _opened(proxy.through(url)) as ports:
        before = ports.seen()
        proxy.lose_answer()
        with pytest.raises(UnknownOutcomeError):
            write(ports)
        assert proxy.has_cut.is_set()
        assert ports.seen() != before


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_whose_request_is_lost_is_unknown_and_has_not_happened(
    postgres: LocalPostgres, write: Callable[[Ports], object]
) -> None:
    url = fresh_database(postgres)
    with LossyProxy(postgres.port) as proxy, _opened(proxy.through(url)) as ports:
        before = ports.seen()
        proxy.lose_request()
        with pytest.raises(UnknownOutcomeError):
            write(ports)
        assert proxy.has_cut.is_set()
        assert ports.seen() == before
        write(ports)
        assert ports.seen() != before


def test_a_takeover_whose_answer_is_lost_is_unknown_and_has_happened(
    postgres: LocalPostgres,
) -> None:
    url = fresh_database(postgres)
    with LossyProxy(postgres.port) as proxy, _opened(proxy.through(url)) as ports:
        ports.heads.release(created(ports.heads, OTHER_RUN))
        free = ports.heads.read(OTHER_RUN) or ports.head
        proxy.lose_answer()
        with pytest.raises(UnknownOutcomeError):
            ports.heads.acquire(free, "two", "another", LONG_MS)
        taken = ports.heads.read(OTHER_RUN)
        assert taken is not None
        assert (taken.nonce, taken.lease_version) == ("another", 2)


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_read_whose_answer_is_lost_can_be_made_again(
    postgres: LocalPostgres, read: Callable[[Ports], object]
) -> None:
    url = fresh_database(postgres)
    with LossyProxy(postgres.port) as proxy, _opened(proxy.through(url)) as ports:
        before = read(ports)
        proxy.lose_answer()
        with pytest.raises(UnavailableError):
            read(ports)
        assert read(ports) == before


@pytest.mark.parametrize(
    ("nth", "error", "left"),
    [
        pytest.param(1, UnavailableError, 3, id="of its beginning"),
        pytest.param(4, UnavailableError, 3, id="of its work"),
        pytest.param(5, UnknownOutcomeError, 0, id="of its commit"),
    ],
)
def test_pruning_whose_answer_is_lost_is_unknown_once_the_commit_was_sent(
    postgres: LocalPostgres, nth: int, error: type[CounterfoilError], left: int
) -> None:
    url = fresh_database(postgres)
    with LossyProxy(postgres.port) as proxy, _opened(proxy.through(url)) as ports:
        ports.store.put([checkpoint(n) for n in range(4)])
        proxy.lose_answer(nth=nth)
        with pytest.raises(error):
            ports.store.prune(RUN, {}, 3)
        assert proxy.has_cut.is_set()
        assert ports.store.prune(RUN, {}, 3) == left


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_that_the_server_never_answers_is_unknown(
    postgres: LocalPostgres, write: Callable[[Ports], object]
) -> None:
    url = fresh_database(postgres)
    with (
        _opened(f"{url}?timeout=1&pool=1") as ports,
        _stopped_backends(url),
        pytest.raises(UnknownOutcomeError),
    ):
        write(ports)


def test_a_read_that_the_server_never_answers_can_be_made_again(postgres: LocalPostgres) -> None:
    url = fresh_database(postgres)
    with _opened(f"{url}?timeout=1&pool=1") as ports:
        with _stopped_backends(url), pytest.raises(UnavailableError):
            ports.heads.read(RUN)
        assert ports.heads.read(RUN) == ports.head


@contextmanager
def _stopped_backends(url: str) -> Generator[None]:
    """Pause every process of the server that serves this database."""
    query = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> %s"
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute(query, (connection.info.backend_pid,)).fetchall()
    for (pid,) in rows:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for (pid,) in rows:
            os.kill(pid, signal.SIGCONT)


STATES: dict[str, type[CounterfoilError]] = {
    "40001": UnavailableError,
    "40P01": UnavailableError,
    "55P03": UnavailableError,
    "57014": UnavailableError,
    "53100": UnavailableError,
    "53200": UnavailableError,
    "58030": UnavailableError,
    "25006": UnavailableError,
    "P0001": UnavailableError,
    "23505": StaleHeadError,
    "22003": UsageError,
    "54000": UsageError,
    "42501": ConfigError,
    "42P01": FormatError,
    "XX001": FormatError,
    "CF009": InvariantError,
    "57P01": UnknownOutcomeError,
    "08006": UnknownOutcomeError,
}


@pytest.mark.parametrize(("state", "error"), STATES.items(), ids=STATES)
def test_what_the_server_reports_tells_what_to_do(
    postgres: LocalPostgres, state: str, error: type[CounterfoilError]
) -> None:
    url = fresh_database(postgres)
    with _opened(url) as ports:
        before = ports.seen()
        _fail_every_write(url, state)
        for write in WRITES.values():
            with pytest.raises(error):
                write(ports)
        assert ports.seen() == before


def _fail_every_write(url: str, state: str) -> None:
    execute(
        url,
        "CREATE OR REPLACE FUNCTION counterfoil.begin_write() RETURNS void LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION 'made for a test' USING ERRCODE = '{state}'; END $$",
    )


def test_a_lock_that_another_holds_too_long_makes_a_write_unavailable(
    postgres: LocalPostgres,
) -> None:
    url = fresh_database(postgres)
    with _opened(url) as ports, psycopg.connect(url) as other:
        before = ports.seen()
        execute(
            url,
            "CREATE OR REPLACE FUNCTION counterfoil.begin_write() RETURNS void LANGUAGE plpgsql "
            "AS $$ BEGIN PERFORM set_config('lock_timeout', '50', true); END $$",
        )
        other.execute("SELECT 1 FROM counterfoil.head FOR UPDATE")
        for write in ("renew", "advance", "release", "commit"):
            with pytest.raises(UnavailableError, match="locked by another"):
                WRITES[write](ports)
        other.rollback()
        assert ports.seen() == before


def test_a_write_bounds_its_wait_for_locks_and_leaves_no_bound_behind(
    postgres: LocalPostgres,
) -> None:
    url = fresh_database(postgres)
    with psycopg.connect(url, autocommit=True) as connection, _opened(url):
        with connection.transaction():
            connection.execute("SELECT counterfoil.begin_write()")
            assert connection.execute("SHOW lock_timeout").fetchone() == ("5s",)
        assert connection.execute("SHOW lock_timeout").fetchone() == ("0",)


def test_sessions_under_any_isolation_lose_nothing(postgres: LocalPostgres) -> None:
    url = fresh_database(postgres)
    name = url.rpartition("/")[2]
    execute(url, f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    with _opened(url) as ports:
        moves = [move(ports.head, salt=str(number)) for number in range(8)]
        answers = raced([lambda each=each: ports.heads.advance([each]) for each in moves])
        won = [answer for answer in answers if isinstance(answer, tuple)]
        lost = [each for each in answers if isinstance(each, (StaleHeadError, UnavailableError))]
        assert (len(won), len(lost)) == (1, 7)
        assert ports.heads.read(RUN) == won[0][0]


def test_a_connection_that_the_server_ended_is_not_handed_out(postgres: LocalPostgres) -> None:
    url = fresh_database(postgres)
    with _opened(url) as ports:
        raced([lambda n=n: ports.store.put([checkpoint(n)]) for n in range(16)])
        execute(
            url,
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        for number in range(20, 36):
            ports.store.put([checkpoint(number)])
        assert len(ports.store.trace(RUN, -1, 99)) == 32


def test_a_lease_that_is_refused_as_ended_stays_so_whatever_run_asks(
    postgres: LocalPostgres,
) -> None:
    url = fresh_database(postgres)
    with _opened(url) as ports:
        held = created(ports.heads, OTHER_RUN)
        late = held.expires_at_ms + 1
        set_clock = (
            "CREATE OR REPLACE FUNCTION counterfoil.now_ms() RETURNS bigint LANGUAGE sql "
            "AS 'SELECT {}::bigint'"
        )
        execute(url, set_clock.format(late))
        free = ports.heads.acquire(held, "two", "another", TTL_MS)
        execute(url, set_clock.format(late - TTL_MS))
        assert free.expires_at_ms == late + TTL_MS
        (floor,) = execute(url, "SELECT floor_ms FROM counterfoil.register")
        assert floor == (late,)
        with pytest.raises(LeaseLostError):
            ports.heads.advance([move(held)])


def test_a_batch_that_no_statement_holds_is_refused(postgres: LocalPostgres) -> None:
    with _opened(fresh_database(postgres)) as ports:
        with pytest.raises(UsageError, match="larger than one statement"):
            ports.store.put([checkpoint(n) for n in range(8_000)])
        assert ports.store.runs("", 9) == ()


def test_a_joint_commits_rows_alone_and_moves_alone(postgres: LocalPostgres) -> None:
    with _opened(fresh_database(postgres)) as ports:
        row = checkpoint(1)
        assert ports.joint.commit([row], []) == ()
        assert ports.store.get(RUN, row.digest) == row
        (moved,) = ports.joint.commit([], [move(ports.head)])
        assert ports.heads.read(RUN) == moved


def test_statements_may_be_prepared_where_that_is_asked_for(postgres: LocalPostgres) -> None:
    url = fresh_database(postgres)
    with _opened(f"{url}?prepare=true&pool=1") as ports:
        head = ports.head
        for number in range(1, 12):
            ports.store.put([checkpoint(number)])
            (head,) = ports.heads.advance([move(head)])
        assert ports.heads.read(RUN) == head
        assert len(ports.store.trace(RUN, -1, 99)) == 11

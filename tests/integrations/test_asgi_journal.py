"""The journal by itself: leases, retention, takeovers, and the locks they meet in."""

import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from counterfoil.core.errors import (
    ConfigError,
    FormatError,
    UnavailableError,
    UsageError,
)
from counterfoil.core.receipt import Fence
from counterfoil.integrations.asgi import Answer, Commits, Journal, install_journal, open_journal
from counterfoil.integrations.asgi.call import Authority, Call
from counterfoil.integrations.asgi.rows import State, Verdict
from counterfoil.integrations.asgi.rules import MARGIN_MS, RETENTION_MS_MAX
from counterfoil.local.postgres import LocalPostgres
from tests.support import asgi_ledger as ledger
from tests.support.postgres import LossyProxy, fresh_database

pytest_plugins = ["tests.support.postgres", "tests.support.asgi_bench"]

NOW_MS = 1_700_000_000_000
LEASE_MS = 1_000
RETENTION_MS = 10_000
GONE_MS = RETENTION_MS + MARGIN_MS
BLOCKED_SECONDS = 0.1
"""After which whoever waits for a lock usually does; who comes later finds the same."""

ANSWER = Answer(status_code=201, raw_headers=((b"x-name", b"caf\xe9"),), body=b"\x00\xff")
OTHER = Answer(status_code=500, body=b"other")


@pytest.fixture
def journal(place: str) -> Generator[Journal]:
    install_journal(place)
    opened = open_journal(place)
    yield opened
    opened.close()


def call(
    key: str = "key", commits: Commits = Commits.APART, fence: Fence | None = None, text: str = "f"
) -> Call:
    authority = Authority(run="run", fence=fence) if fence else Authority()
    return Call(client="c", key=key, fingerprint=text, commits=commits, authority=authority)


def claim(journal: Journal, what: Call, attempt: str, at_ms: int = 0) -> Verdict:
    return journal.claim(what, attempt, now_ms=NOW_MS + at_ms, lease_ms=LEASE_MS).verdict


def finish(
    journal: Journal, what: Call, attempt: str, answer: Answer = ANSWER, at_ms: int = 0
) -> Any:
    return journal.finish(what, attempt, answer, now_ms=NOW_MS + at_ms, retention_ms=RETENTION_MS)


def begin(place: str, connection: Any) -> None:
    connection.execute("BEGIN" if ledger.is_postgres(place) else "BEGIN IMMEDIATE")


def write_receipt(
    journal: Journal, connection: Any, what: Call, attempt: str, answer: Answer = ANSWER
) -> int:
    """Write a receipt as the service does, and return how many rows it changed."""
    statement, values = journal.finishing(
        connection, what, attempt, answer, now_ms=NOW_MS, retention_ms=RETENTION_MS
    )
    return len(connection.execute(statement, values).fetchall())


def test_an_answer_is_kept_byte_by_byte(journal: Journal) -> None:
    claim(journal, call(), "one")
    row = finish(journal, call(), "one")
    assert (row.status, row.headers, row.body) == (201, '[["x-name", "caf\\u00e9"]]', b"\x00\xff")


def test_a_claim_whose_answer_was_lost_is_the_same_claim(journal: Journal) -> None:
    assert [claim(journal, call(), "one") for _ in range(2)] == [Verdict.CLAIMED] * 2


def test_an_answer_that_was_kept_once_is_not_replaced(journal: Journal) -> None:
    claim(journal, call(), "one")
    first = finish(journal, call(), "one")
    assert finish(journal, call(), "one", OTHER) == first


@pytest.mark.parametrize(
    ("at_ms", "verdict"),
    [
        pytest.param(LEASE_MS - 1, Verdict.IN_FLIGHT, id="C07 within the lease"),
        pytest.param(LEASE_MS, Verdict.UNKNOWN, id="C07 after the lease"),
        pytest.param(10**12, Verdict.UNKNOWN, id="C07 long after"),
    ],
)
def test_a_claim_never_becomes_free_by_age(journal: Journal, at_ms: int, verdict: Verdict) -> None:
    claim(journal, call(), "one")
    assert claim(journal, call(), "two", at_ms) is verdict


def test_a_request_that_outlives_its_lease_may_still_finish(journal: Journal) -> None:
    claim(journal, call(), "one")
    claim(journal, call(), "two", LEASE_MS)
    assert finish(journal, call(), "one").state is State.DONE


@pytest.mark.parametrize(
    ("then", "later", "verdict"),
    [
        (Commits.TOGETHER, Commits.TOGETHER, Verdict.CLAIMED),
        (Commits.TOGETHER, Commits.APART, Verdict.CLAIMED),
        (Commits.REPEATABLE, Commits.REPEATABLE, Verdict.CLAIMED),
        (Commits.APART, Commits.REPEATABLE, Verdict.CLAIMED),
        (Commits.APART, Commits.TOGETHER, Verdict.UNKNOWN),
        (Commits.REPEATABLE, Commits.APART, Verdict.UNKNOWN),
        (Commits.REPEATABLE, Commits.TOGETHER, Verdict.UNKNOWN),
    ],
)
def test_a_dead_claim_is_judged_by_what_was_declared_for_it(
    journal: Journal, then: Commits, later: Commits, verdict: Verdict
) -> None:
    claim(journal, call(commits=then), "one")
    assert claim(journal, call(commits=later), "two", LEASE_MS) is verdict


def test_a_superseded_request_cannot_keep_its_answer(journal: Journal) -> None:
    together = call(commits=Commits.TOGETHER)
    claim(journal, together, "one")
    claim(journal, together, "two", LEASE_MS)
    row = finish(journal, together, "one")
    assert (row.state, row.attempt) == (State.IN_FLIGHT, "two")


def test_a_superseded_request_cannot_commit_its_receipt(journal: Journal, place: str) -> None:
    together = call(commits=Commits.TOGETHER)
    claim(journal, together, "one")
    claim(journal, together, "two", LEASE_MS)
    with ledger.connected(place) as connection:
        begin(place, connection)
        changed = write_receipt(journal, connection, together, "one")
        connection.execute("ROLLBACK")
    assert changed == 0


def test_two_who_take_over_a_dead_claim_do_not_both_get_it(journal: Journal, place: str) -> None:
    together = call(commits=Commits.TOGETHER)
    claim(journal, together, "dead", -LEASE_MS)
    verdicts: list[Verdict] = []
    threads = [
        threading.Thread(
            target=lambda name: verdicts.append(claim(journal, together, name)), args=(name,)
        )
        for name in ("two", "three")
    ]
    with ledger.connected(place) as connection:
        begin(place, connection)
        write_receipt(journal, connection, together, "dead")
        for thread in threads:
            thread.start()
        threads[0].join(BLOCKED_SECONDS)
        connection.execute("ROLLBACK")
        for thread in threads:
            thread.join()
    assert sorted(verdicts) == [Verdict.CLAIMED, Verdict.IN_FLIGHT]


OVERTAKERS: list[Any] = [
    pytest.param(
        lambda journal: claim(journal, call(commits=Commits.TOGETHER), "two", LEASE_MS), id="claim"
    ),
    pytest.param(
        lambda journal: journal.look_up("c", "key", now_ms=NOW_MS + LEASE_MS).verdict, id="look-up"
    ),
    pytest.param(
        lambda journal: (
            journal.forbid("c", "key", run_id="", fence=None, now_ms=NOW_MS + LEASE_MS).verdict
        ),
        id="tombstone",
    ),
]


@pytest.mark.parametrize("overtake", OVERTAKERS)
def test_who_comes_while_a_receipt_is_being_committed_waits_for_it(
    journal: Journal, place: str, overtake: Callable[[Journal], Verdict]
) -> None:
    together = call(commits=Commits.TOGETHER)
    claim(journal, together, "one")
    verdicts: list[Verdict] = []
    with ledger.connected(place) as connection:
        begin(place, connection)
        write_receipt(journal, connection, together, "one")
        other = threading.Thread(target=lambda: verdicts.append(overtake(journal)))
        other.start()
        other.join(BLOCKED_SECONDS)
        connection.execute("COMMIT")
        other.join()
    assert verdicts == [Verdict.DONE]


@pytest.mark.parametrize("overtake", OVERTAKERS)
def test_who_comes_while_a_receipt_is_being_undone_finds_none(
    journal: Journal, place: str, overtake: Callable[[Journal], Verdict]
) -> None:
    together = call(commits=Commits.TOGETHER)
    claim(journal, together, "one")
    verdicts: list[Verdict] = []
    with ledger.connected(place) as connection:
        begin(place, connection)
        write_receipt(journal, connection, together, "one")
        other = threading.Thread(target=lambda: verdicts.append(overtake(journal)))
        other.start()
        other.join(BLOCKED_SECONDS)
        connection.execute("ROLLBACK")
        other.join()
    assert verdicts[0] in (Verdict.CLAIMED, Verdict.ABSENT, Verdict.FORBIDDEN)


def test_a_fence_waits_for_a_receipt_that_is_being_committed(journal: Journal, place: str) -> None:
    old = Fence(lease_version=1, nonce="a")
    together = call(commits=Commits.TOGETHER, fence=old)
    claim(journal, together, "one")
    with ledger.connected(place) as connection:
        begin(place, connection)
        write_receipt(journal, connection, together, "one")
        new = Fence(lease_version=2, nonce="b")
        other = threading.Thread(target=journal.take, args=("c", "run", new))
        other.start()
        other.join(BLOCKED_SECONDS)
        connection.execute("COMMIT")
        other.join()
    assert journal.look_up("c", "key", now_ms=NOW_MS).verdict is Verdict.DONE


def test_a_look_up_that_settles_makes_the_late_commit_impossible(
    journal: Journal, place: str
) -> None:
    together = call(commits=Commits.TOGETHER)
    claim(journal, together, "one")
    found = journal.look_up("c", "key", now_ms=NOW_MS + LEASE_MS).verdict
    with ledger.connected(place) as connection:
        begin(place, connection)
        changed = write_receipt(journal, connection, together, "one")
        connection.execute("ROLLBACK")
    assert (found, changed) == (Verdict.ABSENT, 0)


@pytest.mark.parametrize(
    ("at_ms", "verdict"),
    [
        pytest.param(RETENTION_MS - 1, Verdict.DONE, id="within the retention"),
        pytest.param(RETENTION_MS, Verdict.DONE, id="sent in time, and late on its way"),
        pytest.param(GONE_MS - 1, Verdict.DONE, id="within the margin"),
        pytest.param(GONE_MS, Verdict.CLAIMED, id="after both, as a first request"),
    ],
)
def test_a_receipt_is_kept_for_longer_than_was_declared(
    journal: Journal, at_ms: int, verdict: Verdict
) -> None:
    claim(journal, call(), "one")
    finish(journal, call(), "one")
    claim(journal, call("another"), "three", at_ms)
    found = journal.look_up("c", "key", now_ms=NOW_MS + at_ms).verdict
    expected = Verdict.ABSENT if verdict is Verdict.CLAIMED else verdict
    assert (found, claim(journal, call(), "two", at_ms)) == (expected, verdict)


def test_a_receipt_that_a_clock_dated_too_early_is_kept_for_its_retention(
    journal: Journal,
) -> None:
    claim(journal, call(), "one")
    finish(journal, call(), "one", at_ms=1 - MARGIN_MS)
    claim(journal, call("another"), "three", RETENTION_MS)
    assert claim(journal, call(), "two", RETENTION_MS) is Verdict.DONE


def test_a_key_under_way_across_its_retention_is_kept_from_its_end_on(journal: Journal) -> None:
    claim(journal, call(), "one")
    verdicts = [claim(journal, call(), "two", GONE_MS)]
    finish(journal, call(), "one", at_ms=GONE_MS)
    verdicts.append(claim(journal, call(), "three", 2 * GONE_MS - 1))
    assert verdicts == [Verdict.UNKNOWN, Verdict.DONE]


def test_a_fence_is_never_forgotten(journal: Journal) -> None:
    journal.take("c", "run", Fence(lease_version=2, nonce="a"))
    claim(journal, call("another"), "one", 10**12)
    stale = call(fence=Fence(lease_version=1, nonce="a"))
    assert claim(journal, stale, "two", 10**12) is Verdict.STALE


def test_what_a_person_settled_outlives_every_promise(journal: Journal) -> None:
    claim(journal, call(), "one")
    (row,) = journal.unsettled(now_ms=NOW_MS + LEASE_MS)
    journal.settle(row, ANSWER, now_ms=NOW_MS + LEASE_MS)
    claim(journal, call("another"), "two", RETENTION_MS_MAX)
    assert claim(journal, call(), "three", RETENTION_MS_MAX) is Verdict.DONE


def test_another_request_may_use_a_key_after_the_retention(journal: Journal) -> None:
    claim(journal, call(), "one")
    finish(journal, call(), "one")
    assert claim(journal, call(text="other"), "two", GONE_MS) is Verdict.CLAIMED


def test_receipts_past_their_retention_are_removed(journal: Journal, place: str) -> None:
    for number in range(20):
        claim(journal, call(f"old {number}"), "one")
        finish(journal, call(f"old {number}"), "one")
    for number in range(2):
        claim(journal, call(f"new {number}"), "two", GONE_MS)
    with ledger.connected(place) as connection:
        ((count,),) = connection.execute("SELECT count(*) FROM counterfoil_receipts").fetchall()
    assert count == 2


@pytest.mark.parametrize("state", ["in flight", "forbidden"])
def test_what_is_no_receipt_is_never_removed(journal: Journal, state: str) -> None:
    if state == "forbidden":
        journal.forbid("c", "key", run_id="", fence=None, now_ms=NOW_MS)
    else:
        claim(journal, call(), "one")
    claim(journal, call("other"), "two", 10**12)
    assert claim(journal, call(), "three", 10**12) in (Verdict.FORBIDDEN, Verdict.UNKNOWN)


@pytest.mark.parametrize("is_dead", [False, True], ids=["of a new key", "of a dead claim"])
def test_of_many_claims_one_is_first(journal: Journal, *, is_dead: bool) -> None:
    start = threading.Barrier(8)
    verdicts: list[Verdict] = []
    together = call(commits=Commits.TOGETHER)
    if is_dead:
        claim(journal, together, "dead", -LEASE_MS)

    def run(number: int) -> None:
        start.wait()
        verdicts.append(claim(journal, together, f"attempt {number}"))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (verdicts.count(Verdict.CLAIMED), verdicts.count(Verdict.IN_FLIGHT)) == (1, 7)


def test_an_operator_is_shown_what_nobody_can_tell(journal: Journal) -> None:
    claim(journal, call("dead"), "one")
    claim(journal, call("alive"), "two", LEASE_MS)
    rows = journal.unsettled(now_ms=NOW_MS + LEASE_MS)
    assert [row.key for row in rows] == ["dead"]


@pytest.mark.parametrize("answer", [ANSWER, None], ids=["it happened", "nothing happened"])
def test_what_is_under_way_is_not_settled(journal: Journal, answer: Answer | None) -> None:
    claim(journal, call(), "one")
    row = journal.look_up("c", "key", now_ms=NOW_MS).row
    assert row is not None
    with pytest.raises(UsageError):
        journal.settle(row, answer, now_ms=NOW_MS)


def test_a_key_is_settled_as_it_was_shown_or_not_at_all(journal: Journal) -> None:
    repeatable = call(commits=Commits.REPEATABLE)
    claim(journal, repeatable, "one")
    (row,) = journal.unsettled(now_ms=NOW_MS + LEASE_MS)
    claim(journal, repeatable, "two", LEASE_MS)
    with pytest.raises(UsageError):
        journal.settle(row, None, now_ms=NOW_MS + 10 * LEASE_MS)


def test_a_journal_is_not_made_by_opening_it(place: str, tmp_path: Path) -> None:
    with pytest.raises((ConfigError, FormatError)):
        open_journal(place)


def test_a_journal_that_lost_its_tables_is_not_made_anew(place: str) -> None:
    install_journal(place)
    with ledger.connected(place) as connection:
        connection.execute("DROP TABLE counterfoil_journal")
    with pytest.raises(FormatError):
        open_journal(place)


def test_a_journal_of_another_version_is_refused(place: str) -> None:
    install_journal(place)
    with ledger.connected(place) as connection:
        connection.execute("UPDATE counterfoil_journal SET version = 2")
    with pytest.raises(FormatError):
        open_journal(place)


def test_a_journal_keeps_its_instance(place: str) -> None:
    instances = set()
    for _ in range(2):
        install_journal(place)
        journal = open_journal(place)
        instances.add(journal.instance)
        journal.close()
    assert len(instances) == 1


def test_many_programs_may_make_a_journal_at_once(place: str) -> None:
    failures: list[BaseException] = []

    def make() -> None:
        try:
            install_journal(place)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    open_journal(place).close()
    assert failures == []


def test_a_receipt_without_a_transaction_is_refused(journal: Journal, place: str) -> None:
    together = call(commits=Commits.TOGETHER)
    claim(journal, together, "one")
    with ledger.connected(place) as connection, pytest.raises(UsageError):
        write_receipt(journal, connection, together, "one")


def test_a_receipt_by_another_driver_is_refused(journal: Journal) -> None:
    with pytest.raises(UsageError):
        write_receipt(journal, object(), call(commits=Commits.TOGETHER), "one")


def test_a_transaction_that_psycopg_opens_by_itself_will_do(postgres_place: str) -> None:
    install_journal(postgres_place)
    journal = open_journal(postgres_place)
    together = call(commits=Commits.TOGETHER)
    claim(journal, together, "one")
    with psycopg.connect(postgres_place) as connection:
        write_receipt(journal, connection, together, "one")
    found = journal.look_up("c", "key", now_ms=NOW_MS).verdict
    journal.close()
    assert found is Verdict.DONE


def test_a_schema_of_ones_own_holds_the_journal(postgres: LocalPostgres) -> None:
    place = fresh_database(postgres)
    with ledger.connected(place) as connection:
        connection.execute("CREATE SCHEMA receipts")
    install_journal(place, schema="receipts")
    journal = open_journal(place, schema="receipts")
    verdict = claim(journal, call(), "one")
    journal.close()
    assert verdict is Verdict.CLAIMED


@pytest.mark.parametrize("schema", ["Receipts", 'a"; DROP', "", "x" * 41])
def test_a_schema_has_a_plain_name(schema: str) -> None:
    with pytest.raises(ConfigError):
        open_journal("postgresql://127.0.0.1:1/nothing", schema=schema)


@pytest.mark.parametrize("nth", [1, 2, 3, 4, 5, 6, 7, 8])
def test_a_claim_whose_answer_is_lost_at_any_point_is_made_once(
    postgres: LocalPostgres, postgres_place: str, nth: int
) -> None:
    install_journal(postgres_place)
    with LossyProxy(postgres.port) as proxy:
        journal = open_journal(proxy.through(postgres_place))
        proxy.lose_answer(nth=nth)
        try:
            verdict = claim(journal, call(), "one")
        except UnavailableError:
            verdict = claim(journal, call(), "one")
        others = claim(journal, call(), "two")
        journal.close()
    assert (verdict, others) == (Verdict.CLAIMED, Verdict.IN_FLIGHT)


@pytest.mark.parametrize("nth", [1, 2, 3, 4, 5])
def test_an_answer_that_is_kept_while_the_servers_is_lost_is_kept_once(
    postgres: LocalPostgres, postgres_place: str, nth: int
) -> None:
    install_journal(postgres_place)
    with LossyProxy(postgres.port) as proxy:
        journal = open_journal(proxy.through(postgres_place))
        claim(journal, call(), "one")
        proxy.lose_answer(nth=nth)
        try:
            row = finish(journal, call(), "one")
        except UnavailableError:
            row = finish(journal, call(), "one")
        journal.close()
    assert (row.state, row.body) == (State.DONE, ANSWER.body)


def test_a_file_that_is_locked_for_long_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("counterfoil.integrations.asgi.sqlite.WAIT_MS", 50)
    place = str(tmp_path / "service.db")
    install_journal(place)
    journal = open_journal(place)
    with ledger.connected(place) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(UnavailableError):
            claim(journal, call(), "one")
        connection.execute("ROLLBACK")
    journal.close()


def test_a_file_is_made_with_a_log_that_outlives_a_power_cut(tmp_path: Path) -> None:
    place = str(tmp_path / "service.db")
    install_journal(place)
    connection = apsw.Connection(place)
    mode = connection.pragma("journal_mode")
    connection.close()
    assert mode == "wal"


def test_a_journal_of_sqlite_is_its_owners_alone(tmp_path: Path) -> None:
    place = str(tmp_path / "service.db")
    install_journal(place)
    assert Path(place).stat().st_mode & 0o777 == 0o600


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.db"
    path.write_text("a text, and no database at all" * 100)
    with pytest.raises(FormatError):
        open_journal(path)

"""Calls of the sql adapter as a run would make them, and what a crash must leave."""

from collections.abc import Callable, Mapping

import psycopg

from counterfoil.adapters.sql import SqlAdapter
from counterfoil.core.errors import CounterfoilError
from counterfoil.core.intent import EnvironmentState, Intent, intent_digest
from counterfoil.core.receipt import Answer, Fence, LookUp, Served
from counterfoil.core.words import Digest, Json, Key, Risk, RunId
from counterfoil.ports import Operation
from tests.support.sql_bench import SCOPE, Place, credited, noted

RUN = RunId("run-1")
KEY = Key("key-1")
FENCE = Fence(lease_version=1, nonce="first")
NEWER = Fence(lease_version=2, nonce="second")
SERVED = Served(generation=1, checkpoint=Digest("1" * 64))
PAYMENT = (credited(10, rows=1), noted("paid"))
"""The balance grows by ten, and there is one row more."""

WAITS_FOR_A_LOCK = (
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
    "AND datname = current_database()"
)
HAS_ALL_BUT_COMMITTED = (
    "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' "
    "AND query LIKE 'UPDATE %SET generation%' AND datname = current_database()"
)
LOOKS_MAX = 50_000


def asked(
    adapter: SqlAdapter,
    *calls: Mapping[str, Json],
    key: Key = KEY,
    run_id: RunId = RUN,
    fence: Fence = FENCE,
    prestate: EnvironmentState | None = None,
    scope: Mapping[str, tuple[str, ...]] = SCOPE,
    timeout_ms: int = 20_000,
) -> Operation:
    """Return a change on the state as it is, or on `prestate`."""
    arguments: dict[str, Json] = {"statements": [dict(call) for call in calls]}
    state = prestate or adapter.observe(SCOPE).state
    intent = Intent(
        adapter="sql",
        kind="sql.execute",
        arguments=arguments,
        risk=Risk.IRREVERSIBLE_WRITE,
        target=state.instance,
    )
    return Operation(
        run_id=run_id,
        kind="sql.execute",
        arguments=arguments,
        key=key,
        digest=intent_digest(intent),
        fence=fence,
        served=SERVED,
        prestate=state,
        scope=scope,
        timeout_ms=timeout_ms,
        statement="s1:approved",
    )


def read(adapter: SqlAdapter, kind: str, **arguments: Json) -> Json:
    """Return the result of a read."""
    operation = Operation(
        run_id=RUN,
        kind=f"sql.{kind}",
        arguments=arguments,
        key=Key(""),
        digest=intent_digest(
            Intent(adapter="sql", kind=kind, arguments={}, risk=Risk.READ_ONLY, target="")
        ),
        fence=FENCE,
        served=None,
        prestate=adapter.observe(SCOPE).state,
        scope=SCOPE,
        timeout_ms=20_000,
    )
    return adapter.execute(operation).result


def on_record(adapter: SqlAdapter, key: Key = KEY) -> LookUp:
    """Return what is known of a key."""
    return adapter.look_up(RUN, key, "sql.execute")


def raised(act: Callable[[], object]) -> CounterfoilError | None:
    """Return what an act is refused with, or None."""
    try:
        act()
    except CounterfoilError as error:
        return error
    return None


def paid(place: Place) -> tuple[int, int]:
    """Return how often the payment happened, by the balance and by the rows."""
    return (place.balance() - 100) // 10, place.count


def expect_one_end(place: Place, sent: Operation) -> Answer:
    """Hold a place after a crash to one of its two ends, then to the effect being there once."""
    successor = place.adapter()
    successor.take(RUN, NEWER)
    found = on_record(successor).answer
    assert paid(place) == ((1, 1) if found is Answer.FOUND else (0, 0))
    again = asked(successor, *PAYMENT, fence=NEWER)
    assert again.digest == sent.digest
    receipt = successor.execute(again)
    assert receipt.replayed is (found is Answer.FOUND)
    assert successor.observe(SCOPE).state == receipt.poststate
    assert paid(place) == (1, 1)
    return found


def wait_for_lock(url: str) -> None:
    """Return as soon as somebody waits for a lock in the database."""
    _wait_for(url, WAITS_FOR_A_LOCK)


def wait_for_open_call(url: str) -> None:
    """Return as soon as somebody has done all but commit."""
    _wait_for(url, HAS_ALL_BUT_COMMITTED)


def _wait_for(url: str, question: str) -> None:
    with psycopg.connect(url.partition("?")[0], autocommit=True) as db:
        for _ in range(LOOKS_MAX):
            row = db.execute(question.encode()).fetchone()
            if row is not None and row[0]:
                return
    raise AssertionError("nobody does what was waited for")

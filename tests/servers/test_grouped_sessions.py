"""Many sessions of one process on real servers share writes there too, within their bounds."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from counterfoil.core.words import RunId
from counterfoil.engine import audit
from counterfoil.engine.grouping import shared
from counterfoil.local.etcd import LocalEtcd
from counterfoil.local.postgres import LocalPostgres
from counterfoil.stores.memory import MemoryStore
from counterfoil.stores.postgres import open_heads, open_joint, open_store
from counterfoil.testing.clock import VirtualClock
from tests.support.crowds import Caller, Gate, Lockstep
from tests.support.etcd import fresh_prefix, opened
from tests.support.postgres import fresh_database
from tests.unit.engine.test_grouped_sessions import STEPS, Target, counting, wired

pytest_plugins = ["tests.support.etcd", "tests.support.postgres"]
pytestmark = pytest.mark.timeout(300)  # servers on however busy a machine

SESSIONS = 40
APART = 2 * SESSIONS * STEPS
"""Writes of as many sessions in as many processes, at least."""

Ports = tuple[Any, Any, Any]


def work_together(ports: Ports) -> tuple[int, list[Gate]]:
    """Let many sessions work over ports; return the writes, and what each port was sent."""
    step, target = Lockstep(SESSIONS), Target()
    gates = [Gate(port) for port in ports if port is not None]
    group = shared(*(step.before(gate) for gate in gates))
    parts = wired(target, VirtualClock(), *(port and step.around(port) for port in group))

    def work(run_id: str) -> None:
        try:
            counting(parts, run_id)
        finally:
            step.end()

    names = [f"run-{number}" for number in range(SESSIONS)]
    callers = [Caller(partial(work, name)) for name in names]
    assert [caller.end().error for caller in callers] == [None] * SESSIONS
    assert (set(target.arrivals.values()), target.arrivals.total()) == ({1}, SESSIONS * STEPS)
    for name in names:
        audit.audit(parts, RunId(name))
    return step.writes, gates


def one_database(server: LocalPostgres, closing: Callable[[Any], Any]) -> Ports:
    url = fresh_database(server)
    store, heads = open_store(url, create=True), open_heads(url, create=True)
    return closing(store), closing(heads), closing(open_joint(url))


def two_databases(server: LocalPostgres, closing: Callable[[Any], Any]) -> Ports:
    store = open_store(fresh_database(server), create=True)
    heads = open_heads(fresh_database(server), create=True)
    return closing(store), closing(heads), None


@pytest.mark.parametrize("opens", [one_database, two_databases])
def test_sessions_on_postgresql_make_far_fewer_writes_than_steps(
    postgres: LocalPostgres, opens: Callable[..., Ports]
) -> None:
    with ExitStack() as stack:

        def closing(port: Any) -> Any:
            stack.callback(port.close)
            return port

        writes, _ = work_together(opens(postgres, closing))
    assert writes < APART // 5


def test_sessions_on_etcd_make_far_fewer_writes_than_steps_within_its_bound(
    etcd: LocalEtcd,
) -> None:
    heads = opened(etcd, fresh_prefix())
    try:
        writes, (_, gate) = work_together((MemoryStore(), heads, None))
    finally:
        heads.close()
    assert writes < APART // 5
    assert 1 < max(gate.sizes) <= heads.batch_max

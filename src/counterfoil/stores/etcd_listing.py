"""Lists of heads in etcd: pages in order, and what is free to be claimed.

A look for what is free reads no run that is not active, and none whose pause is not about
to be over by the clock of the one that looks. Whether it is over is etcd's word.
"""

from counterfoil.core.errors import FormatError
from counterfoil.ports import Head
from counterfoil.stores.etcd_gateway import Gateway
from counterfoil.stores.etcd_judging import (
    PRESENT_STEPS,
    Present,
    head_of,
    present_of,
    present_steps,
)
from counterfoil.stores.etcd_records import ACTIVE, Due, Keys, paused_until_ms
from counterfoil.stores.etcd_wire import TXN_OPERATIONS_MAX, Txn, names, oldest, page

PAGE_MAX = 1_000
"""Heads in one answer of etcd, some 500 bytes each; a longer list takes several."""

SPARE = 64
"""Held runs that a look for free ones reads past without asking again."""

LOOKS_MAX = 2
READ_MAX = TXN_OPERATIONS_MAX // PRESENT_STEPS


def head_page(gateway: Gateway, keys: Keys, after: str, limit: int) -> tuple[Head, ...]:
    """Return heads in order of run id, from after `after`, at most `limit`.

    Each answer of etcd is of one moment; a list of more than `PAGE_MAX` is of several.
    """
    heads: list[Head] = []
    while limit > len(heads):
        size = min(PAGE_MAX, limit - len(heads))
        txn = Txn(
            success=tuple(
                page(keys.after(kind, after), keys.end(kind), size) for kind in ("head", "until")
            )
        )
        rows, ends = gateway.ask(txn).ranges
        for row, end in zip(rows.kvs, ends.kvs, strict=False):
            run_id = keys.run_of("head", row.key)
            head = head_of(run_id, row, end)
            if head is None or keys.run_of("until", end.key) != run_id:
                raise FormatError("half of a head is missing in etcd", run_id)
            heads.append(head)
        if len(rows.kvs) != len(ends.kvs):
            raise FormatError("half of a head is missing in etcd")
        if len(rows.kvs) < size:
            break
        after = heads[-1].run_id
    return tuple(heads)


def free_heads(gateway: Gateway, keys: Keys, limit: int, now_ms: int) -> tuple[Head, ...]:
    """Return active heads that nobody holds, those first that changed hands longest ago.

    Runs that are not active are not looked at, nor those whose pause is not over by
    `now_ms`, however many they are. That moment is a worker's, and decides nothing else:
    of what is looked at, only what etcd holds no longer is free.
    """
    free = _free_runs(gateway, keys, limit, now_ms) if limit > 0 else []
    heads: list[Head] = []
    for at in range(0, len(free), READ_MAX):
        part = free[at : at + READ_MAX]
        steps = tuple(step for due in part for step in present_steps(keys, due.run_id))
        ranges = gateway.ask(Txn(success=steps)).ranges
        for place, due in enumerate(part):
            start = place * PRESENT_STEPS
            present = present_of(due.run_id, ranges[start : start + PRESENT_STEPS])
            heads += _if_free(present, due)
    return tuple(heads)


def _free_runs(gateway: Gateway, keys: Keys, limit: int, now_ms: int) -> list[Due]:
    free: list[Due] = []
    size = limit + SPARE
    for _ in range(LOOKS_MAX):
        txn = Txn(
            success=(
                names(*keys.looked_at("hold", now_ms)),
                oldest(*keys.looked_at("active", now_ms), size),
            )
        )
        holds, active = gateway.ask(txn).ranges
        held = {keys.due_of("hold", row.key) for row in holds.kvs}
        runs = (keys.due_of("active", row.key) for row in active.kvs)
        free = [due for due in runs if due not in held]
        if len(free) >= limit or not active.more:
            break
        size = limit + SPARE + len(held)
    return free[:limit]


def _if_free(present: Present, due: Due) -> tuple[Head, ...]:
    """Return the head if it is still free: it may have changed hands since it was listed."""
    head = present.head
    if head is None or head.status != ACTIVE or present.hold is not None:
        return ()
    return (head,) if paused_until_ms(head) == due.due_ms else ()

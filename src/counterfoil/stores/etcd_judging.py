"""What a register in etcd says to a call, from what lies there: pure functions.

Whether a lease stands is seen by its hold alone. The rules that all registers share
judge by moments, so they are given one at which the lease stands or has ended, as etcd
says.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from counterfoil.core.errors import CounterfoilError, FormatError
from counterfoil.core.words import RunId
from counterfoil.ports import Advance, Head
from counterfoil.stores import rules
from counterfoil.stores.etcd_records import Keys, decode_head
from counterfoil.stores.etcd_wire import RangeAnswer, Row, Step, get

PRESENT_STEPS = 3
"""Operations that read what lies there of one run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Present:
    """What lies in etcd of one run, at one moment.

    Attributes:
        head: The head; None if there is none.
        hold: What stands while the lease does; None when it is over, or given up.
    """

    head: Head | None
    hold: Row | None

    def judged_at_ms(self, wall_ms: int) -> int:
        """Return the moment nearest to `wall_ms` at which etcd's word is true."""
        ends_at_ms = 0 if self.head is None else self.head.expires_at_ms
        return max(wall_ms, ends_at_ms) if self.hold is None else min(wall_ms, ends_at_ms - 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What a batch does, if every head is as its first move expects it.

    Attributes:
        heads: The answer to each move.
        before: The head of each run before the batch.
        after: And after it.
        ttls_ms: The longest term that is asked for, by run.
        is_sound: Whether each further move of a run rests on the one before.
    """

    heads: tuple[Head, ...]
    before: dict[RunId, Head]
    after: dict[RunId, Head]
    ttls_ms: dict[RunId, int]
    is_sound: bool


def plan_of(batch: Sequence[Advance], wall_ms: int) -> Plan:
    """Fold a batch into one change for each run, since etcd sets a key once at a time."""
    heads: list[Head] = []
    before: dict[RunId, Head] = {}
    after: dict[RunId, Head] = {}
    ttls_ms: dict[RunId, int] = {}
    is_sound = True
    for move in batch:
        run_id = move.expected.run_id
        present = after.get(run_id, move.expected)
        if run_id in after:
            stands_at_ms = present.expires_at_ms - 1
            is_sound &= rules.advance_refusal(present, move.expected, stands_at_ms) is None
        before.setdefault(run_id, move.expected)
        after[run_id] = _moved(present, move, wall_ms)
        ttls_ms[run_id] = max(move.ttl_ms, ttls_ms.get(run_id, 0))
        heads.append(after[run_id])
    return Plan(heads=tuple(heads), before=before, after=after, ttls_ms=ttls_ms, is_sound=is_sound)


def batch_refusal(
    batch: Sequence[Advance], present: Mapping[RunId, Present], wall_ms: int
) -> CounterfoilError | None:
    """Return why a batch is refused, by its first move that is; None if none is."""
    heads: dict[RunId, Head | None] = {run_id: each.head for run_id, each in present.items()}
    for move in batch:
        run_id = move.expected.run_id
        head, judged_at_ms = heads[run_id], present[run_id].judged_at_ms(wall_ms)
        refusal = rules.advance_refusal(head, move.expected, judged_at_ms)
        if refusal is not None or head is None:
            return refusal or rules.missing(run_id)
        heads[run_id] = _moved(head, move, 0)
    return None


def _moved(head: Head, move: Advance, wall_ms: int) -> Head:
    return replace(
        head,
        generation=head.generation + 1,
        checkpoint=move.checkpoint,
        status=move.status,
        expires_at_ms=max(head.expires_at_ms, wall_ms + move.ttl_ms),
    )


def present_steps(keys: Keys, run_id: RunId) -> tuple[Step, ...]:
    """Return what reads everything of one run: `PRESENT_STEPS` operations."""
    head, until = keys.of("head", run_id), keys.of("until", run_id)
    return get(head), get(until), get(keys.hold(run_id))


def present_of(run_id: RunId, ranges: Sequence[RangeAnswer]) -> Present:
    """Return what `present_steps` found.

    Raises:
        FormatError: It is not as we write it.
    """
    head, until, hold = (one_row(each) for each in ranges)
    return Present(head=head_of(run_id, head, until), hold=hold)


def head_of(run_id: RunId, head: Row | None, until: Row | None) -> Head | None:
    """Return the head of two keys, or None where there is neither.

    Raises:
        FormatError: There is one of them alone, or it is not as we write it.
    """
    if head is None and until is None:
        return None
    if head is None or until is None:
        raise FormatError("half of a head is missing in etcd", run_id)
    return decode_head(run_id, head.value, until.value)


def one_row(answer: RangeAnswer) -> Row | None:
    """Return the one key that was asked for, or None."""
    return answer.kvs[0] if answer.kvs else None

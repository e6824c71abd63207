"""Whether some order of the calls of a head register explains every answer that it gave.

The search is Wing and Gong's ("Testing and Verifying Concurrent Objects", 1993), with
Lowe's memory of configurations that led nowhere. A call whose answer was lost happened at
any moment after it was made, or never. A lease ends by itself: nobody saw when, so it may
have ended from the first moment at which its term could be over, and has once it was seen.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from counterfoil.core.words import Digest, RunId
from counterfoil.ports import Head

CONFIGURATIONS_MAX = 50_000
"""Visited by one search; histories of the tests need a few hundred."""

UNKNOWN = "unknown"
DONE = "done"
REFUSALS = ("StaleHeadError", "LeaseLostError", "HeadMissingError")


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a register, as its client saw it.

    Attributes:
        client: Who made it.
        kind: Name of the method.
        run_id: The run.
        invoked_us: When it was made, on a clock that all clients share.
        answered_us: When it was answered.
        expected: The head that it was given.
        checkpoint: What `create` and `advance` set.
        status: What `advance` sets.
        owner: Who takes the lease.
        nonce: The lease's.
        ttl_ms: Its term.
        answer: `DONE`, `UNKNOWN`, or one of `REFUSALS`.
        head: The head that it was answered with; None where there is none.
    """

    client: int
    kind: str
    run_id: RunId
    invoked_us: int
    answered_us: int
    expected: Head | None = None
    checkpoint: Digest = Digest("")
    status: str = "active"
    owner: str = ""
    nonce: str = ""
    ttl_ms: int = 0
    answer: str = DONE
    head: Head | None = None

    @property
    def ends_us(self) -> float:
        """The last moment at which it may have happened."""
        return math.inf if self.answer == UNKNOWN else self.answered_us


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """How exactly a register counts terms.

    Attributes:
        early_us: How much sooner than agreed a lease may be over, by the callers' clock.
        late_us: How much later; infinite where nobody promises.
    """

    early_us: float
    late_us: float


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """The register between two calls.

    Attributes:
        head: The record, without its end.
        from_us: The lease may be over from here on.
        until_us: It is over from here on, at the latest.
        is_over: Somebody saw that it is.
    """

    head: Head | None = None
    from_us: float = 0
    until_us: float = 0
    is_over: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """What a register does, one call at a time: `stores.rules`, where nobody sees the clock."""

    terms: Terms

    def after(self, state: State, call: Call) -> Iterator[State]:
        """Yield each state in which a call with this answer may leave the register."""
        if call.answer in REFUSALS:
            yield from self._refused(state, call)
            return
        made = self._made(state, call)
        if made is not None and (call.answer == UNKNOWN or _fits(made.head, call)):
            yield made

    def _made(self, state: State, call: Call) -> State | None:
        """Return the state after a call that goes through; None if it does not."""
        head, expected = state.head, call.expected
        match call.kind:
            case "read":
                return state
            case "create":
                return None if head else self._granted(call, _first(call))
            case "acquire" if head and expected and _whole(head) == _whole(expected):
                if head.nonce and not self._may_be_over(state, call):
                    return None
                version = head.lease_version + 1
                taken = replace(head, owner=call.owner, nonce=call.nonce, lease_version=version)
                return self._granted(call, taken)
            case "release" if expected:
                is_held = head is not None and _lease(head) == _lease(expected)
                return State(head=replace(head, owner="", nonce="")) if head and is_held else state
            case "renew" | "advance" if head and expected and self._is_holder(state, call):
                if call.kind == "renew":
                    return self._granted(call, head, state)
                if _place(head) != _place(expected):
                    return None
                generation = head.generation + 1
                moved = replace(
                    head, generation=generation, checkpoint=call.checkpoint, status=call.status
                )
                return self._granted(call, moved, state)
            case _:
                return None

    def _refused(self, state: State, call: Call) -> Iterator[State]:
        head, expected = state.head, call.expected
        if call.kind == "create":
            is_due = head is not None and call.answer == "StaleHeadError"
            yield from [state] * is_due
        elif head is None or expected is None:
            yield from [state] * (call.answer == "HeadMissingError")
        elif call.kind == "acquire":
            yield from self._not_taken(state, call, head, expected)
        elif call.answer == "LeaseLostError":
            if _lease(head) != _lease(expected) or not head.nonce:
                yield state
            elif self._may_be_over(state, call):
                yield State(head=head, is_over=True)
        elif call.answer == "StaleHeadError" and call.kind == "advance":
            is_stale = _place(head) != _place(expected)
            yield from [state] * (is_stale and self._is_holder(state, call))

    def _not_taken(self, state: State, call: Call, head: Head, expected: Head) -> Iterator[State]:
        if call.answer == "LeaseLostError":
            yield from [state] * (bool(head.nonce) and self._may_stand(state, call))
        elif call.answer == "StaleHeadError" and _whole(head) != _whole(expected):
            if not head.nonce:
                yield state
            elif self._may_be_over(state, call):
                yield State(head=head, is_over=True)

    def _is_holder(self, state: State, call: Call) -> bool:
        head, expected = state.head, call.expected
        if not head or not expected or not head.nonce:
            return False
        return _lease(head) == _lease(expected) and self._may_stand(state, call)

    def _may_stand(self, state: State, call: Call) -> bool:
        return not state.is_over and call.invoked_us < state.until_us

    def _may_be_over(self, state: State, call: Call) -> bool:
        return state.is_over or call.ends_us >= state.from_us

    def _granted(self, call: Call, head: Head, before: State = State()) -> State:
        """Return the state with a term that counts from some moment of the call."""
        term_us = call.ttl_ms * 1_000
        return State(
            head=head,
            from_us=max(before.from_us, call.invoked_us + term_us - self.terms.early_us),
            until_us=max(before.until_us, call.ends_us + term_us + self.terms.late_us),
        )


def _first(call: Call) -> Head:
    incarnation = call.head.incarnation if call.head else ""
    return Head(
        run_id=call.run_id,
        generation=0,
        checkpoint=call.checkpoint,
        owner=call.owner,
        nonce=call.nonce,
        lease_version=1,
        incarnation=incarnation,
    )


def _fits(made: Head | None, call: Call) -> bool:
    if call.kind == "release":
        return True
    if made is None or call.head is None:
        return made is None and call.head is None
    return _whole(made) == _whole(call.head)


def _whole(head: Head) -> tuple[object, ...]:
    return (*_lease(head), *_place(head), head.owner, head.status)


def _lease(head: Head) -> tuple[str, int]:
    return head.nonce, head.lease_version


def _place(head: Head) -> tuple[int, Digest]:
    return head.generation, head.checkpoint


class SearchError(Exception):
    """The search was given up: nobody knows."""


def explained(
    calls: Sequence[Call], terms: Terms, configurations_max: int = CONFIGURATIONS_MAX
) -> bool:
    """Return whether some order of the calls of one run explains every answer.

    Raises:
        SearchError: It would take too long to find out.
    """
    ordered = sorted(calls, key=lambda call: (call.ends_us, call.invoked_us))
    needed = sum(1 << at for at, call in enumerate(ordered) if call.answer != UNKNOWN)
    model, seen = Model(terms=terms), set[tuple[int, State]]()
    stack = [(0, State())]
    while stack:
        taken, state = _as_far_as_nothing_changes(model, ordered, *stack.pop())
        if taken & needed == needed:
            return True
        if (taken, state) in seen:
            continue
        seen.add((taken, state))
        if len(seen) > configurations_max:
            raise SearchError(f"{len(calls)} calls, {len(seen)} configurations")
        following = [
            (taken | 1 << at, after)
            for at in _next(ordered, taken)
            for after in model.after(state, ordered[at])
        ]
        stack += reversed(following)
    return False


def _as_far_as_nothing_changes(
    model: Model, calls: Sequence[Call], taken: int, state: State
) -> tuple[int, State]:
    """Take every call at once that leaves the register as it is: it could not come better."""
    while True:
        idle = [
            at
            for at in _next(calls, taken)
            if calls[at].answer != UNKNOWN and state in model.after(state, calls[at])
        ]
        if not idle:
            return taken, state
        for at in idle:
            taken |= 1 << at


def _next(calls: Sequence[Call], taken: int) -> list[int]:
    """Return the calls that may be next: no other that is left was answered before them."""
    left = [at for at in range(len(calls)) if not taken >> at & 1]
    end = min((calls[at].ends_us for at in left), default=math.inf)
    return [at for at in left if calls[at].invoked_us <= end]


def unexplained(calls: Sequence[Call], terms: Terms) -> list[RunId]:
    """Return the runs whose calls no order explains.

    Raises:
        SearchError: It would take too long to find out.
    """
    runs = sorted({call.run_id for call in calls})
    return [
        run for run in runs if not explained([call for call in calls if call.run_id == run], terms)
    ]

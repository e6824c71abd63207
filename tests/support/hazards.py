"""Checks of the protocol, each a function that raises when one hazard gets through."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace as changed

from msgspec.structs import replace

from counterfoil.adapters.sandbox import SandboxAdapter, World
from counterfoil.core.canonical import decode, encode
from counterfoil.core.errors import (
    FormatError,
    FrozenError,
    IntegrityError,
    LostRaceError,
    RollbackError,
    UnknownOutcomeError,
)
from counterfoil.core.receipt import LookUp, Receipt
from counterfoil.core.run import Run, Spent
from counterfoil.core.words import Digest, IntentDigest, Key, Level, RunId
from counterfoil.engine.parts import Seals
from counterfoil.engine.session import Session
from counterfoil.keeper import Keeper
from counterfoil.keys import keyring_of
from counterfoil.keys.keyring import Purpose
from counterfoil.ports import Adapter, Advance, Head, Operation
from counterfoil.stores.memory import MemoryHeads, MemoryStore
from counterfoil.testing.clock import VirtualClock
from counterfoil.testing.crash import enumerate_crashes
from counterfoil.testing.expect import ConformanceError, expect
from counterfoil.testing.mortal import Death, Died, Fate, mortal
from counterfoil.testing.saboteur_adapters import Passing
from tests.support.stages import (
    IN_FLIGHT_MS,
    Backend,
    Form,
    Late,
    PlayStage,
    sandbox_stage,
)

Wrap = Callable[[World, Adapter], Adapter]


def _as_it_is(world: World, adapter: Adapter) -> Adapter:
    return adapter


def _enumerate(
    form: Form,
    level: Level,
    *,
    in_flight_ms: int | None = None,
    late: Late | None = None,
    wrap: Wrap = _as_it_is,
) -> None:
    backend = Backend()
    enumerate_crashes(
        lambda: sandbox_stage(
            backend, level=level, in_flight_ms=in_flight_ms, late=late, wrap=wrap, form=form
        ),
        second_deaths=0,
    )


# ---------------------------------------------------------------- every crash


def transactional_crashes(form: Form) -> None:
    """Die everywhere at a target that keeps keys and fences."""
    _enumerate(form, Level.TRANSACTIONAL)


def queryable_crashes(form: Form) -> None:
    """Die everywhere at a target that does a call as often as it arrives."""
    _enumerate(form, Level.QUERYABLE, in_flight_ms=IN_FLIGHT_MS)


class _DeafOnce(Passing):
    """Fails to answer the first look-up of each world."""

    def __init__(self, world: World, inner: Adapter, answered: set[World]) -> None:
        super().__init__(inner)
        self._world = world
        self._answered = answered

    def look_up(self, run_id: RunId, key: Key, kind: str) -> LookUp:
        if self._world not in self._answered:
            self._answered.add(self._world)
            raise ConnectionError("the look-up got no answer")
        return super().look_up(run_id, key, kind)


def crashes_with_a_silent_look_up(form: Form) -> None:
    """Die everywhere while the first question after a crash stays without an answer."""
    answered: set[World] = set()
    _enumerate(
        form,
        Level.QUERYABLE,
        in_flight_ms=IN_FLIGHT_MS,
        wrap=lambda world, inner: _DeafOnce(world, inner, answered),
    )


def _fence_only(world: World, adapter: Adapter) -> Adapter:
    """Take the expected revision from a conditional target, so that the fence is alone."""
    assert isinstance(adapter, SandboxAdapter)
    adapter._promises = changed(adapter._promises, checks_prestate=False)
    return adapter


def crashes_with_a_call_that_lands_last(form: Form) -> None:
    """Die everywhere at a target that only fences, while the first call lands at the end."""
    late = Late(arrives_early=False)
    _enumerate(form, Level.CONDITIONAL, late=late, wrap=_fence_only)


class _LandsAfterTheQuestion(Passing):
    """Lets a call that is under way land right after the answer that it is absent."""

    def __init__(self, world: World, inner: Adapter) -> None:
        super().__init__(inner)
        self._world = world

    def look_up(self, run_id: RunId, key: Key, kind: str) -> LookUp:
        answer = super().look_up(run_id, key, kind)
        self._world.land_delayed()
        return answer


def _lands_at_the_worst_moment(world: World, adapter: Adapter) -> Adapter:
    return _LandsAfterTheQuestion(world, _fence_only(world, adapter))


def crashes_with_a_call_that_lands_between_question_and_call(form: Form) -> None:
    """Die everywhere while the first call lands between the look-up and the second call."""
    late = Late(arrives_early=False)
    _enumerate(form, Level.CONDITIONAL, late=late, wrap=_lands_at_the_worst_moment)


def crashes_at_a_target_that_keeps_keys(form: Form) -> None:
    """Die everywhere at a deduplicating target, while the first call lands at the end."""
    _enumerate(form, Level.DEDUPLICATING, late=Late(arrives_early=False))


# ---------------------------------------------------------------- one hazard each


def _opened(stage: PlayStage) -> Session:
    return Keeper(stage.parts()).run(stage.task, stage.run_id)


def _killed_after(stage: PlayStage, call: str) -> None:
    """Let a process die right after its first call of this name."""
    calls = Fate()
    with sandbox_stage(Backend(), form=stage.form) as rehearsal:
        rehearsal.work(mortal(rehearsal.parts(), calls))
    death = Death(at=calls.calls.index(call), is_after=True)
    try:
        stage.work(mortal(stage.parts(), Fate(death)))
    except Died:
        stage.wait()
        return
    raise ConformanceError("the process did not die")


def a_changed_state_is_refused(form: Form) -> None:
    """Give a genuine header a state whose budgets are unspent."""
    with sandbox_stage(Backend(), form=form) as stage:
        _killed_after(stage, "adapter.execute")
        store, heads = stage.backend.open()
        assert isinstance(store, MemoryStore)
        head = heads.read(stage.run_id)
        assert head is not None
        rows = store._rows[stage.run_id]
        row = rows[head.checkpoint]
        run = decode(row.state, Run, "state", bytes_max=2**20)
        rows[head.checkpoint] = replace(row, state=encode(replace(run, spent=Spent())))
        _expect_refusal(stage, FormatError)


def a_stranger_s_checkpoint_is_refused(form: Form) -> None:
    """Let a run be written under a key that is not ours."""
    with sandbox_stage(Backend(), form=form) as stage:
        strange = keyring_of(bytes(range(1, 33)))
        seals = Seals(
            signer=strange.signer(Purpose.CHECKPOINT),
            verifiers=strange.verifiers(Purpose.CHECKPOINT),
        )
        parts = changed(stage.parts(), seals=seals)
        with Keeper(parts).run(stage.task, stage.run_id) as run:
            run.remember("plan", lambda: "theirs")
        _expect_refusal(stage, IntegrityError)


def _expect_refusal(stage: PlayStage, error: type[IntegrityError]) -> None:
    try:
        _opened(stage)
    except error:
        return
    raise ConformanceError("the run opened")


def a_superseded_lease_moves_no_head(_form: Form) -> None:
    """Let a worker whose lease was taken over move the head that it last saw."""
    clock, run_id = VirtualClock(), RunId("run-1")
    heads = MemoryHeads(now_ms=clock.now_ms, incarnation="register-1")
    paused = heads.create(run_id, Digest("0" * 64), "worker", "nonce-1", 1_000)
    clock.advance(1_001)
    heads.acquire(paused, "worker", "nonce-2", 1_000)
    late = Advance(expected=paused, checkpoint=Digest("1" * 64), status="active", ttl_ms=1_000)
    try:
        heads.advance((late,))
    except LostRaceError:
        return
    raise ConformanceError("a lease that was taken over moved the head")


def another_s_receipt_opens_a_case(form: Form) -> None:
    """Put a receipt of another intent on record under the pending key."""
    with sandbox_stage(Backend(), form=form) as stage:
        planted: list[World] = []
        stage.adapters = _remembering(stage, planted)
        _killed_after(stage, "adapter.execute")
        (key,) = planted[0].receipts
        planted[0].alter_receipt(key, digest=IntentDigest("i1:" + "0" * 64))
        try:
            stage.work(stage.parts())
        except FrozenError:
            return
        raise ConformanceError("a receipt of another intent was taken for ours")


def _remembering(stage: PlayStage, worlds: list[World]) -> Callable[[], tuple[Adapter, ...]]:
    opened = stage.adapters

    def adapters() -> tuple[Adapter, ...]:
        (adapter,) = opened()
        assert isinstance(adapter, SandboxAdapter)
        worlds.append(adapter._world)
        return (adapter,)

    return adapters


class _SilentHeads(MemoryHeads):
    """Loses the second commit on its way, and says that nobody knows."""

    losses: int = 0

    def advance(self, batch: tuple[Advance, ...]) -> tuple[Head, ...]:  # type: ignore[override] # narrower than it must be
        self.losses += 1
        if self.losses > 1:
            raise UnknownOutcomeError("the register did not answer")
        return super().advance(batch)


class _AsksTheRegister(Passing):
    """Notes each call whose checkpoint is not the head as it arrives."""

    def __init__(self, inner: Adapter, heads: MemoryHeads, early: list[Operation]) -> None:
        super().__init__(inner)
        self._heads = heads
        self._early = early

    def execute(self, operation: Operation) -> Receipt:
        head, served = self._heads.read(operation.run_id), operation.served
        if head is None or served is None or served.checkpoint != head.checkpoint:
            self._early.append(operation)
        return super().execute(operation)


def silence_of_the_register_lets_no_call_leave(form: Form) -> None:
    """Lose every commit but the first, and watch what reaches the target."""
    backend, early = Backend(), list[Operation]()
    heads = _SilentHeads(now_ms=backend.clock.now_ms, incarnation="register-1")
    backend._heads = heads
    with sandbox_stage(
        backend, form=form, wrap=lambda _, inner: _AsksTheRegister(inner, heads, early)
    ) as stage:
        run = _opened(stage)
        run.remember("plan", lambda: "one")
        with suppress(UnknownOutcomeError, IntegrityError, LostRaceError):
            run.do("write_file", path="app.py", content="sound")
        expect(not early, "a call leaves only under the checkpoint that is the head")
        expect(stage.effects() == (), "nothing happened")


def a_register_set_back_is_refused(form: Form) -> None:
    """Set the head back by several generations once the run has ended."""
    with sandbox_stage(Backend(), level=Level.DEDUPLICATING, form=form) as stage:
        _killed_after(stage, "adapter.execute")
        _, heads = stage.backend.open()
        assert isinstance(heads, MemoryHeads)
        early = heads.read(stage.run_id)
        assert early is not None
        stage.work(stage.parts())
        heads._heads[stage.run_id] = early
        try:
            stage.wait()
            stage.work(stage.parts())
        except RollbackError:
            expect(len(stage.effects()) == 2, "no effect is repeated")
            return
        raise ConformanceError("time was turned back and nobody noticed")

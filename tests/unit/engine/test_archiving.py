"""An archive stands for a finished run: everything is seen as before, and loss is told apart."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as changed

from counterfoil.core import codec
from counterfoil.core.archive import SEAL, Seal, open_seal, pack, seal_archive, unpack
from counterfoil.core.errors import (
    BindingError,
    CounterfoilError,
    FormatError,
    HeadMissingError,
    IdempotencyConflictError,
    IntegrityError,
    LeaseLostError,
    RollbackError,
    TerminalError,
)
from counterfoil.core.review import Verdict
from counterfoil.core.run import Phase
from counterfoil.core.trace import Outcome
from counterfoil.core.words import Digest, Level, RunId
from counterfoil.engine import audit, collecting, control
from counterfoil.engine.archiving import drop_archived
from counterfoil.engine.filing import find_archive
from counterfoil.engine.parts import Parts
from counterfoil.engine.session import Session
from counterfoil.engine.submitting import submit_run
from counterfoil.keeper import Keeper
from counterfoil.keys import Purpose, keyring_of
from counterfoil.ports import CheckpointStore, Head
from counterfoil.stores.memory import MemoryHeads
from counterfoil.testing.saboteur_stores import Passing
from tests.acceptance.test_reviews import decided, lost
from tests.support.archives import collected, in_small_parts, rows_of, seen
from tests.support.desks import desk
from tests.support.killing import write_once
from tests.support.scenes import RUN_ID
from tests.support.stages import INCARNATION, Backend, PlayStage, sandbox_stage, shop_stage

DAY_MS = 86_400_000


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    in_small_parts(monkeypatch)


def finished(backend: Backend | None = None, **options: Any) -> PlayStage:
    """Return a run that has ended."""
    stage: PlayStage = sandbox_stage(backend or Backend(), **options).__enter__()
    stage.work(stage.parts())
    return stage


def archived(backend: Backend | None = None, **options: Any) -> PlayStage:
    """Return a run that has ended and is archived."""
    stage = finished(backend, **options)
    (made,) = collected(stage.parts())
    assert made.outcome == "archived"
    return stage


class Losing(Passing):
    """Has lost parts of archives."""

    def __init__(self, inner: CheckpointStore, *names: str) -> None:
        super().__init__(inner)
        self._names = names

    def archived(self, run_id: RunId, name: str) -> bytes | None:
        return None if name in self._names else self.inner.archived(run_id, name)


def with_loss(stage: PlayStage, *names: str) -> Parts:
    parts = stage.parts()
    return replace(parts, store=Losing(parts.store, *names))


def seal_of(stage: PlayStage) -> Seal:
    parts = stage.parts()
    envelope = parts.store.archived(stage.run_id, SEAL)
    assert envelope is not None
    return open_seal(envelope, stage.run_id, parts.seals.verifiers)


def reseal(stage: PlayStage, **fields: Any) -> None:
    """Have one who holds the key sign something else."""
    parts = stage.parts()
    envelope = seal_archive(changed(seal_of(stage), **fields), parts.seals.signer)
    parts.store.archive(stage.run_id, SEAL, envelope)


def pieces(stage: PlayStage) -> tuple[Any, ...]:
    parts = stage.parts()
    head = parts.heads.read(stage.run_id)
    assert head is not None
    archive = find_archive(parts, head)
    assert archive is not None
    return archive.index


# ---------------------------------------------------------------- what stays as it was


def test_everything_that_is_seen_of_a_run_is_seen_of_its_archive() -> None:
    at, run = lost(approval_kinds=("write_file",))
    at.hand(decided(at, run, Verdict.CONFIRM_DONE))
    run = at.run()
    assert run.state.phase is Phase.RUNNING
    run.cancel("enough")
    run.close()
    parts = at.parts()
    before = seen(parts, RunId(RUN_ID))
    outcomes = {event.outcome for _, event in audit.events(parts, RunId(RUN_ID))}
    assert {Outcome.APPROVED, Outcome.NEEDS_REVIEW, Outcome.CONFIRMED_DONE} <= outcomes
    assert [each.outcome for each in collected(parts)] == ["archived"]
    assert seen(at.parts(), RunId(RUN_ID)) == before
    assert len(rows_of(parts, RunId(RUN_ID))) == 1


def test_an_audit_says_when_a_run_was_archived() -> None:
    stage = finished()
    assert audit.audit(stage.parts(), stage.run_id).archived_at == ""
    stage.backend.clock.advance(5 * DAY_MS)
    collected(stage.parts())
    found = audit.audit(stage.parts(), stage.run_id)
    assert found.archived_at == codec.rfc3339(stage.backend.clock.now_ms())
    assert (found.leftovers, found.keys) == (0, tuple(stage.parts().seals.verifiers))


def told(stage: PlayStage, act: Callable[[PlayStage], object]) -> tuple[object, ...]:
    """Return what an act on a run answers or raises."""
    try:
        return ("answers", act(stage))
    except CounterfoilError as error:
        return (type(error), error.message)


def opened(stage: PlayStage) -> Session:
    return Keeper(stage.parts()).run(stage.task, stage.run_id)


ACTS: dict[str, Callable[[PlayStage], object]] = {
    "opening": lambda stage: opened(stage).state,
    "replaying": lambda stage: stage.work(stage.parts()),
    "another program": lambda stage: opened(stage).do("write_file", path="notes.md", content="x"),
    "going on": lambda stage: _beyond(opened(stage)),
    "proposing": lambda stage: opened(stage).propose('{"kind":"read_file"}'),
    "settling": lambda stage: opened(stage).settle(),
    "submitting": lambda stage: submit_run(stage.parts(), stage.task, stage.run_id, {}),
    "another task": lambda stage: Keeper(stage.parts()).run(
        changed(stage.task, id="another"), stage.run_id
    ),
    "aborting": lambda stage: control.abort(
        stage.parts(), stage.run_id, actor="a", reason="because"
    ),
    "unparking": lambda stage: control.unpark(
        stage.parts(), stage.run_id, actor="a", reason="because"
    ),
}
REFUSED = {
    "another program": IdempotencyConflictError,
    "going on": TerminalError,
    "proposing": TerminalError,
    "settling": TerminalError,
    "submitting": IdempotencyConflictError,
    "another task": BindingError,
    "aborting": TerminalError,
    "unparking": TerminalError,
}


def _beyond(run: Session) -> object:
    run.remember("plan", lambda: None)
    run.do("write_file", path="app.py", content="sound")
    run.do("read_file", path="app.py")
    run.do("write_file", path="notes.md", content="new")
    run.verify()
    return run.do("read_file", path="app.py")


@pytest.mark.parametrize("act", ACTS)
def test_the_id_of_an_archived_run_stays_used(act: str) -> None:
    backend = Backend()
    after = archived(backend)
    before = finished(backend)
    answer = told(after, ACTS[act])
    assert answer[0] == REFUSED.get(act, "answers")
    if act != "opening":
        assert answer == told(before, ACTS[act])
    assert after.effects() == before.effects()
    assert len(rows_of(after.parts(), after.run_id)) == 1


def test_an_archive_answers_a_repeated_key_and_says_what_it_stood_for() -> None:
    said: list[object] = []

    def program(run: Session) -> None:
        said.append(run.do("write_file", key="mine", path="app.py", content="sound"))
        run.do("write_file", path="notes.md", content="new")
        run.cancel()

    stage = archived(program=program)
    effects = stage.effects()
    run = opened(stage)
    assert run.do("write_file", key="mine", path="app.py", content="sound") == said[0]
    with pytest.raises(IdempotencyConflictError, match='"content":"sound"'):
        opened(stage).do("write_file", key="mine", path="app.py", content="other")
    assert stage.effects() == effects


@pytest.mark.parametrize("retention_ms", [1, None], ids=["a moment", "for ever"])
def test_a_run_of_any_key_retention_is_answered_after_it_was_archived(
    retention_ms: int | None,
) -> None:
    with shop_stage(Backend(), level=Level.DEDUPLICATING) as stage:
        stage.work(stage.parts())
        parts = stage.parts()
        kinds = {
            name: replace(spec, key_retention_ms=retention_ms) for name, spec in parts.kinds.items()
        }
        stage.backend.clock.advance(DAY_MS)
        collected(replace(parts, kinds=kinds))
        effects = stage.effects()
        stage.work(replace(stage.parts(), kinds=kinds))
        assert stage.effects() == effects


# ---------------------------------------------------------------- what is not touched


def test_only_runs_that_ended_so_long_ago_are_archived() -> None:
    backend = Backend()
    old = finished(backend)
    backend.clock.advance(DAY_MS)
    young = finished(backend)
    for age_ms, due in ((DAY_MS + 1, []), (DAY_MS, [old]), (0, [young])):
        made = collected(old.parts(), age_ms=age_ms)
        assert [each.run_id for each in made] == [stage.run_id for stage in due]


def test_a_run_that_has_not_ended_is_not_touched() -> None:
    at, run = lost()
    at.scene.clock.move(365 * DAY_MS)
    assert collected(at.parts()) == []
    assert run.state.phase is Phase.NEEDS_REVIEW
    waiting, _ = desk().asks()
    assert waiting.request is not None
    assert len(rows_of(at.parts(), RunId(RUN_ID))) > 1


def test_a_run_that_waits_or_is_pending_is_not_touched() -> None:
    at = desk()
    at.asks()
    assert collected(at.parts()) == []
    backend = Backend()
    stage = sandbox_stage(backend, program=write_once).__enter__()
    stage.work(stage.parts())
    assert collected(stage.parts()) == []


def test_a_run_for_which_a_statement_waits_is_kept_and_named() -> None:
    at = desk(approval_kinds=())
    with at.run() as run:
        run.cancel()
    at.hand(b"a statement")
    before = rows_of(at.parts(), RunId(RUN_ID))
    (kept,) = collected(at.parts())
    assert (kept.outcome, "inbox" in kept.reason, kept.checkpoints) == ("kept", True, 0)
    assert rows_of(at.parts(), RunId(RUN_ID)) == before
    at.inbox.discard(RunId(RUN_ID), b"a statement")
    assert [each.outcome for each in collected(at.parts())] == ["archived"]


def test_a_dry_run_changes_nothing_and_weighs_what_would_go() -> None:
    stage = finished()
    rows = stage.parts().store.trace(stage.run_id, -1, 99)
    (due,) = collected(stage.parts(), is_dry=True)
    held = sum(len(row.envelope) + len(row.events) + len(row.state) for row in rows[:-1])
    assert (due.outcome, due.checkpoints, due.size_bytes) == ("due", len(rows) - 1, held)
    assert stage.parts().store.trace(stage.run_id, -1, 99) == rows
    assert stage.parts().store.archived(stage.run_id, SEAL) is None
    (made,) = collected(stage.parts())
    assert (made.checkpoints, made.size_bytes) == (due.checkpoints, held)
    assert 0 < made.archive_bytes < held


def test_one_call_does_so_much_and_the_next_goes_on() -> None:
    backend = Backend()
    stages = [finished(backend) for _ in range(5)]
    parts, after, seen_runs = stages[0].parts(), "", list[str]()
    for count in (2, 2, 1, 0):
        page = collected(parts, runs_max=2, after=after)
        assert len(page) == count
        seen_runs += [each.run_id for each in page]
        after = page[-1].run_id if page else after
    assert seen_runs == [stage.run_id for stage in stages]


def test_one_call_goes_through_so_many_heads_whatever_becomes_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = Backend()
    stages = [archived(backend) for _ in range(3)] + [finished(backend) for _ in range(2)]
    names = [stage.run_id for stage in stages]
    monkeypatch.setattr(collecting, "HEADS_MAX", 4)
    parts = stages[0].parts()
    first = collecting.collect(parts, age_ms=0)
    assert ([each.run_id for each in first.runs], first.after) == (names[3:4], names[3])
    rest = collecting.collect(parts, age_ms=0, after=first.after)
    assert ([each.run_id for each in rest.runs], rest.after) == (names[4:], "")


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("lost_part", ["seal", "index", "piece"])
def test_a_missing_part_of_an_archive_is_an_alarm(lost_part: str) -> None:
    stage = archived()
    names = {"seal": SEAL, "index": seal_of(stage).index, "piece": pieces(stage)[2].digest}
    parts = with_loss(stage, names[lost_part])
    with pytest.raises(RollbackError, match="the store lacks"):
        audit.audit(parts, stage.run_id)
    with pytest.raises(RollbackError):
        list(audit.events(parts, stage.run_id))
    control.show(parts, stage.run_id)


def test_a_missing_archive_is_an_alarm_in_the_next_call_if_rows_are_left() -> None:
    stage = finished()
    parts = stage.parts()
    (made,) = collected(parts)
    assert made.outcome == "archived"
    late = codec.Checkpoint(
        run_id=stage.run_id,
        generation=1,
        digest=Digest("ab" * 32),
        lease_version=9,
        envelope=b"late",
        state=b"",
        events=b"",
    )
    parts.store.put([late])
    (refused,) = collected(with_loss(stage, SEAL))
    assert (refused.outcome, "RollbackError" in refused.reason) == ("refused", True)
    assert parts.store.get(stage.run_id, late.digest) == late


def test_a_piece_that_was_changed_is_refused() -> None:
    stage = archived()
    name = pieces(stage)[1].digest
    content = stage.parts().store.archived(stage.run_id, name)
    assert content is not None
    for bad in (content[:-1], content + b"\0", b"", bytes([*content[:-1], content[-1] ^ 1])):
        stage.parts().store.archive(stage.run_id, name, bad)
        with pytest.raises(FormatError, match="is not the one its index names"):
            audit.audit(stage.parts(), stage.run_id)


def test_pieces_are_not_exchanged() -> None:
    stage = archived()
    first, second = pieces(stage)[1:3]
    parts = stage.parts()
    content = parts.store.archived(stage.run_id, second.digest)
    assert content is not None
    parts.store.archive(stage.run_id, first.digest, content)
    with pytest.raises(FormatError):
        audit.audit(parts, stage.run_id)


def test_a_piece_that_would_fill_the_memory_is_refused_before_it_does() -> None:
    filed = unpack(*pack([], 0), RunId("run"))
    assert filed == ()
    name, content = pack([], 0)
    for size_bytes in (1, 3, 10**12):
        with pytest.raises(FormatError):
            unpack(changed(name, size_bytes=size_bytes), content, RunId("run"))


def test_a_seal_of_a_stranger_is_none() -> None:
    stage = archived()
    stranger = keyring_of(bytes(range(1, 33))).signer(Purpose.CHECKPOINT)
    forged = seal_archive(seal_of(stage), stranger)
    stage.parts().store.archive(stage.run_id, SEAL, forged)
    with pytest.raises(RollbackError):
        audit.audit(stage.parts(), stage.run_id)


def test_a_seal_of_a_stranger_does_not_stand_in_the_way_of_a_genuine_one() -> None:
    stage = finished()
    before = seen(stage.parts(), stage.run_id)
    stage.parts().store.archive(stage.run_id, SEAL, b"not a seal")
    assert seen(stage.parts(), stage.run_id) == before
    assert [each.outcome for each in collected(stage.parts())] == ["archived"]
    assert seen(stage.parts(), stage.run_id) == before


def test_a_lease_seal_is_no_archive_seal() -> None:
    stage = archived()
    parts = stage.parts()
    forged = seal_archive(seal_of(stage), parts.lease_seals.signer)
    parts.store.archive(stage.run_id, SEAL, forged)
    with pytest.raises(RollbackError):
        audit.audit(parts, stage.run_id)


def test_an_archive_of_another_run_is_none() -> None:
    backend = Backend()
    one, two = archived(backend), archived(backend)
    envelope = one.parts().store.archived(one.run_id, SEAL)
    assert envelope is not None
    two.parts().store.archive(two.run_id, SEAL, envelope)
    with pytest.raises(RollbackError):
        audit.audit(two.parts(), two.run_id)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"generation": 5}, id="another generation"),
        pytest.param({"checkpoint": Digest("0" * 64)}, id="another checkpoint"),
        pytest.param({"chain_root": "0" * 64}, id="another root of digests"),
        pytest.param({"index": Digest("0" * 64)}, id="another index"),
        pytest.param({"format": 2}, id="another format"),
        pytest.param({"run": "run-9"}, id="another run"),
    ],
)
def test_a_seal_that_says_something_else_stands_for_nothing(fields: dict[str, Any]) -> None:
    stage = archived()
    reseal(stage, **fields)
    with pytest.raises(IntegrityError):
        audit.audit(stage.parts(), stage.run_id)


def test_rows_are_not_dropped_where_no_archive_stands_for_them() -> None:
    stage = finished()
    parts = stage.parts()
    before = rows_of(parts, stage.run_id)
    parts.store.archive(stage.run_id, SEAL, b"not a seal")
    with pytest.raises(RollbackError):
        drop_archived(parts, control.show(parts, stage.run_id))
    assert rows_of(parts, stage.run_id) == before


def test_a_store_that_keeps_no_pieces_loses_no_rows() -> None:
    stage = finished()
    parts = stage.parts()

    kept: list[str] = []

    class Forgetting(Passing):
        def archive(self, run_id: RunId, name: str, content: bytes) -> None:
            kept.append(name)
            if len(kept) != 3:
                self.inner.archive(run_id, name, content)

    before = rows_of(parts, stage.run_id)
    (refused,) = collected(replace(parts, store=Forgetting(parts.store)))
    assert (refused.outcome, "lacks a part" in refused.reason) == ("refused", True)
    assert rows_of(parts, stage.run_id) == before


def test_a_run_that_cannot_be_believed_hides_no_other() -> None:
    backend = Backend()
    bad, good = finished(backend), finished(backend)
    parts = bad.parts()
    rows = parts.store.trace(bad.run_id, -1, 99)
    parts.store.prune(bad.run_id, {1: Digest("0" * 64)}, 0)
    outcomes = {each.run_id: each.outcome for each in collected(parts)}
    assert outcomes == {bad.run_id: "refused", good.run_id: "archived"}
    assert len(rows_of(parts, bad.run_id)) == len(rows) - 1


# ---------------------------------------------------------------- what was restored


def test_an_older_store_that_was_restored_is_whole_and_archived_again() -> None:
    stage = finished()
    parts = stage.parts()
    rows = parts.store.trace(stage.run_id, -1, 99)
    before = seen(parts, stage.run_id)
    collected(parts)
    parts.store.put(rows)
    assert seen(with_loss(stage, SEAL), stage.run_id) == before
    assert [each.outcome for each in collected(parts)] == ["archived"]
    assert rows_of(parts, stage.run_id) == [rows[-1].generation]
    assert seen(parts, stage.run_id) == before


def test_a_late_checkpoint_of_an_archived_run_is_counted_and_dropped_again() -> None:
    stage = finished()
    parts = stage.parts()
    rows = parts.store.trace(stage.run_id, -1, 99)
    collected(parts)
    parts.store.put([rows[2]])
    assert audit.audit(parts, stage.run_id).leftovers == 0
    late = replaced(rows[2])
    parts.store.put([late])
    assert audit.audit(parts, stage.run_id).leftovers == 0, "nobody with a key made it"
    assert [each.checkpoints for each in collected(parts)] == [2]
    assert rows_of(parts, stage.run_id) == [rows[-1].generation]


def replaced(row: codec.Checkpoint) -> codec.Checkpoint:
    return changed(row, digest=Digest("cd" * 32), envelope=b"another")


def rewound(stage: PlayStage, generation: int | None) -> Parts:
    """Return the engine over a register that was turned back, or that lost the run."""
    parts = stage.parts()
    present = parts.heads.read(stage.run_id)
    assert present is not None

    class Rewound(MemoryHeads):
        def read(self, run_id: RunId) -> Head | None:
            head = super().read(run_id)
            if head is not None or generation is None:
                return head
            return changed(
                present, generation=generation, checkpoint=rows[generation], status="active"
            )

    rows = [each.checkpoint for each in filed_rows(stage)]
    return replace(
        parts,
        heads=Rewound(now_ms=stage.backend.clock.now_ms, incarnation=INCARNATION),
    )


def filed_rows(stage: PlayStage) -> list[Any]:
    parts = stage.parts()
    return [
        row
        for name in pieces(stage)
        for row in unpack(
            name, parts.store.archived(stage.run_id, name.digest) or b"", stage.run_id
        )
    ]


@pytest.mark.parametrize("back", [1, 2, 5])
def test_a_register_that_was_turned_back_beyond_an_archive_is_refused(back: int) -> None:
    stage = archived()
    parts = rewound(stage, len(filed_rows(stage)) - 1 - back)
    with pytest.raises(RollbackError):
        control.show(parts, stage.run_id)
    with pytest.raises(RollbackError):
        audit.audit(parts, stage.run_id)
    with pytest.raises((RollbackError, HeadMissingError, LeaseLostError)):
        Keeper(parts).run(stage.task, stage.run_id)


def test_a_register_that_lost_an_archived_run_makes_no_new_one() -> None:
    stage = archived()
    parts = rewound(stage, None)
    with pytest.raises(HeadMissingError):
        Keeper(parts).run(stage.task, stage.run_id)
    with pytest.raises(HeadMissingError):
        submit_run(parts, stage.task, stage.run_id, {})

"""Somebody who may write the store and the inbox makes no effect happen.

Who holds the registers and the checkpoint key as well can forge a checkpoint; what a
person did not sign is still not approved.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from shutil import copy2, copytree
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from counterfoil.adapters.sandbox import SandboxAdapter
from counterfoil.core.canonical import encode
from counterfoil.core.errors import BindingError, CounterfoilError, IntegrityError, SignatureError
from counterfoil.core.review import Resolution, Verdict
from counterfoil.core.run import Phase, Run
from counterfoil.core.words import RunId
from counterfoil.stores.memory import MemoryStore
from counterfoil.stores.sqlite import open_inbox
from tests.support.desks import Desk, desk
from tests.support.forging import forge_head, head_row
from tests.support.people import ADA, EVE, approve, decide, deny, signed
from tests.support.scenes import EFFECTS, RUN_ID, Killed, sqlite_scene, write
from tests.support.scenes import DiesBeforeTheCall as DiesFirst

THIEF = EVE.but(id="ada")
"""Signs in another's name with a key of his own."""


def _rows(at: Desk) -> Any:
    store = at.scene.store()
    assert isinstance(store, MemoryStore)
    return store._rows


def _edit(at: Desk, **fields: Any) -> None:
    """Change the pending intent in the newest row, where it lies."""
    row = head_row(at.scene)
    state = msgspec.json.decode(row.state)
    state["pending"] |= fields
    _rows(at)[RunId(RUN_ID)][row.digest] = replace(row, state=encode(state))


def _under_the_key_id_of_ada(statement: bytes) -> bytes:
    envelope = msgspec.json.decode(statement)
    envelope["signatures"][0]["keyid"] = ADA.key.id
    return encode(envelope)


def _from_another_run(at: Desk) -> None:
    other = at.run("run-2")
    other.propose(write(other))
    assert other.request is not None
    at.hand(approve(other.request))


def _rows_of_another_run(at: Desk) -> None:
    other = at.run("run-2")
    other.propose(write(other))
    mine, theirs = head_row(at.scene), head_row(at.scene, "run-2")
    _rows(at)[RunId(RUN_ID)][mine.digest] = replace(theirs, run_id=RunId(RUN_ID))


def _asked(at: Desk) -> Any:
    run = at.run()
    assert run.request is not None
    return run.request


def _an_old_row(at: Desk) -> None:
    rows = _rows(at)[RunId(RUN_ID)]
    oldest = min(rows.values(), key=lambda row: row.generation)
    rows[head_row(at.scene).digest] = oldest


def _old_challenge(at: Desk) -> None:
    """Approve, take back and ask again; then put the approval and the old rows back."""
    run = at.run()
    assert run.request is not None
    statement, rows = approve(run.request), dict(_rows(at)[RunId(RUN_ID)])
    run.withdraw()
    run.propose(write(run, EFFECTS))
    run.close()
    _rows(at)[RunId(RUN_ID)].update(rows)
    at.hand(statement)


STORE_ATTACKS: dict[str, Callable[[Desk], None]] = {
    "nobody is asked": lambda at: _edit(at, approvals_required=0, challenge="", sends=1),
    "it is said to be sent": lambda at: _edit(at, sends=1),
    "an approval is written into the row": lambda at: _edit(
        at, approvals=[approve(_asked(at)).decode()]
    ),
    "the row is an old one": _an_old_row,
    "the row is gone": lambda at: _rows(at)[RunId(RUN_ID)].clear(),
    "the row is another run's": _rows_of_another_run,
    "an approval of another run": _from_another_run,
    "an approval by nobody": lambda at: at.hand(approve(_asked(at), THIEF)),
    "under another's key id": lambda at: at.hand(
        _under_the_key_id_of_ada(approve(_asked(at), THIEF))
    ),
    "a challenge is opened again": _old_challenge,
    "a flood of garbage": lambda at: at.hand(*(b"%d" % n for n in range(200))),
}


@pytest.mark.parametrize(
    "attack",
    [pytest.param(attack, id=f"T4 T12 {name}") for name, attack in STORE_ATTACKS.items()],
)
def test_a_writer_of_the_store_makes_no_effect_happen(attack: Callable[[Desk], None]) -> None:
    at = desk()
    run, _ = at.asks()
    run.close()
    attack(at)
    for _ in range(3):
        with suppress(CounterfoilError):
            at.run().settle()
    assert at.scene.world.write_count == 0


def _bound(run: Run, *envelopes: bytes, **fields: Any) -> Run:
    assert run.pending is not None
    texts = tuple(envelope.decode() for envelope in envelopes)
    return replace(run, pending=replace(run.pending, **({"approvals": texts} | fields)))


def _request(at: Desk) -> Any:
    run, request = at.asks()
    run.close()
    return request


@pytest.mark.parametrize(
    ("forge", "error"),
    [
        pytest.param(
            lambda run, asked: _bound(run, approve(asked, THIEF)),
            SignatureError,
            id="T7 T13 a key of nobody",
        ),
        pytest.param(
            lambda run, asked: _bound(run, _under_the_key_id_of_ada(approve(asked, THIEF))),
            SignatureError,
            id="T7 under another's key id",
        ),
        pytest.param(lambda run, asked: _bound(run, deny(asked)), BindingError, id="T13 a denial"),
        pytest.param(
            lambda run, asked: _bound(run, approve(asked, key="key-9")),
            BindingError,
            id="T10 of another key",
        ),
        pytest.param(
            lambda run, asked: _bound(run, is_cleared=True, approvals=()),
            BindingError,
            id="T13 nobody confirmed that it did not happen",
        ),
        pytest.param(
            lambda run, asked: replace(
                run, resolution=Resolution(challenge="c", statement=approve(asked).decode())
            ),
            SignatureError,
            id="T13 an approval in place of a decision",
        ),
    ],
)
def test_who_holds_the_checkpoint_key_forges_no_approval(
    forge: Callable[[Run, Any], Run], error: type[Exception]
) -> None:
    at = desk()
    request = _request(at)
    forge_head(at.scene, change_run=lambda run: forge(run, request))
    with pytest.raises(error):
        at.run()
    assert at.scene.world.write_count == 0


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(
            {"approvals_required": 0, "challenge": "", "sends": 1, "policy_version": ""},
            id="T12 nobody is to be asked",
        ),
        pytest.param({"sends": 1}, id="T12 it was sent"),
    ],
)
def test_a_record_that_says_nobody_is_asked_is_held_against_the_policy(
    fields: dict[str, Any],
) -> None:
    at = desk()
    _request(at)
    forge_head(at.scene, change_run=lambda run: _bound(run, **fields))
    for _ in range(2):
        with suppress(CounterfoilError):
            at.run().settle()
    assert at.scene.world.write_count == 0


@pytest.mark.parametrize("phase", [pytest.param(Phase.NEEDS_REVIEW, id="T22 another run")])
def test_a_decision_does_not_serve_the_case_of_another_run(phase: Phase) -> None:
    at = desk(approval_kinds=())
    decisions: list[bytes] = []
    for name in ("run-1", "run-2"):
        run = at.run(name, wrap=DiesFirst)
        run.propose(write(run, key=f"key of {name}"))
        with pytest.raises(Killed):
            run.settle()
    at.scene.world.replace_instance("world-2")
    for name in ("run-1", "run-2"):
        run = at.run(name)
        with suppress(CounterfoilError):
            run.settle()
        case = run.state.case
        assert case is not None
        decisions.append(decide(case, Verdict.REPLAN, name, at.scene.task.id))
        run.close()
    at.hand(decisions[1], run_id="run-1")
    at.hand(decisions[0], run_id="run-2")
    assert [at.run(name).state.phase for name in ("run-1", "run-2")] == [phase, phase]


@pytest.mark.parametrize("error", [pytest.param(SignatureError, id="T13 by an approver")])
def test_an_approver_is_no_reviewer_in_the_record_either(error: type[Exception]) -> None:
    at = desk()
    request = _request(at)
    statement = signed({"signer": "ada", "key": request.key}, "application/x", ADA).decode()
    forge_head(
        at.scene,
        change_run=lambda run: replace(
            run, resolution=Resolution(challenge="c", statement=statement)
        ),
    )
    with pytest.raises(error):
        at.run()


@pytest.mark.parametrize("count", [pytest.param(1, id="T4 T12 files put back")])
def test_files_that_are_put_back_repeat_no_approved_effect(count: int, tmp_path: Path) -> None:
    at = desk()
    world, clock = at.scene.world, at.scene.clock
    at.scene = sqlite_scene(tmp_path, at.scene.task)
    at.scene.world, at.scene.clock = world, clock
    at.scene.adapter = lambda: SandboxAdapter(world)
    at.inbox = open_inbox(tmp_path / "project" / "inbox.db", create=True)
    run, request = at.asks()
    statement = approve(request)
    run.close()
    at.scene.close()
    kept = copytree(tmp_path / "project", tmp_path / "kept")
    at.hand(statement)
    run = at.run()
    run.settle()
    run.close()
    at.scene.close()
    for old in kept.glob("checkpoints.db*"):
        copy2(old, tmp_path / "project" / old.name)
    at.hand(statement)
    with pytest.raises(IntegrityError):
        at.run().settle()
    at.scene.close()
    at.inbox.close()
    assert world.write_count == count

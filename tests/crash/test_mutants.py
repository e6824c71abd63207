"""The protocol, broken on purpose: each way to break it is caught by a check.

A check that cannot fail shows nothing. So each one passes over the protocol as it is,
and fails over the protocol with one rule taken out.
"""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace as changed

from counterfoil.adapters.sandbox import SandboxAdapter
from counterfoil.core import codec, machine, reconcile
from counterfoil.core.canonical import decode, digest
from counterfoil.core.decide import Ask, Effect, Execute, next_effect
from counterfoil.core.envelope import Envelope
from counterfoil.core.inputs import Resent, Rules, Step
from counterfoil.core.receipt import ABSENT
from counterfoil.core.reconcile import Send
from counterfoil.core.run import Run
from counterfoil.core.words import Digest, Key
from counterfoil.engine import acting, recovery, settling
from counterfoil.engine.ledger import Ledger
from counterfoil.engine.proof import _bytes
from counterfoil.stores import rules
from counterfoil.testing.expect import ConformanceError
from tests.support import hazards
from tests.support.stages import FORMS, Form

Break = Callable[[pytest.MonkeyPatch], None]
Check = Callable[[Form], None]


def never_asks(patch: pytest.MonkeyPatch) -> None:
    def hasty(run: Run, *rest: Any) -> Effect:
        effect = next_effect(run, *rest)
        return Execute(pending=effect.pending) if isinstance(effect, Ask) else effect

    patch.setattr(settling, "next_effect", hasty)


def moves_the_head_before_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    def hasty(ledger: Ledger, row: codec.Checkpoint, status: str) -> Any:
        moved = ledger._advance(row.digest, status)
        ledger.parts.store.put((row,))
        return moved

    patch.setattr(Ledger, "_make_durable", hasty)


def acts_before_the_intent_is_durable(patch: pytest.MonkeyPatch) -> None:
    commit = Ledger.commit

    def late(ledger: Ledger, step: Step) -> None:
        is_intent = ledger.run.pending is None and step.run.pending is not None
        (ledger.stage if is_intent else lambda step: commit(ledger, step))(step)

    patch.setattr(Ledger, "commit", late)


def compares_no_digest(patch: pytest.MonkeyPatch) -> None:
    open_header = codec.open_header

    def agreeing(row: codec.Checkpoint, *rest: Any) -> codec.Header:
        held = {"state": digest(row.state), "events": digest(row.events)}
        return changed(open_header(row, *rest), **held)

    patch.setattr(codec, "open_header", agreeing)


def checks_no_signature(patch: pytest.MonkeyPatch) -> None:
    def trusting(raw: bytes, *_: object) -> bytes:
        return _bytes(decode(raw, Envelope, "envelope", bytes_max=len(raw)).payload)

    patch.setattr(codec, "unseal", trusting)


def compares_no_lease(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "holder_refusal", lambda *_: None)


def takes_unknown_for_absent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(acting, "unknown", lambda _: ABSENT)


def sends_again_under_the_same_token(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reconcile, "_send_again", lambda *_: Send())


def raises_no_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SandboxAdapter, "take", lambda *_: None)


def sends_again_under_a_new_key(patch: pytest.MonkeyPatch) -> None:
    resent = machine._REDUCERS[Resent]

    def renamed(run: Run, given: Resent, rules: Rules) -> Step:
        step = resent(run, given, rules)
        assert step.run.pending is not None
        pending = changed(step.run.pending, key=Key(f"{step.run.pending.key}x"))
        (event,) = step.events
        return Step(
            run=changed(step.run, pending=pending), events=(changed(event, key=pending.key),)
        )

    patch.setattr(machine, "_REDUCERS", {**machine._REDUCERS, Resent: renamed})


def compares_no_receipt(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reconcile, "differences", lambda *_: ())


def takes_silence_for_success(patch: pytest.MonkeyPatch) -> None:
    def trusting(ledger: Ledger, checkpoint: Digest, error: Exception) -> Any:
        head = ledger.head
        return changed(head, generation=head.generation + 1, checkpoint=checkpoint)

    patch.setattr(Ledger, "_learn", trusting)


def overlooks_what_lies_beyond_the_head(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "check_freshness", lambda *_: None)
    patch.setattr(recovery, "place", lambda *_: None)


CAUGHT: tuple[tuple[Break, Check], ...] = (
    (never_asks, hazards.queryable_crashes),
    (moves_the_head_before_the_checkpoint, hazards.transactional_crashes),
    (acts_before_the_intent_is_durable, hazards.queryable_crashes),
    (compares_no_digest, hazards.a_changed_state_is_refused),
    (checks_no_signature, hazards.a_stranger_s_checkpoint_is_refused),
    (compares_no_lease, hazards.a_superseded_lease_moves_no_head),
    (takes_unknown_for_absent, hazards.crashes_with_a_silent_look_up),
    (sends_again_under_the_same_token, hazards.crashes_with_a_call_that_lands_last),
    (raises_no_fence, hazards.crashes_with_a_call_that_lands_between_question_and_call),
    (sends_again_under_a_new_key, hazards.crashes_at_a_target_that_keeps_keys),
    (compares_no_receipt, hazards.another_s_receipt_opens_a_case),
    (takes_silence_for_success, hazards.silence_of_the_register_lets_no_call_leave),
    (overlooks_what_lies_beyond_the_head, hazards.a_register_set_back_is_refused),
)


OF_COMMITS = [form for form in FORMS if not form.marks]


def _words(function: Callable[..., object]) -> str:
    return function.__name__.replace("_", " ")


@pytest.mark.parametrize("form", OF_COMMITS, ids=lambda form: form.name)
@pytest.mark.parametrize(
    "check",
    [pytest.param(check, id=_words(check)) for check in dict.fromkeys(c for _, c in CAUGHT)],
)
def test_the_protocol_as_it_is_passes(check: Check, form: Form) -> None:
    check(form)


@pytest.mark.parametrize("form", OF_COMMITS, ids=lambda form: form.name)
@pytest.mark.parametrize(
    ("breaks", "check"),
    [pytest.param(breaks, check, id=f"it {_words(breaks)}") for breaks, check in CAUGHT],
)
def test_a_broken_protocol_is_caught(
    breaks: Break, check: Check, form: Form, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks(monkeypatch)
    with pytest.raises(ConformanceError):
        check(form)

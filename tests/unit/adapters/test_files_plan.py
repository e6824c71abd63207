"""Where a rename was cut off, the objects at its places say whether it happened."""

import pytest

from counterfoil.adapters.files.plan import (
    Finding,
    Form,
    Identity,
    Plan,
    Seen,
    decide,
    doomed,
    path_digests,
)
from counterfoil.core.words import IntentDigest, Key, RunId

OURS = "ours"
THEIRS = "theirs"
FOREIGN = "foreign"
BEFORE, AFTER, DISTURBED = Finding.BEFORE, Finding.AFTER, Finding.DISTURBED


def plan(form: Form) -> Plan:
    is_exchange = form in (Form.REPLACE, Form.MOVE_OVER)
    return Plan(
        kind="files.write",
        run_id=RunId("run-1"),
        key=Key("key-1"),
        digest=IntentDigest("i1:" + "0" * 64),
        served=None,
        statement="",
        realm=(".",),
        account="",
        sequence=1,
        planned_at_ms=1,
        form=form,
        left="left",
        right="right",
        folder="1",
        mover=Identity(serial=OURS, sha256="0" * 64),
        displaced=Identity(serial=THEIRS, sha256="1" * 64) if is_exchange else None,
    )


def row(
    form: Form,
    left: str | None,
    right: str | None,
    finding: Finding,
    name: str,
    *,
    spare: str | None = None,
    witness: str | None = None,
    same: bool = True,
) -> object:
    seen = Seen(left=left, right=right, spare=spare, witness=witness, is_same_folder=same)
    return pytest.param(form, seen, finding, id=f"[{form}] {name}")


@pytest.mark.parametrize(
    ("form", "seen", "finding"),
    [
        row(Form.CREATE, OURS, None, BEFORE, "not yet", witness=OURS),
        row(Form.CREATE, None, OURS, AFTER, "just now", witness=OURS),
        row(Form.CREATE, None, OURS, AFTER, "cleared already"),
        row(Form.CREATE, None, None, AFTER, "others deleted it", witness=OURS),
        row(Form.CREATE, None, FOREIGN, AFTER, "others replaced it", witness=OURS),
        row(Form.CREATE, OURS, FOREIGN, BEFORE, "others were first", witness=OURS),
        row(Form.CREATE, None, None, BEFORE, "the spare was lost in a power cut"),
        row(Form.CREATE, None, None, DISTURBED, "the folder is another", same=False),
        row(Form.REPLACE, OURS, THEIRS, BEFORE, "not yet"),
        row(Form.REPLACE, THEIRS, OURS, AFTER, "just now", spare=THEIRS),
        row(Form.REPLACE, FOREIGN, OURS, AFTER, "it took out what others wrote", spare=FOREIGN),
        row(Form.REPLACE, THEIRS, FOREIGN, AFTER, "others replaced it since", spare=THEIRS),
        row(Form.REPLACE, None, THEIRS, BEFORE, "the spare was lost in a power cut"),
        row(Form.REPLACE, FOREIGN, FOREIGN, DISTURBED, "others were there twice"),
        row(Form.REPLACE, None, None, DISTURBED, "everything is gone", same=False),
        row(Form.DELETE, OURS, None, BEFORE, "not yet"),
        row(Form.DELETE, None, OURS, AFTER, "just now", spare=OURS),
        row(Form.DELETE, FOREIGN, OURS, AFTER, "others made a new one", spare=OURS),
        row(Form.DELETE, None, FOREIGN, AFTER, "it took what others wrote", spare=FOREIGN),
        row(Form.DELETE, None, None, BEFORE, "others deleted it first"),
        row(Form.DELETE, None, None, DISTURBED, "the folder is gone", same=False),
        row(Form.MOVE, OURS, None, BEFORE, "not yet"),
        row(Form.MOVE, None, OURS, AFTER, "just now"),
        row(Form.MOVE, FOREIGN, OURS, AFTER, "others made a new source"),
        row(Form.MOVE, None, None, DISTURBED, "others deleted it, before or after"),
        row(Form.MOVE, None, FOREIGN, DISTURBED, "others replaced it, before or after"),
        row(Form.MOVE_OVER, OURS, THEIRS, BEFORE, "not yet"),
        row(Form.MOVE_OVER, THEIRS, OURS, AFTER, "just now"),
        row(Form.MOVE_OVER, None, OURS, AFTER, "set aside already", spare=THEIRS),
        row(Form.MOVE_OVER, None, FOREIGN, AFTER, "others replaced it", spare=THEIRS),
        row(Form.MOVE_OVER, None, THEIRS, BEFORE, "others deleted the source first"),
        row(Form.MOVE_OVER, None, None, DISTURBED, "everything is gone"),
    ],
)
def test_the_places_say_whether_it_happened(form: Form, seen: Seen, finding: Finding) -> None:
    assert decide(plan(form), seen) is finding


@pytest.mark.parametrize(
    ("form", "is_done", "serial"),
    [
        (Form.CREATE, True, OURS),
        (Form.CREATE, False, OURS),
        (Form.REPLACE, True, THEIRS),
        (Form.REPLACE, False, OURS),
        (Form.DELETE, True, OURS),
        (Form.DELETE, False, None),
        (Form.MOVE, True, None),
        (Form.MOVE, False, None),
        (Form.MOVE_OVER, True, THEIRS),
        (Form.MOVE_OVER, False, None),
    ],
)
def test_only_what_nobody_needs_any_more_is_removed(
    form: Form, is_done: bool, serial: str | None
) -> None:
    assert doomed(plan(form), is_done=is_done) == serial


@pytest.mark.parametrize(
    ("form", "left_behind"),
    [
        (Form.CREATE, {"right": "0" * 64}),
        (Form.REPLACE, {"right": "0" * 64}),
        (Form.DELETE, {"left": None}),
        (Form.MOVE, {"left": None, "right": "0" * 64}),
        (Form.MOVE_OVER, {"left": None, "right": "0" * 64}),
    ],
)
def test_a_change_leaves_what_its_form_says(form: Form, left_behind: dict[str, str | None]) -> None:
    assert path_digests(plan(form)) == left_behind

"""Identifiers, keys and free text are judged alike wherever they come in."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.core.bounds import IDENTIFIER_CHARS_MAX, KEY_CHARS_MAX, TEXT_CHARS_MAX
from counterfoil.core.errors import ContractError, CounterfoilError
from counterfoil.core.inputs import Proposed
from counterfoil.core.judge import check_form, check_kinds
from counterfoil.core.machine import apply
from counterfoil.core.task import Policy, Task, check_task
from counterfoil.core.trace import Outcome
from counterfoil.core.words import Risk, free_text, idempotency_key, identifier
from tests.support.runs import action, fresh, kind, rules

MEGABYTE = "x" * 2**20


def task_named(text: str) -> None:
    check_task(Task(id=text))


def version_named(text: str) -> None:
    check_task(Task(id="t", version=text))


def policy_named(text: str) -> None:
    check_task(Task(id="t", policy=Policy(version=text)))


def subject_named(text: str) -> None:
    check_task(Task(id="t", subject=text) if text else Task(id=""))


def permission_named(text: str) -> None:
    check_task(Task(id="t", policy=Policy(permissions=(text,))))


def adapter_named(text: str) -> None:
    check_task(Task(id="t", policy=Policy(scope={text: {}})))


def list_named(text: str) -> None:
    check_task(Task(id="t", policy=Policy(scope={"a": {text: ()}})))


def entry_named(text: str) -> None:
    check_task(Task(id="t", policy=Policy(scope={"a": {"hosts": (text,)}})))


def account_named(text: str) -> None:
    check_task(Task(id="t", accounts={"a": text}))


def account_holder_named(text: str) -> None:
    check_task(Task(id="t", accounts={text: "a"}))


def kind_named(text: str) -> None:
    check_kinds({text: kind(text)})


def field_named(text: str) -> None:
    identifier(text, "run id")


def key_named(text: str) -> None:
    idempotency_key(text)


def action_keyed(text: str) -> None:
    check_form(fresh(), action(key=text), Risk.REVERSIBLE_WRITE)


DOORS = [
    task_named,
    version_named,
    policy_named,
    subject_named,
    permission_named,
    adapter_named,
    list_named,
    entry_named,
    account_named,
    account_holder_named,
    kind_named,
    field_named,
    key_named,
    action_keyed,
]
BAD = {
    "half a character": "a\ud800",
    "a control character": "a\x07b",
    "a terminal escape": "\x1b[2J",
    "a NUL": "a\x00",
    "a new line": "a\nb",
    "a line separator": "a\u2028b",
    "text that runs backwards": "a\u202eb",
    "one megabyte": MEGABYTE,
    "one character over the bound": "x" * (IDENTIFIER_CHARS_MAX + 1),
    "nothing": "",
}


@pytest.mark.parametrize("text", [pytest.param(t, id=f"acc-A1 T16 {n}") for n, t in BAD.items()])
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_a_name_is_refused_at(door: Callable[[str], None], text: str) -> None:
    with pytest.raises(ContractError) as refused:
        door(text)
    assert (str(refused.value).isprintable(), len(str(refused.value)) < 2_200) == (True, True)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("x" * IDENTIFIER_CHARS_MAX, id="acc-A2 a name at the bound"),
        pytest.param("é" * IDENTIFIER_CHARS_MAX, id="acc-A2 a bound counts characters"),
        pytest.param("'; DROP TABLE runs; --", id="T26 what a database would read"),
        pytest.param("../../etc", id="T26 what a file system would read"),
        pytest.param("<b>&amp;", id="T16 what a browser would read"),
        pytest.param("日本 👍", id="any script"),
    ],
)
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_a_name_is_taken_as_it_is_at(door: Callable[[str], None], text: str) -> None:
    door(text)


@pytest.mark.parametrize(
    "bound", [pytest.param(KEY_CHARS_MAX, id="acc-A2 one bound at every door")]
)
def test_a_key_has_the_bound_of_a_name(bound: int) -> None:
    assert bound == IDENTIFIER_CHARS_MAX == 200


@pytest.mark.parametrize(
    "key", [pytest.param("k" * (KEY_CHARS_MAX + 1), id="acc-A2 one character over the bound")]
)
def test_a_long_key_is_refused_before_anything_is_pending(key: str) -> None:
    step = apply(fresh(), Proposed(action=action(key=key), action_id="a-1"), rules())
    assert (step.run.pending, step.events[-1].outcome) == (None, Outcome.CONTRACT_REJECTED)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(None, id="acc-A1 nothing"),
        pytest.param(1, id="acc-A1 a number"),
        pytest.param(b"a", id="acc-A1 bytes"),
        pytest.param(["a"], id="acc-A1 a list"),
    ],
)
def test_a_name_is_text(value: object) -> None:
    with pytest.raises(ContractError, match="must be text"):
        identifier(value, "run id")


@pytest.mark.parametrize(
    ("kind_of_action", "shown"),
    [
        pytest.param("a\ud800", "a\\ud800", id="acc-A1 half a character in a kind"),
        pytest.param("\x1b[2J", "\\x1b[2J", id="acc-A1 T16 a terminal escape in a kind"),
        pytest.param(MEGABYTE, "x" * 80, id="acc-A1 T16 one megabyte in a kind"),
    ],
)
def test_a_refused_kind_is_traced_escaped_and_cut(kind_of_action: str, shown: str) -> None:
    step = apply(fresh(), Proposed(action=action(kind=kind_of_action), action_id="a-1"), rules())
    assert (step.events[0].kind, step.events[0].outcome) == (shown, Outcome.CONTRACT_REJECTED)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"key": MEGABYTE}, id="T16 a key of one megabyte"),
        pytest.param({"key": "\x1b[2J"}, id="T16 a key with a terminal escape"),
        pytest.param({"risk": MEGABYTE}, id="T16 a risk of one megabyte"),
        pytest.param({"preconditions": {"version": MEGABYTE}}, id="T16 a fact of one megabyte"),
        pytest.param({"preconditions": {"instance": "\x1b[2J"}}, id="T16 a fact with an escape"),
        pytest.param({"arguments": {"item": MEGABYTE}}, id="T16 an argument of one megabyte"),
        pytest.param({"arguments": {"item": "\x1b\ud800"}}, id="T16 an argument with an escape"),
        pytest.param({"arguments": {MEGABYTE: 1}}, id="T16 a member name of one megabyte"),
    ],
)
def test_a_refusal_shows_nothing_that_a_terminal_obeys(fields: dict[str, object]) -> None:
    step = apply(fresh(), Proposed(action=action(**fields), action_id="a-1"), rules())
    written = msgspec.json.encode(step.events).decode()
    error = str(step.error)
    assert (error.isprintable(), len(error) < 4_000, len(written) < 4_000) == (True,) * 3


def test_free_text_may_have_lines() -> None:
    assert free_text("a\nb", "goal") == "a\nb"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("\x1b[2J", id="T16 a terminal escape"),
        pytest.param("\ud800", id="acc-A1 half a character"),
        pytest.param("x" * (TEXT_CHARS_MAX + 1), id="T16 over the bound"),
        pytest.param(7, id="a number"),
    ],
)
def test_free_text_is_refused(text: object) -> None:
    with pytest.raises(ContractError, match="goal"):
        free_text(text, "goal")


@given(st.text(st.characters(codec=None, categories=None)))
@pytest.mark.parametrize("door", [pytest.param(identifier, id="acc-A17 T9 identifier")])
def test_only_a_contract_error_leaves_the_door(
    door: Callable[[object, str], str], text: str
) -> None:
    try:
        assert door(text, "run id") == text
    except ContractError:
        return


@given(st.text(st.characters(codec=None, categories=None)))
def test_a_message_is_one_printable_line(text: str) -> None:
    error = CounterfoilError(text, run_id=text, key=text, move=text)
    assert str(error).isprintable()


@given(st.text(st.characters(codec=None, categories=None), max_size=1_200))
def test_a_message_that_passes_twice_stays_as_it_is(text: str) -> None:
    once = CounterfoilError(text)
    assert CounterfoilError(once.message).message == once.message


def test_a_message_of_one_megabyte_is_cut() -> None:
    assert len(CounterfoilError(MEGABYTE, key=MEGABYTE).args[0]) == 1_000

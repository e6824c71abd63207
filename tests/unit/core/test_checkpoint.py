"""A checkpoint opens as it was sealed, or is refused by the name of what is wrong."""

import base64
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from counterfoil.core.bounds import ARGUMENTS_BYTES_MAX, STATE_BYTES_MAX
from counterfoil.core.canonical import bounded, digest, encode, normalise
from counterfoil.core.codec import (
    Checkpoint,
    Header,
    Opened,
    encode_events,
    extended,
    open_checkpoint,
    open_events,
    open_header,
    rfc3339,
    seal_checkpoint,
    split_events,
)
from counterfoil.core.envelope import CHECKPOINT_TYPE, MacKey, key_ids, seal, unseal
from counterfoil.core.errors import (
    BindingError,
    ContractError,
    FormatError,
    IntegrityError,
    InvariantError,
    SignatureError,
)
from counterfoil.core.merkle import leaf_hash, tree_root
from counterfoil.core.run import Evidence, Phase, check_invariants
from counterfoil.core.trace import Event, Outcome
from counterfoil.core.words import Json
from tests.support.runs import (
    BEGAN_MS,
    BOX,
    EVENTS,
    SIGNER,
    TASK,
    VERIFIERS,
    case_of,
    checkpoint,
    fresh,
    header,
    pending,
    receipt_of,
)

ROW = checkpoint()


def opened(row: Checkpoint) -> Opened:
    """Open a row the way recovery does: bytes first, then the rules of a run."""
    found = open_checkpoint(row, VERIFIERS)
    check_invariants(found.run, TASK)
    return found


def named_anew(row: Checkpoint) -> Checkpoint:
    """Return a row whose digest is that of its envelope, as a store writer makes it."""
    return replace(row, digest=digest(row.envelope))


def signed_anew(row: Checkpoint, **members: Json) -> Checkpoint:
    """Return a row with a changed header, its hashes right, signed with the true key."""
    payload = msgspec.json.decode(unseal(row.envelope, CHECKPOINT_TYPE, VERIFIERS))
    payload |= {"state": digest(row.state), "events": digest(row.events)} | members
    return named_anew(replace(row, envelope=seal(CHECKPOINT_TYPE, encode(payload), SIGNER)))


def with_state(change: Callable[[Json], object]) -> Checkpoint:
    """Return a correctly signed row whose state was changed by hand."""
    state = msgspec.json.decode(ROW.state)
    change(state)
    return signed_anew(replace(ROW, state=encode(state)))


def test_a_checkpoint_opens_as_it_was_sealed() -> None:
    found = opened(ROW)
    assert (found.run, found.events) == (extended(fresh(), encode_events(EVENTS)), EVENTS)


@pytest.mark.parametrize("generation", [pytest.param(7, id="acc-070 with all that is open")])
def test_everything_open_comes_back(generation: int) -> None:
    item = pending(item="é\x00")
    run = fresh(
        pending=item, phase=Phase.NEEDS_REVIEW, case=case_of(item, receipt=receipt_of(item))
    )
    found = opened(checkpoint(run, generation=generation))
    assert found.run == extended(run, encode_events(EVENTS))


def test_the_digest_is_of_the_whole_envelope() -> None:
    assert ROW.digest == digest(ROW.envelope)


def test_the_root_in_the_header_is_that_of_the_events() -> None:
    leaves = [leaf_hash(event) for event in encode_events(EVENTS)]
    assert opened(ROW).header.trace_root == tree_root(leaves).hex()


def test_events_are_split_as_they_were_hashed() -> None:
    assert split_events(ROW.events) == encode_events(EVENTS)


@pytest.mark.parametrize("hidden", [pytest.param("key", id="acc-078 what a checkpoint shows")])
def test_a_checkpoint_holds_the_key_id_and_no_key(hidden: str) -> None:
    secret = bytes(range(32))
    forms = (secret, secret.hex().encode(), base64.b64encode(secret), b'"secret"')
    written = ROW.envelope + base64.b64decode(msgspec.json.decode(ROW.envelope)["payload"])
    written += ROW.state + ROW.events
    assert (key_ids(ROW.envelope), [form for form in forms if form in written]) == (
        (SIGNER.id,),
        [],
    )


# Bytes that were changed


@pytest.mark.parametrize(
    ("part", "is_named_anew"),
    [
        pytest.param("envelope", False, id="T1 acc-A17 a bit of the envelope"),
        pytest.param(
            "envelope", True, id="T1 acc-A17 a bit of the envelope, stored under its name"
        ),
        pytest.param("state", False, id="T1 a bit of the state"),
        pytest.param("events", False, id="T1 T3 a bit of the events"),
    ],
)
def test_a_flipped_bit_is_refused_by_name(part: str, is_named_anew: bool) -> None:
    survivors = []
    whole: bytes = getattr(ROW, part)
    for place in range(len(whole)):
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << bit
            row = replace(ROW, **{part: bytes(flipped)})
            try:
                opened(named_anew(row) if is_named_anew else row)
            except IntegrityError:
                continue
            survivors.append((place, bit))
    assert survivors == []


@pytest.mark.parametrize(
    "part",
    [
        pytest.param("envelope", id="T1 cut at every byte of the envelope"),
        pytest.param("state", id="T1 cut at every byte of the state"),
        pytest.param("events", id="T1 T3 cut at every byte of the events"),
    ],
)
def test_a_cut_part_is_refused_by_name(part: str) -> None:
    survivors = []
    whole: bytes = getattr(ROW, part)
    for length in range(len(whole)):
        row = named_anew(replace(ROW, **{part: whole[:length]}))
        try:
            opened(row)
        except IntegrityError:
            continue
        survivors.append(length)
    assert survivors == []


@pytest.mark.parametrize("at", [pytest.param(0, id="T1 every bit behind a true signature")])
def test_no_flipped_bit_of_a_signed_state_escapes_the_taxonomy(at: int) -> None:
    escaped = []
    for place in range(at, len(ROW.state)):
        for bit in range(8):
            flipped = bytearray(ROW.state)
            flipped[place] ^= 1 << bit
            try:
                opened(signed_anew(replace(ROW, state=bytes(flipped))))
            except IntegrityError:
                continue
            except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
                escaped.append((place, bit, error))
    assert escaped == []


OTHER_RUN = checkpoint(fresh(run_id="run-2"), run="run-2")
LATER = checkpoint(fresh(cursor=1, attempt=2), generation=1)


@pytest.mark.parametrize(
    ("row", "error"),
    [
        pytest.param(
            replace(ROW, state=OTHER_RUN.state), FormatError, id="T2 state of another run"
        ),
        pytest.param(replace(ROW, state=LATER.state), FormatError, id="T2 state of a later one"),
        pytest.param(replace(ROW, state=b""), FormatError, id="T2 state that was pruned"),
        pytest.param(replace(ROW, events=OTHER_RUN.events[:-1]), FormatError, id="T3 cut events"),
        pytest.param(replace(ROW, events=b"[]"), FormatError, id="T3 no events"),
        pytest.param(
            replace(ROW, events=b"[%b,%b]" % encode_events(EVENTS[::-1])),
            FormatError,
            id="T3 events in another order",
        ),
        pytest.param(
            replace(ROW, events=b"[%b,%b,%b]" % encode_events((*EVENTS, EVENTS[1]))),
            FormatError,
            id="T3 an event twice",
        ),
        pytest.param(
            replace(ROW, events=b"[%b]" % encode_events(EVENTS[:1])),
            FormatError,
            id="T3 an event removed",
        ),
        pytest.param(replace(ROW, digest=OTHER_RUN.digest), FormatError, id="T1 another digest"),
        pytest.param(
            replace(ROW, generation=1), FormatError, id="T2 another generation in the row"
        ),
        pytest.param(replace(ROW, lease_version=2), FormatError, id="T2 another lease in the row"),
        pytest.param(replace(ROW, run_id="run-2"), BindingError, id="T2 another run in the row"),
        pytest.param(
            replace(OTHER_RUN, run_id=ROW.run_id), BindingError, id="T2 header of another run"
        ),
    ],
)
def test_a_row_that_was_put_together_is_refused(
    row: Checkpoint, error: type[IntegrityError]
) -> None:
    with pytest.raises(error):
        opened(row)


def test_a_refusal_leaves_the_row_as_it_was() -> None:
    with pytest.raises(FormatError):
        opened(replace(ROW, state=b"{}"))
    assert opened(ROW).header.generation == 0


# Keys


@pytest.mark.parametrize(
    "verifiers",
    [
        pytest.param({}, id="acc-071 T7 no key"),
        pytest.param({"k1-b": MacKey(id="k1-b", secret=b"b" * 32)}, id="acc-071 T7 another key"),
        pytest.param(
            {SIGNER.id: MacKey(id=SIGNER.id, secret=b"b" * 32)}, id="acc-071 T7 a key of this name"
        ),
    ],
)
def test_a_checkpoint_opens_under_its_own_key_alone(verifiers: dict[str, MacKey]) -> None:
    with pytest.raises(SignatureError):
        open_checkpoint(ROW, verifiers)


@pytest.mark.parametrize("other", [pytest.param("run-2", id="acc-072 run id changed")])
def test_a_changed_run_id_does_not_pass_with_its_checksums_made_right(other: str) -> None:
    envelope = msgspec.json.decode(ROW.envelope)
    payload = base64.b64decode(envelope["payload"]).replace(b"run-1", other.encode())
    envelope["payload"] = base64.b64encode(payload).decode()
    row = named_anew(replace(ROW, run_id=other, envelope=encode(envelope)))
    with pytest.raises(SignatureError):
        opened(row)


# Changes behind a true signature


@pytest.mark.parametrize(
    ("row", "error"),
    [
        pytest.param(
            checkpoint(
                fresh(phase=Phase.COMPLETED, reason="verified_outcome"),
                (Event(at_ms=BEGAN_MS, outcome=Outcome.FINISHED, reason="verified_outcome"),),
            ),
            InvariantError,
            id="acc-075 forged completion without evidence",
        ),
        pytest.param(
            checkpoint(
                fresh(
                    phase=Phase.COMPLETED,
                    reason="verified_outcome",
                    evidence=Evidence(event=9, digest="i1:0", environments=(BOX,)),
                ),
                (Event(at_ms=BEGAN_MS, outcome=Outcome.FINISHED, reason="verified_outcome"),),
            ),
            InvariantError,
            id="acc-075 forged evidence that is not in the trace",
        ),
        pytest.param(
            checkpoint(
                fresh(
                    phase=Phase.COMPLETED,
                    reason="verified_outcome",
                    evidence=Evidence(
                        event=0, digest="i1:0", environments=(replace(BOX, version=2),)
                    ),
                )
            ),
            InvariantError,
            id="acc-075 forged evidence of an older version",
        ),
        pytest.param(
            with_state(lambda state: state.pop("writes")),
            FormatError,
            id="acc-076 a state field with a default removed",
        ),
        pytest.param(
            with_state(lambda state: state.pop("salt")), FormatError, id="acc-076 a field removed"
        ),
        pytest.param(
            with_state(lambda state: state["environments"][0].pop("version")),
            FormatError,
            id="acc-076 a field further in removed",
        ),
        pytest.param(
            with_state(lambda state: state.update(extra=1)), FormatError, id="T9 an unknown field"
        ),
        pytest.param(
            with_state(lambda state: state.update(writes=True)), FormatError, id="T9 a bool"
        ),
        pytest.param(
            with_state(lambda state: state.update(writes=1.0)), FormatError, id="T9 a float"
        ),
        pytest.param(
            with_state(lambda state: state.update(phase="winning")),
            FormatError,
            id="T9 an unknown phase",
        ),
        pytest.param(
            with_state(lambda state: state.update(run_id="run-2")),
            BindingError,
            id="acc-072 run id changed in the state and signed",
        ),
        pytest.param(
            with_state(lambda state: state.update(task_id="task-2")),
            BindingError,
            id="T2 task changed in the state and signed",
        ),
        pytest.param(
            with_state(lambda state: state.update(trace_size=3)),
            FormatError,
            id="T3 trace size changed in the state and signed",
        ),
        pytest.param(
            with_state(lambda state: state.update(frontier=[])),
            FormatError,
            id="T3 frontier dropped and signed",
        ),
        pytest.param(
            with_state(lambda state: state.update(frontier=["AAAA"])),
            FormatError,
            id="T3 a short hash, signed",
        ),
        pytest.param(
            with_state(lambda state: state["environments"][0].update(instance="box-2")),
            FormatError,
            id="T2 environment changed in the state and signed",
        ),
        pytest.param(
            with_state(lambda state: state.update(environments=[])),
            FormatError,
            id="T2 environments dropped and signed",
        ),
        pytest.param(
            with_state(lambda state: state.update(phase="failed")),
            InvariantError,
            id="T9 an end without a reason",
        ),
        pytest.param(
            signed_anew(ROW, trace_root="0" * 64), FormatError, id="T3 another root, signed"
        ),
        pytest.param(signed_anew(ROW, format=2), FormatError, id="T9 a format of tomorrow"),
        pytest.param(signed_anew(ROW, format=0), FormatError, id="T9 a format that never was"),
        pytest.param(signed_anew(ROW, alg="none"), FormatError, id="T8 an algorithm in the header"),
        pytest.param(signed_anew(ROW, generation="0"), FormatError, id="T9 a generation in text"),
        pytest.param(signed_anew(ROW, run="run-2"), BindingError, id="acc-072 run id, signed"),
        pytest.param(signed_anew(ROW, nonce="n" * 5_000), FormatError, id="T9 a header too long"),
        pytest.param(
            signed_anew(replace(ROW, events=b"[1]")), FormatError, id="T9 events that are none"
        ),
        pytest.param(
            signed_anew(replace(ROW, events=b"{}")), FormatError, id="T9 events that are no list"
        ),
        pytest.param(
            signed_anew(replace(ROW, state=ROW.state + b" ")), FormatError, id="T9 a trailing byte"
        ),
        pytest.param(
            signed_anew(replace(ROW, state=b"\xef\xbb\xbf" + ROW.state)),
            FormatError,
            id="T9 byte order mark in the state",
        ),
        pytest.param(
            signed_anew(replace(ROW, state=ROW.state[:-1] + b',"writes":0}')),
            FormatError,
            id="T9 a member named twice in the state",
        ),
        pytest.param(
            signed_anew(replace(ROW, state=b"[" * 100_000)), FormatError, id="T9 a deep state"
        ),
        pytest.param(
            signed_anew(replace(ROW, events=b"[" * 100_000)), FormatError, id="T9 deep events"
        ),
        pytest.param(
            signed_anew(replace(ROW, state=b"1" * (STATE_BYTES_MAX + 1))),
            FormatError,
            id="T9 a state one byte too long",
        ),
    ],
)
def test_a_change_behind_a_true_signature_is_refused(
    row: Checkpoint, error: type[IntegrityError]
) -> None:
    with pytest.raises(error):
        opened(row)


def with_arguments(arguments: str) -> Checkpoint:
    """Return a signed row whose pending arguments were written by hand."""
    row = checkpoint(fresh(pending=pending(item="PLACE")))
    return signed_anew(replace(row, state=row.state.replace(b'"PLACE"', arguments.encode("utf-8"))))


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param("2", id="T9 other arguments under the digest"),
        pytest.param("1152921504606846976", id="T9 an integer beyond 2^53"),
        pytest.param("1180591620717411303424", id="T9 an integer beyond 64 bits"),
        pytest.param("1e16", id="T9 a number as our encoder does not spell it"),
        pytest.param("[" * 400 + "]" * 400, id="T9 nesting beyond the bound"),
        pytest.param('"' + "x" * ARGUMENTS_BYTES_MAX + '"', id="T9 arguments over their bound"),
    ],
)
def test_arguments_that_no_intent_can_have_are_refused_by_name(arguments: str) -> None:
    with pytest.raises(IntegrityError):
        opened(with_arguments(arguments))


@pytest.mark.parametrize(
    "spelling",
    [
        pytest.param(b"-0", id="C10 T9 minus zero"),
        pytest.param(b"-0.0", id="C10 T9 minus zero as a float"),
        pytest.param(b"0.0", id="C10 T9 zero as a float"),
        pytest.param(b"0e0", id="C10 T9 zero with an exponent"),
    ],
)
def test_a_number_in_a_checkpoint_has_the_one_form_that_we_write(spelling: bytes) -> None:
    state = ROW.state.replace(b'"writes":0,', b'"writes":%b,' % spelling)
    with pytest.raises(FormatError, match=r"one form|got `float`"):
        opened(signed_anew(replace(ROW, state=state)))


def test_the_format_is_named_in_the_refusal() -> None:
    with pytest.raises(FormatError, match="checkpoint format 2 is unknown"):
        opened(signed_anew(ROW, format=2))


@given(
    st.sampled_from(Header.__struct_fields__),
    st.none() | st.integers() | st.text(st.characters(codec="utf-8"), max_size=9) | st.just([]),
)
@pytest.mark.parametrize("door", [pytest.param("open", id="acc-A17 T9 a header with odd members")])
def test_only_integrity_errors_leave_a_changed_header(door: str, member: str, value: Json) -> None:
    try:
        opened(signed_anew(ROW, **{member: value}))
    except IntegrityError:
        return


@given(
    st.sampled_from(sorted(msgspec.json.decode(ROW.state))),
    st.recursive(
        st.none() | st.integers() | st.booleans() | st.text(st.characters(codec="utf-8")),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.just("a"), inner),
        max_leaves=4,
    ),
)
@pytest.mark.parametrize("door", [pytest.param("open", id="acc-A17 T9 a state with odd members")])
def test_only_integrity_errors_leave_a_changed_state(door: str, member: str, value: Json) -> None:
    try:
        opened(with_state(lambda state: state.update({member: value})))
    except IntegrityError:
        return


@given(st.binary(max_size=60), st.binary(max_size=60), st.binary(max_size=60))
@pytest.mark.parametrize("door", [pytest.param("open", id="acc-A17 T9 any bytes in a row")])
def test_only_integrity_errors_leave_any_row(
    door: str, envelope: bytes, state: bytes, events: bytes
) -> None:
    row = named_anew(replace(ROW, envelope=envelope, state=state, events=events))
    with pytest.raises(IntegrityError):
        opened(row)


@given(st.binary(max_size=60))
@pytest.mark.parametrize("door", [pytest.param("split", id="acc-A17 T9 split_events")])
def test_only_a_format_error_leaves_split_events(door: str, events: bytes) -> None:
    try:
        split_events(events)
    except FormatError:
        return


@pytest.mark.parametrize("depth", [pytest.param(200_000, id="T9 events deeper than the stack")])
def test_deep_events_are_not_split(depth: int) -> None:
    with pytest.raises(FormatError):
        split_events(b"[" * depth + b"]" * depth)


def test_events_are_not_read_before_their_hash_holds() -> None:
    found = open_header(ROW, VERIFIERS)
    with pytest.raises(FormatError, match="not those the header names"):
        open_events(replace(ROW, events=b"["), found)


# What cannot be sealed


def test_a_pending_intent_at_its_bound_can_be_frozen_with_its_receipt() -> None:
    item = pending(item="x" * (ARGUMENTS_BYTES_MAX - 200))
    frozen = fresh(
        phase=Phase.NEEDS_REVIEW,
        pending=item,
        case=case_of(item, receipt=receipt_of(item, result="y" * 65_000)),
    )
    assert opened(checkpoint(frozen)).run.case == frozen.case


@pytest.mark.parametrize(
    ("events", "error"),
    [
        pytest.param((), FormatError, id="no event"),
        pytest.param(EVENTS[:1] * 5, FormatError, id="five events"),
        pytest.param(
            tuple(replace(EVENTS[1], result="x" * 300_000) for _ in range(4)),
            ContractError,
            id="events over their bound",
        ),
    ],
)
def test_a_commit_out_of_bounds_is_not_sealed(
    events: tuple[Event, ...], error: type[Exception]
) -> None:
    with pytest.raises(error):
        checkpoint(None, events)


def test_a_state_over_its_bound_is_not_sealed() -> None:
    with pytest.raises(ContractError, match=rf"state would have .* the bound is {STATE_BYTES_MAX}"):
        checkpoint(fresh(reason="x" * STATE_BYTES_MAX))


def test_a_header_over_its_bound_is_not_sealed() -> None:
    with pytest.raises(ContractError, match=r"header would have .* the bound is 4096"):
        checkpoint(nonce="n" * 4_096)


@pytest.mark.parametrize("text", [pytest.param("\ud800", id="acc-A1 half a character in a run")])
def test_what_cannot_be_written_is_refused_before_it_is_signed(text: str) -> None:
    with pytest.raises(ContractError, match="no JSON form"):
        seal_checkpoint(fresh(reason=text), encode_events(EVENTS), header(), (), SIGNER)


def test_times_are_written_in_utc_with_milliseconds() -> None:
    assert rfc3339(1_767_355_200_123) == "2026-01-02T12:00:00.123Z"


# What adapters say


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"id": 4711}, id="C14 an id that is a number"),
        pytest.param({"id": "\ud800"}, id="C14 an id with half a character"),
        pytest.param({"id": None}, id="C14 no id"),
        pytest.param({"committed_at_ms": 1.5}, id="C14 half a millisecond"),
        pytest.param({"committed_at_ms": "now"}, id="C14 a time in words"),
        pytest.param({"replayed": 1}, id="C14 a number for a bool"),
        pytest.param(
            {"poststate": replace(BOX, instance=7)}, id="C14 an instance that is a number"
        ),
        pytest.param({"result": object()}, id="C14 a result that is a thing"),
    ],
)
def test_a_receipt_that_could_not_be_read_again_is_not_sealed(fields: dict[str, Json]) -> None:
    receipt = receipt_of(pending(), **fields)
    with pytest.raises(ContractError):
        encode_events((Event(at_ms=BEGAN_MS, outcome=Outcome.EXECUTED, receipt=receipt),))


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(replace(BOX, instance=7), id="C14 an instance that is a number"),
        pytest.param(replace(BOX, version="7"), id="C14 a version in text"),
        pytest.param(replace(BOX, fingerprint=7), id="C14 a fingerprint that is a number"),
        pytest.param(replace(BOX, account=None), id="C14 no account"),
    ],
)
def test_an_environment_that_could_not_be_read_again_is_not_sealed(state: Json) -> None:
    with pytest.raises(ContractError, match="does not fit its field"):
        checkpoint(fresh(environments=(state,)))


arguments = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"))
    | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(arguments)
@pytest.mark.parametrize(
    "row", [pytest.param("open", id="C14 C10 any arguments that pass the door")]
)
def test_whatever_passes_the_door_can_be_sealed_and_opened(row: str, value: Json) -> None:
    try:
        item = normalise(value, "arguments")
    except ContractError:
        return
    run = fresh(pending=pending(item=item))
    assert opened(checkpoint(run)).run == extended(run, encode_events(EVENTS))


@given(arguments)
@pytest.mark.parametrize("row", [pytest.param("open", id="C14 any result that was made storable")])
def test_whatever_a_target_answers_can_be_sealed_and_opened(row: str, value: Json) -> None:
    event = replace(EVENTS[1], result=bounded(value))
    assert opened(checkpoint(None, (event,))).events == (event,)

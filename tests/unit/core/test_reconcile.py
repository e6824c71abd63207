"""What evidence about a pending intent means: a table, and what holds in all of it."""

from collections.abc import Iterator
from itertools import product

import pytest
from msgspec.structs import replace

from counterfoil.core.bounds import SENDS_MAX
from counterfoil.core.errors import FencedError, PermissionDeniedError, StaleObservationError
from counterfoil.core.intent import EnvironmentState, KindSpec
from counterfoil.core.receipt import (
    ABSENT,
    Answer,
    LookUp,
    Receipt,
    differences,
    found,
    identity,
    missing_fields,
    receipt_fingerprint,
    unknown,
)
from counterfoil.core.reconcile import (
    RETENTION_MARGIN_MS,
    Adopt,
    Footing,
    GiveUp,
    MakeImpossible,
    Review,
    Send,
    Verdict,
    Wait,
    movement,
    reconcile,
)
from counterfoil.core.review import CaseReason
from counterfoil.core.words import Json, Level
from tests.support.runs import BEGAN_MS, BOX, KEY, MOVED, RUN_ID, kind, pending, receipt_of

FLIGHT_MS = 5_000
LANDED = BEGAN_MS + FLIGHT_MS
PLAIN = {"fences": False, "forbids": False}
FENCES = {"fences": True, "forbids": False}
FORBIDS = {"fences": False, "forbids": True}
TX, DD, CD, QY, BL = Level

STILL = BOX
VERSION = replace(BOX, version=9, fingerprint="f9")
CONTENT = replace(BOX, fingerprint="f9")
INSTANCE = replace(BOX, instance="box-2")
GENERATION = replace(BOX, generation=2)
ACCOUNT = replace(BOX, account="a-2")
UNSEEN = replace(BOX, fingerprint="", version=9)

REFUSAL = PermissionDeniedError("the target says no")
NEITHER = Footing(fenced=False, forbidden=False, now_ms=BEGAN_MS)
FENCED = Footing(fenced=True, forbidden=False, now_ms=BEGAN_MS)
FORBIDDEN = Footing(fenced=False, forbidden=True, now_ms=BEGAN_MS)


def at(now_ms: int, footing: Footing = NEITHER) -> Footing:
    return Footing(fenced=footing.fenced, forbidden=footing.forbidden, now_ms=now_ms)


def refused(footing: Footing = NEITHER) -> Footing:
    return Footing(
        fenced=footing.fenced, forbidden=footing.forbidden, now_ms=footing.now_ms, refusal=REFUSAL
    )


def verdict_of(
    level: Level,
    declared: dict[str, Json],
    answer: LookUp,
    observed: EnvironmentState,
    footing: Footing,
    **fields: Json,
) -> Verdict:
    spec = kind(level=level, **declared)
    return reconcile(pending(spec, **fields), RUN_ID, answer, observed, spec=spec, footing=footing)


def row(name: str, *cells: object) -> object:
    return pytest.param(*cells, id=name)


STATED: dict[str, Json] = PLAIN | {"in_flight_ms": FLIGHT_MS}
KEPT: dict[str, Json] = PLAIN | {"key_retention_ms": 3_600_000}
EDGE = BEGAN_MS + 3_600_000 - RETENTION_MARGIN_MS


@pytest.mark.parametrize(
    ("level", "declared", "observed", "footing", "expected"),
    [
        # The world is as it was, and the adapter knows nothing of the key.
        row("transactional sends again", TX, FENCES, STILL, NEITHER, Send),
        row("transactional sends again, fenced", TX, FENCES, STILL, FENCED, Send),
        row("transactional inside its time", TX, KEPT, STILL, at(EDGE), Send),
        row("transactional after its time", TX, KEPT, STILL, at(EDGE + 1), Review),
        row("deduplicating sends again", DD, PLAIN, STILL, NEITHER, Send),
        row("deduplicating inside its time", DD, KEPT, STILL, at(EDGE), Send),
        row("deduplicating after its time", DD, KEPT, STILL, at(EDGE + 1), Review),
        row("conditional waits for a lease", CD, FENCES, STILL, NEITHER, Wait),
        row("conditional sends under a new lease", CD, FENCES, STILL, FENCED, Send),
        row("queryable in flight waits", QY, STATED, STILL, at(LANDED - 1), Wait),
        row("queryable after its flight sends", QY, STATED, STILL, at(LANDED), Send),
        row("queryable without a bound asks", QY, PLAIN, STILL, at(LANDED), Review),
        row("queryable is not helped by a fence", QY, PLAIN, STILL, FENCED, Review),
        row("blind asks a person", BL, PLAIN, STILL, NEITHER, Review),
        row("blind asks a person, fenced", BL, FENCES, STILL, FENCED, Review),
        row("an unobservable world counts as still", TX, FENCES, UNSEEN, NEITHER, Send),
        # The world moved before the call landed.
        row("transactional waits for a fence", TX, FENCES, VERSION, NEITHER, Wait),
        row("transactional gives up, fenced", TX, FENCES, VERSION, FENCED, GiveUp),
        row("transactional forbids the key", TX, FORBIDS, VERSION, NEITHER, MakeImpossible),
        row("transactional forbids though fenced", TX, FORBIDS, VERSION, FENCED, MakeImpossible),
        row("transactional gives up, forbidden", TX, FORBIDS, VERSION, FORBIDDEN, GiveUp),
        row("transactional, other content", TX, FENCES, CONTENT, FENCED, GiveUp),
        row("transactional, other content, no fence", TX, FENCES, CONTENT, NEITHER, Wait),
        row("deduplicating cannot give up", DD, PLAIN, VERSION, NEITHER, Review),
        row("deduplicating that fences gives up", DD, FENCES, VERSION, FENCED, GiveUp),
        row("deduplicating that fences, old lease", DD, FENCES, VERSION, NEITHER, Review),
        row("deduplicating forbids the key", DD, FORBIDS, VERSION, NEITHER, MakeImpossible),
        row("deduplicating gives up, forbidden", DD, FORBIDS, VERSION, FORBIDDEN, GiveUp),
        row("a lease is no fence where none is kept", DD, PLAIN, VERSION, FENCED, Review),
        row("conditional waits before it gives up", CD, FENCES, VERSION, NEITHER, Wait),
        row("conditional gives up, fenced", CD, FENCES, VERSION, FENCED, GiveUp),
        row("queryable in flight does not give up", QY, STATED, VERSION, at(LANDED - 1), Wait),
        row("queryable after its flight gives up", QY, STATED, VERSION, at(LANDED), GiveUp),
        row("queryable without a bound cannot", QY, PLAIN, VERSION, at(LANDED), Review),
        row("blind cannot give up", BL, PLAIN, VERSION, NEITHER, Review),
        # Another environment is never acted on.
        row("another instance", TX, FENCES, INSTANCE, FENCED, Review),
        row("another generation", TX, FENCES, GENERATION, FENCED, Review),
        row("another account", TX, FENCES, ACCOUNT, FENCED, Review),
        row("another account, key forbidden", TX, FORBIDS, ACCOUNT, FORBIDDEN, Review),
        # The adapter refused the latest of several calls outright.
        row("a refusal waits for a fence", TX, FENCES, STILL, refused(), Wait),
        row("a refusal is the end, fenced", TX, FENCES, STILL, refused(FENCED), GiveUp),
        row("a refusal forbids the key", TX, FORBIDS, STILL, refused(), MakeImpossible),
        row("a refusal of one call says nothing of others", DD, PLAIN, STILL, refused(), Review),
    ],
)
def test_an_absent_effect(
    level: Level,
    declared: dict[str, Json],
    observed: EnvironmentState,
    footing: Footing,
    expected: type[Verdict],
) -> None:
    assert type(verdict_of(level, declared, ABSENT, observed, footing)) is expected


OURS = pending()
RECEIPT = receipt_of(OURS)


def held(**fields: Json) -> LookUp:
    return found(receipt_of(OURS, **fields))


@pytest.mark.parametrize(
    ("answer", "observed", "expected"),
    [
        row("ours, the world as it left it", held(), MOVED, Adopt(receipt=RECEIPT)),
        row(
            "acc-A8 ours, the world moved on",
            held(),
            VERSION,
            Adopt(receipt=RECEIPT, observed=VERSION),
        ),
        row(
            "acc-A8 ours, other content under its version",
            held(),
            replace(MOVED, fingerprint="f9"),
            Adopt(receipt=RECEIPT, observed=replace(MOVED, fingerprint="f9")),
        ),
        row("ours, the world cannot be seen", held(), UNSEEN, Adopt(receipt=RECEIPT)),
        row(
            "found, and no receipt",
            LookUp(answer=Answer.FOUND),
            MOVED,
            Wait(reason="the look-up says found and shows no receipt"),
        ),
        row("T20 no answer", unknown("it timed out"), STILL, Wait(reason="it timed out")),
        row(
            "T20 no answer, no reason",
            unknown(""),
            STILL,
            Wait(reason="the look-up gave no answer"),
        ),
    ],
)
def test_an_answer(answer: LookUp, observed: EnvironmentState, expected: Verdict) -> None:
    assert verdict_of(TX, FENCES, answer, observed, NEITHER) == expected


UNASKED: dict[str, Json] = KEPT | {"can_be_asked": False}


@pytest.mark.parametrize(
    ("level", "observed", "footing", "expected"),
    [
        row("inside its time", DD, STILL, at(EDGE), Send()),
        row("after its time", DD, STILL, at(EDGE + 1), CaseReason.OUTCOME_UNKNOWN),
        row("the world cannot be seen", DD, UNSEEN, NEITHER, Send()),
        row("its version changed", DD, VERSION, NEITHER, CaseReason.OUTCOME_UNKNOWN),
        row("its content changed", DD, CONTENT, FENCED, CaseReason.OUTCOME_UNKNOWN),
        row("another instance", DD, INSTANCE, NEITHER, CaseReason.ENVIRONMENT_DRIFT),
        row("another account", DD, ACCOUNT, NEITHER, CaseReason.ENVIRONMENT_DRIFT),
        row("the last call was refused", DD, STILL, refused(), CaseReason.OUTCOME_UNKNOWN),
        row("refused, fenced", DD, STILL, refused(FENCED), CaseReason.OUTCOME_UNKNOWN),
        row("no keys", BL, STILL, NEITHER, CaseReason.OUTCOME_UNKNOWN),
    ],
)
def test_a_target_that_cannot_be_asked_is_asked_by_the_same_call(
    level: Level, observed: EnvironmentState, footing: Footing, expected: Verdict | CaseReason
) -> None:
    verdict = verdict_of(level, UNASKED, unknown("no look-up"), observed, footing)
    assert (verdict.reason if isinstance(verdict, Review) else verdict) == expected


def test_a_target_that_cannot_be_asked_is_not_called_for_ever() -> None:
    last = verdict_of(DD, UNASKED, unknown("?"), STILL, NEITHER, sends=SENDS_MAX - 1)
    beyond = verdict_of(DD, UNASKED, unknown("?"), STILL, NEITHER, sends=SENDS_MAX)
    assert (type(last), type(beyond)) == (Send, Review)


@pytest.mark.parametrize("level", [TX, DD, CD, QY, BL])
def test_what_nobody_will_ever_know_is_for_a_person(level: Level) -> None:
    for world, ground in product(WORLDS, GROUNDS):
        answer = unknown("its log is gone", is_final=True)
        verdict = verdict_of(level, {}, answer, world, ground)
        assert isinstance(verdict, Review)
        assert (verdict.reason, verdict.finding) == (CaseReason.OUTCOME_UNKNOWN, answer.reason)


@pytest.mark.parametrize(
    ("sends", "declared", "expected"),
    [
        row("of the one call", 1, UNASKED, Adopt),
        row("of one of two calls", 2, UNASKED, Review),
        row("of the second call, as the look-up said absent", 2, KEPT, Adopt),
    ],
)
def test_an_answer_is_under_the_approvals_of_its_call(
    sends: int, declared: dict[str, Json], expected: type[Verdict]
) -> None:
    fields: dict[str, Json] = {
        "sends": sends,
        "approvals_required": 1,
        "released": "statement",
        "released_until_ms": BEGAN_MS + 1_000,
    }
    spec = kind(level=DD, **declared)
    item = pending(spec, **fields)
    answer = found(receipt_of(item, committed_at_ms=0, statement=""))
    live = Footing(fenced=False, forbidden=False, now_ms=BEGAN_MS, live=True)
    verdict = reconcile(item, RUN_ID, answer, MOVED, spec=spec, footing=live)
    assert type(verdict) is expected


@pytest.mark.parametrize(
    ("answer", "observed", "reason"),
    [
        row("T17 another digest", held(digest="i1:0"), MOVED, CaseReason.INTENT_CONFLICT),
        row("T17 another adapter", held(adapter="axe"), MOVED, CaseReason.INTENT_CONFLICT),
        row("T17 another kind", held(kind="box.get"), MOVED, CaseReason.INTENT_CONFLICT),
        row("T17 T18 another run", held(run_id="run-2"), MOVED, CaseReason.INTENT_CONFLICT),
        row("T17 another key", held(key="key-2"), MOVED, CaseReason.INTENT_CONFLICT),
        row("T17 another level", held(level=BL), MOVED, CaseReason.INTENT_CONFLICT),
        row("T17 another instance", held(poststate=INSTANCE), MOVED, CaseReason.INTENT_CONFLICT),
        row(
            "T17 the state of another adapter",
            held(poststate=replace(MOVED, adapter="axe")),
            MOVED,
            CaseReason.INTENT_CONFLICT,
        ),
        row("acc-A23 said to be another", LookUp(answer=Answer.FOUND_OTHER, receipt=RECEIPT), MOVED,
            CaseReason.INTENT_CONFLICT),
        row("C08 another, and no receipt", LookUp(answer=Answer.FOUND_OTHER), MOVED,
            CaseReason.INTENT_CONFLICT),
        row("T17 no id", held(id=""), MOVED, CaseReason.INCOMPLETE_RECEIPT),
        row("T17 no run", held(run_id=""), MOVED, CaseReason.INCOMPLETE_RECEIPT),
        row("T17 no key", held(key=""), MOVED, CaseReason.INCOMPLETE_RECEIPT),
        row("T17 no digest", held(digest=""), MOVED, CaseReason.INCOMPLETE_RECEIPT),
        row("T17 no time", held(committed_at_ms=0), MOVED, CaseReason.INCOMPLETE_RECEIPT),
        row("T17 a negative time", held(committed_at_ms=-1), MOVED, CaseReason.INCOMPLETE_RECEIPT),
        row("ours, in another instance now", held(), INSTANCE, CaseReason.ENVIRONMENT_DRIFT),
        row("ours, in another generation now", held(), GENERATION, CaseReason.ENVIRONMENT_DRIFT),
        row("ours, under another account now", held(), ACCOUNT, CaseReason.ENVIRONMENT_DRIFT),
        row("ours, done under another account", held(poststate=ACCOUNT), ACCOUNT,
            CaseReason.ENVIRONMENT_DRIFT),
        row("ours, done in another generation", held(poststate=GENERATION), GENERATION,
            CaseReason.ENVIRONMENT_DRIFT),
    ],
)  # fmt: skip
def test_a_person_decides_about(
    answer: LookUp, observed: EnvironmentState, reason: CaseReason
) -> None:
    found_verdict = verdict_of(TX, FENCES, answer, observed, NEITHER)
    assert isinstance(found_verdict, Review)
    assert (found_verdict.reason, found_verdict.receipt) == (reason, answer.receipt)


@pytest.mark.parametrize("level", [DD, CD, QY, BL])
def test_a_target_that_keeps_no_digest_is_believed_below_transactional(level: Level) -> None:
    item = pending(kind(level=level))
    receipt = receipt_of(item, digest="", committed_at_ms=0)
    assert verdict_of(level, {}, found(receipt), MOVED, NEITHER) == Adopt(receipt=receipt)


@pytest.mark.parametrize("level", [TX, DD, CD, QY])
def test_a_key_without_a_trace_is_not_sent_for_ever(level: Level) -> None:
    footing = at(LANDED, FENCED)
    declared = {"in_flight_ms": FLIGHT_MS}
    last = verdict_of(level, declared, ABSENT, STILL, footing, sends=SENDS_MAX - 1)
    beyond = verdict_of(level, declared, ABSENT, STILL, footing, sends=SENDS_MAX)
    assert (type(last), type(beyond)) == (Send, Review)


def test_a_wait_says_until_when() -> None:
    waiting = verdict_of(QY, STATED, ABSENT, STILL, NEITHER, last_sent_at_ms=BEGAN_MS + 100)
    assert waiting == Wait(reason="an earlier call may still land", until_ms=LANDED + 100)


def test_what_is_given_up_for_drift_is_stale() -> None:
    given = verdict_of(TX, FENCES, ABSENT, VERSION, FENCED)
    assert isinstance(given, GiveUp)
    assert (type(given.error), given.error.key, given.observed) == (
        StaleObservationError,
        KEY,
        VERSION,
    )


def test_what_is_given_up_after_a_refusal_carries_it() -> None:
    given = verdict_of(TX, FENCES, ABSENT, STILL, refused(FENCED))
    assert isinstance(given, GiveUp)
    assert given.error is REFUSAL


# What holds everywhere

LEVELS = tuple(Level)
SPECS = [PLAIN, FENCES, FORBIDS, FENCES | FORBIDS]
FLIGHTS: list[dict[str, Json]] = [{}, {"in_flight_ms": 0}, {"in_flight_ms": FLIGHT_MS}]
WORLDS = [STILL, VERSION, CONTENT, INSTANCE, GENERATION, ACCOUNT, UNSEEN, MOVED]
GROUNDS = [
    Footing(fenced=fenced, forbidden=forbidden, now_ms=now_ms, refusal=refusal)
    for fenced, forbidden, now_ms, refusal in product(
        (False, True), (False, True), (BEGAN_MS, LANDED), (None, REFUSAL, FencedError("old"))
    )
]


def answers(spec: KindSpec) -> Iterator[LookUp]:
    receipt = receipt_of(pending(spec))
    yield from (ABSENT, unknown("?"), LookUp(answer=Answer.FOUND), found(receipt))
    yield LookUp(answer=Answer.FOUND_OTHER)
    yield LookUp(answer=Answer.FOUND_OTHER, receipt=receipt)
    yield found(replace(receipt, digest="i1:0"))
    yield found(replace(receipt, poststate=ACCOUNT))


CELLS = [
    (spec, answer, world, ground)
    for level, declared, flight in product(LEVELS, SPECS, FLIGHTS)
    for spec in [kind(level=level, **declared, **flight)]
    for answer in answers(spec)
    for world, ground in product(WORLDS, GROUNDS)
]
VERDICTS = [
    (
        spec,
        answer,
        world,
        ground,
        reconcile(pending(spec), RUN_ID, answer, world, spec=spec, footing=ground),
    )
    for spec, answer, world, ground in CELLS
]


def test_the_table_is_whole() -> None:
    assert len(VERDICTS) == 5 * 4 * 3 * 8 * 8 * 24


def test_unknown_is_never_absent() -> None:
    told = {type(v) for _, answer, _, _, v in VERDICTS if answer.answer is Answer.UNKNOWN}
    assert told == {Wait}


def test_only_an_absent_effect_in_a_still_world_is_sent_again() -> None:
    assert {
        (answer.answer, movement(BOX, world), ground.refusal)
        for _, answer, world, ground, verdict in VERDICTS
        if isinstance(verdict, Send)
    } == {(Answer.ABSENT, "", None)}


def test_a_blind_target_is_never_sent_again_nor_given_up() -> None:
    assert not any(
        isinstance(verdict, Send | MakeImpossible)
        or (isinstance(verdict, GiveUp) and not (ground.forbidden or ground.fenced))
        for spec, _, _, ground, verdict in VERDICTS
        if spec.level is BL and not spec.forbids
    )


def test_nothing_is_given_up_while_an_earlier_call_may_land() -> None:
    assert not [
        (spec, ground)
        for spec, _, _, ground, verdict in VERDICTS
        if isinstance(verdict, GiveUp)
        and not ground.forbidden
        and not (spec.fences and ground.fenced)
        and not (
            spec.level is QY
            and spec.in_flight_ms is not None
            and ground.now_ms >= BEGAN_MS + spec.in_flight_ms
        )
    ]


def test_only_our_own_receipt_of_this_world_is_adopted() -> None:
    assert not [
        verdict
        for spec, answer, world, _, verdict in VERDICTS
        if isinstance(verdict, Adopt)
        and (
            answer != found(receipt_of(pending(spec)))
            or movement(BOX, world) in ("instance", "account")
        )
    ]


def test_an_effect_of_another_is_never_passed_over() -> None:
    told = {type(v) for _, answer, _, _, v in VERDICTS if answer.answer is Answer.FOUND_OTHER}
    assert told == {Review}


def test_another_environment_is_only_looked_at() -> None:
    told = {
        type(verdict)
        for _, answer, world, _, verdict in VERDICTS
        if movement(BOX, world) in ("instance", "account")
    }
    assert told == {Review, Wait}


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        row("nothing", BOX, ""),
        row("version", VERSION, "version"),
        row("content at one version", CONTENT, "content"),
        row("instance", INSTANCE, "instance"),
        row("generation", GENERATION, "instance"),
        row("account", ACCOUNT, "account"),
        row("nothing that can be seen", UNSEEN, ""),
        row("instance before account", replace(INSTANCE, account="a-2"), "instance"),
        row("instance though unseen", replace(UNSEEN, instance="box-2"), "instance"),
    ],
)
def test_what_moved_is(observed: EnvironmentState, expected: str) -> None:
    assert movement(BOX, observed) == expected


# Receipts


def test_a_receipt_of_ours_differs_in_nothing() -> None:
    assert differences(OURS, RUN_ID, RECEIPT) == ()


def test_a_receipt_that_lacks_nothing_is_whole() -> None:
    assert missing_fields(RECEIPT) == ()


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        row("another result", replace(RECEIPT, result="x"), False),
        row("another id", replace(RECEIPT, id="x"), False),
        row("another poststate", replace(RECEIPT, poststate=BOX), False),
        row("a replay", replace(RECEIPT, replayed=True), True),
        row("itself", RECEIPT, True),
    ],
)
def test_a_fingerprint_is_of_the_whole_receipt(other: Receipt, expected: bool) -> None:
    assert (receipt_fingerprint(other) == receipt_fingerprint(RECEIPT)) is expected


def test_a_receipt_can_be_told_again_without_its_result() -> None:
    assert identity(replace(RECEIPT, result=None, poststate=BOX)) == identity(RECEIPT)

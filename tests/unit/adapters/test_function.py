"""A declared function is checked when it is declared, when it is called, and when it answers."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from counterfoil.adapters.function import UNKNOWN, Call, Effects, Found, FunctionAdapter, State
from counterfoil.adapters.function.effects import Bounds
from counterfoil.core.canonical import restored
from counterfoil.core.errors import ConfigError, ContractError, UnavailableError
from counterfoil.core.intent import EnvironmentState
from counterfoil.core.receipt import Answer, Fence, Served
from counterfoil.core.words import Digest, IntentDigest, Json, Key, Level, RunId
from counterfoil.ports import Operation

NOW_MS = 1_700_000_000_000
KEY = Key("key-1")
RUN = RunId("run-1")


def adapter_of(effects: Effects) -> FunctionAdapter:
    (adapter,) = effects.adapters(lambda: NOW_MS)
    return adapter


def operation(kind: str, **arguments: Json) -> Operation:
    return Operation(
        run_id=RUN,
        kind=kind,
        arguments=arguments,
        key=KEY,
        digest=IntentDigest("i1:" + "0" * 64),
        fence=Fence(lease_version=1, nonce="n"),
        served=Served(generation=1, checkpoint=Digest("0" * 64)),
        prestate=EnvironmentState(adapter="box", instance="function:box"),
        scope={},
        timeout_ms=1_000,
    )


def answering(answer: object) -> FunctionAdapter:
    effects = Effects()

    @effects.effect("box.put", level="queryable", look_up=lambda key: None)
    def put(call: Call) -> object:
        return answer

    return adapter_of(effects)


def looked_up(look_up: Callable[[str], object]) -> Answer:
    effects = Effects()

    @effects.effect("box.put", level="queryable", look_up=look_up)
    def put(call: Call) -> None: ...

    return adapter_of(effects).look_up(RUN, KEY, "box.put").answer


@pytest.mark.parametrize(
    ("result", "id_"),
    [
        (b"\x00\xff", "C14 bytes"),
        ("a\x00b", "C14 a NUL"),
        ("half \ud83d", "C14 half a character"),
        ("\\u0000", "C14 six characters that are not a NUL"),
        (2**70, "a huge integer"),
        ({1: "one"}, "a member name that is no text"),
        ({"$counterfoil": "bytes"}, "our own mark"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value else "",
)
def test_a_result_comes_back_as_it_was(result: object, id_: str) -> None:
    receipt = answering(result).execute(operation("box.put"))
    assert restored(receipt.result) == result


def test_a_huge_result_is_kept_by_digest_and_size() -> None:
    receipt = answering("x" * 1_000_000).execute(operation("box.put"))
    assert (receipt.result["size"], len(receipt.result["sha256"])) == (1_000_002, 64)


def test_the_function_gets_its_arguments_as_its_hints_say() -> None:
    effects, given = Effects(), []

    @effects.effect("box.put", level="blind")
    def put(call: Call, *, at: datetime, raw: bytes, names: list[str]) -> None:
        given.extend([at, raw, names, call.key])

    marked = {"$counterfoil": "bytes", "base64": "AP8="}
    adapter_of(effects).execute(
        operation("box.put", at="2026-01-02T03:04:05Z", raw=marked, names=["a"])
    )
    assert given == [datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), b"\x00\xff", ["a"], KEY]


@pytest.mark.parametrize(
    ("look_up", "answer"),
    [
        pytest.param(lambda key: None, Answer.ABSENT, id="none is absent"),
        pytest.param(lambda key: UNKNOWN, Answer.UNKNOWN, id="unknown is unknown"),
        pytest.param(lambda key: 1 / 0, Answer.UNKNOWN, id="T20 a failure is unknown"),
        pytest.param(lambda key: {"id": 1}, Answer.FOUND, id="a bare result is found"),
        pytest.param(lambda key: Found(id="7"), Answer.FOUND, id="a found is found"),
        pytest.param(
            lambda key: Found(run_id="other"),
            Answer.FOUND_OTHER,
            id="T18 another run's is not ours",
        ),
    ],
)
def test_a_look_up_has_four_answers(look_up: Callable[[str], object], answer: Answer) -> None:
    assert looked_up(look_up) is answer


def _no_hint(call: Call, *, name) -> None: ...  # noqa: ANN001 - the missing hint is the point


def _positional(call: Call, name: str) -> None: ...


def _no_call(*, name: str) -> None: ...


def _odd_hint(call: Call, *, name: Callable[[], None]) -> None: ...


def _plain(call: Call, *, token: str = "") -> None: ...


def _required(call: Call, *, token: str) -> None: ...


@pytest.mark.parametrize(
    ("function", "options"),
    [
        pytest.param(_no_hint, {}, id="a parameter without a hint"),
        pytest.param(_positional, {}, id="a positional parameter"),
        pytest.param(_no_call, {}, id="no call"),
        pytest.param(_odd_hint, {}, id="a hint that JSON cannot carry"),
        pytest.param(_plain, {"level": "queryable"}, id="a level that asks and no look-up"),
        pytest.param(_plain, {"level": "deduplicating"}, id="keys kept, for no stated time"),
        pytest.param(_plain, {"level": "certain"}, id="an unknown level"),
        pytest.param(_plain, {"risk": "harmless"}, id="an unknown risk"),
        pytest.param(_plain, {"volatile": ("colour",)}, id="a volatile name it does not take"),
        pytest.param(_required, {"volatile": ("token",)}, id="a volatile one without a default"),
        pytest.param(_plain, {"name": "put"}, id="a name without an environment"),
        pytest.param(_plain, {"bounds": Bounds(call_ms=0)}, id="a call that may take no time"),
        pytest.param(
            _plain, {"level": "transactional", "look_up": str}, id="transactional without a fence"
        ),
        pytest.param(
            _plain, {"level": "conditional", "look_up": str}, id="conditional without a fence"
        ),
    ],
)
def test_a_declaration_that_cannot_hold_is_refused(
    function: Callable[..., object], options: dict[str, object]
) -> None:
    name = options.pop("name", "box.put")
    with pytest.raises((ConfigError, ContractError)):
        Effects().effect(name, **options)(function)


def test_an_effect_is_not_declared_twice() -> None:
    effects = Effects()
    effects.effect("box.put")(_plain)
    with pytest.raises(ConfigError, match="twice"):
        effects.effect("box.put")(_plain)


def test_an_observer_names_the_environment() -> None:
    effects = Effects()
    effects.effect("box.put")(_plain)
    effects.observer("box")(lambda: State(instance="box-7", version=3, fingerprint="f"))
    seen = adapter_of(effects).observe({}).state
    assert (seen.instance, seen.version, seen.fingerprint) == ("box-7", 3, "f")


@pytest.mark.parametrize("observer", [lambda: 1 / 0, lambda: {"instance": "x"}])
def test_an_observer_that_fails_has_seen_nothing(observer: Callable[[], object]) -> None:
    effects = Effects()
    effects.effect("box.put")(_plain)
    effects.observer("box")(observer)
    with pytest.raises(UnavailableError):
        adapter_of(effects).observe({})


def test_effects_with_one_prefix_share_an_environment() -> None:
    effects = Effects()
    for name in ("box.put", "box.take", "van.drive"):
        effects.effect(name)(_plain)
    assert [adapter.name for adapter in effects.adapters(lambda: NOW_MS)] == ["box", "van"]


def test_a_level_is_stamped_on_each_receipt() -> None:
    assert answering(None).execute(operation("box.put")).level is Level.QUERYABLE


def test_an_effect_counts_on_fences_only_with_a_function_that_raises_them() -> None:
    effects, taken = Effects(), []
    effects.effect(
        "box.put", level="conditional", look_up=str, take=lambda *fence: taken.append(fence)
    )(_plain)
    fence = Fence(lease_version=2, nonce="n")
    adapter_of(effects).take(RUN, fence)
    assert (adapter_of(effects).kinds[0].fences, taken) == (True, [(RUN, fence)])

"""Where functions are declared as effects: `Effects.effect` and `Effects.observer`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict, TypeVar, Unpack

from counterfoil.adapters.function.adapter import Declared, FunctionAdapter
from counterfoil.adapters.function.shape import Shape, shape_of
from counterfoil.core.errors import ConfigError
from counterfoil.core.intent import KindSpec
from counterfoil.core.judge import check_kinds
from counterfoil.core.receipt import Fence
from counterfoil.core.words import Json, Level, Risk, identifier

_W = TypeVar("_W", Risk, Level)
_F = TypeVar("_F", bound=Callable[..., object])
Touches = Callable[[dict[str, Json]], tuple[tuple[str, str], ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """Time limits of an effect.

    Attributes:
        call_ms: Longest that one call may take.
        in_flight_ms: How long after a call it may still land; None when unknown.
        key_retention_ms: How long the target keeps keys; None when for ever.
    """

    call_ms: int = 10_000
    in_flight_ms: int | None = None
    key_retention_ms: int | None = None


class EffectOptions(TypedDict, total=False):
    """What may be declared of an effect beside its name.

    Attributes:
        level: What can be proved about a call whose answer was lost; "blind" by default.
        risk: Risk class; "read_only" and "verification" take no key, and
            "irreversible_write" is the default.
        look_up: From key to effect: None when absent, `UNKNOWN` when it cannot be said,
            a `Found` or the bare result otherwise. Needed above "blind", except at
            "deduplicating": without it the same call is made again, with the same key.
        forbid: From key to the same answers; makes the key impossible unless it is done.
        take: From run id and fence; has the target refuse every older `call.fence` of
            the run from here on. Only with it may an effect count on fences.
        permission: Capability that a policy must grant; the name by default.
        touches: From arguments to (scope list, value) pairs.
        volatile: Arguments in no digest and no record; each must have a default.
        bounds: Time limits.
        linearizable: Whether `look_up` sees every effect that has landed.
        cost_micros: Declared cost of one execution.
    """

    level: Level | str
    risk: Risk | str
    look_up: Callable[[str], object] | None
    forbid: Callable[[str], object] | None
    take: Callable[[str, Fence], object] | None
    permission: str
    touches: Touches
    volatile: tuple[str, ...]
    bounds: Bounds | None
    linearizable: bool
    cost_micros: int


class Effects:
    """A set of declared functions. Those that share a prefix share an environment."""

    def __init__(self) -> None:
        self._declared: dict[str, Declared] = {}
        self._observers: dict[str, Callable[[], object]] = {}

    def effect(self, name: str, **options: Unpack[EffectOptions]) -> Callable[[_F], _F]:
        """Declare a function `(call, *, name: type, ...)` as a kind of action.

        Args:
            name: "environment.verb"; the part before the dot names the adapter.
            **options: As `EffectOptions` says.

        Raises:
            ConfigError: The declaration promises what it cannot hold.
        """

        def declare(function: _F) -> _F:
            if name in self._declared:
                raise ConfigError(f"effect {name} is declared twice")
            shape = shape_of(name, function)
            _check(name, shape, options)
            self._declared[name] = Declared(
                spec=_spec(name, shape, options),
                function=function,
                shape=shape,
                look_up=options.get("look_up"),
                forbid=options.get("forbid"),
                take=options.get("take"),
            )
            return function

        return declare

    def observer(self, name: str) -> Callable[[_F], _F]:
        """Declare a function that returns the `State` of an environment."""

        def declare(function: _F) -> _F:
            self._observers[name] = function
            return function

        return declare

    def adapters(self, now_ms: Callable[[], int]) -> tuple[FunctionAdapter, ...]:
        """Return one adapter per prefix."""
        names = sorted({declared.spec.adapter for declared in self._declared.values()})
        return tuple(
            FunctionAdapter(
                name=name,
                declared={
                    kind: declared
                    for kind, declared in self._declared.items()
                    if declared.spec.adapter == name
                },
                observer=self._observers.get(name),
                now_ms=now_ms,
            )
            for name in names
        )


def _prefix(name: str) -> str:
    prefix, dot, verb = name.partition(".")
    if not prefix or not dot or not verb:
        raise ConfigError(f"effect {name!r:.80} must be named environment.verb")
    return prefix


def _word(words: type[_W], word: str, name: str) -> _W:
    try:
        return words(word)
    except ValueError as error:
        known = ", ".join(words)
        raise ConfigError(f"effect {name}: {word!r:.40} is none of {known}") from error


def _check(name: str, shape: Shape, options: EffectOptions) -> None:
    """Refuse options that do not fit each other or the function."""
    for argument in options.get("volatile", ()):  # it may be missing after a crash
        if argument not in shape.optional:
            raise ConfigError(f"effect {name}: volatile {argument!r:.40} needs a default")
    bounds = options.get("bounds") or Bounds()
    if bounds.call_ms < 1 or (bounds.in_flight_ms or 0) < 0 or (bounds.key_retention_ms or 1) < 1:
        raise ConfigError(f"effect {name}: a bound is below its least, 1 ms")


def _spec(name: str, shape: Shape, options: EffectOptions) -> KindSpec:
    limits = options.get("bounds") or Bounds()
    level = _word(Level, options.get("level", Level.BLIND), name)
    has_look_up = options.get("look_up") is not None
    spec = KindSpec(
        name=identifier(name, "effect"),
        adapter=_prefix(name),
        risk=_word(Risk, options.get("risk", Risk.IRREVERSIBLE_WRITE), name),
        level=level,
        permission=options.get("permission", name),
        normalise=shape.check,
        touches=options.get("touches", _nothing),
        volatile=options.get("volatile", ()),
        call_ms=limits.call_ms,
        in_flight_ms=limits.in_flight_ms,
        key_retention_ms=limits.key_retention_ms,
        can_be_asked=has_look_up or level is not Level.DEDUPLICATING,
        linearizable=options.get("linearizable", True),
        fences=options.get("take") is not None,
        forbids=options.get("forbid") is not None,
        cost_micros=options.get("cost_micros", 0),
    )
    check_kinds({name: spec})
    needs_look_up = level not in (Level.BLIND, Level.DEDUPLICATING)
    if spec.risk.writes and needs_look_up and not has_look_up:
        raise ConfigError(f"effect {name} is {spec.level} and has no look_up")
    return spec


def _nothing(arguments: dict[str, Json]) -> tuple[tuple[str, str], ...]:
    return ()

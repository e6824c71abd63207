"""Where functions are declared as effects: `Effects.effect` and `Effects.observer`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from counterfoil.adapters.function.adapter import Declared, FunctionAdapter
from counterfoil.adapters.function.shape import Shape, shape_of
from counterfoil.core.errors import ConfigError
from counterfoil.core.intent import KindSpec
from counterfoil.core.judge import check_kinds
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


class Effects:
    """A set of declared functions. Those that share a prefix share an environment."""

    def __init__(self) -> None:
        self._declared: dict[str, Declared] = {}
        self._observers: dict[str, Callable[[], object]] = {}

    def effect(
        self,
        name: str,
        *,
        level: Level | str = Level.BLIND,
        risk: Risk | str = Risk.IRREVERSIBLE_WRITE,
        look_up: Callable[[str], object] | None = None,
        forbid: Callable[[str], object] | None = None,
        permission: str | None = None,
        touches: Touches | None = None,
        volatile: tuple[str, ...] = (),
        bounds: Bounds | None = None,
        linearizable: bool = True,
        fences: bool = False,
        cost_micros: int = 0,
    ) -> Callable[[_F], _F]:
        """Declare a function `(call, *, name: type, ...)` as a kind of action.

        Args:
            name: "environment.verb"; the part before the dot names the adapter.
            level: What can be proved about a call whose answer was lost.
            risk: Risk class; "read_only" and "verification" take no key.
            look_up: From key to effect: None when absent, `UNKNOWN` when it cannot be
                said, a `Found` or the bare result otherwise. Needed above "blind".
            forbid: Makes a key impossible; answers as `look_up` does.
            permission: Capability that a policy must grant; the name by default.
            touches: From arguments to (scope list, value) pairs.
            volatile: Arguments in no digest and no record; each must have a default.
            bounds: Time limits.
            linearizable: Whether `look_up` sees every effect that has landed.
            fences: Whether the function refuses a call with an older `call.fence`.
            cost_micros: Declared cost of one execution.

        Raises:
            ConfigError: The declaration promises what it cannot hold.
        """

        def declare(function: _F) -> _F:
            limits = bounds or Bounds()
            shape = shape_of(name, function)
            _check_volatile(name, shape, volatile)
            spec = KindSpec(
                name=identifier(name, "effect"),
                adapter=_prefix(name),
                risk=_word(Risk, risk, name),
                level=_word(Level, level, name),
                permission=permission or name,
                normalise=shape.check,
                touches=touches or _nothing,
                volatile=volatile,
                call_ms=limits.call_ms,
                in_flight_ms=limits.in_flight_ms,
                key_retention_ms=limits.key_retention_ms,
                linearizable=linearizable,
                fences=fences,
                forbids=forbid is not None,
                cost_micros=cost_micros,
            )
            _check_bounds(name, limits)
            check_kinds({name: spec})
            asks = spec.risk.writes and spec.level is not Level.BLIND
            if asks and look_up is None:
                raise ConfigError(f"effect {name} is {spec.level} and has no look_up")
            if name in self._declared:
                raise ConfigError(f"effect {name} is declared twice")
            self._declared[name] = Declared(
                spec=spec, function=function, shape=shape, look_up=look_up, forbid=forbid
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


def _check_volatile(name: str, shape: Shape, volatile: tuple[str, ...]) -> None:
    """A volatile argument may be missing after a crash, so it needs a default."""
    for argument in volatile:
        if argument not in shape.optional:
            raise ConfigError(f"effect {name}: volatile {argument!r:.40} needs a default")


def _check_bounds(name: str, bounds: Bounds) -> None:
    if bounds.call_ms < 1 or (bounds.in_flight_ms or 0) < 0 or (bounds.key_retention_ms or 1) < 1:
        raise ConfigError(f"effect {name}: a bound is below its least, 1 ms")


def _nothing(arguments: dict[str, Json]) -> tuple[tuple[str, str], ...]:
    return ()

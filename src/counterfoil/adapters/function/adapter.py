"""The adapter over declared functions.

A function is trusted to say what happened and nothing else: whatever it raises that is
not one of our refusals means that the outcome is unknown.
"""

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, cast

from counterfoil.adapters.function.call import Call, Found, State, Unknown
from counterfoil.adapters.function.shape import Shape
from counterfoil.core.canonical import bounded
from counterfoil.core.errors import ContractError, UnavailableError
from counterfoil.core.intent import EnvironmentState, KindSpec
from counterfoil.core.receipt import (
    ABSENT,
    Answer,
    Fence,
    LookUp,
    Receipt,
    Served,
    found,
    unknown,
)
from counterfoil.core.words import IntentDigest, Key, RunId
from counterfoil.ports import Observation, Operation, running_loop


@dataclass(frozen=True, kw_only=True, slots=True)
class Declared:
    """One declared function."""

    spec: KindSpec
    function: Callable[..., object]
    shape: Shape
    look_up: Callable[[str], object] | None
    forbid: Callable[[str], object] | None
    take: Callable[[str, Fence], object] | None


class FunctionAdapter:
    """Functions that share an environment, as one adapter."""

    def __init__(
        self,
        *,
        name: str,
        declared: Mapping[str, Declared],
        observer: Callable[[], object] | None,
        now_ms: Callable[[], int],
    ) -> None:
        self._name = name
        self._declared = declared
        self._observer = observer
        self._now_ms = now_ms

    @property
    def name(self) -> str:
        """Name in intents, scopes and settings."""
        return self._name

    @property
    def kinds(self) -> tuple[KindSpec, ...]:
        """What was declared."""
        return tuple(declared.spec for declared in self._declared.values())

    def take(self, run_id: RunId, fence: Fence) -> Served | None:
        """Tell each declared `take` of the fence; return what one says was served last.

        Raises:
            FencedError: From the function: a newer fence stands.
            Exception: Whatever else it raised; the fence may not stand.
        """
        newest: Served | None = None
        taking = {id(d.take): d.take for d in self._declared.values() if d.take is not None}
        for take in taking.values():
            served = _awaited(take(run_id, fence))
            if isinstance(served, Served) and (
                newest is None or served.generation > newest.generation
            ):
                newest = served
        return newest

    def observe(self, scope: Mapping[str, tuple[str, ...]]) -> Observation:
        """Return what the observer says; without one, an unobservable environment.

        Raises:
            UnavailableError: The observer failed.
        """
        if self._observer is None:
            state = EnvironmentState(adapter=self._name, instance=f"function:{self._name}")
            return Observation(state=state)
        try:
            seen = _awaited(self._observer())
        except Exception as error:  # user code: any failure means that nothing was seen
            raise UnavailableError(f"observer of {self._name}: {type(error).__name__}") from error
        if not isinstance(seen, State):
            raise UnavailableError(f"observer of {self._name} returned no State")
        state = EnvironmentState(
            adapter=self._name,
            instance=seen.instance,
            generation=seen.generation,
            version=seen.version,
            fingerprint=seen.fingerprint,
            account=seen.account,
        )
        return Observation(state=state, facts=dict(seen.facts))

    def look_up(self, run_id: RunId, key: Key, kind: str) -> LookUp:
        """Ask the declared look-up; its failure is `unknown`."""
        declared = self._declared[kind]
        if declared.look_up is None:
            return unknown("no look-up is declared")
        return self._ask(declared, declared.look_up, run_id, key)

    def forbid(self, run_id: RunId, key: Key, kind: str, fence: Fence) -> LookUp:
        """Ask the declared function to make the key impossible."""
        declared = self._declared[kind]
        if declared.forbid is None:
            return unknown("no forbid is declared")
        return self._ask(declared, declared.forbid, run_id, key)

    def execute(self, operation: Operation) -> Receipt:
        """Call the function.

        Raises:
            ContractError: The arguments do not fit; it was not called.
            Exception: Whatever the function raised.
        """
        declared = self._declared.get(operation.kind)
        if declared is None:
            raise ContractError(f"{operation.kind} is not declared")
        arguments = declared.shape.build(operation.arguments)
        call = Call(
            run_id=operation.run_id,
            kind=operation.kind,
            key=operation.key,
            digest=operation.digest,
            fence=operation.fence,
            served=operation.served,
            prestate=operation.prestate,
            timeout_ms=operation.timeout_ms,
            statement=operation.statement,
        )
        answer = _awaited(declared.function(call, **arguments), operation.timeout_ms)
        answered = answer if isinstance(answer, Found) else Found(result=answer)
        return self._receipt(declared.spec, answered, operation.run_id, operation.key, operation)

    def close(self) -> None:
        """Hold nothing, so let go of nothing."""

    def _ask(
        self, declared: Declared, ask: Callable[[str], object], run_id: RunId, key: Key
    ) -> LookUp:
        try:
            answer = _awaited(ask(key), declared.spec.call_ms)
        except Exception as error:  # user code: any failure to answer is unknown
            return unknown(f"the look-up ended with {type(error).__name__}")
        if answer is None:
            return ABSENT
        if isinstance(answer, Unknown):
            return unknown("the look-up cannot say")
        answered = answer if isinstance(answer, Found) else Found(result=answer)
        receipt = self._receipt(declared.spec, answered, run_id, key, None)
        if answered.run_id and answered.run_id != run_id:
            return LookUp(answer=Answer.FOUND_OTHER, receipt=receipt)
        return found(receipt)

    def _receipt(
        self,
        spec: KindSpec,
        answered: Found,
        run_id: RunId,
        key: Key,
        operation: Operation | None,
    ) -> Receipt:
        return Receipt(
            id=answered.id or key,
            adapter=self._name,
            kind=spec.name,
            run_id=RunId(answered.run_id) if answered.run_id else run_id,
            key=key,
            digest=IntentDigest(answered.digest),
            level=spec.level,
            poststate=self._poststate(operation),
            committed_at_ms=answered.committed_at_ms or (self._now_ms() if operation else 0),
            served=operation.served if operation else None,
            statement=operation.statement if operation else "",
            result=bounded(answered.result) if spec.risk.writes else answered.result,
            replayed=answered.replayed,
        )

    def _poststate(self, operation: Operation | None) -> EnvironmentState:
        """Return the state after the effect; unobservable when the observer fails now."""
        try:
            return self.observe({}).state
        except UnavailableError:
            instance = operation.prestate.instance if operation else f"function:{self._name}"
            return EnvironmentState(adapter=self._name, instance=instance)


def _awaited(value: object, timeout_ms: int | None = None) -> object:
    """Return what a coroutine comes to, on the session's loop or on one of its own."""
    if not inspect.iscoroutine(value):
        return value
    coroutine = cast("Coroutine[Any, Any, object]", value)  # iscoroutine says no more
    seconds = None if timeout_ms is None else timeout_ms / 1000
    limited = asyncio.wait_for(coroutine, seconds)
    loop = running_loop.get()
    if loop is None:
        return asyncio.run(limited)
    return asyncio.run_coroutine_threadsafe(limited, loop).result()

"""The task of a drill, written as any user writes one: effects of a target, and a program.

Nothing here knows that it is going to be killed.
"""

from collections.abc import Callable

import msgspec

import counterfoil as cf
from counterfoil.core.receipt import Fence, Served
from counterfoil.core.words import Digest
from counterfoil.drill import calls
from counterfoil.drill.calls import KINDS, Answer, Asked, Conflicts, Done, Effect, Fenced, Nothing

TASK = cf.Task(
    id="drill",
    goal="Have each effect once.",
    policy=cf.Policy(permissions=(*KINDS, "target.check")),
    verifier=cf.Verification(kind="target.check"),
)


def business_ids(run_id: str, steps: int) -> tuple[str, ...]:
    """Return what the effects of a run are about, in order."""
    return tuple(f"{run_id}/{number}" for number in range(steps))


def fulfil(run: cf.Session, steps: int) -> None:
    """Have each effect of the run once, through any crash."""
    kinds = tuple(KINDS)
    for number, what in enumerate(business_ids(run.run_id, steps)):
        run.do(kinds[number % len(kinds)], what=what)
    run.verify()
    run.finish()


def declare_target(port: int, *, call_ms: int, steps: int) -> cf.Effects:
    """Declare what the target can do.

    Args:
        port: Where it listens.
        call_ms: Longest call.
        steps: Effects of a run.
    """
    target = cf.Effects()

    def asked(question: Asked) -> Answer:
        return calls.ask(port, question, timeout_ms=call_ms)

    def take(run_id: str, fence: Fence) -> Served | None:
        return _taken(asked(calls.Take(fence=_fence(run_id, fence))), run_id)

    for name, kind in KINDS.items():
        _declare(target, name, asked, take=take if kind.fences else None, call_ms=call_ms)

    @target.effect("target.check", risk="verification", bounds=cf.Bounds(call_ms=call_ms))
    def _check(call: cf.Call) -> dict[str, bool]:
        what = business_ids(call.run_id, steps)
        answer = asked(calls.Check(run_id=call.run_id, what=what))
        return {"passed": isinstance(answer, calls.Checked) and answer.passed}

    return target


def _declare(
    target: cf.Effects,
    name: str,
    asked: Callable[[Asked], Answer],
    *,
    take: Callable[[str, Fence], Served | None] | None,
    call_ms: int,
) -> None:
    def look_up(key: str) -> object:
        match asked(calls.Find(key=key)):
            case Effect() as effect:
                return _found(effect.number, effect.digest, effect.at_ms, effect.run_id)
            case Nothing():
                return None
            case _:
                return cf.UNKNOWN

    level = KINDS[name].level

    @target.effect(name, level=level, look_up=look_up, take=take, bounds=cf.Bounds(call_ms=call_ms))
    def _do(call: cf.Call, *, what: str) -> cf.Found:
        served = call.served
        answer = asked(
            calls.Do(
                kind=name,
                what=what,
                run_id=call.run_id,
                key=call.key,
                digest=call.digest,
                fence=_fence(call.run_id, call.fence),
                generation=served.generation if served else -1,
                checkpoint=served.checkpoint if served else "",
            )
        )
        match answer:
            case Done():
                effect = _found(answer.number, answer.digest, answer.at_ms, call.run_id)
                return msgspec.structs.replace(effect, replayed=answer.replayed)
            case Fenced():
                raise cf.FencedError("the target has seen a newer lease", call.run_id, call.key)
            case Conflicts():
                raise cf.IdempotencyConflictError(
                    "the target holds another effect under the key", call.run_id, call.key
                )
            case _:
                raise cf.UnknownOutcomeError(
                    "the target answered something else", call.run_id, call.key
                )


def _taken(answer: Answer, run_id: str) -> Served | None:
    match answer:
        case calls.Taken():
            if answer.generation < 0:
                return None
            return Served(generation=answer.generation, checkpoint=Digest(answer.checkpoint))
        case Fenced():
            raise cf.FencedError("the target has seen a newer lease", run_id)
        case _:
            raise cf.UnavailableError("the target answered something else", run_id)


def _fence(run_id: str, fence: Fence) -> calls.Fence:
    return calls.Fence(run_id=run_id, lease_version=fence.lease_version, nonce=fence.nonce)


def _found(number: int, digest: str, at_ms: int, run_id: str) -> cf.Found:
    return cf.Found(
        id=f"effect-{number}",
        result={"number": number},
        digest=digest,
        run_id=run_id,
        committed_at_ms=at_ms,
    )

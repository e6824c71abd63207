"""Awaited verbs mean what the others mean."""

import asyncio
import threading

import pytest

from counterfoil.adapters.function import Call, Effects
from counterfoil.compose import wire
from counterfoil.core.errors import IdempotencyConflictError
from counterfoil.core.run import Phase
from counterfoil.core.task import Policy, Task, Verification
from counterfoil.keeper import Keeper
from counterfoil.keys import keyring_of
from counterfoil.settings import Settings
from counterfoil.stores.memory import MemoryHeads, MemoryStore
from tests.support.scenes import SECRET, StillClock

TASK = Task(
    id="post",
    policy=Policy(permissions=("chat.post", "chat.check")),
    verifier=Verification(kind="chat.check"),
)


class Chat:
    def __init__(self) -> None:
        self.posts: dict[str, str] = {}
        self.threads: set[int] = set()
        self.started = asyncio.Event()
        self.may_end = asyncio.Event()
        self.may_end.set()
        clock = StillClock()
        effects = Effects()

        @effects.effect("chat.post", level="deduplicating", look_up=self.posts.get)
        async def post(call: Call, *, text: str) -> str:
            self.threads.add(threading.get_ident())
            self.started.set()
            await self.may_end.wait()
            return self.posts.setdefault(call.key, text)

        @effects.effect("chat.check", risk="verification")
        def check(call: Call) -> dict[str, bool]:
            return {"passed": bool(self.posts)}

        self.keeper = Keeper(
            wire(
                Settings(),
                keyring_of(SECRET),
                MemoryStore(),
                MemoryHeads(now_ms=clock.now_ms, incarnation="r"),
                effects.adapters(clock.now_ms),
                clock=clock,
                owner="worker",
            )
        )


def test_a_program_is_awaited_and_replayed() -> None:
    async def main() -> tuple[Phase, int]:
        chat = Chat()
        for _ in range(2):
            async with chat.keeper.run_async(TASK, "r") as run:
                text = await run.remember("text", lambda: "hello")
                assert await run.do("chat.post", text=text) == "hello"
                await run.verify()
                ended = await run.finish()
        return ended.phase, len(chat.posts)

    assert asyncio.run(main()) == (Phase.COMPLETED, 1)


def test_a_coroutine_effect_runs_on_the_loop_that_awaits() -> None:
    async def main() -> set[int]:
        chat = Chat()
        async with chat.keeper.run_async(TASK, "r") as run:
            await run.do("chat.post", text="hello")
        return chat.threads

    assert asyncio.run(main()) == {threading.get_ident()}


def test_a_value_may_be_computed_by_a_coroutine() -> None:
    async def main() -> object:
        async def compute() -> int:
            await asyncio.sleep(0)
            return 7

        async with Chat().keeper.run_async(TASK, "r") as run:
            return await run.remember("n", compute)

    assert asyncio.run(main()) == 7


def test_a_cancelled_verb_ends_before_the_cancellation_goes_on() -> None:
    async def main() -> tuple[int, int]:
        chat = Chat()
        chat.may_end.clear()

        async def work() -> None:
            async with chat.keeper.run_async(TASK, "r") as run:
                await run.do("chat.post", text="hello")

        working = asyncio.create_task(work())
        await chat.started.wait()
        working.cancel()
        await asyncio.sleep(0)
        chat.may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await working
        async with chat.keeper.run_async(TASK, "r") as run:
            return len(chat.posts), run.state.cursor

    assert asyncio.run(main()) == (1, 1)


def test_a_refusal_is_raised_where_it_is_awaited() -> None:
    async def main() -> None:
        chat = Chat()
        async with chat.keeper.run_async(TASK, "r") as run:
            await run.do("chat.post", text="hello")
        async with chat.keeper.run_async(TASK, "r") as run:
            await run.do("chat.post", text="goodbye")

    with pytest.raises(IdempotencyConflictError):
        asyncio.run(main())


def test_runs_of_one_keeper_go_on_side_by_side() -> None:
    async def main() -> int:
        chat = Chat()

        async def work(name: str) -> None:
            async with chat.keeper.run_async(TASK, name) as run:
                await run.do("chat.post", text=name)

        await asyncio.gather(*(work(f"run-{n}") for n in range(16)))
        return len(chat.posts)

    assert asyncio.run(main()) == 16

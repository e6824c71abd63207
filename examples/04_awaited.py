"""The same verbs, awaited; an effect may be a coroutine."""

import asyncio

import counterfoil as cf

sent: dict[str, str] = {}


@cf.effect("chat.post", level="deduplicating", look_up=sent.get)
async def post(call: cf.Call, *, text: str) -> str:
    await asyncio.sleep(0)
    return sent.setdefault(call.key, text)


task = cf.Task(id="announce", policy=cf.Policy(permissions=("chat.post",)))


async def main() -> None:
    keeper = cf.open()
    async with keeper.run_async(task, run_id="announce-1") as run:
        print(await run.do("chat.post", text="It works."))
        print(await run.do("chat.post", text="It still works."))
    async with keeper.run_async(task, run_id="announce-1") as run:
        print(await run.do("chat.post", text="It works."), "(from the record)")
    keeper.close()


asyncio.run(main())
print(len(sent), "messages posted")

# output:
# It works.
# It still works.
# It works. (from the record)
# 2 messages posted

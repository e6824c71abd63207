"""A shop as a service of Restate: `uvicorn` serves it, Restate's ingress is what is called.

`SHOP_FOLDER` names the folder where each order is a line of `orders`; while a file
`hold` lies there, an order waits before it is placed.
"""

import asyncio
import os
from pathlib import Path
from typing import Any

import restate

FOLDER = Path(os.environ["SHOP_FOLDER"])
LOOKS_MAX = 3_000

shop = restate.Service("shop")


@shop.handler()
async def order(ctx: restate.Context, wanted: dict[str, Any]) -> dict[str, Any]:
    async def place() -> int:
        for _ in range(LOOKS_MAX):
            if not (FOLDER / "hold").exists():
                break
            await asyncio.sleep(0.01)
        with (FOLDER / "orders").open("a") as file:
            file.write(f"{wanted['sku']}\n")
        return len((FOLDER / "orders").read_text().splitlines())

    number = await ctx.run_typed("place", place)
    return {**wanted, "id": f"order-{number}"}


app = restate.app([shop])

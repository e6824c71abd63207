"""An MCP server dies behind its effect; its successor is asked by key, and not called again."""

import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

from mcp.server import MCPServer
from mcp.types import ToolAnnotations

import counterfoil as cf
from counterfoil.adapters.mcp import Ask, Fields, Server, Stdio, Tool, open_mcp

TICKETS = Path("tickets")  # what the server keeps, one file per key


def serve() -> None:
    """Be the server, over stdio, written with the SDK; dies behind the first ticket."""
    server = MCPServer("tickets")

    @server.tool(annotations=ToolAnnotations(destructive_hint=True))
    def create_ticket(title: str, key: str) -> dict[str, Any]:
        """Create a ticket, once per key."""
        with Path("calls.log").open("a") as log:
            log.write(f"{title}\n")
        is_first = not any(TICKETS.iterdir())
        ticket = {"id": f"T-{len(list(TICKETS.iterdir())) + 1}", "key": key, "title": title}
        (TICKETS / key).write_text(json.dumps(ticket))
        if is_first:
            os._exit(1)  # done, and nobody hears of it
        return {"ticket": ticket}

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def find_ticket(key: str) -> dict[str, Any]:
        """Find the ticket of a key."""
        kept = TICKETS / key
        return {"ticket": json.loads(kept.read_text()) if kept.exists() else None}

    server.run("stdio")


def work() -> None:
    desk = Server(
        name="desk",
        reach=Stdio(command=(sys.executable, __file__, "serve")),
        tools=(
            Tool(
                name="desk.ticket",
                tool="create_ticket",
                risk=cf.Risk.REVERSIBLE_WRITE,
                level=cf.Level.DEDUPLICATING,
                marks={"key": "key"},
                look_up=Ask(tool="find_ticket", marks={"key": "key"}, receipt="/ticket"),
                answer="/ticket",
                fields=Fields(id="/id", key="/key"),
            ),
        ),
    )
    task = cf.Task(
        id="report",
        policy=cf.Policy(
            permissions=("desk.ticket",), scope={"desk": {"tools": ("create_ticket",)}}
        ),
    )
    adapter = open_mcp(desk, now_ms=lambda: time.time_ns() // 1_000_000)
    for kind in adapter.kinds:
        print(kind.name, "is", kind.risk, "since the server says that it destroys")
    with cf.open(adapters=(adapter,)) as keeper, keeper.run(task, run_id="report-1") as run:
        for title in ("the lamp is broken", "the door sticks"):
            done = run.do("desk.ticket", title=title)
            print(done["id"], done["title"])
    print("calls of the tool:", len(Path("calls.log").read_text().splitlines()))
    print("kept by the server:", len(list(TICKETS.iterdir())), "tickets")


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    else:
        logging.disable(logging.WARNING)  # the engine says that a call had no answer
        TICKETS.mkdir()
        work()

# output:
# desk.ticket is irreversible_write since the server says that it destroys
# T-1 the lamp is broken
# T-2 the door sticks
# calls of the tool: 2
# kept by the server: 2 tickets

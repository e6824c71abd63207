"""LangGraph: a graph of one node that goes round, each round durable before the next."""

import sqlite3
from typing import Any, TypedDict

from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool
from talk import Effect, Threaded, serve

CONNECTIONS_MAX = 16


class Steps(TypedDict):
    """State of a run: how far it is, and the last result."""

    run: str
    steps: int
    number: int
    result: dict[str, Any]


class Payment(TypedDict):
    """State of a payment."""

    key: str
    amount: int
    result: dict[str, Any]


class Langgraph(Threaded):
    """Threads of two graphs over one saver."""

    def __init__(self, place: dict[str, Any], effect: Effect) -> None:
        self._effect = effect
        self._pool = None
        if place["url"]:
            given = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
            self._pool = ConnectionPool(
                place["url"], min_size=1, max_size=CONNECTIONS_MAX, kwargs=given, open=True
            )
            saver = PostgresSaver(self._pool)
        else:
            file = f"{place['folder']}/langgraph.db"
            self._connection = sqlite3.connect(file, check_same_thread=False)
            self._connection.execute("PRAGMA synchronous = FULL")
            saver = SqliteSaver(self._connection)
        saver.setup()
        steps = StateGraph(Steps)
        steps.add_node("step", self._step)
        steps.add_edge(START, "step")
        steps.add_conditional_edges("step", _next)
        self._steps = steps.compile(checkpointer=saver)
        payments = StateGraph(Payment)
        payments.add_node("pay", self._pay)
        payments.add_edge(START, "pay")
        payments.add_edge("pay", END)
        self._payments = payments.compile(checkpointer=saver)

    def run(self, run: str, steps: int) -> None:
        given = {"run": run, "steps": steps, "number": 0, "result": {}}
        self._steps.invoke(given, _of(run, steps), durability="sync")

    def resume(self, run: str, steps: int) -> None:
        self._steps.invoke(None, _of(run, steps), durability="sync")

    def pay(self, key: str, amount: int) -> dict[str, Any]:
        """Begin a thread, go on with one that did not end, or return what it ended with."""
        seen = self._payments.get_state(_of(key, 1))
        if seen.values and not seen.next:
            return seen.values["result"]
        given = None if seen.values else {"key": key, "amount": amount, "result": {}}
        return self._payments.invoke(given, _of(key, 1), durability="sync")["result"]

    def close(self) -> None:
        if self._pool is None:
            self._connection.close()
        else:
            self._pool.close()

    def _step(self, state: Steps) -> dict[str, Any]:
        result = self._effect.do(state["run"], state["number"])
        return {"number": state["number"] + 1, "result": result}

    def _pay(self, state: Payment) -> dict[str, Any]:
        return {"result": self._effect.pay(state["key"], state["amount"])}


def _next(state: Steps) -> str:
    return "step" if state["number"] < state["steps"] else END


def _of(thread: str, steps: int) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread}, "recursion_limit": steps + 10}


if __name__ == "__main__":
    serve(Langgraph)

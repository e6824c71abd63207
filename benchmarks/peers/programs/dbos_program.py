"""DBOS: its system database in PostgreSQL, or in one SQLite file in WAL mode."""

import sqlite3
from typing import Any

from dbos import DBOS, SetWorkflowID
from talk import ARGUMENTS, Effect, Threaded, serve


class Dbos(Threaded):
    """Workflows of steps; launching it recovers what an earlier process left."""

    def __init__(self, place: dict[str, Any], effect: Effect) -> None:
        url = place.get("url", "")
        if not url:
            file = f"{place['folder']}/dbos.db"
            connection = sqlite3.connect(file)
            connection.execute("PRAGMA journal_mode = WAL")  # kept in the file
            connection.close()
            url = f"sqlite:///{file}"
        DBOS(
            config={
                "name": "bench",
                "system_database_url": url.replace("postgresql://", "postgresql+psycopg://"),
                "log_level": "ERROR",
            }
        )

        @DBOS.step(name="step")
        def step(run: str, number: int, arguments: dict[str, Any]) -> dict[str, Any]:
            return effect.do(run, number)

        @DBOS.workflow(name="steps")
        def workflow(run: str, steps: int) -> None:
            for number in range(steps):
                step(run, number, ARGUMENTS)

        @DBOS.step(name="pay")
        def pay(key: str, amount: int) -> dict[str, Any]:
            return effect.pay(key, amount)

        @DBOS.workflow(name="payment")
        def payment(key: str, amount: int) -> dict[str, Any]:
            return pay(key, amount)

        self._workflow, self._payment = workflow, payment
        DBOS.launch()

    def run(self, run: str, steps: int) -> None:
        with SetWorkflowID(run):
            handle = DBOS.start_workflow(self._workflow, run, steps)
        handle.get_result()

    def resume(self, run: str, steps: int) -> None:
        DBOS.retrieve_workflow(run).get_result()

    def pay(self, key: str, amount: int) -> dict[str, Any]:
        with SetWorkflowID(key):
            return self._payment(key, amount)

    def close(self) -> None:
        DBOS.destroy()


if __name__ == "__main__":
    serve(Dbos)

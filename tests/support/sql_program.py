"""A program with one payment in a database, that can be killed right before or after it.

Started as `python -m tests.support.sql_program FOLDER TARGET MOMENT`, where MOMENT is
"before", "after" or "never".
"""

import os
import signal
import sys
from pathlib import Path

import counterfoil as cf
from counterfoil.core.receipt import Receipt
from counterfoil.ports import Adapter, Operation
from counterfoil.testing.saboteur_adapters import Passing
from tests.support.sql_bench import NAMES_OF_STATEMENTS, opened_at, write_arguments

CALL_MS, WAIT_MS = 10_000, 60_000

TASK = cf.Task(
    id="pay",
    policy=cf.Policy(
        permissions=("sql.execute", "sql.query", "sql.check"),
        scope={"sql": {"statements": NAMES_OF_STATEMENTS}},
    ),
    verifier=cf.Verification(
        kind="sql.check", arguments={"statement": "notes", "expected": [{"line": "line paid"}]}
    ),
)


class Doomed(Passing):
    """Ends its process at one moment of the first write."""

    def __init__(self, inner: Adapter, moment: str) -> None:
        super().__init__(inner)
        self._moment = moment

    def execute(self, operation: Operation) -> Receipt:
        """Do it, and perhaps die."""
        if operation.key and self._moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        receipt = super().execute(operation)
        if operation.key and self._moment == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return receipt


def pay(folder: Path, target: str, moment: str = "never") -> cf.Run:
    """Work on the run to its end."""
    adapter = Doomed(opened_at(target, call_ms=CALL_MS), moment)
    with (
        cf.open(folder, adapters=(adapter,)) as keeper,
        keeper.run(TASK, "pay-1", wait_ms=WAIT_MS) as run,
    ):
        run.do("sql.execute", **write_arguments())
        run.do("sql.query", statement="notes")
        run.verify()
        return run.finish()


if __name__ == "__main__":
    sys.stdout.write(pay(Path(sys.argv[1]), sys.argv[2], sys.argv[3]).phase)

"""A receipt that cannot be kept becomes a case; the run can be shown and aborted."""

import pytest
from msgspec.structs import replace

from counterfoil.core.errors import FrozenError
from counterfoil.core.receipt import Receipt
from counterfoil.core.review import CaseReason
from counterfoil.engine import control
from counterfoil.ports import Operation
from counterfoil.testing.saboteur_adapters import Passing
from tests.support.scenes import RUN_ID, memory_scene, written


def answering(**fields: object) -> type[Passing]:
    class Odd(Passing):
        """Answers writes with a receipt of another shape."""

        def execute(self, operation: Operation) -> Receipt:
            receipt = super().execute(operation)
            return replace(receipt, **fields) if operation.key else receipt

    return Odd


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"id": 7}, id="an id that is no text"),
        pytest.param({"id": "half \ud83d"}, id="an id with half a character"),
        pytest.param({"committed_at_ms": "now"}, id="a time that is no number"),
        pytest.param({"result": "x" * 1_000_000}, id="a result far over its bound"),
        pytest.param({"result": object()}, id="a result without a form"),
        pytest.param({"id": ""}, id="no id"),
    ],
)
def test_a_receipt_that_cannot_be_kept_is_a_case_to_decide(fields: dict[str, object]) -> None:
    scene = memory_scene()
    with scene.run(wrap=answering(**fields)) as run, pytest.raises(FrozenError):
        written(run)
    assert run.state.case is not None
    assert run.state.case.reason is CaseReason.INCOMPLETE_RECEIPT
    assert control.abort(scene.parts(), RUN_ID, actor="ann", reason="odd").reason == "aborted"

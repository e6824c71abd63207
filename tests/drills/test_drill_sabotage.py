"""A drill finds a target that breaks its promise, and says so by its exit code."""

from collections.abc import Callable

import pytest

from counterfoil.core.errors import IntegrityError
from tests.drills.conftest import Drill


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("sabotage", "count"),
    [
        pytest.param("keys", "duplicates", id="a target that forgets keys"),
        pytest.param("fences", "duplicates", id="a target that lets old leases through"),
        pytest.param("effects", "lost", id="a target that says done and does nothing"),
    ],
)
def test_a_broken_promise_is_found(sabotage: str, count: str, drill: Callable[..., Drill]) -> None:
    found = drill("--seconds", "5", "--sabotage", sabotage)
    assert found.report[count] > 0
    assert found.code == IntegrityError.exit_code
    assert found.error["name"] == "IntegrityError"
    assert found.report["command"] in found.error["next"]

"""Every database keeps the clauses of a transactional target, and broken promises are caught."""

from collections.abc import Callable
from pathlib import Path

import pytest

from counterfoil.adapters.sql import kinds
from counterfoil.adapters.sql.statements import registered
from counterfoil.core.words import Risk
from counterfoil.ports import Adapter
from counterfoil.testing import adapter_calls as calls
from counterfoil.testing import adapter_fences as fences
from counterfoil.testing import adapter_keys as keys
from counterfoil.testing import saboteur_adapters as saboteurs
from counterfoil.testing.conformance_adapters import Clause, clauses_for
from counterfoil.testing.expect import ConformanceError
from tests.support.sql_bench import NAMES, TRAITS, opened, statements

pytest_plugins = ["tests.support.postgres"]

SPEC = kinds.kinds(
    "sql", registered(statements("named"), "named"), risk=Risk.IRREVERSIBLE_WRITE, call_ms=20_000
)[0]
CLAUSES = clauses_for(SPEC, TRAITS)


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_it_is_kept(
    name: str, clause: Clause, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with opened(name, tmp_path, lambda: request.getfixturevalue("postgres")) as place:
        clause(place.bench())


@pytest.mark.parametrize(
    ("saboteur", "clause"),
    [
        (saboteurs.ExecutesTwice, keys.a_lost_answer_is_settled_by_the_same_call),
        (saboteurs.ForgetsReceipts, calls.what_was_done_is_found),
        (saboteurs.AbsentOnError, calls.an_unreachable_target_is_unknown_and_not_absent),
        (saboteurs.IgnoresPrestate, keys.a_write_built_on_another_state_is_refused),
        (saboteurs.IgnoresFence, fences.a_call_under_an_older_lease_is_refused),
        (saboteurs.ForbidIsIgnored, keys.a_forbidden_key_never_executes),
    ],
)
def test_a_broken_promise_is_caught_on_a_real_database(
    saboteur: Callable[[Adapter], Adapter], clause: Clause, tmp_path: Path
) -> None:
    with opened("sqlite", tmp_path, pytest.fail) as place, pytest.raises(ConformanceError):
        clause(place.bench(wrap=saboteur))

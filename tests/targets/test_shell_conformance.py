"""Commands keep the clauses of their level and those beyond it, and saboteurs are caught."""

from collections.abc import Callable
from pathlib import Path

import pytest

from counterfoil.adapters.shell.kinds import allowed
from counterfoil.core.words import Level
from counterfoil.ports import Adapter
from counterfoil.testing import adapter_calls as calls
from counterfoil.testing import adapter_fences as fences
from counterfoil.testing import adapter_keys as keys
from counterfoil.testing import saboteur_adapters as saboteurs
from counterfoil.testing.conformance_adapters import Clause, clauses_for
from counterfoil.testing.expect import ConformanceError
from tests.support.shell_bench import COMMANDS, TRAITS, shell_bench

SPECS = {kind: found.spec for kind, found in allowed(COMMANDS).items()}

CASES = [
    pytest.param(kind, clause, id=f"{kind} {clause.__name__.replace('_', ' ')}")
    for kind in ("shell.note", "shell.place")
    for clause in clauses_for(SPECS[kind], TRAITS)
]

CAUGHT: list[tuple[Callable[[Adapter], Adapter], Clause, str]] = [
    (
        saboteurs.ExecutesTwice,
        keys.a_repeated_call_gets_the_first_receipt,
        "a repeated call gets the receipt of the first one",
    ),
    (saboteurs.ForgetsReceipts, calls.what_was_done_is_found, "what was done is found"),
    (
        saboteurs.AbsentOnError,
        calls.an_unreachable_target_is_unknown_and_not_absent,
        "an error while asking is unknown, not absent",
    ),
    (
        saboteurs.IgnoresPrestate,
        keys.a_write_built_on_another_state_is_refused,
        "built on another state is a StaleObservationError",
    ),
    (
        saboteurs.IgnoresFence,
        fences.a_call_under_an_older_lease_is_refused,
        "under an older lease is a FencedError",
    ),
    (saboteurs.ForbidIsIgnored, keys.a_forbidden_key_never_executes, "forbidden key"),
    (
        saboteurs.RefusesLostAnswers,
        calls.a_lost_answer_is_no_refusal,
        "a lost answer never claims that nothing happened",
    ),
]


@pytest.mark.parametrize(("kind", "clause"), CASES)
def test_it_is_kept(kind: str, clause: Clause, tmp_path: Path) -> None:
    bench = shell_bench(tmp_path, kind=kind)
    try:
        clause(bench)
    finally:
        bench.close()


@pytest.mark.parametrize(
    ("saboteur", "clause", "sentence"),
    [
        pytest.param(saboteur, clause, sentence, id=f"{saboteur.__name__} {clause.__name__}")
        for saboteur, clause, sentence in CAUGHT
    ],
)
def test_a_broken_promise_is_caught(
    saboteur: Callable[[Adapter], Adapter], clause: Clause, sentence: str, tmp_path: Path
) -> None:
    bench = shell_bench(tmp_path, wrap=saboteur)
    try:
        with pytest.raises(ConformanceError, match=sentence):
            clause(bench)
    finally:
        bench.close()


def test_a_command_claims_no_more_than_it_can_show() -> None:
    levels = {kind: spec.level for kind, spec in SPECS.items() if spec.risk.writes}
    assert levels == {"shell.note": Level.QUERYABLE, "shell.place": Level.DEDUPLICATING}

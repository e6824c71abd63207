"""Freeze a run: open a case with all the evidence there is."""

import logging

from counterfoil.core.errors import FrozenError
from counterfoil.core.inputs import CaseOpened, Rules
from counterfoil.core.intent import EnvironmentState
from counterfoil.core.machine import apply
from counterfoil.core.receipt import Receipt, receipt_fingerprint
from counterfoil.core.review import Case, CaseReason
from counterfoil.core.run import environment_of
from counterfoil.core.words import Digest
from counterfoil.engine.ledger import Ledger

log = logging.getLogger("counterfoil.engine")


def freeze(
    ledger: Ledger,
    rules: Rules,
    *,
    reason: CaseReason,
    finding: str,
    adapter: str,
    receipt: Receipt | None = None,
    observed: EnvironmentState | None = None,
) -> None:
    """Open a case with all evidence, make it durable, and say so.

    Raises:
        FrozenError: Always, once the case is durable.
    """
    run = ledger.run
    case = Case(
        reason=reason,
        finding=finding,
        challenge=ledger.parts.nonce(),
        pending=run.pending,
        receipt=receipt,
        receipt_digest=receipt_fingerprint(receipt) if receipt else Digest(""),
        recorded=environment_of(run, adapter),
        observed=observed,
        opened_at_ms=max(rules.now_ms, run.floor_ms),
    )
    ledger.commit(apply(run, CaseOpened(case=case), rules))
    log.warning("run %s: frozen for review: %s", run.run_id, reason.value)
    raise FrozenError(f"{reason}: {finding}", run.run_id, run.pending.key if run.pending else "")

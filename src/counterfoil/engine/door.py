"""The door of the inbox: a statement is checked before it is kept.

Whoever signed something that does not fit learns it here, with both values, and not
from a trace that is read later. Passing the door decides nothing: the worker that holds
the run checks again, against the world as it is then.
"""

from dataclasses import dataclass

from counterfoil.core.approval import APPROVAL_TYPE, REVOCATION_TYPE, open_approval, open_revocation
from counterfoil.core.errors import ApprovalError, IntegrityError, UsageError
from counterfoil.core.inputs import Approved, Decided, Denied, Input, Revoked, Rules
from counterfoil.core.machine import apply
from counterfoil.core.review import DECISION_TYPE, MIGRATION_TYPE, open_decision, open_migration
from counterfoil.core.task import Task
from counterfoil.core.trust import standing_problem
from counterfoil.core.words import RunId
from counterfoil.engine.control import RunView, show
from counterfoil.engine.matters import approvals_of
from counterfoil.engine.parts import Parts
from counterfoil.engine.statements import signer_of, type_of

NOT_OURS = "check that the file is whole, and that the signer is in `counterfoil trust list`"


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """A statement that the inbox keeps.

    Attributes:
        run_id: For which run.
        what: "approve", "deny", "revoke", the verdict of a decision, or "migrate".
        signer: Who signed it.
    """

    run_id: RunId
    what: str
    signer: str


def submit(parts: Parts, envelope: bytes) -> Kept:
    """Check a signed statement, and keep it for the worker that holds its run.

    Args:
        parts: The engine.
        envelope: The statement, as it was signed.

    Raises:
        ApprovalError: Nobody trusted signed it, it is for something else than what is
            open, or it has ended; names what does not fit, with both values.
        FrozenError: The run is in review, and this is no decision.
        TerminalError: The run has ended.
        UnknownRunError: The register has no such run.
        UsageError: The project keeps no inbox.
    """
    if parts.inbox is None:
        raise UsageError("there is no inbox here", move="open the project with its store")
    try:
        signer, _ = signer_of(envelope, parts.roots)
        run_id, what = _named(parts, envelope)
    except IntegrityError as error:
        raise ApprovalError(error.message, move=NOT_OURS) from error
    view = show(parts, run_id)
    _check(parts, view, envelope)
    parts.inbox.put(run_id, envelope)
    return Kept(run_id=run_id, what=what, signer=signer)


def _named(parts: Parts, envelope: bytes) -> tuple[RunId, str]:
    kind, roots = type_of(envelope), parts.roots
    if kind == APPROVAL_TYPE:
        approval, _ = open_approval(envelope, roots)
        return approval.run, approval.verdict
    if kind == REVOCATION_TYPE:
        return open_revocation(envelope, roots)[0].run, "revoke"
    if kind == DECISION_TYPE:
        decision, _ = open_decision(envelope, roots)
        return decision.run, decision.verdict.value
    return open_migration(envelope, roots)[0].run, "migrate"


def _check(parts: Parts, view: RunView, envelope: bytes) -> None:
    """Try a statement on the run as it stands; what would follow is thrown away."""
    kind = type_of(envelope)
    if kind == MIGRATION_TYPE:
        _check_migration(parts, view, envelope)
        return
    if kind == REVOCATION_TYPE and _waits_in_inbox(parts, view, envelope):
        return
    rules = Rules(
        task=Task(id=view.run.task_id),
        kinds=parts.kinds,
        now_ms=parts.clock.now_ms(),
        roots=parts.roots,
    )
    apply(view.run, _input(parts, view, kind, envelope), rules)


def _input(parts: Parts, view: RunView, kind: str, envelope: bytes) -> Input:
    text = envelope.decode("utf-8")
    if kind == REVOCATION_TYPE:
        return Revoked(envelope=text)
    if kind == DECISION_TYPE:
        case = view.run.case
        if case is None:
            raise ApprovalError("no case is open", view.run.run_id)
        return Decided(envelope=text, receipt=case.receipt, observed=case.observed)
    approval, _ = open_approval(envelope, parts.roots)
    return Approved(envelope=text) if approval.verdict == "approve" else Denied(envelope=text)


def _waits_in_inbox(parts: Parts, view: RunView, envelope: bytes) -> bool:
    """Return whether a revocation takes back what no worker has taken yet."""
    revocation, signer = open_revocation(envelope, parts.roots)
    return any(
        (row.digest, row.approval.signer) == (revocation.approval, signer.entry.id)
        and not row.is_bound
        for row in approvals_of(parts, view)
    )


def _check_migration(parts: Parts, view: RunView, envelope: bytes) -> None:
    migration, signer = open_migration(envelope, parts.roots)
    run_id, now_ms = view.run.run_id, max(parts.clock.now_ms(), view.run.floor_ms)
    for name, ours, theirs in (
        ("checkpoint", view.head.checkpoint, migration.checkpoint),
        ("task", view.header.task_digest, migration.from_task),
    ):
        if ours != theirs:
            raise ApprovalError(
                f"the migration is from {name} {theirs}, the run is at {ours}", run_id
            )
    if now_ms >= migration.expires_at_ms:
        raise ApprovalError(f"the migration ended at {migration.expires_at_ms}", run_id)
    problem = standing_problem(
        signer.entry,
        issued_at_ms=migration.issued_at_ms,
        now_ms=now_ms,
        task=view.run.task_id,
        kind="",
        risk=None,
        adapter="",
    )
    if problem:
        raise ApprovalError(problem, run_id)

"""The people, requests and statements that golden files are made of."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from counterfoil.core.approval import (
    APPROVAL_TYPE,
    REVOCATION_TYPE,
    Approval,
    Request,
    Revocation,
    request_of,
)
from counterfoil.core.canonical import digest, encode
from counterfoil.core.codec import Checkpoint
from counterfoil.core.review import (
    DECISION_TYPE,
    MIGRATION_TYPE,
    Decision,
    Migration,
    Verdict,
    decision_for,
)
from counterfoil.core.run import Phase
from counterfoil.core.words import Digest, RunId
from tests.support.people import ADA, BOB, HOUR_MS, RITA, ROB, approval, roots, signed
from tests.support.runs import BEGAN_MS, BOX, RUN_ID, TASK, case_of, checkpoint, fresh
from tests.support.runs import pending as intent_of

NOW_MS = BEGAN_MS + 1_000
GONE = BOB.but(revoked_at_ms=NOW_MS)
ROOTS = roots(ADA, GONE, RITA, ROB)
"""Bob was revoked at the very moment at which the files are judged; nobody trusts Eve."""

WAITING = intent_of(
    sends=0, approvals_required=1, policy_version="1", challenge="c-1", requested_at_ms=BEGAN_MS
)
ASKED: Request = request_of(WAITING, run_id=RUN_ID, task=TASK.id, proposal=1)
CASE = case_of(intent_of(), observed=BOX)
REQUESTS = {
    "": ASKED,
    "in another run": replace(ASKED, run=RunId("run-2")),
    "after a crash": replace(ASKED, challenge="c-2"),
    "in a fork": replace(ASKED, challenge="c-3", proposal=2),
}
"""What an approval is held against: its own request, or a later one that it is replayed to."""


@dataclass(frozen=True, kw_only=True)
class Golden:
    """One file, and what becomes of it.

    Attributes:
        name: Name of the file, without its ending.
        sort: What it is opened as.
        content: Its bytes.
        asked: Which request it is held against.
        error: Class of the error; empty when it opens.
        phrase: What the error says.
    """

    name: str
    sort: str
    content: bytes = field(repr=False)
    asked: str = ""
    error: str = ""
    phrase: str = ""


def yes(**changes: Any) -> Approval:
    return replace(approval(ASKED), **changes)


def no_more(**changes: Any) -> Revocation:
    made = Revocation(
        format=1,
        signer="ada",
        run=RUN_ID,
        challenge="c-1",
        approval=digest(signed(yes(), APPROVAL_TYPE, ADA)),
        issued_at_ms=BEGAN_MS,
    )
    return replace(made, **changes)


def decision(verdict: Verdict = Verdict.REPLAN, **changes: Any) -> Decision:
    made = decision_for(
        CASE,
        run_id=RUN_ID,
        task=TASK.id,
        verdict=verdict,
        signer="rita",
        evidence="order 7",
        issued_at_ms=BEGAN_MS,
        expires_at_ms=BEGAN_MS + HOUR_MS,
    )
    return replace(made, **changes)


def migration(**changes: Any) -> Migration:
    made = Migration(
        format=1,
        signer="rita",
        run=RUN_ID,
        checkpoint=Digest("1" * 64),
        from_task=Digest("2" * 64),
        to_task=Digest("3" * 64),
        issued_at_ms=BEGAN_MS,
        expires_at_ms=BEGAN_MS + HOUR_MS,
    )
    return replace(made, **changes)


def row_bytes(row: Checkpoint) -> bytes:
    """Return a checkpoint as one file."""
    return msgspec.json.format(encode(row), indent=1)


def valid() -> Iterator[Golden]:
    """Yield what must always open."""
    yield Golden(name="approval", sort="approval", content=signed(yes(), APPROVAL_TYPE, ADA))
    last = yes(last_proposal=1, expires_at_ms=NOW_MS + 1)
    yield Golden(name="approval-last", sort="approval", content=signed(last, APPROVAL_TYPE, ADA))
    no = yes(verdict="deny", note="not today")
    yield Golden(name="denial", sort="approval", content=signed(no, APPROVAL_TYPE, ADA))
    yield Golden(
        name="revocation", sort="revocation", content=signed(no_more(), REVOCATION_TYPE, ADA)
    )
    for verdict in Verdict:
        content = signed(decision(verdict), DECISION_TYPE, RITA)
        yield Golden(name=f"decision-{verdict}", sort="decision", content=content)
    yield Golden(
        name="migration", sort="migration", content=signed(migration(), MIGRATION_TYPE, RITA)
    )
    bound = replace(WAITING, approvals=(signed(yes(), APPROVAL_TYPE, ADA).decode(),))
    frozen = fresh(pending=CASE.pending, case=CASE, phase=Phase.NEEDS_REVIEW)
    for name, run in (
        ("fresh", fresh()),
        ("waiting", fresh(pending=WAITING)),
        ("bound", fresh(pending=bound)),
        ("frozen", frozen),
    ):
        yield Golden(
            name=f"checkpoint-{name}", sort="checkpoint", content=row_bytes(checkpoint(run))
        )

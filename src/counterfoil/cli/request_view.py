"""How a request is shown: in plain words, with all that decides, and what would change."""

from collections.abc import Sequence

import msgspec

from counterfoil.cli.people import print_lines
from counterfoil.cli.screen import clock_time, heading, moment, show_facts
from counterfoil.core.approval import Request
from counterfoil.core.canonical import canonical, digest
from counterfoil.core.intent import EnvironmentState
from counterfoil.core.words import Json, Level
from counterfoil.engine.matters import BoundApproval

ARGUMENT_CHARS = 2_000
"""Characters of one argument that are shown; the rest is named by size and hash."""

LEVELS = {
    Level.TRANSACTIONAL: "the target keeps the receipt with the change: it happens once",
    Level.DEDUPLICATING: "the target knows the key again: it happens once",
    Level.CONDITIONAL: "the target takes it only in the state it was built on: it happens once",
    Level.QUERYABLE: "the target can be asked afterwards; a lost call may need a reviewer",
    Level.BLIND: "the target can neither be asked nor knows the key: a lost call needs a reviewer",
}


def show_request(request: Request, *, required: int, given: Sequence[BoundApproval] = ()) -> None:
    """Print what a person is asked to approve."""
    intent, state = request.intent, request.environment
    heading(f"Request: run {request.run} wants to do {intent.kind}", "bold yellow")
    show_facts(
        [
            ("task", f"{request.task}, policy version {request.policy_version}"),
            ("action", f"{request.action_id}, {intent.risk.value}"),
            ("adapter", f"{intent.adapter}: {LEVELS[request.level]}"),
            ("target", f"{intent.target}{f', as {state.account}' if state.account else ''}"),
            *((f"  {name}", argument_text(value)) for name, value in intent.arguments.items()),
            (
                "seen state",
                f"version {state.version}, generation {state.generation}, {_fingerprint(state)}",
            ),
            ("key", request.key),
            ("intent", request.digest),
            ("asked", f"{clock_time(request.requested_at_ms)}, after proposal {request.proposal}"),
            ("approvals", f"{sum(not row.problem for row in given)} of {required}"),
            *((f"  {row.approval.signer}", approval_text(row)) for row in given),
        ]
    )
    if request.preview:
        heading("What would change", "")
        print_lines(request.preview)


def _fingerprint(state: EnvironmentState) -> str:
    return f"fingerprint {state.fingerprint or '(none)'}"


def argument_text(value: Json) -> str:
    """Return an argument as a person reads it; a long one is cut, and says so."""
    text = value if isinstance(value, str) else canonical(value).decode("utf-8")
    if len(text) <= ARGUMENT_CHARS:
        return text
    name = digest(text.encode("utf-8"))
    return f"{text[:ARGUMENT_CHARS]}… (cut: {len(text)} characters, SHA-256 {name})"


def approval_text(row: BoundApproval) -> str:
    """Return how an approval stands."""
    approval = row.approval
    until = f"until {clock_time(approval.expires_at_ms)}, proposal {approval.last_proposal}"
    where = "taken" if row.is_bound else "in the inbox"
    return f"{where}, {row.problem or f'counts {until}'}"


def request_json(
    request: Request, *, required: int, given: Sequence[BoundApproval]
) -> dict[str, Json]:
    """Return a request for programs; its challenge is for a signed approval alone."""
    fields: dict[str, Json] = msgspec.to_builtins(request)
    del fields["challenge"]
    return {
        **fields,
        "requested_at": moment(request.requested_at_ms),
        "approvals_required": required,
        "approvals": [
            {
                "signer": row.approval.signer,
                "digest": row.digest,
                "expires_at": moment(row.approval.expires_at_ms),
                "last_proposal": row.approval.last_proposal,
                "problem": row.problem,
                "taken": row.is_bound,
            }
            for row in given
        ],
    }

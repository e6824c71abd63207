"""`counterfoil sign`, `submit` and `migrate`: statements that travel."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from counterfoil.cli.options import JsonOption, ProjectOption, RunArgument, records, run_of
from counterfoil.cli.people import (
    EXPIRES,
    PROPOSALS,
    EvidenceOption,
    ExpiresOption,
    KeyOption,
    NoteOption,
    ProposalsOption,
    YesOption,
    consent,
    file_bytes,
    key_for,
    last_proposal,
    name_among,
    name_in,
    term_ms,
    written,
)
from counterfoil.cli.request_commands import GOES_ON
from counterfoil.cli.request_view import show_request
from counterfoil.cli.review_view import show_review
from counterfoil.cli.screen import clock_time, say, show_facts, show_json
from counterfoil.core import task as tasks
from counterfoil.core.approval import STATEMENT_BYTES_MAX
from counterfoil.core.errors import ApprovalError, UsageError
from counterfoil.core.review import Verdict, decision_for
from counterfoil.core.task import Task
from counterfoil.core.trust import Role
from counterfoil.core.words import free_text
from counterfoil.engine.clock import SystemClock
from counterfoil.engine.control import RunView
from counterfoil.engine.control import show as view_of
from counterfoil.engine.door import submit as keep
from counterfoil.engine.dossier import DOSSIER_BYTES_MAX, CaseFile, RequestFile, read_dossier
from counterfoil.keeper import load_task
from counterfoil.keys.signing import (
    sign_approval,
    sign_decision,
    sign_migration,
    sign_revocation,
)

SIGNED = ".signed.json"


DossierArgument = Annotated[
    Path, typer.Argument(metavar="REQUEST", help="A request or case, as --export wrote it.")
]
DenyOption = Annotated[bool, typer.Option("--deny", help="Deny a request, not approve it.")]
RevokeOption = Annotated[
    bool, typer.Option("--revoke", help="Take back what you approved of a request.")
]
VerdictOption = Annotated[
    Verdict | None,
    typer.Option("--verdict", help="What becomes of a case.", show_default=False),
]
SignerOption = Annotated[
    str | None,
    typer.Option(
        "--signer",
        metavar="NAME",
        help="Your name in the trust file; by default the one that the file gives your key.",
        show_default=False,
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Where to write the statement; by default beside REQUEST.",
        show_default=False,
    ),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Wish:
    """What a person wants to sign, as it stands on the command line."""

    key: str
    deny: bool
    revoke: bool
    verdict: Verdict | None
    evidence: str
    signer: str | None
    term_ms: int
    proposals: int
    note: str
    yes: bool
    quiet: bool


def sign(
    file: DossierArgument,
    *,
    key: KeyOption,
    deny: DenyOption = False,
    revoke: RevokeOption = False,
    verdict: VerdictOption = None,
    evidence: EvidenceOption = "",
    signer: SignerOption = None,
    output: OutputOption = None,
    expires: ExpiresOption = EXPIRES,
    proposals: ProposalsOption = PROPOSALS,
    note: NoteOption = "",
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Sign a request or a case away from the runtime: no store and no project is needed.

    Shows in plain words what is signed, computes its digests again from what is shown,
    asks, and writes the statement to a file. Bring that file back with `counterfoil submit`.

    Example:  counterfoil sign request.json --key ada.pem
    """
    dossier = read_dossier(file_bytes(file, DOSSIER_BYTES_MAX))
    wish = _Wish(
        key=key,
        deny=deny,
        revoke=revoke,
        verdict=verdict,
        evidence=free_text(evidence, "--evidence"),
        signer=signer,
        term_ms=term_ms(expires),
        proposals=proposals,
        note=free_text(note, "--note"),
        yes=yes,
        quiet=as_json,
    )
    what, name, envelope = _signed(dossier, wish)
    place = output or file.with_suffix(SIGNED)
    written(place, envelope)
    if as_json:
        show_json({"statement": what, "signer": name, "output": str(place)})
        return
    say(f"{name} signed: {what}. Written to {place}; bring it back with `counterfoil submit`.")


def _signed(dossier: RequestFile | CaseFile, wish: _Wish) -> tuple[str, str, bytes]:
    """Show what is signed, ask, and return what it is, who signed it, and the statement."""
    match dossier:
        case RequestFile():
            if wish.verdict is not None or (wish.deny and wish.revoke):
                raise UsageError(
                    "a request is approved, denied or revoked", move="pass --deny, --revoke or none"
                )
            if not wish.quiet:
                show_request(dossier.request, required=dossier.required)
            what = "revoke" if wish.revoke else "deny" if wish.deny else "approve"
            return what, *_of_request(dossier, wish)
        case CaseFile():
            if wish.verdict is None or wish.deny or wish.revoke:
                raise UsageError("a case takes a decision", move="pass --verdict")
            if not dossier.is_open:
                raise UsageError("the case was closed when it was exported", dossier.run)
            if not wish.quiet:
                show_review(dossier.run, dossier.task, dossier.case)
            return wish.verdict.value, *_of_case(dossier, wish, wish.verdict)


def _of_request(dossier: RequestFile, wish: _Wish) -> tuple[str, bytes]:
    request, key = dossier.request, key_for(wish.key, Role.APPROVER)
    name = name_among({h.key: h.id for h in dossier.approvers}, key, wish.signer)
    now_ms = SystemClock().now_ms()
    if wish.revoke:
        own = [given for given in dossier.approvals if given.signer == name]
        if not own:
            raise ApprovalError(
                f"the file holds no approval of {name}", request.run, move="export it again"
            )
        consent(f"Take back what {name} approved?", is_given=wish.yes)
        envelope = sign_revocation(
            request,
            key,
            signer=name,
            approval=own[-1].digest,
            issued_at_ms=now_ms,
            note=wish.note,
        )
        return name, envelope
    _say_term(wish, now_ms)
    consent(f"{'Deny' if wish.deny else 'Approve'} exactly this as {name}?", is_given=wish.yes)
    envelope = sign_approval(
        request,
        key,
        signer=name,
        verdict="deny" if wish.deny else "approve",
        issued_at_ms=now_ms,
        expires_at_ms=now_ms + wish.term_ms,
        last_proposal=last_proposal(request.proposal, wish.proposals),
        note=wish.note,
    )
    return name, envelope


def _of_case(dossier: CaseFile, wish: _Wish, verdict: Verdict) -> tuple[str, bytes]:
    key = key_for(wish.key, Role.REVIEWER)
    name = name_among({h.key: h.id for h in dossier.reviewers}, key, wish.signer)
    now_ms = SystemClock().now_ms()
    _say_term(wish, now_ms)
    consent(f"Decide {verdict.value} as {name}?", is_given=wish.yes)
    decision = decision_for(
        dossier.case,
        run_id=dossier.run,
        task=dossier.task,
        verdict=verdict,
        signer=name,
        evidence=wish.evidence,
        issued_at_ms=now_ms,
        expires_at_ms=now_ms + wish.term_ms,
        note=wish.note,
    )
    return name, sign_decision(decision, key)


def _say_term(wish: _Wish, now_ms: int) -> None:
    show_until = clock_time(now_ms + wish.term_ms)
    typer.echo(f"What you sign counts once, and until {show_until}.", err=True)


def submit(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A statement, as `sign` wrote it.")],
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring a signed statement in: it is checked at the door, and waits for its run.

    Refused when nobody trusted signed it, or when it is for something else than what is
    open; the message names what does not fit, with both values.

    Example:  counterfoil submit request.signed.json
    """
    envelope = file_bytes(file, STATEMENT_BYTES_MAX)
    with records(project) as keeper:
        kept = keep(keeper.parts, envelope)
    if as_json:
        show_json({"run": kept.run_id, "statement": kept.what, "signer": kept.signer})
        return
    say(f"Run {kept.run_id}: {kept.signer} says {kept.what}. {GOES_ON}")


def migrate(
    run: RunArgument,
    *,
    task: Annotated[Path, typer.Option("--task", metavar="FILE", help="The task to go on under.")],
    key: KeyOption,
    expires: ExpiresOption = EXPIRES,
    note: NoteOption = "",
    yes: YesOption = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a run go on under another version of its task, as a reviewer.

    Binds the run, its newest checkpoint and both versions, so it counts once and for
    nothing else. What waits for a person is then asked again under the new policy.

    Example:  counterfoil migrate restock-42 --task restock-v2.toml --key rita.pem
    """
    term, note = term_ms(expires), free_text(note, "--note")
    given = load_task(task)
    target = tasks.fingerprint(given)
    with records(project) as keeper:
        parts = keeper.parts
        view = view_of(parts, run_of(run))
        run_id, header = view.run.run_id, view.header
        _check_target(view, given)
        signs = key_for(key, Role.REVIEWER)
        signer = name_in(parts.roots, Role.REVIEWER, signs)
        if not as_json:
            _show_migration(view, given)
        consent(f"Let run {run_id} go on under this task as {signer}?", is_given=yes)
        now_ms = max(parts.clock.now_ms(), view.run.floor_ms)
        envelope = sign_migration(
            signs,
            signer=signer,
            run_id=run_id,
            checkpoint=view.head.checkpoint,
            from_task=header.task_digest,
            to_task=target,
            issued_at_ms=now_ms,
            expires_at_ms=now_ms + term,
            note=note,
        )
        keep(parts, envelope)
    if as_json:
        show_json({"run": run_id, "statement": "migrate", "signer": signer, "to_task": target})
        return
    say(f"{signer} signed: migrate. Start the program again with the new task.")


def _check_target(view: RunView, task: Task) -> None:
    run_id, header = view.run.run_id, view.header
    if header.task != task.id:
        raise ApprovalError(f"the run belongs to task {header.task}, not {task.id}", run_id)
    if header.task_digest == tasks.fingerprint(task):
        raise ApprovalError("the run is at this version already", run_id, move="go on")


def _show_migration(view: RunView, task: Task) -> None:
    show_facts(
        [
            ("run", view.run.run_id),
            ("task", task.id),
            ("from", view.header.task_digest),
            ("to", f"{tasks.fingerprint(task)}, version {task.version}"),
            ("checkpoint", f"{view.head.generation}, {view.head.checkpoint}"),
        ]
    )

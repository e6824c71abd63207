"""`counterfoil requests`, `approve`, `deny`, `revoke`, `refresh`: what approvers do."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from counterfoil.cli.options import JsonOption, ProjectOption, RunArgument, records, run_of
from counterfoil.cli.people import (
    EXPIRES,
    PROPOSALS,
    ExpiresOption,
    KeyOption,
    NoteOption,
    ProposalsOption,
    YesOption,
    consent,
    key_for,
    last_proposal,
    name_in,
    term_ms,
    written,
)
from counterfoil.cli.request_view import request_json, show_request
from counterfoil.cli.screen import clock_time, moment, say, short_time, show_json, show_table
from counterfoil.core.errors import ApprovalError, UsageError
from counterfoil.core.trust import Role
from counterfoil.core.words import RunId, free_text
from counterfoil.engine import matters
from counterfoil.engine.control import RunView
from counterfoil.engine.control import show as view_of
from counterfoil.engine.door import submit
from counterfoil.engine.dossier import request_file
from counterfoil.engine.parts import Parts
from counterfoil.keys.signing import sign_approval, sign_revocation

GOES_ON = "The run goes on when its program is started again, or with `counterfoil recover`."


def requests(
    run: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", help="One run, shown whole.", show_default=False),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(
            "--export",
            metavar="FILE",
            help="Write the request of RUN to a file, to be signed on another machine.",
            show_default=False,
        ),
    ] = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the actions that wait for an approval; with RUN, show one whole.

    A request says what would happen, where, in which state of the target, and what would
    change. Sign it here with `counterfoil approve`, or elsewhere: --export writes a file
    for `counterfoil sign`.

    Example:  counterfoil requests restock-42 --export request.json
    """
    if export is not None and run is None:
        raise UsageError("--export writes one request", move="name its run")
    with records(project) as keeper:
        if run is None:
            _list(keeper.parts, as_json=as_json)
            return
        view = view_of(keeper.parts, run_of(run))
        request, given = matters.request_in(view), matters.approvals_of(keeper.parts, view)
        if export is not None:
            written(export, request_file(keeper.parts, view))
    required = _required(view)
    if as_json:
        shown = request_json(request, required=required, given=given)
        show_json({"request": shown, "export": str(export) if export else None})
        return
    show_request(request, required=required, given=given)
    if export is not None:
        say(f"Written to {export}. Sign it with `counterfoil sign {export} --key FILE`.")


def _list(parts: Parts, *, as_json: bool) -> None:
    found = matters.requests(parts)
    rows = [
        (matters.request_in(v), _required(v), matters.approvals_of(parts, v)) for v in found.views
    ]
    if as_json:
        shown = [request_json(r, required=n, given=given) for r, n, given in rows]
        show_json({"requests": shown, "unreadable": list(found.unreadable)})
        return
    if rows:
        show_table(
            ("run", "kind", "risk", "target", ">approvals", "asked (UTC)"),
            [
                (
                    request.run,
                    request.intent.kind,
                    request.intent.risk.value,
                    request.intent.target,
                    f"{sum(not row.problem for row in given)} of {required}",
                    short_time(moment(request.requested_at_ms)),
                )
                for request, required, given in rows
            ],
        )
    else:
        say("Nothing waits for an approval.")
    for run_id in found.unreadable:
        say(f"Run {run_id} cannot be read: see `counterfoil verify`.", "red")


def approve(
    run: RunArgument,
    *,
    key: KeyOption,
    expires: ExpiresOption = EXPIRES,
    proposals: ProposalsOption = PROPOSALS,
    note: NoteOption = "",
    yes: YesOption = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Approve exactly the action that a run waits with, once.

    Shows the request, asks, signs, and puts the approval into the inbox of the run. It
    counts until it expires and only while the target is in the state shown.

    Example:  counterfoil approve restock-42 --key ada.pem --expires 4h
    """
    answer = _Answer(what="approve", key=key, expires=expires, proposals=proposals, note=note)
    _sign(answer, run, project, yes=yes, as_json=as_json)


def deny(
    run: RunArgument,
    *,
    key: KeyOption,
    expires: ExpiresOption = EXPIRES,
    note: NoteOption = "",
    yes: YesOption = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Deny the action that a run waits with; its planner is told, and may plan anew.

    Example:  counterfoil deny restock-42 --key ada.pem --note "ask the owner first"
    """
    answer = _Answer(what="deny", key=key, expires=expires, proposals=PROPOSALS, note=note)
    _sign(answer, run, project, yes=yes, as_json=as_json)


def refresh(
    run: RunArgument,
    *,
    key: KeyOption,
    expires: ExpiresOption = EXPIRES,
    proposals: ProposalsOption = PROPOSALS,
    note: NoteOption = "",
    yes: YesOption = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Approve an action again whose approval has ended; the old one goes into the trace.

    Refused while your approval still counts: an approval is never prolonged unseen.

    Example:  counterfoil refresh restock-42 --key ada.pem --expires 4h
    """
    answer = _Answer(what="refresh", key=key, expires=expires, proposals=proposals, note=note)
    _sign(answer, run, project, yes=yes, as_json=as_json)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Answer:
    """What an approver says, as it stands on the command line."""

    what: Literal["approve", "deny", "refresh"]
    key: str
    expires: str
    proposals: int
    note: str

    @property
    def verdict(self) -> Literal["approve", "deny"]:
        return "deny" if self.what == "deny" else "approve"


def _sign(answer: _Answer, run: str, project: Path | None, *, yes: bool, as_json: bool) -> None:
    term, note = term_ms(answer.expires), free_text(answer.note, "--note")
    with records(project) as keeper:
        parts = keeper.parts
        view = view_of(parts, run_of(run))
        request, given = matters.request_in(view), matters.approvals_of(parts, view)
        signs = key_for(answer.key, Role.APPROVER)
        signer = name_in(parts.roots, Role.APPROVER, signs)
        if answer.what == "refresh":
            _check_ended(view.run.run_id, signer, given)
        if not as_json:
            show_request(request, required=_required(view), given=given)
        consent(f"{answer.verdict.capitalize()} exactly this as {signer}?", is_given=yes)
        now_ms = max(parts.clock.now_ms(), view.run.floor_ms)
        envelope = sign_approval(
            request,
            signs,
            signer=signer,
            verdict=answer.verdict,
            issued_at_ms=now_ms,
            expires_at_ms=now_ms + term,
            last_proposal=last_proposal(request.proposal, answer.proposals),
            note=note,
        )
        kept = submit(parts, envelope)
    if as_json:
        facts = {"run": kept.run_id, "statement": kept.what, "signer": kept.signer}
        show_json({**facts, "expires_at": moment(now_ms + term)})
        return
    until = clock_time(now_ms + term)
    say(f"{signer} signed: {kept.what}. It counts until {until}. {GOES_ON}")


def _check_ended(run_id: RunId, signer: str, given: tuple[matters.BoundApproval, ...]) -> None:
    own = [row for row in given if row.approval.signer == signer]
    if not own:
        raise ApprovalError(f"{signer} has approved nothing here", run_id, move="use `approve`")
    standing = next((row for row in own if not row.problem), None)
    if standing is not None:
        until = clock_time(standing.approval.expires_at_ms)
        raise ApprovalError(
            f"the approval of {signer} counts until {until}", run_id, move="nothing is to be done"
        )


def revoke(
    run: RunArgument,
    *,
    key: KeyOption,
    note: NoteOption = "",
    yes: YesOption = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take your approval back; it works until the action is on its way.

    Example:  counterfoil revoke restock-42 --key ada.pem
    """
    note = free_text(note, "--note")
    with records(project) as keeper:
        parts = keeper.parts
        view = view_of(parts, run_of(run))
        request = matters.request_in(view)
        signs = key_for(key, Role.APPROVER)
        signer = name_in(parts.roots, Role.APPROVER, signs)
        rows = matters.approvals_of(parts, view)
        own = [row for row in rows if row.approval.signer == signer]
        if not own:
            raise ApprovalError(
                f"{signer} has no approval here", request.run, move="see `counterfoil requests`"
            )
        consent(f"Take back what {signer} approved in run {request.run}?", is_given=yes)
        now_ms = max(parts.clock.now_ms(), view.run.floor_ms)
        for row in own:
            envelope = sign_revocation(
                request, signs, signer=signer, approval=row.digest, issued_at_ms=now_ms, note=note
            )
            submit(parts, envelope)
    if as_json:
        show_json({"run": request.run, "statement": "revoke", "signer": signer, "count": len(own)})
        return
    say(f"{signer} signed: revoke. Nothing happens under it, unless it was on its way already.")


def _required(view: RunView) -> int:
    return view.run.pending.approvals_required if view.run.pending else 0

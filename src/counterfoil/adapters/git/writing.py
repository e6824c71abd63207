"""Writes within the repository: what an intent comes to, and the one transaction of it."""

from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from counterfoil.adapters.git import kinds, locks, objects, refs, settling
from counterfoil.adapters.git.names import ABSENT, BRANCHES
from counterfoil.adapters.git.records import (
    Desk,
    Effect,
    Move,
    Slip,
    desk_ref,
    receipt_ref,
    written,
)
from counterfoil.adapters.git.refs import compared
from counterfoil.adapters.git.site import Site
from counterfoil.adapters.git.state import HERE, Places
from counterfoil.core.canonical import native
from counterfoil.core.errors import (
    ContractError,
    PermissionDeniedError,
    StaleObservationError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.receipt import Answer, Receipt, Served
from counterfoil.core.words import Json
from counterfoil.ports import PREVIEW_CHARS_MAX, Operation

HEAD_BYTES_MAX = 4096
"""What a HEAD file holds: one ref name or one object id."""

_HEADS = ("HEAD", "rebase-merge/head-name", "rebase-apply/head-name")
"""Files that say which branch a working tree is on, or comes back to."""

CUT = "\n… (cut here)"


def intended(
    site: Site,
    kind: str,
    arguments: dict[str, Json],
    places: Places,
    *,
    may_move_checked_out: bool,
) -> Move:
    """Return the move of an intent, with every object of it made.

    Args:
        site: The repository.
        kind: A kind that writes.
        arguments: Checked arguments.
        places: Where the refs of the scope are.
        may_move_checked_out: Whether a branch may move that is checked out.

    Raises:
        ContractError: The remote is not one of the scope.
        PermissionDeniedError: The move is no advance, the branch is checked out, or a
            path leads over a link.
        StaleObservationError: A ref is not where the intent says, or an object is not here.
        UnavailableError: An object cannot be made now.
    """
    match kind:
        case kinds.COMMIT:
            given = kinds.arguments_of(kinds.Commit, arguments)
            old = _expected(places, given.ref, given.expected or given.parent)
            _check_checked_out(site, given.ref, may_move_checked_out=may_move_checked_out)
            if old and old != given.parent:
                _check_advance(site, given.ref, old, given.parent, is_forced=False)
            return Move(ref=given.ref, old=old, new=objects.commit(site, given))
        case kinds.BRANCH:
            branch = kinds.arguments_of(kinds.Branch, arguments)
            old = _expected(places, branch.ref, branch.expected)
            _check_checked_out(site, branch.ref, may_move_checked_out=may_move_checked_out)
            _check_advance(site, branch.ref, old, branch.target, is_forced=branch.force)
            return Move(ref=branch.ref, old=old, new=branch.target)
        case kinds.TAG:
            tag = kinds.arguments_of(kinds.Tag, arguments)
            _expected(places, tag.ref, ABSENT)
            return Move(ref=tag.ref, old="", new=objects.tag(site, tag))
        case _:
            push = kinds.arguments_of(kinds.Push, arguments)
            old = _expected(places, push.ref, push.expected, push.remote)
            _check_advance(site, push.ref, old, push.target, is_forced=push.force)
            return Move(ref=push.ref, old=old, new=push.target, remote=push.remote)


def _expected(places: Places, ref: str, expected: str, remote: str = HERE) -> str:
    """Return the object id that a ref is at and must be at; empty where it is not there."""
    found = places.get(remote)
    if found is None:
        raise ContractError(f"arguments.remote {remote!r:.80} is not in the scope")
    at = found.get(ref, "")
    if at != ("" if expected == ABSENT else expected):
        where = f" of {remote}" if remote else ""
        raise StaleObservationError(f"{ref}{where} is at {at or 'nothing'}, not at {expected}")
    return at


def _check_advance(site: Site, ref: str, old: str, new: str, *, is_forced: bool) -> None:
    if ref.startswith(BRANCHES):
        objects.check_commit(site, new)
    else:
        objects.kind_of(site, new)
    if not old or is_forced:
        return
    is_ahead = refs.contains(site, new, old)
    if is_ahead is None:
        raise StaleObservationError(f"{ref} is at {old}, which is not in the repository")
    if not is_ahead:
        raise PermissionDeniedError(
            f"{new} does not contain {old}, which {ref} is at; only force would move it there"
        )


def _check_checked_out(site: Site, ref: str, *, may_move_checked_out: bool) -> None:
    """Refuse to move a branch under somebody's feet.

    Their index would look as if they had taken our change back, and their next commit
    would do so.
    """
    folders = locks.worktrees(site) if site.is_bare else (site.common, *locks.worktrees(site))
    for folder in folders:
        held = {_head(folder / name) for name in _HEADS}
        if not may_move_checked_out and held & {ref, f"ref: {ref}"}:
            where = folder.relative_to(site.common.parent).as_posix()
            raise PermissionDeniedError(
                f"{ref} is checked out by the working tree of {where}",
                move="work on a branch of its own, or allow it when the adapter is opened",
            )


def _head(place: Path) -> str:
    try:
        with place.open("rb") as file:
            return file.read(HEAD_BYTES_MAX).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def result(move: Move) -> dict[str, Json]:
    """Return what a write answers: which ref, from where, to where."""
    answer: dict[str, Json] = {"ref": move.ref, "old": move.old or None, "new": move.new}
    return answer | {"remote": move.remote} if move.remote else answer


def desk_for(operation: Operation, desk: Desk | None, planned: Effect | None) -> Desk:
    """Return the desk of a run from this call on."""
    earlier = None if desk is None else desk.served
    return Desk(
        run_id=operation.run_id,
        fence=operation.fence,
        served=_newer(earlier, operation.served),
        planned=planned,
    )


def _newer(one: Served | None, other: Served | None) -> Served | None:
    if one is None or other is None:
        return one or other
    return one if one.generation > other.generation else other


def move(site: Site, desk: Desk, planned: Effect, holder: int) -> Receipt:
    """Move a ref and create its receipt, in one transaction; the lock is held.

    Args:
        site: The repository.
        desk: The desk of the run with this write on it. It is written first; if another
            stands in its place after that, the transaction fails.
        planned: What is to be done.
        holder: Descriptor that holds the lock.

    Raises:
        StaleObservationError: The ref was moved meanwhile; nothing happened.
        UnavailableError: Nothing happened; who is in the way is in the message.
        UnknownOutcomeError: It may have happened; only a look-up can tell.
    """
    desk_id = refs.set_desk(site, desk, holder)
    receipt, begun = planned.receipt, replace(desk, is_begun=True)
    slip_id = refs.blob(site, written(Slip(effect=planned)))
    lines = (
        f"update {desk_ref(desk.run_id)} {refs.blob(site, written(begun))} {desk_id}",
        compared(planned.move),
        f"create {receipt_ref(receipt.key)} {slip_id}",
    )
    ran = refs.transaction(site, lines, holder)
    try:
        if ran.is_done:
            _keep(site, desk, planned, slip_id)
            return receipt
        standing = refs.desk(site, desk.run_id)
        outcome = settling.on_record(site, desk.run_id, receipt.key)
        if outcome is None and standing is not None:
            outcome = settling.settle(site, standing, planned, holder)
    except (UnavailableError, PermissionDeniedError) as error:
        raise UnknownOutcomeError(error.message, desk.run_id, receipt.key) from error
    if outcome is not None and outcome.answer is Answer.FOUND:
        return receipt
    if outcome is None or outcome.answer is not Answer.ABSENT:
        reason = "the desk of the run is gone" if outcome is None else outcome.reason
        raise UnknownOutcomeError(reason, desk.run_id, receipt.key)
    raise _in_the_way(site, planned, ran.trouble)


def _keep(site: Site, desk: Desk, planned: Effect, slip_id: str) -> None:
    names = (planned.move.ref, receipt_ref(planned.receipt.key), desk_ref(desk.run_id))
    refs.make_durable(site, (planned.move.new, slip_id), names)


def _in_the_way(
    site: Site, planned: Effect, trouble: str
) -> StaleObservationError | UnavailableError:
    """Return why a transaction came to nothing: another value, or another's lock."""
    ref, receipt = planned.move.ref, planned.receipt
    at = refs.read(site, (ref,)).get(ref, "")
    if at != planned.move.old:
        return StaleObservationError(
            f"{ref} was moved to {at or 'nothing'} meanwhile", receipt.run_id, receipt.key
        )
    return refs.hindrance(site, (ref, desk_ref(receipt.run_id)), trouble)


def preview(site: Site, kind: str, arguments: Mapping[str, Json]) -> str:
    """Return what a write would do, at most `PREVIEW_CHARS_MAX` characters.

    Raises:
        UnavailableError: It cannot be looked at.
    """
    ref, target = arguments["ref"], arguments.get("target", "")
    match kind:
        case kinds.COMMIT:
            lines = [f"commit to {ref} on top of {arguments['parent']}:", arguments["message"]]
            for path, value in arguments["changes"].items():
                lines.append(_change(path, value))
        case kinds.BRANCH | kinds.PUSH:
            where = f" of {arguments['remote']}" if "remote" in arguments else ""
            how = "force" if arguments.get("force") else "move"
            lines = [f"{how} {ref}{where} from {arguments['expected']} to {target}"]
            lines.append(_log(site, arguments["expected"], target))
        case kinds.TAG:
            lines = [f"tag {target} as {ref}", arguments.get("message", "")]
        case _:
            lines = []
    text = "\n".join(line for line in lines if line)
    return text if len(text) <= PREVIEW_CHARS_MAX else text[: PREVIEW_CHARS_MAX - len(CUT)] + CUT


def _change(path: str, value: Json) -> str:
    if value is None:
        return f"--- delete {path}"
    if isinstance(value, str):
        return f"+++ {path}\n{value.rstrip()}"
    return f"+++ {path} ({len(native(value))} bytes)"


def _log(site: Site, expected: str, target: str) -> str:
    """Return the commits that a move would add, one a line."""
    beyond = () if expected == ABSENT else (f"^{expected}",)
    ran = site.git.run(
        "rev-list",
        "--max-count=20",
        "--pretty=tformat:%h %s",
        "--no-commit-header",
        target,
        *beyond,
    )
    return ran.out.decode("utf-8", "replace").rstrip() if ran.is_done else ""

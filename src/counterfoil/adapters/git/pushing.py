"""A push: the ref and its receipt in one atomic act of the remote, from known old values.

The lease of each ref is explicit: what it must be at stands in the command, never in a
tracking ref. A remote that cannot push atomically is refused. Whatever the client says
but a clear refusal of every ref leaves the outcome unknown; the receipt at the remote
decides.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass

from counterfoil.adapters.git import refs, settling
from counterfoil.adapters.git.command import Ran, without_urls
from counterfoil.adapters.git.records import Barred, Desk, Effect, Slip, receipt_ref, written
from counterfoil.adapters.git.site import Site
from counterfoil.core.errors import (
    PermissionDeniedError,
    StaleObservationError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.receipt import ABSENT, Answer, LookUp
from counterfoil.core.words import Key, RunId

TRIES_MAX = 5
"""Pushes of one call: another push may hold the locks of the remote each time."""

PROBE = "refs/counterfoil/probe"
"""Stands at a remote that takes our refs."""

PROBE_TEXT = b"Counterfoil keeps receipts here.\n"

_ALWAYS = ("--porcelain", "--atomic", "--no-follow-tags", "--recurse-submodules=no")

_NO_ATOMIC = "does not support --atomic"

_CONTENDED = ("failed to update ref", "cannot lock ref", "failed to lock", "atomic transaction")


@dataclass(frozen=True, kw_only=True, slots=True)
class Time:
    """How long a call may still take, by a clock that never goes back.

    Attributes:
        ends_at: On `time.monotonic`, in seconds.
    """

    ends_at: float

    @property
    def left_ms(self) -> int:
        """Milliseconds that are left, at least 1."""
        return max(1, int((self.ends_at - time.monotonic()) * 1000))


def time_of(limit_ms: int) -> Time:
    """Return the time of a call that begins here."""
    return Time(ends_at=time.monotonic() + limit_ms / 1000)


def look(site: Site, run_id: RunId, key: Key, desk: Desk | None, left: Time) -> LookUp:
    """Say what the remotes have under a key.

    All that were named are asked: what the desk says of the last push narrows nothing
    down, since a desk may be older than the remotes.

    Raises:
        FormatError: A receipt is not what we wrote.
        UnavailableError: A remote did not answer.
    """
    for remote in sorted(site.remotes):
        standing = _standing(site, remote, key, left)
        if standing is not None:
            return settling.answer(standing, run_id)
    planned = planned_push(desk, key)
    if planned is None:
        return ABSENT
    outcome = settling.settle_remote(site, planned, left.left_ms)
    if outcome.answer is not Answer.FOUND:
        return outcome
    remote = planned.move.remote
    _place(site, remote, key, Slip(effect=planned), left)
    standing = _standing(site, remote, key, left)
    return outcome if standing is None else settling.answer(standing, run_id)


def planned_push(desk: Desk | None, key: Key) -> Effect | None:
    """Return the push under a key, if it was the last write that was planned for its run."""
    planned = None if desk is None else desk.planned
    if planned is None or not planned.move.remote or planned.receipt.key != key:
        return None
    return planned


def push(site: Site, planned: Effect, left: Time) -> LookUp:
    """Push a ref with its receipt, and return what the remote has under the key then.

    Returns:
        Found; or absent when the remote refused and will not do it.

    Raises:
        PermissionDeniedError: The remote cannot push atomically, or its rules refuse.
        UnknownOutcomeError: It may have happened; only a look-up can tell.
    """
    move, receipt = planned.move, planned.receipt
    _check_takes(site, move.remote, left)
    pairs = (
        (move.ref, move.old, move.new),
        (receipt_ref(receipt.key), "", refs.blob(site, written(Slip(effect=planned)))),
    )
    for _ in range(TRIES_MAX):
        ran = _pushed(site, move.remote, pairs, left)
        if ran.is_done:
            return settling.answer(Slip(effect=planned), receipt.run_id)
        reasons = _refusals(ran, len(pairs))
        try:
            standing = _standing(site, move.remote, receipt.key, left)
        except UnavailableError as error:
            if reasons is None:
                raise _unknown(planned, ran) from error
            standing = None
        if standing is not None:
            return settling.answer(standing, receipt.run_id)
        if reasons is None:
            raise _unknown(planned, ran)
        if not any(word in reasons for word in _CONTENDED):
            return _refused(planned, reasons)
    raise UnknownOutcomeError(
        f"{move.remote} is kept busy by other pushes", receipt.run_id, receipt.key
    )


def bar(site: Site, planned: Effect, left: Time) -> LookUp:
    """Make a push impossible unless it is done; return found or absent.

    Raises:
        UnavailableError: The remote did not answer, or it is not certain.
    """
    remote, receipt = planned.move.remote, planned.receipt
    barred = Slip(barred=Barred(run_id=receipt.run_id, key=receipt.key))
    for _ in range(TRIES_MAX):
        standing = _standing(site, remote, receipt.key, left)
        if standing is not None:
            return settling.answer(standing, receipt.run_id)
        outcome = settling.settle_remote(site, planned, left.left_ms)
        is_done = outcome.answer is Answer.FOUND
        _place(site, remote, receipt.key, Slip(effect=planned) if is_done else barred, left)
    raise UnavailableError(f"{remote} does not take that a key is impossible")


def _check_takes(site: Site, remote: str, left: Time) -> None:
    """Refuse a remote that takes no refs of ours, before any other ref of it is moved.

    A remote that hides such refs refuses them before its transaction begins, and then
    carries the rest of an atomic push out.

    Raises:
        PermissionDeniedError: It refuses them, or cannot push atomically.
        UnavailableError: It did not answer.
    """
    if refs.read_remote(site, remote, (PROBE,), left.left_ms):
        return
    ran = _pushed(site, remote, ((PROBE, "", refs.blob(site, PROBE_TEXT)),), left)
    if refs.read_remote(site, remote, (PROBE,), left.left_ms):
        return
    reasons = "it does not show them" if ran.is_done else _refusals(ran, 1)
    if reasons is None:
        raise UnavailableError(f"{remote} did not answer: {ran.trouble or 'too late':.200}")
    raise PermissionDeniedError(
        f"{remote} takes no receipts: {reasons:.300}",
        move="have it take and show refs below refs/counterfoil/, and push atomically",
    )


def _standing(site: Site, remote: str, key: Key, left: Time) -> Slip | None:
    ref = receipt_ref(key)
    object_id = refs.read_remote(site, remote, (ref,), left.left_ms).get(ref)
    if object_id is None:
        return None
    return refs.remote_slip(site, remote, object_id, key, left.left_ms)


def _place(site: Site, remote: str, key: Key, slip: Slip, left: Time) -> None:
    """Put something under a key at a remote if nothing stands there; a look tells."""
    pairs = ((receipt_ref(key), "", refs.blob(site, written(slip))),)
    _pushed(site, remote, pairs, left)


def _pushed(site: Site, remote: str, pairs: Iterable[tuple[str, str, str]], left: Time) -> Ran:
    leases = [f"--force-with-lease={ref}:{old}" for ref, old, _ in pairs]
    moves = [f"{new}:{ref}" for ref, _, new in pairs]
    verify = () if site.trusts else ("--no-verify",)
    url = refs.url_of(site, remote)
    return site.git.run(
        "push", *_ALWAYS, *verify, *leases, "--", url, *moves, limit_ms=left.left_ms
    )


def _refusals(ran: Ran, count: int) -> str | None:
    """Return why every ref was refused; None when that is not certain.

    Each ref has a line that begins with "!" and ends with the reason. A remote that went
    away before it said so has "remote failure" there, or there are no lines.
    """
    if _NO_ATOMIC in ran.trouble:
        return _NO_ATOMIC
    if ran.code is None:
        return None
    lines = [line for line in ran.out.decode("utf-8", "replace").splitlines() if "\t" in line]
    reasons = [line.rpartition("\t")[2] for line in lines if line.startswith("!")]
    is_certain = reasons and all(
        reason.startswith(("[rejected]", "[remote rejected]")) for reason in reasons
    )
    if not is_certain or any(line[0] in " +*-t" for line in lines) or len(lines) > count:
        return None
    return without_urls("; ".join(reasons))


def _refused(planned: Effect, reasons: str) -> LookUp:
    """Return absent for a ref that moved meanwhile; raise what else the remote refused.

    Raises:
        PermissionDeniedError: Its rules or its abilities.
    """
    if "stale info" in reasons or "fetch first" in reasons or "already exists" in reasons:
        return ABSENT
    raise PermissionDeniedError(
        f"{planned.move.remote} refuses: {reasons:.300}",
        planned.receipt.run_id,
        planned.receipt.key,
    )


def stale(planned: Effect) -> StaleObservationError:
    """Return the error of a push whose ref is not where it must be."""
    move, receipt = planned.move, planned.receipt
    return StaleObservationError(
        f"{move.ref} of {move.remote} is no longer at {move.old or 'nothing'}",
        receipt.run_id,
        receipt.key,
    )


def _unknown(planned: Effect, ran: Ran) -> UnknownOutcomeError:
    how = "was stopped" if ran.code is None else f"ended with {ran.code}"
    return UnknownOutcomeError(
        f"a push to {planned.move.remote} {how}: {ran.trouble:.200}",
        planned.receipt.run_id,
        planned.receipt.key,
    )

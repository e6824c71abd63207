"""What became of a write whose process was killed: decided by looking, never by guessing.

Git renames the refs of one transaction one after the other, so a kill can fall between
them. The order is fixed: the desk says that it has begun, then the ref moves, then the
receipt is there. A missing receipt is written after its effect is found; an effect is
never assumed. A ref that only contains what we wanted proves nothing: somebody may have
moved it there from elsewhere, so that is for a person.
"""

from msgspec.structs import replace

from counterfoil.adapters.git import locks, refs
from counterfoil.adapters.git.records import Desk, Effect, Slip
from counterfoil.adapters.git.site import Site
from counterfoil.core.receipt import ABSENT, Answer, LookUp, found
from counterfoil.core.words import Key, RunId

BARRED = LookUp(answer=Answer.ABSENT, reason="the key was made impossible")
"""What is said of a key that can never execute."""


def on_record(site: Site, run_id: RunId, key: Key) -> LookUp | None:
    """Return what stands under a key in this repository; None when nothing does.

    Raises:
        FormatError: It is not what we wrote.
        UnavailableError: It cannot be read.
    """
    slip = refs.slip(site, key)
    return None if slip is None else answer(slip, run_id)


def answer(slip: Slip, run_id: RunId) -> LookUp:
    """Return what a receipt ref says to a run."""
    if slip.effect is None:
        return BARRED
    receipt = slip.effect.receipt
    if receipt.run_id != run_id:
        return LookUp(answer=Answer.FOUND_OTHER, receipt=receipt)
    return found(receipt)


def settle(site: Site, desk: Desk, planned: Effect, holder: int) -> LookUp:
    """Bring a local write without a receipt to one of its ends; the lock is held.

    Raises:
        PermissionDeniedError: The ref has become another name of one.
        UnavailableError: It cannot be told or written now.
    """
    move, receipt = planned.move, planned.receipt
    if desk.is_begun:
        at = refs.read(site, (move.ref,)).get(move.ref, "")
        if at == move.new:
            locks.set_aside(site, desk.run_id, receipt.key, None)
            refs.set_slip(site, receipt.key, Slip(effect=planned), holder)
            return found(receipt)
        if at != move.old or not locks.is_left(site, receipt.key, move):
            return LookUp(
                answer=Answer.FOUND_OTHER,
                reason=f"{move.ref} is at {at or 'nothing'}, and git was killed while it moved "
                f"it from {move.old or 'nothing'} to {move.new}",
            )
        refs.set_desk(site, replace(desk, is_begun=False), holder)
    locks.set_aside(site, desk.run_id, receipt.key, move)
    return ABSENT


def settle_remote(site: Site, planned: Effect, limit_ms: int) -> LookUp:
    """Say what became of a push that left no receipt at its remote.

    A remote whose own git was killed may have moved the ref alone. Anything else under
    the ref is for a person, unless the remote is known to have refused.

    Raises:
        UnavailableError: The remote did not answer.
    """
    move = planned.move
    at = refs.read_remote(site, move.remote, (move.ref,), limit_ms).get(move.ref, "")
    if at == move.old or planned.is_refused:
        return ABSENT
    if at == move.new:
        return found(planned.receipt)
    return LookUp(
        answer=Answer.FOUND_OTHER,
        reason=f"{move.ref} of {move.remote} is at {at or 'nothing'}, neither at "
        f"{move.old or 'nothing'} nor at {move.new}, and no receipt is there",
    )

"""The one atomic rename of a plan, and what is done before and after it.

What this promises to other programs: a file that they replaced, or finished writing,
before our rename is never lost. An exchange takes out whatever stands there at that
instant; when that is not what the plan was made for, it is given back. Only what is
written after the rename, through a descriptor opened before it, is lost with the old
file, as with every program that saves by renaming.
"""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from counterfoil.adapters.files.disk import EXCHANGE, NOREPLACE, Disk
from counterfoil.adapters.files.look import Spot, identity, serial, spot
from counterfoil.adapters.files.plan import Finding, Form, Plan, Seen, decide, doomed
from counterfoil.core.errors import (
    PermissionDeniedError,
    StaleObservationError,
    UnavailableError,
)

TURNS_MAX = 8
"""Exchanges in which another program came between each time."""

KEPT = ".counterfoil-kept"
"""How names begin under which the content of other programs is kept, if there is no other
place for it; they are not observed, and never removed."""

KEPT_MAX = 1_000
"""Names tried for one file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """The places of a plan; None where the way there is gone."""

    left: Spot | None
    right: Spot | None
    spare: Spot | None
    witness: Spot | None


@contextmanager
def places(disk: Disk, root: int, plan: Plan) -> Generator[Places]:
    """Open the places of a plan by a walk from the root; one folder is walked to once."""
    with ExitStack() as stack:
        walked: dict[str, Spot | None] = {}

        def reach(path: str) -> Spot | None:
            if not path:
                return None
            folder, _, name = path.rpartition("/")
            if folder not in walked:
                walked[folder] = _walk(stack, disk, root, path)
            first = walked[folder]
            return None if first is None else Spot(folder=first.folder, name=name)

        yield Places(
            left=reach(plan.left),
            right=reach(plan.right),
            spare=reach(plan.spare),
            witness=reach(plan.witness),
        )


def _walk(stack: ExitStack, disk: Disk, root: int, path: str) -> Spot | None:
    try:
        return stack.enter_context(spot(disk, root, path))
    except PermissionDeniedError:
        return None


def rename(disk: Disk, root: int, plan: Plan) -> None:
    """Do the rename of a plan, if both places are still as planned.

    Raises:
        StaleObservationError: They are not, and nothing happened.
        OSError: Nothing happened, for any reason but EIO.
    """
    with places(disk, root, plan) as here:
        seen = _seen(disk, plan, here)
        displaced = None if plan.displaced is None else plan.displaced.serial
        as_planned = (plan.mover.serial, displaced, True)
        if (seen.left, seen.right, seen.is_same_folder) == as_planned and here.left and here.right:
            try:
                _rename(disk, here.left, here.right, EXCHANGE if plan.is_exchange else NOREPLACE)
                return
            except (FileExistsError, FileNotFoundError) as error:
                raise _moved_on(plan) from error
        raise _moved_on(plan)


def _moved_on(plan: Plan) -> StaleObservationError:
    return StaleObservationError(
        f"{plan.right!r:.200} was changed by another program meanwhile", plan.run_id, plan.key
    )


def settle(disk: Disk, root: int, plan: Plan) -> Finding:
    """Bring a plan to one of its ends, durably, and return which.

    Raises:
        OSError: It cannot be told or made durable now; looking again is harmless.
        UnavailableError: Other programs came between again and again.
    """
    with places(disk, root, plan) as here:
        finding = decide(plan, _seen(disk, plan, here))
        if finding is not Finding.AFTER:
            return finding
        if not _is_whole(disk, plan, here):
            return _given_back(disk, plan, here)
        _set_aside(disk, plan, here)
        try:
            _sync(disk, here)
        except OSError:
            # A later sync would prove nothing: the change is given up, and made anew.
            _given_back(disk, plan, here)
            raise
        return Finding.AFTER


def _seen(disk: Disk, plan: Plan, here: Places) -> Seen:
    folder = None if here.right is None else disk.serial_of(here.right.folder)
    return Seen(
        left=serial(disk, here.left),
        right=serial(disk, here.right),
        spare=serial(disk, here.spare),
        witness=serial(disk, here.witness),
        is_same_folder=folder == plan.folder,
    )


def _is_whole(disk: Disk, plan: Plan, here: Places) -> bool:
    """Return whether the rename moved exactly what the plan says.

    What other programs put over it since is theirs to answer for.
    """
    if plan.form is Form.CREATE:
        return True
    moved = None if here.right is None else serial(disk, here.right)
    if plan.is_exchange and moved != plan.mover.serial:
        return True
    if plan.displaced and _taken_out(disk, plan, here) != plan.displaced.sha256:
        return False
    if plan.form is Form.REPLACE:
        return True
    return here.right is not None and identity(disk, here.right) == plan.mover


def _taken_out(disk: Disk, plan: Plan, here: Places) -> str | None:
    """Return the digest of what the exchange took out, if it is the planned object."""
    for place in (here.spare, here.left):
        found = None if place is None else identity(disk, place)
        if found is not None and plan.displaced is not None:
            return found.sha256 if found.serial == plan.displaced.serial else None
    return None


def _given_back(disk: Disk, plan: Plan, here: Places) -> Finding:
    """Undo the rename without losing what other programs put in either place."""
    if here.left is None or here.right is None:
        return Finding.DISTURBED
    try:
        if plan.is_exchange:
            _exchange_back(disk, plan, here.left, here.right, here.spare)
        else:
            _rename(disk, here.right, here.left, NOREPLACE)
    except FileExistsError:
        return Finding.DISTURBED
    _sync(disk, here)
    if plan.is_exchange and serial(disk, here.left) != plan.mover.serial:
        return Finding.DISTURBED
    return Finding.BEFORE


def _exchange_back(disk: Disk, plan: Plan, left: Spot, right: Spot, spare: Spot | None) -> None:
    """Exchange until what comes out is what was put in: then nobody came between."""
    if plan.form is Form.MOVE_OVER and spare is not None and serial(disk, spare) is not None:
        _rename(disk, spare, left, NOREPLACE)
    last_put: str | None = plan.mover.serial
    for _ in range(TURNS_MAX):
        putting = serial(disk, left)
        _rename(disk, left, right, EXCHANGE)
        if serial(disk, left) == last_put:
            return
        last_put = putting
    raise UnavailableError(f"{plan.right!r:.200} keeps being changed by other programs")


def _set_aside(disk: Disk, plan: Plan, here: Places) -> None:
    """Take the displaced file away from the source of a move."""
    if plan.form is not Form.MOVE_OVER or plan.displaced is None:
        return
    if here.left is None or here.spare is None:
        return
    if serial(disk, here.left) != plan.displaced.serial:
        return
    _rename(disk, here.left, here.spare, NOREPLACE)
    if serial(disk, here.spare) != plan.displaced.serial:
        _rename(disk, here.spare, here.left, NOREPLACE)


def _rename(disk: Disk, one: Spot, other: Spot, flags: int) -> None:
    disk.rename(one.folder, one.name, other.folder, other.name, flags)


def _sync(disk: Disk, here: Places) -> None:
    """Make the names durable in every folder that the rename touched."""
    synced: set[str] = set()
    for place in (here.right, here.left):
        if place is None:
            continue
        folder = disk.serial_of(place.folder)
        if folder not in synced:
            disk.sync(place.folder)
            synced.add(folder)


def sweep(disk: Disk, root: int, plan: Plan, *, is_done: bool) -> None:
    """Clear the reserved names of a decided plan.

    Raises:
        OSError: A name cannot be cleared now.
    """
    ours = doomed(plan, is_done=is_done)
    with places(disk, root, plan) as here:
        for place in (here.spare, here.witness):
            found = serial(disk, place)
            if place is None or found is None:
                continue
            if found == ours:
                disk.unlink(place.folder, place.name)
            else:
                _keep(disk, place)


def _keep(disk: Disk, place: Spot) -> None:
    for number in range(KEPT_MAX):
        try:
            kept = Spot(folder=place.folder, name=f"{KEPT}-{number}")
            _rename(disk, place, kept, NOREPLACE)
            return
        except FileExistsError:
            continue
    raise UnavailableError(f"{KEPT_MAX} files of other programs are kept in one folder")

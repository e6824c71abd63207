"""From a checked action to a plan: look, compare, and write the spare file.

Everything that can fail without an effect fails here. A plan that comes out of this
module names real objects and their content, and its spare file is durable.
"""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from counterfoil.adapters.files import catalog, journal, kinds
from counterfoil.adapters.files.disk import Disk
from counterfoil.adapters.files.look import Found, Spot, examine, spot
from counterfoil.adapters.files.plan import Form, Identity, Plan
from counterfoil.adapters.files.realm import Entry, patterns
from counterfoil.core.canonical import digest
from counterfoil.core.errors import PermissionDeniedError, StaleObservationError
from counterfoil.core.words import Json
from counterfoil.journals import Connection
from counterfoil.ports import Operation

SPARE = "new"
WITNESS = "own"
DISPLACED = "old"
"""How reserved names end: of new content, of its second name, of what goes away."""

MODE_NEW = 0o644
"""Permissions of a new file, before the umask."""

MODE_SPARE = 0o600
"""Permissions of a spare file until it gets those of the file it replaces."""

MODE_KEPT = 0o777
"""Permissions that a replaced file hands on; set-user-id is not among them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """What drafting needs to know.

    Attributes:
        disk: The file system.
        root: Descriptor of the root.
        db: The journal.
        prefix: How the names of this journal's own spare files begin.
        account: Account that the adapter acts as.
        now_ms: Clock, UTC.
        operation: What is asked for.
        arguments: Its checked arguments.
    """

    disk: Disk
    root: int
    db: Connection
    prefix: str
    account: str
    now_ms: Callable[[], int]
    operation: Operation
    arguments: dict[str, Json]


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A place that was compared with what the run knows of it.

    Attributes:
        found: The file there, or None.
        matched: By what it is the one that was last seen: "object" is the same inode
            unchanged, "content" another or a touched one with equal content, "absent"
            none then and none now.
    """

    found: Found | None
    matched: str


@contextmanager
def drafted(draft: Draft) -> Generator[Plan]:
    """Yield the plan of a change; remove its spare file when the block raises.

    Raises:
        StaleObservationError: A file is not as the run knows it, or as expected.
        PermissionDeniedError: A path leads over a link, or to something else than a
            regular file with one name.
        OSError: Nothing happened.
    """
    match draft.operation.kind:
        case kinds.WRITE:
            with _write(draft) as plan:
                yield plan
        case kinds.DELETE:
            yield _delete(draft)
        case _:
            yield _move(draft)


def _compare(draft: Draft, path: str, expected: Json) -> Target:
    with spot(draft.disk, draft.root, path) as place:
        found = None if place is None else examine(draft.disk, place, path)
    known = catalog.entry(draft.db, path)
    have = kinds.ABSENT if found is None else found.entry.sha256
    if found is not None and known is None:
        others = [name for name in catalog.spellings(draft.db, found.entry.inode) if name != path]
        if others:
            raise StaleObservationError(f"{path!r:.200} is another spelling of {others[0]!r:.200}")
    if have != (kinds.ABSENT if known is None else known.sha256):
        raise StaleObservationError(f"{path!r:.200} was changed since it was last seen")
    if expected is not None and expected != have:
        raise StaleObservationError(f"{path!r:.200} holds {have}, expected was {expected}")
    if found is None or known is None:
        return Target(found=None, matched=kinds.ABSENT)
    if found.links > 1:
        raise PermissionDeniedError(f"{path!r:.200} has {found.links} names (hard links)")
    same = _object(found.entry) == _object(known)
    return Target(found=found, matched="object" if same else "content")


def _object(entry: Entry) -> tuple[int, ...]:
    return (entry.inode, entry.size, entry.mtime_ns)


@contextmanager
def _write(draft: Draft) -> Generator[Plan]:
    path = draft.arguments["path"]
    target = _compare(draft, path, draft.arguments.get("expected"))
    content = kinds.content(draft.arguments["content"])
    sequence = journal.next_sequence(draft.db)
    name = partial(_reserved, draft, path, sequence)
    with spot(draft.disk, draft.root, path, make=True) as place:
        if place is None:
            raise FileNotFoundError(path)
        folder = draft.disk.serial_of(place.folder)
        spare = Spot(folder=place.folder, name=name(SPARE).rpartition("/")[2])
        witness = Spot(folder=place.folder, name=name(WITNESS).rpartition("/")[2])
        try:
            status, number = _make_spare(draft.disk, spare, content, target.found)
            if target.found is None:
                _link(draft.disk, spare, witness)
            yield _plan(
                draft,
                sequence=sequence,
                form=Form.CREATE if target.found is None else Form.REPLACE,
                left=name(SPARE),
                right=path,
                spare=name(SPARE),
                witness=name(WITNESS) if target.found is None else "",
                folder=folder,
                mover=Identity(serial=number, sha256=digest(content)),
                displaced=_identity(target.found),
                result={
                    "path": path,
                    "sha256": digest(content),
                    "size": len(content),
                    "dev": status.st_dev,
                    "inode": status.st_ino,
                    "created": target.found is None,
                    "matched": target.matched,
                },
            )
        except BaseException:
            discard(draft.disk, spare)
            discard(draft.disk, witness)
            raise


def _make_spare(
    disk: Disk, spare: Spot, content: bytes, like: Found | None
) -> tuple[os.stat_result, str]:
    mode = MODE_NEW if like is None else MODE_SPARE
    descriptor = _create(disk, spare, mode)
    try:
        disk.write(descriptor, content)
        if like is not None:
            _hand_on(disk, descriptor, like, spare)
        disk.sync(descriptor)
        return disk.status(descriptor), disk.serial_of(descriptor)
    finally:
        os.close(descriptor)


def _create(disk: Disk, spare: Spot, mode: int) -> int:
    try:
        return disk.create_file(spare.folder, spare.name, mode)
    except FileExistsError:  # of a call that was killed before its plan was durable
        disk.unlink(spare.folder, spare.name)
        return disk.create_file(spare.folder, spare.name, mode)


def _hand_on(disk: Disk, descriptor: int, like: Found, spare: Spot) -> None:
    try:
        disk.own(descriptor, like.user, like.group, like.mode & MODE_KEPT)
    except PermissionError as error:
        raise PermissionDeniedError(
            "the file belongs to another user or group, and replacing it would change that"
        ) from error


def _link(disk: Disk, spare: Spot, witness: Spot) -> None:
    try:
        disk.link(spare.folder, spare.name, witness.name)
    except FileExistsError:  # as in `_create`
        disk.unlink(witness.folder, witness.name)
        disk.link(spare.folder, spare.name, witness.name)


def discard(disk: Disk, place: Spot) -> None:
    """Remove a spare file whose plan is not in force; what stays is cleared by a later look."""
    try:
        disk.unlink(place.folder, place.name)
    except OSError:
        return


def _delete(draft: Draft) -> Plan:
    path = draft.arguments["path"]
    target = _compare(draft, path, draft.arguments.get("expected"))
    if target.found is None:
        raise StaleObservationError(f"there is no {path!r:.200} to delete")
    sequence = journal.next_sequence(draft.db)
    spare = _reserved(draft, path, sequence, DISPLACED)
    return _plan(
        draft,
        sequence=sequence,
        form=Form.DELETE,
        left=path,
        right=spare,
        spare=spare,
        folder=_folder(draft, path),
        mover=_known(target.found),
        result={
            "path": path,
            "sha256": target.found.entry.sha256,
            "size": target.found.entry.size,
            "dev": target.found.entry.dev,
            "inode": target.found.entry.inode,
            "matched": target.matched,
        },
    )


def _move(draft: Draft) -> Plan:
    source, path = draft.arguments["source"], draft.arguments["target"]
    origin = _compare(draft, source, None)
    if origin.found is None:
        raise StaleObservationError(f"there is no {source!r:.200} to move")
    target = _compare(draft, path, draft.arguments.get("expected_target", kinds.ABSENT))
    sequence = journal.next_sequence(draft.db)
    spare = "" if target.found is None else _reserved(draft, source, sequence, DISPLACED)
    with spot(draft.disk, draft.root, path, make=True):
        folder = _folder(draft, path)
    return _plan(
        draft,
        sequence=sequence,
        form=Form.MOVE if target.found is None else Form.MOVE_OVER,
        left=source,
        right=path,
        spare=spare,
        folder=folder,
        mover=_known(origin.found),
        displaced=_identity(target.found),
        result={
            "source": source,
            "target": path,
            "sha256": origin.found.entry.sha256,
            "size": origin.found.entry.size,
            "dev": origin.found.entry.dev,
            "inode": origin.found.entry.inode,
            "replaced": None if target.found is None else target.found.entry.sha256,
            "matched": origin.matched,
        },
    )


def _plan(
    draft: Draft,
    *,
    sequence: int,
    form: Form,
    left: str,
    right: str,
    folder: str,
    mover: Identity,
    result: Json,
    spare: str = "",
    witness: str = "",
    displaced: Identity | None = None,
) -> Plan:
    asked = draft.operation
    return Plan(
        kind=asked.kind,
        run_id=asked.run_id,
        key=asked.key,
        digest=asked.digest,
        served=asked.served,
        statement=asked.statement,
        realm=patterns(asked.scope),
        account=draft.account,
        sequence=sequence,
        planned_at_ms=draft.now_ms(),
        form=form,
        left=left,
        right=right,
        spare=spare,
        witness=witness,
        folder=folder,
        mover=mover,
        displaced=displaced,
        result=result,
    )


def _reserved(draft: Draft, path: str, sequence: int, suffix: str) -> str:
    """Return a reserved path in the folder of another path."""
    folder, slash, _ = path.rpartition("/")
    return f"{folder}{slash}{draft.prefix}{sequence}.{suffix}"


def _folder(draft: Draft, path: str) -> str:
    with spot(draft.disk, draft.root, path) as place:
        if place is None:
            raise FileNotFoundError(path)
        return draft.disk.serial_of(place.folder)


def _known(found: Found) -> Identity:
    return Identity(serial=found.serial, sha256=found.entry.sha256)


def _identity(found: Found | None) -> Identity | None:
    return None if found is None else _known(found)

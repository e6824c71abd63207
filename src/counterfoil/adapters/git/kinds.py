"""The kinds of action on a repository: their arguments, checked, and what they touch.

Everything that an object of git is made of stands in the intent, so that a call that
is made again makes the same object ids.
"""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from counterfoil.adapters.git.names import (
    ABSENT,
    BRANCHES,
    TAGS,
    Person,
    check_id,
    check_person,
    check_ref,
)
from counterfoil.core.canonical import native, normalise, shaped
from counterfoil.core.errors import ContractError
from counterfoil.core.intent import KindSpec
from counterfoil.core.task import PATHS, canonical_path
from counterfoil.core.words import Json, Level, Risk, free_text, identifier

NAME = "git"
"""Name of the adapter."""

READ = "git.read"
CHECK = "git.check"
COMMIT = "git.commit"
BRANCH = "git.branch"
TAG = "git.tag"
PUSH = "git.push"

REFS = "refs"
REMOTES = "remotes"
"""Scope lists beside `paths`: full ref names, and names of remotes."""

CALL_MS = 10_000
"""Longest call within the repository: the wait for another worker, and some git commands."""

PUSH_MS = 20_000
"""Longest push by default: below the usual term of a lease."""

CHANGES_MAX = 256
"""Files of one commit: each is one more command."""

_T = TypeVar("_T")


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments, by name."""


class Read(_Strict, frozen=True, kw_only=True):
    """Look at a ref, or at a file in it; with a remote, at the ref there."""

    ref: str
    path: str = ""
    remote: str = ""


class Check(_Strict, frozen=True, kw_only=True):
    """Verify that a ref is at an object or contains it."""

    ref: str
    target: str
    remote: str = ""


class Commit(_Strict, frozen=True, kw_only=True):
    """Commit changed files on top of a parent, and move a branch there.

    Attributes:
        ref: The branch.
        parent: Commit that the changes are made to; "absent" for a first commit.
        changes: By path, the content (text or bytes), or None to delete the file.
        message: The message.
        author: Who made the changes, and when.
        committer: Who committed, and when; the author by default.
        expected: What the branch must be at, or "absent"; the parent by default.
        executable: Changed paths that are programs; other files keep their mode.
    """

    ref: str
    parent: str
    changes: dict[str, Json]
    message: str
    author: Person
    committer: Person | None = None
    expected: str = ""
    executable: tuple[str, ...] = ()


class Branch(_Strict, frozen=True, kw_only=True):
    """Create a branch, or move it forward; with `force`, anywhere."""

    ref: str
    target: str
    expected: str
    force: bool = False


class Tag(_Strict, frozen=True, kw_only=True):
    """Create a tag; with a message and a tagger an annotated one."""

    ref: str
    target: str
    message: str = ""
    tagger: Person | None = None


class Push(_Strict, frozen=True, kw_only=True):
    """Move a ref of a remote forward; with `force`, anywhere, still from `expected` only."""

    remote: str
    ref: str
    target: str
    expected: str
    force: bool = False


_SHAPES: dict[str, type[_Strict]] = {
    READ: Read,
    CHECK: Check,
    COMMIT: Commit,
    BRANCH: Branch,
    TAG: Tag,
    PUSH: Push,
}


def kinds(push_ms: int) -> tuple[KindSpec, ...]:
    """Return what the adapter declares.

    Args:
        push_ms: Longest push, in milliseconds.
    """
    return (
        _kind(READ, Risk.READ_ONLY, CALL_MS),
        _kind(CHECK, Risk.VERIFICATION, CALL_MS),
        _kind(COMMIT, Risk.REVERSIBLE_WRITE, CALL_MS),
        _kind(BRANCH, Risk.REVERSIBLE_WRITE, CALL_MS),
        _kind(TAG, Risk.REVERSIBLE_WRITE, CALL_MS),
        _kind(PUSH, Risk.IRREVERSIBLE_WRITE, push_ms),
    )


def arguments_of(shape: type[_T], arguments: dict[str, Json]) -> _T:
    """Return normalised arguments as their struct."""
    return shaped(arguments, shape, "arguments")


def content(value: Json) -> bytes:
    """Return the bytes that a changed file gets.

    Raises:
        ContractError: It is neither text nor bytes.
    """
    if isinstance(value, str):
        return value.encode("utf-8")
    raw = native(value)
    if isinstance(raw, bytes):
        return raw
    raise ContractError("arguments.changes holds what is neither text nor bytes nor null")


def _kind(name: str, risk: Risk, call_ms: int) -> KindSpec:
    return KindSpec(
        name=name,
        adapter=NAME,
        risk=risk,
        level=Level.TRANSACTIONAL,
        permission=name,
        normalise=_normaliser(name),
        touches=_touches,
        call_ms=call_ms,
        linearizable=True,
        fences=True,
        forbids=True,
    )


def _touches(arguments: dict[str, Json]) -> tuple[tuple[str, str], ...]:
    remote, path = arguments.get("remote", ""), arguments.get("path", "")
    return (
        (REFS, arguments["ref"]),
        *(((REMOTES, remote),) if remote else ()),
        *(((PATHS, path),) if path else ()),
        *((PATHS, changed) for changed in arguments.get("changes", ())),
    )


def _normaliser(kind: str) -> Callable[[dict[str, Json]], dict[str, Json]]:
    shape = _SHAPES[kind]

    def checked(arguments: dict[str, Json]) -> dict[str, Json]:
        given: dict[str, Json] = normalise(arguments, "arguments")
        _check(shaped(given, shape, "arguments"))
        return given

    return checked


def _check(given: _Strict) -> None:
    match given:
        case Read():
            _check_place(given.ref, given.remote, BRANCHES, TAGS)
            if given.path:
                canonical_path(given.path, "arguments.path")
            if given.path and given.remote:
                raise ContractError("arguments.path cannot be read from a remote, only the ref")
        case Check():
            _check_place(given.ref, given.remote, BRANCHES, TAGS)
            check_id(given.target, "arguments.target")
        case Commit():
            _check_commit(given)
        case Branch():
            _check_place(given.ref, "", BRANCHES)
            _check_move(given.target, given.expected)
        case Tag():
            _check_place(given.ref, "", TAGS)
            check_id(given.target, "arguments.target")
            _check_tagger(given)
        case Push():
            identifier(given.remote, "arguments.remote")
            _check_place(given.ref, given.remote, BRANCHES, TAGS)
            _check_move(given.target, given.expected)
        case _:
            raise ContractError("arguments are of no kind of this adapter")


def _check_place(ref: str, remote: str, *starts: str) -> None:
    check_ref(ref, "arguments.ref", *starts)
    if remote:
        identifier(remote, "arguments.remote")


def _check_move(target: str, expected: str) -> None:
    check_id(target, "arguments.target")
    check_id(expected, "arguments.expected", may_be_absent=True)
    if target == expected:
        raise ContractError("arguments.target is what is expected to be there already")


def _check_commit(given: Commit) -> None:
    check_ref(given.ref, "arguments.ref", BRANCHES)
    check_id(given.parent, "arguments.parent", may_be_absent=True)
    if given.expected:
        check_id(given.expected, "arguments.expected", may_be_absent=True)
    _check_message(given.message)
    check_person(given.author, "arguments.author")
    if given.committer is not None:
        check_person(given.committer, "arguments.committer")
    if not 1 <= len(given.changes) <= CHANGES_MAX:
        raise ContractError(f"arguments.changes holds {len(given.changes)} files, not 1 to 256")
    for path, value in given.changes.items():
        _check_path(path)
        if value is not None:
            content(value)
        elif given.parent == ABSENT:
            raise ContractError(f"arguments.changes deletes {path!r:.120} from nothing")
    _check_nesting(given.changes)
    for path in given.executable:
        if given.changes.get(path) is None:
            raise ContractError(f"arguments.executable names {path!r:.120}, which is not written")


def _check_path(path: str) -> None:
    canonical_path(path, "arguments.changes")
    if any(part.casefold().startswith((".git:", "git~")) for part in path.split("/")):
        raise ContractError(
            f"arguments.changes: {path!r:.120} has a part that git keeps for itself"
        )
    if any(part.casefold().rstrip(" .") == ".git" for part in path.split("/")):
        raise ContractError(
            f"arguments.changes: {path!r:.120} has a part that git keeps for itself"
        )


def _check_nesting(changes: dict[str, Json]) -> None:
    written = {path for path, value in changes.items() if value is not None}
    for path in written:
        above = path.rpartition("/")[0]
        while above:
            if above in written:
                raise ContractError(f"arguments.changes has {above!r:.120} as file and as folder")
            above = above.rpartition("/")[0]


def _check_message(message: str) -> None:
    free_text(message, "arguments.message")
    if not message.strip():
        raise ContractError("arguments.message is empty")


def _check_tagger(given: Tag) -> None:
    if bool(given.message) != (given.tagger is not None):
        raise ContractError("arguments.message and arguments.tagger belong together")
    if given.tagger is not None:
        _check_message(given.message)
        check_person(given.tagger, "arguments.tagger")

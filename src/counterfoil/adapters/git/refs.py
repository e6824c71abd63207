"""Refs of the repository and of remotes: read, compared and moved, always by full name."""

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from counterfoil.adapters.git import locks
from counterfoil.adapters.git.command import LOCAL_MS, Ran
from counterfoil.adapters.git.records import (
    RECORD_BYTES_MAX,
    Desk,
    Move,
    Slip,
    desk_ref,
    read_desk,
    read_slip,
    receipt_ref,
    written,
)
from counterfoil.adapters.git.site import Site, sync_folder
from counterfoil.core.errors import (
    ContractError,
    FormatError,
    PermissionDeniedError,
    UnavailableError,
)
from counterfoil.core.words import Key, RunId

HEADER_BYTES_MAX = 1024
"""What git says before the content of an object."""

BROKEN = "ignoring broken ref"
"""How git says that a ref is there and cannot be read; it ends well all the same."""

_HEADER = re.compile(rb"(blob|tree|commit|tag) ([0-9]+)")

REMOTE_BYTES_MAX = 64 * 1024
"""What a remote may say of the few refs that it is asked for."""


def read(site: Site, refs: Iterable[str]) -> dict[str, str]:
    """Return the object ids of those refs that are there.

    Raises:
        PermissionDeniedError: One is a symbolic ref: it moves another one.
        UnavailableError: They cannot be read.
    """
    wanted = sorted(set(refs))
    if not wanted:
        return {}
    ran = site.git.run("for-each-ref", "--format=%(refname) %(objectname) %(symref)", *wanted)
    if not ran.is_done or BROKEN in ran.trouble:
        raise UnavailableError(f"the refs cannot be read now: {ran.trouble:.200}")
    found: dict[str, str] = {}
    for line in ran.out.decode("utf-8", "backslashreplace").splitlines():
        ref, _, rest = line.partition(" ")
        object_id, _, symbolic = rest.partition(" ")
        if ref not in wanted:
            continue
        if symbolic:
            raise PermissionDeniedError(f"{ref} is another name of {symbolic:.120}")
        found[ref] = object_id
    return found


def read_remote(site: Site, remote: str, refs: Iterable[str], limit_ms: int) -> dict[str, str]:
    """Return the object ids of those refs that are there, at a remote.

    Raises:
        ContractError: No such remote was named when the adapter was opened.
        UnavailableError: It did not answer.
    """
    wanted = sorted(set(refs))
    url = url_of(site, remote)
    ran = site.git.run(
        "ls-remote", "--", url, *wanted, limit_ms=limit_ms, out_bytes_max=REMOTE_BYTES_MAX
    )
    if not ran.is_done:
        raise UnavailableError(f"{remote} did not answer: {ran.trouble or 'too late':.200}")
    pairs = (line.split("\t") for line in ran.out.decode("utf-8", "replace").splitlines())
    found = {pair[1]: pair[0] for pair in pairs if len(pair) == 2 and pair[1] in wanted}
    broken = [ref for ref, object_id in found.items() if not object_id.strip("0")]
    if broken:
        raise UnavailableError(f"{broken[0]} of {remote} is broken")
    return found


def url_of(site: Site, remote: str) -> str:
    """Return the URL of a remote.

    Raises:
        ContractError: No such remote was named when the adapter was opened.
    """
    url = site.remotes.get(remote)
    if url is None:
        raise ContractError(f"no remote {remote!r:.80} was named when the adapter was opened")
    return url


def blob(site: Site, raw: bytes) -> str:
    """Keep bytes as a blob, and return its id.

    Raises:
        UnavailableError: They cannot be kept.
    """
    ran = site.git.run("hash-object", "-w", "--stdin", given=raw)
    return answer_of(ran, "a blob cannot be written")


def content(site: Site, name: str, bytes_max: int) -> tuple[str, bytes] | None:
    """Return kind and bytes of an object by its id or ref; None if it is not there.

    Raises:
        ContractError: It is larger than `bytes_max`.
        UnavailableError: It cannot be read.
    """
    ran = site.git.run(
        "cat-file",
        "--batch=%(objecttype) %(objectsize)",
        given=f"{name}\n".encode(),
        out_bytes_max=bytes_max + HEADER_BYTES_MAX,
    )
    header, _, rest = ran.out.partition(b"\n")
    found = _HEADER.fullmatch(header)
    if found is None and ran.is_done:
        return None
    size = int(found[2]) if found else 0
    if size > bytes_max:
        raise ContractError(f"{name:.120} has {size} bytes, the bound is {bytes_max}")
    if found is None or not ran.is_done or len(rest) <= size:
        raise UnavailableError(f"an object cannot be read: {ran.trouble or 'too late':.200}")
    return found[1].decode("ascii"), rest[:size]


def check_absent(site: Site, object_id: str, path: str) -> None:
    """Hold that a path is not in a commit: git says "missing" of lost content alike.

    Raises:
        UnavailableError: The path is there, or an object on the way to it is gone.
    """
    ran = site.git.run("ls-tree", "-z", object_id, "--", path)
    if not ran.is_done or ran.out:
        raise UnavailableError(f"the content of {path!r:.120} in {object_id} cannot be read")


def desk(site: Site, run_id: RunId) -> Desk | None:
    """Return what the repository remembers of a run.

    Raises:
        FormatError: It is not what we wrote.
        UnavailableError: It cannot be read.
    """
    raw = _record(site, desk_ref(run_id))
    return None if raw is None else read_desk(raw)


def slip(site: Site, key: Key) -> Slip | None:
    """Return what stands under a key in this repository.

    Raises:
        FormatError: It is not what we wrote.
        UnavailableError: It cannot be read.
    """
    raw = _record(site, receipt_ref(key))
    return None if raw is None else read_slip(raw)


def _record(site: Site, ref: str) -> bytes | None:
    """Return what a ref of ours names; None only when the ref is not there.

    Git says "missing" of a ref that is not there and of one whose blob is gone alike.

    Raises:
        FormatError: The ref is there, and what it names is gone or is none of ours.
        UnavailableError: It cannot be read.
    """
    raw = _blob_of(site, ref)
    if raw is not None:
        return raw
    object_id = read(site, (ref,)).get(ref)
    if object_id is None:
        return None
    raw = _blob_of(site, object_id)
    if raw is None:
        raise FormatError(f"a record of ours: {ref} is there, and the blob it names is gone")
    return raw


def _blob_of(site: Site, name: str) -> bytes | None:
    try:
        found = content(site, name, RECORD_BYTES_MAX)
    except ContractError as error:
        raise FormatError(f"a record of ours: {error.message}") from error
    if found is not None and found[0] != "blob":
        raise FormatError(f"a record of ours: {name} is a {found[0]}, no blob")
    return None if found is None else found[1]


def remote_slip(site: Site, remote: str, object_id: str, key: Key, limit_ms: int) -> Slip:
    """Return what stands under a key at a remote, whose ref is at `object_id`.

    Raises:
        FormatError: It is not what we wrote.
        UnavailableError: It cannot be fetched.
    """
    raw = _blob_of(site, object_id)
    if raw is None:
        words = ("--no-write-fetch-head", "--no-tags", "--no-recurse-submodules", "--refmap=")
        ran = site.git.run(
            "fetch", *words, "--", url_of(site, remote), receipt_ref(key), limit_ms=limit_ms
        )
        raw = _blob_of(site, object_id) if ran.is_done else None
    if raw is None:
        raise UnavailableError(f"the receipt at {remote} cannot be fetched now")
    return read_slip(raw)


def contains(site: Site, object_id: str, ancestor: str) -> bool | None:
    """Return whether a commit contains another; None when that cannot be told from here."""
    ran = site.git.run("merge-base", "--is-ancestor", ancestor, object_id)
    return {0: True, 1: False}.get(-1 if ran.code is None else ran.code)


def set_desk(site: Site, kept: Desk, holder: int) -> str:
    """Write the desk of a run, and return the id of its blob; the lock is held.

    Raises:
        UnavailableError: It cannot be written now.
    """
    object_id = blob(site, written(kept))
    _set(site, desk_ref(kept.run_id), object_id, holder)
    return object_id


def set_slip(site: Site, key: Key, kept: Slip, holder: int) -> None:
    """Put something under a key that nothing stands under; the lock is held.

    Raises:
        UnavailableError: It cannot be written now.
    """
    _set(site, receipt_ref(key), blob(site, written(kept)), holder)


def _set(site: Site, ref: str, object_id: str, holder: int) -> None:
    ran = transaction(site, (f"update {ref} {object_id}",), holder)
    if not ran.is_done:
        raise hindrance(site, (ref,), ran.trouble)
    make_durable(site, (object_id,), (ref,))


def hindrance(site: Site, moved: tuple[str, ...], trouble: str) -> UnavailableError:
    """Return why refs cannot be moved now, with the age and owner of every lock there."""
    standing = [
        lock for lock in locks.standing(site, moved) if not lock.path.endswith("index.lock")
    ]
    if not standing:
        return UnavailableError(f"{moved[0]} cannot be moved now: {trouble:.200}")
    said = "; ".join(locks.described(site, lock) for lock in standing)
    return UnavailableError(
        f"another git has locked {moved[0]}: {said}",
        move="let it finish; if nobody is at work there, remove that file yourself",
    )


def transaction(site: Site, lines: Iterable[str], holder: int) -> Ran:
    """Run one ref transaction: every comparison holds, or nothing is changed.

    Git locks all refs, compares, and then renames one after the other in the order of
    the lines. What a kill in between leaves behind is settled by `settling`.
    """
    words = "".join(f"{line}\n" for line in ("start", *lines, "prepare", "commit"))
    return site.git.run(
        "update-ref",
        "-m",
        "counterfoil",
        "--stdin",
        given=words.encode(),
        limit_ms=LOCAL_MS,
        kept=(holder,),
    )


def make_durable(site: Site, objects: Iterable[str], refs: Iterable[str]) -> None:
    """Make the names of objects and refs durable: git does so for their content only.

    Raises:
        UnavailableError: They cannot be made durable; the refs are moved all the same.
    """
    folders: set[Path] = {site.common / "objects"}
    folders |= {site.common / "objects" / object_id[:2] for object_id in objects}
    for ref in refs:
        place = (site.common / ref).parent
        while place != site.common:
            folders.add(place)
            place = place.parent
    try:
        for folder in sorted(folders):
            with suppress(FileNotFoundError):  # packed meanwhile, by a git that sees to it itself
                sync_folder(folder)
    except OSError as error:
        name = os.strerror(error.errno or 0)
        raise UnavailableError(f"the refs cannot be made durable ({name})") from error


def compared(move: Move) -> str:
    """Return the line of a transaction that moves a ref from where it must be."""
    if move.old:
        return f"update {move.ref} {move.new} {move.old}"
    return f"create {move.ref} {move.new}"


def scoped(scope: Mapping[str, tuple[str, ...]], name: str) -> tuple[str, ...]:
    """Return one list of a scope, each entry once and in order."""
    return tuple(sorted(set(scope.get(name, ()))))


def answer_of(ran: Ran, what: str) -> str:
    """Return the one line that a command printed.

    Raises:
        UnavailableError: It ended otherwise.
    """
    if not ran.is_done:
        raise UnavailableError(f"{what}: {ran.trouble or 'it took too long':.200}")
    return ran.out.decode("utf-8", "backslashreplace").strip()

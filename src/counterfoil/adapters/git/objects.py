"""Objects of git, made from an intent alone: the same intent gives the same ids.

Trees are built in a private index, blob by blob; nothing is checked out, no filter runs,
and no file of the working tree or index of the user is opened.
"""

import secrets
from contextlib import suppress

from counterfoil.adapters.git import kinds, refs
from counterfoil.adapters.git.names import ABSENT, Person, raw_date
from counterfoil.adapters.git.refs import answer_of
from counterfoil.adapters.git.site import INDEX_START, Site
from counterfoil.core.errors import (
    PermissionDeniedError,
    StaleObservationError,
    UnavailableError,
)

FILE = "100644"
PROGRAM = "100755"
TREE = "tree"
_PLAIN = (FILE, PROGRAM)

WORDS_BYTES_MAX = 64 * 1024
"""Paths that one command is given: what a kernel takes of arguments is a few times more."""

TREE_BYTES_MAX = 4 * 1024 * 1024
"""What is read of a tree: the changed files and the folders above them."""


def commit(site: Site, given: kinds.Commit) -> str:
    """Make the commit of an intent, and return its id.

    Raises:
        PermissionDeniedError: A path leads over a link, a submodule or a file.
        StaleObservationError: The parent is not here, or a file to delete is not in it.
        UnavailableError: It cannot be made now.
    """
    parent = None if given.parent == ABSENT else given.parent
    if parent is not None:
        _check_kind(site, parent, "commit")
    tree = _tree(site, parent, given)
    committer = given.committer or given.author
    ran = site.git.run(
        "commit-tree",
        tree,
        *(("-p", parent) if parent else ()),
        "-F",
        "-",
        given=f"{given.message}\n".encode(),
        extra=_signed("AUTHOR", given.author) | _signed("COMMITTER", committer),
    )
    return answer_of(ran, "the commit cannot be made")


def tag(site: Site, given: kinds.Tag) -> str:
    """Return what the tag of an intent is to be at: its target, or an object of its own.

    Raises:
        StaleObservationError: The target is not here.
        UnavailableError: It cannot be made now.
    """
    kind = kind_of(site, given.target)
    if given.tagger is None:
        return given.target
    tagger = given.tagger
    name = given.ref.removeprefix("refs/tags/")
    when = raw_date(tagger.date, "arguments.tagger.date")
    text = (
        f"object {given.target}\ntype {kind}\ntag {name}\n"
        f"tagger {tagger.name} <{tagger.email}> {when}\n\n{given.message}\n"
    )
    ran = site.git.run("mktag", "--strict", given=text.encode())
    return answer_of(ran, "the tag cannot be made")


def kind_of(site: Site, object_id: str) -> str:
    """Return the kind of an object.

    Raises:
        StaleObservationError: It is not here.
        UnavailableError: It cannot be read now.
    """
    ran = site.git.run("cat-file", "--batch-check=%(objecttype)", given=f"{object_id}\n".encode())
    kind = answer_of(ran, "an object cannot be read")
    if kind not in ("commit", "tag", "tree", "blob"):
        raise StaleObservationError(f"the object {object_id} is not in the repository")
    return kind


def _check_kind(site: Site, object_id: str, wanted: str) -> None:
    kind = kind_of(site, object_id)
    if kind != wanted:
        raise StaleObservationError(f"the object {object_id} is a {kind}, not a {wanted}")


def check_commit(site: Site, object_id: str) -> None:
    """Refuse what a branch cannot be at.

    Raises:
        StaleObservationError: It is no commit of the repository.
        UnavailableError: It cannot be read now.
    """
    _check_kind(site, object_id, "commit")


def _signed(role: str, person: Person) -> dict[str, str]:
    return {
        f"GIT_{role}_NAME": person.name,
        f"GIT_{role}_EMAIL": person.email,
        f"GIT_{role}_DATE": f"@{raw_date(person.date, 'date')}",
    }


def _tree(site: Site, parent: str | None, given: kinds.Commit) -> str:
    """Return the tree of the parent with the changes made to it."""
    modes = _modes(site, parent, tuple(given.changes))
    lines: list[bytes] = []
    for path, value in given.changes.items():
        if value is None:
            if path not in modes:
                raise StaleObservationError(f"{path!r:.200} is not there to be deleted")
            lines.append(f"0 {'0' * len(given.parent)}\t{path}".encode())
            continue
        usual = modes.get(path, FILE)
        mode = PROGRAM if path in given.executable else usual
        if mode not in _PLAIN:
            raise PermissionDeniedError(f"{path!r:.200} is a link, and is not written")
        object_id = refs.blob(site, kinds.content(value))
        lines.append(f"{mode} {object_id}\t{path}".encode())
    return _written(site, parent, b"\0".join(lines) + b"\0")


def _written(site: Site, parent: str | None, lines: bytes) -> str:
    name = f"{INDEX_START}{secrets.token_hex(8)}"
    index = {"GIT_INDEX_FILE": str(site.private / name)}
    try:
        if parent is not None:
            ran = site.git.run("read-tree", f"{parent}^{{tree}}", extra=index)
            answer_of(ran, "the tree of the parent cannot be read")
        ran = site.git.run("update-index", "-z", "--index-info", given=lines, extra=index)
        answer_of(ran, "the changes cannot be put into a tree")
        return answer_of(site.git.run("write-tree", extra=index), "the tree cannot be written")
    finally:
        with suppress(FileNotFoundError):
            (site.private / name).unlink()


def _modes(site: Site, parent: str | None, paths: tuple[str, ...]) -> dict[str, str]:
    """Return the modes of those paths that are files or links in the parent.

    Raises:
        PermissionDeniedError: Something above a path is no folder, or a path is one.
    """
    if parent is None:
        return {}
    above = {path[:at] for path in paths for at, char in enumerate(path) if char == "/"}
    modes: dict[str, str] = {}
    for batch in _batches((*paths, *above)):
        ran = site.git.run(
            "ls-tree", "-z", "-t", parent, "--", *batch, out_bytes_max=TREE_BYTES_MAX
        )
        if not ran.is_done:
            raise UnavailableError(f"the parent cannot be read: {ran.trouble:.200}")
        for line in ran.out.decode("utf-8", "surrogateescape").split("\0"):
            head, _, path = line.partition("\t")
            mode, kind, *_ = (*head.split(" "), "")
            if path in above and kind != TREE:
                raise PermissionDeniedError(f"{path!r:.200} is no folder, and stays what it is")
            if path in paths and kind != "blob":
                raise PermissionDeniedError(f"{path!r:.200} is a {kind}, and stays what it is")
            if path in paths:
                modes[path] = mode
    return modes


def _batches(words: tuple[str, ...]) -> list[list[str]]:
    """Return the words in lists that fit into the arguments of one command."""
    batches: list[list[str]] = [[]]
    size = 0
    for word in words:
        size += len(word.encode())
        if size > WORDS_BYTES_MAX:
            batches.append([])
            size = len(word.encode())
        batches[-1].append(word)
    return batches

"""What of a repository and its remotes is the environment, in one exact state.

The refs that the scope names, here and at each remote that it names. The version is
made from the fingerprint, so two states with one version have one content.
"""

from collections.abc import Mapping
from typing import TypeAlias

from counterfoil.adapters.git import kinds, locks, refs
from counterfoil.adapters.git.names import BRANCHES, TAGS, check_ref
from counterfoil.adapters.git.records import Move
from counterfoil.adapters.git.site import Site, guard
from counterfoil.core.canonical import canonical, digest
from counterfoil.core.intent import EnvironmentState
from counterfoil.core.words import Json

Places: TypeAlias = dict[str, dict[str, str]]
"""By remote, with "" for the repository, the object ids of refs by name."""

VERSION_DIGITS = 13
"""Hexadecimal digits of a version: 52 bits, which every JSON reader keeps exactly."""

HERE = ""


def look(site: Site, scope: Mapping[str, tuple[str, ...]], limit_ms: int) -> Places:
    """Return where the refs of a scope are, here and at each remote of the scope.

    Raises:
        ConfigError: The repository is not one that can be used safely.
        ContractError: The scope names no ref, or a remote that was not named at opening.
        PermissionDeniedError: A ref is another name of one.
        UnavailableError: Something did not answer.
    """
    guard(site)
    names = refs.scoped(scope, kinds.REFS)
    for name in names:
        check_ref(name, "refs", BRANCHES, TAGS)
    found = {HERE: refs.read(site, names)}
    for remote in refs.scoped(scope, kinds.REMOTES):
        refs.url_of(site, remote)
        found[remote] = refs.read_remote(site, remote, names, limit_ms) if names else {}
    return found


def state_of(site: Site, places: Places, account: str) -> EnvironmentState:
    """Return the state in which the refs are at these places."""
    fingerprint = digest(canonical(places))
    return EnvironmentState(
        adapter=kinds.NAME,
        instance=site.instance,
        version=int(fingerprint[:VERSION_DIGITS], 16),
        fingerprint=fingerprint,
        account=account,
    )


def moved(places: Places, move: Move, names: tuple[str, ...]) -> Places:
    """Return where the refs are after a move."""
    after = {place: dict(found) for place, found in places.items()}
    if move.ref in names and move.remote in after:
        after[move.remote][move.ref] = move.new
    return after


def facts(site: Site, places: Places) -> dict[str, Json]:
    """Return what a task may expect: each ref by name, behind its remote; and locks."""
    named: dict[str, Json] = {
        f"{remote} {ref}".strip(): object_id
        for remote, found in places.items()
        for ref, object_id in found.items()
    }
    standing = locks.standing(site, places[HERE])
    named["locks"] = [
        {"path": lock.path, "owner": lock.owner, "since_ms": lock.since_ms} for lock in standing
    ]
    return named

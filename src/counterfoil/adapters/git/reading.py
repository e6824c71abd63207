"""What can be read and checked of refs; nothing here changes anything."""

from counterfoil.adapters.git import kinds, refs
from counterfoil.adapters.git.site import Site
from counterfoil.adapters.git.state import Places
from counterfoil.core.errors import ContractError, UnavailableError
from counterfoil.core.words import Json

FILE_BYTES_MAX = 1024 * 1024
"""A file that is read; larger ones are for other tools."""


def read(site: Site, given: kinds.Read, places: Places) -> dict[str, Json]:
    """Return the object id of a ref, and the content of a file in it where one is named.

    Content is text where it is UTF-8, and bytes otherwise; None for what is not there.

    Raises:
        ContractError: The remote is not one of the scope, or the path is no file of at
            most `FILE_BYTES_MAX` bytes.
        UnavailableError: It cannot be read now.
    """
    object_id = _at(places, given.ref, given.remote)
    answer: dict[str, Json] = {"ref": given.ref, "id": object_id}
    if not given.path:
        return answer
    answer["content"] = None
    found = refs.content(site, f"{object_id}:{given.path}", FILE_BYTES_MAX) if object_id else None
    if found is None and object_id:
        refs.check_absent(site, object_id, given.path)
    if found is not None:
        kind, raw = found
        if kind != "blob":
            raise ContractError(f"arguments.path {given.path!r:.120} is a {kind}, no file")
        answer["content"] = _text_or_bytes(raw)
    return answer


def check(site: Site, given: kinds.Check, places: Places) -> dict[str, Json]:
    """Return whether a ref is at an object or contains it.

    Raises:
        ContractError: The remote is not one of the scope.
        UnavailableError: That cannot be told: what the remote is at is not here.
    """
    at = _at(places, given.ref, given.remote)
    passed: bool | None = at == given.target
    if at is not None and not passed:
        passed = refs.contains(site, at, given.target)
    if passed is None:
        raise UnavailableError(
            f"{given.ref} is at {at}, and whether that contains {given.target} cannot be told here"
        )
    return {"passed": passed, "ref": given.ref, "id": at}


def _at(places: Places, ref: str, remote: str) -> str | None:
    found = places.get(remote)
    if found is None:
        raise ContractError(f"arguments.remote {remote!r:.80} is not in the scope")
    return found.get(ref)


def _text_or_bytes(raw: bytes) -> Json:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw

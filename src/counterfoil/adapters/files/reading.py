"""Looking at the environment: at all of a scope, or at one file of it.

What is seen is recorded at once. So a state that this module returns is the state that
the next look returns, unless something changes between them.
"""

from functools import partial

from counterfoil.adapters.files import catalog, kinds
from counterfoil.adapters.files.draft import WITNESS
from counterfoil.adapters.files.journal import next_sequence, transaction, translated
from counterfoil.adapters.files.look import Found, examine, spot
from counterfoil.adapters.files.realm import FILE, Entry
from counterfoil.adapters.files.scan import Scan, scan
from counterfoil.adapters.files.settling import state
from counterfoil.adapters.files.site import Site, file_time_ns, leftover
from counterfoil.core.bounds import RESULT_BYTES_MAX
from counterfoil.core.canonical import encode, storable
from counterfoil.core.errors import UnavailableError
from counterfoil.core.intent import EnvironmentState
from counterfoil.core.words import Json
from counterfoil.ports import Observation


def observe(site: Site, patterns: tuple[str, ...], account: str) -> Observation:
    """Look at everything under some scope entries and record what changed.

    Raises:
        UnavailableError: Too many objects, or the journal fails.
        OSError: Something cannot be read.
    """
    with translated("observing"):
        known = catalog.entries(site.db, patterns)
        clears = partial(_is_leftover, prefix=leftover(site), sequence=next_sequence(site.db))
    look = Scan(
        disk=site.disk,
        root=site.root,
        known=known,
        started_ns=file_time_ns(site),
        clears=clears,
    )
    seen = scan(look, patterns)
    changes = {path: seen.get(path) for path in known | seen if known.get(path) != seen.get(path)}
    with translated("observing"):
        is_known = catalog.state(site.db, patterns) is not None
        is_recorded = is_known and not changes and catalog.is_newest(site.db, patterns)
    if not is_recorded:
        with transaction(site.db, "observing"):
            catalog.change(site.db, changes)
            if not is_known:
                catalog.add_realm(site.db, patterns, seen)
            catalog.use(site.db, patterns)
    facts = {_shown(path): _fact(entry) for path, entry in seen.items()}
    return Observation(state=_state(site, patterns, account), facts=facts)


def _is_leftover(name: str, *, prefix: str, sequence: int) -> bool:
    """Return whether a reserved name holds what only a killed call of ours can have put there.

    Before its plan a call leaves its content, under the number of the plan to come; a
    witness is always ours. Under other names there may be what others wrote.
    """
    is_witness = name.startswith(prefix) and name.endswith(f".{WITNESS}")
    return is_witness or name.startswith(f"{prefix}{sequence}.")


def _shown(path: str) -> str:
    """Return a path as text; one that is no UTF-8 shows its bytes, and cannot be addressed."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _fact(entry: Entry) -> str:
    return entry.sha256 if entry.kind == FILE else f"{entry.kind}:{entry.sha256}"


def _state(site: Site, patterns: tuple[str, ...], account: str) -> EnvironmentState:
    with translated("observing"):
        standing = state(site, patterns, account)
    if standing is None:
        raise UnavailableError("the journal of files lost what was just observed")
    return standing


def read(
    site: Site, arguments: dict[str, Json], patterns: tuple[str, ...], account: str
) -> tuple[Json, EnvironmentState]:
    """Return what one file holds, and the state with it.

    A file that is not there has the digest "absent". Content that is no UTF-8, or is
    asked for as bytes, is bytes. Content that does not fit into a result is left out
    whole; `reference` names it then.

    Raises:
        PermissionDeniedError: The path leads over a link, or to no regular file.
        UnavailableError: The file keeps changing, or the journal fails.
        OSError: It cannot be read.
    """
    with translated("reading"):
        is_known = catalog.state(site.db, patterns) is not None
    if not is_known:
        observe(site, patterns, account)
    path = arguments["path"]
    with spot(site.disk, site.root, path) as place:
        found = None
        if place is not None:
            found = examine(site.disk, place, path, bytes_max=RESULT_BYTES_MAX)
    with translated("reading"):
        known = catalog.entry(site.db, path)
    held = None if found is None else found.entry.sha256
    if held != (None if known is None else known.sha256):
        with transaction(site.db, "reading"):
            catalog.change(site.db, {path: None if found is None else found.entry})
    result = _result(path, found, arguments.get("encoding", kinds.TEXT))
    return result, _state(site, patterns, account)


def _result(path: str, found: Found | None, encoding: Json) -> Json:
    if found is None:
        return {"path": path, "sha256": kinds.ABSENT, "size": 0, "content": None}
    head: dict[str, Json] = {
        "path": path,
        "sha256": found.entry.sha256,
        "size": found.entry.size,
    }
    if found.content is not None:
        whole = head | {"content": _content(found.content, encoding)}
        if len(encode(storable(whole))) <= RESULT_BYTES_MAX:
            return whole
    return head | {"reference": f"{path}@sha256:{found.entry.sha256}"}


def _content(raw: bytes, encoding: Json) -> str | bytes:
    if encoding == kinds.BYTES:
        return raw
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw

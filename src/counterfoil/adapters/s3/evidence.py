"""What became of a call, read from the bucket: ours, standing, other.

An object of ours names our run, key and intent, and holds what the intent says. An
object that is as it was before the call stands. Whatever else is there is another's,
and says nothing about whether ours was there before.
"""

from datetime import UTC, datetime
from enum import Enum, auto
from typing import NamedTuple

from counterfoil.adapters.s3 import kinds
from counterfoil.adapters.s3.objects import (
    Entry,
    Seen,
    as_metadata,
    listing,
    look,
    state_digest,
    versions,
)
from counterfoil.adapters.s3.records import Held, Note, Stage
from counterfoil.adapters.s3.site import Site, as_state
from counterfoil.core.bounds import ARGUMENTS_BYTES_MAX
from counterfoil.core.canonical import canonical, digest
from counterfoil.core.intent import EnvironmentState, KindSpec
from counterfoil.core.receipt import ABSENT, Answer, LookUp, Receipt, found, unknown
from counterfoil.core.words import RunId

RUN, KEY, INTENT, FENCE, SHA256 = (
    f"counterfoil-{name}" for name in ("run", "key", "intent", "fence", "sha256")
)
"""Names of metadata."""


class Trace(Enum):
    """What an object says of a call."""

    OURS = auto()
    CHANGED = auto()
    STANDING = auto()
    OTHER = auto()


class Evidence(NamedTuple):
    """What was found, the object that shows it, and a sentence for people."""

    trace: Trace
    seen: Seen
    finding: str = ""


class Effect(NamedTuple):
    """What a receipt says of the object: its ETag, its version, and the moment in seconds."""

    etag: str
    version: str
    at: int


def metadata_of(note: Note) -> dict[str, str]:
    """Return what an object of ours carries: run, key, intent digest, fence, content digest."""
    told = {
        RUN: as_metadata(note.run_id),
        KEY: as_metadata(note.key),
        INTENT: note.digest,
        FENCE: f"{note.fence.lease_version}:{as_metadata(note.fence.nonce)}",
    }
    return told | ({SHA256: note.sha256} if note.sha256 else {})


def gathered(site: Site, note: Note) -> Evidence:
    """Look at the object of a call, and where it is not ours at its earlier versions.

    Raises:
        UnavailableError: They cannot be looked at.
    """
    name = site.object(note.path)
    bytes_max = ARGUMENTS_BYTES_MAX if note.kind == kinds.PUT else -1
    seen = look(site.wire, name, bytes_max=bytes_max)
    if note.kind != kinds.DELETE:
        if _is_named(note, seen):
            return _judged(note, seen)
        for version in versions(site.wire, name):
            earlier = look(site.wire, name, version=version, bytes_max=bytes_max)
            if _is_named(note, earlier):
                return replace_seen(_judged(note, earlier), seen.at)
    if seen.etag == note.replaces and seen.modified == note.replaces_at:
        return Evidence(Trace.STANDING, seen)
    return Evidence(Trace.OTHER, seen, _finding(note, seen))


def is_named(site: Site, note: Note) -> bool:
    """Return whether an object names the intent of a call, whatever it holds.

    Raises:
        UnavailableError: It cannot be looked at.
    """
    return gathered(site, note).trace in (Trace.OURS, Trace.CHANGED)


def replace_seen(evidence: Evidence, at: int) -> Evidence:
    """Return evidence from an earlier version, as of the moment of the first look."""
    seen = evidence.seen
    dated = Seen(etag=seen.etag, version=seen.version, modified_at=seen.modified_at, at=at)
    return Evidence(evidence.trace, dated, evidence.finding)


def answered(site: Site, spec: KindSpec, held: Held, run_id: RunId) -> LookUp:
    """Return what a key's record and its object say together.

    Absent is said only when no call of this key can land any more.

    Raises:
        UnavailableError: The object cannot be looked at.
    """
    note = held.note
    if note is None:
        return ABSENT
    if note.receipt is not None:
        is_ours = note.run_id == run_id
        answer = Answer.FOUND if is_ours else Answer.FOUND_OTHER
        return LookUp(answer=answer, receipt=note.receipt)
    if note.run_id != run_id:
        return LookUp(answer=Answer.FOUND_OTHER, reason="the key belongs to another run")
    if note.stage is Stage.FORBIDDEN or not note.until:
        return ABSENT
    evidence = gathered(site, note)
    match evidence.trace:
        case Trace.OURS:
            seen = evidence.seen
            return found(receipt_of(site, spec, note, effect_of(seen)))
        case Trace.CHANGED:
            return LookUp(answer=Answer.FOUND_OTHER, reason=evidence.finding)
        case Trace.STANDING | Trace.OTHER if may_land(site, note, evidence.seen.at):
            ends_at = datetime.fromtimestamp(note.until + site.times.landing_s, UTC)
            return unknown(f"a call may still land until {ends_at:%Y-%m-%d %H:%M:%S} UTC")
        case Trace.STANDING:
            return ABSENT
        case Trace.OTHER:
            return LookUp(answer=Answer.FOUND_OTHER, reason=evidence.finding)


def may_land(site: Site, note: Note, at: int) -> bool:
    """Return whether a call may still land after a moment by the service's clock."""
    return bool(note.until) and at <= note.until + site.times.landing_s


def effect_of(seen: Seen) -> Effect:
    """Return what a receipt says of an object of ours."""
    return Effect(etag=seen.etag, version=seen.version, at=seen.modified_at)


def receipt_of(site: Site, spec: KindSpec, note: Note, effect: Effect) -> Receipt:
    """Return the receipt of a call that has landed.

    Raises:
        UnavailableError: The state after it cannot be seen.
    """
    result = {"path": note.path, "etag": effect.etag, "version": effect.version}
    return Receipt(
        id=digest(canonical([note.run_id, note.key])),
        adapter=kinds.NAME,
        kind=note.kind,
        run_id=note.run_id,
        key=note.key,
        digest=note.digest,
        level=spec.level,
        poststate=_poststate(site, note, effect.etag),
        committed_at_ms=effect.at * 1000,
        served=note.served,
        statement=note.statement,
        result=result,
    )


def rest_digest(entries: tuple[Entry, ...], path: str) -> str:
    """Return the digest of a listing without one path."""
    return state_digest([each for each in entries if each.path != path])


def _poststate(site: Site, note: Note, etag: str) -> EnvironmentState:
    """Return the state right after the call.

    Where somebody else changed the environment since, it is a state that nobody will
    observe again, so that the change shows as drift.
    """
    entries = listing(site.wire, site.prefix, note.paths) or ()
    standing = next((each.etag for each in entries if each.path == note.path), "")
    if standing == etag and rest_digest(entries, note.path) == note.rest:
        return as_state(site, state_digest(entries))
    return as_state(site, digest(canonical(["moved on", note.rest, note.path, etag])))


def _is_named(note: Note, seen: Seen) -> bool:
    ours = metadata_of(note)
    return all(seen.metadata.get(name) == ours[name] for name in (RUN, KEY, INTENT))


def _judged(note: Note, seen: Seen) -> Evidence:
    """Hold an object that claims to be ours to what the intent says of its content."""
    if note.kind == kinds.PUT:
        held = "larger" if seen.content is None else digest(seen.content)
        if held != note.sha256:
            finding = f"{note.path!r:.200} names our intent and holds {held}, not {note.sha256}"
            return Evidence(Trace.CHANGED, seen, finding)
    elif seen.size != note.size:
        finding = f"{note.path!r:.200} names our intent, with {seen.size} bytes, not {note.size}"
        return Evidence(Trace.CHANGED, seen, finding)
    return Evidence(Trace.OURS, seen)


def _finding(note: Note, seen: Seen) -> str:
    if note.kind == kinds.DELETE and not seen.etag:
        return f"{note.path!r:.200} is gone, and nothing says who deleted it"
    there = f"holds {seen.etag}" if seen.etag else "is gone"
    return f"{note.path!r:.200} {there}: another writer was there, before or after our call"

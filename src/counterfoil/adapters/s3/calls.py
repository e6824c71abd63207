"""The requests that have an effect: what each is conditional on, and what it carries.

Every one is conditional on the object as it was before: on its ETag, or on its absence.
"""

import base64
import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from counterfoil.adapters.s3 import kinds
from counterfoil.adapters.s3.evidence import metadata_of, rest_digest
from counterfoil.adapters.s3.objects import Seen, look, paths_of
from counterfoil.adapters.s3.records import Note, Stage
from counterfoil.adapters.s3.site import Site, state
from counterfoil.adapters.s3.wire import Signed
from counterfoil.core.canonical import digest
from counterfoil.core.errors import PermissionDeniedError, StaleObservationError
from counterfoil.core.intent import KindSpec
from counterfoil.core.task import PATHS, covers
from counterfoil.core.words import Json
from counterfoil.ports import Operation

COPY_BYTES_MAX = 5 * 1024**3
"""An object that S3 copies in one request."""

Arguments = dict[str, Json]


class Part(NamedTuple):
    """One part of an upload as the service has it."""

    number: int
    etag: str


class Plan(NamedTuple):
    """A call that is ready to be signed.

    Attributes:
        note: What will be on record.
        source: The object that is copied; empty for other kinds.
    """

    note: Note
    source: Seen = Seen()


def planned(site: Site, spec: KindSpec, operation: Operation, arguments: Arguments) -> Plan:
    """Hold a call to scope, prestate and expectation, and return it as a plan.

    Raises:
        ContractError: The scope holds a path that is not canonical.
        PermissionDeniedError: It touches what the scope does not cover, or too large a source.
        StaleObservationError: The environment, or an object, is not the expected one.
        UnavailableError: It cannot be looked at.
    """
    check_scope(spec, operation, arguments)
    paths = paths_of(operation.scope)
    now, entries = state(site, paths)
    if now != operation.prestate:
        raise _stale(operation, "the objects are not those that the call was built on")
    path = arguments["path"]
    target = look(site.wire, site.object(path))
    _expect(operation, path, target, arguments.get("expected"))
    note = Note(
        stage=Stage.OPEN,
        run_id=operation.run_id,
        key=operation.key,
        kind=operation.kind,
        digest=operation.digest,
        fence=operation.fence,
        served=operation.served,
        statement=operation.statement,
        paths=paths,
        path=path,
        replaces=target.etag,
        replaces_at=target.modified,
        rest=rest_digest(entries, path),
    )
    match operation.kind:
        case kinds.PUT:
            raw = kinds.content(arguments["content"])
            return Plan(replace(note, sha256=digest(raw), size=len(raw)))
        case kinds.COPY:
            source = _source(site, operation, arguments)
            return Plan(replace(note, size=source.size), source)
        case kinds.DELETE if not target.etag:
            raise _stale(operation, f"{path!r:.200} is not there")
        case _:
            return Plan(note)


def signed(site: Site, plan: Plan, arguments: Arguments) -> Signed:
    """Return the request of a plan, which the service accepts for `site.times.lasts_s`.

    Raises:
        UnavailableError: There are no credentials at hand.
    """
    note = plan.note
    place = {"Key": site.object(note.path)}
    condition = {"IfMatch": f'"{note.replaces}"'} if note.replaces else {"IfNoneMatch": "*"}
    members: dict[str, Json] = place | condition
    match note.kind:
        case kinds.PUT:
            md5 = hashlib.md5(kinds.content(arguments["content"]), usedforsecurity=False)
            members["ContentMD5"] = base64.b64encode(md5.digest()).decode()
            return site.wire.sign(
                "put_object", site.times.lasts_s, **members, **carried(note, arguments)
            )
        case kinds.COPY:
            return site.wire.sign(
                "copy_object",
                site.times.lasts_s,
                **members,
                CopySource={"Bucket": site.wire.bucket, "Key": site.object(arguments["source"])},
                CopySourceIfMatch=f'"{plan.source.etag}"',
                MetadataDirective="REPLACE",
                Metadata={**_foreign(plan.source), **metadata_of(note)},
                **plan.source.carried,
            )
        case kinds.UPLOAD:
            upload = {"UploadId": note.upload}
            return site.wire.sign(
                "complete_multipart_upload", site.times.lasts_s, **members, **upload
            )
        case _:
            return site.wire.sign("delete_object", site.times.lasts_s, **members)


def body(note: Note, arguments: Arguments, parts: Sequence[Part]) -> bytes:
    """Return what is sent along with a request."""
    if note.kind == kinds.PUT:
        return kinds.content(arguments["content"])
    if note.kind != kinds.UPLOAD:
        return b""
    return completion(parts)


def completion(parts: Sequence[Part]) -> bytes:
    """Return what completes an upload."""
    listed = "".join(
        f"<Part><PartNumber>{part.number}</PartNumber><ETag>{part.etag}</ETag></Part>"
        for part in parts
    )
    name = "CompleteMultipartUpload"
    return f'<{name} xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{listed}</{name}>'.encode()


def carried(note: Note, arguments: Arguments) -> dict[str, Json]:
    """Return the metadata and the content type of an object that is written."""
    kind = {"ContentType": arguments["content_type"]} if "content_type" in arguments else {}
    return {"Metadata": metadata_of(note), **kind}


def check_scope(spec: KindSpec, operation: Operation, arguments: Arguments) -> None:
    """Refuse what the policy's lists do not cover.

    Raises:
        PermissionDeniedError: Names what it is.
    """
    for name, value in spec.touches(arguments):
        entries = operation.scope.get(name, ())
        is_path = name == PATHS
        if not any(covers(each, value) if is_path else each == value for each in entries):
            raise PermissionDeniedError(
                f"{value!r:.200} is outside {name} of the scope", operation.run_id, operation.key
            )


def _source(site: Site, operation: Operation, arguments: Arguments) -> Seen:
    path = arguments["source"]
    source = look(site.wire, site.object(path))
    if not source.etag:
        raise _stale(operation, f"{path!r:.200} is not there")
    if arguments.get("expected_source", source.etag) != source.etag:
        raise _stale(operation, f"{path!r:.200} has the ETag {source.etag}")
    if source.size > COPY_BYTES_MAX:
        raise PermissionDeniedError(
            f"{path!r:.200} has {source.size} bytes, one copy takes {COPY_BYTES_MAX}",
            operation.run_id,
            operation.key,
        )
    return source


def _expect(operation: Operation, path: str, target: Seen, expected: Json) -> None:
    if expected is None or expected == (target.etag or kinds.ABSENT):
        return
    raise _stale(operation, f"{path!r:.200} is {target.etag or kinds.ABSENT}, not {expected}")


def _foreign(source: Seen) -> dict[str, str]:
    """Return the metadata of a source that is not of an effect of ours."""
    return {
        name: value
        for name, value in source.metadata.items()
        if not name.startswith("counterfoil-")
    }


def _stale(operation: Operation, why: str) -> StaleObservationError:
    return StaleObservationError(why, operation.run_id, operation.key)

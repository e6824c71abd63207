"""Files in parts: sent before the one request that has an effect, and found again.

The parts of an upload are no object. Its id is on record before the first part leaves,
so that another process goes on where this one died. An upload that is not on record has
no parts. A part that is there is known by its ETag, its MD5. Where a service encrypts, an
ETag is none, and the record says how much of the file has been sent.
"""

import base64
import hashlib
import os
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from msgspec.structs import replace

from counterfoil.adapters.s3.calls import Arguments, Part, carried
from counterfoil.adapters.s3.records import Held, Note
from counterfoil.adapters.s3.site import Site
from counterfoil.adapters.s3.wire import AnswerError, bare
from counterfoil.core.errors import (
    PermissionDeniedError,
    StaleObservationError,
    UnavailableError,
)
from counterfoil.ports import Operation

PARTS_MAX = 10_000
"""Parts of one upload: what S3 allows."""


class Begun(NamedTuple):
    """An upload that is under way.

    Attributes:
        held: The record as it was read or written last.
        note: What will be on it.
        known: ETags of the parts that the service has, by their numbers.
    """

    held: Held
    note: Note
    known: dict[int, str]


def upload(
    site: Site, operation: Operation, arguments: Arguments, held: Held, note: Note
) -> tuple[Held, Note, tuple[Part, ...]] | None:
    """Send all parts of a file, those aside that are there already.

    Returns:
        The record, what will be on it, and the parts; None when another caller changed
        the record, or the upload is no more.

    Raises:
        PermissionDeniedError: The file is no regular file below the folder, is empty or
            too large, or its path leads over a link.
        StaleObservationError: It is not there, or not the one that the intent names.
        UnavailableError: The service did not take a part, or the time is over; the parts
            that it has are kept.
    """
    with _opened(site, operation, arguments["file"]) as (file, size):
        if not 0 < size <= site.part_bytes * PARTS_MAX:
            raise PermissionDeniedError(
                f"{arguments['file']!r:.200} has {size} bytes, an upload takes 1 to "
                f"{site.part_bytes * PARTS_MAX}",
                operation.run_id,
                operation.key,
            )
        wanted = replace(note, sha256=arguments["sha256"], size=size)
        begun = _begun(site, arguments, held, wanted)
        if begun is None:
            return None
        sent = _sent(site, operation, begun, file)
        if sent is None:
            return None
        held, wanted, parts, sha256 = sent
    if sha256 != arguments["sha256"]:
        abort(site, wanted)
        site.records.write(held, replace(wanted, upload=""))
        raise StaleObservationError(
            f"{arguments['file']!r:.200} holds {sha256}, not {arguments['sha256']}",
            operation.run_id,
            operation.key,
        )
    return held, wanted, parts


def abort(site: Site, note: Note) -> None:
    """Have the service drop the parts of an upload; if that fails, they wait for its rules."""
    if not note.upload:
        return
    with suppress(AnswerError, UnavailableError):
        site.wire.ask(
            "aborting an upload",
            "abort_multipart_upload",
            404,
            Key=site.object(note.path),
            UploadId=note.upload,
        )


def _begun(site: Site, arguments: Arguments, held: Held, note: Note) -> Begun | None:
    """Return the upload that is on record, or one that was begun and put on record."""
    place = {"Key": site.object(note.path)}
    earlier = held.note
    if earlier is not None and earlier.upload:
        known = _known(site, note.path, earlier.upload)
        if known is not None:
            sent, sha256 = earlier.sent, earlier.sent_sha256
            goes_on = replace(note, upload=earlier.upload, sent=sent, sent_sha256=sha256)
            return Begun(held, goes_on, known)
    members = carried(note, arguments)
    answer = site.wire.ask("beginning an upload", "create_multipart_upload", **place, **members)
    wanted = replace(note, upload=str(answer["UploadId"]))
    written = site.records.write(held, wanted)
    if written is None:
        abort(site, wanted)
        return None
    return Begun(written, wanted, {})


def _known(site: Site, path: str, upload: str) -> dict[int, str] | None:
    """Return the ETags of the parts that the service has; None when it has no such upload."""
    known: dict[int, str] = {}
    marker = 0
    while True:
        try:
            answer = site.wire.ask(
                "looking for parts",
                "list_parts",
                404,
                Key=site.object(path),
                UploadId=upload,
                PartNumberMarker=marker,
            )
        except AnswerError:
            return None
        parts = answer.get("Parts", ())
        known |= {int(part["PartNumber"]): bare(str(part["ETag"])) for part in parts}
        if not answer.get("IsTruncated") or not parts or len(known) >= PARTS_MAX:
            return known
        marker = int(parts[-1]["PartNumber"])


def _sent(
    site: Site, operation: Operation, begun: Begun, file: BinaryIO
) -> tuple[Held, Note, tuple[Part, ...], str] | None:
    """Send what is missing; return the record, all parts, and the digest of what was read.

    None when another caller changed the record, or the upload is no more.
    """
    ends_at = time.monotonic() + operation.timeout_ms / 1000
    standing, whole, parts = _standing(begun, file, site.part_bytes), hashlib.sha256(), list[Part]()
    while raw := file.read(site.part_bytes):
        if time.monotonic() > ends_at:
            raise UnavailableError(
                f"{len(parts)} parts are sent, and the time of the call is over",
                operation.run_id,
                operation.key,
                move="settle it again, which goes on from there, or allow longer uploads",
            )
        whole.update(raw)
        md5 = hashlib.md5(raw, usedforsecurity=False)
        number = len(parts) + 1
        etag = begun.known.get(number, "")
        if etag != md5.hexdigest() and not (etag and number <= standing):
            etag = _sent_part(site, begun.note, number, raw, md5.digest())
            noted: Begun | None = begun
            if etag and etag != md5.hexdigest():
                noted = _noted(site, begun, number, whole.hexdigest())
            if not etag or noted is None:
                return None
            begun = noted
        parts.append(Part(number=number, etag=etag))
    return begun.held, begun.note, tuple(parts), whole.hexdigest()


def _standing(begun: Begun, file: BinaryIO, part_bytes: int) -> int:
    """Return how many first parts stand: the file still begins with what was sent of it."""
    number, whole = begun.note.sent, hashlib.sha256()
    for _ in range(number):
        whole.update(file.read(part_bytes))
    file.seek(0)
    return number if whole.hexdigest() == begun.note.sent_sha256 else 0


def _noted(site: Site, begun: Begun, number: int, sha256: str) -> Begun | None:
    """Put on record how much was sent; None when another caller changed the record."""
    note = replace(begun.note, sent=number, sent_sha256=sha256)
    written = site.records.write(begun.held, note)
    return None if written is None else begun._replace(held=written, note=note)


def _sent_part(site: Site, note: Note, number: int, raw: bytes, md5: bytes) -> str:
    """Return the ETag of a part; empty when another caller completed or ended the upload."""
    try:
        answer = site.wire.ask(
            "sending a part",
            "upload_part",
            404,
            Key=site.object(note.path),
            UploadId=note.upload,
            PartNumber=number,
            Body=raw,
            ContentMD5=base64.b64encode(md5).decode(),
        )
    except AnswerError:
        return ""
    return bare(str(answer["ETag"]))


@contextmanager
def _opened(site: Site, operation: Operation, path: str) -> Generator[tuple[BinaryIO, int]]:
    """Open a file below the folder of uploads; no link is followed on the way."""
    if site.uploads is None:
        raise PermissionDeniedError(
            "there is no folder of uploads", operation.run_id, operation.key
        )
    try:
        number = _descend(site.uploads, path)
    except FileNotFoundError as error:
        raise StaleObservationError(
            f"{path!r:.200} is not there", operation.run_id, operation.key
        ) from error
    except OSError as error:
        raise PermissionDeniedError(
            f"{path!r:.200} cannot be read, or leads over a link ({type(error).__name__})",
            operation.run_id,
            operation.key,
        ) from error
    facts = os.fstat(number)
    if not stat.S_ISREG(facts.st_mode):
        os.close(number)
        raise PermissionDeniedError(
            f"{path!r:.200} is no regular file", operation.run_id, operation.key
        )
    with os.fdopen(number, "rb") as file:
        yield file, facts.st_size


def _descend(root: Path, path: str) -> int:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    *folders, name = path.split("/")
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            below = os.open(folder, flags | os.O_DIRECTORY, dir_fd=here)
            os.close(here)
            here = below
        return os.open(name, flags, dir_fd=here)
    finally:
        os.close(here)

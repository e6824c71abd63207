"""What is kept beside the objects: one record per run, one per key.

Each is a small object that only compare-and-set changes. A key's record is written
before its effect and says until when the service accepts the call. Whoever looks
afterwards thus knows whether that call can still land.

The order makes the fence hold: a caller writes the key's record and then reads the
run's; a new holder writes the run's record and then reads the key's. So one of them
sees the other.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import msgspec

from counterfoil.adapters.s3 import kinds
from counterfoil.adapters.s3.objects import look
from counterfoil.adapters.s3.wire import AnswerError, Wire, bare
from counterfoil.core.canonical import decode, digest, encode
from counterfoil.core.errors import FencedError, FormatError, UnavailableError
from counterfoil.core.receipt import Fence, Receipt, Served
from counterfoil.core.words import IntentDigest, Key, RunId

RECORD_BYTES_MAX = 256 * 1024
"""A record: a receipt, and the scope it was made in."""

TRIES_MAX = 16
"""Writers of one run that may come in between; there is one at a time by design."""

_T = TypeVar("_T")


class Stage(StrEnum):
    """Where a key stands."""

    OPEN = "open"
    DONE = "done"
    FORBIDDEN = "forbidden"


class Run(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fence of a run, and what was served last under it or older ones."""

    run_id: RunId
    fence: Fence
    served: Served | None = None


class Note(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of a key.

    Attributes:
        stage: Where it stands.
        run_id: Whose key it is.
        key: The key.
        kind: What is to happen; empty when it was forbidden before it was asked for.
        digest: Digest of the intent.
        fence: Lease of the latest call.
        served: Checkpoint that carries the intent.
        statement: Digest of the approval; empty when there is none.
        paths: The scope that states are seen through.
        path: Object that is written or deleted.
        replaces: ETag that it must have; empty when there must be none.
        replaces_at: When that was written, as the service tells it.
        sha256: Digest of the content; empty where it is not known.
        size: Bytes of the content.
        rest: Digest of all else in scope, before the call.
        until: Deadline of the latest call that may have left, by the service's clock, in
            whole seconds; 0 when none can have left.
        upload: Id of a multipart upload that is under way; empty when none is.
        sent: Its first parts that the service has under ETags that are not their MD5.
        sent_sha256: Digest of what they hold together.
        receipt: Of the effect, once it is done.
    """

    stage: Stage
    run_id: RunId
    key: Key
    kind: str = ""
    digest: IntentDigest = IntentDigest("")
    fence: Fence
    served: Served | None = None
    statement: str = ""
    paths: tuple[str, ...] = ()
    path: str = ""
    replaces: str = ""
    replaces_at: str = ""
    sha256: str = ""
    size: int = 0
    rest: str = ""
    until: int = 0
    upload: str = ""
    sent: int = 0
    sent_sha256: str = ""
    receipt: Receipt | None = None


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A key's record as it was read or written last; both are empty when there is none."""

    note: Note | None = None
    etag: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Records:
    """The records below one prefix.

    Attributes:
        wire: The way to the bucket.
        prefix: What every name begins with.
    """

    wire: Wire
    prefix: str

    def name(self, *parts: str) -> str:
        """Return the whole name of a record."""
        return "/".join((f"{self.prefix}{kinds.RESERVED}", *parts))

    def read(self, key: Key) -> Held:
        """Return what is on record under a key.

        Raises:
            FormatError: The record is damaged.
            UnavailableError: It cannot be read.
        """
        note, etag = self._read(self._key_name(key), Note, "the record of a key")
        if note is not None and note.key != key:
            raise FormatError("the record of a key is the record of another one")
        return Held(note=note, etag=etag)

    def write(self, held: Held, note: Note) -> Held | None:
        """Replace a key's record if it is still `held`; None when it is not.

        Raises:
            UnavailableError: It cannot be written, or the answer was lost.
        """
        etag = self._write(self._key_name(note.key), note, held.etag)
        return None if etag is None else Held(note=note, etag=etag)

    def fence(self, run_id: RunId) -> Run | None:
        """Return a run's record.

        Raises:
            FormatError: It is damaged.
            UnavailableError: It cannot be read.
        """
        return self._read(self._run_name(run_id), Run, "the record of a run")[0]

    def raise_fence(self, run_id: RunId, fence: Fence, served: Served | None = None) -> Run | None:
        """Raise a run's fence, note what is served, and return the record before.

        Raises:
            FencedError: A newer fence, or an equal version with another nonce, stands.
            UnavailableError: It cannot be read or written.
        """
        name = self._run_name(run_id)
        for _ in range(TRIES_MAX):
            before, etag = self._read(name, Run, "the record of a run")
            check_fence(before, run_id, fence)
            kept = before.served if before else None
            after = Run(run_id=run_id, fence=fence, served=served or kept)
            if after == before or self._write(name, after, etag) is not None:
                return before
        raise UnavailableError(f"the record of the run changed {TRIES_MAX} times", run_id)

    def _key_name(self, key: Key) -> str:
        return self.name("keys", digest(key.encode()))

    def _run_name(self, run_id: RunId) -> str:
        return self.name("runs", digest(run_id.encode()))

    def _read(self, name: str, shape: type[_T], what: str) -> tuple[_T | None, str]:
        seen = look(self.wire, name, bytes_max=RECORD_BYTES_MAX)
        if not seen.etag:
            return None, ""
        if seen.content is None:
            raise FormatError(f"{what} has {seen.size} bytes, the bound is {RECORD_BYTES_MAX}")
        return decode(seen.content, shape, what, bytes_max=RECORD_BYTES_MAX), seen.etag

    def _write(self, name: str, value: Note | Run, etag: str) -> str | None:
        raw = encode(value)
        if len(raw) > RECORD_BYTES_MAX:
            raise FormatError(f"a record has {len(raw)} bytes, the bound is {RECORD_BYTES_MAX}")
        return put_if(self.wire, name, raw, etag)


def put_if(wire: Wire, name: str, raw: bytes, etag: str) -> str | None:
    """Write an object if it has this ETag, or if there is none; return the ETag it gets.

    None when the condition does not hold, or another writer is at it.

    Raises:
        UnavailableError: It cannot be written, or the answer was lost.
    """
    condition = {"IfMatch": f'"{etag}"'} if etag else {"IfNoneMatch": "*"}
    try:
        answer = wire.ask(
            "writing a record",
            "put_object",
            404,
            409,
            412,
            Key=name,
            Body=raw,
            ContentType="application/json",
            **condition,
        )
    except AnswerError:
        return None
    return bare(str(answer["ETag"]))


def check_fence(record: Run | None, run_id: RunId, fence: Fence) -> None:
    """Refuse a lease that was followed by another.

    Raises:
        FencedError: A newer fence, or an equal version with another nonce, stands.
    """
    if record is None or record.fence == fence:
        return
    if record.fence.lease_version >= fence.lease_version:
        raise FencedError(
            f"lease {fence.lease_version} was followed by lease {record.fence.lease_version}",
            run_id,
        )

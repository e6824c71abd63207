"""A checkpoint's envelope and events as a file keeps them: base64 undone, and deflated.

A row of usual size takes fewer pages so, each of which is written, checksummed and moved
from the log. Whatever is not in our one form, or is large, is kept as it is. What comes
back is judged by its digest, like everything that a store says.
"""

import binascii
import zlib

import msgspec

from counterfoil.core.bounds import ENVELOPE_BYTES_MAX
from counterfoil.core.canonical import encode
from counterfoil.core.envelope import CHECKPOINT_TYPE, Envelope, Signature, payload_of
from counterfoil.core.errors import FormatError

AS_IT_IS, PACKED = 0, 1
"""Forms of a row."""

PACKED_BYTES_MAX = ENVELOPE_BYTES_MAX
"""Envelope or events that are deflated: larger ones take longer than the pages they save."""

RAW_DEFLATE = -zlib.MAX_WBITS
MEMORY_LEVEL = 8
LENGTH_MAX = 255
"""Of a key id, and of a signature: one byte says it."""

WORDS = (
    b'"outcome":"needs_review""outcome":"verified","passed":true"reason":"signer":"statements":["'
    b'"outcome":"opened""outcome":"read""outcome":"remembered"'
    b'[{"at_ms":17,"outcome":"executed","proposal":1,"position":0,"action_id":"a1","kind":"",'
    b'"key":"","digest":"i1:","receipt":{"id":"","adapter":"","kind":"","run_id":"run-","key":"",'
    b'"digest":"i1:","level":"transactional","level":"deduplicating","poststate":{"adapter":"",'
    b'"instance":"function:","generation":0,"version":1,"fingerprint":"","account":""},'
    b'"committed_at_ms":17,"served":{"generation":1,"checkpoint":""},"statement":"","result":{"'
    b'"replayed":false},"environments":[{"adapter":"","instance":"","generation":0,"version":1,'
    b'"fingerprint":"","account":""}]},{"at_ms":17,"outcome":"pending","proposal":1,"position":1,'
    b'"action_id":"a2","kind":"","key":"","digest":"i1:","intent":{"adapter":"","kind":"",'
    b'"arguments":{"},"risk":"reversible_write","risk":"irreversible_write","target":""}}]'
    b'{"format":1,"run":"run-","task":"","generation":1,"previous":"","lease_version":1,"nonce":"",'
    b'"incarnation":"","task_digest":"","policy_digest":"","code_digest":"","state":"","events":"",'
    b'"trace_size":1,"trace_root":"","environments":[{"adapter":"","instance":"function:",'
    b'"generation":0}],"written_at":"2026-01-01T00:00:00.000Z"}'
)
"""What most rows hold, for `PACKED`; another text here would be another form."""


def packed(envelope: bytes, events: bytes) -> tuple[int, bytes, bytes]:
    """Return the form of a row, and its envelope and events in that form."""
    bare = _bare(envelope)
    if bare is None or max(len(envelope), len(events)) > PACKED_BYTES_MAX:
        return AS_IT_IS, envelope, events
    return PACKED, _deflated(bare), _deflated(events)


def unpacked(form: int, envelope: bytes, events: bytes) -> tuple[bytes, bytes]:
    """Return envelope and events as they were put.

    Raises:
        FormatError: The row is in no form that we write.
    """
    if form == AS_IT_IS:
        return envelope, events
    if form != PACKED:
        raise _no_form()
    bare = _inflated(envelope)
    if len(bare) < 2 + sum(bare[:2]):
        raise _no_form()
    signed, payload = 2 + bare[0], 2 + bare[0] + bare[1]
    try:
        key_id = bare[2:signed].decode()
    except UnicodeDecodeError as error:
        raise _no_form() from error
    return _wrapped(key_id, bare[signed:payload], bare[payload:]), _inflated(events)


def _bare(envelope: bytes) -> bytes | None:
    """Return an envelope without base64 and names; None where it could not be made again."""
    try:
        opened = msgspec.json.decode(envelope, type=Envelope)
        (signature,) = opened.signatures
        key_id, code = signature.keyid.encode(), binascii.a2b_base64(signature.sig)
        payload = payload_of(envelope)
    except (FormatError, msgspec.MsgspecError, ValueError):
        return None
    if max(len(key_id), len(code)) > LENGTH_MAX:
        return None
    if _wrapped(signature.keyid, code, payload) != envelope:
        return None
    return bytes((len(key_id), len(code))) + key_id + code + payload


def _wrapped(key_id: str, code: bytes, payload: bytes) -> bytes:
    return encode(
        Envelope(
            payload=_written(payload),
            payload_type=CHECKPOINT_TYPE,
            signatures=[Signature(keyid=key_id, sig=_written(code))],
        )
    )


def _written(raw: bytes) -> str:
    return binascii.b2a_base64(raw, newline=False).decode("ascii")


def _deflated(raw: bytes) -> bytes:
    writer = zlib.compressobj(
        zlib.Z_BEST_SPEED, zlib.DEFLATED, RAW_DEFLATE, MEMORY_LEVEL, zlib.Z_DEFAULT_STRATEGY, WORDS
    )
    return writer.compress(raw) + writer.flush()


def _inflated(content: bytes) -> bytes:
    """Return what was deflated, and never more than what may have been.

    Raises:
        FormatError: It was not.
    """
    reader = zlib.decompressobj(RAW_DEFLATE, WORDS)
    try:
        raw = reader.decompress(content, PACKED_BYTES_MAX + 1)
    except zlib.error as error:
        raise _no_form() from error
    if not reader.eof or reader.unused_data or len(raw) > PACKED_BYTES_MAX:
        raise _no_form()
    return raw


def _no_form() -> FormatError:
    return FormatError("a row does not have the form that we write")

"""Run to checkpoint, checkpoint to run: the bytes that are signed, stored and believed.

A checkpoint is a signed header with the hashes of two blobs: the state of the run, and
the events of this commit. Nothing is parsed before the signature over its hash holds.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from counterfoil.core import merkle
from counterfoil.core.bounds import (
    EVENTS_BYTES_MAX,
    EVENTS_PER_COMMIT_MAX,
    HEADER_BYTES_MAX,
    STATE_BYTES_MAX,
)
from counterfoil.core.canonical import decode, digest, encode
from counterfoil.core.envelope import CHECKPOINT_TYPE, Signer, Verifier, seal, unseal
from counterfoil.core.errors import BindingError, ContractError, FormatError
from counterfoil.core.run import Run
from counterfoil.core.trace import Event
from counterfoil.core.words import Digest, RunId

FORMAT = 1


class EnvironmentName(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which environment, without its state."""

    adapter: str
    instance: str
    generation: int


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The signed part of a checkpoint.

    Attributes:
        format: Version of header, state and events.
        run: Run id.
        task: Task id.
        generation: Number of this checkpoint; 0 is the first.
        previous: Digest of the checkpoint before; empty at generation 0.
        lease_version: Lease it was written under.
        nonce: Nonce of that lease.
        incarnation: Incarnation of the register it was written for.
        task_digest: Fingerprint of the task.
        policy_digest: Fingerprint of its policy.
        code_digest: Fingerprint of the declared kinds.
        state: SHA-256 of the state.
        events: SHA-256 of the events.
        trace_size: Events so far, these included.
        trace_root: Merkle root over them, hexadecimal.
        environments: Which environments the state speaks of.
        written_at: UTC, RFC 3339.
    """

    format: int
    run: RunId
    task: str
    generation: int
    previous: str
    lease_version: int
    nonce: str
    incarnation: str
    task_digest: Digest
    policy_digest: Digest
    code_digest: Digest
    state: Digest
    events: Digest
    trace_size: int
    trace_root: str
    environments: tuple[EnvironmentName, ...]
    written_at: str


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a checkpoint store; every field but the bytes is an index into them.

    Attributes:
        run_id: The run.
        generation: Its number.
        digest: SHA-256 of the envelope: the name of the checkpoint.
        lease_version: Lease it was written under; stores refuse older ones.
        envelope: DSSE envelope over the header.
        state: State bytes; empty once pruned.
        events: Event bytes.
        settles: Names under which `find` returns this row.
    """

    run_id: RunId
    generation: int
    digest: Digest
    lease_version: int
    envelope: bytes
    state: bytes
    events: bytes
    settles: tuple[str, ...] = ()


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint that passed every check."""

    header: Header
    run: Run
    events: tuple[Event, ...]


def encode_events(events: tuple[Event, ...]) -> tuple[bytes, ...]:
    """Return the bytes of each event: what the trace hashes.

    Raises:
        ContractError: An event holds something that could not be read again.
    """
    return tuple(_readable(encode(event), Event, "event") for event in events)


def _readable(raw: bytes, shape: type[object], what: str) -> bytes:
    """Return bytes of ours once they were read again.

    Adapters are other people's code: a receipt whose id is a number would be sealed, and
    the run could never be opened again.
    """
    try:
        decode(raw, shape, what, bytes_max=len(raw))
    except FormatError as error:
        raise ContractError(f"a value does not fit its field: {error.message}") from error
    return raw


def extended(run: Run, events: tuple[bytes, ...]) -> Run:
    """Return the run with events appended to its trace."""
    leaves = [merkle.leaf_hash(event) for event in events]
    frontier = merkle.extend(run.trace_size, run.frontier, leaves)
    return replace(run, trace_size=run.trace_size + len(leaves), frontier=frontier)


def seal_checkpoint(
    run: Run, events: tuple[bytes, ...], header: Header, settles: tuple[str, ...], signer: Signer
) -> Checkpoint:
    """Return the sealed checkpoint of a run whose trace already holds `events`.

    Args:
        run: The next run value.
        events: One to four encoded events.
        header: Header with every field but the hashes, trace and environments.
        settles: Names for `find`.
        signer: The active checkpoint key.

    Raises:
        ContractError: State or events are over their bound, or the state could not be
            read again.
        FormatError: The number of events is outside 1 to `EVENTS_PER_COMMIT_MAX`.
    """
    if not 1 <= len(events) <= EVENTS_PER_COMMIT_MAX:
        raise FormatError(f"a commit of {len(events)} events", run.run_id)
    state_bytes = _readable(encode(run), Run, "state")
    event_bytes = b"[" + b",".join(events) + b"]"
    _check_size("state", state_bytes, STATE_BYTES_MAX, run)
    _check_size("events", event_bytes, EVENTS_BYTES_MAX, run)
    full = replace(
        header,
        state=digest(state_bytes),
        events=digest(event_bytes),
        trace_size=run.trace_size,
        trace_root=merkle.root(run.frontier).hex(),
        environments=_names(run),
    )
    payload = encode(full)
    _check_size("header", payload, HEADER_BYTES_MAX, run)
    envelope = seal(CHECKPOINT_TYPE, payload, signer)
    return Checkpoint(
        run_id=run.run_id,
        generation=full.generation,
        digest=digest(envelope),
        lease_version=full.lease_version,
        envelope=envelope,
        state=state_bytes,
        events=event_bytes,
        settles=settles,
    )


def _check_size(what: str, raw: bytes, bytes_max: int, run: Run) -> None:
    if len(raw) > bytes_max:
        raise ContractError(
            f"{what} would have {len(raw)} bytes, the bound is {bytes_max}", run.run_id
        )


def _names(run: Run) -> tuple[EnvironmentName, ...]:
    return tuple(
        EnvironmentName(adapter=s.adapter, instance=s.instance, generation=s.generation)
        for s in run.environments
    )


def rfc3339(at_ms: int) -> str:
    """Return a UTC moment in milliseconds as RFC 3339 text."""
    return f"{_second(at_ms // 1000)}.{at_ms % 1000:03}Z"


@lru_cache(maxsize=1)
def _second(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, tz=UTC).isoformat(timespec="seconds")[:-6]


def open_header(row: Checkpoint, verifiers: Mapping[str, Verifier]) -> Header:
    """Return the verified header of a row.

    Raises:
        FormatError: The row's digest or index fields are not those of its envelope, or
            the format is unknown.
        SignatureError: No trusted key signed it.
        BindingError: It belongs to another run.
    """
    if digest(row.envelope) != row.digest:
        raise FormatError("the envelope is not the one its digest names", row.run_id)
    payload = unseal(row.envelope, CHECKPOINT_TYPE, verifiers)
    header = decode(payload, Header, "header", bytes_max=HEADER_BYTES_MAX)
    if header.format not in _READERS:
        raise FormatError(f"checkpoint format {header.format} is unknown", row.run_id)
    if header.run != row.run_id:
        raise BindingError(f"the checkpoint belongs to run {header.run}", row.run_id)
    if (header.generation, header.lease_version) != (row.generation, row.lease_version):
        raise FormatError(
            f"the row says generation {row.generation} under lease {row.lease_version}, "
            f"it is {header.generation} under {header.lease_version}",
            row.run_id,
        )
    return header


def open_events(row: Checkpoint, header: Header) -> tuple[Event, ...]:
    """Return the events of a row whose header is verified.

    Raises:
        FormatError: The bytes are not those the header names, or not in their form.
    """
    if digest(row.events) != header.events:
        raise FormatError("the events are not those the header names", row.run_id)
    return decode(row.events, tuple[Event, ...], "events", bytes_max=EVENTS_BYTES_MAX)


def open_checkpoint(row: Checkpoint, verifiers: Mapping[str, Verifier]) -> Opened:
    """Return header, run and events of a row, each verified before it is parsed.

    Raises:
        IntegrityError: The member that says why.
    """
    header = open_header(row, verifiers)
    if digest(row.state) != header.state:
        raise FormatError("the state is not the one the header names", row.run_id)
    events = open_events(row, header)
    run = _READERS[header.format](row.state)
    if run.run_id != header.run or run.task_id != header.task:
        raise BindingError("state and header name different runs", row.run_id)
    merkle.check_frontier(run.trace_size, run.frontier)
    root = merkle.root(run.frontier).hex()
    if run.trace_size != header.trace_size or root != header.trace_root:
        raise FormatError("the trace of the state is not the header's", row.run_id)
    if _names(run) != header.environments:
        raise FormatError("the environments of the state are not the header's", row.run_id)
    return Opened(header=header, run=run, events=events)


def _read_format_1(state: bytes) -> Run:
    return decode(state, Run, "state", bytes_max=STATE_BYTES_MAX)


_READERS: Mapping[int, Callable[[bytes], Run]] = {1: _read_format_1}
"""One reader per format that was ever written; each returns the present run value."""


def split_events(event_bytes: bytes) -> tuple[bytes, ...]:
    """Return the bytes of each event in a commit, as the trace hashed them.

    Raises:
        FormatError: They are no list of values.
    """
    try:
        parts = msgspec.json.decode(event_bytes, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise FormatError("the events cannot be read") from error
    return tuple(bytes(part) for part in parts)

"""Tamper with what is stored, and sign it again with the true key.

The structural checks stand behind the signature, so only a forger who holds the key
gets as far as them.
"""

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from counterfoil.core import codec, merkle
from counterfoil.core.canonical import decode, digest, encode
from counterfoil.core.codec import Checkpoint, Header
from counterfoil.core.envelope import CHECKPOINT_TYPE, seal, unseal
from counterfoil.core.run import Run
from counterfoil.core.trace import Event
from counterfoil.core.words import Digest, RunId
from counterfoil.keys import Purpose
from counterfoil.stores.memory import MemoryHeads, MemoryStore
from tests.support.scenes import RUN_ID, Scene

BYTES_MAX = 2**20


def _same_run(run: Run) -> Run:
    return run


def _same_event(event: Event) -> Event:
    return event


def _same_header(header: Header) -> Header:
    return header


def _same_bytes(raw: bytes) -> bytes:
    return raw


def head_row(scene: Scene, run_id: str = RUN_ID) -> Checkpoint:
    """Return the checkpoint that the head names."""
    head = scene.heads().read(RunId(run_id))
    assert head is not None
    row = scene.store().get(head.run_id, head.checkpoint)
    assert row is not None
    return row


def forge_head(
    scene: Scene,
    run_id: str = RUN_ID,
    *,
    change_run: Callable[[Run], Run] = _same_run,
    change_event: Callable[[Event], Event] = _same_event,
    change_header: Callable[[Header], Header] = _same_header,
    change_state: Callable[[bytes], bytes] = _same_bytes,
    more_events: tuple[Event, ...] = (),
    is_resigned: bool = True,
) -> Checkpoint:
    """Put a changed checkpoint in the place of the newest one, and let the head name it.

    Hashes, Merkle frontier and digests are all computed anew, so that only what was
    changed is wrong. Unsigned, the old signature stays on the new header.
    """
    row = head_row(scene, run_id)
    verifiers = scene.keyring.verifiers(Purpose.CHECKPOINT)
    opened = codec.open_checkpoint(row, verifiers)
    changed = (*map(change_event, opened.events), *more_events)
    event_bytes = codec.encode_events(changed)
    run = change_run(codec.extended(_before(scene, row, opened.run), event_bytes))
    state = change_state(encode(run))
    header = change_header(
        replace(
            opened.header,
            state=digest(state),
            events=digest(b"[" + b",".join(event_bytes) + b"]"),
            trace_size=run.trace_size,
            trace_root=merkle.root(run.frontier).hex(),
        )
    )
    envelope = _sealed(scene, row, header, is_resigned=is_resigned)
    forged = replace(
        row,
        digest=digest(envelope),
        envelope=envelope,
        state=state,
        events=b"[" + b",".join(event_bytes) + b"]",
    )
    put_in_place(scene, row, forged)
    return forged


def _before(scene: Scene, row: Checkpoint, run: Run) -> Run:
    """Return the run with the trace as it was before this commit."""
    header = codec.open_header(row, scene.keyring.verifiers(Purpose.CHECKPOINT))
    earlier = scene.store().get(row.run_id, Digest(header.previous)) if header.previous else None
    if earlier is None:
        return replace(run, trace_size=0, frontier=())
    known = decode(earlier.state, Run, "state", bytes_max=BYTES_MAX)
    return replace(run, trace_size=known.trace_size, frontier=known.frontier)


def _sealed(scene: Scene, row: Checkpoint, header: Header, *, is_resigned: bool) -> bytes:
    payload = encode(header)
    sealed = seal(CHECKPOINT_TYPE, payload, scene.keyring.signer(Purpose.CHECKPOINT))
    if is_resigned:
        return sealed
    envelope = msgspec.json.decode(sealed)
    envelope["signatures"] = msgspec.json.decode(row.envelope)["signatures"]
    return encode(envelope)


def put_in_place(scene: Scene, row: Checkpoint, forged: Checkpoint) -> None:
    """Replace a stored row, and let the head name the new one."""
    store, heads = scene.store(), scene.heads()
    assert isinstance(store, MemoryStore)
    assert isinstance(heads, MemoryHeads)
    rows = store._rows[row.run_id]
    del rows[row.digest]
    rows[forged.digest] = forged
    head = heads._heads[row.run_id]
    heads._heads[row.run_id] = replace(head, checkpoint=forged.digest)


def payload_of(scene: Scene, row: Checkpoint) -> bytes:
    """Return the signed bytes of a row."""
    return unseal(row.envelope, CHECKPOINT_TYPE, scene.keyring.verifiers(Purpose.CHECKPOINT))

"""The signed lease record in the checkpoint store: evidence against a turned-back register."""

import msgspec

from counterfoil.core.bounds import HEADER_BYTES_MAX
from counterfoil.core.canonical import decode
from counterfoil.core.envelope import LEASE_TYPE, unseal
from counterfoil.core.errors import IntegrityError
from counterfoil.core.words import Digest, RunId
from counterfoil.engine.parts import Parts


class LeaseRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which checkpoint was the head under which lease.

    Attributes:
        run: The run.
        generation: Generation of the head.
        checkpoint: Its digest.
        lease_version: The lease.
        nonce: Its nonce.
    """

    run: RunId
    generation: int
    checkpoint: Digest
    lease_version: int
    nonce: str


def read_mark(parts: Parts, run_id: RunId) -> LeaseRecord | None:
    """Return the run's lease record if there is a genuine one.

    One that nobody with a key wrote is no evidence, so it raises no alarm.
    """
    mark = parts.store.marked(run_id)
    if mark is None:
        return None
    try:
        payload = unseal(mark.envelope, LEASE_TYPE, parts.lease_seals.verifiers)
        record = decode(payload, LeaseRecord, "lease record", bytes_max=HEADER_BYTES_MAX)
    except IntegrityError:
        return None
    return record if record.run == run_id else None

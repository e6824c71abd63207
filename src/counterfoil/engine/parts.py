"""What an engine is made of: ports, keys and limits, wired by the caller."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from counterfoil.core.envelope import Signer, Verifier
from counterfoil.core.intent import KindSpec
from counterfoil.core.trust import NOBODY, TrustRoots
from counterfoil.ports import Adapter, Bell, CheckpointStore, Clock, HeadRegister, Inbox, Joint


@dataclass(frozen=True, kw_only=True, slots=True)
class Seals:
    """One key that signs, and every key that opens, for one purpose."""

    signer: Signer
    verifiers: Mapping[str, Verifier]


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """Everything that sessions share.

    Attributes:
        store: Checkpoints.
        heads: Heads and leases.
        seals: Keys for checkpoints.
        lease_seals: Keys for lease records.
        adapters: By name.
        kinds: By name, of all adapters.
        clock: Wall clock and monotonic clock.
        random_bytes: Source of nonces, salts and challenges.
        owner: Name of this worker, for people and for liveness.
        ttl_ms: Term of a lease.
        merges: Whether a receipt may ride with the next intent.
        marks: Whether a signed commit marker precedes each effect.
        bell: Wakes workers when something may be due; None where they look now and then.
        inbox: Signed statements; None where there is no person to ask.
        roots: Who may sign statements.
        runs_background: Whether leases are renewed and receipts flushed by a thread.
        joint: Commits to store and heads at once; None where they are two databases.
    """

    store: CheckpointStore
    heads: HeadRegister
    seals: Seals
    lease_seals: Seals
    adapters: Mapping[str, Adapter]
    kinds: Mapping[str, KindSpec]
    clock: Clock
    random_bytes: Callable[[int], bytes]
    owner: str
    ttl_ms: int = 30_000
    merges: bool = True
    marks: bool = False
    inbox: Inbox | None = None
    roots: TrustRoots = NOBODY
    runs_background: bool = True
    joint: Joint | None = None
    bell: Bell | None = None

    def nonce(self) -> str:
        """Return 16 random bytes in hexadecimal."""
        return self.random_bytes(16).hex()

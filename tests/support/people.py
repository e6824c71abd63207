"""People who sign: an approver and a reviewer with keys of their own."""

import base64
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from msgspec.structs import replace

from counterfoil.core.approval import (
    APPROVAL_TYPE,
    FORMAT,
    REVOCATION_TYPE,
    Approval,
    Request,
    Revocation,
)
from counterfoil.core.canonical import digest, encode
from counterfoil.core.envelope import seal
from counterfoil.core.review import DECISION_TYPE, Case, Decision, Verdict, decision_for
from counterfoil.core.trust import (
    PrivateKey,
    Role,
    SignerEntry,
    TrustedSigner,
    TrustRoots,
    public_key,
    roots_of,
    signer_key_id,
)
from counterfoil.core.words import RunId

HOUR_MS = 3_600_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Person:
    """Somebody with a key and a role."""

    entry: SignerEntry
    key: PrivateKey

    @property
    def trusted(self) -> TrustedSigner:
        """The person as a trust file has it."""
        return TrustedSigner(entry=self.entry, key_id=self.key.id, verifier=public_key(self.entry))

    def but(self, **changes: object) -> "Person":
        """Return the same key under another entry."""
        return Person(entry=replace(self.entry, **changes), key=self.key)


def person(name: str, role: Role, seed: int) -> Person:
    """Return a person whose key follows from `seed`."""
    private = Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)
    raw = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    entry = SignerEntry(id=name, role=role, key=base64.b64encode(raw).decode("ascii"))
    return Person(entry=entry, key=PrivateKey(id=signer_key_id(raw), key=private))


ADA = person("ada", Role.APPROVER, 1)
BOB = person("bob", Role.APPROVER, 2)
EVE = person("eve", Role.APPROVER, 3)
RITA = person("rita", Role.REVIEWER, 4)
ROB = person("rob", Role.REVIEWER, 5)


def roots(*people: Person) -> TrustRoots:
    """Return roots that trust just these people."""
    return roots_of(tuple(each.trusted for each in people))


def approval(request: Request, by: Person = ADA, **changes: object) -> Approval:
    """Return an unsigned approval of a request, for an hour and any number of proposals."""
    made = Approval(
        format=FORMAT,
        verdict="approve",
        signer=by.entry.id,
        run=request.run,
        task=request.task,
        policy_version=request.policy_version,
        action_id=request.action_id,
        key=request.key,
        digest=request.digest,
        environment=request.environment,
        challenge=request.challenge,
        issued_at_ms=request.requested_at_ms,
        expires_at_ms=request.requested_at_ms + HOUR_MS,
        last_proposal=1_000,
    )
    return replace(made, **changes)


def signed(statement: object, kind: str, by: Person) -> bytes:
    """Return a statement in its envelope."""
    return seal(kind, encode(statement), by.key)


def approve(request: Request, by: Person = ADA, **changes: object) -> bytes:
    """Return a signed approval."""
    return signed(approval(request, by, **changes), APPROVAL_TYPE, by)


def deny(request: Request, by: Person = ADA, **changes: object) -> bytes:
    """Return a signed denial."""
    return approve(request, by, verdict="deny", **changes)


def revoke(request: Request, approved: bytes, by: Person = ADA, **changes: object) -> bytes:
    """Return a signed revocation of an approval."""
    made = Revocation(
        format=FORMAT,
        signer=by.entry.id,
        run=request.run,
        challenge=request.challenge,
        approval=digest(approved),
        issued_at_ms=request.requested_at_ms,
    )
    return signed(replace(made, **changes), REVOCATION_TYPE, by)


def decide(
    case: Case, verdict: Verdict, run_id: str, task: str, by: Person = RITA, /, **changes: object
) -> bytes:
    """Return a signed decision on a case."""
    made: Decision = decision_for(
        case,
        run_id=RunId(run_id),
        task=task,
        verdict=verdict,
        signer=by.entry.id,
        evidence="order 7" if verdict is Verdict.CONFIRM_DONE else "",
        issued_at_ms=case.opened_at_ms,
        expires_at_ms=case.opened_at_ms + HOUR_MS,
    )
    return signed(replace(made, **changes), DECISION_TYPE, by)

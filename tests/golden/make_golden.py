"""Make the golden files: what must always open, and what must never.

    python -m tests.golden.make_golden

Keys and times are fixed, so the files are the same bytes whenever they are made. A valid
file of format 1 is never changed again: what was once written must open for good.
"""

import base64
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from counterfoil.core.approval import (
    APPROVAL_TYPE,
    REVOCATION_TYPE,
)
from counterfoil.core.canonical import digest, encode
from counterfoil.core.envelope import MacKey, seal
from counterfoil.core.review import (
    DECISION_TYPE,
    MIGRATION_TYPE,
    CaseReason,
    Verdict,
)
from counterfoil.core.words import RunId
from tests.golden.statements import (
    NOW_MS,
    Golden,
    decision,
    migration,
    no_more,
    row_bytes,
    valid,
    yes,
)
from tests.support.people import ADA, BOB, EVE, RITA, signed
from tests.support.runs import BOX, EVENTS, checkpoint, fresh

HERE = Path(__file__).parent


def _changed(envelope: bytes, **members: Any) -> bytes:
    return encode(msgspec.json.decode(envelope) | members)


def _payload(envelope: bytes) -> bytes:
    return base64.b64decode(msgspec.json.decode(envelope)["payload"])


def _with_payload(envelope: bytes, payload: bytes) -> bytes:
    return _changed(envelope, payload=base64.b64encode(payload).decode())


def _flipped(payload: bytes, name: str) -> bytes:
    """Return a payload in which one byte of a member's value is another."""
    at = payload.index(b'"%s":' % name.encode()) + len(name) + 3
    while not payload[at : at + 1].isalnum():
        at += 1
    byte = payload[at : at + 1]
    return payload[:at] + (b"1" if byte != b"1" else b"2") + payload[at + 1 :]


def _flips(sort: str, envelope: bytes) -> Iterator[Golden]:
    payload = _payload(envelope)
    for name, value in msgspec.json.decode(payload).items():
        if value in ("", None):
            continue
        yield Golden(
            name=f"{sort}-byte-{name}",
            sort=sort,
            content=_with_payload(envelope, _flipped(payload, name)),
            error="SignatureError",
            phrase="does not fit",
        )


_BOUND: dict[str, Any] = {
    "run": "run-2",
    "task": "task-2",
    "policy_version": "2",
    "action_id": "action-2",
    "key": "key-2",
    "digest": "i1:2",
    "challenge": "c-9",
}
_WORLD: dict[str, Any] = {
    "adapter": "other",
    "instance": "box-2",
    "generation": 2,
    "version": 4,
    "fingerprint": "f4",
    "account": "a-2",
}


def _approvals() -> Iterator[Golden]:
    def made(name: str, content: bytes, error: str, phrase: str, asked: str = "") -> Golden:
        return Golden(
            name=f"approval-{name}",
            sort="approval",
            content=content,
            asked=asked,
            error=error,
            phrase=phrase,
        )

    def signed_as(name: str, phrase: str, by: Any = ADA, **changes: Any) -> Golden:
        content = signed(yes(**changes), APPROVAL_TYPE, by)
        return made(name, content, "ApprovalError", phrase)

    good = signed(yes(), APPROVAL_TYPE, ADA)
    for name, value in _BOUND.items():
        yield signed_as(f"other-{name}", f"for {name} {value!r}", **{name: value})
    for name, value in _WORLD.items():
        other = replace(BOX, **{name: value})
        yield signed_as(f"other-{name}", f"{name} {value!r}", environment=other)
    yield signed_as("ended", f"ended at {NOW_MS}", expires_at_ms=NOW_MS)
    yield signed_as("proposal-past", "ended with proposal 0", last_proposal=0)
    yield signed_as("revoked-signer", "signer bob was revoked", BOB, signer="bob")
    for asked, phrase in (
        ("in another run", "for run"),
        ("after a crash", "for challenge"),
        ("in a fork", "for challenge"),
    ):
        name = f"replayed-{asked.replace(' ', '-')}"
        yield made(name, good, "ApprovalError", phrase, asked)
    for name, content, phrase in (
        ("unknown-signer", signed(yes(signer="eve"), APPROVAL_TYPE, EVE), "no approver has key"),
        ("by-a-reviewer", signed(yes(signer="rita"), APPROVAL_TYPE, RITA), "no approver has key"),
        ("another-name", signed(yes(signer="bob"), APPROVAL_TYPE, ADA), "the statement names"),
        ("as-a-decision", signed(yes(), DECISION_TYPE, ADA), "of type"),
        ("as-a-revocation", signed(yes(), REVOCATION_TYPE, ADA), "of type"),
        ("retyped", _changed(good, payloadType=DECISION_TYPE), "of type"),
        ("unsigned", _changed(good, signatures=[]), "has 0"),
    ):
        yield made(name, content, "SignatureError", phrase)
    yield from _signatures(good, made)
    yield from _spellings(good, made)


def _signatures(good: bytes, made: Any) -> Iterator[Golden]:
    (mine,) = msgspec.json.decode(good)["signatures"]
    (theirs,) = msgspec.json.decode(signed(yes(), APPROVAL_TYPE, BOB))["signatures"]
    raw = base64.b64decode(mine["sig"])
    flipped = base64.b64encode(raw[:-1] + bytes([raw[-1] ^ 1])).decode()
    mac = MacKey(id=ADA.key.id, secret=base64.b64decode(ADA.entry.key))
    for name, signatures, phrase in (
        ("twice", [mine, mine], "has 2"),
        ("two-signers", [mine, theirs], "has 2"),
        ("key-id-of-another", [mine | {"keyid": BOB.key.id}], "does not fit"),
        ("key-id-unknown", [mine | {"keyid": "s1-0"}], "no approver has key"),
        ("key-id-of-a-reviewer", [mine | {"keyid": RITA.key.id}], "no approver has key"),
        ("signature-byte", [mine | {"sig": flipped}], "does not fit"),
        ("signature-short", [mine | {"sig": base64.b64encode(raw[:32]).decode()}], "does not fit"),
        ("signature-empty", [mine | {"sig": ""}], "does not fit"),
    ):
        yield made(name, _changed(good, signatures=signatures), "SignatureError", phrase)
    forged = seal(APPROVAL_TYPE, encode(yes()), mac)
    yield made("mac-of-the-public-key", forged, "SignatureError", "does not fit")
    named = _changed(good, signatures=[mine | {"alg": "none"}])
    yield made("algorithm-named", named, "FormatError", "cannot be read")


def _spellings(good: bytes, made: Any) -> Iterator[Golden]:
    payload = encode(yes())

    def sealed(raw: bytes) -> bytes:
        return seal(APPROVAL_TYPE, raw, ADA.key)

    twice = payload.replace(b'{"format":1,', b'{"format":1,"format":1,')
    unknown = payload.replace(b'{"format":1,', b'{"format":1,"extra":1,')
    envelope = _changed(good, extra=1)
    for name, content, phrase in (
        ("member-twice", sealed(twice), "one form"),
        ("member-unknown", sealed(unknown), "cannot be read"),
        ("member-missing", sealed(payload.replace(b'"challenge":"c-1",', b"")), "cannot be read"),
        ("member-mistyped", sealed(payload.replace(b'"format":1', b'"format":"1"')), "cannot be"),
        ("number-float", sealed(payload.replace(b'"format":1', b'"format":1.0')), "cannot be"),
        ("white-space", sealed(payload.replace(b",", b", ", 1)), "one form"),
        ("format-2", sealed(encode(yes(format=2))), "format 2 is unknown"),
        ("verdict-other", sealed(payload.replace(b'"approve"', b'"allow"')), "cannot be read"),
        ("not-utf8", sealed(payload.replace(b'"ada"', b'"\xff"')), "approval"),
        ("no-object", sealed(b"[]"), "cannot be read"),
        ("envelope-member-unknown", envelope, "cannot be read"),
        ("envelope-member-twice", good.replace(b"{", b'{"payload":"",', 1), "one form"),
        ("envelope-white-space", good + b" ", "one form"),
        ("envelope-mark", b"\xef\xbb\xbf" + good, "cannot be read"),
        ("truncated", good[:-1], "cannot be read"),
        ("cut-in-half", good[: len(good) // 2], "cannot be read"),
        ("empty", b"", "cannot be read"),
        ("oversized", sealed(encode(yes(note="x" * 8_192))), "the bound is"),
        ("base64-url", _changed(good, payload="_-_-"), "base64"),
        ("base64-other-form", _changed(good, payload="QQ=\n="), "base64"),
    ):
        yield made(name, content, "FormatError", phrase)


def _reviews() -> Iterator[Golden]:
    for name, value in {
        "run": "run-2",
        "task": "task-2",
        "reason": CaseReason.LATE_COMMIT,
        "challenge": "c-9",
        "key": "key-2",
        "digest": "i1:2",
        "receipt_digest": "2" * 64,
        "observed": replace(BOX, version=9),
    }.items():
        content = signed(decision(**{name: value}), DECISION_TYPE, RITA)
        phrase = "for environment" if name == "observed" else f"for {name}"
        yield Golden(
            name=f"decision-other-{name}",
            sort="decision",
            content=content,
            error="ApprovalError",
            phrase=phrase,
        )
    ended = signed(decision(expires_at_ms=NOW_MS), DECISION_TYPE, RITA)
    bare = signed(decision(Verdict.CONFIRM_DONE, evidence=""), DECISION_TYPE, RITA)
    approvers = signed(decision(signer="ada"), DECISION_TYPE, ADA)
    for name, sort, content, error, phrase in (
        ("decision-ended", "decision", ended, "ApprovalError", "ended at"),
        ("decision-bare", "decision", bare, "ApprovalError", "needs evidence"),
        ("decision-by-an-approver", "decision", approvers, "SignatureError", "no reviewer has key"),
        (
            "decision-an-approval",
            "decision",
            signed(yes(), APPROVAL_TYPE, ADA),
            "SignatureError",
            "no reviewer has key",
        ),
        (
            "decision-a-migration",
            "decision",
            signed(migration(), MIGRATION_TYPE, RITA),
            "SignatureError",
            "of type",
        ),
        (
            "migration-a-decision",
            "migration",
            signed(decision(), DECISION_TYPE, RITA),
            "SignatureError",
            "of type",
        ),
        (
            "revocation-by-a-reviewer",
            "revocation",
            signed(no_more(signer="rita"), REVOCATION_TYPE, RITA),
            "SignatureError",
            "no approver has key",
        ),
        (
            "revocation-another-name",
            "revocation",
            signed(no_more(signer="bob"), REVOCATION_TYPE, ADA),
            "SignatureError",
            "the statement names",
        ),
    ):
        yield Golden(name=name, sort=sort, content=content, error=error, phrase=phrase)


def _checkpoints() -> Iterator[Golden]:
    row = checkpoint()
    foreign = checkpoint(fresh(run_id=RunId("run-2")))
    swapped = checkpoint(fresh(), EVENTS[::-1]).events
    unsigned = _changed(row.envelope, signatures=[])
    for name, changed, error, phrase in (
        ("state-byte", {"state": row.state + b" "}, "FormatError", "state"),
        ("state-of-another", {"state": foreign.state}, "FormatError", "state"),
        ("events-gone", {"events": b"[]"}, "FormatError", "events"),
        ("events-swapped", {"events": swapped}, "FormatError", "events"),
        ("envelope-cut", {"envelope": row.envelope[:-1]}, "FormatError", "cannot be read"),
        ("unsigned", {"envelope": unsigned}, "SignatureError", "0 signatures"),
    ):
        made = replace(row, **changed)
        yield Golden(
            name=f"checkpoint-{name}",
            sort="checkpoint",
            content=row_bytes(replace(made, digest=digest(made.envelope))),
            error=error,
            phrase=phrase,
        )


def forged() -> Iterator[Golden]:
    """Yield what must never open."""
    yield from _flips("approval", signed(yes(note="n"), APPROVAL_TYPE, ADA))
    yield from _flips("decision", signed(decision(note="n"), DECISION_TYPE, RITA))
    yield from _flips("revocation", signed(no_more(note="n"), REVOCATION_TYPE, ADA))
    yield from _flips("migration", signed(migration(note="n"), MIGRATION_TYPE, RITA))
    yield from _approvals()
    yield from _reviews()
    yield from _checkpoints()


def manifest(goldens: list[Golden]) -> bytes:
    """Return what becomes of each file, as JSON."""
    entries = [{k: v for k, v in asdict(g).items() if k != "content"} for g in goldens]
    return msgspec.json.format(encode(entries), indent=1) + b"\n"


def files() -> dict[str, bytes]:
    """Return every golden file, by its path below this folder."""
    made: dict[str, bytes] = {}
    for folder, goldens in (("valid", list(valid())), ("forged", list(forged()))):
        made[f"{folder}/manifest.json"] = manifest(goldens)
        made |= {f"{folder}/{golden.name}.json": golden.content for golden in goldens}
    return made


def main() -> None:
    """Write them all."""
    for name, content in files().items():
        path = HERE / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)


if __name__ == "__main__":
    main()

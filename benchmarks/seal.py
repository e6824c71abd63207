"""`seal_checkpoint`: encode, hash and sign a state of 1 KiB with two events."""

import hmac
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec.structs import replace

from benchmarks.figures import Figure, median, target
from benchmarks.stage import ARGUMENTS, KIND, RESULT
from counterfoil.core import codec
from counterfoil.core.canonical import digest, encode
from counterfoil.core.envelope import CHECKPOINT_TYPE, MacKey, pre_authentication, seal
from counterfoil.core.intent import EnvironmentState, Intent, Pending, intent_digest
from counterfoil.core.receipt import Receipt
from counterfoil.core.run import Run
from counterfoil.core.trace import Event, Outcome
from counterfoil.core.words import Digest, Key, Level, Risk, RunId

LOOPS = 10
ROUNDS = 2_000
ROUNDS_QUICK = 500
STATE_BYTES = 1024
SEAL_US_MAX = 100
SECRET = b"benchmark secret, never used twice"
HASH = "0" * 64


def measure(folder: Path, *, is_quick: bool) -> list[Figure]:
    """Return microseconds per seal, whole and in parts."""
    run, events, header, signer = _scene()
    settles = ("@41", "k" * 52)
    row = codec.seal_checkpoint(run, events, header, settles, signer)
    payload = encode(header)
    encoder = msgspec.json.Encoder()

    def raw() -> None:
        state, body = encoder.encode(run), b"[" + b",".join(events) + b"]"
        signed = encoder.encode(header)
        sha256(state), sha256(body), sha256(row.envelope)
        hmac.digest(SECRET, signed, "sha256")

    message = pre_authentication(CHECKPOINT_TYPE, payload)
    times = _timed(
        {
            "seal": lambda: codec.seal_checkpoint(run, events, header, settles, signer),
            "raw": raw,
            "encode": lambda: (encode(run), encode(header)),
            "hash": lambda: (digest(row.state), digest(row.events), digest(row.envelope)),
            "sign": lambda: signer.sign(message),
            "envelope": lambda: seal(CHECKPOINT_TYPE, payload, signer),
        },
        ROUNDS_QUICK if is_quick else ROUNDS,
    )
    whole, limit = times["seal"], times["raw"]
    size = f"{len(row.state)} B state, {len(events)} events"
    return [
        Figure(
            name=f"seal, {size}",
            unit="µs",
            value=whole,
            raw=limit,
            raw_name="the same codec, hashes and code, bare",
            ratio=limit / whole,
            **target(whole, "<=", SEAL_US_MAX, "µs"),
        ),
        Figure(name="  encode state and header", unit="µs", value=times["encode"]),
        Figure(name="  hash state, events, envelope", unit="µs", value=times["hash"]),
        Figure(name="  sign", unit="µs", value=times["sign"]),
        Figure(name="  sign and make the envelope", unit="µs", value=times["envelope"]),
    ]


def _timed(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the median microseconds of each call, interleaved."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            began = time.perf_counter()
            for _ in range(LOOPS):
                call()
            times[name].append((time.perf_counter() - began) / LOOPS * 1e6)
    return {name: median(samples) for name, samples in times.items()}


def _scene() -> tuple[Run, tuple[bytes, ...], codec.Header, MacKey]:
    """Return a run in the middle of its task, and what is sealed with it."""
    state = EnvironmentState(adapter="ledger", instance="function:ledger", version=41)
    intent = Intent(
        adapter="ledger",
        kind=KIND,
        arguments={"account": ARGUMENTS["account"]},
        risk=Risk.REVERSIBLE_WRITE,
        target=state.instance,
    )
    pending = Pending(
        action_id="a42",
        position=41,
        key=Key("k" * 52),
        intent=intent,
        digest=intent_digest(intent),
        level=Level.DEDUPLICATING,
        prestate=state,
        first_sent_at_ms=1,
        last_sent_at_ms=1,
    )
    run = Run(
        run_id=RunId("bench"),
        task_id="bench",
        salt=b"s" * 16,
        started_at_ms=1,
        floor_ms=1,
        environments=(state,),
        pending=pending,
    )
    events = codec.encode_events(_events(pending, state))
    return _padded(codec.extended(run, events)), events, _header(), MacKey(id="m1", secret=SECRET)


def _padded(run: Run) -> Run:
    """Fill the arguments up until the state has 1 KiB."""
    room = max(0, STATE_BYTES - len(encode(run)) - len(',"text":""'))
    pending = run.pending
    if pending is None:
        return run
    arguments = {**pending.intent.arguments, "text": "t" * room}
    intent = replace(pending.intent, arguments=arguments)
    return replace(run, pending=replace(pending, intent=intent, digest=intent_digest(intent)))


def _events(pending: Pending, state: EnvironmentState) -> tuple[Event, ...]:
    receipt = Receipt(
        id="entry-1",
        adapter="ledger",
        kind=KIND,
        run_id=RunId("bench"),
        key=pending.key,
        digest=pending.digest,
        level=pending.level,
        poststate=state,
        committed_at_ms=1,
        result=RESULT,
    )
    executed = Event(
        at_ms=1, outcome=Outcome.EXECUTED, position=40, kind=KIND, key="j" * 52, receipt=receipt
    )
    proposed = Event(
        at_ms=1, outcome=Outcome.PENDING, position=41, kind=KIND, intent=pending.intent
    )
    return executed, proposed


def _header() -> codec.Header:
    name = Digest(HASH)
    return codec.Header(
        format=codec.FORMAT,
        run=RunId("bench"),
        task="bench",
        generation=42,
        previous=HASH,
        lease_version=1,
        nonce="0" * 32,
        incarnation="0" * 32,
        task_digest=name,
        policy_digest=name,
        code_digest=name,
        state=name,
        events=name,
        trace_size=2,
        trace_root=HASH,
        environments=(),
        written_at=codec.rfc3339(1),
    )

"""Small runs, tasks and checkpoints, so that a test says only what matters to it."""

from collections.abc import Mapping

from msgspec.structs import replace

from counterfoil.core.codec import Checkpoint, Header, encode_events, extended, seal_checkpoint
from counterfoil.core.envelope import MacKey
from counterfoil.core.errors import ContractError
from counterfoil.core.inputs import Rules
from counterfoil.core.intent import (
    Action,
    EnvironmentState,
    Intent,
    KindSpec,
    Pending,
    intent_digest,
)
from counterfoil.core.receipt import Receipt, Served
from counterfoil.core.review import Case, CaseReason
from counterfoil.core.run import Run
from counterfoil.core.task import Budgets, Policy, Task, Verification, fingerprint
from counterfoil.core.trace import Event, Outcome
from counterfoil.core.words import Digest, Json, Key, Level, Risk, RunId

RUN_ID = RunId("run-1")
KEY = Key("key-1")
BEGAN_MS = 1_000_000
SIGNER = MacKey(id="k1-test", secret=bytes(range(32)))
VERIFIERS = {SIGNER.id: SIGNER}
BOX = EnvironmentState(
    adapter="box", instance="box-1", generation=1, version=3, fingerprint="f3", account="a-1"
)
MOVED = replace(BOX, version=4, fingerprint="f4")


def _arguments(arguments: dict[str, Json]) -> dict[str, Json]:
    """Take `item`, which must be there, and `token`."""
    if not {"item"} <= set(arguments) <= {"item", "token"}:
        raise ContractError("arguments must be item, and token at most")
    return arguments


def _touches(arguments: dict[str, Json]) -> tuple[tuple[str, str], ...]:
    return (("items", str(arguments["item"])),)


def kind(
    name: str = "box.put",
    risk: Risk = Risk.REVERSIBLE_WRITE,
    level: Level = Level.TRANSACTIONAL,
    permission: str = "box.write",
    **declared: Json,
) -> KindSpec:
    """Return a declaration; by default of a transactional write that fences."""
    return KindSpec(
        name=name,
        adapter="box",
        risk=risk,
        level=level,
        permission=permission,
        normalise=_arguments,
        touches=_touches,
        volatile=("token",),
        **({"fences": True} | declared),
    )


PUT = kind()
GET = kind("box.get", Risk.READ_ONLY, permission="box.read")
CHECK = kind("box.check", Risk.VERIFICATION, permission="box.check")
COSTLY = kind("box.buy", Risk.IRREVERSIBLE_WRITE, permission="box.write", cost_micros=60)
KINDS: Mapping[str, KindSpec] = {spec.name: spec for spec in (PUT, GET, CHECK, COSTLY)}

TASK = Task(
    id="task-1",
    policy=Policy(
        permissions=("box.write", "box.read", "box.check"),
        scope={"box": {"items": ("a", "b")}},
    ),
    budgets=Budgets(proposals=8, steps=6, cost_micros=100),
    verifier=Verification(
        kind="box.check", arguments={"item": "a"}, expected={"box": {"a": "full"}}
    ),
)


def rules(now_ms: int = BEGAN_MS, task: Task = TASK, **specs: KindSpec) -> Rules:
    """Return what a run is held to; `specs` replace declared kinds."""
    kinds = dict(KINDS) | {spec.name: spec for spec in specs.values()}
    return Rules(task=task, kinds=kinds, now_ms=now_ms)


def fresh(**fields: Json) -> Run:
    """Return a run that has just begun."""
    return Run(
        **{
            "run_id": RUN_ID,
            "task_id": TASK.id,
            "salt": b"salt",
            "started_at_ms": BEGAN_MS,
            "floor_ms": BEGAN_MS,
            "environments": (BOX,),
        }
        | fields
    )


def action(name: str = "box.put", /, **fields: Json) -> Action:
    """Return a well-formed action of a kind."""
    is_write = name in ("box.put", "box.buy")
    is_control = name in ("finish", "cancel")
    given: dict[str, Json] = {
        "kind": name,
        "arguments": {} if is_control else {"item": "a"},
        "preconditions": {"version": BOX.version},
        "key": KEY if is_write else None,
    }
    return Action(**given | fields)


def intent(item: Json = "a", spec: KindSpec = PUT) -> Intent:
    """Return the intent of a call with one item."""
    return Intent(
        adapter=spec.adapter,
        kind=spec.name,
        arguments={"item": item},
        risk=spec.risk,
        target=BOX.instance,
    )


def pending(spec: KindSpec = PUT, item: Json = "a", **fields: Json) -> Pending:
    """Return an intent that may have been sent once, when the run began."""
    wanted = intent(item, spec)
    given: dict[str, Json] = {
        "action_id": "action-1",
        "position": 0,
        "key": KEY,
        "intent": wanted,
        "digest": intent_digest(wanted),
        "level": spec.level,
        "prestate": BOX,
        "first_sent_at_ms": BEGAN_MS,
        "last_sent_at_ms": BEGAN_MS,
    }
    return Pending(**given | fields)


def receipt_of(item: Pending, **fields: Json) -> Receipt:
    """Return the receipt of a pending intent, which raised the version by one."""
    given: dict[str, Json] = {
        "id": "receipt-1",
        "adapter": item.intent.adapter,
        "kind": item.intent.kind,
        "run_id": RUN_ID,
        "key": item.key,
        "digest": item.digest,
        "level": item.level,
        "poststate": MOVED,
        "committed_at_ms": BEGAN_MS + 5,
        "served": Served(generation=1, checkpoint=Digest("0" * 64)),
        "result": {"at": "a"},
    }
    return Receipt(**given | fields)


def case_of(item: Pending | None, **fields: Json) -> Case:
    """Return a case about a pending intent."""
    given: dict[str, Json] = {
        "reason": CaseReason.OUTCOME_UNKNOWN,
        "finding": "nobody knows",
        "challenge": "c-1",
        "pending": item,
        "opened_at_ms": BEGAN_MS,
    }
    return Case(**given | fields)


EVENTS = (
    Event(at_ms=BEGAN_MS, outcome=Outcome.OPENED, environments=(BOX,)),
    Event(at_ms=BEGAN_MS, outcome=Outcome.REMEMBERED, position=0, kind="n", result={"a": [1, "é"]}),
)


def header(**fields: Json) -> Header:
    """Return a header that `seal_checkpoint` completes."""
    given: dict[str, Json] = {
        "format": 1,
        "run": RUN_ID,
        "task": TASK.id,
        "generation": 0,
        "previous": "",
        "lease_version": 1,
        "nonce": "n-1",
        "incarnation": "i-1",
        "task_digest": fingerprint(TASK),
        "policy_digest": Digest("1" * 64),
        "code_digest": Digest("2" * 64),
        "state": Digest(""),
        "events": Digest(""),
        "trace_size": 0,
        "trace_root": "",
        "environments": (),
        "written_at": "1970-01-01T00:16:40.000Z",
    }
    return Header(**given | fields)


def checkpoint(
    run: Run | None = None, events: tuple[Event, ...] = EVENTS, /, **fields: Json
) -> Checkpoint:
    """Return the sealed checkpoint of a run, to whose trace `events` are appended."""
    encoded = encode_events(events)
    return seal_checkpoint(
        extended(run or fresh(), encoded), encoded, header(**fields), ("@0",), SIGNER
    )

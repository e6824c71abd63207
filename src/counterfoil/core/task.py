"""The task: what is to be done, under which policy, within which budgets.

A task is given from outside each time a run is opened and never stored; its
fingerprint is. It is a value, or a TOML or JSON file; unknown fields are refused.
"""

import tomllib
from datetime import datetime
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from counterfoil.core.bounds import (
    ADAPTERS_PER_TASK_MAX,
    INTEGER_MAX,
    PATH_BYTES_MAX,
    STEPS_DEFAULT_MAX,
    TASK_BYTES_MAX,
)
from counterfoil.core.canonical import canonical, digest, normalise, shaped, strict_json
from counterfoil.core.errors import ContractError
from counterfoil.core.words import Digest, Json, Risk, free_text, identifier

_T = TypeVar("_T")
Count = Annotated[int, Meta(ge=0, le=INTEGER_MAX)]

APPROVALS_MAX = 8
"""Approvers of one action: each envelope is kept in the state."""

PATHS = "paths"
"""Scope list whose entries are paths; all other lists hold exact words."""


class Budgets(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a run may spend; reserved in the commit before it is spent.

    Attributes:
        proposals: Judged proposals, refused ones included.
        steps: Executed actions; at most `proposals`.
        seconds: Wall-clock time from the first open; 0 means no limit.
        cost_micros: Declared cost in millionths of a currency unit; 0 means no limit.
    """

    proposals: Count = STEPS_DEFAULT_MAX
    steps: Count = STEPS_DEFAULT_MAX
    seconds: Count = 0
    cost_micros: Count = 0


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a run may do.

    Attributes:
        version: Named by approvals; change it with every change of the policy.
        permissions: Capabilities granted, each declared by some kind of action.
        scope: Per adapter, the lists of what it may touch: paths, targets, hosts.
            A path that ends in "/" covers all below it; "." covers everything.
        approval_kinds: Kinds that need a signed approval.
        approval_risks: Risk classes that need a signed approval.
        approvals_required: How many distinct approvers must sign each.
    """

    version: str = "1"
    permissions: tuple[str, ...] = ()
    scope: dict[str, dict[str, tuple[str, ...]]] = {}
    approval_kinds: tuple[str, ...] = ()
    approval_risks: tuple[Risk, ...] = ()
    approvals_required: Annotated[int, Meta(ge=1, le=APPROVALS_MAX)] = 1


class Verification(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How completion is proved: one verification action, and the facts it must see.

    Attributes:
        kind: A kind of risk `verification`; its result holds `passed`.
        arguments: Its arguments.
        expected: Per adapter, facts that the last observation must hold.
    """

    kind: str
    arguments: dict[str, Json] = {}
    expected: dict[str, dict[str, Json]] = {}


class Task(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fixed external description of what a run is for.

    Attributes:
        id: Name of the task.
        version: Its version; a run refuses to go on under another.
        goal: For people.
        subject: Who the run acts for; empty when that does not matter.
        accounts: Per adapter, the external account the run must act as.
        initial: Initial state, for adapters that set up an environment.
        policy: What the run may do.
        budgets: What it may spend.
        verifier: What proves that it is done; without one a run cannot finish.
    """

    id: str
    version: str = "1"
    goal: str = ""
    subject: str = ""
    accounts: dict[str, str] = {}
    initial: dict[str, Json] = {}
    policy: Policy = Policy()
    budgets: Budgets = Budgets()
    verifier: Verification | None = None


def parse_task(text: str | bytes, *, syntax: str) -> Task:
    """Read a task from text.

    Args:
        text: At most `TASK_BYTES_MAX` bytes of UTF-8.
        syntax: "json" or "toml".

    Raises:
        ContractError: The text is no strict JSON or TOML, a field is missing, unknown
            or of another type, or `check_task` refuses the value.
    """
    if syntax == "json":
        value = strict_json(text, "task", bytes_max=TASK_BYTES_MAX)
    else:
        value = _toml(text)
    task = shaped(value, Task, "task")
    check_task(task)
    return task


def _toml(text: str | bytes) -> Json:
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(raw) > TASK_BYTES_MAX:
        raise ContractError(f"task has {len(raw)} bytes, the bound is {TASK_BYTES_MAX}")
    try:
        return normalise(tomllib.loads(raw.decode("utf-8")), "task")
    except (ValueError, RecursionError) as error:
        raise ContractError(f"task is not strict TOML: {type(error).__name__}") from error


def check_task(task: Task) -> None:
    """Refuse a task that no run could be held to.

    Raises:
        ContractError: A name is no identifier, a list names something twice, a path is
            not canonical, or fewer proposals than steps are allowed.
    """
    identifier(task.id, "task.id")
    identifier(task.version, "task.version")
    identifier(task.policy.version, "task.policy.version")
    free_text(task.goal, "task.goal")
    if task.subject:
        identifier(task.subject, "task.subject")
    if task.budgets.proposals < task.budgets.steps:
        raise ContractError(
            f"task.budgets.proposals is {task.budgets.proposals}, below the "
            f"{task.budgets.steps} of task.budgets.steps"
        )
    policy = task.policy
    _distinct(policy.permissions, "task.policy.permissions")
    _distinct(policy.approval_kinds, "task.policy.approval_kinds")
    _distinct(policy.approval_risks, "task.policy.approval_risks")
    if len(policy.scope) > ADAPTERS_PER_TASK_MAX:
        raise ContractError(f"task.policy.scope names more than {ADAPTERS_PER_TASK_MAX} adapters")
    for adapter, lists in policy.scope.items():
        identifier(adapter, "an adapter in task.policy.scope")
        for name, entries in lists.items():
            identifier(name, f"a list of {adapter} in task.policy.scope")
            _check_scope(name, entries, f"task.policy.scope.{adapter}.{name}")
    for adapter, account in task.accounts.items():
        identifier(adapter, "an adapter in task.accounts")
        identifier(account, f"task.accounts.{adapter}")
    normalise(task.initial, "task.initial")
    if task.verifier is not None:
        identifier(task.verifier.kind, "task.verifier.kind")
        normalise(task.verifier.arguments, "task.verifier.arguments")
        normalise(task.verifier.expected, "task.verifier.expected")


def _distinct(entries: tuple[str, ...], field: str) -> None:
    for entry in entries:
        identifier(entry, field)
    _check_once(entries, field)


def _check_scope(name: str, entries: tuple[str, ...], field: str) -> None:
    if name != PATHS:
        _distinct(entries, field)
        return
    for entry in entries:
        if entry != ".":
            canonical_path(entry.removesuffix("/"), field)
    _check_once(entries, field)


def _check_once(entries: tuple[str, ...], field: str) -> None:
    if len(set(entries)) != len(entries):
        raise ContractError(f"{field} names an entry twice")


def canonical_path(path: object, field: str) -> str:
    """Return `path` if it is the one spelling of a place below a root.

    Raises:
        ContractError: It is no printable text, is empty, absolute, longer than
            `PATH_BYTES_MAX` bytes, or has an empty, "." or ".." part or a backslash.
    """
    if not isinstance(path, str) or not path or not path.isprintable():
        raise ContractError(f"{field} is no printable path")
    if len(path.encode("utf-8")) > PATH_BYTES_MAX:
        raise ContractError(f"{field} is longer than {PATH_BYTES_MAX} bytes")
    if "\\" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise ContractError(f"{field} {path!r:.120} is not canonical: no '..', '.', '//' or '\\'")
    return path


def is_in_scope(policy: Policy, adapter: str, list_name: str, value: str) -> bool:
    """Return whether the policy lets `adapter` touch `value`."""
    entries = policy.scope.get(adapter, {}).get(list_name, ())
    if list_name != PATHS:
        return value in entries
    return any(covers(entry, value) for entry in entries)


def covers(entry: str, path: str) -> bool:
    """Return whether the scope entry is `path`, a folder ("a/") above it, or "."."""
    return entry in (".", path) or (entry.endswith("/") and path.startswith(entry))


def fingerprint(task: Task) -> Digest:
    """Return the digest of the whole task: what recovery compares."""
    return _digest(task, "task")


def policy_fingerprint(policy: Policy) -> Digest:
    """Return the digest of the policy alone."""
    return _digest(policy, "policy")


def _digest(value: Task | Policy, field: str) -> Digest:
    """Return the digest of a struct; what `normalise` tells apart must not become text first."""
    plain = msgspec.to_builtins(value, builtin_types=(bytes, datetime))
    return digest(canonical(normalise(plain, field)))

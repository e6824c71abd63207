"""A task together with the world that it is about, read from one text.

The world is the task's initial state under `initial.sandbox`, so a changed world is a
changed task, and a recovery under it is refused.
"""

from collections.abc import Callable, Mapping
from importlib.resources import files as package_files

import msgspec

from counterfoil.adapters.sandbox.adapter import TARGETS, SandboxAdapter
from counterfoil.adapters.sandbox.world import World, wall_ms
from counterfoil.core.canonical import shaped
from counterfoil.core.errors import ContractError
from counterfoil.core.judge import check_task_fits
from counterfoil.core.task import PATHS, Task, canonical_path, is_in_scope, parse_task
from counterfoil.core.words import Json, identifier

NAME = "sandbox"
"""Name of the adapter that a scenario speaks of."""

LESSON = "lesson.json"
"""The shipped scenario: one broken file, and the test that sees it repaired."""


class Initial(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The world as a scenario describes it.

    Attributes:
        files: Content of each file, by path.
        tests: Per test target, the files that it wants to see.
    """

    files: dict[str, str]
    tests: dict[str, dict[str, str]] = {}


def load_scenario(text: str | bytes, *, now_ms: Callable[[], int] = wall_ms) -> tuple[Task, World]:
    """Read a scenario: a task in JSON whose `initial.sandbox` is the world.

    Args:
        text: At most `TASK_BYTES_MAX` bytes.
        now_ms: Clock of the world, UTC.

    Raises:
        ContractError: The task is not well formed, names what the sandbox does not
            know, or expects what it does not allow.
    """
    task = parse_task(text, syntax="json")
    if set(task.initial) != {NAME}:
        raise ContractError(f"task.initial must describe {NAME!r}, and nothing else")
    initial = shaped(task.initial[NAME], Initial, f"task.initial.{NAME}")
    world = World(initial.files, tests=initial.tests, now_ms=now_ms)
    kinds = {spec.name: spec for spec in SandboxAdapter(world, name=NAME).kinds}
    check_task_fits(task, kinds)
    _check_world(task, initial)
    if task.verifier is not None:
        kinds[task.verifier.kind].normalise(task.verifier.arguments)
        _check_expected(task, task.verifier.expected)
    return task, world


def lesson() -> str:
    """Return the text of the shipped scenario."""
    return (
        package_files("counterfoil.adapters.sandbox").joinpath(LESSON).read_text(encoding="utf-8")
    )


def _check_world(task: Task, initial: Initial) -> None:
    for path in initial.files:
        canonical_path(path, f"task.initial.{NAME}.files")
    for target, wanted in initial.tests.items():
        identifier(target, f"task.initial.{NAME}.tests")
        _check_allowed(task, wanted, f"task.initial.{NAME}.tests.{target}")
    for target in task.policy.scope.get(NAME, {}).get(TARGETS, ()):
        if target not in initial.tests:
            raise ContractError(f"task.policy.scope.{NAME}.{TARGETS}: no test is named {target}")


def _check_expected(task: Task, expected: Mapping[str, Mapping[str, Json]]) -> None:
    for adapter, facts in expected.items():
        if adapter != NAME:
            raise ContractError(f"task.verifier.expected names adapter {adapter!r:.80}")
        _check_allowed(task, facts, f"task.verifier.expected.{NAME}")


def _check_allowed(task: Task, files: Mapping[str, Json], field: str) -> None:
    for path, content in files.items():
        if not isinstance(content, str):
            raise ContractError(f"{field} expects something other than text of {path!r:.80}")
        if not is_in_scope(task.policy, NAME, PATHS, canonical_path(path, field)):
            raise ContractError(f"{field} expects {path!r:.80}, which is outside the allowed paths")

"""Adapters under test: what each declares, and how a fresh target of it is made."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from counterfoil.adapters.sandbox import SandboxAdapter, World
from counterfoil.core.intent import KindSpec
from counterfoil.core.words import Level
from counterfoil.ports import Adapter
from counterfoil.testing.adapter_bench import AdapterBench, Call, Trait

SCOPE = {"paths": (".",), "targets": ("unit",)}
NOW_MS = 1_700_000_000_000

READS = (Call(kind="read_file", arguments={"path": "app.py"}),)
GARBLED = (
    Call(kind="read_file", arguments={}),
    Call(kind="read_file", arguments={"path": "app.py", "mode": "rb"}),
    Call(kind="read_file", arguments={"path": 1}),
    Call(kind="read_file", arguments={"path": ""}),
    Call(kind="read_file", arguments={"path": "../app.py"}),
    Call(kind="read_file", arguments={"path": "a//b"}),
    Call(kind="read_file", arguments={"path": "/etc/passwd"}),
    Call(kind="read_file", arguments={"path": "a\x00b"}),
    Call(kind="read_file", arguments={"path": "a/" * 3_000 + "b"}),
    Call(kind="write_file", arguments={"path": "app.py"}),
    Call(kind="write_file", arguments={"path": "app.py", "content": 1}),
    Call(kind="write_file", arguments={"path": "app.py", "content": None}),
)
UNIT = Call(kind="run_tests", arguments={"target": "unit"})
GARBLED_TESTS = (
    Call(kind="run_tests", arguments={}),
    Call(kind="run_tests", arguments={"target": True}),
    Call(kind="run_tests", arguments={"target": "unit\n"}),
    Call(kind="run_tests", arguments={"target": "unit", "verbose": True}),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """An adapter that must pass.

    Attributes:
        name: For the test id.
        spec: Declaration of the kind that its bench writes with.
        traits: What its bench can do, and what else is known of it.
        bench: Makes a fresh target, in a folder of its own.
    """

    name: str
    spec: KindSpec
    traits: frozenset[Trait]
    bench: Callable[[Path], AdapterBench]


def sandbox_bench(
    *,
    level: Level = Level.TRANSACTIONAL,
    shared_keys: bool = False,
    wrap: Callable[[Adapter], Adapter] = lambda adapter: adapter,
) -> AdapterBench:
    """Return a fresh world, reached through adapters that `wrap` may spoil."""
    world = World({"app.py": "broken"}, tests={"unit": {"app.py": "sound"}}, now_ms=lambda: NOW_MS)
    return AdapterBench(
        open=lambda: wrap(SandboxAdapter(world, level=level, shared_keys=shared_keys)),
        write=_write,
        count=lambda: world.write_count,
        close=world.reconnect,
        reads=(*READS, UNIT),
        garbled=(*GARBLED, *GARBLED_TESTS),
        scope=SCOPE,
        traits=sandbox_traits(level, shared_keys=shared_keys),
        disturb=lambda: world.other_actor_writes("other.txt", "theirs"),
        lose_answer=world.lose_next_answer,
        cut_off=world.cut_off,
    )


def sandbox_traits(level: Level, *, shared_keys: bool = False) -> frozenset[Trait]:
    """Return what a sandbox bench can do."""
    traits = {Trait.DISTURBS, Trait.LOSES_ANSWERS, Trait.CUTS_OFF}
    if level in (Level.TRANSACTIONAL, Level.CONDITIONAL):
        traits.add(Trait.CHECKS_PRESTATE)
    if shared_keys:
        traits.add(Trait.SHARED_KEYS)
    return frozenset(traits)


def sandbox_candidates() -> tuple[Candidate, ...]:
    """Return the sandbox at each level, and once with shared keys."""
    levels = [_sandbox(level, f"sandbox {level}") for level in Level]
    return (*levels, _sandbox(Level.TRANSACTIONAL, "sandbox with shared keys", shared_keys=True))


def candidates() -> tuple[Candidate, ...]:
    """Return every adapter of the package."""
    return sandbox_candidates()


def _sandbox(level: Level, name: str, *, shared_keys: bool = False) -> Candidate:
    kinds = SandboxAdapter(World(), level=level).kinds
    return Candidate(
        name=name,
        spec=next(spec for spec in kinds if spec.name == "write_file"),
        traits=sandbox_traits(level, shared_keys=shared_keys),
        bench=lambda _: sandbox_bench(level=level, shared_keys=shared_keys),
    )


def _write(number: int) -> Call:
    return Call(kind="write_file", arguments={"path": f"{number}.txt", "content": str(number)})

"""Adapters under test: what each declares, and how a fresh target of it is made."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from counterfoil.adapters.files.kinds import kinds
from counterfoil.adapters.sandbox import SandboxAdapter, World
from counterfoil.core.intent import KindSpec
from counterfoil.core.words import Level
from counterfoil.ports import Adapter
from counterfoil.testing.adapter_bench import AdapterBench, Call, Trait
from tests.support.folders import FolderWorld
from tests.support.ledger_effects import Entries

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
FILES_TRAITS = frozenset(
    (Trait.DISTURBS, Trait.CHECKS_PRESTATE, Trait.LOSES_ANSWERS, Trait.CUTS_OFF)
)
FUNCTION_TRAITS = frozenset((Trait.DISTURBS, Trait.LOSES_ANSWERS, Trait.CUTS_OFF))


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


def files_bench(folder: Path) -> AdapterBench:
    """Return a fresh folder."""
    world = FolderWorld(folder, {"app.py": "broken"}, lambda: NOW_MS)
    return AdapterBench(
        open=world.adapter,
        write=lambda number: _write(number, "files.write"),
        count=lambda: world.write_count,
        close=world.close,
        reads=(
            Call(kind="files.read", arguments={"path": "app.py"}),
            Call(kind="files.read", arguments={"path": "app.py", "encoding": "bytes"}),
        ),
        garbled=_files_garbled(),
        scope={"paths": (".",)},
        traits=FILES_TRAITS,
        disturb=lambda: world.other_actor_writes("1.txt", "theirs"),
        lose_answer=world.lose_next_answer,
        cut_off=world.cut_off,
    )


def function_bench(level: Level, *, can_be_asked: bool = True) -> AdapterBench:
    """Return a fresh ledger behind declared functions."""
    entries = Entries(level, lambda: NOW_MS, can_be_asked=can_be_asked)
    return AdapterBench(
        open=entries.adapter,
        write=lambda number: Call(kind="ledger.note", arguments={"text": f"line {number}"}),
        count=lambda: entries.count,
        close=lambda: None,
        reads=(Call(kind="ledger.lines", arguments={}),),
        garbled=(
            Call(kind="ledger.note", arguments={}),
            Call(kind="ledger.note", arguments={"text": 1}),
            Call(kind="ledger.note", arguments={"text": "a", "times": True}),
            Call(kind="ledger.note", arguments={"text": "a", "colour": "red"}),
            Call(kind="ledger.lines", arguments={"first": 1}),
        ),
        scope={},
        traits=FUNCTION_TRAITS,
        disturb=entries.disturb,
        lose_answer=entries.lose_next_answer,
        cut_off=entries.cut_off,
    )


def candidates() -> tuple[Candidate, ...]:
    """Return every adapter of the package."""
    levels = (Level.TRANSACTIONAL, Level.DEDUPLICATING, Level.QUERYABLE, Level.BLIND)
    unasked = _function(Level.DEDUPLICATING, ", not asked", can_be_asked=False)
    return (*sandbox_candidates(), _files(), *map(_function, levels), unasked)


def _files() -> Candidate:
    return Candidate(
        name="files",
        spec=next(spec for spec in kinds() if spec.name == "files.write"),
        traits=FILES_TRAITS,
        bench=files_bench,
    )


def _function(level: Level, manner: str = "", *, can_be_asked: bool = True) -> Candidate:
    declared = Entries(level, lambda: NOW_MS, can_be_asked=can_be_asked).adapter().kinds
    return Candidate(
        name=f"function {level}{manner}",
        spec=next(spec for spec in declared if spec.name == "ledger.note"),
        traits=FUNCTION_TRAITS,
        bench=lambda _: function_bench(level, can_be_asked=can_be_asked),
    )


def _files_garbled() -> tuple[Call, ...]:
    names = {"read_file": "files.read", "write_file": "files.write"}
    known = tuple(
        Call(kind=names[call.kind], arguments=call.arguments)
        for call in GARBLED
        if call.arguments.get("content", "") not in (1, None)
    )
    return (
        *known,
        Call(kind="files.write", arguments={"path": ".counterfoil", "content": ""}),
        Call(kind="files.write", arguments={"path": "a", "content": "", "expected": "abc"}),
        Call(kind="files.move", arguments={"source": "a", "target": "a"}),
        Call(kind="files.delete", arguments={"path": "a/../b"}),
    )


def _sandbox(level: Level, name: str, *, shared_keys: bool = False) -> Candidate:
    declared = SandboxAdapter(World(), level=level).kinds
    return Candidate(
        name=name,
        spec=next(spec for spec in declared if spec.name == "write_file"),
        traits=sandbox_traits(level, shared_keys=shared_keys),
        bench=lambda _: sandbox_bench(level=level, shared_keys=shared_keys),
    )


def _write(number: int, kind: str = "write_file") -> Call:
    return Call(kind=kind, arguments={"path": f"{number}.txt", "content": str(number)})

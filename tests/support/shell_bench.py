"""A folder in which commands are given, and its own count of what they did."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from counterfoil.adapters.shell import Command, ShellAdapter, open_shell, starting
from counterfoil.core.canonical import canonical, digest
from counterfoil.core.intent import EnvironmentState
from counterfoil.core.receipt import Fence, Receipt, Served
from counterfoil.core.words import Digest, IntentDigest, Json, Key, Risk, RunId
from counterfoil.ports import Adapter, Operation
from counterfoil.testing.adapter_bench import AdapterBench, Call, Trait
from counterfoil.testing.saboteur_adapters import Passing

NOW_MS = 1_700_000_000_000
LOG = "effects.log"
RUN = RunId("run-1")
KEY = Key("key-1")
FENCE = Fence(lease_version=1, nonce="first")
NEWER = Fence(lease_version=2, nonce="second")

NOTE = Command(
    name="note",
    stages=(("sh", "-c", f'echo "$1" >> {LOG}', "sh", "{text}"),),
    patterns={"text": r"[a-z0-9 ]+"},
)
PLACE = Command(
    name="place",
    stages=(("sh", "-c", f'echo "$1" >> {LOG}', "sh", "{text}"),),
    patterns={"text": r"[a-z0-9 ]+"},
    is_repeatable=True,
)
SHOW = Command(name="show", stages=(("ls", "-A"),), risk=Risk.READ_ONLY)
CHECK = Command(
    name="check",
    stages=(("ls", "--", "{file}"),),
    patterns={"file": r"[a-z.]+"},
    risk=Risk.VERIFICATION,
)
COMMANDS = (NOTE, PLACE, SHOW, CHECK)
TRAITS = frozenset(
    (
        Trait.KEYED,
        Trait.DISTURBS,
        Trait.CHECKS_PRESTATE,
        Trait.LOSES_ANSWERS,
        Trait.CUTS_OFF,
    )
)


_FATAL = """
import os, signal, sys
left = int(sys.argv[2])
calls = "fork fchdir posix_fallocate pipe setpgid write fsync ftruncate link unlink rename poll"
counted = frozenset(f"{calls} waitpid dup2".split())
def note(_, event, called):
    global left
    if event == "c_call" and called.__name__ in counted and os.getpid() == os.getsid(0):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), getattr(signal, sys.argv[3]))
sys.setprofile(note)
"""


def fatal_launch(number: int, name: str = "SIGKILL") -> tuple[str, ...]:
    """Return how a supervisor is started that gets a signal at its so-many-th system call.

    Calls are counted from the moment it leads a session of its own.
    """
    *start, program, folder = starting.LAUNCH
    return (*start, _FATAL + program, folder, str(number), name)


def scope_of(commands: Sequence[Command], *paths: str) -> Mapping[str, tuple[str, ...]]:
    """Return the policy's lists that allow all of these, in the root or in some paths."""
    return {"commands": tuple(one.name for one in commands), "paths": paths or (".",)}


class Line(Passing):
    """The way to an adapter, on which one answer can be lost; closing it twice is harmless."""

    def __init__(self, inner: ShellAdapter, lost: list[bool]) -> None:
        super().__init__(inner)
        self._lost = lost

    def execute(self, operation: Operation) -> Receipt:
        receipt = super().execute(operation)
        if self._lost:
            self._lost.clear()
            raise ConnectionError("the answer was lost")
        return receipt


class Yard:
    """A root below a temporary folder; what commands do there is counted by its log."""

    def __init__(self, place: Path, commands: Sequence[Command] = COMMANDS) -> None:
        self.place = place
        self.commands = tuple(commands)
        self.root = place / "root"
        if not self.root.exists():
            self.root.mkdir(parents=True)
            (self.root / "settings").write_text("as found\n")
        self.lost: list[bool] = []
        self.opened: list[ShellAdapter] = []

    def open(self, **options: Any) -> ShellAdapter:
        """Open an adapter."""
        given: dict[str, Any] = {"watched": ("settings",), "now_ms": lambda: NOW_MS}
        adapter = open_shell(self.root, self.commands, **(given | options))
        self.opened.append(adapter)
        return adapter

    @property
    def journal(self) -> Path:
        """Folder of the journal."""
        return self.place / ".root.counterfoil-shell"

    @property
    def scope(self) -> Mapping[str, tuple[str, ...]]:
        """Lists that allow everything."""
        return scope_of(self.commands)

    @property
    def effects(self) -> list[str]:
        """The lines that commands wrote."""
        log = self.root / LOG
        return log.read_text().splitlines() if log.exists() else []

    def disturb(self) -> None:
        """Change a watched file as another program does."""
        (self.root / "settings").write_text("changed by somebody else\n")

    def cut_off(self) -> None:
        """Take the folder away from its path."""
        self.root.rename(self.root.with_name("elsewhere"))

    def close(self) -> None:
        """Close every adapter."""
        for adapter in self.opened:
            adapter.close()


def shell_bench(
    place: Path,
    *,
    kind: str = "shell.note",
    wrap: Callable[[Adapter], Adapter] = lambda adapter: adapter,
) -> AdapterBench:
    """Return a fresh yard, reached through adapters that `wrap` may spoil."""
    yard = Yard(place)
    return AdapterBench(
        open=lambda: wrap(Line(yard.open(), yard.lost)),
        write=lambda number: Call(kind=kind, arguments={"text": f"line {number}"}),
        count=lambda: len(yard.effects),
        close=yard.close,
        reads=(
            Call(kind="shell.show", arguments={}),
            Call(kind="shell.check", arguments={"file": "settings"}),
        ),
        garbled=GARBLED,
        scope=yard.scope,
        traits=TRAITS,
        disturb=yard.disturb,
        lose_answer=lambda: yard.lost.append(True),
        cut_off=yard.cut_off,
    )


GARBLED = tuple(
    Call(kind="shell.note", arguments=arguments)
    for arguments in (
        {},
        {"text": 1},
        {"text": None},
        {"text": ["a"]},
        {"text": ""},
        {"text": "a\n"},
        {"text": "a\0"},
        {"text": "\u00e4"},
        {"text": "a" * 70_000},
        {"text": "a", "colour": "red"},
        {"text": "a", "folder": "../a"},
        {"text": "a", "folder": "/etc"},
        {"text": "a", "folder": "a//b"},
        {"text": "a", "folder": 1},
        {"text": "a", "argv": [["sh", "-c", "id"]]},
        {"text": "a", "argv": None},
    )
)


def operation(
    adapter: Adapter,
    scope: Mapping[str, tuple[str, ...]],
    name: str,
    *,
    key: Key = KEY,
    run_id: RunId = RUN,
    fence: Fence = FENCE,
    prestate: EnvironmentState | None = None,
    generation: int = 1,
    **arguments: Json,
) -> Operation:
    """Return a call of a command on the state as it is, or on `prestate`."""
    spec = next(spec for spec in adapter.kinds if spec.name == f"shell.{name}")
    whole = spec.normalise(arguments)
    intent = canonical({"arguments": whole, "kind": spec.name})
    return Operation(
        run_id=run_id,
        kind=spec.name,
        arguments=whole,
        key=key if spec.risk.writes else Key(""),
        digest=IntentDigest(f"i1:{digest(intent)}"),
        fence=fence,
        served=Served(generation=generation, checkpoint=Digest(f"{generation:064x}")),
        prestate=prestate or adapter.observe(scope).state,
        scope=scope,
        timeout_ms=spec.call_ms,
    )


def do(adapter: Adapter, scope: Mapping[str, tuple[str, ...]], name: str, **more: Any) -> Receipt:
    """Give a command on the state as it is."""
    return adapter.execute(operation(adapter, scope, name, **more))

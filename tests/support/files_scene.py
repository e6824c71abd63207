"""A folder with an adapter on it, and the calls that a run would make."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from counterfoil.adapters.files import FilesAdapter, open_files
from counterfoil.adapters.files.disk import Disk
from counterfoil.core.canonical import canonical, digest, normalise
from counterfoil.core.intent import EnvironmentState
from counterfoil.core.receipt import Answer, Fence, LookUp, Receipt, Served
from counterfoil.core.words import Digest, IntentDigest, Json, Key, RunId
from counterfoil.ports import Operation

NOW_MS = 1_700_000_000_000
RUN = RunId("run-1")
OTHER_RUN = RunId("run-2")
KEY = Key("key-1")
FENCE = Fence(lease_version=1, nonce="first")
EVERYTHING = {"paths": (".",)}

Files = Mapping[str, str | bytes]


def served(generation: int) -> Served:
    """Return a checkpoint that carries an intent."""
    return Served(generation=generation, checkpoint=Digest(f"{generation:064x}"))


def no_pause(seconds: float) -> None:
    """Wait for nothing."""


class Scene:
    """A root below a temporary folder; adapters on it are opened and closed by the tests."""

    def __init__(self, place: Path, files: Files | None = None) -> None:
        self.place = place
        self.root = place / "root"
        self.root.mkdir()
        for path, content in (files or {}).items():
            self.put(path, content)

    def put(self, path: str, content: str | bytes) -> None:
        """Write a file as another program does."""
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)

    def replace(self, path: str, content: str) -> None:
        """Write a file as another program does that saves by renaming."""
        beside = self.root / f"{path}~"
        beside.write_text(content)
        beside.rename(self.root / path)

    def open(self, disk: Disk | None = None, **options: Any) -> FilesAdapter:
        """Open an adapter."""
        settings: dict[str, Any] = {"now_ms": lambda: NOW_MS, "pause": no_pause, "disk": disk}
        return open_files(self.root, **(settings | options))

    @property
    def journal(self) -> Path:
        """Folder of the journal."""
        return self.place / ".root.counterfoil-journal"

    @property
    def files(self) -> dict[str, str]:
        """What stands in the root, our own reserved names included."""
        found: dict[str, str] = {}
        for folder, _, names in os.walk(self.root):
            for name in names:
                path = Path(folder) / name
                shown = path.relative_to(self.root).as_posix()
                found[shown] = (
                    f"-> {path.readlink()}" if path.is_symlink() else path.read_bytes().decode()
                )
        return found

    @property
    def visible(self) -> dict[str, str]:
        """What stands in the root under names that are not reserved."""
        return {path: text for path, text in self.files.items() if "/.c" not in f"/{path}"}


def operation(
    adapter: FilesAdapter,
    kind: str,
    *,
    key: Key = KEY,
    run_id: RunId = RUN,
    fence: Fence = FENCE,
    scope: Mapping[str, tuple[str, ...]] = EVERYTHING,
    prestate: EnvironmentState | None = None,
    generation: int = 1,
    statement: str = "",
    **arguments: Json,
) -> Operation:
    """Return a call on the state as it is, or on `prestate`."""
    given = normalise(arguments, "arguments")
    intent = canonical({"arguments": given, "kind": kind})
    return Operation(
        run_id=run_id,
        kind=f"files.{kind}",
        arguments=given,
        key=key,
        digest=IntentDigest(f"i1:{digest(intent)}"),
        fence=fence,
        served=served(generation),
        prestate=prestate or adapter.observe(scope).state,
        scope=scope,
        timeout_ms=10_000,
        statement=statement,
    )


def do(adapter: FilesAdapter, kind: str, **options: Any) -> Receipt:
    """Make a call on the state as it is."""
    return adapter.execute(operation(adapter, kind, **options))


def read(adapter: FilesAdapter, path: str, **arguments: Json) -> Json:
    """Return the result of a read."""
    return do(adapter, "read", key=Key(""), path=path, **arguments).result


def answer(adapter: FilesAdapter, key: Key = KEY, run_id: RunId = RUN) -> LookUp:
    """Return what is on record under a key."""
    return adapter.look_up(run_id, key, "files.write")


CHANGES: Mapping[str, tuple[Files, Mapping[str, Json], Files]] = {
    "create": ({"a": "1"}, {"kind": "write", "path": "b", "content": "2"}, {"a": "1", "b": "2"}),
    "create below new folders": (
        {"a": "1"},
        {"kind": "write", "path": "x/y/b", "content": "2"},
        {"a": "1", "x/y/b": "2"},
    ),
    "replace": ({"a": "1"}, {"kind": "write", "path": "a", "content": "2"}, {"a": "2"}),
    "delete": ({"a": "1", "b": "2"}, {"kind": "delete", "path": "b"}, {"a": "1"}),
    "move": ({"d/a": "1"}, {"kind": "move", "source": "d/a", "target": "e/b"}, {"e/b": "1"}),
    "move over": (
        {"d/a": "1", "b": "2"},
        {
            "kind": "move",
            "source": "d/a",
            "target": "b",
            "expected_target": digest(b"2"),
        },
        {"b": "1"},
    ),
}
"""Each form of change: the files before, the call, the files after."""


def change(adapter: FilesAdapter, name: str, **options: Any) -> Operation:
    """Return the call of one of `CHANGES`."""
    call = dict(CHANGES[name][1])
    return operation(adapter, call.pop("kind"), **{**call, **options})


def expect_one_end(scene: Scene, name: str, asked: Operation, disk: Disk | None = None) -> Answer:
    """Hold a scene after a crash to one of its two ends, then to the effect being there once."""
    before, _, after = CHANGES[name]
    adapter = scene.open(disk)
    try:
        found = answer(adapter)
        assert scene.visible == (after if found.answer is Answer.FOUND else before)
        adapter.take(RUN, FENCE)
        receipt = adapter.execute(asked)
        assert receipt.replayed is (found.answer is Answer.FOUND)
        assert adapter.observe(EVERYTHING).state == receipt.poststate
        assert scene.files == after
        return found.answer
    finally:
        adapter.close()


def raised(act: Callable[[], object]) -> BaseException | None:
    """Return what a call raises, or None."""
    try:
        act()
    except BaseException as error:  # noqa: BLE001 # also a simulated death
        return error
    return None

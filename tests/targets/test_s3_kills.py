"""Real processes killed at every change of the bucket, and what the next one makes of it.

A process is killed while its request is on the way, and the request arrives all the
same: the instant after each request, and before the next. A request that only looks
leaves the bucket as the one before did, so that its instant is the same. Effects are the
versions that the bucket keeps.
"""

import json
import signal
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from counterfoil.adapters.s3.adapter import S3Adapter
from counterfoil.core.canonical import digest
from counterfoil.core.receipt import Answer, Fence
from counterfoil.ports import Operation
from counterfoil.testing.adapter_bench import RUN
from tests.support.s3_bench import PART_BYTES, Scene, called, scene, settled
from tests.support.s3_proxy import is_signed
from tests.support.s3_server import VERSIONED, LocalS3
from tests.support.s3_worker import call, fill, run_until

pytest_plugins = ["tests.support.s3_server"]

NEXT = Fence(lease_version=2, nonce="second")
FILE = bytes(PART_BYTES) + b"the end"
"""One whole part, and one that is shorter."""

CALLS: Mapping[str, dict[str, Any]] = {
    "put": {"path": "new.txt", "content": "new"},
    "copy": {"source": "old.txt", "path": "copy.txt"},
    "delete": {"path": "old.txt"},
    "upload": {"path": "large.bin", "file": "0.bin"},
}
READS = ("GET", "HEAD")
AT_ONCE = 3
"""Places that are worked on at one time."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("put", id="C29 put"),
        pytest.param("copy", id="C29 copy"),
        pytest.param("delete", id="C29 delete"),
        pytest.param("upload", id="C29 upload at each part"),
    ],
)
def test_a_call_killed_at_any_change_is_one_effect(name: str, s3: LocalS3, tmp_path: Path) -> None:
    instants = _instants(name, s3, tmp_path)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        tries = [pool.submit(_killed, name, s3, tmp_path, n) for n in instants]
        ends = Counter(each.result() for each in tries)
    assert set(ends) <= _ends(name), ends
    assert ends[Answer.ABSENT] > 0 < ends[Answer.FOUND]


def test_a_run_killed_at_its_effects_goes_on_in_another_process(
    s3: LocalS3, tmp_path: Path
) -> None:
    with scene(s3, tmp_path, VERSIONED) as place:
        folder = _project(place, tmp_path / "project")
        run_until(place, fill, folder, spared=None)
        deaths = [index for index, (_, path) in enumerate(place.proxy.seen) if is_signed(path)]
        assert place.versions() == 3
    for death in deaths:
        with scene(s3, tmp_path, VERSIONED) as place:
            folder = _project(place, tmp_path / f"project-{death}")
            assert run_until(place, fill, folder, spared=death) == -signal.SIGKILL
            assert run_until(place, fill, folder, spared=None) == 0
            assert place.versions() == 3
            assert place.objects == {"a.txt": b"two", "b.txt": b"two"}


def _ends(name: str) -> set[Answer]:
    """Return what can be found after a kill: of a deletion, that nobody knows whose it was."""
    known = {Answer.ABSENT, Answer.FOUND}
    return known | {Answer.FOUND_OTHER} if name == "delete" else known


def _instants(name: str, s3: LocalS3, tmp_path: Path) -> list[int]:
    """Return numbers of requests to die at: the first look of a call, and all its changes."""
    with scene(s3, tmp_path, VERSIONED) as place:
        place.file("0.bin", FILE)
        raw = _prepared(place, name)[1]
        assert _run(place, name, raw, None) == 0
        seen = place.proxy.seen
        probes = [number for number, (_, path) in enumerate(seen) if "/.counterfoil/probe" in path]
        first = probes[-1] + 1
        changes = (number for number in range(first, len(seen)) if seen[number][0] not in READS)
        return [first, *changes]


def _run(place: Scene, name: str, raw: bytes, spared: int | None) -> int | None:
    return run_until(place, call, raw, spared=spared, has_files=name == "upload")


def _prepared(place: Scene, name: str) -> tuple[S3Adapter, bytes]:
    """Return an adapter of this process, and the call that another one makes."""
    place.put("old.txt", "old")
    adapter = place.open(direct=True, uploads=place.folder if name == "upload" else None)
    given = dict(CALLS[name])
    if name == "upload":
        given["sha256"] = digest(FILE)
    return adapter, msgspec.msgpack.encode(called(place, adapter, name, **given))


def _killed(name: str, s3: LocalS3, tmp_path: Path, number: int) -> Answer:
    """Kill a call at a request, recover, and return what this process found first."""
    with scene(s3, tmp_path, VERSIONED) as place:
        adapter, raw = _prepared(place, name)
        before = place.versions()
        assert _run(place, name, raw, number) == -signal.SIGKILL
        adapter.take(RUN, NEXT)
        sent = msgspec.msgpack.decode(raw, type=Operation)
        answer = settled(adapter, sent.kind)
        if answer.answer is Answer.ABSENT:
            assert place.versions() == before
            receipt = adapter.execute(msgspec.structs.replace(sent, fence=NEXT))
            assert adapter.look_up(RUN, sent.key, sent.kind).receipt == receipt
        assert place.versions() == before + 1
        assert not any(_parts(place, upload) for upload in place.uploads())
        _check_content(place, name)
        return answer.answer


def _parts(place: Scene, upload: str) -> list[Any]:
    """Return the parts of an upload: one that was begun and not yet put on record has none."""
    answer = place.client.list_parts(
        Bucket=place.bucket, Key=f"{place.prefix}large.bin", UploadId=upload
    )
    return list(answer.get("Parts", ()))


def _check_content(place: Scene, name: str) -> None:
    held = place.objects
    match name:
        case "put":
            assert held == {"old.txt": b"old", "new.txt": b"new"}
        case "copy":
            assert held == {"old.txt": b"old", "copy.txt": b"old"}
        case "delete":
            assert held == {}
        case _:
            assert held == {"old.txt": b"old", "large.bin": FILE}


def _project(place: Scene, folder: Path) -> str:
    folder.mkdir()
    (folder / "counterfoil.toml").write_text('[project]\nid = "s3"\n')
    scope = {name: entries for name, entries in place.scope.items() if name != "files"}
    task = {
        "id": "fill",
        "policy": {"permissions": ["s3.put", "s3.copy"], "scope": {"s3": scope}},
        "budgets": {"proposals": 20, "steps": 10},
    }
    (folder / "fill.json").write_text(json.dumps(task))
    return str(folder)

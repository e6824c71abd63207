"""Every crash of a run on a real bucket, between any two calls of its ports."""

import hashlib
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from counterfoil.adapters.function import Effects
from counterfoil.adapters.function.call import Call
from counterfoil.core.task import Budgets, Policy, Task, Verification
from counterfoil.core.words import Level
from counterfoil.engine.session import Session
from counterfoil.testing.crash import enumerate_crashes
from counterfoil.testing.saboteur_adapters import Passing
from tests.support.s3_bench import Scene, scene
from tests.support.s3_server import VERSIONED, LocalS3
from tests.support.stages import Backend, PlayStage, closing

pytest_plugins = ["tests.support.s3_server"]
pytestmark = pytest.mark.timeout(300)

BEFORE = {"old.txt": "old", "gone.txt": "gone"}
AFTER = {"old.txt": hashlib.md5(b"new", usedforsecurity=False).hexdigest()}


class Shared(Passing):
    """One adapter for all processes of a stage: it keeps nothing between calls."""

    def close(self) -> None:
        """Leave it open."""


def tidy(run: Session) -> None:
    """Replace, delete, verify, finish: a kind of either level."""
    run.do("s3.put", path="old.txt", content="new")
    run.do("s3.delete", path="gone.txt")
    run.verify()
    run.finish()


@contextmanager
def _stage(server: LocalS3, folder: Path, backend: Backend) -> Generator[PlayStage]:
    with scene(server, folder, VERSIONED) as place:
        for path, text in BEFORE.items():
            place.put(path, text)
        adapter, effects = Shared(place.open(direct=True)), Effects()

        @effects.effect("bucket.check", risk="verification", level=Level.QUERYABLE)
        def check(call: Call) -> dict[str, object]:
            return {"passed": place.etags == AFTER}

        stage = PlayStage(
            backend=backend,
            run_id=backend.new_run(),
            task=_task(place),
            program=tidy,
            adapters=lambda: (adapter, *effects.adapters(backend.clock.now_ms)),
            count=lambda: _effects(place),
            look=lambda: place.etags,
        )
        with closing(stage):
            yield stage


def _task(place: Scene) -> Task:
    scope = {name: entries for name, entries in place.scope.items() if name != "files"}
    kinds = ("s3.put", "s3.delete", "bucket.check")
    return Task(
        id="tidy",
        policy=Policy(permissions=kinds, scope={"s3": scope}),
        budgets=Budgets(proposals=16, steps=8),
        verifier=Verification(kind="bucket.check"),
    )


def _effects(place: Scene) -> tuple[str, ...]:
    """Name what the bucket keeps: each version by its number, newest last, and deletions."""
    answer = place.client.list_object_versions(Bucket=place.bucket, Prefix=place.prefix)
    found = [
        (each["Key"].removeprefix(place.prefix), word)
        for word, name in (("written", "Versions"), ("deleted", "DeleteMarkers"))
        for each in answer.get(name, ())
        if "/.counterfoil/" not in each["Key"]
    ]
    counted = Counter(found)
    return tuple(
        f"{path} {word} {number}"
        for path, word in sorted(counted)
        for number in range(counted[path, word])
    )


def test_a_run_that_crashes_anywhere_has_each_effect_once(s3: LocalS3, tmp_path: Path) -> None:
    backend = Backend()
    tally = enumerate_crashes(lambda: _stage(s3, tmp_path, backend), second_deaths=0)
    assert tally.crashes == len(tally.calls) + 1
    assert tally.reviews == 0

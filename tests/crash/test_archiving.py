"""A run is archived by processes that die at any instant, and beside each other."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from counterfoil.core.trace import Event
from counterfoil.core.words import Level
from counterfoil.engine import audit
from counterfoil.engine.parts import Parts
from counterfoil.testing.crash import READS
from counterfoil.testing.mortal import Death, Died, Fate, mortal
from tests.support.archives import Meanwhile, collected, in_small_parts, rows_of, seen
from tests.support.stages import Backend, PlayStage, sandbox_stage

pytestmark = pytest.mark.timeout(600)

BACKENDS = ("memory", "sqlite")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    in_small_parts(monkeypatch)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    return Backend(tmp_path if request.param == "sqlite" else None)


@contextmanager
def finished(backend: Backend) -> Generator[PlayStage]:
    """Yield a run that was taken over once, so that it has a lease record, and has ended."""
    with sandbox_stage(backend, level=Level.TRANSACTIONAL) as stage:
        with pytest.raises(Died):
            stage.work(mortal(stage.parts(), Fate(Death(at=20))))
        stage.wait()
        stage.work(stage.parts())
        assert stage.parts().store.marked(stage.run_id) is not None
        yield stage


def calls_of(backend: Backend) -> list[str]:
    """Return the port calls by which one run is archived."""
    with finished(backend) as stage:
        fate = Fate()
        collected(mortal(stage.parts(), fate))
        assert rows_of(stage.parts(), stage.run_id) == [stage_end(stage)]
        return fate.calls


def stage_end(stage: PlayStage) -> int:
    head = stage.parts().heads.read(stage.run_id)
    assert head is not None
    return head.generation


def read(parts: Parts, stage: PlayStage) -> tuple[str, list[tuple[int, Event]]]:
    return audit.audit(parts, stage.run_id).root, list(audit.events(parts, stage.run_id))


def dies(parts: Parts, death: Death) -> bool:
    try:
        collected(mortal(parts, Fate(death)))
    except Died:
        return True
    return False


def test_no_death_changes_what_is_seen_or_where_it_ends(backend: Backend) -> None:
    calls = calls_of(backend)
    assert {"store.archive", "store.collect"} <= set(calls)
    assert calls.index("store.collect") > len(calls) - calls[::-1].index("store.archive") - 1
    deaths = [Death(at=number) for number in range(len(calls))]
    deaths.append(Death(at=len(calls) - 1, is_after=True))
    for death in deaths:
        with finished(backend) as stage:
            eyes = stage.parts()
            before = seen(eyes, stage.run_id)
            assert dies(stage.parts(), death), death
            assert seen(eyes, stage.run_id) == before, death
            collected(stage.parts())
            assert seen(eyes, stage.run_id) == before, death
            assert rows_of(eyes, stage.run_id) == [stage_end(stage)], death


def test_no_two_deaths_change_what_is_seen_or_where_it_ends() -> None:
    backend = Backend()
    calls = calls_of(backend)
    changes = [n for n, name in enumerate(calls) if name not in READS]
    for first in changes:
        for second in range(0, len(calls), 3):
            with finished(backend) as stage:
                eyes = stage.parts()
                before = seen(eyes, stage.run_id)
                assert dies(stage.parts(), Death(at=first, is_after=True))
                dies(stage.parts(), Death(at=second))
                collected(stage.parts())
                assert seen(eyes, stage.run_id) == before, (first, second)
                assert rows_of(eyes, stage.run_id) == [stage_end(stage)], (first, second)


def test_two_that_archive_one_run_come_to_the_same_end(backend: Backend) -> None:
    for number in range(len(calls_of(backend))):
        with finished(backend) as stage:
            eyes = stage.parts()
            before = seen(eyes, stage.run_id)
            fate = Meanwhile(number, lambda stage=stage: collected(stage.parts()))
            outcomes = [each.outcome for each in collected(mortal(stage.parts(), fate))]
            assert outcomes in ([], ["archived"]), number
            assert seen(eyes, stage.run_id) == before, number
            assert rows_of(eyes, stage.run_id) == [stage_end(stage)], number


def test_who_reads_a_run_while_it_is_archived_sees_it_whole(backend: Backend) -> None:
    with finished(backend) as stage:
        fate = Fate()
        read(mortal(stage.parts(), fate), stage)
        calls = len(fate.calls)
    for number in range(calls):
        with finished(backend) as stage:
            before = read(stage.parts(), stage)
            fate = Meanwhile(number, lambda stage=stage: collected(stage.parts()))
            assert read(mortal(stage.parts(), fate), stage) == before, number


def test_who_reads_an_archive_while_a_process_that_archives_dies_sees_it_whole() -> None:
    backend = Backend()
    calls = calls_of(backend)
    drops = [n for n, name in enumerate(calls) if name == "store.collect"]
    for number in drops:
        with finished(backend) as stage:
            before = seen(stage.parts(), stage.run_id)
            assert dies(stage.parts(), Death(at=number, is_after=True))
            left = rows_of(stage.parts(), stage.run_id)
            assert left[-1] == stage_end(stage)
            assert seen(stage.parts(), stage.run_id) == before, left


def test_a_run_that_is_started_again_while_it_is_archived_is_told_the_same(
    backend: Backend,
) -> None:
    with finished(backend) as stage:
        fate = Fate()
        stage.work(mortal(stage.parts(), fate))
        calls = len(fate.calls)
    for number in range(calls):
        with finished(backend) as stage:
            effects = stage.effects()
            fate = Meanwhile(number, lambda stage=stage: collected(stage.parts()))
            stage.work(mortal(stage.parts(), fate))
            assert stage.effects() == effects, number

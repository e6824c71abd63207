"""SIGKILL at every boundary: of the runtime, of the supervisor, of the command."""

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from counterfoil import locks
from counterfoil.adapters.shell import ShellAdapter, records, starting
from counterfoil.adapters.shell.kernel import lives
from counterfoil.core.errors import (
    CounterfoilError,
    FencedError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.receipt import Answer, LookUp, Receipt
from counterfoil.ports import Operation
from tests.support.shell_bench import KEY, NEWER, RUN, Yard, fatal_launch, operation
from tests.support.sources import ROOT

BOUNDARIES_MAX = 500
"""More than one call makes; a loop without an end would not say so."""


@pytest.fixture(scope="module")
def worker() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.shell_worker"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as started:
        yield started
        assert started.stdin is not None
        started.stdin.close()


def given(worker: subprocess.Popen[str], place: Path, fatal: int) -> int:
    """Have the worker make the call of a place; return how it ended."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(f"{place} {fatal}\n")
    worker.stdin.flush()
    return int(worker.stdout.readline())


def prepared(place: Path, name: str) -> tuple[Yard, Operation]:
    """Return a fresh yard, and a call for it that lies in its place."""
    yard = Yard(place)
    adapter = yard.open()
    asked = operation(adapter, yard.scope, name, text="once")
    adapter.close()
    (place / "call").write_bytes(msgspec.msgpack.encode(asked))
    return yard, asked


def settled(adapter: ShellAdapter) -> LookUp:
    """Return what is known of the key once nothing runs any more."""
    while (answer := adapter.look_up(RUN, KEY, "shell.note")).answer is Answer.UNKNOWN:
        if answer.is_final:
            break
    return answer


def recovered(yard: Yard, asked: Operation) -> tuple[Answer, Receipt]:
    """Go on as the next session does: take, look, and call again only where it is absent."""
    adapter = yard.open()
    adapter.take(RUN, NEWER)
    found = settled(adapter)
    if found.answer is Answer.ABSENT:
        assert yard.effects == []
        assert adapter.observe(yard.scope).state == asked.prestate
    receipt = adapter.execute(msgspec.structs.replace(asked, fence=NEWER))
    assert receipt.replayed is (found.answer is Answer.FOUND)
    assert adapter.observe(yard.scope).state == receipt.poststate
    return found.answer, receipt


def test_a_runtime_that_is_killed_at_any_boundary_costs_and_repeats_nothing(
    worker: subprocess.Popen[str], tmp_path: Path
) -> None:
    seen: list[Answer] = []
    for number in range(1, BOUNDARIES_MAX):
        yard, asked = prepared(tmp_path / str(number), "note")
        code = given(worker, yard.place, number)
        answer, receipt = recovered(yard, asked)
        assert yard.effects == ["once"], f"killed before call {number}"
        assert receipt.result["passed"] is True
        yard.close()
        seen.append(answer)
        if code == 0:
            break
    changes = [before for before, after in itertools.pairwise(seen) if before != after]
    assert changes == [Answer.ABSENT]
    assert len(seen) > 40


def outcome(adapter: ShellAdapter, asked: Operation) -> str:
    try:
        return adapter.execute(asked).id
    except CounterfoilError as error:
        return type(error).__name__


def test_a_supervisor_that_is_killed_at_any_boundary_never_starts_it_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Absent is true, found is true, and what is neither goes to a person with evidence."""
    ends: list[str] = []
    for number in range(1, BOUNDARIES_MAX):
        yard = Yard(tmp_path / str(number))
        adapter = yard.open()
        asked = operation(adapter, yard.scope, "note", text="once")
        with monkeypatch.context() as patched:
            patched.setattr(starting, "LAUNCH", fatal_launch(number))
            first = outcome(adapter, asked)
        found = settled(adapter)
        written = yard.effects
        if found.answer is Answer.ABSENT:
            assert (first, written) == ("UnavailableError", [])
            assert adapter.execute(asked).result["passed"] is True
            assert yard.effects == ["once"]
            ends.append("absent")
        elif found.answer is Answer.FOUND:
            assert written == ["once"]
            ends.append("found")
        else:
            assert "its supervisor was killed" in found.reason
            with pytest.raises(UnknownOutcomeError, match="its supervisor was killed"):
                adapter.execute(asked)
            assert yard.effects == written
            ends.append("lost")
        yard.close()
        if first == "shell-1" and ends[-8:] == ["found"] * 8:
            break
    firsts = [ends.index(end) for end in ("absent", "lost", "found")]
    assert (firsts[0], firsts) == (0, sorted(firsts))
    assert "absent" not in ends[firsts[1] :]


def stopped() -> records.Life:
    """Return the supervisor that was stopped by a signal."""
    while True:
        for one in lives():
            if one.state == "T" and b"supervisor" in Path(f"/proc/{one.pid}/cmdline").read_bytes():
                return one


@pytest.mark.parametrize(
    ("name", "effects"),
    [
        pytest.param("SIGKILL", [], id="and never goes on"),
        pytest.param("SIGCONT", ["once"], id="and goes on late"),
    ],
)
def test_a_start_that_hangs_holds_the_next_worker_up_until_it_is_decided(
    name: str, effects: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start cannot land after a newer fence: it has the lock that the fence needs."""
    monkeypatch.setattr(starting, "START_SECONDS", 0.2)
    monkeypatch.setattr(locks, "TRIES_MAX", 10)
    yard = Yard(tmp_path)
    adapter, rival = yard.open(), yard.open()
    asked = operation(adapter, yard.scope, "note", text="once")
    monkeypatch.setattr(starting, "LAUNCH", fatal_launch(6, "SIGSTOP"))
    with pytest.raises(UnknownOutcomeError):
        adapter.execute(asked)
    hanging = stopped()
    with pytest.raises(UnavailableError):
        rival.take(RUN, NEWER)
    assert rival.look_up(RUN, KEY, "shell.note").answer is Answer.UNKNOWN
    os.kill(hanging.pid, getattr(signal, name))
    monkeypatch.setattr(locks, "TRIES_MAX", 1_000)
    rival.take(RUN, NEWER)
    found = settled(rival)
    assert yard.effects == effects
    assert (found.answer is Answer.FOUND) is bool(effects)
    with pytest.raises(FencedError):
        adapter.execute(asked)
    assert yard.effects == effects
    yard.close()

"""A command is stopped with all that it started, or a person is told what may be left.

Field case C24: the tool said "timed out", and later the orphaned grandchild wrote its
file after all. Here a canary would be written by whatever is left.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from counterfoil.adapters.shell import Command, ShellAdapter, records
from counterfoil.adapters.shell.kernel import START, life, lives
from counterfoil.core.errors import UnknownOutcomeError
from counterfoil.core.receipt import Answer
from counterfoil.core.words import Risk
from tests.support.shell_bench import KEY, RUN, Yard, do, operation
from tests.support.sources import ROOT

CANARY = "sleep 60; echo alive >> canary"
LEAVING = {
    "a child": f"({CANARY}) & echo started; wait",
    "a grandchild": f"sh -c '({CANARY}) & wait' & wait",
    "a child in a session of its own": f"setsid sh -c '{CANARY}' & wait",
    "an orphan in a session of its own": f"setsid sh -c '({CANARY}) &' & wait; sleep 60",
    "a child without our mark": f"env -i setsid /bin/sh -c '{CANARY}' & wait",
    "a child that ignores TERM": f"trap '' TERM; ({CANARY}) & wait; wait; sleep 60",
    "a child that is stopped": f"({CANARY}) & kill -STOP $!; wait",
    "a child that keeps stdout open": f"({CANARY}) & exec sleep 60",
}

GIVE = """
import sys
from pathlib import Path
from tests.support.shell_bench import Yard, do
from tests.targets.test_shell_trees import leaving
yard = Yard(Path(sys.argv[1]), [leaving(sys.argv[2], timeout_ms=400)])
do(yard.open(), yard.scope, "leave")
"""
"""A worker of its own that gives a script."""


def leaving(script: str, timeout_ms: int = 60_000, wait_ms: int = 60_000) -> Command:
    return Command(
        name="leave",
        stages=(("sh", "-c", script),),
        timeout_ms=timeout_ms,
        grace_ms=100,
        wait_ms=wait_ms,
    )


@pytest.fixture
def yard_of(tmp_path: Path) -> Iterator[Callable[..., Yard]]:
    opened: list[Yard] = []

    def make(*commands: Command) -> Yard:
        opened.append(Yard(tmp_path / str(len(opened)), commands))
        return opened[-1]

    yield make
    for yard in opened:
        yard.close()


def left_of(yard: Yard) -> list[int]:
    """Return what lives in the root of a yard, by its working folder, whatever its mark."""
    found: list[int] = []
    for one in lives():
        try:
            if Path(f"/proc/{one.pid}/cwd").readlink() == yard.root:
                found.append(one.pid)
        except OSError:
            continue
    return [pid for pid in found if b"supervisor" not in Path(f"/proc/{pid}/cmdline").read_bytes()]


def started(yard: Yard) -> records.Started:
    raw = (yard.journal / "attempts" / "1" / START).read_bytes()
    return msgspec.json.decode(raw, type=records.Started)


def begun(yard: Yard, adapter: ShellAdapter, name: str = "leave") -> None:
    """Give a command that outlasts the call."""
    with pytest.raises(UnknownOutcomeError):
        do(adapter, yard.scope, name)


@pytest.mark.parametrize(
    "script", [pytest.param(LEAVING[name], id=f"C24 {name}") for name in LEAVING]
)
def test_a_command_whose_time_is_over_is_stopped_with_all_that_it_started(
    script: str, yard_of: Callable[..., Yard]
) -> None:
    yard = yard_of(leaving(script, timeout_ms=300))
    receipt = do(yard.open(), yard.scope, "leave")
    assert (receipt.result["is_timed_out"], receipt.result["passed"]) == (True, False)
    assert left_of(yard) == []
    assert not (yard.root / "canary").exists()


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(f"({CANARY}) & exit 0", id="C24 a child"),
        pytest.param(f"setsid sh -c '{CANARY}' & exit 0", id="C24 a child in another session"),
        pytest.param(f"(trap '' TERM; {CANARY}) & exit 0", id="C24 a child that ignores TERM"),
    ],
)
def test_what_a_command_leaves_behind_is_stopped_before_it_counts_as_ended(
    script: str, yard_of: Callable[..., Yard]
) -> None:
    yard = yard_of(leaving(script))
    receipt = do(yard.open(), yard.scope, "leave")
    assert receipt.result["stages"] == [{"code": 0}]
    assert receipt.result["left_behind"] >= 1
    assert left_of(yard) == []


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(LEAVING[name], id=f"C24 {name}")
        for name in ("a grandchild", "an orphan in a session of its own")
    ],
)
def test_the_time_of_a_command_ends_though_its_worker_was_killed(
    script: str, yard_of: Callable[..., Yard]
) -> None:
    yard = yard_of(leaving(f"echo run >> effects.log; {script}", timeout_ms=400))
    words = [sys.executable, "-c", GIVE, str(yard.place), yard.commands[0].stages[0][2]]
    with subprocess.Popen(words, cwd=ROOT) as child:
        while not yard.effects:
            continue
        child.kill()
    adapter = yard.open()
    receipt = adapter.look_up(RUN, KEY, "shell.leave").receipt
    assert receipt is not None
    assert receipt.result["is_timed_out"] is True
    again = adapter.execute(operation(adapter, yard.scope, "leave"))
    assert (again.replayed, left_of(yard), yard.effects) == (True, [], ["run"])


def test_an_operator_stops_a_command_with_all_that_it_started(
    yard_of: Callable[..., Yard],
) -> None:
    yard = yard_of(leaving(LEAVING["an orphan in a session of its own"], wait_ms=0))
    adapter = yard.open()
    begun(yard, adapter)
    answer = yard.open().stop(RUN, KEY)
    assert answer.receipt is not None
    assert (answer.answer, answer.receipt.result["is_stopped"]) == (Answer.FOUND, True)
    assert left_of(yard) == []


def test_stopping_what_was_never_started_starts_and_stops_nothing(
    yard_of: Callable[..., Yard],
) -> None:
    yard = yard_of(leaving("true"))
    adapter = yard.open()
    assert adapter.stop(RUN, KEY).answer is Answer.ABSENT
    assert do(adapter, yard.scope, "leave").result["passed"] is True


def test_a_stopped_key_is_not_run_again(yard_of: Callable[..., Yard]) -> None:
    yard = yard_of(leaving(f"echo once >> effects.log; {CANARY}", wait_ms=0))
    adapter = yard.open()
    begun(yard, adapter)
    while not yard.effects:
        assert adapter.look_up(RUN, KEY, "shell.leave").answer is Answer.UNKNOWN
    adapter.stop(RUN, KEY)
    again = adapter.execute(operation(adapter, yard.scope, "leave"))
    assert (again.replayed, yard.effects) == (True, ["once"])


def test_a_command_that_is_killed_has_a_receipt_that_says_so(
    yard_of: Callable[..., Yard],
) -> None:
    yard = yard_of(leaving("kill -KILL $$"))
    receipt = do(yard.open(), yard.scope, "leave")
    assert (receipt.result["stages"], receipt.result["passed"]) == ([{"signal": 9}], False)


def orphaned(yard: Yard) -> ShellAdapter:
    """Give a command, and kill its supervisor."""
    adapter = yard.open()
    begun(yard, adapter)
    kill_supervisor(yard)
    return adapter


def kill_supervisor(yard: Yard) -> None:
    record = started(yard)
    os.kill(record.supervisor[0], signal.SIGKILL)
    while records.is_alive(*record.supervisor):
        continue


def test_a_command_whose_supervisor_is_killed_is_left_to_run_in_its_time(
    yard_of: Callable[..., Yard],
) -> None:
    yard = yard_of(
        leaving("while [ ! -e go ]; do sleep 0.02; done; echo done >> effects.log", wait_ms=0)
    )
    adapter = orphaned(yard)
    answer = adapter.look_up(RUN, KEY, "shell.leave")
    assert (answer.answer, "without its supervisor" in answer.reason) == (Answer.UNKNOWN, True)
    (yard.root / "go").touch()
    while not (answer := adapter.look_up(RUN, KEY, "shell.leave")).is_final:
        assert answer.answer is Answer.UNKNOWN
    assert "its supervisor was killed" in answer.reason
    assert yard.effects == ["done"]


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(LEAVING["a grandchild"], id="C24 a grandchild"),
        pytest.param(
            LEAVING["an orphan in a session of its own"], id="C24 an orphan in another session"
        ),
    ],
)
def test_what_nobody_watches_any_more_is_stopped_by_its_mark(
    script: str, yard_of: Callable[..., Yard]
) -> None:
    yard = yard_of(leaving(script, wait_ms=0))
    adapter = orphaned(yard)
    answer = adapter.stop(RUN, KEY)
    assert (answer.answer, answer.is_final) == (Answer.UNKNOWN, True)
    assert "nothing of it is found running" in answer.reason
    assert left_of(yard) == []


def test_a_survivor_that_cannot_be_excluded_is_named_to_a_person(
    yard_of: Callable[..., Yard],
) -> None:
    script = "echo so far; exec env -i sleep 61"
    yard = yard_of(leaving(f"sh -c '{script}' & wait", wait_ms=0))
    adapter = yard.open()
    begun(yard, adapter)
    (pid,) = _until(lambda: [one for one in left_of(yard) if _is_bare(one)])
    _until(lambda: list((yard.journal / "attempts" / "1" / "stdout").read_bytes()))
    kill_supervisor(yard)
    answer = adapter.stop(RUN, KEY)
    survivor = life(pid)
    assert survivor is not None
    assert f"pid {pid} (start time {survivor.start}) may still run" in answer.reason
    assert "output so far is in attempts/1 of the journal" in answer.reason
    assert (yard.journal / "attempts" / "1" / "stdout").read_text() == "so far\n"
    os.kill(pid, signal.SIGKILL)


def _is_bare(pid: int) -> bool:
    return Path(f"/proc/{pid}/environ").read_bytes() == b""


def _until(look: Callable[[], list[int]]) -> list[int]:
    while not (found := look()):
        continue
    return found


def test_a_command_that_ran_when_the_machine_stopped_is_unknown(
    yard_of: Callable[..., Yard], monkeypatch: pytest.MonkeyPatch
) -> None:
    yard = yard_of(leaving(CANARY, wait_ms=0))
    adapter = orphaned(yard)
    monkeypatch.setattr(records, "boot_id", lambda: "another start of the machine")
    answer = adapter.look_up(RUN, KEY, "shell.leave")
    assert (answer.answer, answer.is_final) == (Answer.UNKNOWN, True)
    assert "started anew" in answer.reason
    monkeypatch.undo()
    for pid in left_of(yard):
        os.kill(pid, signal.SIGKILL)


def test_a_pid_that_is_used_again_is_nobody_of_ours(yard_of: Callable[..., Yard]) -> None:
    """The record is made to name this very program, with the start time of another."""
    yard = yard_of(leaving("sleep 60", wait_ms=0))
    adapter = yard.open()
    begun(yard, adapter)
    record = started(yard)
    adapter.stop(RUN, KEY)
    me = (os.getpid(), 1)
    forged = msgspec.structs.replace(record, supervisor=me, stages=(me,), ends_boot_ms=0)
    folder = yard.journal / "attempts" / "1"
    (folder / START).write_bytes(msgspec.json.encode(forged))
    (folder / "exit").unlink()
    descriptor = os.open(folder, os.O_RDONLY)
    seen = records.look(descriptor, lambda _: None)
    os.close(descriptor)
    assert (seen.standing, seen.survivors) == (records.Standing.LOST, ())


def test_a_repeatable_command_that_was_cut_short_may_be_given_again(
    yard_of: Callable[..., Yard],
) -> None:
    script = "echo run >> effects.log; [ -e go ] || sleep 60"
    command = Command(
        name="leave", stages=(("sh", "-c", script),), is_repeatable=True, wait_ms=0, grace_ms=0
    )
    yard = yard_of(command)
    adapter = yard.open()
    asked = operation(adapter, yard.scope, "leave")
    with pytest.raises(UnknownOutcomeError):
        adapter.execute(asked)
    while not yard.effects:
        continue
    kill_supervisor(yard)
    (yard.root / "go").touch()
    assert adapter.stop(RUN, KEY).answer is Answer.ABSENT
    assert left_of(yard) == []
    assert adapter.observe(yard.scope).state == asked.prestate
    with pytest.raises(UnknownOutcomeError):
        adapter.execute(asked)
    while (answer := adapter.look_up(RUN, KEY, "shell.leave")).answer is Answer.UNKNOWN:
        continue
    assert answer.receipt is not None
    assert (answer.receipt.result["passed"], yard.effects) == (True, ["run", "run"])


def test_a_read_that_does_not_end_is_stopped_and_leaves_nothing(
    yard_of: Callable[..., Yard],
) -> None:
    command = Command(
        name="leave",
        stages=(("sh", "-c", LEAVING["a grandchild"]),),
        risk=Risk.VERIFICATION,
        timeout_ms=200,
        grace_ms=0,
    )
    yard = yard_of(command)
    receipt = do(yard.open(), yard.scope, "leave")
    assert (receipt.result["passed"], receipt.result["is_timed_out"]) == (False, True)
    assert (left_of(yard), list((yard.journal / "reads").iterdir())) == ([], [])

"""Only a command that provably never ran is absent, whatever became of it or its records."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from counterfoil.adapters.shell import Command, records, starting
from counterfoil.adapters.shell.kernel import START, life
from counterfoil.core.errors import FormatError, PermissionDeniedError, UnknownOutcomeError
from counterfoil.core.receipt import Answer, LookUp
from counterfoil.core.words import RunId
from counterfoil.ports import Adapter
from tests.support.shell_bench import FENCE, KEY, RUN, Yard, do, operation
from tests.support.sources import ROOT

WAITING = "echo run >> effects.log; while [ ! -e go ]; do sleep 0.02; done"
KIND = "shell.one"


def one(script: str, **options: object) -> Command:
    given = {"wait_ms": 0, "grace_ms": 0, **options}
    return Command(name="one", stages=(("sh", "-c", script),), **given)  # type: ignore[arg-type]  # as given


@pytest.fixture
def yard_of(tmp_path: Path) -> Iterator[Callable[[Command], Yard]]:
    opened: list[Yard] = []

    def make(command: Command) -> Yard:
        opened.append(Yard(tmp_path / "yard", [command]))
        return opened[-1]

    yield make
    for yard in opened:
        (yard.root / "go").touch()
        yard.close()


def begin(yard: Yard, adapter: Adapter) -> None:
    """Give the command, and wait until it has had its effect."""
    with pytest.raises(UnknownOutcomeError):
        do(adapter, yard.scope, "one")
    while not yard.effects:
        continue


def start_of(yard: Yard) -> records.Started:
    raw = (yard.journal / "attempts" / "1" / START).read_bytes()
    return msgspec.json.decode(raw, type=records.Started)


def kill_supervisor(yard: Yard) -> None:
    supervisor = start_of(yard).supervisor
    os.kill(supervisor[0], signal.SIGKILL)
    while records.is_alive(*supervisor):
        continue


def over(adapter: Adapter) -> LookUp:
    """Return the first answer that will not change."""
    while (answer := adapter.look_up(RUN, KEY, KIND)).answer is Answer.UNKNOWN:
        if answer.is_final:
            break
    return answer


def expect_lost(yard: Yard, adapter: Adapter, *evidence: str) -> None:
    """Hold the key to it: unknown for good, with evidence, and never given again."""
    answer = over(adapter)
    assert (answer.answer, answer.is_final) == (Answer.UNKNOWN, True)
    assert [each for each in evidence if each not in answer.reason] == []
    with pytest.raises(UnknownOutcomeError, match="its end is not known"):
        adapter.execute(operation(adapter, yard.scope, "one"))
    forbidden = adapter.forbid(RUN, KEY, KIND, FENCE)
    assert (forbidden.answer, forbidden.is_final) == (Answer.UNKNOWN, True)
    assert yard.effects == ["run"]


def powerless() -> tuple[str, ...]:
    """Return how a supervisor is started whose signals reach nobody."""
    *start, program, folder = starting.LAUNCH
    patch = "import counterfoil.adapters.shell.supervisor as it\n"
    patch += "it.send = lambda *_: False\nit.KILL_MS = 100\nmain()\n"
    return (*start, program.replace("main()\n", patch), folder)


@pytest.mark.parametrize("is_repeatable", [False, True])
def test_a_command_that_cannot_be_killed_is_unknown_and_not_absent(
    is_repeatable: bool,  # a column of the table
    yard_of: Callable[[Command], Yard],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(starting, "LAUNCH", powerless())
    yard = yard_of(one(WAITING, timeout_ms=300, is_repeatable=is_repeatable))
    adapter = yard.open()
    begin(yard, adapter)
    (pid, _), *_ = start_of(yard).stages
    expect_lost(yard, adapter, "could not be stopped", f"pid {pid} ")


SPLIT = """
import ctypes, platform, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
open("effects.log", "a").write("run\\n")
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
"""
"""A program whose first thread ends while another lives: to the kernel's table a zombie."""


def test_a_command_whose_first_thread_has_ended_is_still_stopped(
    yard_of: Callable[[Command], Yard],
) -> None:
    words = (sys.executable, "-c", SPLIT)
    yard = yard_of(Command(name="one", stages=(words,), wait_ms=0, grace_ms=0))
    adapter = yard.open()
    begin(yard, adapter)
    pid, _ = start_of(yard).stages[0]
    while (found := life(pid)) is not None and found.state != "Z":
        continue
    receipt = adapter.stop(RUN, KEY).receipt
    assert receipt is not None
    assert receipt.result["stages"][0]["signal"] in (signal.SIGTERM, signal.SIGKILL)
    assert yard.effects == ["run"]


@pytest.mark.parametrize("is_repeatable", [False, True])
def test_a_command_whose_folder_is_gone_is_unknown_and_not_absent(
    is_repeatable: bool,  # a column of the table
    yard_of: Callable[[Command], Yard],
) -> None:
    yard = yard_of(one(WAITING, is_repeatable=is_repeatable))
    adapter = yard.open()
    begin(yard, adapter)
    shutil.rmtree(yard.journal / "attempts" / "1")
    expect_lost(yard, adapter, "the folder of its records is gone")


def test_an_end_without_a_start_is_unknown_and_not_absent(
    yard_of: Callable[[Command], Yard],
) -> None:
    yard = yard_of(one(WAITING))
    adapter = yard.open()
    begin(yard, adapter)
    (yard.root / "go").touch()
    folder = yard.journal / "attempts" / "1"
    while not (folder / "exit").exists():
        continue
    (folder / START).unlink()
    expect_lost(yard, adapter, "none of its start")


def test_an_end_with_other_stages_than_its_start_is_not_believed(
    yard_of: Callable[[Command], Yard],
) -> None:
    """No stage at all would pass for all stages that never ran."""
    yard = yard_of(one(WAITING))
    adapter = yard.open()
    begin(yard, adapter)
    (yard.root / "go").touch()
    place = yard.journal / "attempts" / "1" / "exit"
    while not place.exists():
        continue
    whole = msgspec.json.decode(place.read_bytes(), type=records.Exited)
    place.write_bytes(msgspec.json.encode(msgspec.structs.replace(whole, stages=())))
    with pytest.raises(FormatError, match="stages"):
        adapter.look_up(RUN, KEY, KIND)


def test_a_forbidden_key_stays_so_when_its_repeatable_command_is_cut_short_meanwhile(
    yard_of: Callable[[Command], Yard],
) -> None:
    """It runs when the key is forbidden, and is lost while its end is waited for."""
    yard = yard_of(one(WAITING, is_repeatable=True))
    adapter = yard.open()
    asked = operation(adapter, yard.scope, "one")
    begin(yard, adapter)
    kill_supervisor(yard)
    yard.commands = (one(WAITING, is_repeatable=True, wait_ms=60_000),)
    rival = yard.open(pause=lambda _: (yard.root / "go").touch())
    assert rival.forbid(RUN, KEY, KIND, FENCE).answer is Answer.ABSENT
    with pytest.raises(PermissionDeniedError, match="impossible"):
        adapter.execute(asked)
    assert yard.effects == ["run"]


GIVE = """
import sys
from pathlib import Path
from counterfoil.core.errors import UnknownOutcomeError
from tests.support.shell_bench import Yard, do
from tests.targets.test_shell_ends import WAITING, one
yard = Yard(Path(sys.argv[1]), [one(WAITING, is_repeatable=sys.argv[2] == "True")])
try:
    do(yard.open(), yard.scope, "one")
except UnknownOutcomeError:
    print("given", flush=True)
sys.stdin.read()
"""
"""The first process of a container, which gives the command and lives on."""


@pytest.fixture
def contained(tmp_path: Path) -> Iterator[Callable[[Yard, bool], subprocess.Popen[str]]]:
    begun: list[subprocess.Popen[str]] = []

    def begin(yard: Yard, is_repeatable: bool) -> subprocess.Popen[str]:
        words = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable]
        child = subprocess.Popen(
            [*words, "-c", GIVE, str(yard.place), str(is_repeatable)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        begun.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "given\n"
        while not yard.effects:
            continue
        return child

    yield begin
    for child in begun:
        child.kill()
        child.communicate()


@pytest.mark.parametrize("is_repeatable", [False, True])
def test_a_command_of_another_pid_namespace_is_not_taken_for_gone(
    is_repeatable: bool,  # a column of the table
    yard_of: Callable[[Command], Yard],
    contained: Callable[[Yard, bool], subprocess.Popen[str]],
) -> None:
    yard = yard_of(one(WAITING, is_repeatable=is_repeatable))
    contained(yard, is_repeatable)
    adapter = yard.open()
    answer = adapter.look_up(RUN, KEY, KIND)
    assert (answer.answer, answer.is_final) == (Answer.UNKNOWN, False)
    assert "another PID namespace" in answer.reason
    with pytest.raises(UnknownOutcomeError):
        adapter.execute(operation(adapter, yard.scope, "one"))
    (yard.root / "go").touch()
    found = over(adapter)
    assert (found.answer, yard.effects) == (Answer.FOUND, ["run"])


@pytest.mark.parametrize("is_repeatable", [False, True])
def test_one_that_ended_with_its_container_goes_to_a_person_after_its_time(
    is_repeatable: bool,  # a column of the table
    yard_of: Callable[[Command], Yard],
    contained: Callable[[Yard, bool], subprocess.Popen[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    yard = yard_of(one(WAITING, is_repeatable=is_repeatable))
    child = contained(yard, is_repeatable)
    child.kill()
    child.communicate()
    adapter = yard.open()
    assert adapter.look_up(RUN, KEY, KIND).is_final is False
    past = start_of(yard).ends_boot_ms + records.SLOW_MS
    monkeypatch.setattr(records, "boot_ms", lambda: past)
    expect_lost(yard, adapter, "another PID namespace", "something of it may still run")


def test_a_key_that_another_run_lost_is_said_to_be_taken(
    yard_of: Callable[[Command], Yard],
) -> None:
    yard = yard_of(one(WAITING))
    adapter = yard.open()
    begin(yard, adapter)
    kill_supervisor(yard)
    (yard.root / "go").touch()
    over(adapter)
    answer = adapter.look_up(RunId("theirs"), KEY, KIND)
    assert (answer.answer, answer.receipt) == (Answer.FOUND_OTHER, None)
    assert "another run" in answer.reason

"""What a receipt of a command tells: its end, its output, its pipeline, its surroundings."""

import ctypes
import platform
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from counterfoil.adapters.shell import Command
from counterfoil.core.bounds import RESULT_BYTES_MAX
from counterfoil.core.canonical import encode
from counterfoil.core.errors import (
    ConfigError,
    ContractError,
    FencedError,
    FormatError,
    PermissionDeniedError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.receipt import Answer, Receipt
from counterfoil.core.words import Key
from tests.support.shell_bench import FENCE, KEY, NEWER, NOTE, RUN, Yard, do, operation


def one(*stages: tuple[str, ...], **options: object) -> Command:
    return Command(name="one", stages=stages, **options)  # type: ignore[arg-type]  # as given


def ran(place: Path, command: Command) -> tuple[Yard, Receipt]:
    yard = Yard(place, [command])
    try:
        return yard, do(yard.open(), yard.scope, "one")
    finally:
        yard.close()


@pytest.mark.parametrize(
    ("stages", "ends", "passed"),
    [
        pytest.param((("true",), ("true",)), [{"code": 0}, {"code": 0}], True, id="all succeed"),
        pytest.param(
            (("false",), ("true",)), [{"code": 1}, {"code": 0}], False, id="the first fails"
        ),
        pytest.param(
            (("echo", "a"), ("grep", "b"), ("cat",)),
            [{"code": 0}, {"code": 1}, {"code": 0}],
            False,
            id="one in the middle fails",
        ),
        pytest.param(
            (("yes",), ("head", "-n", "1")),
            [{"signal": 13}, {"code": 0}],
            False,
            id="the reader ends first",
        ),
    ],
)
def test_each_stage_of_a_pipeline_has_its_end_in_the_receipt(
    stages: tuple[tuple[str, ...], ...],
    ends: list[dict[str, int]],
    passed: bool,  # a column of the table
    tmp_path: Path,
) -> None:
    _, receipt = ran(tmp_path, one(*stages))
    assert (receipt.result["stages"], receipt.result["passed"]) == (ends, passed)


def test_a_pipeline_passes_on_what_flows_through_it(tmp_path: Path) -> None:
    _, receipt = ran(tmp_path, one(("printf", r"b\na\n"), ("sort",), ("tr", "a-z", "A-Z")))
    assert receipt.result["stdout"] == "A\nB\n"


def test_exit_codes_that_are_accepted_pass(tmp_path: Path) -> None:
    _, receipt = ran(tmp_path, one(("sh", "-c", "exit 3"), accepted=(0, 3)))
    assert (receipt.result["passed"], receipt.result["stages"]) == (True, [{"code": 3}])


@pytest.mark.parametrize(
    "program",
    [pytest.param("yes", id="T30 output without end"), pytest.param("cat", id="T30 zeros")],
)
def test_a_flood_is_counted_and_cut(program: str, tmp_path: Path) -> None:
    words = ("yes",) if program == "yes" else ("cat", "/dev/zero")
    yard, receipt = ran(tmp_path, one(words, timeout_ms=300, grace_ms=100, output_bytes_max=10_000))
    result = receipt.result
    kept = yard.journal / result["kept"] / "stdout"
    assert (kept.stat().st_size, result["is_timed_out"]) == (10_000, True)
    assert result["stdout_bytes"] > 1_000_000
    assert len(encode(result)) <= RESULT_BYTES_MAX


def test_output_that_must_be_spelled_at_length_still_fits_a_receipt(tmp_path: Path) -> None:
    command = one(("sh", "-c", r"head -c 60000 /dev/zero | tr '\0' '\001'"))
    _, receipt = ran(tmp_path, command)
    assert len(encode(receipt.result)) <= RESULT_BYTES_MAX
    assert set(receipt.result["stdout"]) == {"\x01"}


def test_output_that_is_no_text_is_kept_as_bytes(tmp_path: Path) -> None:
    _, receipt = ran(tmp_path, one(("printf", r"\377\000a")))
    assert receipt.result["stdout"]["base64"] == "/wBh"


def test_a_command_gets_only_the_variables_that_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "inherited")
    monkeypatch.setenv("LD_PRELOAD", "")
    _, receipt = ran(tmp_path, one(("env",), environment={"TOKEN": "given"}))
    lines = dict(line.split("=", 1) for line in receipt.result["stdout"].splitlines())
    assert len(lines.pop("COUNTERFOIL_ATTEMPT")) == 32
    assert lines == {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "TOKEN": "given"}


def test_a_secret_in_the_environment_is_in_no_record(tmp_path: Path) -> None:
    command = one(("true",), environment={"TOKEN": "hunter2-hunter2"})
    yard, receipt = ran(tmp_path, command)
    files = [path for path in yard.journal.rglob("*") if path.is_file()]
    assert len(files) > 4
    assert not [path for path in files if b"hunter2" in path.read_bytes()]
    assert b"hunter2" not in encode(receipt)
    assert "hunter2" not in repr(command)


def test_a_command_has_no_terminal_no_input_and_no_descriptors_of_ours(tmp_path: Path) -> None:
    script = "cat; ls /proc/self/fd; (: < /dev/tty) 2>&- || echo no terminal; umask"
    _, receipt = ran(tmp_path, one(("sh", "-c", script), umask=0o027))
    assert receipt.result["stdout"].split() == ["0", "1", "2", "3", "no", "terminal", "0027"]


LIBRARYS_OWN = 0b11 << 31
"""Signals 32 and 33, which the C library keeps to itself: it lets nobody change what they do."""

SET_MASK = {"x86_64": 14, "aarch64": 135}
"""Number of `rt_sigprocmask`, which sets the mask behind the library's back."""


def masks(status: str) -> dict[str, int]:
    """Return which signals are blocked, and which are ignored."""
    lines = (line.split(":") for line in status.splitlines())
    return {name: int(bits, 16) for name, bits in lines if name in ("SigBlk", "SigIgn")}


@pytest.fixture
def deaf() -> Iterator[None]:
    """Block all signals in this thread, the library's own too, and ignore some."""
    ignored = {number: signal.getsignal(number) for number in (signal.SIGQUIT, signal.SIGUSR1)}
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    every = ctypes.c_uint64(2**64 - 1)
    number = SET_MASK[platform.machine()]
    ctypes.CDLL(None).syscall(number, signal.SIG_BLOCK, ctypes.byref(every), None, 8)
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    for number, before in ignored.items():
        signal.signal(number, before)


def test_signals_are_as_a_command_expects_them(deaf: None, tmp_path: Path) -> None:
    """One that inherits an ignored SIGPIPE writes for ever; a blocked SIGTERM, it hears none."""
    ours = masks(Path("/proc/thread-self/status").read_text())
    assert ours["SigBlk"] & LIBRARYS_OWN == LIBRARYS_OWN
    _, receipt = ran(tmp_path, one(("cat", "/proc/self/status")))
    assert masks(receipt.result["stdout"]) == {
        "SigBlk": 0,
        "SigIgn": ours["SigIgn"] & LIBRARYS_OWN,
    }


def test_a_worker_that_hears_no_signal_stops_its_commands_all_the_same(
    deaf: None, tmp_path: Path
) -> None:
    _, receipt = ran(tmp_path, one(("sleep", "600"), timeout_ms=200, grace_ms=60_000))
    assert receipt.result["stages"] == [{"signal": signal.SIGTERM}]


def test_a_program_that_is_gone_is_not_started_and_leaves_no_trace(tmp_path: Path) -> None:
    program = tmp_path / "program"
    shutil.copy("/usr/bin/true", program)
    yard = Yard(tmp_path / "yard", [one((str(program),))])
    adapter = yard.open()
    asked = operation(adapter, yard.scope, "one")
    program.unlink()
    with pytest.raises(UnavailableError, match="ENOENT"):
        adapter.execute(asked)
    assert adapter.look_up(RUN, KEY, "shell.one").answer is Answer.ABSENT
    assert adapter.observe(yard.scope).state == asked.prestate
    shutil.copy("/usr/bin/true", program)
    assert adapter.execute(asked).result["passed"] is True
    yard.close()


def test_a_program_that_may_not_be_run_is_a_refusal(tmp_path: Path) -> None:
    program = tmp_path / "program"
    shutil.copy("/usr/bin/true", program)
    yard = Yard(tmp_path / "yard", [one((str(program),))])
    adapter = yard.open()
    asked = operation(adapter, yard.scope, "one")
    program.chmod(0o600)
    with pytest.raises(PermissionDeniedError, match="EACCES"):
        adapter.execute(asked)
    assert adapter.look_up(RUN, KEY, "shell.one").answer is Answer.ABSENT
    yard.close()


def test_more_words_than_the_system_takes_are_a_refusal(tmp_path: Path) -> None:
    command = Command(name="one", stages=(("echo", "{words...}"),), patterns={"words": "a+"})
    yard = Yard(tmp_path, [command])
    adapter = yard.open()
    asked = operation(adapter, yard.scope, "one", words=["a" * 60_000] * 60)
    with pytest.raises(ContractError, match="more than the system takes"):
        adapter.execute(asked)
    yard.close()


def test_a_stage_that_cannot_start_fails_the_pipeline(tmp_path: Path) -> None:
    program = tmp_path / "program"
    shutil.copy("/usr/bin/cat", program)
    yard = Yard(tmp_path / "yard", [one(("sleep", "60"), (str(program),), grace_ms=100)])
    adapter = yard.open()
    asked = operation(adapter, yard.scope, "one")
    program.unlink()
    receipt = adapter.execute(asked)
    assert receipt.result["stages"] == [{"signal": 15}, {"failed": "ENOENT"}]
    assert receipt.result["passed"] is False
    yard.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a folder on a file system of its own, with half a megabyte of room."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", place], check=True)
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def test_a_full_disk_costs_output_and_no_receipt(small_disk: Path, tmp_path: Path) -> None:
    """Room for the record of the end is taken before the start; the journal's is not."""
    command = one(("sh", "-c", "echo done >> effects.log; head -c 2000000 /dev/zero"))
    yard = Yard(tmp_path / "yard", [command])
    adapter = yard.open(journal=small_disk / "journal")
    with pytest.raises(UnknownOutcomeError, match="SQLITE_FULL"):
        do(adapter, yard.scope, "one")
    assert adapter.look_up(RUN, KEY, "shell.one").answer is Answer.UNKNOWN
    (small_disk / "journal" / "attempts" / "1" / "stdout").unlink()
    receipt = adapter.look_up(RUN, KEY, "shell.one").receipt
    assert receipt is not None
    assert (receipt.result["output_trouble"], receipt.result["passed"]) == ("ENOSPC", True)
    assert (yard.effects, receipt.result["stdout_bytes"]) == (["done"], 2_000_000)
    yard.close()


def test_a_disk_without_room_for_the_end_starts_nothing(small_disk: Path, tmp_path: Path) -> None:
    yard = Yard(tmp_path / "yard", [NOTE])
    adapter = yard.open(journal=small_disk / "journal")
    asked = operation(adapter, yard.scope, "note", text="once")
    filler = small_disk / "filler"
    with filler.open("wb") as opened:
        left = shutil.disk_usage(small_disk).free - 20_000
        opened.write(bytes(left))
    with pytest.raises(UnavailableError):
        adapter.execute(asked)
    assert yard.effects == []
    filler.unlink()
    assert adapter.look_up(RUN, KEY, "shell.note").answer is Answer.ABSENT
    assert adapter.execute(asked).result["passed"] is True
    assert yard.effects == ["once"]
    yard.close()


def test_a_record_that_was_changed_is_not_believed(tmp_path: Path) -> None:
    yard = Yard(tmp_path, [one(("sleep", "60"), wait_ms=0)])
    adapter = yard.open()
    with pytest.raises(Exception, match="still runs"):
        do(adapter, yard.scope, "one")
    (yard.journal / "attempts" / "1" / "exit").write_text('{"stages": []}')
    with pytest.raises(FormatError):
        adapter.look_up(RUN, KEY, "shell.one")
    (yard.journal / "attempts" / "1" / "exit").unlink()
    adapter.stop(RUN, KEY)
    yard.close()


def test_a_journal_that_others_can_reach_is_refused(tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    yard.open().close()
    yard.journal.chmod(0o755)
    with pytest.raises(ConfigError, match="others"):
        yard.open()


def test_two_roots_are_two_environments(tmp_path: Path) -> None:
    one_yard, other = Yard(tmp_path / "a"), Yard(tmp_path / "b")
    states = [yard.open().observe(yard.scope).state for yard in (one_yard, other)]
    assert states[0].instance != states[1].instance
    assert states[0].account == states[1].account != ""
    for yard in (one_yard, other):
        yard.close()


def test_watched_files_are_facts(tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    adapter = yard.open(watched=("settings", "missing", "folder/deep"))
    (yard.root / "link").symlink_to("settings")
    facts = adapter.observe(yard.scope).facts
    assert [len(facts["settings"]), facts["missing"], facts["folder/deep"]] == [
        64,
        "absent",
        "absent",
    ]
    yard.close()


def test_a_command_that_changes_a_watched_file_has_that_in_its_poststate(tmp_path: Path) -> None:
    yard = Yard(tmp_path, [one(("sh", "-c", "echo new > settings"))])
    adapter = yard.open()
    receipt = do(adapter, yard.scope, "one")
    assert adapter.observe(yard.scope).state == receipt.poststate
    yard.disturb()
    assert adapter.observe(yard.scope).state.version == receipt.poststate.version
    assert adapter.observe(yard.scope).state != receipt.poststate
    yard.close()


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(key, id=f"T26 {name}")
        for name, key in {
            "quotes": "'; DROP TABLE attempt; --",
            "a path": "../../attempts/1",
            "markup": "<b>%00</b>\\n",
        }.items()
    ],
)
def test_a_key_is_text_and_nothing_else(key: str, tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    adapter = yard.open()
    do(adapter, yard.scope, "note", key=Key("plain"), text="first")
    receipt = do(adapter, yard.scope, "note", key=Key(key), text="second")
    assert adapter.look_up(RUN, Key(key), "shell.note").receipt == receipt
    assert yard.effects == ["first", "second"]
    yard.close()


def test_a_worker_that_wakes_late_gives_no_command(tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    adapter = yard.open()
    late = operation(adapter, yard.scope, "note", fence=FENCE, text="late")
    yard.open().take(RUN, NEWER)
    with pytest.raises(FencedError):
        adapter.execute(late)
    assert yard.effects == []
    assert list((yard.journal / "attempts").iterdir()) == []
    yard.close()

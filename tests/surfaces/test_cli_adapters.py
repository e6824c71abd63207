"""`counterfoil adapters check`, as the author of an adapter uses it."""

import json
import os
import pty
import subprocess
import sys

import pytest

from tests.support.commands import COMMAND, ESCAPE, SECONDS_MAX, Project
from tests.support.sources import ROOT

BENCH = '''\
"""What an author writes beside his adapter."""

import dataclasses

from tests.support.letter_desk import bench_of


def fresh():
    print("what a bench prints is no fact")
    return bench_of("deduplicating")


def bare():
    return bench_of("deduplicating", "bare")


def doubling():
    return bench_of("deduplicating", "bare", "doubles")


def forgetful():
    return bench_of("deduplicating", "bare", "doubles", "forgets")


def hanging():
    return bench_of("deduplicating", "hangs", call_ms=50)


def leaving():
    return bench_of("deduplicating", "leaves")


def raising():
    return {}["scratch database"]


def missing():
    return dataclasses.replace(fresh(), write=fresh().garbled[0].__class__)


def strange():
    return "a desk"


def stranger():
    found = fresh()
    call = found.garbled[0]
    other = dataclasses.replace(call, kind="desk.parcel")
    return dataclasses.replace(found, write=lambda number: other)


def left_open():
    found = fresh()

    def close():
        raise OSError("the container does not stop")

    return dataclasses.replace(found, close=close)


nothing = 1
'''

BROKEN = {
    "broken": "fresh = 1 / 0\n",
    "untold": "def fresh(:\n",
    "leaves": "import sys\nsys.exit(0)\n",
    "needs": "import something_that_is_not_installed\n",
}


@pytest.fixture
def author(project: Project) -> Project:
    (project.folder / "desk_bench.py").write_text(BENCH, encoding="utf-8")
    for name, text in BROKEN.items():
        (project.folder / f"{name}_bench.py").write_text(text, encoding="utf-8")
    project.environment["PYTHONPATH"] = str(ROOT)
    return project


def test_an_adapter_that_is_what_it_claims_is_shown_to_be(author: Project) -> None:
    answer = author.started("adapters", "check", "desk_bench:fresh", "--second-deaths", "0")
    assert answer.returncode == 0, answer.stderr
    assert "desk.letter of adapter desk" in answer.stdout
    assert "Not tried" not in answer.stdout
    assert answer.stdout.endswith("Held: desk.letter is deduplicating.\n")
    assert ESCAPE not in answer.stdout
    assert "no fact" not in answer.stdout


def test_the_same_is_told_to_programs(author: Project) -> None:
    words = ("adapters", "check", "desk_bench:fresh", "--second-deaths", "0.2", "--json")
    answer = author.started(*words)
    facts = json.loads(answer.stdout)
    assert answer.returncode == 0, answer.stderr
    assert (facts["claimed"], facts["shown"]) == ("deduplicating",) * 2
    assert (facts["outcome"], facts["untried"]) == ("held", [])
    assert [each for each in facts["clauses"] if not each["kept"]] == []
    assert facts["crashes"] > 20
    assert facts["double_crashes"] > 0
    assert facts["kills"] >= facts["kills_inside"] > 0


def test_what_was_not_tried_is_not_held(author: Project) -> None:
    words = ("adapters", "check", "desk_bench:bare", "--second-deaths", "0")
    told = author.started(*words)
    facts = json.loads(author.started(*words, "--json").stdout)
    assert told.returncode == 3
    assert "Held" not in told.stdout
    assert "deduplicating, as far as it was tried" in told.stdout
    assert "Not tried" in told.stdout
    assert "* a lost answer is no refusal; a lost answer is settled by the same call" in told.stdout
    assert "give it lose_answer, and Trait.LOSES_ANSWERS in traits" in told.stdout
    assert "desk.letter is deduplicating as far as it was tried" in told.stderr
    assert "9 promises were not; give the bench what is named" in told.stderr
    assert (facts["outcome"], len(facts["untried"])) == ("partly tried", 9)
    assert facts["untried"][0] == {
        "clause": "reading changes nothing",
        "why": "the bench names no reads",
        "offer": "reads, calls that change nothing",
    }


def test_an_adapter_that_claims_too_much_is_told_what_it_breaks(author: Project) -> None:
    answer = author.started("adapters", "check", "desk_bench:forgetful", "--second-deaths", "0")
    assert answer.returncode == 3
    broken = "* a repeated call gets the first receipt\n  not so: the receipt of a repeated call"
    assert broken in answer.stdout.partition("Not kept\n")[2]
    found = answer.stdout.partition("Found by the crash drill\n")[2]
    assert "it ends otherwise than unharmed: phase is needs_review, not completed" in found
    assert "desk.letter claims deduplicating and shows blind" in answer.stderr


def test_a_terminal_is_told_the_same_in_colours(author: Project) -> None:
    ours, theirs = pty.openpty()
    command = [COMMAND, "adapters", "check", "desk_bench:doubling", "--second-deaths", "0"]
    environment = author.environment | {"TERM": "xterm-256color", "COLUMNS": "80"}
    with subprocess.Popen(
        command, cwd=author.folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    ) as started:
        os.close(theirs)
        seen = b""
        while chunk := _read(ours):
            seen += chunk
        assert started.wait(SECONDS_MAX) == 3
    os.close(ours)
    text = seen.decode()
    assert ESCAPE in text
    assert "a run that dies" in text  # the line of progress
    assert "Not kept" in text


def _read(number: int) -> bytes:
    try:
        return os.read(number, 65_536)
    except OSError:  # how a terminal says that nobody writes to it any more
        return b""


# ---------------------------------------------------------------- what is no bench


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("desk_bench", "is not MODULE:NAME"),
        ("desk bench:fresh", "is not MODULE:NAME"),
        ("nowhere:fresh", "cannot be imported: ModuleNotFoundError: No module named 'nowhere'"),
        ("broken_bench:fresh", "ZeroDivisionError in broken_bench.py, line 1: division by zero"),
        ("untold_bench:fresh", "cannot be imported: SyntaxError"),
        ("leaves_bench:fresh", "cannot be imported: SystemExit in leaves_bench.py, line 2"),
        ("needs_bench:fresh", "in needs_bench.py, line 1: No module named 'something_that"),
        ("desk_bench:nobody", "the module has no nobody"),
        ("desk_bench:nothing", "is no function that returns a bench"),
        ("desk_bench:strange", "returns no AdapterBench"),
        ("desk_bench:raising", "raises KeyError in desk_bench.py, line 34: 'scratch database'"),
        ("desk_bench:missing", "raises TypeError"),
        ("desk_bench:stranger", "not so: the adapter declares the kind desk.parcel"),
        ("desk_bench:left_open", "raises OSError in desk_bench.py"),
        ("desk_bench:leaving", "raises SystemExit in letter_desk.py"),
    ],
)
def test_what_is_no_bench_is_refused_in_a_sentence(
    author: Project, name: str, sentence: str
) -> None:
    answer = author.started("adapters", "check", name)
    assert answer.returncode == 2
    assert answer.stdout == ""
    errors = [line for line in answer.stderr.splitlines() if "is no fact" not in line]
    assert len(errors) == 1, answer.stderr
    assert errors[0].startswith("ConfigError: ")
    assert errors[0].endswith("; correct it and start again")
    assert sentence in errors[0]


CHECKS_SOON = """\
from counterfoil.cli import app
from counterfoil.testing import trial

trial.ANSWER_S = 0.5
app(["adapters", "check", "desk_bench:hanging", "--json"])
"""


def test_an_adapter_that_hangs_is_left_with_a_sentence(author: Project) -> None:
    answer = ran(author, CHECKS_SOON)
    assert (answer.returncode, answer.stdout) == (3, "")
    error = json.loads(answer.stderr)["error"]
    assert error["message"].startswith("no answer within 2 s while trying: ")
    assert error["next"] == "find what hangs there, or declare a longer call_ms"


def ran(author: Project, text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", text],
        cwd=author.folder,
        env=author.environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )


WAITS = """\
import time
from counterfoil.cli import patience

patience.TEAR_DOWN_S = {tear_down_s}
is_deaf = {is_deaf}
with patience.patience(as_json=True) as tell:
    tell("a slow clause", 0.01)
    while True:
        try:
            time.sleep(3_600)
        except KeyboardInterrupt:
            if not is_deaf:
                print("torn down", flush=True)
                raise
"""


@pytest.mark.parametrize(
    ("is_deaf", "ending"),
    [
        pytest.param(False, (1, "torn down\n"), id="what can be interrupted is torn down"),
        pytest.param(True, (3, ""), id="what cannot is left behind"),
    ],
)
def test_what_does_not_end_is_ended(
    author: Project, is_deaf: bool, ending: tuple[int, str]
) -> None:
    text = WAITS.format(is_deaf=is_deaf, tear_down_s=0.1 if is_deaf else 3_600)
    answer = ran(author, text)
    assert (answer.returncode, answer.stdout) == ending
    assert "no answer within 0 s while trying: a slow clause" in answer.stderr


def test_the_help_teaches_what_a_bench_is(author: Project) -> None:
    text = " ".join(author.call("adapters", "check", "--help").stdout.split())
    for phrase in ("makes a fresh target", "SIGKILL", "Exits with 0 only if", "test-an-adapter.md"):
        assert phrase in text

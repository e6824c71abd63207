"""A disk that is full, fails, or goes away: no acknowledged commit is lost, and the run opens."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from counterfoil.core.errors import CounterfoilError, UnavailableError, UnknownOutcomeError
from counterfoil.stores.sqlite import open_store
from counterfoil.testing.store_bench import RUN, checkpoint
from tests.support import store_process as process
from tests.support.sources import ROOT

GENERATIONS = 3
SECONDS_MAX = 60
SYNCS = 38
"""A little more than the syncs of a whole walk: the last ones let it end."""

NAMED = ("UnknownOutcomeError", "UnavailableError")


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "tests.support.store_process", *map(str, words)]


def injected(folder: Path, fault: str, *, generations: int = GENERATIONS) -> list[str]:
    """Walk in another process under a fault, and return what it said and how it ended."""
    call = fault.partition(":")[0]
    strace = ["strace", "-f", "-qq", "-o", os.devnull, "-e", f"trace={call}"]
    answer = subprocess.run(
        [*strace, "-e", f"inject={fault}", *command("walk", folder, generations)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert "Traceback" not in answer.stderr, answer.stderr
    killed = ["killed"] if answer.returncode == -signal.SIGKILL else []
    return answer.stdout.split() + killed


def acknowledged(facts: list[str]) -> list[int]:
    return [int(fact) for fact in facts if fact.isdigit()]


def assert_whole(folder: Path, facts: list[str]) -> None:
    """Open what is left: all that was acknowledged is there, and the run goes on to its end."""
    store, heads = process.store_at(folder), process.heads_at(folder)
    try:
        head = heads.read(RUN)
        reached = -1 if head is None else head.generation
        assert reached >= max(acknowledged(facts), default=-1)
        for generation in range(reached + 1, GENERATIONS + 1):
            store.put([checkpoint(generation)])
            process.moved(heads, generation)
        assert store.trace(RUN, -1, 99) == tuple(checkpoint(n) for n in range(GENERATIONS + 1))
        head = heads.read(RUN)
        assert head is not None
        assert (head.generation, head.checkpoint) == (GENERATIONS, checkpoint(GENERATIONS).digest)
    finally:
        heads.close()
        store.close()


@pytest.mark.parametrize(
    "fault",
    [
        *(
            pytest.param(f"fdatasync:signal=SIGKILL:when={n}", id=f"T25 killed at sync {n}")
            for n in range(1, SYNCS)
        ),
        *(
            pytest.param(f"pwrite64:signal=SIGKILL:when={n}", id=f"T25 killed at write {n}")
            for n in range(3, 156, 17)
        ),
        *(
            pytest.param(f"fsync:signal=SIGKILL:when={n}", id=f"T25 killed at folder sync {n}")
            for n in range(1, 7)
        ),
    ],
)
def test_a_process_killed_at_any_write_loses_nothing(fault: str, tmp_path: Path) -> None:
    assert_whole(tmp_path, injected(tmp_path, fault))


@pytest.mark.parametrize(
    "fault",
    [
        *(
            pytest.param(f"fdatasync:error=EIO:when={n}", id=f"T25 sync {n} fails")
            for n in range(1, SYNCS, 3)
        ),
        *(
            pytest.param(f"pwrite64:error=ENOSPC:when={n}", id=f"T25 the disk is full at write {n}")
            for n in range(2, 156, 17)
        ),
        *(
            pytest.param(f"pwrite64:error=EIO:when={n}", id=f"T25 write {n} fails")
            for n in (11, 60, 120, 150)
        ),
    ],
)
def test_a_disk_that_fails_once_is_a_named_error_and_the_walk_goes_on(
    fault: str, tmp_path: Path
) -> None:
    facts = injected(tmp_path, fault)
    assert [fact for fact in facts if not fact.isdigit() and fact not in NAMED] == []
    assert acknowledged(facts) == list(range(GENERATIONS + 1))
    assert_whole(tmp_path, facts)


@pytest.mark.parametrize(
    "n", [pytest.param(n, id=f"T25 folder sync {n} fails") for n in range(1, 7)]
)
def test_a_folder_that_cannot_be_synced_is_unavailable_until_it_can(n: int, tmp_path: Path) -> None:
    facts = injected(tmp_path, f"fsync:error=EIO:when={n}")
    assert facts == ["UnavailableError", *map(str, range(GENERATIONS + 1))]
    assert_whole(tmp_path, facts)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("fdatasync:error=EIO:when=27+", id="T25 every later sync fails"),
        pytest.param("fdatasync:error=EIO:when=30+", id="T25 every later sync fails, from step 2"),
        pytest.param("pwrite64:error=ENOSPC:when=110+", id="T25 the disk is full from here on"),
        pytest.param("pwrite64:error=EIO:when=125+", id="T25 every later write fails"),
    ],
)
def test_a_failed_sync_is_never_retried_into_a_success(fault: str, tmp_path: Path) -> None:
    facts = injected(tmp_path, fault)
    first_error = next(at for at, fact in enumerate(facts) if not fact.isdigit())
    assert set(facts[first_error:]) <= set(NAMED)
    assert_whole(tmp_path, facts)


def test_a_lying_sync_is_no_worse_than_a_kill(tmp_path: Path) -> None:
    facts = injected(tmp_path, "fdatasync:retval=0")
    assert_whole(tmp_path, facts)


@pytest.mark.parametrize("row", [pytest.param("T25", id="T25")])
def test_a_full_database_refuses_a_put_and_keeps_what_it_has(row: str, tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.db", create=True)
    rows = [checkpoint(n) for n in range(3)]
    store.put(rows)
    connection = store._database._live()
    pages = connection.pragma("page_count")
    connection.pragma("max_page_count", pages)
    big = [checkpoint(n) for n in range(3, 400)]
    with pytest.raises(UnavailableError, match="FULL"):
        store.put(big)
    assert store.trace(RUN, -1, 999) == tuple(rows)
    store.put(big)
    assert store.trace(RUN, -1, 999) == (*rows, *big)
    store.close()


@pytest.mark.parametrize("row", [pytest.param("T25", id="T25")])
def test_a_file_that_may_not_grow_is_an_unknown_outcome_and_then_heals(
    row: str, tmp_path: Path
) -> None:
    script = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from counterfoil.core.errors import UnknownOutcomeError\n"
        "from tests.support.store_process import *\n"
        "store = store_at(Path(sys.argv[1]))\n"
        "store.put([checkpoint(0)])\n"
        "_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (70_000, hard))\n"
        "try:\n"
        "    store.put([checkpoint(n) for n in range(1, 400)])\n"
        "except UnknownOutcomeError as error:\n"
        "    say(type(error).__name__)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))\n"
        "say(len(store.trace(RUN, -1, 999)))\n"
        "store.put([checkpoint(n) for n in range(1, 400)])\n"
        "say(len(store.trace(RUN, -1, 999)))\n"
        "store.close()\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert (answer.stdout.split(), answer.stderr) == (["UnknownOutcomeError", "1", "400"], "")


def without_powers(*words: object) -> list[str]:
    """Return a command that even for the superuser respects file modes."""
    if os.geteuid() != 0:
        return command(*words)
    drop = ["--inh-caps=-all", "--bounding-set=-all"]
    return ["setpriv", *drop, "--", *command(*words)]


def looked(folder: Path) -> list[str]:
    answer = subprocess.run(
        without_powers("look", folder),
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert answer.stderr == ""
    return answer.stdout.split()


@pytest.mark.parametrize("row", [pytest.param("T25", id="T25")])
def test_a_folder_that_cannot_be_written_is_unavailable(row: str, tmp_path: Path) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert looked(tmp_path) == ["UnavailableError", "UnavailableError"]
    finally:
        tmp_path.chmod(stat.S_IRWXU)
    assert looked(tmp_path) == ["opened", "opened"]


@pytest.mark.parametrize("row", [pytest.param("T25", id="T25")])
def test_a_file_that_cannot_be_written_is_unavailable(row: str, tmp_path: Path) -> None:
    assert looked(tmp_path) == ["opened", "opened"]
    for path in tmp_path.rglob("*.db*"):
        path.chmod(stat.S_IRUSR)
    assert looked(tmp_path) == ["UnavailableError", "UnavailableError"]
    for path in tmp_path.rglob("*.db*"):
        path.chmod(stat.S_IRUSR | stat.S_IWUSR)
    assert looked(tmp_path) == ["opened", "opened"]


@pytest.mark.parametrize(
    ("fault", "fact"),
    [
        pytest.param("fdatasync:error=EIO:when=30", "UnknownOutcomeError", id="T25 an error"),
        pytest.param("fdatasync:signal=SIGKILL:when=30", "killed", id="T25 a kill"),
    ],
)
def test_a_fault_is_really_injected(fault: str, fact: str, tmp_path: Path) -> None:
    assert fact in injected(tmp_path, fault)


def test_an_error_names_no_payload(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.db", create=True)
    row = checkpoint(0)
    connection = store._database._live()
    connection.execute("DROP TABLE state")
    with pytest.raises(CounterfoilError) as caught:
        store.put([row])
    assert not any(part.decode() in str(caught.value) for part in (row.state, row.events))
    assert not isinstance(caught.value, UnknownOutcomeError)
    store.close()

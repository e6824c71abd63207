"""A holder counts as dead only when it is seen to be gone."""

import os
import subprocess
import sys

import pytest

from counterfoil.stores.holders import is_dead, this_holder

NAME_ME = "from counterfoil.stores.holders import this_holder; print(this_holder())"


def test_this_process_is_alive() -> None:
    assert not is_dead(this_holder())


def test_a_process_that_ended_is_dead() -> None:
    ended = subprocess.run([sys.executable, "-c", NAME_ME], capture_output=True, check=True)
    assert is_dead(ended.stdout.decode().strip())


def test_a_zombie_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", NAME_ME], stdout=subprocess.PIPE)
    assert child.stdout is not None
    with child.stdout as out:
        name = out.read().decode().strip()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert is_dead(name)
    finally:
        child.wait()


@pytest.mark.parametrize(
    ("part", "value"),
    [
        pytest.param(1, "another-boot", id="another boot"),
        pytest.param(2, "1", id="another process namespace"),
        pytest.param(4, "0", id="an unknown start"),
    ],
)
def test_what_cannot_be_seen_counts_as_alive(part: int, value: str) -> None:
    parts = this_holder().split("/")
    parts[3] = "999999999"
    parts[part] = value
    assert not is_dead("/".join(parts))


@pytest.mark.parametrize("name", ["", "worker", "a/b/c/d", "a/b/c/x/1", "a/b/c/1/2/3"])
def test_a_name_of_another_form_counts_as_alive(name: str) -> None:
    assert not is_dead(name)

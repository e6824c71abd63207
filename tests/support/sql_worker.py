"""A warm worker that makes each change in a process of its own, so that it can be killed.

Started as `python -m tests.support.sql_worker`. A line with a folder makes it fork; it
answers with the process id. A second line lets that process make the call that lies in
`call` on the database that `target` names; the answer is how the process ended.
"""

import ctypes
import os
import sys
from pathlib import Path

import msgspec
import psycopg

from counterfoil.adapters.sql import postgres
from counterfoil.ports import Operation
from tests.support.sql_bench import opened_at

PR_SET_PTRACER = 0x59616D61
ANYBODY = -1
WARM = (psycopg, postgres)
"""Imported before any fork, which makes each process quick."""


def work(place: Path) -> None:
    """Make the call."""
    sent = msgspec.msgpack.decode((place / "call").read_bytes(), type=Operation)
    target = (place / "target").read_text(encoding="utf-8")
    adapter = opened_at(target)
    adapter.execute(sent)
    adapter.close()


def _say(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def serve() -> None:
    """Start and release one process after the other."""
    while place := sys.stdin.readline().strip():
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(ANYBODY), 0, 0, 0)
            os.read(reader, 1)
            try:
                work(Path(place))
            except BaseException as error:  # noqa: BLE001 # a forked process must end here
                sys.stderr.write(f"{error!r}\n")
                os._exit(1)
            os._exit(0)
        _say(child)
        sys.stdin.readline()
        os.write(writer, b"!")
        _say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        os.close(reader)
        os.close(writer)


if __name__ == "__main__":
    serve()

"""The workers' program: a warm parent that forks one worker for each hire.

The parent has imported everything and opened nothing: no thread, no connection. Each
worker leads a process group of its own, opens its own keeper, and is the same `Worker`
that `counterfoil worker` runs; its ports tell what passes. Hires are lines on standard
input, what workers tell are lines on standard output.
"""

import argparse
import gc
import importlib
import logging
import os
import select
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import msgspec

import counterfoil as cf
from counterfoil.drill.dwelling import Pace, dwelling
from counterfoil.drill.family import die_with
from counterfoil.drill.lines import (
    LINE_BYTES_MAX,
    REASON_CHARS_MAX,
    Born,
    Gone,
    Hire,
    Told,
    write_line,
)
from counterfoil.drill.plan import CONCURRENCY, STEPS
from counterfoil.drill.program import TASK, declare_target, fulfil
from counterfoil.settings import read_settings

LOOK_SECONDS = 0.02
"""Between two looks for workers that are gone."""

DRIVERS = {"postgresql:": "counterfoil.stores.postgres", "etcd:": "counterfoil.stores.etcd"}
"""Imported before anybody is forked, so that a worker starts at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Post:
    """Where a worker works.

    Attributes:
        project: Folder of the project.
        port: Where the target listens.
        call_ms: Longest call of the target.
        seed: Seed of the drill.
    """

    project: Path
    port: int
    call_ms: int
    seed: int


def main(arguments: Sequence[str] | None = None) -> None:
    """Fork a worker for each line, and say which are gone, until the input ends."""
    parser = argparse.ArgumentParser(prog="counterfoil.drill.crew")
    parser.add_argument("--project", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--call-ms", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    given = parser.parse_args(arguments)
    die_with(given.parent)
    post = _Post(project=given.project, port=given.port, call_ms=given.call_ms, seed=given.seed)
    _import_drivers(post.project)
    gc.freeze()
    unread = b""
    while True:
        if select.select([0], [], [], LOOK_SECONDS)[0]:
            read = os.read(0, LINE_BYTES_MAX)
            if not read:
                return
            *lines, unread = (unread + read).split(b"\n")
            for line in lines:
                _fork(msgspec.json.decode(line, type=Hire), post)
        _tell_who_is_gone()


def _import_drivers(project: Path) -> None:
    settings = read_settings(project)
    for start, module in DRIVERS.items():
        if settings.store.url.startswith(start) or settings.heads.url.startswith(start):
            importlib.import_module(module)


def _fork(hire: Hire, post: _Post) -> None:
    parent = os.getpid()
    if os.fork() == 0:
        status = 1
        try:
            os.setsid()
            die_with(parent)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            write_line(Born(pid=os.getpid()))
            _work(hire, post)
            status = 0
        except cf.CounterfoilError as error:
            write_line(_told("ended with", reason=str(error)))
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            sys.stderr.flush()
            os._exit(status)


def _tell_who_is_gone() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        write_line(Gone(pid=pid, status=os.waitstatus_to_exitcode(status)))


def _work(hire: Hire, post: _Post) -> None:
    """Be a worker until SIGTERM."""
    log = logging.getLogger("counterfoil.worker")
    log.setLevel(logging.INFO)
    log.addHandler(_Lines())
    target = declare_target(post.port, call_ms=post.call_ms, steps=STEPS)
    pace = Pace(seed=f"worker {post.seed} {hire.serial}", tell=write_line)
    with cf.open(post.project, effects=target) as opened:
        keeper = cf.Keeper(dwelling(opened.parts, pace))
        keeper.program(TASK)(fulfil)
        worker = keeper.worker(concurrency=CONCURRENCY)

        def stop(number: int, frame: FrameType | None) -> None:
            worker.stop()

        signal.signal(signal.SIGTERM, stop)
        worker.run()


class _Lines(logging.Handler):
    """Tells the drill what a worker logs, one record at a time."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        run_id, reason = getattr(record, "run", ""), getattr(record, "reason", "")
        write_line(_told(record.getMessage(), run_id=str(run_id), reason=str(reason)))


def _told(event: str, *, run_id: str = "", reason: str = "") -> Told:
    return Told(
        pid=os.getpid(),
        event=event[:REASON_CHARS_MAX],
        run_id=run_id,
        reason=reason[:REASON_CHARS_MAX],
    )

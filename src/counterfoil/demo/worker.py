"""The worker's program: a warm parent that forks one worker for each attempt.

The parent has imported everything and opened nothing: no thread, no database. Each
worker opens its own keeper, runs the program, and is killed from outside or comes to
its end. Jobs are lines on standard input, reports are lines on standard output; both
parent and workers end when standard input does.
"""

import argparse
import gc
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import counterfoil as cf
from counterfoil.core.words import RunId
from counterfoil.demo import messages
from counterfoil.demo.messages import Audit, Audited, Began, Completed, Ended, Failed, Job, Work
from counterfoil.demo.restock import declare_shop, restock
from counterfoil.demo.watch import Watch, WatchedAdapter, WatchedHeads, WatchedStore
from counterfoil.engine.audit import audit


def main(arguments: Sequence[str] | None = None) -> None:
    """Fork a worker for each job, and say how each ended."""
    parser = argparse.ArgumentParser(prog="counterfoil.demo.worker")
    parser.add_argument("--project", type=Path, required=True)
    parser.add_argument("--is-sabotaged", action="store_true")
    given = parser.parse_args(arguments)
    gc.freeze()
    while line := sys.stdin.buffer.readline():
        job = messages.to_job(line)
        pid = os.fork()
        if pid == 0:
            _work(job, given.project, is_sabotaged=given.is_sabotaged)
        _, status = os.waitpid(pid, 0)
        _tell(Ended(status=os.waitstatus_to_exitcode(status)))


def _work(job: Job, project: Path, *, is_sabotaged: bool) -> None:
    """Be the worker; never return."""
    status = 1
    try:
        _tell(Began(pid=os.getpid()))
        shop = declare_shop(job.port, is_sabotaged=is_sabotaged)
        with cf.open(project, effects=shop) as keeper:
            match job:
                case Work():
                    restock(_watched(keeper, job), job.run_id, job.items)
                    _tell(Completed())
                case Audit():
                    found = audit(keeper.parts, RunId(job.run_id))
                    _tell(
                        Audited(
                            checkpoints=found.checkpoints,
                            events=found.events,
                            root=found.root,
                            leftovers=found.leftovers,
                        )
                    )
        status = 0
    except cf.CounterfoilError as error:
        _tell(Failed(error=type(error).__name__, message=error.message))
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stderr.flush()
        os._exit(status)


def _watched(keeper: cf.Keeper, job: Work) -> cf.Keeper:
    """Return the same keeper with its ports under watch."""
    watch = Watch(stop_at=job.stop_at, tell=_tell, stand_still=_stand_still)
    parts = keeper.parts
    return cf.Keeper(
        replace(
            parts,
            store=WatchedStore(parts.store, watch),
            heads=WatchedHeads(parts.heads, watch),
            adapters={
                name: WatchedAdapter(adapter, watch) for name, adapter in parts.adapters.items()
            },
        )
    )


def _stand_still() -> None:
    """Wait for SIGKILL; end without a word when nobody is left to send it."""
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGKILL)


def _tell(report: messages.Report) -> None:
    os.write(1, messages.to_line(report))


if __name__ == "__main__":
    main()

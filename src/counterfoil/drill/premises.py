"""The program that holds the premises of a drill: its folder, and servers of its own.

It outlives the drill by as long as it takes to clear everything away, whatever the
drill died of. It ends when its standard input does.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from counterfoil.core.errors import ConfigError, CounterfoilError, UsageError
from counterfoil.drill.lines import Failed, Ready, write_line
from counterfoil.drill.own_places import clear, new_mark, own_url
from counterfoil.drill.plan import ETCD, POSTGRESQL, SQLITE

REMOVALS_MAX = 50
REMOVAL_SECONDS = 0.1
"""Workers that were killed a moment ago may still write: together five seconds."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the premises, say where they are, and clear them away when the input ends."""
    parser = argparse.ArgumentParser(prog="counterfoil.drill.premises")
    parser.add_argument("--store", required=True)
    parser.add_argument("--heads", required=True)
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the end of the input ends it, in order
    with ExitStack() as stack:
        try:
            ready = _make(stack, given.store, given.heads)
        except CounterfoilError as error:
            write_line(
                Failed(
                    is_ours=isinstance(error, UsageError), message=error.message, move=error.move
                )
            )
            return
        try:
            write_line(ready)
            while os.read(0, 1):
                pass
        except BrokenPipeError:
            return


def _make(stack: ExitStack, store: str, heads: str) -> Ready:
    folder = Path(tempfile.mkdtemp(prefix="counterfoil-drill-"))
    stack.callback(_remove, folder)
    urls = {"checkpoints": store, "heads": heads}
    servers = {word: _start(stack, word) for word in (POSTGRESQL, ETCD) if word in urls.values()}
    mark = new_mark()
    for name, url in urls.items():
        if url == SQLITE:
            urls[name] = f"sqlite:{folder}/{name}/{name}.db"
        elif url in servers:
            urls[name] = servers[url]
        else:
            urls[name] = own_url(url, mark)
            if urls[name] != url:
                stack.callback(_clear, urls[name])
    return Ready(folder=str(folder), store_url=urls["checkpoints"], heads_url=urls["heads"])


def _clear(url: str) -> None:
    _say(clear(url))


def _say(sentence: str) -> None:
    if sentence:
        sys.stderr.write(f"{sentence}\n")


def _start(stack: ExitStack, word: str) -> str:
    """Start a server, and return its URL."""
    try:
        if word == POSTGRESQL:
            from counterfoil.local.postgres import LocalPostgres  # noqa: PLC0415 - an extra

            return stack.enter_context(LocalPostgres()).url()
        from counterfoil.local.etcd import LocalEtcd  # noqa: PLC0415 - its client is an extra

        return stack.enter_context(LocalEtcd()).url()
    except ImportError as error:
        raise ConfigError(
            f"a throwaway {word} needs {error.name}, which is not installed",
            move=f"install the extra: pip install 'counterfoil[{word}]'",
        ) from error


def _remove(folder: Path) -> None:
    for _ in range(REMOVALS_MAX):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(REMOVAL_SECONDS)
    _say(f"{folder} could not be removed")

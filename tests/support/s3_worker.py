"""Processes that make one call, or work on one run, and are killed at a request of theirs."""

import multiprocessing
import os
import signal
from collections.abc import Mapping
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import boto3
import msgspec

import counterfoil as cf
from counterfoil.adapters.s3 import Times, open_s3
from counterfoil.ports import Operation
from tests.support.s3_bench import PART_BYTES, Scene
from tests.support.s3_server import REGION

SECONDS_MAX = 60
UNHURRIED = Times(lasts_s=60)
"""No call is late, however busy the machine."""

RUN = "fill"
WARM = boto3.Session(region_name=REGION)
WARM.client("s3", aws_access_key_id="nobody", aws_secret_access_key="nobody").close()
"""Made before any fork, which makes each process quick; whose it is, the environment says."""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.support.s3_worker"])


def call(environment: Mapping[str, str], options: dict[str, Any], raw: bytes) -> None:
    """Make one call."""
    os.environ.update(environment)
    adapter = open_s3(session=WARM, **options)
    adapter.execute(msgspec.msgpack.decode(raw, type=Operation))
    adapter.close()


def fill(environment: Mapping[str, str], options: dict[str, Any], folder: str) -> None:
    """Work on a run until it ends."""
    os.environ.update({**environment, **homes(folder)})
    adapter = open_s3(session=WARM, **options)
    task = Path(folder) / "fill.json"
    with (
        cf.open(folder, adapters=(adapter,)) as keeper,
        keeper.run(task, RUN, wait_ms=20_000) as run,
    ):
        first = run.do("s3.put", path="a.txt", content="one")
        run.do("s3.put", path="a.txt", content="two", expected=first["etag"])
        run.do("s3.copy", source="a.txt", path="b.txt")
    adapter.close()


def homes(folder: Path | str) -> dict[str, str]:
    """Return where a project of a test keeps what is the user's, and not the project's."""
    return {name: f"{folder}-home/{name}" for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME")}


def options_of(place: Scene, *, has_files: bool) -> dict[str, Any]:
    """Return what a process opens the adapter of a place with."""
    return {
        "bucket": place.bucket,
        "endpoint": place.proxy.endpoint,
        "prefix": place.prefix,
        "uploads": place.folder if has_files else None,
        "part_bytes": PART_BYTES,
        "times": UNHURRIED,
    }


def run_until(
    place: Scene, target: Any, given: Any, *, spared: int | None, has_files: bool = False
) -> int | None:
    """Run a process, and kill it at a request, which arrives all the same.

    Args:
        place: Where it works.
        target: `call` or `fill`.
        given: What it works on.
        spared: Requests before the one it is killed at; None lets it live.
        has_files: Whether it may upload.

    Returns:
        How it ended: 0, a negative signal, or 1.
    """
    environment = place.server.environment
    options = options_of(place, has_files=has_files)
    process = _context.Process(target=target, args=(environment, options, given))

    def kill() -> None:
        if process.pid is not None:
            os.kill(process.pid, signal.SIGKILL)
        wait([process.sentinel], SECONDS_MAX)  # it is dead before its request goes on

    if spared is not None:
        place.proxy.arm(kill, lambda _: True, spared=spared)
    process.start()
    process.join(SECONDS_MAX)
    place.proxy.wait_until_calm()
    return process.exitcode

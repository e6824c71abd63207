"""A place in a bucket as a target: what is there, what reaches it, and adapters on it."""

import itertools
import os
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from counterfoil.adapters.s3 import Times, open_s3
from counterfoil.adapters.s3.adapter import S3Adapter
from counterfoil.adapters.s3.kinds import Terms, kinds
from counterfoil.adapters.s3.opening import adapter_on
from counterfoil.adapters.s3.records import Records
from counterfoil.adapters.s3.site import Site, set_up
from counterfoil.adapters.s3.wire import Wire, connect
from counterfoil.core.canonical import digest
from counterfoil.core.intent import EnvironmentState, KindSpec
from counterfoil.core.receipt import Fence, LookUp, Receipt
from counterfoil.core.words import Json, Key, RunId
from counterfoil.ports import Adapter, Operation
from counterfoil.testing.adapter_bench import (
    FENCE,
    KEY,
    RUN,
    AdapterBench,
    Call,
    Trait,
    operation,
)
from tests.support.s3_proxy import Fate, S3Proxy
from tests.support.s3_server import PLAIN, VERSIONED, LocalS3

TRAITS = frozenset(
    (
        Trait.DISTURBS,
        Trait.CHECKS_PRESTATE,
        Trait.LOSES_ANSWERS,
        Trait.CUTS_OFF,
    )
)
TIMES = Times()
SHORT = Times(lasts_s=1, landing_s=1)
"""Bounds that a test waits for, where nothing has to arrive in time."""

PASSED_S = 3_600
PART_BYTES = 5 * 1024**2
NUMBERS = itertools.count()
OBJECTS = 4
"""Objects that a bench puts there to be copied or deleted."""

TERMS = Terms(
    endpoint="http://127.0.0.1:1",
    bucket=PLAIN,
    prefix="",
    times=TIMES,
    uploads=True,
)
SPECS: Mapping[str, KindSpec] = {spec.name: spec for spec in kinds(TERMS)}
READS_AND_WRITES = ("s3.get", "s3.list", "s3.put", "s3.copy", "s3.delete")
"""What there is without a folder of uploads."""

GARBLED = (
    Call(kind="s3.get", arguments={}),
    Call(kind="s3.get", arguments={"path": 1}),
    Call(kind="s3.get", arguments={"path": ""}),
    Call(kind="s3.get", arguments={"path": "../a"}),
    Call(kind="s3.get", arguments={"path": "a//b"}),
    Call(kind="s3.get", arguments={"path": "a\x00b"}),
    Call(kind="s3.get", arguments={"path": "a", "mode": "rb"}),
    Call(kind="s3.get", arguments={"path": "a/" * 520 + "b"}),
    Call(kind="s3.get", arguments={"path": ".counterfoil/keys/a"}),
    Call(kind="s3.list", arguments={"path": "a", "limit": 0}),
    Call(kind="s3.list", arguments={"path": "a", "limit": True}),
    Call(kind="s3.put", arguments={"path": "a"}),
    Call(kind="s3.put", arguments={"path": "a", "content": 1}),
    Call(kind="s3.put", arguments={"path": "a", "content": {"b": "c"}}),
    Call(kind="s3.put", arguments={"path": "a", "content": "", "expected": '"quoted"'}),
    Call(kind="s3.put", arguments={"path": "a", "content": "", "content_type": "a\nb"}),
    Call(kind="s3.copy", arguments={"source": "a", "path": "a"}),
    Call(kind="s3.copy", arguments={"source": "a", "path": "b", "expected_source": "absent"}),
    Call(kind="s3.delete", arguments={"path": "a", "expected": "absent"}),
    Call(kind="s3.upload", arguments={"path": "a", "file": "/etc/passwd", "sha256": "0" * 64}),
    Call(kind="s3.upload", arguments={"path": "a", "file": "f", "sha256": "short"}),
)


class Scene:
    """A place below a prefix of its own, reached directly or through a proxy."""

    def __init__(self, server: LocalS3, proxy: S3Proxy, folder: Path, bucket: str) -> None:
        self.server, self.proxy, self.folder, self.bucket = server, proxy, folder, bucket
        self.prefix = f"test-{os.getpid()}-{next(NUMBERS)}/"
        self.client = server.client()
        self.scope = {
            "endpoints": (proxy.endpoint, server.endpoint),
            "buckets": (bucket,),
            "paths": (".",),
            "files": tuple(f"{number}.bin" for number in range(10)),
        }
        self._has_files = False
        self._opened: list[S3Adapter] = []

    def open(self, *, direct: bool = False, proves: bool = False, **options: Any) -> S3Adapter:
        """Open an adapter.

        Args:
            direct: Not through the proxy.
            proves: As a program does, which tries out what the service keeps; a service
                that has been tried out in this process is believed otherwise.
            options: Of `open_s3`.
        """
        settings: dict[str, Any] = {
            "endpoint": self.server.endpoint if direct else self.proxy.endpoint,
            "session": self.server.session,
            "prefix": self.prefix,
            "part_bytes": PART_BYTES,
            "times": TIMES,
        }
        if self._has_files:
            settings["uploads"] = self.folder
        given = {"bucket": self.bucket} | settings | options
        is_known = self.bucket in self.server.proved and not proves
        adapter = _believing(**given) if is_known else open_s3(**given)
        self.server.proved.add(self.bucket)
        self._opened.append(adapter)
        return adapter

    def put(self, path: str, content: str | bytes, **more: Any) -> str:
        """Write an object as another program does, and return its ETag."""
        raw = content.encode() if isinstance(content, str) else content
        answer = self.client.put_object(
            Bucket=self.bucket, Key=f"{self.prefix}{path}", Body=raw, **more
        )
        return str(answer["ETag"]).strip('"')

    def delete(self, path: str) -> None:
        """Delete an object as another program does."""
        self.client.delete_object(Bucket=self.bucket, Key=f"{self.prefix}{path}")

    def metadata(self, path: str) -> dict[str, str]:
        """Return the metadata of an object."""
        answer = self.client.head_object(Bucket=self.bucket, Key=f"{self.prefix}{path}")
        return dict(answer["Metadata"])

    def file(self, name: str, raw: bytes) -> str:
        """Put a file into the folder of uploads, and return its digest."""
        self._has_files = True
        (self.folder / name).write_bytes(raw)
        return digest(raw)

    @property
    def objects(self) -> dict[str, bytes]:
        """What stands below the prefix, records aside."""
        found: dict[str, bytes] = {}
        pages = self.client.get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=self.bucket, Prefix=self.prefix):
            for each in page.get("Contents", ()):
                path = each["Key"].removeprefix(self.prefix)
                if not path.startswith(".counterfoil/"):
                    answer = self.client.get_object(Bucket=self.bucket, Key=each["Key"])
                    found[path] = answer["Body"].read()
        return found

    @property
    def etags(self) -> dict[str, str]:
        """ETags of what stands below the prefix, records aside; at most a page."""
        answer = self.client.list_objects_v2(Bucket=self.bucket, Prefix=self.prefix)
        found = {
            each["Key"].removeprefix(self.prefix): each["ETag"].strip('"')
            for each in answer.get("Contents", ())
        }
        return {path: etag for path, etag in found.items() if not path.startswith(".counterfoil/")}

    def versions(self, path: str = "") -> int:
        """Return how many versions and deletions the bucket holds, records aside."""
        answer = self.client.list_object_versions(Bucket=self.bucket, Prefix=self.prefix + path)
        all_of = (*answer.get("Versions", ()), *answer.get("DeleteMarkers", ()))
        return sum("/.counterfoil/" not in each["Key"] for each in all_of)

    def uploads(self) -> list[str]:
        """Return ids of uploads that nobody has ended."""
        answer = self.client.list_multipart_uploads(Bucket=self.bucket, Prefix=self.prefix)
        return [str(each["UploadId"]) for each in answer.get("Uploads", ())]

    def close(self) -> None:
        """Close every adapter."""
        while self._opened:
            self._opened.pop().close()


def _believing(
    *, bucket: str, endpoint: str, session: Any, prefix: str, times: Times, **rest: Any
) -> S3Adapter:
    wire = Wire(
        connect(session, endpoint, bucket, times.request_s),
        bucket=bucket,
        request_s=times.request_s,
    )
    site = Site(
        wire=wire,
        records=Records(wire=wire, prefix=prefix),
        prefix=prefix,
        account=rest.get("account", ""),
        uploads=rest.get("uploads"),
        part_bytes=rest["part_bytes"],
        times=times,
    )
    set_up(site)
    return adapter_on(site)


@contextmanager
def scene(server: LocalS3, folder: Path, bucket: str = PLAIN) -> Generator[Scene]:
    """Return a fresh place."""
    with S3Proxy(server.address) as proxy:
        made = Scene(server, proxy, folder, bucket)
        try:
            yield made
        finally:
            made.close()


def called(
    place: Scene,
    adapter: Adapter,
    kind: str,
    *,
    run_id: RunId = RUN,
    key: Key = KEY,
    fence: Fence = FENCE,
    prestate: EnvironmentState | None = None,
    **arguments: Json,
) -> Operation:
    """Return a call on the state as it is, or on `prestate`."""
    bench = AdapterBench(
        open=lambda: adapter,
        write=lambda _: Call(kind=kind, arguments={}),
        count=lambda: 0,
        close=lambda: None,
        scope=place.scope,
    )
    call = Call(kind=f"s3.{kind}", arguments=arguments)
    return operation(bench, adapter, call, run_id=run_id, key=key, fence=fence, prestate=prestate)


def do(place: Scene, adapter: Adapter, kind: str, **options: Any) -> Receipt:
    """Make a call on the state as it is."""
    return adapter.execute(called(place, adapter, kind, **options))


def let_pass(adapter: S3Adapter, key: Key = KEY) -> None:
    """Put the deadline of a key's call into the past, as if the time were over by now."""
    records = adapter._site.records
    held = records.read(key)
    if held.note is not None and held.note.until:
        records.write(held, replace(held.note, until=held.note.until - PASSED_S))


def wait_for_deadline(adapter: S3Adapter, key: Key = KEY) -> None:
    """Return once no call of a key can land any more, by the service's own clock."""
    while adapter.look_up(RUN, key, "s3.put").reason.startswith("a call may still land"):
        time.sleep(0.1)


def settled(adapter: S3Adapter, kind: str = "s3.put", key: Key = KEY) -> LookUp:
    """Look a key up once no call of it can land any more."""
    let_pass(adapter, key)
    return adapter.look_up(RUN, key, kind)


def traits_of(kind: str) -> frozenset[Trait]:
    """Return what is known of a kind; a deletion leaves nothing to know a repeated call by."""
    return TRAITS if kind == "s3.delete" else TRAITS | {Trait.KEYED}


def bench_of(
    place: Scene,
    kind: str,
    wrap: Callable[[Adapter], Adapter] = lambda adapter: adapter,
    *,
    direct: bool = False,
) -> AdapterBench:
    """Return a bench that writes with a kind, and counts what the bucket keeps of it."""
    for number in range(OBJECTS):
        if kind in ("s3.copy", "s3.delete"):
            place.put(f"{number}.old", f"old {number}")
        if kind == "s3.upload":
            place.file(f"{number}.bin", bytes([number]) * 100)
    before = place.versions() if place.bucket == VERSIONED else 0
    disturbances: list[str] = []

    def disturb() -> None:
        disturbances.append(place.put(f"other-{len(disturbances)}.txt", "theirs"))

    return AdapterBench(
        open=lambda: wrap(place.open(direct=direct)),
        write=lambda number: Call(kind=kind, arguments=_arguments(kind, number)),
        count=lambda: place.versions() - before - len(disturbances),
        close=lambda: None,
        reads=(
            Call(kind="s3.get", arguments={"path": "other-0.txt"}),
            Call(kind="s3.head", arguments={"path": "other-0.txt"}),
            Call(kind="s3.list", arguments={"path": "."}),
        ),
        garbled=tuple(g for g in GARBLED if g.kind in (kind, *READS_AND_WRITES)),
        scope=place.scope,
        traits=traits_of(kind),
        disturb=disturb,
        lose_answer=lambda: place.proxy.arm(Fate.LOSE_ANSWER),
        cut_off=place.proxy.cut_off,
    )


def _arguments(kind: str, number: int) -> dict[str, Json]:
    match kind:
        case "s3.copy":
            return {"source": f"{number}.old", "path": f"{number}.txt"}
        case "s3.delete":
            return {"path": f"{number}.old"}
        case "s3.upload":
            raw = bytes([number]) * 100
            return {"path": f"{number}.txt", "file": f"{number}.bin", "sha256": digest(raw)}
        case _:
            return {"path": f"{number}.txt", "content": str(number)}

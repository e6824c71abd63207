"""One bucket, or a part of it, as an environment: who it is, and in which state."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from counterfoil.adapters.s3 import kinds
from counterfoil.adapters.s3.objects import OBJECTS_MAX, Entry, listing, look, state_digest
from counterfoil.adapters.s3.records import Records, put_if
from counterfoil.adapters.s3.times import Times
from counterfoil.adapters.s3.wire import Wire
from counterfoil.core.canonical import decode, encode
from counterfoil.core.errors import UnavailableError
from counterfoil.core.intent import EnvironmentState

INSTANCE_BYTES_MAX = 1_000
INSTANCE_BYTES = 16


class Instance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who the environment is: random, written once."""

    instance: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """What every call needs.

    Attributes:
        wire: The way to the bucket.
        records: Records beside the objects.
        prefix: What every name begins with.
        account: Account to report.
        uploads: Folder that files are uploaded from; None when there is none.
        part_bytes: Size of each part of an upload but the last.
        times: Bounds of calls.
    """

    wire: Wire
    records: Records
    prefix: str
    account: str
    uploads: Path | None
    part_bytes: int
    times: Times

    def object(self, path: str) -> str:
        """Return the whole name of the object at a path."""
        return f"{self.prefix}{path}"


def set_up(site: Site) -> None:
    """Give the environment its identity, if it has none.

    Raises:
        UnavailableError: The service does not answer.
    """
    raw = encode(Instance(instance=secrets.token_hex(INSTANCE_BYTES)))
    put_if(site.wire, site.records.name("instance"), raw, "")


def state(site: Site, paths: Sequence[str]) -> tuple[EnvironmentState, tuple[Entry, ...]]:
    """Return the environment as it is, and the objects that the scope entries cover.

    Raises:
        UnavailableError: It cannot be looked at, or there is too much of it.
    """
    entries = listing(site.wire, site.prefix, paths)
    if entries is None:
        raise UnavailableError(
            f"the scope covers more than {OBJECTS_MAX} objects",
            move="name narrower paths in the scope",
        )
    return as_state(site, state_digest(entries)), entries


def as_state(site: Site, fingerprint: str) -> EnvironmentState:
    """Return a state of this environment with a fingerprint.

    Raises:
        FormatError: The record of the instance is damaged.
        UnavailableError: It is gone, or cannot be read.
    """
    name = site.records.name("instance")
    seen = look(site.wire, name, bytes_max=INSTANCE_BYTES_MAX)
    if seen.content is None:
        raise UnavailableError(f"the bucket holds no {name}: it is not the one that was set up")
    found = decode(seen.content, Instance, name, bytes_max=INSTANCE_BYTES_MAX)
    return EnvironmentState(
        adapter=kinds.NAME,
        instance=f"s3:{found.instance}",
        fingerprint=fingerprint,
        account=site.account,
    )

"""Objects of an S3 bucket: put, copied, uploaded in parts and deleted, each change once.

Level `conditional`, and `queryable` for deletions. Every change is conditional on the
object as it was, and signed with a deadline that the service itself enforces. What can
be promised about other writers stands in docs/how-to/s3.md.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from counterfoil.core.errors import ConfigError, ContractError
from counterfoil.core.task import canonical_path

if TYPE_CHECKING:
    from counterfoil.adapters.s3.adapter import S3Adapter

__all__ = ["open_s3"]

CALL_MS = 20_000
UPLOAD_MS = 20_000
"""Below the term of a lease by default; more needs a longer lease."""

REQUEST_S = 5
"""Longest wait for one answer."""

LASTS_S = 10
"""How long the service accepts a signed call: a slow answer, and some more."""

LANDING_S = 60
"""From the deadline of a call until it has landed: services end requests that stand still."""

PART_BYTES_MIN = 5 * 1024**2
"""The least that S3 takes as a part, the last one aside."""

PART_BYTES = 16 * 1024**2
"""A part by default: 10,000 of them make an object of 160 GB."""

PART_BYTES_MAX = 1024**3
"""A part is held in memory while it is sent."""

_HOUR_S = 3_600
_BOUNDS_MAX = {
    "call_ms": 1_000 * _HOUR_S,
    "upload_ms": 24 * 1_000 * _HOUR_S,
    "request_s": _HOUR_S,
    "lasts_s": _HOUR_S,
    "landing_s": _HOUR_S,
}


def open_s3(
    bucket: str,
    *,
    endpoint: str | None = None,
    region: str | None = None,
    profile: str | None = None,
    prefix: str = "",
    account: str = "",
    uploads: Path | None = None,
    part_bytes: int = PART_BYTES,
    call_ms: int = CALL_MS,
    upload_ms: int = UPLOAD_MS,
    request_s: int = REQUEST_S,
    lasts_s: int = LASTS_S,
    landing_s: int = LANDING_S,
    pause: Callable[[float], None] = time.sleep,
) -> "S3Adapter":
    """Open a bucket, or what lies below a prefix of it, as an environment.

    Credentials come as boto3 looks for them: environment, profile or role. They are in
    no argument, and in nothing that is recorded or shown.

    Args:
        bucket: Name of a bucket that exists.
        endpoint: Address of the service; by default AWS's own of the region.
        region: Region; by default that of the profile or the environment.
        profile: Profile of the AWS configuration to take credentials from.
        prefix: What every name begins with: folders that end in "/", or empty.
        account: Account to report with each state.
        uploads: Folder that files are uploaded from; without one there is no `s3.upload`.
        part_bytes: Size of each part of an upload but the last, at least 5 MiB.
        call_ms: Longest call, uploads aside.
        upload_ms: Longest upload of one call; the next call goes on from there.
        request_s: Longest wait for one answer, in seconds, at least 1.
        lasts_s: How long the service accepts a signed call, in seconds, 1 to 3,600.
        landing_s: How long a call that was accepted may take until it has landed, in
            seconds, at least 1: the time after which the service ends a request that
            stands still.
        pause: Waits for so many seconds.

    Raises:
        ConfigError: boto3 is not installed, an argument is out of bounds, there are no
            credentials, the bucket cannot be used, or the service ignores a condition.
        UnavailableError: The service does not answer.
    """
    _check(prefix, part_bytes, uploads)
    _check_bounds(
        call_ms=call_ms,
        upload_ms=upload_ms,
        request_s=request_s,
        lasts_s=lasts_s,
        landing_s=landing_s,
    )
    try:
        from counterfoil.adapters.s3 import opening  # noqa: PLC0415 - needs an extra
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the s3 adapter needs {error.name}", move="install counterfoil[s3]"
        ) from error
    place = opening.Place(endpoint=endpoint, region=region, profile=profile, bucket=bucket)
    terms = opening.Times(
        call_ms=call_ms,
        upload_ms=upload_ms,
        request_s=request_s,
        lasts_s=lasts_s,
        landing_s=landing_s,
    )
    return opening.opened(
        place,
        terms,
        prefix=prefix,
        account=account,
        uploads=uploads,
        part_bytes=part_bytes,
        pause=pause,
    )


def _check(prefix: str, part_bytes: int, uploads: Path | None) -> None:
    if prefix:
        try:
            canonical_path(prefix.removesuffix("/"), "prefix")
        except ContractError as error:
            raise ConfigError(error.message) from error
        if not prefix.endswith("/"):
            raise ConfigError(f"prefix {prefix!r:.120} does not end in '/'")
    if not PART_BYTES_MIN <= part_bytes <= PART_BYTES_MAX:
        raise ConfigError(f"part_bytes is {part_bytes}, not {PART_BYTES_MIN} to {PART_BYTES_MAX}")
    if uploads is not None and not uploads.is_dir():
        raise ConfigError(f"the folder of uploads {str(uploads)!r:.200} is not there")


def _check_bounds(**bounds: int) -> None:
    for name, value in bounds.items():
        if not 1 <= value <= _BOUNDS_MAX[name]:
            raise ConfigError(f"{name} is {value}, not 1 to {_BOUNDS_MAX[name]}")

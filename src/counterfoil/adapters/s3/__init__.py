"""Objects of an S3 bucket: put, copied, uploaded in parts and deleted, each change once.

Level `conditional`, and `queryable` for deletions. Every change is conditional on the
object as it was, and signed with a deadline that the service itself enforces. What can
be promised about other writers stands in docs/how-to/s3.md.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from counterfoil.adapters.s3.kinds import check_path
from counterfoil.adapters.s3.times import USUAL, Times, check
from counterfoil.core.errors import ConfigError, ContractError

if TYPE_CHECKING:
    from counterfoil.adapters.s3.adapter import S3Adapter
    from counterfoil.adapters.s3.wire import Session

__all__ = ["Times", "open_s3"]

PART_BYTES_MIN = 5 * 1024**2
"""The least that S3 takes as a part, the last one aside."""

PART_BYTES = 16 * 1024**2
"""A part by default: 10,000 of them make an object of 160 GB."""

PART_BYTES_MAX = 1024**3
"""A part is held in memory while it is sent."""

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


def open_s3(
    bucket: str,
    *,
    session: "Session | None" = None,
    endpoint: str | None = None,
    prefix: str = "",
    account: str = "",
    uploads: Path | None = None,
    part_bytes: int = PART_BYTES,
    times: Times = USUAL,
) -> "S3Adapter":
    """Open a bucket, or what lies below a prefix of it, as an environment.

    Credentials are boto3's matter: in its environment, profile or role, or in a session
    of yours. They are in nothing that is recorded or shown.

    Args:
        bucket: Name of a bucket that exists.
        session: A `boto3.Session`, with a profile, a region or a role; the usual one
            when None.
        endpoint: Address of the service; by default AWS's own of the region.
        prefix: What every name begins with: folders that end in "/", or empty.
        account: Account to report with each state.
        uploads: Folder that files are uploaded from; without one there is no `s3.upload`.
        part_bytes: Size of each part of an upload but the last, 5 MiB to 1 GiB.
        times: Bounds of calls.

    Raises:
        ConfigError: boto3 is not installed, an argument is out of bounds, there are no
            credentials, the bucket cannot be used, or the service ignores a condition or
            a deadline.
        UnavailableError: The service does not answer.
    """
    check(times)
    _check(bucket, prefix, part_bytes, uploads)
    try:
        from counterfoil.adapters.s3 import opening  # noqa: PLC0415 - needs an extra
    except ModuleNotFoundError as error:
        move = "install counterfoil[s3]"
        raise ConfigError(f"the s3 adapter needs {error.name}", move=move) from error
    return opening.opened(
        bucket,
        session=session,
        endpoint=endpoint,
        prefix=prefix,
        account=account,
        uploads=uploads,
        part_bytes=part_bytes,
        times=times,
    )


def _check(bucket: str, prefix: str, part_bytes: int, uploads: Path | None) -> None:
    if not _BUCKET.fullmatch(bucket):
        raise ConfigError(f"{bucket!r:.120} is no name of a bucket")
    if prefix:
        try:
            check_path(prefix.removesuffix("/"), "prefix", "")
        except ContractError as error:
            raise ConfigError(error.message) from error
        if not prefix.endswith("/"):
            raise ConfigError(f"prefix {prefix!r:.120} does not end in '/'")
    if not PART_BYTES_MIN <= part_bytes <= PART_BYTES_MAX:
        raise ConfigError(f"part_bytes is {part_bytes}, not {PART_BYTES_MIN} to {PART_BYTES_MAX}")
    if uploads is not None and not uploads.is_dir():
        raise ConfigError(f"the folder of uploads {str(uploads)!r:.200} is not there")

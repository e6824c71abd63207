"""From names and numbers to an adapter that is ready: the one place that connects."""

from pathlib import Path

from counterfoil.adapters.s3.adapter import S3Adapter
from counterfoil.adapters.s3.kinds import Terms, kinds
from counterfoil.adapters.s3.records import Records
from counterfoil.adapters.s3.site import Site, set_up
from counterfoil.adapters.s3.times import Times
from counterfoil.adapters.s3.wire import Wire, connect


def connected(
    bucket: str, endpoint: str | None, region: str | None, profile: str | None, times: Times
) -> Wire:
    """Return the way to a bucket; nothing is sent yet.

    Raises:
        ConfigError: Profile, region or endpoint cannot be used, or there are no credentials.
    """
    in_path = endpoint is not None or "." in bucket  # a certificate covers one part of a host
    client = connect(
        endpoint=endpoint,
        region=region,
        profile=profile,
        wait_s=times.request_s,
        in_path=in_path,
    )
    return Wire(client, bucket=bucket, request_s=times.request_s)


def opened(
    wire: Wire,
    *,
    prefix: str,
    account: str,
    uploads: Path | None,
    part_bytes: int,
    times: Times,
) -> S3Adapter:
    """Return an adapter on a bucket, which is set up as an environment if it is none.

    Raises:
        ConfigError: The bucket cannot be used, or the service ignores a condition.
        UnavailableError: The service does not answer.
    """
    site = Site(
        wire=wire,
        records=Records(wire=wire, prefix=prefix),
        prefix=prefix,
        account=account,
        uploads=uploads,
        part_bytes=part_bytes,
        times=times,
    )
    try:
        set_up(site)
    except BaseException:
        wire.close()
        raise
    terms = Terms(
        endpoint=wire.endpoint,
        bucket=wire.bucket,
        prefix=prefix,
        times=times,
        uploads=uploads is not None,
    )
    return S3Adapter(site, kinds(terms))

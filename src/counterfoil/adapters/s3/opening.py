"""From names and numbers to an adapter that is ready: the one place that connects."""

from pathlib import Path

from counterfoil.adapters.s3.adapter import S3Adapter
from counterfoil.adapters.s3.kinds import Terms, kinds
from counterfoil.adapters.s3.probing import prove
from counterfoil.adapters.s3.records import Records
from counterfoil.adapters.s3.site import Site, set_up
from counterfoil.adapters.s3.times import Times
from counterfoil.adapters.s3.wire import Session, Wire, connect


def opened(
    bucket: str,
    *,
    session: Session | None,
    endpoint: str | None,
    prefix: str,
    account: str,
    uploads: Path | None,
    part_bytes: int,
    times: Times,
) -> S3Adapter:
    """Return an adapter on a bucket, which is set up as an environment if it is none.

    Raises:
        ConfigError: There are no credentials, the bucket cannot be used, or the service
            ignores a condition or a deadline.
        UnavailableError: The service does not answer.
    """
    way = connect(session, endpoint, bucket, times.request_s)
    wire = Wire(way, bucket=bucket, request_s=times.request_s)
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
        prove(site)
        set_up(site)
    except BaseException:
        wire.close()
        raise
    return adapter_on(site)


def adapter_on(site: Site) -> S3Adapter:
    """Return an adapter on an environment that is set up."""
    terms = Terms(
        endpoint=site.wire.endpoint,
        bucket=site.wire.bucket,
        prefix=site.prefix,
        times=site.times,
        uploads=site.uploads is not None,
    )
    return S3Adapter(site, kinds(terms))

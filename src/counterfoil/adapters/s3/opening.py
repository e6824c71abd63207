"""From names and numbers to an adapter that is ready: the one place that connects."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from counterfoil.adapters.s3.adapter import S3Adapter
from counterfoil.adapters.s3.kinds import Terms, kinds
from counterfoil.adapters.s3.records import Records
from counterfoil.adapters.s3.site import Site, set_up
from counterfoil.adapters.s3.wire import Wire, connect


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Which bucket, where, and where its credentials are found."""

    endpoint: str | None
    region: str | None
    profile: str | None
    bucket: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Times:
    """Bounds, as `open_s3` describes them."""

    call_ms: int
    upload_ms: int
    request_s: int
    lasts_s: int
    landing_s: int


def opened(
    place: Place,
    times: Times,
    *,
    prefix: str,
    account: str,
    uploads: Path | None,
    part_bytes: int,
    pause: Callable[[float], None],
) -> S3Adapter:
    """Return an adapter on a bucket, which is set up as an environment if it is none.

    Raises:
        ConfigError: There are no credentials, the bucket cannot be used, or the service
            ignores a condition.
        UnavailableError: The service does not answer.
    """
    client = connect(
        endpoint=place.endpoint,
        region=place.region,
        profile=place.profile,
        wait_s=times.request_s,
    )
    wire = Wire(client, bucket=place.bucket, request_s=times.request_s)
    site = Site(
        wire=wire,
        records=Records(wire=wire, prefix=prefix),
        prefix=prefix,
        account=account,
        uploads=uploads,
        part_bytes=part_bytes,
        lasts_s=times.lasts_s,
        landing_s=times.landing_s,
        pause=pause,
    )
    try:
        set_up(site)
    except BaseException:
        wire.close()
        raise
    terms = Terms(
        endpoint=wire.endpoint,
        bucket=place.bucket,
        prefix=prefix,
        call_ms=times.call_ms,
        upload_ms=times.upload_ms,
        in_flight_ms=times.call_ms + (times.lasts_s + times.landing_s) * 1000,
        uploads=uploads is not None,
    )
    return S3Adapter(site, kinds(terms))

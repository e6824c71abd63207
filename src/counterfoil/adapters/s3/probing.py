"""Whether a service keeps what the promises here rest on: conditions and deadlines.

It is asked each time a bucket is opened, by requests of the very form that effects have,
on an object of our own. A service that keeps its word refuses each of them.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from counterfoil.adapters.s3.calls import Part, completion
from counterfoil.adapters.s3.records import put_if
from counterfoil.adapters.s3.site import Site
from counterfoil.adapters.s3.wire import SUCCESSES, AnswerError, Sent, headers_of, moment
from counterfoil.core.errors import ConfigError, CounterfoilError, UnavailableError
from counterfoil.core.words import Json

PROBE = b"Counterfoil finds out here whether the service keeps its conditions.\n"
NO_ETAG = "0" * 32
"""No object that we write has this one."""

LASTS_S = 60
"""How long a request of these is good for: enough for a slow way."""

REFUSED, NOT_HELD = 412, (400, 401, 403)
"""What a condition that does not hold is answered with, and a deadline that is over."""

PASSING = (408, 409, 429, 500, 502, 503, 504)
"""Answers of a service that is busy: another try may tell."""


class Question(NamedTuple):
    """One request that a service must refuse.

    Attributes:
        what: Its condition, for people.
        operation: Name of the operation.
        members: Of the request.
        body: What is sent along.
    """

    what: str
    operation: str
    members: dict[str, Json]
    body: bytes = b""


def prove(site: Site) -> None:
    """Refuse a bucket that cannot be used, and a service that breaks what is relied on.

    A service that ignores a condition would overwrite what it should refuse, and one that
    ignores a deadline would take a call at any time.

    Raises:
        ConfigError: The bucket is not there or not ours, or a condition or a deadline is
            ignored.
        UnavailableError: The service does not answer.
    """
    at = _looked(site)
    name = site.records.name("probe")
    put_if(site.wire, name, PROBE, "")
    _check_deadline(site, name, at)
    for question in _questions(site, name):
        _expect_refusal(site, question, _sent(site, question))
    if site.uploads is not None:
        _check_uploads(site, name)


def _looked(site: Site) -> int:
    """Return what time the service has, once the bucket is known to be there."""
    try:
        answer = site.wire.ask("looking at the bucket", "head_bucket", 301, 400, 403, 404)
    except AnswerError as error:
        raise ConfigError(
            f"bucket {site.wire.bucket} cannot be used: the service answers "
            f"{error.status} {error.code}",
            move="check bucket, region and credentials",
        ) from error
    at = moment(headers_of(answer))
    if not at:
        raise ConfigError(
            f"the service at {site.wire.endpoint} does not say what time it is, so nobody "
            "could tell when a call is too late"
        )
    return at


def _check_deadline(site: Site, name: str, at: int) -> None:
    """Send one request twice: signed for this moment, and for one that is over.

    The first shows that it was signed as it must be, so that the second is refused for
    its deadline alone.
    """
    members: dict[str, Json] = {"Key": name, "IfNoneMatch": "*"}
    question = Question("put if absent", "put_object", members, PROBE)
    over = at - LASTS_S - site.times.landing_s - 1
    _expect_refusal(site, question, _sent_at(site, question, at))
    sent = _sent_at(site, question, over)
    if sent.status in SUCCESSES or sent.status == REFUSED:
        raise ConfigError(
            f"the service at {site.wire.endpoint} takes a signed call after its deadline",
            move="use a service that keeps X-Amz-Expires",
        )
    if sent.status not in NOT_HELD:
        raise _unclear(site, "call after its deadline", sent)


def _questions(site: Site, name: str) -> Iterator[Question]:
    key: dict[str, Json] = {"Key": name}
    changed: dict[str, Json] = {"IfMatch": f'"{NO_ETAG}"'}
    source = {"CopySource": {"Bucket": site.wire.bucket, "Key": name}}
    replaced = key | source | {"MetadataDirective": "REPLACE"}
    yield Question("put if unchanged", "put_object", key | changed, PROBE)
    yield Question("copy if absent", "copy_object", replaced | {"IfNoneMatch": "*"})
    yield Question("copy if unchanged", "copy_object", replaced | changed)
    yield Question("delete if unchanged", "delete_object", key | changed)


def _check_uploads(site: Site, name: str) -> None:
    conditions: tuple[tuple[str, dict[str, Json]], ...] = (
        ("upload if absent", {"IfNoneMatch": "*"}),
        ("upload if unchanged", {"IfMatch": f'"{NO_ETAG}"'}),
    )
    for what, condition in conditions:
        with _upload(site, name) as (upload, part):
            members = {"Key": name, "UploadId": upload, **condition}
            question = Question(what, "complete_multipart_upload", members, completion((part,)))
            move = "open it without a folder of uploads, or "
            _expect_refusal(site, question, _sent(site, question), move)


@contextmanager
def _upload(site: Site, name: str) -> Generator[tuple[str, Part]]:
    """Begin an upload of one part, and end it without an object."""
    ask: Callable[..., dict[str, Json]] = site.wire.ask
    upload = str(ask("beginning an upload", "create_multipart_upload", Key=name)["UploadId"])
    place = {"Key": name, "UploadId": upload}
    try:
        told = ask("sending a part", "upload_part", **place, PartNumber=1, Body=PROBE)
        yield upload, Part(number=1, etag=str(told["ETag"]).strip('"'))
    finally:
        with suppress(AnswerError, UnavailableError):
            ask("ending an upload", "abort_multipart_upload", 404, **place)


def _sent(site: Site, question: Question) -> Sent:
    signed = site.wire.sign(question.operation, LASTS_S, **question.members)
    return site.wire.send(signed, question.body)


def _sent_at(site: Site, question: Question, at: int) -> Sent:
    signed = site.wire.sign_at(at, question.operation, LASTS_S, **question.members)
    return site.wire.send(signed, question.body)


def _expect_refusal(site: Site, question: Question, sent: Sent, move: str = "") -> None:
    if sent.status == REFUSED:
        return
    if sent.status in SUCCESSES:
        raise ConfigError(
            f"the service at {site.wire.endpoint} ignores the condition of a {question.what}",
            move=f"{move}use a service that keeps conditional writes, copies and deletions",
        )
    raise _unclear(site, question.what, sent)


def _unclear(site: Site, what: str, sent: Sent) -> CounterfoilError:
    told = f"{sent.status} {sent.code}".rstrip() if sent.status else "nothing of S3"
    words = f"a {what}, tried out at {site.wire.endpoint}, is answered with {told}"
    if not sent.status or sent.status in PASSING:
        return UnavailableError(words)
    return ConfigError(words, move="check what the account may do, and what the service can")

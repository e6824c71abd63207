"""Answers that are lost, late, slow, refused or not S3's own, and what became of the effect."""

import threading
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from counterfoil.adapters.s3 import Times
from counterfoil.adapters.s3.adapter import S3Adapter
from counterfoil.adapters.s3.evidence import metadata_of
from counterfoil.core.canonical import digest
from counterfoil.core.errors import (
    ContractError,
    CounterfoilError,
    StaleObservationError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.receipt import Answer as Found
from counterfoil.core.receipt import Fence
from counterfoil.ports import Operation
from counterfoil.testing.adapter_bench import KEY, RUN
from tests.support.s3_bench import (
    PART_BYTES,
    SHORT,
    Scene,
    called,
    do,
    scene,
    settled,
    wait_for_deadline,
)
from tests.support.s3_proxy import Answer, Fate, S3Proxy, is_effect, is_look, is_note
from tests.support.s3_server import VERSIONED, LocalS3

pytest_plugins = ["tests.support.s3_server"]

NEXT = Fence(lease_version=2, nonce="second")
SECONDS_MAX = 30


@pytest.fixture
def place(s3: LocalS3, tmp_path: Path) -> Generator[Scene]:
    with scene(s3, tmp_path, VERSIONED) as made:
        made.put("old.txt", "old")
        made.file("0.bin", b"a file")
        yield made


def _call(place: Scene, adapter: S3Adapter, kind: str) -> Operation:
    match kind:
        case "put":
            return called(place, adapter, "put", path="new.txt", content="new")
        case "copy":
            return called(place, adapter, "copy", source="old.txt", path="new.txt")
        case _:
            sha256 = place.file("0.bin", b"a file")
            return called(place, adapter, "upload", path="new.txt", file="0.bin", sha256=sha256)


def _recovered(place: Scene, sent: Operation) -> None:
    """Recover as another process does, and hold the bucket to one effect."""
    adapter = place.open(direct=True)
    adapter.take(RUN, NEXT)
    if settled(adapter, sent.kind).answer is Found.ABSENT:
        adapter.execute(replace(sent, fence=NEXT))
    assert adapter.look_up(RUN, KEY, sent.kind).answer is Found.FOUND
    assert place.versions("new.txt") == 1


KINDS = ("put", "copy", "upload")


def _each_with(
    variants: Sequence[tuple[str, tuple[Any, ...], tuple[str, ...]]],
) -> list[Any]:
    """Return cases: what comes back depends on no kind but where a variant names it."""
    return [
        pytest.param(kind, *given, id=f"{name}-{kind}")
        for name, given, kinds in variants
        for kind in kinds
    ]


@pytest.mark.parametrize(
    ("kind", "fate"),
    _each_with(
        (
            ("C29 a answered with 500", (Answer(500, asks_service=True),), ("put", "copy")),
            ("C29 with 503", (Answer(503, "SlowDown", asks_service=True),), ("upload",)),
            ("C29 a with 412", (Answer(412, "PreconditionFailed", asks_service=True),), KINDS),
            ("an error with 200", (Answer(200, asks_service=True),), ("copy", "upload")),
            ("C29 a the answer is lost", (Fate.LOSE_ANSWER,), KINDS),
        )
    ),
)
def test_an_effect_whose_answer_is_lost_is_known_by_reading_the_object(
    kind: str, fate: Answer | Fate, place: Scene
) -> None:
    adapter = place.open()
    sent = _call(place, adapter, kind)
    place.proxy.arm(fate)
    receipt = adapter.execute(sent)
    assert (receipt.key, receipt.digest, receipt.run_id) == (KEY, sent.digest, RUN)
    assert (place.proxy.effects(), place.versions("new.txt")) == (1, 1)
    assert adapter.execute(sent).replayed


@pytest.mark.parametrize(
    ("kind", "fate"),
    [
        pytest.param("put", Fate.LOSE_REQUEST, id="C29 put that is lost"),
        pytest.param("upload", Fate.LOSE_REQUEST, id="C29 upload that is lost"),
        pytest.param("put", Answer(500), id="C29 put answered with 500"),
        pytest.param("put", Answer(507, "InsufficientStorage"), id="put to a full service"),
        pytest.param("put", Answer(200, is_of_s3=False), id="put answered by something else"),
        pytest.param("put", Answer(403, is_of_s3=False), id="put refused by something else"),
        pytest.param("copy", Answer(200), id="copy with an error in an answer with 200"),
        pytest.param("copy", Answer(200, body=b"<html>"), id="copy answered by something else"),
    ],
)
def test_an_effect_that_may_still_land_is_unknown(
    kind: str, fate: Answer | Fate, place: Scene
) -> None:
    adapter = place.open()
    sent = _call(place, adapter, kind)
    place.proxy.arm(fate)
    with pytest.raises(UnknownOutcomeError):
        adapter.execute(sent)
    assert adapter.look_up(RUN, KEY, sent.kind).answer is Found.UNKNOWN
    assert "new.txt" not in place.objects


@pytest.mark.parametrize("kind", ["put", "upload"])
def test_an_effect_that_did_not_land_is_sent_once(kind: str, place: Scene) -> None:
    adapter = place.open()
    sent = _call(place, adapter, kind)
    place.proxy.arm(Fate.LOSE_REQUEST)
    with pytest.raises(UnknownOutcomeError):
        adapter.execute(sent)
    _recovered(place, sent)


def test_what_was_refused_after_a_lost_call_is_known_to_be_absent(place: Scene) -> None:
    adapter = place.open()
    sent = _call(place, adapter, "put")
    place.proxy.arm(Fate.LOSE_REQUEST)
    with pytest.raises(UnknownOutcomeError):
        adapter.execute(sent)
    assert settled(adapter).answer is Found.ABSENT
    place.proxy.arm(lambda: place.put("new.txt", "theirs"))
    with pytest.raises(StaleObservationError):
        adapter.execute(sent)
    assert adapter.look_up(RUN, KEY, "s3.put").answer is Found.ABSENT
    assert place.objects["new.txt"] == b"theirs"


def test_a_late_request_is_refused_by_the_service_itself(place: Scene) -> None:
    adapter = place.open(times=SHORT)
    sent = _call(place, adapter, "put")
    place.proxy.arm(Fate.DELIVER_LATE)
    with pytest.raises(UnknownOutcomeError):
        adapter.execute(sent)
    wait_for_deadline(place.open(direct=True, times=SHORT))
    _recovered(place, sent)
    place.delete("new.txt")  # now its condition would hold again
    assert place.proxy.deliver() == [403]
    assert "new.txt" not in place.objects


def test_a_request_that_arrives_in_time_is_found(place: Scene) -> None:
    adapter = place.open(times=Times(lasts_s=60))
    sent = _call(place, adapter, "put")
    place.proxy.arm(Fate.DELIVER_LATE)
    with pytest.raises(UnknownOutcomeError):
        adapter.execute(sent)
    assert place.proxy.deliver() == [200]
    _recovered(place, sent)


def test_a_slow_service_leaves_it_unknown_until_it_is_there(place: Scene) -> None:
    adapter = place.open(times=Times(request_s=3, lasts_s=60))
    sent = _call(place, adapter, "put")
    given_up = threading.Event()
    place.proxy.arm(lambda: given_up.wait(SECONDS_MAX))
    with pytest.raises(UnknownOutcomeError):
        adapter.execute(sent)
    assert place.open().look_up(RUN, KEY, "s3.put").answer is Found.UNKNOWN
    given_up.set()
    while place.versions("new.txt") == 0:
        pass
    _recovered(place, sent)


@pytest.mark.parametrize(
    ("kind", "fate", "error"),
    _each_with(
        (
            ("access denied", (Answer(403, "AccessDenied"), UnavailableError), ("upload",)),
            ("body not received", (Answer(400, "RequestTimeout"), UnavailableError), ("put",)),
            ("too many", (Answer(429, "TooManyRequests"), UnavailableError), ("copy",)),
            ("412", (Answer(412, "PreconditionFailed"), StaleObservationError), KINDS),
            ("invalid", (Answer(400, "InvalidArgument"), ContractError), ("put", "upload")),
        )
    ),
)
def test_a_refusal_is_no_effect_and_is_absent_at_once(
    kind: str, fate: Answer, error: type[CounterfoilError], place: Scene
) -> None:
    adapter = place.open()
    sent = _call(place, adapter, kind)
    place.proxy.arm(fate)
    with pytest.raises(error):
        adapter.execute(sent)
    assert adapter.look_up(RUN, KEY, sent.kind).answer is Found.ABSENT
    _recovered(place, sent)


@pytest.mark.parametrize("times", [pytest.param(1, id="C29 c once"), pytest.param(3, id="C29 c")])
def test_a_conflict_without_an_object_is_tried_again(times: int, place: Scene) -> None:
    adapter = place.open()
    sent = _call(place, adapter, "put")
    for _ in range(times):
        place.proxy.arm(Answer(409, "ConditionalRequestConflict"))
    adapter.execute(sent)
    assert (place.proxy.effects(), place.versions("new.txt")) == (times + 1, 1)


def test_a_conflict_that_stays_is_no_effect(place: Scene) -> None:
    adapter = place.open()
    sent = _call(place, adapter, "put")
    for _ in range(10):
        place.proxy.arm(Answer(409, "ConditionalRequestConflict"))
    with pytest.raises(UnavailableError):
        adapter.execute(sent)
    assert adapter.look_up(RUN, KEY, "s3.put").answer is Found.ABSENT


@pytest.mark.parametrize("content", [pytest.param("changed", id="C29 d")])
def test_another_content_under_our_intent_is_a_conflict_with_both_digests(
    content: str, place: Scene
) -> None:
    adapter = place.open()
    sent = _call(place, adapter, "put")
    place.proxy.arm(Fate.LOSE_REQUEST)
    with pytest.raises(UnknownOutcomeError):
        adapter.execute(sent)
    note = adapter._site.records.read(KEY).note
    assert note is not None
    place.put("new.txt", content, Metadata=metadata_of(note))
    answer = adapter.look_up(RUN, KEY, "s3.put")
    assert answer.answer is Found.FOUND_OTHER
    assert note.sha256 in answer.reason
    assert digest(content.encode()) in answer.reason


@pytest.mark.parametrize(
    ("fits", "spared", "expected"),
    [
        pytest.param(is_note, 0, UnavailableError, id="of the first record"),
        pytest.param(is_note, 1, UnknownOutcomeError, id="of the receipt"),
    ],
)
@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_ANSWER])
def test_a_lost_answer_of_a_record_loses_no_effect(
    fits: Callable[..., bool],
    spared: int,
    expected: type[CounterfoilError],
    fate: Fate | Answer,
    place: Scene,
) -> None:
    adapter = place.open()
    sent = _call(place, adapter, "put")
    place.proxy.arm(fate, fits, spared=spared)
    with pytest.raises(expected):
        adapter.execute(sent)
    _recovered(place, sent)


def test_an_object_that_cannot_be_read_afterwards_leaves_it_unknown(place: Scene) -> None:
    adapter = place.open()
    sent = _call(place, adapter, "put")
    place.proxy.arm(Answer(500, asks_service=True))
    place.proxy.arm(Answer(500), lambda request: place.proxy.effects() > 0 and is_look(request))
    with pytest.raises(UnknownOutcomeError):
        adapter.execute(sent)
    _recovered(place, sent)


def test_a_deletion_is_one_and_says_when_nobody_knows_whose_it_was(place: Scene) -> None:
    adapter = place.open()
    sent = called(place, adapter, "delete", path="old.txt")
    place.proxy.arm(Fate.LOSE_ANSWER)
    with pytest.raises(UnknownOutcomeError):
        adapter.execute(sent)
    answer = settled(adapter, "s3.delete")
    assert answer.answer is Found.FOUND_OTHER
    assert "nothing says who deleted it" in answer.reason
    assert (place.proxy.effects(), place.versions("old.txt")) == (1, 2)


def test_a_deletion_that_did_not_arrive_is_sent_once(place: Scene) -> None:
    adapter = place.open()
    sent = called(place, adapter, "delete", path="old.txt")
    place.proxy.arm(Fate.LOSE_REQUEST)
    with pytest.raises(UnknownOutcomeError):
        adapter.execute(sent)
    assert settled(adapter, "s3.delete").answer is Found.ABSENT
    adapter.take(RUN, NEXT)
    adapter.execute(replace(sent, fence=NEXT))
    assert place.versions("old.txt") == 2


def test_a_service_that_is_down_is_unavailable_and_unknown(place: Scene) -> None:
    with S3Proxy(place.server.address) as other:
        adapter = place.open(endpoint=other.endpoint)
        place.scope["endpoints"] = (*place.scope["endpoints"], other.endpoint)
        sent = _call(place, adapter, "put")
    with pytest.raises(UnavailableError):
        adapter.execute(sent)
    with pytest.raises(UnavailableError):
        adapter.observe(place.scope)
    assert adapter.look_up(RUN, KEY, "s3.put").answer is Found.UNKNOWN
    assert "new.txt" not in place.objects


def test_an_effect_that_finds_no_connection_did_not_happen(place: Scene) -> None:
    adapter = place.open()
    sent = _call(place, adapter, "put")
    place.proxy.arm(place.proxy.stop_listening, lambda request: "/runs/" in request.path)
    with pytest.raises(UnavailableError):
        adapter.execute(sent)
    assert "new.txt" not in place.objects


@pytest.mark.parametrize(
    "body", [b"", b"not xml", b"<ListBucketResult><Contents>", b"\x00\xff" * 100]
)
def test_an_answer_that_is_not_of_s3_is_no_observation(body: bytes, place: Scene) -> None:
    adapter = place.open()
    place.proxy.arm(Answer(200, body=body), lambda request: "list-type=2" in request.path)
    with pytest.raises(UnavailableError):
        adapter.observe(place.scope)


@pytest.mark.parametrize("operation", ["GET", "HEAD"])
def test_not_found_by_something_in_between_is_not_absent(operation: str, place: Scene) -> None:
    adapter = place.open()
    sent = _call(place, adapter, "put")
    adapter.execute(sent)
    place.proxy.arm(
        Answer(404, "NotFound", is_of_s3=False), lambda request: request.method == operation
    )
    if operation == "GET":
        assert adapter.look_up(RUN, KEY, "s3.put").answer is Found.UNKNOWN
    else:
        with pytest.raises(UnavailableError):
            do(place, adapter, "head", path="new.txt")


@pytest.mark.parametrize(
    ("status", "fits"),
    [
        pytest.param(status, fits, id=f"T27 {status} of {what}")
        for what, fits, statuses in (
            ("an effect", is_effect, (302, 307)),
            ("a listing", lambda request: "list-type=2" in request.path, (301, 307, 308)),
        )
        for status in statuses
    ],
)
def test_no_redirect_is_followed(status: int, fits: Callable[..., bool], place: Scene) -> None:
    adapter = place.open()
    sent = _call(place, adapter, "put")
    with S3Proxy(place.server.address) as other:
        told = Answer(status, "PermanentRedirect", location=f"{other.endpoint}/elsewhere")
        place.proxy.arm(told, fits)
        with pytest.raises(UnavailableError):
            adapter.execute(sent)
        assert other.seen == []
    assert "new.txt" not in place.objects


def test_a_large_file_goes_on_from_the_parts_that_are_there(place: Scene) -> None:
    sha256 = place.file("0.bin", b"a" * PART_BYTES + b"b" * PART_BYTES + b"c")
    adapter = place.open()
    sent = called(place, adapter, "upload", path="new.txt", file="0.bin", sha256=sha256)
    place.proxy.arm(Answer(500), _is_part, spared=1)
    with pytest.raises(UnavailableError):
        adapter.execute(sent)
    assert adapter.look_up(RUN, KEY, "s3.upload").answer is Found.ABSENT
    (begun,) = place.uploads()
    place.proxy.seen.clear()
    place.open().execute(sent)
    parts = [path for _, path in place.proxy.seen if _is_of_part(path)]
    assert (len(parts), all(begun in path for path in parts)) == (2, True)
    assert (place.versions("new.txt"), place.uploads()) == (1, [])


def test_a_large_file_goes_on_where_parts_are_encrypted(place: Scene) -> None:
    """An ETag is no MD5 there, so the record says how far it was sent."""
    sha256 = place.file("0.bin", b"a" * PART_BYTES + b"b" * PART_BYTES + b"c")
    place.proxy.encrypts = True
    sent = called(place, place.open(), "upload", path="new.txt", file="0.bin", sha256=sha256)
    for _ in range(2):
        place.proxy.arm(Answer(500), _is_part, spared=1)
        with pytest.raises(UnavailableError):
            place.open().execute(sent)
    place.open().execute(sent)
    parts = [path for _, path in place.proxy.seen if _is_of_part(path)]
    taken = [path.partition("partNumber=")[2][0] for path in parts]
    assert taken == ["1", "2", "2", "3", "3"]
    assert place.objects["new.txt"] == (place.folder / "0.bin").read_bytes()
    assert (place.versions("new.txt"), place.uploads()) == (1, [])


def test_encrypted_parts_of_a_file_that_changed_are_sent_again(place: Scene) -> None:
    first = b"x" * PART_BYTES + b"b"
    place.file("0.bin", first)
    right = b"a" * PART_BYTES + b"b"
    place.proxy.encrypts = True
    sent = called(place, place.open(), "upload", path="new.txt", file="0.bin", sha256=digest(right))
    place.proxy.arm(Answer(500), _is_part, spared=1)
    with pytest.raises(UnavailableError):
        place.open().execute(sent)
    place.file("0.bin", right)
    place.open().execute(sent)
    assert place.objects["new.txt"] == right


def test_an_upload_that_somebody_ended_is_begun_anew(place: Scene) -> None:
    sha256 = place.file("0.bin", b"a" * PART_BYTES + b"b")
    adapter = place.open()
    sent = called(place, adapter, "upload", path="new.txt", file="0.bin", sha256=sha256)
    place.proxy.arm(Answer(500), _is_part, spared=1)
    with pytest.raises(UnavailableError):
        adapter.execute(sent)
    (begun,) = place.uploads()
    place.client.abort_multipart_upload(
        Bucket=place.bucket, Key=f"{place.prefix}new.txt", UploadId=begun
    )
    adapter.execute(sent)
    assert (place.versions("new.txt"), place.uploads()) == (1, [])


def test_an_upload_that_ends_while_parts_are_sent_is_begun_anew(place: Scene) -> None:
    """Another caller of the key may complete it, or a rule of the bucket may end it."""
    sha256 = place.file("0.bin", b"a" * PART_BYTES + b"b")
    adapter = place.open()
    sent = called(place, adapter, "upload", path="new.txt", file="0.bin", sha256=sha256)

    def end() -> None:
        (begun,) = place.uploads()
        place.client.abort_multipart_upload(
            Bucket=place.bucket, Key=f"{place.prefix}new.txt", UploadId=begun
        )

    place.proxy.arm(end, _is_part, spared=1)
    adapter.execute(sent)
    assert (place.versions("new.txt"), place.uploads()) == (1, [])


def test_an_upload_that_is_given_up_leaves_no_parts(place: Scene) -> None:
    sha256 = place.file("0.bin", b"a" * PART_BYTES + b"b")
    adapter = place.open()
    sent = called(place, adapter, "upload", path="new.txt", file="0.bin", sha256=sha256)
    place.proxy.arm(Answer(500), _is_part, spared=1)
    with pytest.raises(UnavailableError):
        adapter.execute(sent)
    assert adapter.forbid(RUN, KEY, "s3.upload", NEXT).answer is Found.ABSENT
    assert (place.uploads(), "new.txt" in place.objects) == ([], False)


def test_a_receipt_says_when_the_service_wrote_the_object(place: Scene) -> None:
    receipt = do(place, place.open(), "put", path="new.txt", content="new")
    answer = place.client.head_object(Bucket=place.bucket, Key=f"{place.prefix}new.txt")
    written_ms = int(answer["LastModified"].timestamp()) * 1000
    assert 0 <= receipt.committed_at_ms - written_ms <= 60_000


def _is_part(request: Any) -> bool:
    return request.method == "PUT" and _is_of_part(request.path)


def _is_of_part(path: str) -> bool:
    return "/new.txt?" in path and "partNumber=" in path

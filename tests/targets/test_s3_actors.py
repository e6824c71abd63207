"""Others in the same bucket: other workers, other runs, other programs; and what is refused."""

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import counterfoil as cf
from counterfoil.core.canonical import digest
from counterfoil.core.errors import (
    FencedError,
    FrozenError,
    IdempotencyConflictError,
    PermissionDeniedError,
    StaleObservationError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.receipt import Answer as Found
from counterfoil.core.receipt import Fence
from counterfoil.core.words import Key
from counterfoil.testing.adapter_bench import FENCE, KEY, OTHER_RUN, RUN
from tests.support.s3_bench import SHORT, Scene, called, do, let_pass, scene, settled
from tests.support.s3_proxy import Answer, Fate
from tests.support.s3_server import PLAIN, VERSIONED, LocalS3

pytest_plugins = ["tests.support.s3_server"]

NEXT = Fence(lease_version=2, nonce="second")


@pytest.fixture
def place(s3: LocalS3, tmp_path: Path) -> Generator[Scene]:
    with scene(s3, tmp_path) as made:
        made.put("old.txt", "old")
        yield made


@pytest.fixture
def kept(s3: LocalS3, tmp_path: Path) -> Generator[Scene]:
    with scene(s3, tmp_path, VERSIONED) as made:
        made.put("old.txt", "old")
        yield made


def _lost(place: Scene, **arguments: Any) -> Any:
    """Make a put whose answer is lost, and whose process cannot look afterwards."""
    adapter = place.open()
    sent = called(place, adapter, "put", **arguments)
    place.proxy.arm(Fate.LOSE_ANSWER)
    place.proxy.arm(Answer(500), lambda request: place.proxy.effects() > 0)
    with pytest.raises(UnknownOutcomeError):
        adapter.execute(sent)
    return sent


# ---------------------------------------------------------------- metadata and conditions


def test_an_object_carries_run_key_intent_and_fence(place: Scene) -> None:
    adapter = place.open()
    sent = called(place, adapter, "put", path="new.txt", content="new")
    adapter.execute(sent)
    assert place.metadata("new.txt") == {
        "counterfoil-run": RUN,
        "counterfoil-key": KEY,
        "counterfoil-intent": sent.digest,
        "counterfoil-fence": f"{FENCE.lease_version}:{FENCE.nonce}",
        "counterfoil-sha256": digest(b"new"),
    }


def test_a_copy_keeps_what_its_source_carries_and_names_its_own_intent(place: Scene) -> None:
    place.put("page", "<p>", ContentType="text/html", Metadata={"author": "ann"})
    adapter = place.open()
    do(place, adapter, "put", path="made", content="x", key=Key("first"))
    do(place, adapter, "copy", source="page", path="page-2", key=Key("second"))
    do(place, adapter, "copy", source="made", path="made-2", key=Key("third"))
    told = place.metadata("page-2")
    assert (told["author"], told["counterfoil-key"]) == ("ann", "second")
    assert place.metadata("made-2")["counterfoil-key"] == "third"
    answer = place.client.head_object(Bucket=place.bucket, Key=f"{place.prefix}page-2")
    assert answer["ContentType"] == "text/html"


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("put", {"path": "old.txt", "content": "new", "expected": "absent"}),
        ("put", {"path": "old.txt", "content": "new", "expected": "0" * 32}),
        ("put", {"path": "new.txt", "content": "new", "expected": "0" * 32}),
        ("copy", {"source": "old.txt", "path": "b", "expected_source": "0" * 32}),
        ("copy", {"source": "gone.txt", "path": "b"}),
        ("copy", {"source": "old.txt", "path": "b", "expected": "0" * 32}),
        ("delete", {"path": "old.txt", "expected": "0" * 32}),
        ("delete", {"path": "gone.txt"}),
        ("upload", {"path": "b", "file": "1.bin", "sha256": "0" * 64}),
        ("upload", {"path": "b", "file": "9.bin", "sha256": "0" * 64}),
    ],
)
def test_what_is_not_as_expected_is_refused(
    kind: str, arguments: dict[str, Any], place: Scene
) -> None:
    place.file("1.bin", b"a file")
    with pytest.raises(StaleObservationError):
        do(place, place.open(), kind, **arguments)
    assert (place.objects, place.uploads()) == ({"old.txt": b"old"}, [])


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        pytest.param("put", {"path": "new.txt", "content": "ours"}, id="C29 b put"),
        pytest.param("put", {"path": "old.txt", "content": "ours"}, id="C29 b put over another"),
        pytest.param("copy", {"source": "old.txt", "path": "new.txt"}, id="C29 b copy"),
        pytest.param("copy", {"source": "new.txt", "path": "copy.txt"}, id="the source of a copy"),
        pytest.param("delete", {"path": "old.txt"}, id="C29 b delete"),
        pytest.param("upload", {"path": "new.txt", "file": "1.bin"}, id="C29 b upload"),
    ],
)
def test_another_writer_between_the_look_and_the_effect_loses_nothing(
    kind: str, arguments: dict[str, Any], place: Scene
) -> None:
    sha256 = place.file("1.bin", b"a file")
    path = next(
        p for p in ("new.txt", "old.txt") if p in (arguments["path"], arguments.get("source"))
    )
    if arguments.get("source") == "new.txt":
        place.put("new.txt", "mine")
    adapter = place.open()
    given = arguments | ({"sha256": sha256} if kind == "upload" else {})
    sent = called(place, adapter, kind, **given)
    place.proxy.arm(lambda: place.put(path, "theirs"))
    with pytest.raises(StaleObservationError):
        adapter.execute(sent)
    assert place.objects == {"old.txt": b"old"} | {path: b"theirs"}
    assert adapter.look_up(RUN, KEY, sent.kind).answer is Found.ABSENT


def test_another_writer_who_deletes_before_the_effect_is_seen(place: Scene) -> None:
    adapter = place.open()
    sent = called(place, adapter, "put", path="old.txt", content="ours")
    place.proxy.arm(lambda: place.delete("old.txt"))
    with pytest.raises(StaleObservationError):
        adapter.execute(sent)
    assert place.objects == {}


# ---------------------------------------------------------------- receipts that are overwritten


def test_a_receipt_that_was_overwritten_before_it_was_read_is_for_a_person(place: Scene) -> None:
    _lost(place, path="new.txt", content="ours")
    place.put("new.txt", "theirs")
    answer = settled(place.open())
    assert (answer.answer, answer.receipt) == (Found.FOUND_OTHER, None)
    assert "another writer was there" in answer.reason


@pytest.mark.parametrize("then", ["overwritten", "deleted"])
def test_a_bucket_with_versions_keeps_the_receipt(then: str, kept: Scene) -> None:
    sent = _lost(kept, path="new.txt", content="ours")
    if then == "deleted":
        kept.delete("new.txt")
    else:
        kept.put("new.txt", "theirs")
    adapter = kept.open()
    answer = settled(adapter)
    assert answer.answer is Found.FOUND
    assert answer.receipt is not None
    assert answer.receipt.digest == sent.digest
    assert answer.receipt.poststate != adapter.observe(kept.scope).state
    assert adapter.execute(sent).replayed
    assert kept.versions("new.txt") == 2


def test_a_receipt_on_record_outlives_its_object(place: Scene) -> None:
    adapter = place.open()
    receipt = do(place, adapter, "put", path="new.txt", content="ours")
    place.put("new.txt", "theirs")
    assert place.open().look_up(RUN, KEY, "s3.put").receipt == receipt


def test_what_others_changed_since_shows_as_drift(place: Scene) -> None:
    _lost(place, path="new.txt", content="ours")
    place.put("other.txt", "theirs")
    adapter = place.open()
    receipt = settled(adapter).receipt
    assert receipt is not None
    assert receipt.poststate.instance == adapter.observe(place.scope).state.instance
    assert receipt.poststate != adapter.observe(place.scope).state


def test_the_same_bytes_written_again_by_another_are_seen(place: Scene) -> None:
    adapter = place.open()
    before = adapter.observe(place.scope).state
    place.put("new.txt", "x")
    first = adapter.observe(place.scope).state
    place.delete("new.txt")
    assert adapter.observe(place.scope).state == before
    assert first != before


# ---------------------------------------------------------------- keys, leases, workers


def test_a_key_that_holds_another_intent_is_a_conflict(place: Scene) -> None:
    adapter = place.open()
    do(place, adapter, "put", path="new.txt", content="one")
    for path, content in (("new.txt", "two"), ("other.txt", "one")):
        with pytest.raises(IdempotencyConflictError):
            do(place, place.open(), "put", path=path, content=content)
    with pytest.raises(IdempotencyConflictError):
        do(place, adapter, "put", path="new.txt", content="one", run_id=OTHER_RUN)
    assert place.objects == {"old.txt": b"old", "new.txt": b"one"}


def test_a_worker_with_a_stale_fence_is_refused_behind_its_record(place: Scene) -> None:
    late, successor = place.open(), place.open(direct=True)
    sent = called(place, late, "put", path="new.txt", content="ours")
    place.proxy.arm(
        lambda: successor.take(RUN, NEXT), lambda r: r.method == "PUT" and "/runs/" in r.path
    )
    with pytest.raises(FencedError):
        late.execute(sent)
    assert (place.proxy.effects(), "new.txt" in place.objects) == (0, False)
    assert successor.look_up(RUN, KEY, "s3.put").answer is Found.ABSENT
    successor.execute(replace(sent, fence=NEXT))
    with pytest.raises(FencedError):
        late.execute(sent)


def test_a_worker_that_passed_its_fence_before_the_takeover_is_waited_for(place: Scene) -> None:
    late, successor = place.open(), place.open(direct=True)
    sent = called(place, late, "put", path="new.txt", content="ours")
    seen: list[Found] = []

    def taken_over() -> None:
        successor.take(RUN, NEXT)
        seen.append(successor.look_up(RUN, KEY, "s3.put").answer)

    place.proxy.arm(taken_over)
    receipt = late.execute(sent)
    assert seen == [Found.UNKNOWN]
    assert successor.look_up(RUN, KEY, "s3.put").receipt == receipt
    assert successor.execute(replace(sent, fence=NEXT)).replayed


def test_two_runs_that_want_one_object_make_one(kept: Scene) -> None:
    adapters = [kept.open(direct=True) for _ in range(4)]
    calls = [
        called(kept, adapter, "put", path="new.txt", content=f"{n}", key=Key(f"key-{n}"))
        for n, adapter in enumerate(adapters)
    ]

    def attempt(number: int) -> bool:
        try:
            adapters[number].execute(calls[number])
        except (StaleObservationError, UnavailableError):
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        wins = list(pool.map(attempt, range(4)))
    assert (wins.count(True), kept.versions("new.txt")) == (1, 1)
    assert kept.objects["new.txt"] == str(wins.index(True)).encode()


def test_forbidding_waits_for_a_call_that_may_still_land(place: Scene) -> None:
    adapter = place.open(times=SHORT)
    sent = called(place, adapter, "put", path="new.txt", content="ours")
    place.proxy.arm(Fate.DELIVER_LATE)
    with pytest.raises(UnknownOutcomeError):
        adapter.execute(sent)
    answer = adapter.forbid(RUN, KEY, "s3.put", FENCE)
    while answer.answer is Found.UNKNOWN:
        answer = adapter.forbid(RUN, KEY, "s3.put", FENCE)
    assert answer.answer is Found.ABSENT
    assert place.proxy.deliver() == [403]
    with pytest.raises(PermissionDeniedError):
        adapter.execute(sent)
    assert "new.txt" not in place.objects


def test_a_key_whose_object_names_our_intent_and_was_changed_is_not_absent(place: Scene) -> None:
    """It was done, or somebody says so: giving the key up would say that it never was."""
    sent = _lost(place, path="new.txt", content="ours")
    place.put("new.txt", "forged", Metadata=place.metadata("new.txt"))
    adapter = place.open()
    let_pass(adapter)
    answer = adapter.forbid(RUN, KEY, sent.kind, FENCE)
    assert (answer.answer, answer.receipt) == (Found.FOUND_OTHER, None)
    assert digest(b"ours") in answer.reason
    place.delete("new.txt")
    assert adapter.forbid(RUN, KEY, sent.kind, FENCE).answer is Found.ABSENT
    with pytest.raises(PermissionDeniedError):
        adapter.execute(sent)


def test_a_key_is_given_up_for_good_where_another_writer_left_no_trace(place: Scene) -> None:
    sent = _lost(place, path="new.txt", content="ours")
    place.put("new.txt", "theirs")
    adapter = place.open(times=SHORT)
    assert adapter.forbid(RUN, KEY, sent.kind, FENCE).answer is Found.UNKNOWN
    let_pass(adapter)
    assert adapter.forbid(RUN, KEY, sent.kind, FENCE).answer is Found.ABSENT
    place.delete("new.txt")  # now its condition would hold again
    with pytest.raises(PermissionDeniedError):
        adapter.execute(sent)
    assert "new.txt" not in place.objects


# ---------------------------------------------------------------- runs, and a person


def _task(place: Scene, *kinds: str) -> cf.Task:
    scope = {name: entries for name, entries in place.scope.items() if entries}
    policy = cf.Policy(permissions=kinds, scope={"s3": scope})
    return cf.Task(id="fill", policy=policy)


@pytest.mark.parametrize("content", [pytest.param("forged", id="C29 d")])
def test_a_changed_object_under_our_intent_goes_to_a_person(
    content: str, place: Scene, tmp_path: Path
) -> None:
    (tmp_path / "project").mkdir()
    adapter = place.open()
    task = _task(place, "s3.put")

    def forged() -> None:
        answer = place.client.head_object(Bucket=PLAIN, Key=f"{place.prefix}new.txt")
        place.put("new.txt", content, Metadata=answer["Metadata"])

    with (
        cf.open(tmp_path / "project", adapters=(adapter,)) as keeper,
        keeper.run(task, "r-1") as run,
    ):
        place.proxy.arm(Answer(500, asks_service=True))
        place.proxy.arm(forged, lambda _: place.proxy.effects() > 0)
        with pytest.raises(FrozenError):
            run.do("s3.put", path="new.txt", content="ours")
        case = run.state.case
    assert case is not None
    assert digest(b"ours") in case.finding
    assert digest(content.encode()) in case.finding

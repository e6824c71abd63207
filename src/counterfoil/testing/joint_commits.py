"""Clauses of a joint: row and move are one commit, and a refused one leaves neither."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from counterfoil.core.codec import Checkpoint
from counterfoil.core.errors import (
    HeadMissingError,
    LeaseLostError,
    StaleHeadError,
    UsageError,
)
from counterfoil.core.words import Digest, RunId
from counterfoil.ports import Advance, CheckpointStore, Head, HeadRegister, Joint, Mark
from counterfoil.testing.expect import expect
from counterfoil.testing.store_bench import (
    OTHER_RUN,
    RUN,
    TTL_MS,
    checkpoint,
    created,
    digest_of,
    raced,
    refused,
)

Opened = tuple[CheckpointStore, HeadRegister, Joint]


@dataclass(frozen=True, kw_only=True, slots=True)
class JointBench:
    """One fresh backend that is store and register at once.

    Attributes:
        open: Opens it; each call another connection.
    """

    open: Callable[[], Opened]


STEPS = 5
"""Commits of each thread in clauses about threads."""


def a_commit_stores_its_row_and_moves_its_head(bench: JointBench) -> None:
    """Both are there for everybody, and the answer is the head as it is read."""
    _, heads, joint = bench.open()
    head = created(heads)
    row, move = _next(head, status="frozen", settles=("a key",))
    (moved,) = joint.commit([row], [move])
    wanted = replace(head, generation=1, checkpoint=row.digest, status="frozen")
    expect(
        replace(moved, expires_at_ms=head.expires_at_ms) == wanted,
        "a commit sets generation, checkpoint and status",
    )
    store, heads, _ = bench.open()
    expect(heads.read(RUN) == moved, "the head is read as it was answered")
    expect(store.get(RUN, row.digest) == row, "the row is got as it was committed")


def what_a_commit_stored_is_found(bench: JointBench) -> None:
    """By its names and in the trace, beside what was put alone."""
    store, heads, joint = bench.open()
    head = created(heads)
    first = checkpoint(0, settles=("a key",))
    store.put([first])
    row, move = _next(head, settles=("a key", "another"))
    joint.commit([row], [move])
    expect(store.find(RUN, "a key") == (row, first), "a name finds the committed row first")
    expect(store.find(RUN, "another") == (row,), "every name finds it")
    expect(store.trace(RUN, -1, 9) == (first, row), "the trace holds it in its place")
    expect(store.runs("", 9) == (RUN,), "its run is listed once")
    expect(joint.commit([], []) == (), "an empty commit changes nothing")


def a_commit_never_shortens_the_lease(bench: JointBench) -> None:
    """It extends it, or leaves it as it is."""
    _, heads, joint = bench.open()
    head = created(heads)
    row, move = _next(head, ttl_ms=1)
    (moved,) = joint.commit([row], [move])
    expect(moved.expires_at_ms == head.expires_at_ms, "a short term leaves the end as it is")
    row, move = _next(moved, ttl_ms=9 * TTL_MS)
    (longer,) = joint.commit([row], [move])
    expect(longer.expires_at_ms >= head.expires_at_ms + TTL_MS, "a long one extends it")
    expect(heads.read(RUN) == longer, "and is read as it was answered")


def a_commit_whose_answer_was_lost_is_not_made_twice(bench: JointBench) -> None:
    """The same call again is refused, and the head tells what happened."""
    store, heads, joint = bench.open()
    row, move = _next(created(heads))
    (moved,) = joint.commit([row], [move])
    for each in (joint, bench.open()[2]):
        refused(partial(each.commit, [row], [move]), StaleHeadError)
    expect(heads.read(RUN) == moved, "the head is where the first call put it")
    expect(store.trace(RUN, -1, 9) == (row,), "the row is there once")


def a_row_that_was_put_before_is_committed(bench: JointBench) -> None:
    """What was put first is kept, and the head moves to it."""
    store, heads, joint = bench.open()
    row, move = _next(created(heads))
    store.put([row])
    joint.commit([replace(row, state=b"second")], [move])
    expect(store.trace(RUN, -1, 9) == (row,), "the row is there once, as it was put")
    head = heads.read(RUN)
    expect(head is not None and head.checkpoint == row.digest, "the head names it")


def a_commit_from_another_head_leaves_nothing(bench: JointBench) -> None:
    """Generation, checkpoint and register are compared, and no row stays."""
    _, heads, joint = bench.open()
    row, move = _next(created(heads))
    (head,) = joint.commit([row], [move])
    for old in (
        replace(head, checkpoint=digest_of("fork")),
        replace(head, generation=0),
        replace(head, generation=2),
        replace(head, incarnation="another register"),
    ):
        row, move = _next(old, salt="late")
        refused(partial(joint.commit, [row], [move]), StaleHeadError)
        _expect_nothing(bench, head, [row])


def a_commit_under_a_superseded_lease_leaves_nothing(bench: JointBench) -> None:
    """A worker that wakes up after a takeover commits nothing, and its successor does."""
    _, heads, joint = bench.open()
    head = created(heads)
    heads.release(head)
    free = heads.read(RUN) or head
    taken = bench.open()[1].acquire(free, "two", "other", TTL_MS)
    row, move = _next(head, salt="late")
    refused(lambda: joint.commit([row], [move]), LeaseLostError)
    _expect_nothing(bench, taken, [row])
    row, move = _next(taken)
    joint.commit([row], [move])


def a_commit_under_another_nonce_leaves_nothing(bench: JointBench) -> None:
    """Nonce and lease version are both compared; a free head has neither."""
    _, heads, joint = bench.open()
    head = created(heads)
    for stranger in (replace(head, nonce="other"), replace(head, lease_version=2)):
        row, move = _next(stranger)
        refused(partial(joint.commit, [row], [move]), LeaseLostError)
        _expect_nothing(bench, head, [row])
    heads.release(head)
    free = heads.read(RUN) or head
    for late in (head, free):
        row, move = _next(late)
        refused(partial(joint.commit, [row], [move]), LeaseLostError)
        _expect_nothing(bench, free, [row])


def a_commit_without_a_head_leaves_nothing(bench: JointBench) -> None:
    """Moving is not creating."""
    _, heads, joint = bench.open()
    head = created(heads)
    row, move = _next(replace(head, run_id=OTHER_RUN))
    refused(lambda: joint.commit([row], [move]), HeadMissingError)
    _expect_nothing(bench, head, [row])
    expect(heads.read(OTHER_RUN) is None, "no head appears")


def a_commit_under_an_older_lease_than_the_mark_leaves_nothing(bench: JointBench) -> None:
    """The store's mark holds off a row whose lease the register still knows."""
    store, heads, joint = bench.open()
    head = created(heads)
    store.mark(Mark(run_id=RUN, lease_version=2, envelope=b"of a later lease"))
    row, move = _next(head)
    refused(lambda: joint.commit([row], [move]), LeaseLostError)
    _expect_nothing(bench, head, [row])
    held, move = _next(head, lease_version=2)
    joint.commit([held], [move])


def what_nobody_could_commit_is_refused(bench: JointBench) -> None:
    """A digest that is none, a status that nobody knows, a term that ends at once."""
    _, heads, joint = bench.open()
    head = created(heads)
    row, move = _next(head)
    upper = Digest(row.digest.upper())
    for bad in (
        replace(move, status="done"),
        replace(move, checkpoint=upper),
        replace(move, ttl_ms=0),
    ):
        refused(partial(joint.commit, [row], [bad]), UsageError)
        _expect_nothing(bench, head, [row])
    refused(partial(joint.commit, [replace(row, digest=upper)], [move]), UsageError)
    _expect_nothing(bench, head, [row])


def a_batch_commits_every_row_and_every_move(bench: JointBench) -> None:
    """Answers come in the order of the moves, whatever that of the rows is."""
    store, heads, joint = bench.open()
    row, move = _next(created(heads))
    other_row, other_move = _next(created(heads, OTHER_RUN))
    moved = joint.commit([row, other_row], [other_move, move])
    expect([head.run_id for head in moved] == [OTHER_RUN, RUN], "answers are in order of moves")
    expect([head.generation for head in moved] == [1, 1], "every head moves")
    expect((heads.read(OTHER_RUN), heads.read(RUN)) == moved, "and is read as it was answered")
    for each in (row, other_row):
        expect(store.get(each.run_id, each.digest) == each, "every row is stored")


def a_batch_is_all_or_none(bench: JointBench) -> None:
    """Wherever in it the refused part stands, and whichever side refuses it."""
    store, heads, joint = bench.open()
    good, other = created(heads), created(heads, OTHER_RUN)
    store.mark(Mark(run_id=OTHER_RUN, lease_version=1, envelope=b"of its holder"))
    missing = replace(other, run_id=RunId("run-3"))
    row, move = _next(good)
    for (bad_row, bad_move), kind in (
        (_next(replace(other, nonce="foreign"), salt="1"), LeaseLostError),
        (_next(replace(other, generation=4), salt="2"), StaleHeadError),
        (_next(missing), HeadMissingError),
        (_next(other, lease_version=0, salt="3"), LeaseLostError),
    ):
        for rows, moves in (
            ([row, bad_row], [move, bad_move]),
            ([bad_row, row], [bad_move, move]),
        ):
            refused(partial(joint.commit, rows, moves), kind)
            _expect_nothing(bench, good, rows)
            expect(bench.open()[1].read(OTHER_RUN) == other, "a refused batch moves nothing")
    other_row, other_move = _next(other)
    joint.commit([row, other_row], [move, other_move])


def a_batch_can_commit_to_one_run_twice(bench: JointBench) -> None:
    """In order, as if each were its own call; the second may not rest on the first twice."""
    store, heads, joint = bench.open()
    head = created(heads)
    row, move = _next(head)
    rival_row, rival_move = _next(head, salt="rival")
    refused(lambda: joint.commit([row, rival_row], [move, rival_move]), StaleHeadError)
    _expect_nothing(bench, head, [row, rival_row])
    next_row, next_move = _next(replace(head, generation=1, checkpoint=row.digest))
    moved = joint.commit([row, next_row], [move, next_move])
    expect([each.generation for each in moved] == [1, 2], "each move of a batch is answered")
    expect(heads.read(RUN) == moved[-1], "the last of a batch is the head")
    expect(store.trace(RUN, -1, 9) == (row, next_row), "and each row is stored")


def one_of_many_commits(bench: JointBench) -> None:
    """Sessions that believe in the same head at once have one winner, and one row."""
    store, heads, joint = bench.open()
    head = created(heads)
    pairs = [_next(head, salt=str(number)) for number in range(8)]
    answers = raced(
        [
            partial((bench.open()[2] if n % 2 else joint).commit, [row], [move])
            for n, (row, move) in enumerate(pairs)
        ]
    )
    winners = [answer[0] for answer in answers if isinstance(answer, tuple)]
    losers = [answer for answer in answers if isinstance(answer, StaleHeadError)]
    expect((len(winners), len(losers)) == (1, 7), "one of many commits")
    expect(heads.read(RUN) == winners[0], "and the register names the winner")
    rows = [row.digest for row in store.trace(RUN, -1, 9)]
    expect(rows == [winners[0].checkpoint], "and no loser leaves a row")


def threads_that_share_a_connection_lose_nothing(bench: JointBench) -> None:
    """Runs that commit to both at once, beside runs that put and advance."""
    store, heads, joint = bench.open()
    held = [created(heads, RunId(f"run {number}")) for number in range(8)]

    def walk(head: Head, *, at_once: bool) -> Head:
        for _ in range(STEPS):
            row, move = _next(head)
            if at_once:
                (head,) = joint.commit([row], [move])
            else:
                store.put([row])
                (head,) = heads.advance([move])
        return head

    answers = raced([partial(walk, head, at_once=n % 4 > 0) for n, head in enumerate(held)])
    lost = [each for each in answers if not isinstance(each, Head) or each.generation != STEPS]
    expect(not lost, "every thread gets to its last generation")
    for head in held:
        rows = store.trace(head.run_id, -1, 9)
        expect([row.generation for row in rows] == [1, 2, 3, 4, 5], "every row is there")


def whoever_reads_a_head_finds_its_checkpoint(bench: JointBench) -> None:
    """At every instant: the head never names what is not there yet."""
    _, heads, joint = bench.open()
    head = created(heads)
    row, move = _next(head)
    (head,) = joint.commit([row], [move])

    def walk() -> None:
        at = head
        for _ in range(4 * STEPS):
            row, move = _next(at)
            (at,) = joint.commit([row], [move])

    def watched() -> Digest | None:
        store, register, _ = bench.open()
        seen = register.read(RUN)
        return None if seen is None or store.get(RUN, seen.checkpoint) else seen.checkpoint

    with ThreadPoolExecutor(max_workers=1) as pool:
        walking = pool.submit(walk)
        missing = watched()
        while missing is None and not walking.done():
            missing = watched()
        walking.result()
    expect(missing is None and watched() is None, "a head names a checkpoint that is there")


def _next(
    head: Head,
    *,
    salt: str = "",
    status: str = "active",
    ttl_ms: int = TTL_MS,
    lease_version: int = 1,
    settles: tuple[str, ...] = (),
) -> tuple[Checkpoint, Advance]:
    """Return a row that follows a head, and the move to it."""
    row = checkpoint(
        head.generation + 1,
        run_id=head.run_id,
        salt=salt,
        lease_version=lease_version,
        settles=settles,
    )
    return row, Advance(expected=head, checkpoint=row.digest, status=status, ttl_ms=ttl_ms)


def _expect_nothing(bench: JointBench, head: Head, rows: Iterable[Checkpoint]) -> None:
    """Hold a refused commit to it: the head stays, and no row of it is there."""
    store, heads, _ = bench.open()
    expect(heads.read(head.run_id) == head, "a refused commit moves nothing")
    for row in rows:
        expect(store.get(row.run_id, row.digest) is None, "a refused commit stores nothing")

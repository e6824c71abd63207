"""Clauses of a head register: which commit goes through, and that a refused one leaves nothing."""

from functools import partial

from msgspec.structs import replace

from counterfoil.core.bounds import INTEGER_MAX
from counterfoil.core.errors import HeadMissingError, LeaseLostError, StaleHeadError, UsageError
from counterfoil.core.words import Digest, RunId
from counterfoil.ports import Advance, Head
from counterfoil.testing.expect import expect
from counterfoil.testing.store_bench import (
    OTHER_RUN,
    RUN,
    TTL_MS,
    HeadBench,
    created,
    digest_of,
    move,
    raced,
    refused,
)


def an_advance_moves_the_head_one_generation_on(bench: HeadBench) -> None:
    """To the new checkpoint and status, with the lease extended."""
    heads = bench.open()
    head = created(heads)
    bench.advance_clock(20)
    (moved,) = heads.advance([move(head, status="frozen")])
    wanted = replace(
        head,
        generation=1,
        checkpoint=move(head).checkpoint,
        status="frozen",
        expires_at_ms=moved.expires_at_ms,
    )
    expect(moved == wanted, "an advance sets generation, checkpoint and status")
    expect(moved.expires_at_ms > head.expires_at_ms, "an advance extends the lease")
    expect(bench.open().read(RUN) == moved, "and is read as it was answered")
    (active,) = heads.advance([move(moved)])
    expect((active.generation, active.status) == (2, "active"), "and so does the next")


def an_advance_whose_answer_was_lost_is_not_made_twice(bench: HeadBench) -> None:
    """The same call again is refused, and the head tells what happened."""
    heads = bench.open()
    head = created(heads)
    (moved,) = heads.advance([move(head)])
    for other in (heads, bench.open()):
        refused(partial(other.advance, [move(head)]), StaleHeadError)
    expect(heads.read(RUN) == moved, "the head is where the first call put it")


def an_advance_from_another_head_is_refused(bench: HeadBench) -> None:
    """Generation and checkpoint are both compared: a fork has the same number."""
    heads = bench.open()
    (head,) = heads.advance([move(created(heads))])
    for old in (
        replace(head, checkpoint=digest_of("fork")),
        replace(head, generation=0),
        replace(head, generation=2),
        replace(head, incarnation="another register"),
    ):
        refused(partial(heads.advance, [move(old)]), StaleHeadError)
    expect(heads.read(RUN) == head, "the head stays as it is")


def refuses_a_superseded_lease(bench: HeadBench) -> None:
    """A paused worker that wakes up after a takeover commits nothing."""
    late, heads = bench.open(), bench.open()
    head = created(late, ttl_ms=bench.ttl_ms)
    bench.advance_clock(bench.ttl_ms)
    taken = heads.acquire(head, "two", "other", TTL_MS)
    refused(lambda: late.advance([move(head)]), LeaseLostError)
    expect(heads.read(RUN) == taken, "the successor's head stays as it is")
    heads.advance([move(taken)])


def refuses_an_equal_lease_version_with_another_nonce(bench: HeadBench) -> None:
    """A register that was set back issues a version twice; the nonce tells them apart."""
    heads = bench.open()
    head = created(heads)
    refused(lambda: heads.advance([move(replace(head, nonce="other"))]), LeaseLostError)
    refused(lambda: heads.advance([move(replace(head, lease_version=2))]), LeaseLostError)
    expect(heads.read(RUN) == head, "the head stays as it is")


def an_expired_lease_cannot_commit(bench: HeadBench) -> None:
    """From the very millisecond in which it ends, though nobody took it over."""
    heads = bench.open()
    head = created(heads, ttl_ms=bench.ttl_ms)
    bench.advance_clock(bench.ttl_ms)
    refused(lambda: heads.advance([move(head)]), LeaseLostError)
    expect(heads.read(RUN) == head, "the head stays as it is")


def a_released_lease_cannot_commit(bench: HeadBench) -> None:
    """Neither with the nonce it had, nor with none."""
    heads = bench.open()
    head = created(heads)
    heads.release(head)
    free = replace(head, owner="", nonce="", expires_at_ms=0)
    for each in (head, free, replace(free, expires_at_ms=INTEGER_MAX)):
        refused(partial(heads.advance, [move(each)]), LeaseLostError)
    expect(heads.read(RUN) == free, "the head stays as it is")


def an_advance_never_shortens_the_lease(bench: HeadBench) -> None:
    """A short term in a commit does not end the lease early."""
    heads = bench.open()
    head = created(heads)
    (moved,) = heads.advance([move(head, ttl_ms=1)])
    expect(moved.expires_at_ms == head.expires_at_ms, "the end of the lease stays")
    heads.advance([move(moved)])


def renewing_and_committing_do_not_conflict(bench: HeadBench) -> None:
    """They come from two threads, each with the head as it saw it."""
    heads = bench.open()
    head = created(heads)
    bench.advance_clock(10)
    heads.renew(head, TTL_MS)
    (moved,) = heads.advance([move(head)])
    bench.advance_clock(10)
    renewed = bench.open().renew(head, TTL_MS)
    wanted = replace(moved, expires_at_ms=renewed.expires_at_ms)
    expect(renewed == wanted, "renewing with an older head answers the newest")
    expect(renewed.expires_at_ms > moved.expires_at_ms, "and extends the lease")
    heads.advance([move(moved)])


def a_batch_moves_every_head(bench: HeadBench) -> None:
    """Answers come in the order of the batch; an empty batch is none."""
    heads = bench.open()
    first, second = created(heads), created(heads, OTHER_RUN)
    moved = heads.advance([move(second), move(first)])
    expect([head.run_id for head in moved] == [OTHER_RUN, RUN], "answers are in order")
    expect([head.generation for head in moved] == [1, 1], "every head moves")
    expect((heads.read(OTHER_RUN), heads.read(RUN)) == moved, "and is read as it was answered")
    expect(heads.advance([]) == (), "an empty batch changes nothing")


def a_batch_is_all_or_none(bench: HeadBench) -> None:
    """Wherever in it the refused advance stands, and whyever it is refused."""
    heads = bench.open()
    good, other = created(heads), created(heads, OTHER_RUN)
    missing = replace(other, run_id=RunId("run-3"))
    for bad, kind in (
        (replace(other, nonce="foreign"), LeaseLostError),
        (replace(other, generation=4), StaleHeadError),
        (missing, HeadMissingError),
    ):
        for batch in ([move(good), move(bad)], [move(bad), move(good)]):
            refused(partial(heads.advance, batch), kind)
            expect(bench.open().read(RUN) == good, "a refused batch moves nothing")
            expect(bench.open().read(OTHER_RUN) == other, "a refused batch moves nothing")
    heads.advance([move(good), move(other)])


def a_batch_can_move_one_head_twice(bench: HeadBench) -> None:
    """In order, as if each were its own call; the second may not rest on the first twice."""
    heads = bench.open()
    head = created(heads)
    first = move(head)
    middle = replace(head, generation=1, checkpoint=first.checkpoint)
    refused(lambda: heads.advance([first, move(head, salt="rival")]), StaleHeadError)
    expect(heads.read(RUN) == head, "a batch against itself moves nothing")
    moved = heads.advance([first, move(middle)])
    expect([each.generation for each in moved] == [1, 2], "each advance of a batch is answered")
    expect(heads.read(RUN) == moved[-1], "the last of a batch is the head")


def one_of_many_commits(bench: HeadBench) -> None:
    """Sessions that believe in the same head at once have one winner."""
    heads = bench.open()
    head = created(heads)
    moves = [move(head, salt=str(number)) for number in range(8)]
    answers = raced([partial(bench.open().advance, [each]) for each in moves])
    winners = [answer[0] for answer in answers if isinstance(answer, tuple)]
    losers = [answer for answer in answers if isinstance(answer, StaleHeadError)]
    expect((len(winners), len(losers)) == (1, 7), "one of many commits")
    expect(heads.read(RUN) == winners[0], "and the register names the winner")


def threads_that_share_a_connection_lose_nothing(bench: HeadBench) -> None:
    """Each of many runs moves by its own thread, all at once."""
    heads = bench.open()
    held = [created(heads, RunId(f"run {number}")) for number in range(8)]

    def walk(head: Head) -> Head:
        for _ in range(5):
            (head,) = heads.advance([move(head)])
        return head

    answers = raced([partial(walk, head) for head in held])
    expect(
        [answer for answer in answers if not isinstance(answer, Head) or answer.generation != 5]
        == [],
        "every thread gets to its last generation",
    )


def a_status_nobody_knows_is_refused(bench: HeadBench) -> None:
    """And so is a checkpoint that is no digest; nothing is moved by either."""
    heads = bench.open()
    head = created(heads)
    for status in ("", "done", "ACTIVE"):
        refused(partial(heads.advance, [move(head, status=status)]), UsageError)
    for name in ("", "x" * 64, head.checkpoint.upper()):
        bad = Advance(expected=head, checkpoint=Digest(name), status="active", ttl_ms=TTL_MS)
        refused(partial(heads.advance, [bad]), UsageError)
        refused(partial(heads.create, OTHER_RUN, Digest(name), "one", "nonce", TTL_MS), UsageError)
    expect(heads.read(RUN) == head, "the head stays as it is")
    expect(heads.read(OTHER_RUN) is None, "no head appears")

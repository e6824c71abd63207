"""Clauses of a head register whose clock a bench can move: to the millisecond, and back.

A register that judges by a clock of its own, as etcd does, is not held to these.
"""

from functools import partial

from msgspec.structs import replace

from counterfoil.core.errors import LeaseLostError
from counterfoil.core.words import RunId
from counterfoil.testing.expect import expect
from counterfoil.testing.store_bench import (
    OTHER_RUN,
    RUN,
    TTL_MS,
    HeadBench,
    created,
    move,
    refused,
)


def a_lease_stands_until_its_last_millisecond(bench: HeadBench) -> None:
    """A register does not hand a lease over early."""
    heads = bench.open()
    head = created(heads)
    bench.advance_clock(TTL_MS - 1)
    refused(lambda: heads.acquire(head, "two", "other", TTL_MS), LeaseLostError)
    expect(heads.read(RUN) == head, "the head stays as it is")


def a_lease_commits_until_its_last_millisecond(bench: HeadBench) -> None:
    """A register does not end a lease early."""
    heads = bench.open()
    head = created(heads)
    bench.advance_clock(TTL_MS - 1)
    heads.advance([move(head)])


def a_term_counts_from_its_grant(bench: HeadBench) -> None:
    """When it is taken, renewed or extended by a commit, to the millisecond."""
    heads = bench.open()
    head = created(heads)
    bench.advance_clock(400)
    renewed = heads.renew(head, TTL_MS)
    wanted = replace(head, expires_at_ms=head.expires_at_ms + 400)
    expect(renewed == wanted, "a renewed term counts from its renewal")
    bench.advance_clock(250)
    (moved,) = heads.advance([move(head)])
    expect(moved.expires_at_ms == wanted.expires_at_ms + 250, "so does that of a commit")
    bench.advance_clock(TTL_MS)
    taken = heads.acquire(moved, "two", "other", TTL_MS)
    expect(taken.expires_at_ms == moved.expires_at_ms + TTL_MS, "and one that is taken")


def a_renewed_lease_stands_to_its_new_end(bench: HeadBench) -> None:
    """A holder that renews in time commits after its first term would have been over."""
    heads = bench.open()
    head = created(heads)
    bench.advance_clock(TTL_MS - 1)
    heads.renew(head, TTL_MS)
    bench.advance_clock(TTL_MS - 1)
    heads.advance([move(head)])


def a_shorter_term_ends_no_lease_early(bench: HeadBench) -> None:
    """Asked for by a renewal or by a commit."""
    heads = bench.open()
    head = created(heads)
    heads.renew(head, 1)
    (moved,) = heads.advance([move(head, ttl_ms=1)])
    bench.advance_clock(TTL_MS - 1)
    heads.advance([move(moved)])


def a_pause_lasts_to_its_last_millisecond(bench: HeadBench) -> None:
    """And is told in the head."""
    heads = bench.open()
    head = created(heads)
    heads.release(head, 500)
    wanted = replace(head, owner="", nonce="", expires_at_ms=head.expires_at_ms - TTL_MS + 500)
    expect(heads.read(RUN) == wanted, "a paused head tells when its pause is over")
    bench.advance_clock(499)
    expect(heads.claimable(9) == (), "a pause lasts to its last millisecond")
    bench.advance_clock(1)
    expect(heads.claimable(9) == (wanted,), "and not longer")


def those_that_are_free_longest_come_first(bench: HeadBench) -> None:
    """Whichever way they became free."""
    heads = bench.open()
    created(heads, RunId("expired"))
    heads.release(created(heads, RunId("released")))
    heads.release(created(heads, RunId("early")), 1)
    bench.advance_clock(TTL_MS)
    names = [head.run_id for head in heads.claimable(9)]
    expect(names == ["released", "early", "expired"], "those that are free longest come first")


def a_clock_set_back_revives_no_lease(bench: HeadBench) -> None:
    """What the register has once seen as over stays over, for each of its runs."""
    heads = bench.open()
    head, other = created(heads), created(heads, OTHER_RUN)
    bench.advance_clock(TTL_MS)
    refused(lambda: heads.advance([move(head)]), LeaseLostError)
    bench.advance_clock(-TTL_MS * 5)
    for each in (head, other):
        refused(partial(heads.advance, [move(each)]), LeaseLostError)
        refused(partial(bench.open().renew, each, TTL_MS), LeaseLostError)
    expect(len(bench.open().claimable(9)) == 2, "and both runs can be claimed")
    heads.acquire(other, "two", "other", TTL_MS)


def a_commit_keeps_the_moment_it_was_judged_at(bench: HeadBench) -> None:
    """A lease that was over when another run committed stays over, though nobody asked."""
    heads = bench.open()
    head, other = created(heads), created(heads, OTHER_RUN)
    for _ in range(3):
        bench.advance_clock(TTL_MS // 2)
        (head,) = heads.advance([move(head)])
    bench.advance_clock(-TTL_MS * 5)
    refused(partial(bench.open().renew, other, TTL_MS), LeaseLostError)
    refused(partial(heads.advance, [move(other)]), LeaseLostError)
    free = [each.run_id for each in bench.open().claimable(9)]
    expect(free == [OTHER_RUN], "the run can be claimed, and the one that committed is held")
    heads.release(head)
    refused(partial(bench.open().renew, other, TTL_MS), LeaseLostError)


def a_clock_set_back_does_not_lengthen_a_lease(bench: HeadBench) -> None:
    """A term that is granted after the jump counts from the latest moment seen."""
    heads = bench.open()
    head = created(heads)
    bench.advance_clock(TTL_MS // 2)
    (moved,) = heads.advance([move(head)])
    bench.advance_clock(-TTL_MS * 5)
    renewed = bench.open().renew(moved, TTL_MS)
    expect(renewed.expires_at_ms == moved.expires_at_ms, "the register's clock stands, and waits")
    bench.advance_clock(TTL_MS * 5)
    later = heads.renew(moved, TTL_MS)
    expect(later.expires_at_ms == moved.expires_at_ms, "until the wall clock is there again")

"""Clauses of a head register: who may take a lease, keep it and give it up."""

from functools import partial

from msgspec.structs import replace

from counterfoil.core.errors import HeadMissingError, LeaseLostError, StaleHeadError, UsageError
from counterfoil.ports import Head
from counterfoil.testing.expect import expect
from counterfoil.testing.store_bench import (
    RUN,
    TTL_MS,
    HeadBench,
    created,
    digest_of,
    move,
    raced,
    refused,
)


def a_created_head_is_held_at_generation_0(bench: HeadBench) -> None:
    """Creating registers the first checkpoint and takes the first lease at once."""
    heads = bench.open()
    head = heads.create(RUN, digest_of("first"), "one", "nonce", TTL_MS)
    wanted = Head(
        run_id=RUN,
        generation=0,
        checkpoint=digest_of("first"),
        owner="one",
        nonce="nonce",
        lease_version=1,
        expires_at_ms=head.expires_at_ms,
        incarnation=head.incarnation,
    )
    expect(head == wanted, "a created head is held at generation 0 under lease version 1")
    expect(heads.read(RUN) == head, "and is read as it was answered")
    refused(lambda: heads.acquire(head, "two", "other", TTL_MS), LeaseLostError)


def creating_twice_is_refused(bench: HeadBench) -> None:
    """A head is never overwritten, whatever its state; that goes for its own creator too."""
    heads = bench.open()
    head = created(heads, ttl_ms=bench.ttl_ms)
    again = partial(heads.create, RUN, head.checkpoint, head.owner, head.nonce, TTL_MS)
    other = partial(bench.open().create, RUN, digest_of("other"), "two", "other", TTL_MS)
    for call in (again, other):
        refused(call, StaleHeadError)
    expect(heads.read(RUN) == head, "the head stays as it is")
    heads.release(head)
    refused(other, StaleHeadError)
    bench.advance_clock(bench.ttl_ms * 2)
    refused(other, StaleHeadError)


def nothing_is_read_before_it_is_created(bench: HeadBench) -> None:
    """A register does not make heads up."""
    heads = bench.open()
    expect(heads.read(RUN) is None, "an unknown run has no head")
    expect(heads.claimable(9) == (), "a fresh register has nothing to claim")
    expect(heads.heads("", 9) == (), "a fresh register lists nothing")


def a_wiped_register_does_not_make_a_run_look_new(bench: HeadBench) -> None:
    """What holds a head that is gone gets an error, and no head appears by its calls."""
    heads = bench.open()
    gone = Head(
        run_id=RUN,
        generation=4,
        checkpoint=digest_of("4"),
        owner="one",
        nonce="nonce",
        lease_version=2,
        expires_at_ms=2**50,
        incarnation="of a register that was wiped",
    )
    refused(lambda: heads.acquire(gone, "one", "other", TTL_MS), HeadMissingError)
    refused(lambda: heads.renew(gone, TTL_MS), HeadMissingError)
    refused(lambda: heads.advance([move(gone)]), HeadMissingError)
    heads.release(gone)
    expect(heads.read(RUN) is None, "no head appears")


def a_standing_lease_is_not_taken(bench: HeadBench) -> None:
    """By nobody, under whatever name; the refusal names the holder."""
    heads = bench.open()
    head = created(heads)
    for owner in ("two", head.owner):
        error = refused(partial(heads.acquire, head, owner, "other", TTL_MS), LeaseLostError)
        expect(head.owner in str(error), "the refusal names the present owner")
        expect(str(head.expires_at_ms) in str(error), "the refusal says when the lease ends")
    expect(heads.read(RUN) == head, "the head stays as it is")


def an_expired_lease_is_taken(bench: HeadBench) -> None:
    """From the very millisecond in which it ends, under the next version."""
    heads = bench.open()
    head = created(heads, ttl_ms=bench.ttl_ms)
    bench.advance_clock(bench.ttl_ms)
    taken = bench.open().acquire(head, "two", "other", TTL_MS)
    wanted = replace(
        head, owner="two", nonce="other", lease_version=2, expires_at_ms=taken.expires_at_ms
    )
    expect(taken == wanted, "taking changes the holder and nothing else")
    expect(taken.expires_at_ms > head.expires_at_ms, "the term begins when it is taken")
    expect(heads.read(RUN) == taken, "and is read as it was answered")


def a_released_lease_is_taken_at_once(bench: HeadBench) -> None:
    """Releasing frees the head, keeps generation, checkpoint and version."""
    heads = bench.open()
    head = created(heads)
    heads.release(head)
    free = replace(head, owner="", nonce="", expires_at_ms=0)
    expect(heads.read(RUN) == free, "a released head is free and otherwise the same")
    taken = heads.acquire(free, "two", "other", TTL_MS)
    expect(taken.lease_version == 2, "the version is raised")


def a_lease_is_taken_once(bench: HeadBench) -> None:
    """Of those who saw the same free head, one gets it; that goes for a repeated call too."""
    heads = bench.open()
    heads.release(created(heads))
    free = _read(bench)
    taken = heads.acquire(free, "one", "first", TTL_MS)
    for nonce in ("first", "second"):
        call = partial(bench.open().acquire, free, "one", nonce, TTL_MS)
        refused(call, LeaseLostError)
    heads.release(taken)
    refused(lambda: heads.acquire(free, "two", "second", TTL_MS), StaleHeadError)


def a_lease_is_not_taken_from_an_old_head(bench: HeadBench) -> None:
    """The whole record is compared: a commit or a takeover in between refuses it."""
    heads = bench.open()
    head = created(heads)
    (moved,) = heads.advance([move(head, status="frozen")])
    heads.release(moved)
    free = _read(bench)
    old = (
        replace(free, generation=0),
        replace(free, checkpoint=head.checkpoint),
        replace(free, lease_version=0),
        replace(free, nonce=head.nonce),
        replace(free, owner="another"),
        replace(free, status="active"),
        replace(free, incarnation="another register"),
    )
    for each in old:
        refused(partial(heads.acquire, each, "two", "other", TTL_MS), StaleHeadError)
    expect(heads.read(RUN) == free, "the head stays as it is")
    heads.acquire(free, "two", "other", TTL_MS)


def one_of_many_takes_the_lease(bench: HeadBench) -> None:
    """Callers at once, through connections of their own, have one winner."""
    heads = bench.open()
    heads.release(created(heads))
    free = _read(bench)
    names = [f"worker {number}" for number in range(8)]
    answers = raced([partial(bench.open().acquire, free, name, name, TTL_MS) for name in names])
    winners = [answer for answer in answers if isinstance(answer, Head)]
    losers = [answer for answer in answers if isinstance(answer, LeaseLostError)]
    expect(len(winners) == 1, "one of many takes the lease")
    expect(len(losers) == len(names) - 1, "the others hear that they lost")
    expect(heads.read(RUN) == winners[0], "and the register names the winner")


def one_of_many_creates_the_head(bench: HeadBench) -> None:
    """A run that is started twice at once is started once."""
    names = [f"worker {number}" for number in range(8)]
    answers = raced([partial(bench.open().create, RUN, digest_of(n), n, n, TTL_MS) for n in names])
    winners = [answer for answer in answers if isinstance(answer, Head)]
    losers = [answer for answer in answers if isinstance(answer, StaleHeadError)]
    expect((len(winners), len(losers)) == (1, 7), "one of many creates the head")
    expect(bench.open().read(RUN) == winners[0], "and the register names the winner")


def renewing_extends_the_lease(bench: HeadBench) -> None:
    """From the moment of renewal, and nothing else of the head changes."""
    heads = bench.open()
    head = created(heads)
    bench.advance_clock(20)
    renewed = heads.renew(head, TTL_MS)
    wanted = replace(head, expires_at_ms=renewed.expires_at_ms)
    expect(renewed == wanted, "renewing moves the end of the lease and nothing else")
    expect(renewed.expires_at_ms > head.expires_at_ms, "renewing moves the end to a later moment")
    expect(_read(bench) == renewed, "and is read as it was answered")


def renewing_never_shortens(bench: HeadBench) -> None:
    """A short term asked for late does not end the lease early."""
    heads = bench.open()
    head = created(heads)
    expect(heads.renew(head, 1) == head, "a shorter term changes nothing")
    heads.advance([move(head)])


def a_lease_of_another_nonce_or_version_is_not_renewed(bench: HeadBench) -> None:
    """A late worker does not keep its successor's lease alive."""
    heads = bench.open()
    head = created(heads)
    for foreign in (replace(head, nonce="other"), replace(head, lease_version=2)):
        refused(partial(heads.renew, foreign, TTL_MS * 9), LeaseLostError)
    expect(heads.read(RUN) == head, "the head stays as it is")


def an_ended_lease_is_not_renewed(bench: HeadBench) -> None:
    """Expired or released: it has to be taken anew."""
    heads = bench.open()
    head = created(heads, ttl_ms=bench.ttl_ms)
    bench.advance_clock(bench.ttl_ms)
    refused(lambda: heads.renew(head, TTL_MS), LeaseLostError)
    expect(heads.read(RUN) == head, "the head stays as it is")
    taken = heads.acquire(head, "two", "other", TTL_MS)
    heads.release(taken)
    for each in (taken, _read(bench)):
        refused(partial(heads.renew, each, TTL_MS), LeaseLostError)


def releasing_a_lost_lease_does_nothing(bench: HeadBench) -> None:
    """A worker that gives up late does not free its successor's lease."""
    heads = bench.open()
    head = created(heads, ttl_ms=bench.ttl_ms)
    for foreign in (replace(head, nonce="other"), replace(head, lease_version=2)):
        heads.release(foreign)
        expect(heads.read(RUN) == head, "a foreign release changes nothing")
    bench.advance_clock(bench.ttl_ms)
    taken = heads.acquire(head, "two", "other", TTL_MS)
    for pause_ms in (0, bench.ttl_ms):
        heads.release(head, pause_ms)
        expect(heads.read(RUN) == taken, "a late release changes nothing")
    heads.release(taken)
    heads.release(taken)
    expect(_read(bench).nonce == "", "releasing twice is releasing once")


def a_lease_nobody_could_hold_is_refused(bench: HeadBench) -> None:
    """An empty nonce, or a term that ends before it begins."""
    heads = bench.open()
    for nonce, ttl_ms in (("", TTL_MS), ("nonce", 0), ("nonce", -1)):
        refused(partial(heads.create, RUN, digest_of("first"), "one", nonce, ttl_ms), UsageError)
    expect(heads.read(RUN) is None, "no head appears")
    head = created(heads)
    refused(lambda: heads.renew(head, 0), UsageError)
    refused(lambda: heads.advance([move(head, ttl_ms=0)]), UsageError)
    heads.release(head)
    free = _read(bench)
    for nonce, ttl_ms in (("", TTL_MS), ("nonce", 0)):
        refused(partial(heads.acquire, free, "one", nonce, ttl_ms), UsageError)
    expect(heads.read(RUN) == free, "the head stays as it is")


def _read(bench: HeadBench) -> Head:
    """Return the head through a connection of its own."""
    head = bench.open().read(RUN)
    expect(head is not None, "the head is there")
    return head or created(bench.open())

"""Clauses of a head register: what others see of it, and what its clock does to it."""

from functools import partial

from counterfoil.core.errors import LeaseLostError
from counterfoil.core.words import RunId
from counterfoil.ports import Head
from counterfoil.testing.expect import expect
from counterfoil.testing.store_bench import (
    ODD_TEXTS,
    OTHER_RUN,
    RUN,
    TTL_MS,
    HeadBench,
    created,
    digest_of,
    move,
    refused,
)

PAGES_MAX = 100


def a_second_connection_reads_every_write(bench: HeadBench) -> None:
    """Whoever had the register open before sees each change at once."""
    early, heads = bench.open(), bench.open()
    expect(early.read(RUN) is None, "a fresh register is empty")
    head = created(heads)
    expect(early.read(RUN) == head, "another connection sees the creation")
    (head,) = heads.advance([move(head)])
    expect(early.read(RUN) == head, "another connection sees the commit")
    bench.advance_clock(5)
    head = heads.renew(head, TTL_MS)
    expect(early.read(RUN) == head, "another connection sees the renewal")
    heads.release(head)
    free = early.read(RUN)
    expect(free is not None and free.nonce == "", "another connection sees the release")
    expect(free is not None and early.heads("", 9) == (free,), "and lists what it reads")


def what_is_free_and_active_is_claimable(bench: HeadBench) -> None:
    """Held, frozen and ended runs are not; those that are free longest come first."""
    heads = bench.open()
    held, released, frozen, ended, expired = (
        created(heads, RunId(name)) for name in ("held", "released", "frozen", "ended", "expired")
    )
    heads.release(released)
    for head, status in ((frozen, "frozen"), (ended, "terminal")):
        heads.release(*heads.advance([move(head, status=status)]))
    expect(_names(heads.claimable(9)) == ["released"], "a released active run is claimable")
    bench.advance_clock(1)
    heads.renew(held, TTL_MS * 2)
    bench.advance_clock(TTL_MS - 1)
    expect(
        _names(heads.claimable(9)) == ["released", expired.run_id],
        "an expired active run is claimable, after those that are free longer",
    )
    expect(_names(heads.claimable(1)) == ["released"], "at most the limit is returned")
    expect(heads.claimable(0) == (), "a limit of none returns none")


def a_claimed_head_can_be_taken_as_it_is(bench: HeadBench) -> None:
    """What `claimable` returns is good enough for `acquire`, once."""
    heads = bench.open()
    heads.release(created(heads))
    (free,) = heads.claimable(9)
    heads.acquire(free, "two", "other", TTL_MS)
    expect(heads.claimable(9) == (), "a taken head is not claimable")


def heads_are_listed_in_order_and_in_pages(bench: HeadBench) -> None:
    """Order is by code point, so that pages join whatever the language of the database."""
    heads = bench.open()
    names = sorted(RunId(name) for name in ("b", "B", "a", "Z", "é", "z", "ä", "10", "9", "A b"))
    for name in reversed(names):
        created(heads, name)
    pages, after = list[str](), ""
    for _ in range(PAGES_MAX):
        page = heads.heads(after, 3)
        expect(len(page) <= 3, "a page has at most its limit")
        if not page:
            break
        pages.extend(_names(page))
        after = pages[-1]
    expect(pages == names, "pages of heads join, in order of their code points")
    expect(heads.heads("", 0) == (), "a page of none is empty")


def odd_identifiers_come_back_as_they_are(bench: HeadBench) -> None:
    """Quotes, separators, wildcards and foreign letters are letters, in every text."""
    heads = bench.open()
    made: dict[str, Head] = {}
    for text in ODD_TEXTS:
        made[text] = heads.create(RunId(text), digest_of(text), text, text, TTL_MS)
    for text, head in made.items():
        expect((head.run_id, head.owner, head.nonce) == (text, text, text), f"{text!r} is kept")
        expect(bench.open().read(RunId(text)) == head, f"{text!r} reads its own head")
        (moved,) = heads.advance([move(head)])
        expect(heads.read(RunId(text)) == moved, f"{text!r} moves its own head")
    for name in ("%", "naïve", "null", "x" * 199, ""):
        expect(heads.read(RunId(name)) is None, f"{name!r} reads nothing")
    expect(_names(heads.heads("", 99)) == sorted(ODD_TEXTS), "every run id is listed as it is")


def every_head_names_one_incarnation(bench: HeadBench) -> None:
    """However often the register is opened; it tells this register from any other."""
    first = created(bench.open())
    second = created(bench.open(), OTHER_RUN)
    expect(first.incarnation != "", "a register has a name")
    expect(first.incarnation == second.incarnation, "and keeps it")


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


def closing_twice_is_closing_once(bench: HeadBench) -> None:
    """Closing loses nothing, and a second time does nothing."""
    heads = bench.open()
    head = created(heads)
    heads.close()
    heads.close()
    expect(bench.open().read(RUN) == head, "the head is there after closing")


def _names(heads: tuple[Head, ...]) -> list[str]:
    return [head.run_id for head in heads]

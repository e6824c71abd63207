"""Clauses of a head register: what others see of it, and what is there to be claimed."""

from counterfoil.core.errors import UsageError
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
    """Held, frozen and ended runs are not."""
    heads = bench.open()
    held, released, frozen, ended = (
        created(heads, RunId(name)) for name in ("held", "released", "frozen", "ended")
    )
    expired = created(heads, RunId("expired"), ttl_ms=bench.ttl_ms)
    heads.release(released)
    for head, status in ((frozen, "frozen"), (ended, "terminal")):
        (moved,) = heads.advance([move(head, status=status)])
        heads.release(moved)
    expect(_names(heads.claimable(9)) == ["released"], "a released active run is claimable")
    heads.renew(held, TTL_MS * 4)
    bench.advance_clock(bench.ttl_ms)
    expect(
        sorted(_names(heads.claimable(9))) == [expired.run_id, "released"],
        "an expired active run is claimable too",
    )
    expect(len(heads.claimable(1)) == 1, "at most the limit is returned")
    expect(heads.claimable(0) == (), "a limit of none returns none")
    for head in heads.claimable(9):
        expect(heads.read(head.run_id) == head, "what is claimable is returned as it is read")


def what_was_given_up_comes_behind_what_waits(bench: HeadBench) -> None:
    """A run that fails again and again keeps no other from being claimed."""
    heads = bench.open()
    for name in ("fails", "waits"):
        heads.release(created(heads, RunId(name)))
    (failing,) = (head for head in heads.claimable(9) if head.run_id == "fails")
    heads.release(heads.acquire(failing, "two", "other", TTL_MS), bench.ttl_ms)
    bench.advance_clock(bench.ttl_ms)
    expect(_names(heads.claimable(9)) == ["waits", "fails"], "what was given up comes last")
    expect(_names(heads.claimable(1)) == ["waits"], "and is left out before what waits")


def a_paused_run_is_claimable_when_its_pause_is_over(bench: HeadBench) -> None:
    """Until then workers leave it alone; the pause is by the register's clock."""
    heads = bench.open()
    heads.release(created(heads), bench.ttl_ms)
    paused = bench.open().read(RUN)
    expect(paused is not None and paused.nonce == "", "a paused run is free")
    expect(heads.claimable(9) == (), "a paused run is not claimable")
    bench.advance_clock(bench.ttl_ms)
    expect(_names(bench.open().claimable(9)) == [RUN], "and is so when its pause is over")


def a_paused_run_is_taken_at_once(bench: HeadBench) -> None:
    """By whoever asks for this very run, as a person does; its pause ends with that."""
    heads = bench.open()
    head = created(heads)
    heads.release(head, TTL_MS)
    paused = heads.read(RUN)
    expect(paused is not None, "a paused run is there")
    taken = heads.acquire(paused or head, "two", "other", TTL_MS)
    expect(taken.lease_version == 2, "a paused run is taken at once")
    heads.release(taken)
    expect(_names(heads.claimable(9)) == [RUN], "and is not paused any more")


def a_pause_that_ends_before_it_begins_is_refused(bench: HeadBench) -> None:
    """And the lease is not given up by it."""
    heads = bench.open()
    head = created(heads)
    refused(lambda: heads.release(head, -1), UsageError)
    expect(heads.read(RUN) == head, "the head stays as it is")
    heads.advance([move(head)])


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


def closing_twice_is_closing_once(bench: HeadBench) -> None:
    """Closing loses nothing, and a second time does nothing."""
    heads = bench.open()
    head = created(heads)
    heads.close()
    heads.close()
    expect(bench.open().read(RUN) == head, "the head is there after closing")


def _names(heads: tuple[Head, ...]) -> list[str]:
    return [head.run_id for head in heads]

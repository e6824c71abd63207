"""What a pair of places protects from, case by case."""

import itertools

import pytest

from counterfoil.cli.protection import Answer, Closeness, Pair, Protection, protections
from counterfoil.urls import Scheme

YES, PARTLY, NO = Answer.YES, Answer.PARTLY, Answer.NO
HAZARDS = (
    "checkpoints_restored",
    "heads_restored",
    "both_restored",
    "clock_wrong",
    "machine_lost",
    "administrator",
)


def pair_of(
    store: Scheme,
    heads: Scheme,
    closeness: Closeness = Closeness.APART,
    *,
    marks: bool = False,
    waits: bool = False,
    members: int = 3,
) -> Pair:
    return Pair(
        store=store,
        heads=heads,
        closeness=closeness,
        store_is_here=store is Scheme.SQLITE,
        heads_are_here=heads is Scheme.SQLITE,
        marks=marks,
        store_waits=waits,
        heads_wait=waits,
        heads_members=members,
    )


def answers(pair: Pair) -> dict[str, Answer]:
    return {each.hazard: each.answer for each in protections(pair)}


FILES = pair_of(Scheme.SQLITE, Scheme.SQLITE, Closeness.ONE_MACHINE)
ONE = pair_of(Scheme.POSTGRESQL, Scheme.POSTGRESQL, Closeness.ONE_DATABASE)
TWO = pair_of(Scheme.POSTGRESQL, Scheme.POSTGRESQL)
HALF = pair_of(Scheme.SQLITE, Scheme.POSTGRESQL)
ETCD = pair_of(Scheme.POSTGRESQL, Scheme.ETCD)


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        pytest.param(FILES, (PARTLY, PARTLY, NO, PARTLY, NO, PARTLY), id="two files"),
        pytest.param(ONE, (PARTLY, PARTLY, NO, YES, YES, NO), id="one database"),
        pytest.param(TWO, (YES, PARTLY, PARTLY, YES, YES, PARTLY), id="two databases"),
        pytest.param(HALF, (YES, PARTLY, PARTLY, YES, NO, PARTLY), id="a file and a database"),
        pytest.param(ETCD, (YES, PARTLY, PARTLY, YES, YES, PARTLY), id="a database and etcd"),
    ],
)
def test_a_pair_protects_from_what_it_protects_from(
    pair: Pair, expected: tuple[Answer, ...]
) -> None:
    found = answers(pair)
    assert tuple(found[hazard] for hazard in HAZARDS) == expected


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        pytest.param(ONE, NO, id="both turn back at once"),
        pytest.param(TWO, PARTLY, id="one commit of heads is not noticed"),
        pytest.param(
            pair_of(Scheme.POSTGRESQL, Scheme.POSTGRESQL, marks=True), YES, id="a marker shows it"
        ),
        pytest.param(
            pair_of(Scheme.POSTGRESQL, Scheme.POSTGRESQL, Closeness.ONE_DATABASE, marks=True),
            NO,
            id="a marker beside the head is lost with it",
        ),
        pytest.param(
            pair_of(Scheme.POSTGRESQL, Scheme.POSTGRESQL, Closeness.ONE_DATABASE, waits=True),
            YES,
            id="commits wait for a standby",
        ),
        pytest.param(ETCD, YES, id="heads are elsewhere"),
        pytest.param(HALF, PARTLY, id="checkpoints are elsewhere"),
    ],
)
def test_a_standby_that_lags_loses_commits(pair: Pair, expected: Answer) -> None:
    assert answers(pair)["failover"] == expected


def test_only_what_can_happen_is_named() -> None:
    assert set(answers(FILES)) == set(HAZARDS)
    assert set(answers(HALF)) == {*HAZARDS, "failover"}
    assert set(answers(pair_of(Scheme.SQLITE, Scheme.ETCD))) == {*HAZARDS, "quorum_lost"}
    assert set(answers(ETCD)) == {*HAZARDS, "failover", "quorum_lost"}


@pytest.mark.parametrize(("members", "expected"), [(1, PARTLY), (3, YES), (0, YES)])
def test_the_only_member_takes_heads_along(members: int, expected: Answer) -> None:
    pair = pair_of(Scheme.SQLITE, Scheme.ETCD, members=members)
    assert answers(pair)["quorum_lost"] == expected


def test_memory_protects_from_nothing() -> None:
    pair = pair_of(Scheme.POSTGRESQL, Scheme.MEMORY)
    assert [(each.hazard, each.answer) for each in protections(pair)] == [("process_ended", NO)]


def test_a_marker_shows_that_one_commit_of_heads_was_lost() -> None:
    found = answers(pair_of(Scheme.POSTGRESQL, Scheme.ETCD, marks=True))
    assert found["heads_restored"] is YES


def every_protection() -> list[Protection]:
    pairs = (
        Pair(
            store=store,
            heads=heads,
            closeness=closeness,
            store_is_here=here,
            heads_are_here=not here,
            marks=marks,
            store_waits=waits,
            heads_wait=not waits,
        )
        for store, heads, closeness, here, marks, waits in itertools.product(
            Scheme, Scheme, Closeness, (True, False), (True, False), (True, False)
        )
    )
    return [each for pair in pairs for each in protections(pair)]


def test_whatever_is_not_protected_from_is_explained() -> None:
    assert [each for each in every_protection() if len(each.why.split()) < 5] == []

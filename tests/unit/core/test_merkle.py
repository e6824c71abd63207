"""The trace tree is the one of RFC 9162, computed here a second time by its definition."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.core.errors import FormatError
from counterfoil.core.merkle import (
    EMPTY_ROOT,
    Hash,
    append,
    check_frontier,
    consistency_proof,
    inclusion_proof,
    inclusion_root,
    is_consistent,
    leaf_hash,
    node_hash,
    root,
    tree_root,
)

SIZE_MAX = 40
ENTRIES = [bytes([n]) * (n % 5) for n in range(SIZE_MAX)]
LEAVES = [leaf_hash(entry) for entry in ENTRIES]


def half(count: int) -> int:
    """Return the largest power of two below `count`, as section 2.1.1 has it."""
    power = 1
    while power * 2 < count:
        power *= 2
    return power


def mth(entries: list[bytes]) -> bytes:
    """Return the Merkle tree hash by the recursive definition of section 2.1.1."""
    if not entries:
        return sha256(b"").digest()
    if len(entries) == 1:
        return sha256(b"\x00" + entries[0]).digest()
    k = half(len(entries))
    return sha256(b"\x01" + mth(entries[:k]) + mth(entries[k:])).digest()


def path(index: int, entries: list[bytes]) -> list[bytes]:
    """Return the audit path by the recursive definition of section 2.1.3.1."""
    if len(entries) == 1:
        return []
    k = half(len(entries))
    if index < k:
        return [*path(index, entries[:k]), mth(entries[k:])]
    return [*path(index - k, entries[k:]), mth(entries[:k])]


def subproof(size: int, entries: list[bytes], is_known: bool) -> list[bytes]:
    """Return the consistency proof by the recursive definition of section 2.1.4.1."""
    if size == len(entries):
        return [] if is_known else [mth(entries)]
    k = half(len(entries))
    if size <= k:
        return [*subproof(size, entries[:k], is_known), mth(entries[k:])]
    return [*subproof(size - k, entries[k:], False), mth(entries[:k])]


def frontier_of(size: int) -> tuple[Hash, ...]:
    frontier: tuple[Hash, ...] = ()
    for index in range(size):
        frontier = append(index, frontier, LEAVES[index])
    return frontier


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        pytest.param(
            [], "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", id="no leaf"
        ),
        pytest.param(
            [b""],
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
            id="one empty leaf",
        ),
        pytest.param(
            [b"", b"\x00", b"\x10", b" !", b"01", b"@ABC", b"PQRSTUVW", b"`abcdefghijklmno"],
            "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
            id="eight leaves of the test vectors of Certificate Transparency",
        ),
    ],
)
def test_a_root_is_the_published_one(entries: list[bytes], expected: str) -> None:
    assert tree_root([leaf_hash(entry) for entry in entries]).hex() == expected


@pytest.mark.parametrize("size", range(SIZE_MAX + 1))
def test_a_root_is_the_one_of_the_definition(size: int) -> None:
    assert (tree_root(LEAVES[:size]), root(frontier_of(size))) == (mth(ENTRIES[:size]),) * 2


@pytest.mark.parametrize("size", range(1, SIZE_MAX + 1))
def test_inclusion_proofs_are_those_of_the_definition(size: int) -> None:
    assert [inclusion_proof(LEAVES[:size], index) for index in range(size)] == [
        tuple(path(index, ENTRIES[:size])) for index in range(size)
    ]


@pytest.mark.parametrize("size", range(1, SIZE_MAX + 1))
def test_every_inclusion_proof_leads_to_the_root(size: int) -> None:
    wanted = mth(ENTRIES[:size])
    assert [
        index
        for index in range(size)
        if inclusion_root(LEAVES[index], index, size, inclusion_proof(LEAVES[:size], index))
        != wanted
    ] == []


@pytest.mark.parametrize("size", range(1, SIZE_MAX + 1))
def test_consistency_proofs_are_those_of_the_definition(size: int) -> None:
    assert [consistency_proof(LEAVES[:size], old) for old in range(1, size + 1)] == [
        tuple(subproof(old, ENTRIES[:size], True)) for old in range(1, size + 1)
    ]


@pytest.mark.parametrize("size", range(1, SIZE_MAX + 1))
def test_every_consistency_proof_convinces(size: int) -> None:
    whole = mth(ENTRIES[:size])
    assert [
        old
        for old in range(1, size + 1)
        if not is_consistent(
            old, mth(ENTRIES[:old]), size, whole, consistency_proof(LEAVES[:size], old)
        )
    ] == []


@pytest.mark.parametrize("size", range(1, SIZE_MAX + 1))
def test_another_leaf_does_not_lead_to_the_root(size: int) -> None:
    wanted, other = mth(ENTRIES[:size]), leaf_hash(b"another")
    assert [
        index
        for index in range(size)
        if inclusion_root(other, index, size, inclusion_proof(LEAVES[:size], index)) == wanted
    ] == []


indices = st.integers(1, SIZE_MAX).flatmap(
    lambda size: st.tuples(st.just(size), st.integers(0, size - 1))
)


@given(indices, st.data())
def test_a_proof_with_a_changed_hash_leads_elsewhere(
    place: tuple[int, int], draws: st.DataObject
) -> None:
    size, index = place
    proof = list(inclusion_proof(LEAVES[:size], index))
    if not proof:
        return
    at = draws.draw(st.integers(0, len(proof) - 1))
    proof[at] = sha256(proof[at]).digest()
    assert inclusion_root(LEAVES[index], index, size, proof) != mth(ENTRIES[:size])


@given(indices)
def test_a_proof_with_a_hash_more_or_less_is_refused(place: tuple[int, int]) -> None:
    size, index = place
    proof = inclusion_proof(LEAVES[:size], index)
    outcomes = []
    for wrong in [(*proof, LEAVES[0])] + ([proof[:-1]] if proof else []):
        try:
            outcomes.append(inclusion_root(LEAVES[index], index, size, wrong))
        except FormatError:
            outcomes.append(b"refused")
    assert set(outcomes) == {b"refused"}


@given(indices, st.integers(0, SIZE_MAX - 1))
def test_a_proof_of_one_place_does_not_prove_another(place: tuple[int, int], claimed: int) -> None:
    size, index = place
    if claimed == index or claimed >= size:
        return
    try:
        reached = inclusion_root(
            LEAVES[index], claimed, size, inclusion_proof(LEAVES[:size], index)
        )
    except FormatError:
        return
    assert reached != mth(ENTRIES[:size])


@given(indices, st.data())
def test_no_other_history_is_consistent(place: tuple[int, int], draws: st.DataObject) -> None:
    size, last = place
    old = last + 1
    forged = [*ENTRIES[:last], b"another"]
    proof = consistency_proof(LEAVES[:size], old)
    assert not is_consistent(old, mth(forged), size, mth(ENTRIES[:size]), proof)


@given(indices, st.lists(st.sampled_from(LEAVES), max_size=8))
def test_a_made_up_proof_does_not_show_a_shorter_trace(
    place: tuple[int, int], proof: list[bytes]
) -> None:
    size, last = place
    forged = mth([*ENTRIES[:last], b"another"])
    assert not is_consistent(last + 1, forged, size, mth(ENTRIES[:size]), proof)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(0, 4, id="nothing"),
        pytest.param(5, 4, id="a longer trace"),
        pytest.param(-1, 4, id="less than nothing"),
    ],
)
def test_no_proof_shows_consistency_with(old: int, new: int) -> None:
    assert not is_consistent(old, EMPTY_ROOT, new, mth(ENTRIES[:new]), ())


@pytest.mark.parametrize(
    ("size", "index"),
    [
        pytest.param(0, 0, id="an empty trace"),
        pytest.param(3, 3, id="one past the end"),
        pytest.param(3, -1, id="before the beginning"),
    ],
)
def test_there_is_no_proof_of_an_event_in(size: int, index: int) -> None:
    with pytest.raises(FormatError, match="no event"):
        inclusion_proof(LEAVES[:size], index)
    with pytest.raises(FormatError, match="no event"):
        inclusion_root(LEAVES[0], index, size, ())


@pytest.mark.parametrize("old", [0, 5, -1])
def test_there_is_no_consistency_proof_for(old: int) -> None:
    with pytest.raises(FormatError, match="no trace of"):
        consistency_proof(LEAVES[:4], old)


def test_a_leaf_is_never_a_node() -> None:
    assert leaf_hash(LEAVES[0] + LEAVES[1]) != node_hash(LEAVES[0], LEAVES[1])


@pytest.mark.parametrize(
    ("size", "frontier"),
    [
        pytest.param(1, (), id="T3 a hash is missing"),
        pytest.param(2, (LEAVES[0], LEAVES[1]), id="T3 a hash too many"),
        pytest.param(1, (b"short",), id="T3 a hash of another length"),
        pytest.param(-1, (), id="T3 a negative size"),
        pytest.param(2**64, (LEAVES[0],), id="T3 a size that no trace reaches"),
    ],
)
def test_a_frontier_that_does_not_fit_is_refused(size: int, frontier: tuple[Hash, ...]) -> None:
    with pytest.raises(FormatError):
        check_frontier(size, frontier)


@pytest.mark.parametrize("bits", [1, 20, 63])
def test_appending_costs_no_more_than_one_hash_for_each_bit(bits: int) -> None:
    full = tuple(LEAVES[0] for _ in range(bits))
    assert len(append(2**bits - 1, full, LEAVES[1])) == 1

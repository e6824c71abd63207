"""A snapshot of etcd that is put back turns its heads back: who notices, and who does not."""

from collections.abc import Generator
from pathlib import Path

import pytest

from counterfoil.core.errors import RollbackError, StaleHeadError, UnknownOutcomeError
from counterfoil.local.etcd import LocalEtcd
from counterfoil.stores.etcd import EtcdHeads
from counterfoil.testing.store_bench import OTHER_RUN, RUN, created, move
from tests.support.etcd import fresh_prefix, opened

LONG_MS = 600_000


@pytest.fixture(params=[1, 3], ids=["one node", "three nodes"])
def server(request: pytest.FixtureRequest) -> Generator[LocalEtcd]:
    with LocalEtcd(request.param) as started:
        yield started


@pytest.fixture
def restored(server: LocalEtcd, tmp_path: Path) -> Generator[tuple[LocalEtcd, str, EtcdHeads]]:
    """A register that was at generation 2, went on to 4, and was put back to 2."""
    prefix = fresh_prefix()
    heads = opened(server, prefix)
    head = created(heads, ttl_ms=LONG_MS)
    for generation in range(4):
        if generation == 2:
            server.save(tmp_path / "snapshot")
        (head,) = heads.advance([move(head, ttl_ms=LONG_MS)])
    server.restore(tmp_path / "snapshot")
    yield server, prefix, heads
    heads.close()


def test_whoever_had_it_open_sees_that_time_was_turned_back(
    restored: tuple[LocalEtcd, str, EtcdHeads],
) -> None:
    _, _, heads = restored
    with pytest.raises(RollbackError, match="at revision"):
        heads.read(RUN)
    with pytest.raises(UnknownOutcomeError):
        created(heads, OTHER_RUN)


def test_whoever_opens_it_anew_finds_the_old_head_under_the_same_name(
    restored: tuple[LocalEtcd, str, EtcdHeads],
) -> None:
    """So that the store's lease record and the adapters are what notices."""
    server, prefix, before = restored
    heads = opened(server, prefix)
    old = heads.read(RUN)
    assert old is not None
    assert (old.generation, heads.incarnation) == (2, before.incarnation)
    newest = move(move(old).expected)
    with pytest.raises(StaleHeadError):
        heads.advance([move(newest.expected), move(newest.expected, salt="again")])
    heads.close()

"""A worker's role does all its work and turns nothing back; a reader's reads and writes nothing."""

import base64
import json
import os
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256

import psycopg
import pytest
from msgspec.structs import replace

from counterfoil.core.archive import SEAL
from counterfoil.core.codec import Checkpoint
from counterfoil.core.errors import ConfigError, InvariantError, LeaseLostError
from counterfoil.core.words import Digest
from counterfoil.local.postgres import LocalPostgres
from counterfoil.ports import Head, Mark
from counterfoil.stores.postgres import (
    PostgresHeads,
    PostgresInbox,
    PostgresJoint,
    PostgresStore,
    grant_roles,
    open_heads,
    open_inbox,
    open_joint,
    open_store,
)
from counterfoil.testing.store_bench import OTHER_RUN, RUN, TTL_MS, created, digest_of, move
from tests.support.postgres import ServerWall, advance_to, execute, fresh_database

pytest_plugins = ["tests.support.postgres"]

DENIED = psycopg.errors.InsufficientPrivilege
GUARDED = "CF009"


@dataclass(kw_only=True)
class Scene:
    """A database with a chain of five checkpoints, and who may do what in it."""

    owner: str
    worker: str
    reader: str
    store: PostgresStore
    heads: PostgresHeads
    inbox: PostgresInbox
    joint: PostgresJoint
    head: Head
    chain: list[Checkpoint] = field(default_factory=list)

    def commit(self) -> None:
        row = sealed(len(self.chain), self.head.checkpoint)
        (self.head,) = self.joint.commit([row], [advance_to(self.head, row.digest)])
        self.chain.append(row)


def sealed(generation: int, previous: str, salt: str = "", lease_version: int = 1) -> Checkpoint:
    """Return a checkpoint whose header says what it follows, as real ones do."""
    header = json.dumps({"previous": previous, "salt": salt}, separators=(",", ":")).encode()
    envelope = json.dumps(
        {
            "payload": base64.b64encode(header).decode(),
            "payloadType": "application/test",
            "signatures": [],
        },
        separators=(",", ":"),
    ).encode()
    return Checkpoint(
        run_id=RUN,
        generation=generation,
        digest=Digest(sha256(envelope).hexdigest()),
        lease_version=lease_version,
        envelope=envelope,
        state=b"state",
        events=b"events",
        settles=(f"@{generation}", f"key {salt}"),
    )


@pytest.fixture
def scene(postgres: LocalPostgres) -> Generator[Scene]:
    with _made(postgres) as made:
        yield made


@pytest.fixture(scope="module")
def still(postgres: LocalPostgres) -> Generator[Scene]:
    """One scene for all that changes nothing in it."""
    with _made(postgres) as made:
        yield made


@contextmanager
def _made(postgres: LocalPostgres) -> Generator[Scene]:
    owner = fresh_database(postgres)
    name = owner.rpartition("/")[2]
    for opens in (open_store, open_heads, open_inbox):
        opens(owner, create=True).close()
    roles = {kind: f"{kind}_{name}" for kind in ("worker", "reader")}
    for role in roles.values():
        execute(owner, f"CREATE ROLE {role} LOGIN PASSWORD '{postgres.password}'")
    grant_roles(owner, **roles)
    worker = postgres.url(name, user=roles["worker"])
    with ExitStack() as stack:
        store = open_store(worker, create=False)
        heads = open_heads(worker, create=False)
        inbox = open_inbox(worker, create=False)
        joint = open_joint(worker)
        for port in (store, heads, inbox, joint):
            stack.callback(port.close)
        first = sealed(0, "")
        store.put([first])
        store.mark(Mark(run_id=RUN, lease_version=1, envelope=b"mark"))
        head = heads.create(RUN, first.digest, "one", "nonce", TTL_MS * 100)
        made = Scene(
            owner=owner,
            worker=worker,
            reader=postgres.url(name, user=roles["reader"]),
            store=store,
            heads=heads,
            inbox=inbox,
            joint=joint,
            head=head,
            chain=[first],
        )
        for _ in range(4):
            made.commit()
        inbox.put(RUN, b"statement")
        execute(worker, "SELECT counterfoil.raise_floor(1)")
        yield made
    for role in roles.values():
        execute(owner, f"DROP OWNED BY {role}")
        execute(owner, f"DROP ROLE {role}")


def test_a_worker_does_all_its_work(scene: Scene) -> None:
    scene.store.mark(Mark(run_id=RUN, lease_version=1, envelope=b"another mark"))
    row = sealed(5, scene.head.checkpoint)
    scene.store.put([row])
    (head,) = scene.heads.advance([advance_to(scene.head, row.digest)])
    head = scene.heads.renew(head, TTL_MS * 200)
    scene.heads.release(head)
    (free,) = scene.heads.claimable(9)
    taken = scene.heads.acquire(free, "two", "another", TTL_MS)
    scene.inbox.put(RUN, b"another")
    assert scene.inbox.pending(RUN, 9) == (b"statement", b"another")
    scene.inbox.discard(RUN, b"another")
    scene.inbox.discard(RUN, b"statement")
    assert scene.inbox.arrivals("", 9) == ()
    assert scene.heads.read(RUN) == taken
    assert scene.store.get(RUN, row.digest) == row
    assert scene.store.marked(RUN) is not None
    assert scene.store.runs("", 9) == (RUN,)


def test_a_worker_that_is_refused_by_the_clock_keeps_the_moment(scene: Scene) -> None:
    wall = ServerWall(scene.owner, at_ms=scene.head.expires_at_ms)
    wall.begin()
    execute(scene.owner, "GRANT SELECT ON counterfoil.wall TO PUBLIC")
    with pytest.raises(LeaseLostError):
        scene.heads.advance([move(scene.head)])
    wall.advance(-TTL_MS * 50)
    with pytest.raises(LeaseLostError):
        scene.heads.renew(scene.head, TTL_MS)


def test_a_worker_prunes_states_and_orphans(scene: Scene) -> None:
    orphan = sealed(2, scene.chain[1].digest, "loser")
    scene.store.put([orphan])
    chain = {row.generation: row.digest for row in scene.chain}
    assert scene.store.prune(RUN, chain, 3) == 4
    kept = tuple(replace(row, state=b"") if row.generation < 3 else row for row in scene.chain)
    assert scene.store.trace(RUN, -1, 99) == kept
    assert scene.store.find(RUN, "key loser") == ()
    assert scene.store.prune(RUN, chain, 3) == 0


def test_an_orphan_beside_the_head_goes_once_the_head_has_moved_on(scene: Scene) -> None:
    orphan = sealed(4, scene.chain[3].digest, "loser")
    scene.store.put([orphan])
    chain = {row.generation: row.digest for row in scene.chain}
    assert scene.store.prune(RUN, chain, 0) == 0
    scene.commit()
    assert scene.store.prune(RUN, chain, 0) == 1
    assert scene.store.get(RUN, orphan.digest) is None


def test_a_wrong_chain_prunes_nothing_that_others_follow(scene: Scene) -> None:
    before = ["", *(row.digest for row in scene.chain)]
    orphans = [sealed(row.generation, before[row.generation], "rival") for row in scene.chain]
    scene.store.put(orphans)
    wrong = {orphan.generation: orphan.digest for orphan in orphans}
    scene.store.prune(RUN, wrong, 99)
    for row in scene.chain:
        present = scene.store.get(RUN, row.digest)
        assert present is not None
        assert replace(present, state=row.state) == row
    named = scene.store.get(RUN, scene.head.checkpoint)
    assert named == scene.chain[-1], "what the head names keeps its state"


def test_not_even_a_forged_successor_frees_what_the_head_names(scene: Scene) -> None:
    rival = sealed(4, scene.chain[3].digest, "rival")
    scene.store.put([rival, sealed(5, rival.digest, "forged")])
    scene.store.prune(RUN, {4: rival.digest, 5: digest_of("none")}, 99)
    assert scene.store.get(RUN, scene.head.checkpoint) == scene.chain[-1]


def test_the_owner_archives_a_run_and_drops_all_but_the_last(scene: Scene) -> None:
    owner = open_store(scene.owner, create=False)
    last = scene.chain[-1]
    with pytest.raises(InvariantError):
        owner.collect(RUN, last.digest, last.generation, 99)
    owner.archive(RUN, "a" * 64, b"piece")
    with pytest.raises(InvariantError):
        owner.collect(RUN, last.digest, last.generation, 99)
    owner.archive(RUN, SEAL, b"seal")
    orphan = sealed(2, scene.chain[1].digest, "loser")
    scene.store.put([orphan])
    assert owner.collect(RUN, last.digest, last.generation, 3) == 3
    assert owner.collect(RUN, digest_of("none"), 99, 99) == 2, "what a head names stays"
    assert scene.store.trace(RUN, -1, 99) == (last,)
    assert scene.store.find(RUN, "@1") == ()
    assert scene.store.archived(RUN, SEAL) == b"seal"
    assert open_store(scene.reader, create=False).archived(RUN, SEAL) == b"seal"
    assert owner.give_back().note
    owner.close()


@pytest.mark.parametrize("statement", ["DELETE FROM", "TRUNCATE"])
def test_not_even_the_owner_deletes_an_archive_by_mistake(scene: Scene, statement: str) -> None:
    owner = open_store(scene.owner, create=False)
    owner.archive(RUN, SEAL, b"seal")
    with pytest.raises(psycopg.Error) as refused:
        execute(scene.owner, f"{statement} counterfoil.archive")
    assert refused.value.sqlstate == GUARDED
    owner.close()


def test_a_worker_is_told_that_it_may_not_archive(scene: Scene) -> None:
    last = scene.chain[-1]
    with pytest.raises(ConfigError, match="does not allow this to the role"):
        scene.store.archive(RUN, SEAL, b"seal")
    with pytest.raises(ConfigError, match="does not allow this to the role"):
        scene.store.collect(RUN, last.digest, last.generation, 99)


FORBIDDEN_TO_A_WORKER = {
    "rewrite a checkpoint": "UPDATE counterfoil.checkpoint SET events = ''",
    "delete a checkpoint": "DELETE FROM counterfoil.checkpoint",
    "empty the checkpoints": "TRUNCATE counterfoil.checkpoint",
    "insert a checkpoint beside the function": (
        "INSERT INTO counterfoil.checkpoint (run, generation, lease_version, digest, settles, "
        "envelope, events) VALUES (1, 9, 1, sha256(''), '', '', '')"
    ),
    "rewrite a state": "UPDATE counterfoil.state SET state = ''",
    "delete states": "DELETE FROM counterfoil.state",
    "empty the states": "TRUNCATE counterfoil.state",
    "delete names": "DELETE FROM counterfoil.settled",
    "make an archive": "SELECT counterfoil.archive('run-1', 'seal', '')",
    "write an archive": "INSERT INTO counterfoil.archive VALUES (1, 'seal', '')",
    "empty the archives": "TRUNCATE counterfoil.archive",
    "drop what an archive stands for": "SELECT counterfoil.collect('run-1', '', 9, 9)",
    "lower a mark": "UPDATE counterfoil.run SET mark_version = -1",
    "delete a run": "DELETE FROM counterfoil.run",
    "lower a generation": "UPDATE counterfoil.head SET generation = 0",
    "move a head aside": "UPDATE counterfoil.head SET checkpoint = sha256('')",
    "lower a lease version": "UPDATE counterfoil.head SET lease_version = 0",
    "use a lease version again": "UPDATE counterfoil.head SET nonce = 'mine'",
    "delete a head": "DELETE FROM counterfoil.head",
    "empty the heads": "TRUNCATE counterfoil.head",
    "insert a head beside the function": (
        "INSERT INTO counterfoil.head VALUES ('x', 9, sha256(''), '', '', 9, 0, 'active', 0)"
    ),
    "name the register anew": "UPDATE counterfoil.register SET incarnation = 'mine'",
    "turn its clock back": "UPDATE counterfoil.register SET floor_ms = 0",
    "delete the register": "DELETE FROM counterfoil.register",
    "empty the register": "TRUNCATE counterfoil.register",
    "replace the clock": (
        "CREATE OR REPLACE FUNCTION counterfoil.now_ms() RETURNS bigint LANGUAGE sql AS 'SELECT 0'"
    ),
    "add a function": (
        "CREATE FUNCTION counterfoil.mine() RETURNS bigint LANGUAGE sql AS 'SELECT 0'"
    ),
    "set a floor that no clock showed": "SELECT counterfoil.keep_floor(9999999999999)",
    "switch a guard off": "ALTER TABLE counterfoil.head DISABLE TRIGGER ALL",
    "be another on a trigger's behalf": "SET session_replication_role = replica",
    "drop a table": "DROP TABLE counterfoil.head",
    "rename a table": "ALTER TABLE counterfoil.head RENAME TO old",
    "set the version of the tables": "UPDATE counterfoil.counterfoil_schema SET version = 9",
    "rewrite a statement": "UPDATE counterfoil.statement SET statement = ''",
    "empty the inbox": "TRUNCATE counterfoil.statement",
}


@pytest.mark.parametrize("attack", FORBIDDEN_TO_A_WORKER.values(), ids=FORBIDDEN_TO_A_WORKER)
def test_a_worker_cannot(still: Scene, attack: str) -> None:
    before = _everything(still)
    with pytest.raises(DENIED):
        execute(still.worker, attack)
    assert _everything(still) == before


@pytest.mark.parametrize("attack", FORBIDDEN_TO_A_WORKER.values(), ids=FORBIDDEN_TO_A_WORKER)
def test_a_reader_cannot_either(still: Scene, attack: str) -> None:
    with pytest.raises(DENIED):
        execute(still.reader, attack)


def test_a_worker_sets_no_floor_that_its_clock_does_not_show(scene: Scene) -> None:
    far = 10**15
    assert execute(scene.worker, "SELECT counterfoil.raise_floor(%s)", far)[0][0] < far
    assert scene.heads.renew(scene.head, TTL_MS).lease_version == 1


def test_a_worker_cannot_stand_another_object_in_the_place_of_ours(scene: Scene) -> None:
    with psycopg.connect(scene.worker, autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION pg_temp.now_ms() RETURNS bigint LANGUAGE sql AS 'SELECT 0::bigint'"
        )
        connection.execute("CREATE TEMPORARY TABLE register (incarnation bytea, floor_ms bigint)")
        connection.execute("CREATE TEMPORARY TABLE head AS SELECT * FROM counterfoil.head")
        connection.execute("SET search_path = pg_temp, counterfoil, pg_catalog")
        (renewed,) = connection.execute(
            "SELECT expires_at_ms FROM counterfoil.renew('run-1', 'nonce', 1, 900000000)"
        ).fetchall()
    head = scene.heads.read(RUN)
    assert head is not None
    assert renewed == (head.expires_at_ms,)
    assert head.expires_at_ms > 1_700_000_000_000


GUARDED_FROM_EVERYBODY = {
    what: attack
    for what, attack in FORBIDDEN_TO_A_WORKER.items()
    if attack.split()[0] in {"UPDATE", "DELETE", "TRUNCATE"} and "schema" not in attack
    if what != "delete states"
}


@pytest.mark.parametrize("attack", GUARDED_FROM_EVERYBODY.values(), ids=GUARDED_FROM_EVERYBODY)
def test_not_even_the_owner_does_it_by_mistake(still: Scene, attack: str) -> None:
    before = _everything(still)
    with pytest.raises(psycopg.Error) as caught:
        execute(still.owner, attack)
    assert caught.value.sqlstate == GUARDED
    assert _everything(still) == before


def test_a_state_that_is_needed_is_not_deleted_by_the_owner_either(still: Scene) -> None:
    with pytest.raises(psycopg.Error) as caught:
        execute(still.owner, "DELETE FROM counterfoil.state")
    assert caught.value.sqlstate == GUARDED
    assert still.store.trace(RUN, -1, 99) == tuple(still.chain)


def test_a_reader_reads_everything_but_nonces(scene: Scene) -> None:
    with ExitStack() as stack:
        store, heads, inbox = (
            opens(scene.reader, create=False) for opens in (open_store, open_heads, open_inbox)
        )
        for port in (store, heads, inbox):
            stack.callback(port.close)
        assert store.trace(RUN, -1, 99) == tuple(scene.chain)
        assert heads.read(RUN) == replace(scene.head, nonce="hidden")
        assert heads.heads("", 9) == (replace(scene.head, nonce="hidden"),)
        assert heads.claimable(9) == ()
        assert inbox.pending(RUN, 9) == (b"statement",)
        scene.heads.release(scene.head)
        free = heads.read(RUN)
        assert free is not None
        assert free.nonce == ""


@pytest.mark.parametrize("query", ["SELECT nonce FROM counterfoil.head", "TABLE counterfoil.head"])
def test_a_reader_sees_no_nonce(still: Scene, query: str) -> None:
    with pytest.raises(DENIED):
        execute(still.reader, query)
    assert b"nonce" not in [row[0] for row in execute(still.reader, _NONCES)]


_NONCES = "SELECT nonce FROM counterfoil.heads"


def test_a_reader_writes_nothing_through_the_ports(still: Scene) -> None:
    with ExitStack() as stack:
        store, heads, inbox = (
            opens(still.reader, create=False) for opens in (open_store, open_heads, open_inbox)
        )
        for port in (store, heads, inbox):
            stack.callback(port.close)
        for write in (
            lambda: store.put([sealed(9, "")]),
            lambda: store.mark(Mark(run_id=RUN, lease_version=9, envelope=b"")),
            lambda: store.prune(RUN, {}, 9),
            lambda: created(heads, OTHER_RUN),
            lambda: heads.renew(still.head, TTL_MS),
            lambda: heads.advance([move(still.head)]),
            lambda: heads.release(still.head),
            lambda: inbox.put(RUN, b"statement"),
            lambda: inbox.discard(RUN, b"statement"),
        ):
            with pytest.raises(ConfigError, match="does not allow this"):
                write()


def test_strangers_see_nothing(postgres: LocalPostgres, still: Scene) -> None:
    role = f"stranger_{os.getpid()}"
    execute(still.owner, f"CREATE ROLE {role} LOGIN PASSWORD '{postgres.password}'")
    url = still.owner.replace("app:", f"{role}:")
    try:
        for attack in ("SELECT 1 FROM counterfoil.head", "SELECT counterfoil.now_ms()"):
            with pytest.raises(DENIED):
                execute(url, attack)
    finally:
        execute(still.owner, f"DROP ROLE {role}")


def test_who_could_do_anything_is_not_granted_anything(still: Scene) -> None:
    with pytest.raises(ConfigError, match="superuser or owns"):
        grant_roles(still.owner, worker="app")
    with pytest.raises(ConfigError, match="has no role nobody"):
        grant_roles(still.owner, reader="nobody")
    with pytest.raises(ConfigError, match="letters, digits"):
        grant_roles(still.owner, reader='x"; DROP SCHEMA counterfoil; --')


def test_only_the_owner_grants(still: Scene) -> None:
    role = still.reader.partition("//")[2].partition(":")[0]
    with pytest.raises(ConfigError):
        grant_roles(still.worker, worker=role)
    with pytest.raises(DENIED):
        execute(still.reader, "SELECT counterfoil.now_ms(), counterfoil.raise_floor(1)")


def test_granting_twice_is_granting_once(still: Scene) -> None:
    roles = [url.partition("//")[2].partition(":")[0] for url in (still.worker, still.reader)]
    query = "SELECT relname, relacl::text FROM pg_class WHERE relacl IS NOT NULL ORDER BY 1"
    before = execute(still.owner, query)
    grant_roles(still.owner, worker=roles[0], reader=roles[1])
    assert execute(still.owner, query) == before


def test_grants_need_tables(postgres: LocalPostgres) -> None:
    with pytest.raises(ConfigError, match="no tables of ours"):
        grant_roles(fresh_database(postgres))


def test_a_guard_that_refuses_a_port_is_a_broken_invariant(scene: Scene) -> None:
    execute(
        scene.owner,
        "CREATE OR REPLACE FUNCTION counterfoil.renew(run bytea, held_nonce bytea, held_version "
        "bigint, ttl_ms bigint) RETURNS SETOF counterfoil.heads LANGUAGE plpgsql SECURITY "
        "DEFINER AS $$ BEGIN UPDATE counterfoil.head SET generation = 0; END $$",
    )
    with pytest.raises(InvariantError):
        scene.heads.renew(scene.head, TTL_MS)


def _everything(scene: Scene) -> list[object]:
    tables = ("run", "checkpoint", "state", "settled", "head", "register", "statement")
    return [execute(scene.owner, f"TABLE counterfoil.{name} ORDER BY 1") for name in tables]

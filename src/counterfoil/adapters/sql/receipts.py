"""The tables of receipts, and each statement on them: fences, receipts, forbidden keys.

They lie in the database that is acted on, so that effect and receipt are one commit.
Keys and runs are found by digest: a database may fold letters, and a digest has none to
fold. Whoever calls or forbids for a run holds the row of its fence until the commit, so
all that is done for one run comes one after the other.
"""

from typing import NamedTuple, TypeVar

import msgspec

from counterfoil.adapters.sql.database import Connection, Database, Rows, own
from counterfoil.adapters.sql.trouble import INSTALL
from counterfoil.core.bounds import RESULT_BYTES_MAX
from counterfoil.core.canonical import decode, digest, encode
from counterfoil.core.errors import ConfigError, FencedError, FormatError
from counterfoil.core.receipt import Fence, Receipt, Served
from counterfoil.core.words import Digest, Key, RunId

SCHEMA_VERSION = 1

BODY_BYTES_MAX = 2 * RESULT_BYTES_MAX
"""A result at its bound, and names around it."""

TABLES = {
    "environment": """
        CREATE TABLE {environment} (
            one INTEGER NOT NULL PRIMARY KEY,
            schema_version BIGINT NOT NULL,
            instance VARCHAR(64) NOT NULL,
            version BIGINT NOT NULL,
            probes BIGINT NOT NULL
        )""",
    "fence": """
        CREATE TABLE {fence} (
            run_digest VARCHAR(64) NOT NULL PRIMARY KEY,
            run_id {text} NOT NULL,
            lease_version BIGINT NOT NULL,
            nonce {text} NOT NULL,
            calls BIGINT NOT NULL,
            generation BIGINT,
            checkpoint VARCHAR(64)
        )""",
    "receipt": """
        CREATE TABLE {receipt} (
            key_digest VARCHAR(64) NOT NULL PRIMARY KEY,
            idempotency_key {text} NOT NULL,
            run_id {text} NOT NULL,
            kind {text} NOT NULL,
            intent_digest VARCHAR(100) NOT NULL,
            statement_digest VARCHAR(100) NOT NULL,
            lease_version BIGINT NOT NULL,
            nonce {text} NOT NULL,
            committed_at_ms BIGINT NOT NULL,
            generation BIGINT,
            checkpoint VARCHAR(64),
            body {text} NOT NULL
        )""",
    "forbidden": """
        CREATE TABLE {forbidden} (
            pair_digest VARCHAR(64) NOT NULL PRIMARY KEY,
            idempotency_key {text} NOT NULL,
            run_id {text} NOT NULL,
            lease_version BIGINT NOT NULL,
            forbidden_at_ms BIGINT NOT NULL
        )""",
}
"""By name, what makes each table. A statement's digest is that of the approval."""

Row = TypeVar("Row")


class Standing(NamedTuple):
    """What the environment's one row says.

    Attributes:
        schema_version: Of our tables.
        instance: Random, made with the tables.
        version: Raised by each effect of an adapter that watches.
        account: User that statements act as.
    """

    schema_version: int
    instance: str
    version: int
    account: str


class _FenceRow(NamedTuple):
    lease_version: int
    nonce: str
    generation: int | None
    checkpoint: str | None


class Book:
    """The tables of receipts inside one open transaction."""

    def __init__(self, database: Database, connection: Connection) -> None:
        self._database = database
        self._connection = connection

    def standing(self) -> Standing:
        """Return the environment's row.

        Raises:
            ConfigError: There is none, or the tables are of another version.
        """
        text = "SELECT schema_version, instance, version, {account} FROM {environment}"
        rows = self._own(text.replace("{account}", self._database.account))
        row = _first(rows, Standing)
        if row is None or row.schema_version != SCHEMA_VERSION:
            raise ConfigError(
                f"the tables of receipts in {self._database.title} are not of version "
                f"{SCHEMA_VERSION}",
                move=INSTALL,
            )
        return row

    def set_up(self, instance: str) -> None:
        """Write the environment's row."""
        self._own(
            "INSERT INTO {environment} (one, schema_version, instance, version, probes) "
            "VALUES (1, :schema_version, :instance, 0, 0)",
            schema_version=SCHEMA_VERSION,
            instance=instance,
        )

    def has_environment(self) -> bool:
        """Say whether the environment's row is there."""
        return bool(self._own("SELECT one FROM {environment}").rows)

    def count_effect(self) -> None:
        """Raise the version, and keep other effects that count from it until the commit."""
        self._own("UPDATE {environment} SET version = version + 1")

    def check_fence(self, run_id: RunId, fence: Fence) -> None:
        """Refuse a token that is not the standing one, and not newer.

        Raises:
            FencedError: A newer lease stands, or another holder's of the same version.
        """
        row = self._fence(run_id)
        if row is None:
            return
        if fence.lease_version < row.lease_version:
            raise FencedError(
                f"lease {fence.lease_version} was followed by {row.lease_version}", run_id
            )
        if fence.lease_version == row.lease_version and fence.nonce != row.nonce:
            raise FencedError(f"lease {row.lease_version} belongs to another holder", run_id)

    def hold(self, run_id: RunId, fence: Fence) -> None:
        """Raise the run's fence, and hold its row until the commit.

        An earlier call of the run that is still open is waited for here.

        Raises:
            FencedError: As `check_fence`.
        """
        run_digest = digest(run_id.encode())
        changed = self._own(
            "UPDATE {fence} SET calls = calls + 1, lease_version = :version, nonce = :nonce "
            "WHERE run_digest = :run_digest AND (lease_version < :least "
            "OR (lease_version = :same AND nonce = :same_nonce))",
            version=fence.lease_version,
            nonce=fence.nonce,
            run_digest=run_digest,
            least=fence.lease_version,
            same=fence.lease_version,
            same_nonce=fence.nonce,
        )
        if changed.count:
            return
        self.check_fence(run_id, fence)
        self._own(
            "INSERT INTO {fence} (run_digest, run_id, lease_version, nonce, calls) "
            "VALUES (:run_digest, :run_id, :version, :nonce, 1)",
            run_digest=run_digest,
            run_id=run_id,
            version=fence.lease_version,
            nonce=fence.nonce,
        )

    def served(self, run_id: RunId) -> Served | None:
        """Return the newest checkpoint that was served for a run."""
        row = self._fence(run_id)
        if row is None or row.generation is None or row.checkpoint is None:
            return None
        return Served(generation=row.generation, checkpoint=Digest(row.checkpoint))

    def set_served(self, run_id: RunId, served: Served | None) -> None:
        """Record a checkpoint that was served; an older one changes nothing."""
        if served is None:
            return
        self._own(
            "UPDATE {fence} SET generation = :generation, checkpoint = :checkpoint "
            "WHERE run_digest = :run_digest AND (generation IS NULL OR generation <= :most)",
            generation=served.generation,
            checkpoint=served.checkpoint,
            run_digest=digest(run_id.encode()),
            most=served.generation,
        )

    def receipt(self, key: Key) -> Receipt | None:
        """Return the receipt under a key, whichever run it belongs to.

        Raises:
            FormatError: What stands there is not what we wrote.
        """
        rows = self._own(
            "SELECT body FROM {receipt} WHERE key_digest = :key_digest",
            key_digest=digest(key.encode()),
        )
        row = _first(rows, tuple[str])
        if row is None:
            return None
        held = decode(row[0].encode(), Receipt, "a receipt", bytes_max=BODY_BYTES_MAX)
        if held.key != key:
            raise FormatError("a receipt stands under another key than its own")
        return held

    def add_receipt(self, added: Receipt, fence: Fence) -> None:
        """Record an effect; a row under its key belongs to another transaction."""
        served = added.served
        self._own(
            "INSERT INTO {receipt} (key_digest, idempotency_key, run_id, kind, intent_digest, "
            "statement_digest, lease_version, nonce, committed_at_ms, generation, checkpoint, "
            "body) VALUES (:key_digest, :key, :run_id, :kind, :intent, :statement, :version, "
            ":nonce, :committed_at_ms, :generation, :checkpoint, :body)",
            key_digest=digest(added.key.encode()),
            key=added.key,
            run_id=added.run_id,
            kind=added.kind,
            intent=added.digest,
            statement=added.statement,
            version=fence.lease_version,
            nonce=fence.nonce,
            committed_at_ms=added.committed_at_ms,
            generation=None if served is None else served.generation,
            checkpoint=None if served is None else served.checkpoint,
            body=encode(added).decode(),
        )

    def is_forbidden(self, run_id: RunId, key: Key) -> bool:
        """Say whether a key was made impossible for a run."""
        text = "SELECT pair_digest FROM {forbidden} WHERE pair_digest = :pair"
        return bool(self._own(text, pair=_pair(run_id, key)).rows)

    def forbid(self, run_id: RunId, key: Key, fence: Fence, at_ms: int) -> None:
        """Make a key impossible for a run; nothing if it is so already."""
        if self.is_forbidden(run_id, key):
            return
        self._own(
            "INSERT INTO {forbidden} (pair_digest, idempotency_key, run_id, lease_version, "
            "forbidden_at_ms) VALUES (:pair, :key, :run_id, :version, :at_ms)",
            pair=_pair(run_id, key),
            key=key,
            run_id=run_id,
            version=fence.lease_version,
            at_ms=at_ms,
        )

    def _fence(self, run_id: RunId) -> _FenceRow | None:
        rows = self._own(
            "SELECT lease_version, nonce, generation, checkpoint FROM {fence} "
            "WHERE run_digest = :run_digest",
            run_digest=digest(run_id.encode()),
        )
        return _first(rows, _FenceRow)

    def _own(self, text: str, **values: str | int | None) -> Rows:
        return own(self._database, self._connection, text, **values)


def _pair(run_id: RunId, key: Key) -> Digest:
    """Return the digest of a run and a key; neither holds a line end."""
    return digest(f"{run_id}\n{key}".encode())


def _first(answer: Rows, kind: type[Row]) -> Row | None:
    """Return the first row as the tuple that its query promises.

    Raises:
        FormatError: A column holds another type.
    """
    if not answer.rows:
        return None
    try:
        return msgspec.convert(answer.rows[0], kind)
    except msgspec.ValidationError as error:
        raise FormatError("a row of the tables of receipts is not as we write it") from error

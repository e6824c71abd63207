"""Store and register in one PostgreSQL schema: row and move are one statement and one commit."""

from collections.abc import Sequence

from counterfoil.core.codec import Checkpoint
from counterfoil.ports import Advance, Head
from counterfoil.stores.postgres_driver import Refusal
from counterfoil.stores.postgres_heads import PostgresHeads, answers, check_moves
from counterfoil.stores.postgres_pool import Access
from counterfoil.stores.postgres_rows import advance_call, put_call
from counterfoil.stores.postgres_store import check_rows, superseded

_COMMIT = """
WITH stored AS MATERIALIZED (SELECT {put} AS is_done)
SELECT moved_owner, moved_expires_at_ms FROM stored CROSS JOIN LATERAL {advance}
"""
_AFTER = "CASE WHEN is_done THEN {array} END"
"""The register's function is given its runs by the row of the store's: so it comes second."""

SUPERSEDED = "CF001"


class PostgresJoint:
    """A `Joint` in a PostgreSQL schema; safe to share by threads and processes."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._sql = access.place.sql
        self._heads = PostgresHeads(access)

    def commit(self, rows: Sequence[Checkpoint], moves: Sequence[Advance]) -> tuple[Head, ...]:
        """Store checkpoints and move heads on, all or none; see `Joint.commit`.

        Raises:
            LeaseLostError: A lease is not the caller's, or has expired, or the store is
                marked with a newer one.
            StaleHeadError: A generation or checkpoint is not the expected one.
            HeadMissingError: There is no such head.
            UnavailableError: Nothing happened.
            UnknownOutcomeError: The answer was lost; read the heads.
        """
        check_rows(rows)
        check_moves(moves)
        if not rows and not moves:
            return ()
        put, advance = put_call(rows), advance_call(moves, _AFTER)
        query = _COMMIT.replace("{put}", put.text).replace("{advance}", advance.text)
        try:
            answered = self._access.write(self._sql(query), (*put.bindings, *advance.bindings))
        except Refusal as refusal:
            if refusal.code == SUPERSEDED:
                raise superseded(refusal) from refusal
            raise self._heads.refused(refusal, moves) from refusal
        return answers(moves, answered)

    def close(self) -> None:
        """Let go of the connections; a second time does nothing."""
        self._access.close()

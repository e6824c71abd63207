"""The part of the store's port that keeps archives, and lets go of what they stand for."""

from typing import Protocol

from counterfoil.core.words import Digest, RunId


class Shelf(Protocol):
    """Archives of finished runs, beside their checkpoints. Passes `STORE_CLAUSES`.

    A part has a name, and what it means is for whoever reads it to verify.
    """

    def archive(self, run_id: RunId, name: str, content: bytes) -> None:
        """Keep one part of a run's archive durably; another one of its name is replaced.

        Raises:
            UnknownOutcomeError: The answer was lost; keeping it again is harmless.
        """
        ...

    def archived(self, run_id: RunId, name: str) -> bytes | None:
        """Return one part of a run's archive, or None."""
        ...

    def collect(self, run_id: RunId, checkpoint: Digest, generation: int, limit: int) -> int:
        """Drop whole checkpoints up to `generation`, but not `checkpoint`, oldest first.

        At most `limit` of them go, in one durable write. The archive and the mark stay.

        Returns:
            How many went. Where it is 0, what is left may not go.

        Raises:
            InvariantError: The run's archive has no part named `archive.SEAL`.
        """
        ...

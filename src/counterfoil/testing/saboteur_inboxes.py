"""Inboxes that each break one promise: they test the clauses."""

from counterfoil.core.errors import UnavailableError
from counterfoil.core.words import RunId
from counterfoil.ports import Inbox

MANY = 1_000
"""More statements than any clause puts."""


class Passing:
    """Hands every call on to a good inbox; breaks nothing.

    Attributes:
        inner: The good inbox.
    """

    def __init__(self, inner: Inbox) -> None:
        self.inner = inner

    def put(self, run_id: RunId, statement: bytes) -> None:
        """Hand on."""
        self.inner.put(run_id, statement)

    def pending(self, run_id: RunId, limit: int) -> tuple[bytes, ...]:
        """Hand on."""
        return self.inner.pending(run_id, limit)

    def discard(self, run_id: RunId, statement: bytes) -> None:
        """Hand on."""
        self.inner.discard(run_id, statement)

    def arrivals(self, after: str, limit: int) -> tuple[RunId, ...]:
        """Hand on."""
        return self.inner.arrivals(after, limit)

    def close(self) -> None:
        """Hand on."""
        self.inner.close()


class ListsWhatIsDone(Passing):
    """Goes on listing runs whose statements were all discarded."""

    def __init__(self, inner: Inbox) -> None:
        super().__init__(inner)
        self._seen: set[RunId] = set()

    def put(self, run_id: RunId, statement: bytes) -> None:
        """Remember the run for ever."""
        self._seen.add(run_id)
        self.inner.put(run_id, statement)

    def arrivals(self, after: str, limit: int) -> tuple[RunId, ...]:
        """Return every run that ever had a statement."""
        return tuple(sorted(run_id for run_id in self._seen if run_id > after)[:limit])


class ListsWithoutEnd(Passing):
    """Ignores the limit of a page of runs."""

    def arrivals(self, after: str, limit: int) -> tuple[RunId, ...]:
        """Return all."""
        return self.inner.arrivals(after, MANY)


class ListsByAlphabet(Passing):
    """Orders run ids as a person would, so that pages by code point do not join."""

    def arrivals(self, after: str, limit: int) -> tuple[RunId, ...]:
        """Fold letters before comparing."""
        runs = sorted(self.inner.arrivals("", MANY), key=str.casefold)
        return tuple(run for run in runs if run.casefold() > after.casefold())[:limit]


class NewestFirst(Passing):
    """Returns statements from the last."""

    def pending(self, run_id: RunId, limit: int) -> tuple[bytes, ...]:
        """Turn the order round."""
        return tuple(reversed(self.inner.pending(run_id, limit)))


class SortsStatements(Passing):
    """Returns statements in order of their bytes."""

    def pending(self, run_id: RunId, limit: int) -> tuple[bytes, ...]:
        """Sort."""
        return tuple(sorted(self.inner.pending(run_id, limit)))


class KeepsRepetitions(Passing):
    """Takes the same bytes twice for two."""

    def __init__(self, inner: Inbox) -> None:
        super().__init__(inner)
        self._again: list[bytes] = []

    def put(self, run_id: RunId, statement: bytes) -> None:
        """Keep it once more."""
        if statement in self.inner.pending(run_id, MANY):
            self._again.append(statement)
        self.inner.put(run_id, statement)

    def pending(self, run_id: RunId, limit: int) -> tuple[bytes, ...]:
        """Return repetitions too."""
        return (*self.inner.pending(run_id, limit), *self._again)[:limit]


class CutsAtNul(Passing):
    """Takes a statement for a string of C."""

    def put(self, run_id: RunId, statement: bytes) -> None:
        """Keep what is before the first NUL."""
        self.inner.put(run_id, statement.split(b"\x00")[0] or b"empty")


class ReturnsEverything(Passing):
    """Ignores the limit."""

    def pending(self, run_id: RunId, limit: int) -> tuple[bytes, ...]:
        """Return all."""
        return self.inner.pending(run_id, MANY)


class MixesRuns(Passing):
    """Takes a part of the run id for the whole."""

    def put(self, run_id: RunId, statement: bytes) -> None:
        """Keep it under the first letters."""
        self.inner.put(RunId(run_id[:4]), statement)

    def pending(self, run_id: RunId, limit: int) -> tuple[bytes, ...]:
        """Look under the first letters."""
        return self.inner.pending(RunId(run_id[:4]), limit)


class StaleReads(Passing):
    """Reads once, and believes it for ever."""

    def __init__(self, inner: Inbox) -> None:
        super().__init__(inner)
        self._seen: dict[RunId, tuple[bytes, ...]] = {}

    def pending(self, run_id: RunId, limit: int) -> tuple[bytes, ...]:
        """Answer as the first time."""
        if run_id not in self._seen:
            self._seen[run_id] = self.inner.pending(run_id, limit)
        return self._seen[run_id]


class DiscardsNothing(Passing):
    """Says that it dropped a statement, and keeps it."""

    def discard(self, run_id: RunId, statement: bytes) -> None:
        """Return without dropping."""


class DiscardsTheFirst(Passing):
    """Takes what is discarded for the one that waits longest."""

    def discard(self, run_id: RunId, statement: bytes) -> None:
        """Drop the oldest."""
        for oldest in self.inner.pending(run_id, 1):
            self.inner.discard(run_id, oldest)


class DiscardsForEveryRun(Passing):
    """Looks a statement up whatever run it is for."""

    def __init__(self, inner: Inbox) -> None:
        super().__init__(inner)
        self._runs: list[RunId] = []

    def put(self, run_id: RunId, statement: bytes) -> None:
        """Remember the run."""
        self._runs.append(run_id)
        self.inner.put(run_id, statement)

    def discard(self, run_id: RunId, statement: bytes) -> None:
        """Drop it for every run."""
        for each in self._runs:
            self.inner.discard(each, statement)


class RemembersWhatItDiscarded(Passing):
    """Takes a statement that is sent again for one that was dropped."""

    def __init__(self, inner: Inbox) -> None:
        super().__init__(inner)
        self._dropped: set[bytes] = set()

    def put(self, run_id: RunId, statement: bytes) -> None:
        """Keep it unless it was dropped once."""
        if statement not in self._dropped:
            self.inner.put(run_id, statement)

    def discard(self, run_id: RunId, statement: bytes) -> None:
        """Drop it for good."""
        self._dropped.add(statement)
        self.inner.discard(run_id, statement)


class ClosesOnce(Passing):
    """Fails when it is closed a second time."""

    _is_closed = False

    def close(self) -> None:
        """Close, or fail."""
        if self._is_closed:
            raise UnavailableError("the inbox is closed")
        self._is_closed = True
        self.inner.close()

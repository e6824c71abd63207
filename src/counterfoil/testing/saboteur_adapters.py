"""Adapters that each break one promise: they test the clauses.

Each wraps a good adapter of a transactional target. A suite that lets one of them
through lacks a clause.
"""

import itertools
from collections.abc import Mapping

from msgspec.structs import replace

from counterfoil.core.bounds import RESULT_BYTES_MAX
from counterfoil.core.errors import (
    FencedError,
    IdempotencyConflictError,
    RefusedError,
    UnavailableError,
)
from counterfoil.core.intent import KindSpec
from counterfoil.core.receipt import ABSENT, Answer, Fence, LookUp, Receipt, Served, found
from counterfoil.core.words import Digest, IntentDigest, Key, RunId
from counterfoil.ports import Adapter, Observation, Operation


class Passing:
    """Hands every call on to a good adapter; breaks nothing.

    Attributes:
        inner: The good adapter.
    """

    def __init__(self, inner: Adapter) -> None:
        self.inner = inner

    @property
    def name(self) -> str:
        """Name of the good adapter."""
        return self.inner.name

    @property
    def kinds(self) -> tuple[KindSpec, ...]:
        """Kinds of the good adapter."""
        return self.inner.kinds

    def take(self, run_id: RunId, fence: Fence) -> Served | None:
        """Hand on."""
        return self.inner.take(run_id, fence)

    def observe(self, scope: Mapping[str, tuple[str, ...]]) -> Observation:
        """Hand on."""
        return self.inner.observe(scope)

    def look_up(self, run_id: RunId, key: Key, kind: str) -> LookUp:
        """Hand on."""
        return self.inner.look_up(run_id, key, kind)

    def execute(self, operation: Operation) -> Receipt:
        """Hand on."""
        return self.inner.execute(operation)

    def forbid(self, run_id: RunId, key: Key, kind: str, fence: Fence) -> LookUp:
        """Hand on."""
        return self.inner.forbid(run_id, key, kind, fence)

    def close(self) -> None:
        """Hand on."""
        self.inner.close()


class ForgetsReceipts(Passing):
    """Says absent of what it did."""

    def look_up(self, run_id: RunId, key: Key, kind: str) -> LookUp:
        """Answer absent, always."""
        return ABSENT


class RemembersOnlyItsOwn(Passing):
    """Keeps receipts in the adapter, so that they end with it."""

    def __init__(self, inner: Adapter) -> None:
        super().__init__(inner)
        self._done: dict[Key, Receipt] = {}

    def execute(self, operation: Operation) -> Receipt:
        """Do it and remember it here."""
        receipt = self.inner.execute(operation)
        self._done[operation.key] = receipt
        return receipt

    def look_up(self, run_id: RunId, key: Key, kind: str) -> LookUp:
        """Answer from what is remembered here."""
        return self.inner.look_up(run_id, key, kind) if key in self._done else ABSENT


class AbsentOnError(Passing):
    """Takes an error while asking for absence."""

    def look_up(self, run_id: RunId, key: Key, kind: str) -> LookUp:
        """Answer absent where the truth is unknown."""
        answer = self.inner.look_up(run_id, key, kind)
        return ABSENT if answer.answer is Answer.UNKNOWN else answer


class FoundForEverybody(Passing):
    """Gives out another run's receipt as the asking run's own."""

    def look_up(self, run_id: RunId, key: Key, kind: str) -> LookUp:
        """Answer found, and put the asking run's name on it."""
        receipt = self.inner.look_up(run_id, key, kind).receipt
        return found(replace(receipt, run_id=run_id)) if receipt else ABSENT


class FoldsKeys(Passing):
    """Keeps keys as names of files on a disk that folds case."""

    def look_up(self, run_id: RunId, key: Key, kind: str) -> LookUp:
        """Look under the folded key."""
        return self.inner.look_up(run_id, Key(key.casefold()), kind)

    def execute(self, operation: Operation) -> Receipt:
        """Execute under the folded key."""
        return self.inner.execute(replace(operation, key=Key(operation.key.casefold())))


class ExecutesTwice(Passing):
    """Does it a second time when the same call comes again."""

    _numbers = itertools.count()

    def execute(self, operation: Operation) -> Receipt:
        """Execute under a key that nobody has used."""
        if not operation.key:
            return self.inner.execute(operation)
        fresh = Key(f"{operation.key} {next(self._numbers)}")
        prestate = self.inner.observe(operation.scope).state
        receipt = self.inner.execute(replace(operation, key=fresh, prestate=prestate))
        return replace(receipt, key=operation.key)


class HidesReplays(Passing):
    """Gives the first receipt out again as a new one."""

    def execute(self, operation: Operation) -> Receipt:
        """Say that it is no replay."""
        return replace(self.inner.execute(operation), replayed=False)


class RenumbersReceipts(Passing):
    """Gives each answer an id of its own."""

    _numbers = itertools.count()

    def execute(self, operation: Operation) -> Receipt:
        """Put another id on each answer."""
        receipt = self.inner.execute(operation)
        return replace(receipt, id=f"{receipt.id} {next(self._numbers)}") if receipt.id else receipt


class TakesAnyIntentForTheFirst(Passing):
    """Answers a used key without comparing what is asked under it."""

    def execute(self, operation: Operation) -> Receipt:
        """Answer a conflict with the receipt that is there."""
        try:
            return self.inner.execute(operation)
        except IdempotencyConflictError:
            answer = self.inner.look_up(operation.run_id, operation.key, operation.kind)
            if answer.receipt is None:
                raise
            return replace(answer.receipt, replayed=True)


class ReceiptOfOther(Passing):
    """Puts another run's name on its receipts."""

    def execute(self, operation: Operation) -> Receipt:
        """Name a run that did not ask."""
        return replace(self.inner.execute(operation), run_id=RunId("somebody-else"))


class ForgetsTheDigest(Passing):
    """Claims to be transactional and records no intent digest."""

    def execute(self, operation: Operation) -> Receipt:
        """Leave the digest out."""
        return replace(self.inner.execute(operation), digest=IntentDigest(""))


class IgnoresFence(Passing):
    """Lets every token pass."""

    _versions = itertools.count(1_000)

    def _newest(self) -> Fence:
        return Fence(lease_version=next(self._versions), nonce="newest")

    def take(self, run_id: RunId, fence: Fence) -> Served | None:
        """Raise the fence beyond whatever stands."""
        return self.inner.take(run_id, self._newest())

    def execute(self, operation: Operation) -> Receipt:
        """Execute under a token that is newer than any."""
        return self.inner.execute(replace(operation, fence=self._newest()))

    def forbid(self, run_id: RunId, key: Key, kind: str, fence: Fence) -> LookUp:
        """Forbid under a token that is newer than any."""
        return self.inner.forbid(run_id, key, kind, self._newest())


class IgnoresNonce(Passing):
    """Compares lease versions alone."""

    def take(self, run_id: RunId, fence: Fence) -> Served | None:
        """Take without the nonce."""
        return self.inner.take(run_id, replace(fence, nonce=""))

    def execute(self, operation: Operation) -> Receipt:
        """Execute without the nonce."""
        return self.inner.execute(replace(operation, fence=replace(operation.fence, nonce="")))


class FencesAllRunsTogether(Passing):
    """Keeps one fence for every run."""

    def take(self, run_id: RunId, fence: Fence) -> Served | None:
        """Take for everybody."""
        return self.inner.take(RunId("everybody"), fence)


class ForgetsWhatItServed(Passing):
    """Answers a take with nothing."""

    def take(self, run_id: RunId, fence: Fence) -> Served | None:
        """Raise the fence, and say that nothing was served."""
        self.inner.take(run_id, fence)
        return None


class InventsWhatItServed(Passing):
    """Answers the first take with a checkpoint that nobody wrote."""

    def take(self, run_id: RunId, fence: Fence) -> Served | None:
        """Raise the fence, and name a checkpoint."""
        served = self.inner.take(run_id, fence)
        return served or Served(generation=0, checkpoint=Digest("0" * 64))


class RefusesItsOwnHolder(Passing):
    """Refuses a call under the lease that was just taken."""

    def __init__(self, inner: Adapter) -> None:
        super().__init__(inner)
        self._taken: list[Fence] = []

    def take(self, run_id: RunId, fence: Fence) -> Served | None:
        """Take, and remember by which token."""
        self._taken.append(fence)
        return self.inner.take(run_id, fence)

    def execute(self, operation: Operation) -> Receipt:
        """Refuse the very token that was taken."""
        if operation.fence in self._taken:
            raise FencedError("this token was used up by the take", operation.run_id)
        return self.inner.execute(operation)


class ForbidIsIgnored(Passing):
    """Answers absent and forbids nothing."""

    def forbid(self, run_id: RunId, key: Key, kind: str, fence: Fence) -> LookUp:
        """Forbid nothing."""
        return ABSENT


class ForbidsBlindly(Passing):
    """Answers absent without looking whether it is done."""

    def forbid(self, run_id: RunId, key: Key, kind: str, fence: Fence) -> LookUp:
        """Forbid, and answer absent."""
        self.inner.forbid(run_id, key, kind, fence)
        return ABSENT


class IgnoresPrestate(Passing):
    """Writes on whatever it finds."""

    def execute(self, operation: Operation) -> Receipt:
        """Take the state as it is for the state that was meant."""
        prestate = self.inner.observe(operation.scope).state
        return self.inner.execute(replace(operation, prestate=prestate))


class ChecksPrestateBeforeTheKey(Passing):
    """Refuses a replay, since the effect itself moved the state."""

    def execute(self, operation: Operation) -> Receipt:
        """Compare the state before the key."""
        if operation.key and self.inner.observe(operation.scope).state != operation.prestate:
            raise RefusedError("the state moved", operation.run_id, operation.key)
        return self.inner.execute(operation)


class RefusesLostAnswers(Passing):
    """Takes a lost answer for a call that never left."""

    def execute(self, operation: Operation) -> Receipt:
        """Say that nothing happened."""
        try:
            return self.inner.execute(operation)
        except OSError as error:
            raise UnavailableError("no answer, so nothing happened") from error


class ReportsThePrestate(Passing):
    """Says that the world is as it was."""

    def execute(self, operation: Operation) -> Receipt:
        """Put the prestate in the place of the poststate."""
        return replace(self.inner.execute(operation), poststate=operation.prestate)


class NumbersItsReads(Passing):
    """Gives a read the receipt of an effect."""

    def execute(self, operation: Operation) -> Receipt:
        """Put an id and a key on every answer."""
        receipt = self.inner.execute(operation)
        return replace(receipt, id=receipt.id or "read-1", key=receipt.key or Key("key-0"))


class AnswersWithoutEnd(Passing):
    """Returns more than a receipt may hold."""

    def execute(self, operation: Operation) -> Receipt:
        """Answer with a result over the bound."""
        return replace(self.inner.execute(operation), result="x" * RESULT_BYTES_MAX)


class SeesSomethingElseEachTime(Passing):
    """Counts its looks into the state."""

    _numbers = itertools.count()

    def observe(self, scope: Mapping[str, tuple[str, ...]]) -> Observation:
        """Return a state that changes by being looked at."""
        seen = self.inner.observe(scope)
        number = next(self._numbers)
        return replace(seen, state=replace(seen.state, fingerprint=f"look {number}"))


class ObservesFromMemory(Passing):
    """Shows what it saw first, for ever."""

    def __init__(self, inner: Adapter) -> None:
        super().__init__(inner)
        self._seen: Observation | None = None

    def observe(self, scope: Mapping[str, tuple[str, ...]]) -> Observation:
        """Return the first look again."""
        if self._seen is None:
            self._seen = self.inner.observe(scope)
        return self._seen

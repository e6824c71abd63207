"""The world that sandbox adapters reach, and what can go wrong on the way to it.

A `World` plays the part of a real target. It outlives sessions, several adapters reach
the same one, and each call is one atomic act. It counts the effects it applied, so that
a test asks the target itself how often something happened.
"""

import threading
import time
from collections.abc import Callable, Mapping
from enum import Enum

import msgspec

from counterfoil.adapters.sandbox.promises import Promises
from counterfoil.adapters.sandbox.target import Effect, Target
from counterfoil.core.errors import CounterfoilError, UnavailableError
from counterfoil.core.intent import EnvironmentState
from counterfoil.core.receipt import Fence, LookUp, Receipt, Served, unknown
from counterfoil.core.words import Key, RunId
from counterfoil.ports import Operation


class _Fault(Enum):
    FAIL_BEFORE = "nothing happens"
    LOSE_ANSWER = "it happens and nobody hears of it"
    DELAY = "it happens later, if it still may"


def wall_ms() -> int:
    """Return the wall clock, UTC, in milliseconds."""
    return time.time_ns() // 1_000_000


class World:
    """Files behind a counter, safe to share among threads and adapters.

    Faults are set for the next call of `execute`, in the order they were asked for.

    Args:
        files: Content of each file, by canonical path.
        tests: Per test target, the files that it wants to see.
        instance: Identity of this environment.
        account: Account that adapters act as.
        now_ms: The world's own clock, UTC.
    """

    def __init__(
        self,
        files: Mapping[str, str] | None = None,
        *,
        tests: Mapping[str, Mapping[str, str]] | None = None,
        instance: str = "world-1",
        account: str = "",
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self._target = Target(files or {}, tests or {}, instance, account, now_ms)
        self._faults: list[_Fault] = []
        self._delayed: list[tuple[Operation, Promises, str]] = []
        self._is_reachable = True
        self._lock = threading.RLock()

    @property
    def files(self) -> dict[str, str]:
        """A copy of the files as they are."""
        with self._lock:
            return dict(self._target.files)

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the test targets."""
        return tuple(self._target.tests)

    @property
    def version(self) -> int:
        """Raised by one with every write, whoever made it."""
        return self._target.version

    @property
    def effects(self) -> tuple[Effect, ...]:
        """Writes that were applied for runs, in order; those of other actors are not in it."""
        with self._lock:
            return tuple(self._target.effects)

    @property
    def write_count(self) -> int:
        """How many writes were applied for runs."""
        return len(self._target.effects)

    @property
    def receipts(self) -> dict[Key, Receipt]:
        """A copy of what is on record under each key."""
        with self._lock:
            return dict(self._target.receipts)

    def state(self, adapter: str) -> tuple[EnvironmentState, dict[str, str]]:
        """Return the exact state, and the files that it is the state of.

        Raises:
            UnavailableError: The world is cut off.
        """
        with self._lock:
            self._reach()
            return self._target.state(adapter), dict(self._target.files)

    def take(self, run_id: RunId, fence: Fence) -> Served | None:
        """Raise the fence of a run and return what was served last for it.

        Raises:
            FencedError: A newer fence, or an equal version with another nonce, stands.
            UnavailableError: The world is cut off.
        """
        with self._lock:
            self._reach()
            return self._target.take(run_id, fence)

    def look_up(self, run_id: RunId, key: Key, promises: Promises) -> LookUp:
        """Return what is on record under a key; unknown while the world is cut off."""
        with self._lock:
            if not self._is_reachable:
                return unknown("the world is cut off")
            return self._target.look_up(run_id, key, promises)

    def forbid(self, run_id: RunId, key: Key, fence: Fence, promises: Promises) -> LookUp:
        """Make a key impossible for a run, unless something is on record under it.

        Raises:
            FencedError: The fence is old.
            UnavailableError: The world is cut off.
        """
        with self._lock:
            self._reach()
            return self._target.forbid(run_id, key, fence, promises)

    def execute(self, operation: Operation, promises: Promises, adapter: str) -> Receipt:
        """Do it, unless a fault is set for this call.

        Raises:
            CounterfoilError: It was refused, and nothing happened.
            ConnectionError: The answer is lost.
            TimeoutError: The call is still under way.
        """
        with self._lock:
            self._reach()
            fault = self._faults.pop(0) if self._faults else None
            if fault is _Fault.FAIL_BEFORE:
                raise UnavailableError("the world did not open its door", operation.run_id)
            if fault is _Fault.DELAY:
                self._delayed.append((operation, promises, adapter))
                raise TimeoutError("no answer in time")
            answer = self._target.answer(operation, promises, adapter)
        if fault is _Fault.LOSE_ANSWER:
            raise ConnectionError("the answer was lost")
        if isinstance(answer, CounterfoilError):
            raise answer
        return answer

    def fail_before_next(self) -> None:
        """Refuse the next call at the door: nothing happens."""
        self._faults.append(_Fault.FAIL_BEFORE)

    def lose_next_answer(self) -> None:
        """Let the next call happen, and lose its answer, be it a receipt or a refusal."""
        self._faults.append(_Fault.LOSE_ANSWER)

    def delay_next(self) -> None:
        """Keep the next call under way until `land_delayed`; its caller hears nothing."""
        self._faults.append(_Fault.DELAY)

    def land_delayed(self) -> tuple[Receipt | CounterfoilError, ...]:
        """Let every call under way arrive, and return what its caller would have heard.

        What the level refuses is refused as the call lands, not as it was sent.
        """
        with self._lock:
            delayed, self._delayed = self._delayed, []
            return tuple(self._target.answer(*call) for call in delayed)

    def cut_off(self) -> None:
        """Make the world unreachable: nothing arrives, and look-ups are unknown."""
        self._is_reachable = False

    def reconnect(self) -> None:
        """Make the world reachable again."""
        self._is_reachable = True

    def other_actor_writes(self, path: str, content: str) -> None:
        """Change a file as somebody else would: the version rises."""
        with self._lock:
            self._target.files[path] = content
            self._target.version += 1

    def tamper(self, path: str, content: str) -> None:
        """Change a file behind the version's back."""
        with self._lock:
            self._target.files[path] = content

    def plant(self, receipt: Receipt) -> None:
        """Put a receipt on record under its key, in place of one that is there."""
        with self._lock:
            self._target.receipts[receipt.key] = receipt

    def drop_receipt(self, key: str) -> None:
        """Forget what is on record under a key."""
        with self._lock:
            self._target.receipts.pop(Key(key), None)

    def alter_receipt(self, key: str, **fields: object) -> None:
        """Change fields of the receipt that is on record under a key."""
        with self._lock:
            receipt = self._target.receipts[Key(key)]
            self._target.receipts[Key(key)] = msgspec.structs.replace(receipt, **fields)

    def replace_instance(self, instance: str) -> None:
        """Become another environment with the same content."""
        with self._lock:
            self._target.instance = instance

    def change_account(self, account: str) -> None:
        """Let adapters act as another account."""
        with self._lock:
            self._target.account = account

    def _reach(self) -> None:
        if not self._is_reachable:
            raise UnavailableError("the world is cut off")

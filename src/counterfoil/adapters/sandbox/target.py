"""What the sandbox's target keeps, and the rules by which it answers one call.

Every method is one atomic act under the lock of its `World`; nothing here knows of
threads, of lost answers, or of who else may reach it.
"""

from collections.abc import Callable, Mapping

import msgspec
from msgspec.structs import replace

from counterfoil.adapters.sandbox.promises import Promises
from counterfoil.core.canonical import canonical, digest
from counterfoil.core.errors import (
    CounterfoilError,
    FencedError,
    IdempotencyConflictError,
    RefusedError,
    StaleObservationError,
)
from counterfoil.core.intent import EnvironmentState
from counterfoil.core.receipt import ABSENT, Answer, Fence, LookUp, Receipt, Served, found, unknown
from counterfoil.core.words import Digest, IntentDigest, Json, Key, RunId
from counterfoil.ports import Operation

READ = "read_file"
WRITE = "write_file"
TEST = "run_tests"


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """One write that the world applied.

    Attributes:
        run_id: For which run.
        key: Under which key.
        digest: Digest of the intent it was called with.
        path: Which file.
        content: What it holds since.
        version: Version of the world right after.
    """

    run_id: RunId
    key: Key
    digest: IntentDigest
    path: str
    content: str
    version: int


class Target:
    """Files behind a counter, with all that is remembered about calls.

    Attributes:
        files: The files as they are.
        tests: Per test target, the files that it wants to see.
        instance: Identity of this environment.
        account: Account that adapters act as.
        version: Raised by one with every write, whoever made it.
        effects: Writes that were applied for runs, in order.
        receipts: What is on record under each key.
    """

    def __init__(
        self,
        files: Mapping[str, str],
        tests: Mapping[str, Mapping[str, str]],
        instance: str,
        account: str,
        now_ms: Callable[[], int],
    ) -> None:
        self.files = dict(files)
        self.tests = {target: dict(wanted) for target, wanted in tests.items()}
        self.instance = instance
        self.account = account
        self.version = 0
        self.effects: list[Effect] = []
        self.receipts: dict[Key, Receipt] = {}
        self._now_ms = now_ms
        self._forbidden: set[tuple[RunId, Key]] = set()
        self._fences: dict[RunId, Fence] = {}
        self._served: dict[RunId, Served] = {}

    def state(self, adapter: str) -> EnvironmentState:
        """Return identity, version and fingerprint of the files."""
        return EnvironmentState(
            adapter=adapter,
            instance=self.instance,
            version=self.version,
            fingerprint=fingerprint(self.files),
            account=self.account,
        )

    def take(self, run_id: RunId, fence: Fence) -> Served | None:
        """Raise the fence of a run and return what was served last for it."""
        self._pass_fence(run_id, fence)
        return self._served.get(run_id)

    def look_up(self, run_id: RunId, key: Key, promises: Promises) -> LookUp:
        """Return what is on record under a key."""
        if not promises.answers:
            return unknown("this target cannot be asked")
        receipt = self._standing(key, promises)
        if receipt is None:
            return ABSENT
        if promises.shares_keys:
            receipt = replace(receipt, run_id=run_id)
        if receipt.run_id != run_id:
            return LookUp(answer=Answer.FOUND_OTHER, receipt=receipt)
        return found(receipt)

    def forbid(self, run_id: RunId, key: Key, fence: Fence, promises: Promises) -> LookUp:
        """Make a key impossible for a run, unless something is on record under it."""
        self._pass_fence(run_id, fence)
        answer = self.look_up(run_id, key, promises)
        if answer.answer is Answer.ABSENT:
            self._forbidden.add((run_id, key))
        return answer

    def answer(
        self, operation: Operation, promises: Promises, adapter: str
    ) -> Receipt | CounterfoilError:
        """Do what is asked, and return the receipt or the refusal."""
        try:
            if operation.kind == WRITE:
                return self._write(operation, promises, adapter)
        except CounterfoilError as refusal:
            return refusal
        return Receipt(
            id="",
            adapter=adapter,
            kind=operation.kind,
            run_id=operation.run_id,
            key=Key(""),
            digest=operation.digest,
            level=promises.level,
            poststate=self.state(adapter),
            committed_at_ms=self._now_ms(),
            result=self._look(operation),
        )

    def _look(self, operation: Operation) -> Json:
        if operation.kind == READ:
            path = operation.arguments["path"]
            return {"path": path, "content": self.files.get(path)}
        return self._verdict(operation.arguments["target"])

    def _verdict(self, target: str) -> Json:
        wanted = self.tests.get(target, {})
        differs = sorted(path for path, text in wanted.items() if self.files.get(path) != text)
        return {"target": target, "passed": bool(wanted) and not differs, "differs": differs}

    def _write(self, operation: Operation, promises: Promises, adapter: str) -> Receipt:
        if promises.fences:
            self._pass_fence(operation.run_id, operation.fence)
        earlier = self._earlier(operation, promises)
        if earlier is not None:
            self._remember_served(operation, promises)
            return earlier
        if (operation.run_id, operation.key) in self._forbidden:
            raise RefusedError("the key was made impossible", operation.run_id, operation.key)
        if promises.checks_prestate and self.state(adapter) != operation.prestate:
            raise StaleObservationError(
                f"the world is at version {self.version}, "
                f"the write was built on {operation.prestate.version}",
                operation.run_id,
                operation.key,
            )
        self._remember_served(operation, promises)
        return self._apply(operation, promises, adapter)

    def _earlier(self, operation: Operation, promises: Promises) -> Receipt | None:
        """Return the receipt that a repeated key has earned."""
        receipt = self._standing(operation.key, promises) if promises.keeps_keys else None
        if receipt is None:
            return None
        is_ours = receipt.run_id == operation.run_id or promises.shares_keys
        if not is_ours or receipt.digest != operation.digest:
            raise IdempotencyConflictError(
                "the key holds another effect", operation.run_id, operation.key
            )
        return replace(receipt, run_id=operation.run_id, replayed=True)

    def _apply(self, operation: Operation, promises: Promises, adapter: str) -> Receipt:
        path, content = operation.arguments["path"], operation.arguments["content"]
        self.files[path] = content
        self.version += 1
        effect = Effect(
            run_id=operation.run_id,
            key=operation.key,
            digest=operation.digest,
            path=path,
            content=content,
            version=self.version,
        )
        self.effects.append(effect)
        receipt = Receipt(
            id=f"{self.instance}/{len(self.effects)}",
            adapter=adapter,
            kind=operation.kind,
            run_id=operation.run_id,
            key=operation.key,
            digest=operation.digest if promises.keeps_digest else IntentDigest(""),
            level=promises.level,
            poststate=self.state(adapter),
            committed_at_ms=self._now_ms(),
            served=operation.served if promises.keeps_evidence else None,
            statement=operation.statement if promises.keeps_evidence else "",
            result={"path": path, "version": self.version},
        )
        self.receipts[operation.key] = receipt
        return receipt

    def _standing(self, key: Key, promises: Promises) -> Receipt | None:
        """Return what is on record under a key and not forgotten yet."""
        receipt = self.receipts.get(key)
        if receipt is None or promises.retention_ms is None:
            return receipt
        age_ms = self._now_ms() - receipt.committed_at_ms
        return receipt if age_ms < promises.retention_ms else None

    def _pass_fence(self, run_id: RunId, fence: Fence) -> None:
        """Refuse an old token; a newer one becomes the fence."""
        standing = self._fences.get(run_id)
        is_new = standing is None or fence.lease_version > standing.lease_version
        if standing is not None and fence != standing and not is_new:
            raise FencedError(
                f"lease {fence.lease_version} is over, {standing.lease_version} stands", run_id
            )
        self._fences[run_id] = fence

    def _remember_served(self, operation: Operation, promises: Promises) -> None:
        if promises.fences and operation.served is not None:
            self._served[operation.run_id] = operation.served


def fingerprint(files: Mapping[str, str]) -> Digest:
    """Return the digest of a file map."""
    return digest(canonical(dict(files)))

"""Files below one root as the engine sees them: one port, one lock, one journal.

Each method is one turn: take the lock, bring a plan that a killed call left behind to
its end, then answer. A change is made durable as a plan before its one atomic rename,
and as a receipt after it, so every kill is decided by looking.
"""

import errno
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress

from msgspec.structs import replace

from counterfoil import journals
from counterfoil.adapters.files import journal, kinds, settling
from counterfoil.adapters.files.draft import Draft, drafted
from counterfoil.adapters.files.journal import PlanState, transaction, translated
from counterfoil.adapters.files.plan import Plan
from counterfoil.adapters.files.preview import preview
from counterfoil.adapters.files.reading import observe, read
from counterfoil.adapters.files.realm import is_covered, patterns
from counterfoil.adapters.files.site import Site, close_site, leftover, turn
from counterfoil.adapters.files.swap import rename, sweep
from counterfoil.adapters.files.trouble import name_of, refusal
from counterfoil.core.errors import (
    ContractError,
    CounterfoilError,
    IdempotencyConflictError,
    PermissionDeniedError,
    StaleObservationError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.intent import KindSpec
from counterfoil.core.receipt import ABSENT, Answer, Fence, LookUp, Receipt, Served, found, unknown
from counterfoil.core.words import Json, Key, RunId
from counterfoil.ports import Observation, Operation


class FilesAdapter:
    """Reads, writes, deletes and moves files below one root, each change once per key.

    Args:
        site: What `open_files` opened; `close` lets go of it.
        now_ms: Clock, UTC.
        account: Account to report; empty when that does not matter.
    """

    def __init__(self, site: Site, *, now_ms: Callable[[], int], account: str) -> None:
        self._site = site
        self._now_ms = now_ms
        self._account = account
        self._kinds = kinds.kinds()
        self._is_closed = False

    @property
    def name(self) -> str:
        """Name in intents, scopes and settings."""
        return kinds.NAME

    @property
    def kinds(self) -> tuple[KindSpec, ...]:
        """`files.read`, `files.write`, `files.delete` and `files.move`."""
        return self._kinds

    def take(self, run_id: RunId, fence: Fence) -> Served | None:
        """Raise the run's fence, and return what was served last.

        Raises:
            FencedError: A newer fence, or an equal version with another nonce, stands.
            UnavailableError: The journal cannot be used now.
        """
        with self._turn(), transaction(self._site.db, "taking a lease"):
            journals.check_fence(self._site.db, run_id, fence)
            journals.raise_fence(self._site.db, run_id, fence)
            return journals.served(self._site.db, run_id)

    def observe(self, scope: Mapping[str, tuple[str, ...]]) -> Observation:
        """Return the state of all files that the scope covers; the facts are their digests.

        Raises:
            ContractError: The scope holds a path that is not canonical.
            UnavailableError: Something cannot be read, or there is too much of it.
        """
        covered = patterns(scope)
        with self._turn():
            try:
                return observe(self._site, covered, self._account)
            except OSError as error:
                raise UnavailableError(
                    f"the files cannot be looked at now ({name_of(error)})"
                ) from error

    def look_up(self, run_id: RunId, key: Key, kind: str) -> LookUp:
        """Say what is on record under a key; what cannot be asked now is unknown.

        Raises:
            FormatError: The journal is damaged.
        """
        try:
            with self._turn():
                return self._on_record(run_id, key)
        except UnavailableError as error:
            return unknown(error.message)

    def execute(self, operation: Operation) -> Receipt:
        """Read or change files, a change once per key.

        Raises:
            ContractError: The kind is unknown or its arguments are out of contract.
            FencedError: The lease was followed by another.
            IdempotencyConflictError: The key holds another intent.
            PermissionDeniedError: The key is forbidden, or a path is out of scope, leads
                over a link, or to no regular file of one name.
            StaleObservationError: The environment, or a file, is not the expected one.
            UnavailableError: Nothing happened, and it may be tried again.
            UnknownOutcomeError: It may have happened; only a look-up can tell.
        """
        spec = next((spec for spec in self._kinds if spec.name == operation.kind), None)
        if spec is None:
            raise ContractError(f"{kinds.NAME} declares no kind {operation.kind!r:.80}")
        arguments = spec.normalise(operation.arguments)
        with self._turn():
            with translated("executing"):
                journals.check_fence(self._site.db, operation.run_id, operation.fence)
            if operation.kind == kinds.READ:
                self._check_scope(spec, operation, arguments)
                return self._read(operation, arguments)
            earlier = self._earlier(operation)
            if earlier is not None:
                return earlier
            self._check_scope(spec, operation, arguments)
            self._check_state(operation)
            return self._change(operation, arguments)

    def forbid(self, run_id: RunId, key: Key, kind: str, fence: Fence) -> LookUp:
        """Make the key impossible for the run unless it is done; return found or absent.

        Raises:
            FencedError: The fence is old.
            UnavailableError: The journal cannot be used now.
        """
        with self._turn(), transaction(self._site.db, "forbidding a key"):
            journals.check_fence(self._site.db, run_id, fence)
            journals.raise_fence(self._site.db, run_id, fence)
            answer = self._on_record(run_id, key)
            if answer.answer is not Answer.FOUND:
                journals.forbid(self._site.db, run_id, key)
            return answer

    def preview(self, kind: str, arguments: dict[str, Json]) -> str:
        """Return what a change would look like, as a text for people.

        Raises:
            ContractError: The kind is unknown or its arguments are out of contract.
            PermissionDeniedError: A path leads over a link, or to no regular file.
            UnavailableError: It cannot be looked at.
        """
        spec = next((spec for spec in self._kinds if spec.name == kind), None)
        if spec is None:
            raise ContractError(f"{kinds.NAME} declares no kind {kind!r:.80}")
        checked = spec.normalise(arguments)
        with self._turn():
            return preview(self._site, kind, checked)

    def close(self) -> None:
        """Let go of the root, the journal and its file; a second time does nothing."""
        if not self._is_closed:
            self._is_closed = True
            close_site(self._site)

    @contextmanager
    def _turn(self) -> Generator[None]:
        with turn(self._site):
            settling.resolve(self._site)
            yield

    def _on_record(self, run_id: RunId, key: Key) -> LookUp:
        with translated("looking up"):
            receipt = journal.receipt(self._site.db, key)
        if receipt is None:
            return ABSENT
        if receipt.run_id != run_id:
            return LookUp(answer=Answer.FOUND_OTHER, receipt=receipt)
        return found(receipt)

    def _read(self, operation: Operation, arguments: dict[str, Json]) -> Receipt:
        covered = patterns(operation.scope)
        result, poststate = read(self._site, arguments, covered, self._account)
        spec = next(spec for spec in self._kinds if spec.name == operation.kind)
        return Receipt(
            id="",
            adapter=kinds.NAME,
            kind=operation.kind,
            run_id=operation.run_id,
            key=Key(""),
            digest=operation.digest,
            level=spec.level,
            poststate=poststate,
            committed_at_ms=self._now_ms(),
            result=result,
        )

    def _earlier(self, operation: Operation) -> Receipt | None:
        """Return the receipt of this very intent; refuse a key that holds another."""
        with translated("executing"):
            receipt = journal.receipt(self._site.db, operation.key)
            if receipt is None:
                if journals.is_forbidden(self._site.db, operation.run_id, operation.key):
                    raise PermissionDeniedError(
                        "the key was made impossible", operation.run_id, operation.key
                    )
                return None
        for what, held, asked in (
            ("run", receipt.run_id, operation.run_id),
            ("intent", receipt.digest, operation.digest),
        ):
            if held != asked:
                raise IdempotencyConflictError(
                    f"the key holds the effect of another {what}", operation.run_id, operation.key
                )
        with transaction(self._site.db, "replaying"):
            journals.raise_fence(self._site.db, operation.run_id, operation.fence)
            journals.set_served(self._site.db, operation.run_id, operation.served)
        return replace(receipt, replayed=True)

    def _check_scope(
        self, spec: KindSpec, operation: Operation, arguments: dict[str, Json]
    ) -> None:
        covered = patterns(operation.scope)
        for _, path in spec.touches(arguments):
            if not is_covered(covered, path):
                raise PermissionDeniedError(
                    f"{path!r:.200} is outside the scope", operation.run_id, operation.key
                )

    def _check_state(self, operation: Operation) -> None:
        with translated("executing"):
            standing = settling.state(self._site, patterns(operation.scope), self._account)
        if standing != operation.prestate:
            at = "never observed" if standing is None else f"at version {standing.version}"
            raise StaleObservationError(
                f"the files are {at}, the change was built on {operation.prestate.version}",
                operation.run_id,
                operation.key,
            )

    def _change(self, operation: Operation, arguments: dict[str, Json]) -> Receipt:
        plan = self._planned(operation, arguments)
        site = self._site
        try:
            rename(site.disk, site.root, plan)
        except StaleObservationError:
            self._give_up(plan)
            raise
        except OSError as error:
            if error.errno == errno.EIO:
                raise self._unknown(plan, error) from error
            self._give_up(plan)
            raise refusal(error) from error
        try:
            receipt = settling.conclude(site, plan)
        except (OSError, UnavailableError) as error:
            raise self._unknown(plan, error) from error
        with suppress(OSError, UnavailableError):  # the next turn clears what is left
            sweep(site.disk, site.root, plan, is_done=receipt is not None)
        if receipt is None:
            raise StaleObservationError(
                f"{plan.right!r:.200} was changed by another program meanwhile",
                plan.run_id,
                plan.key,
            )
        return receipt

    def _planned(self, operation: Operation, arguments: dict[str, Json]) -> Plan:
        """Return the plan of a change, once it is durable."""
        site = self._site
        with translated("planning"):
            draft = Draft(
                disk=site.disk,
                root=site.root,
                db=site.db,
                prefix=leftover(site),
                account=self._account,
                now_ms=self._now_ms,
                operation=operation,
                arguments=arguments,
            )
            with drafted(draft) as plan:
                with transaction(site.db, "planning"):
                    journals.raise_fence(site.db, operation.run_id, operation.fence)
                    journal.set_plan(site.db, PlanState.OPEN, plan)
                return plan

    def _give_up(self, plan: Plan) -> None:
        """Record that nothing happened; if that fails, the next turn finds it out."""
        with suppress(OSError, UnavailableError):
            settling.drop(self._site, plan)
            sweep(self._site.disk, self._site.root, plan, is_done=False)

    def _unknown(self, plan: Plan, error: OSError | CounterfoilError) -> UnknownOutcomeError:
        why = name_of(error) if isinstance(error, OSError) else error.message
        return UnknownOutcomeError(
            f"the change of {plan.right!r:.200} ended without an answer ({why})",
            plan.run_id,
            plan.key,
        )

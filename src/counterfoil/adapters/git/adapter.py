"""A repository and its remotes as the engine sees them: one port over the git command.

Within the repository each write is one turn: take the lock, settle what a killed call
left behind, compare, plan on the desk of the run, and move the ref together with its
receipt in one ref transaction. A push is planned in a turn and made outside it, since
the receipt at the remote lets only one of two through.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from counterfoil.adapters.git import (
    kinds,
    locks,
    pushing,
    reading,
    refs,
    settling,
    state,
    writing,
)
from counterfoil.adapters.git.pushing import Time, time_of
from counterfoil.adapters.git.records import (
    Barred,
    Desk,
    Effect,
    Slip,
    check_fence,
    desk_ref,
    receipt_ref,
)
from counterfoil.adapters.git.site import Site, guard, turn
from counterfoil.core.errors import (
    ContractError,
    IdempotencyConflictError,
    PermissionDeniedError,
    StaleObservationError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.intent import KindSpec
from counterfoil.core.receipt import ABSENT, Answer, Fence, LookUp, Receipt, Served, unknown
from counterfoil.core.task import PATHS, covers
from counterfoil.core.words import Json, Key, RunId
from counterfoil.ports import Observation, Operation


class GitAdapter:
    """Commits, branches, tags and pushes, each once per key.

    Args:
        site: What `open_git` opened.
        account: Account to report; empty when that does not matter.
        push_ms: Longest push, in milliseconds.
        may_move_checked_out: Whether a branch may move that is checked out somewhere.
    """

    def __init__(
        self,
        site: Site,
        *,
        account: str,
        push_ms: int,
        may_move_checked_out: bool,
    ) -> None:
        self._site = site
        self._account = account
        self._may_move_checked_out = may_move_checked_out
        self._kinds = kinds.kinds(push_ms)

    @property
    def name(self) -> str:
        """Name in intents, scopes and settings."""
        return kinds.NAME

    @property
    def kinds(self) -> tuple[KindSpec, ...]:
        """`git.read`, `git.check`, `git.commit`, `git.branch`, `git.tag` and `git.push`."""
        return self._kinds

    def locks(self, scope: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
        """Return the locks that stand in the repository: where, how old, whose, who is there.

        Raises:
            UnavailableError: They cannot be looked at.
        """
        found = locks.standing(self._site, refs.scoped(scope, kinds.REFS))
        return tuple(locks.described(self._site, lock) for lock in found)

    def take(self, run_id: RunId, fence: Fence) -> Served | None:
        """Raise the run's fence, and return what was served last.

        Raises:
            FencedError: A newer fence, or an equal version with another nonce, stands.
            UnavailableError: The repository cannot be used now.
        """
        with turn(self._site) as holder:
            desk = self._desk(run_id, holder)
            check_fence(desk, run_id, fence)
            if desk is None:
                refs.set_desk(self._site, Desk(run_id=run_id, fence=fence), holder)
                return None
            if desk.fence != fence:
                refs.set_desk(self._site, replace(desk, fence=fence), holder)
            return desk.served

    def observe(self, scope: Mapping[str, tuple[str, ...]]) -> Observation:
        """Return the state of the refs and remotes in scope; the facts are their object ids.

        Raises:
            ContractError: The scope holds no ref name, or a remote that was not named.
            UnavailableError: Something did not answer.
        """
        places = state.look(self._site, scope, kinds.CALL_MS)
        seen = state.state_of(self._site, places, self._account)
        return Observation(state=seen, facts=state.facts(self._site, places))

    def look_up(self, run_id: RunId, key: Key, kind: str) -> LookUp:
        """Say what is on record under a key; what cannot be asked now is unknown.

        Raises:
            FormatError: A record is not what we wrote.
        """
        left = time_of(self._spec(kind).call_ms)
        try:
            with turn(self._site) as holder:
                desk = self._desk(run_id, holder)
                answer = self._here(run_id, key, desk, holder)
            if answer is not None:
                return answer
            if kind != kinds.PUSH:
                return ABSENT
            return pushing.look(self._site, run_id, key, desk, left)
        except (UnavailableError, PermissionDeniedError) as error:
            return unknown(error.message)

    def execute(self, operation: Operation) -> Receipt:
        """Read, check or move a ref, a move once per key.

        Raises:
            ContractError: The kind is unknown or its arguments are out of contract.
            FencedError: The lease was followed by another.
            IdempotencyConflictError: The key holds another intent.
            PermissionDeniedError: The key is forbidden, something is out of scope, a
                branch is checked out, a path leads over a link, or a remote refuses.
            StaleObservationError: A ref is not where the intent says.
            UnavailableError: Nothing happened, and it may be tried again.
            UnknownOutcomeError: It may have happened; only a look-up can tell.
        """
        spec = self._spec(operation.kind)
        arguments = spec.normalise(operation.arguments)
        left = time_of(operation.timeout_ms)
        if operation.kind in (kinds.READ, kinds.CHECK):
            self._check_scope(spec, operation, arguments)
            return self._read(spec, operation, arguments, left)
        self._check_scope(spec, operation, arguments)
        if operation.kind == kinds.PUSH:
            return self._push(spec, operation, arguments, left)
        return self._change(spec, operation, arguments, left)

    def forbid(self, run_id: RunId, key: Key, kind: str, fence: Fence) -> LookUp:
        """Make the key impossible unless it is done; return found or absent.

        Absent says that no receipt is there, and never will be. Where a ref was moved on
        by others before it could be asked, the look-up told so.

        Raises:
            FencedError: The fence is old.
            UnavailableError: The repository, or the remote of a push, cannot be used now.
        """
        site, left = self._site, time_of(self._spec(kind).call_ms)
        with turn(site) as holder:
            desk = self._desk(run_id, holder)
            check_fence(desk, run_id, fence)
            kept = replace(desk, fence=fence) if desk else Desk(run_id=run_id, fence=fence)
            refs.set_desk(site, kept, holder)
            answer = self._here(run_id, key, desk, holder)
        planned = pushing.planned_push(desk, key)
        if planned is not None:
            answer = pushing.bar(site, planned, left)
        if answer is not None and answer.receipt is not None:
            return answer
        with turn(site) as holder:
            standing = settling.on_record(site, run_id, key)
            if standing is None:
                locks.clear(site, receipt_ref(key), is_there=False)
                barred = Slip(barred=Barred(run_id=run_id, key=key))
                refs.set_slip(site, key, barred, holder)
            return standing or ABSENT

    def preview(self, kind: str, arguments: dict[str, Json]) -> str:
        """Return what a write would change, as a text for people.

        Raises:
            ContractError: The kind is unknown or its arguments are out of contract.
            UnavailableError: It cannot be looked at.
        """
        guard(self._site)
        return writing.preview(self._site, kind, self._spec(kind).normalise(arguments))

    def close(self) -> None:
        """Let go of nothing: no file and no command outlives a call."""

    def _desk(self, run_id: RunId, holder: int) -> Desk | None:
        """Return the desk of a run, after what killed calls left locked is cleared."""
        desk = refs.desk(self._site, run_id)
        if desk is not None and desk.planned is not None:
            settled = self._here(run_id, desk.planned.receipt.key, desk, holder)
            if settled is None and desk.is_begun:
                desk = refs.desk(self._site, run_id)
        locks.clear(self._site, desk_ref(run_id), is_there=desk is not None)
        return desk

    def _here(self, run_id: RunId, key: Key, desk: Desk | None, holder: int) -> LookUp | None:
        """Return what is known of a key within the repository; None when nothing is."""
        answer = settling.on_record(self._site, run_id, key)
        planned = None if desk is None else desk.planned
        if answer is not None or desk is None or planned is None:
            return answer
        if planned.receipt.key != key or planned.move.remote:
            return None
        settled = settling.settle(self._site, desk, planned, holder)
        return None if settled.answer is Answer.ABSENT else settled

    def _change(
        self, spec: KindSpec, operation: Operation, arguments: dict[str, Json], left: Time
    ) -> Receipt:
        site, key = self._site, operation.key
        with turn(site) as holder:
            desk = self._admitting(operation, holder)
            earlier = self._earlier(operation, self._here(operation.run_id, key, desk, holder))
            if earlier is not None:
                self._note(operation, desk, holder)
                return earlier
            places = state.look(site, operation.scope, left.left_ms)
            planned = self._planned(spec, operation, arguments, places)
            locks.clear(site, receipt_ref(key), is_there=False)
            desk = writing.desk_for(operation, desk, planned)
            return writing.move(site, desk, planned, holder)

    def _push(
        self, spec: KindSpec, operation: Operation, arguments: dict[str, Json], left: Time
    ) -> Receipt:
        site, run_id, key = self._site, operation.run_id, operation.key
        with turn(site) as holder:
            desk = self._admitting(operation, holder)
            earlier = self._earlier(operation, self._here(run_id, key, desk, holder))
        places = state.look(site, operation.scope, left.left_ms)
        if earlier is None:  # asked after that look, so a push that moved the ref is seen
            earlier = self._earlier(operation, pushing.look(site, run_id, key, desk, left))
        if earlier is not None:
            with turn(site) as holder:
                self._note(operation, self._admitting(operation, holder), holder)
            return earlier
        planned = self._planned(spec, operation, arguments, places)
        with turn(site) as holder:
            desk = self._admitting(operation, holder)
            self._earlier(operation, self._here(run_id, key, desk, holder))
            refs.set_desk(site, writing.desk_for(operation, desk, planned), holder)
        try:
            answer = pushing.push(site, planned, left)
        except PermissionDeniedError:
            self._note_refusal(planned)
            raise
        receipt = self._earlier(operation, answer)
        if receipt is None:
            self._note_refusal(planned)
            raise pushing.stale(planned)
        return planned.receipt if answer.receipt == planned.receipt else receipt

    def _admitting(self, operation: Operation, holder: int) -> Desk | None:
        """Return the desk of a run whose lease is not older than the standing one."""
        desk = self._desk(operation.run_id, holder)
        check_fence(desk, operation.run_id, operation.fence)
        return desk

    def _note(self, operation: Operation, desk: Desk | None, holder: int) -> None:
        """Note the lease and the checkpoint of a call that was answered by an earlier one."""
        noted = writing.desk_for(operation, desk, None if desk is None else desk.planned)
        kept = noted if desk is None else replace(noted, is_begun=desk.is_begun)
        if kept != desk:
            refs.set_desk(self._site, kept, holder)

    def _note_refusal(self, planned: Effect) -> None:
        """Note that a push certainly did not happen, so that a look-up need not doubt it."""
        run_id = planned.receipt.run_id
        with turn(self._site) as holder:
            desk = self._desk(run_id, holder)
            if desk is not None and desk.planned == planned:
                refused = replace(planned, is_refused=True)
                refs.set_desk(self._site, replace(desk, planned=refused), holder)

    def _earlier(self, operation: Operation, answer: LookUp | None) -> Receipt | None:
        """Return the receipt of this very intent; refuse a key that holds anything else."""
        run_id, key = operation.run_id, operation.key
        if answer is None or (answer.answer is Answer.ABSENT and not answer.reason):
            return None
        receipt = answer.receipt
        if answer.answer is Answer.ABSENT:
            raise PermissionDeniedError(answer.reason, run_id, key)
        if receipt is None:
            raise UnknownOutcomeError(answer.reason, run_id, key)
        for what, held, asked in (
            ("run", receipt.run_id, run_id),
            ("intent", receipt.digest, operation.digest),
        ):
            if held != asked:
                raise IdempotencyConflictError(
                    f"the key holds the effect of another {what}", run_id, key
                )
        return replace(receipt, replayed=True)

    def _planned(
        self,
        spec: KindSpec,
        operation: Operation,
        arguments: dict[str, Json],
        places: state.Places,
    ) -> Effect:
        """Return the write of an intent, once everything that it is built on holds."""
        site = self._site
        seen = state.state_of(site, places, self._account)
        if seen != operation.prestate:
            raise StaleObservationError(
                f"the refs are at version {seen.version}, the intent was built on "
                f"{operation.prestate.version}",
                operation.run_id,
                operation.key,
            )
        may_move = self._may_move_checked_out
        move = writing.intended(
            site, operation.kind, arguments, places, may_move_checked_out=may_move
        )
        after = state.moved(places, move, refs.scoped(operation.scope, kinds.REFS))
        receipt = Receipt(
            id=receipt_ref(operation.key).rpartition("/")[2],
            adapter=kinds.NAME,
            kind=operation.kind,
            run_id=operation.run_id,
            key=operation.key,
            digest=operation.digest,
            level=spec.level,
            poststate=state.state_of(site, after, self._account),
            committed_at_ms=site.now_ms(),
            served=operation.served,
            statement=operation.statement,
            result=writing.result(move),
        )
        return Effect(move=move, fence=operation.fence, receipt=receipt)

    def _read(
        self, spec: KindSpec, operation: Operation, arguments: dict[str, Json], left: Time
    ) -> Receipt:
        site = self._site
        with turn(site) as holder:
            self._admitting(operation, holder)
        places = state.look(site, operation.scope, left.left_ms)
        if operation.kind == kinds.READ:
            answer = reading.read(site, kinds.arguments_of(kinds.Read, arguments), places)
        else:
            answer = reading.check(site, kinds.arguments_of(kinds.Check, arguments), places)
        return Receipt(
            id="",
            adapter=kinds.NAME,
            kind=operation.kind,
            run_id=operation.run_id,
            key=Key(""),
            digest=operation.digest,
            level=spec.level,
            poststate=state.state_of(site, places, self._account),
            committed_at_ms=site.now_ms(),
            result=answer,
        )

    def _check_scope(
        self, spec: KindSpec, operation: Operation, arguments: dict[str, Json]
    ) -> None:
        for name, value in spec.touches(arguments):
            entries = operation.scope.get(name, ())
            is_covered = any(covers(entry, value) for entry in entries)
            if not (is_covered if name == PATHS else value in entries):
                raise PermissionDeniedError(
                    f"{value!r:.200} is outside {name} of the scope",
                    operation.run_id,
                    operation.key,
                )

    def _spec(self, kind: str) -> KindSpec:
        spec = next((spec for spec in self._kinds if spec.name == kind), None)
        if spec is None:
            raise ContractError(f"{kinds.NAME} declares no kind {kind!r:.80}")
        return spec

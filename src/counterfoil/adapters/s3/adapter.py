"""Objects of one bucket as the engine sees them."""

from collections.abc import Mapping

from msgspec.structs import replace

from counterfoil.adapters.s3 import kinds
from counterfoil.adapters.s3.calls import check_scope
from counterfoil.adapters.s3.evidence import is_named
from counterfoil.adapters.s3.objects import paths_of
from counterfoil.adapters.s3.reading import read
from counterfoil.adapters.s3.records import TRIES_MAX, Note, Stage
from counterfoil.adapters.s3.site import Site, state
from counterfoil.adapters.s3.uploading import abort
from counterfoil.adapters.s3.writing import Call, quiet, settle, write
from counterfoil.core.errors import ContractError, UnavailableError
from counterfoil.core.intent import KindSpec
from counterfoil.core.receipt import ABSENT, Answer, Fence, LookUp, Receipt, Served, unknown
from counterfoil.core.words import Key, RunId
from counterfoil.ports import Observation, Operation


class S3Adapter:
    """Reads, puts, copies, uploads and deletes objects, each change once per key.

    Args:
        site: What `open_s3` opened; `close` lets go of it.
        declared: Its kinds.
    """

    def __init__(self, site: Site, declared: tuple[KindSpec, ...]) -> None:
        self._site = site
        self._kinds = declared

    def __repr__(self) -> str:
        return f"S3Adapter({self._site.wire!r})"

    @property
    def name(self) -> str:
        """Name in intents, scopes and settings."""
        return kinds.NAME

    @property
    def kinds(self) -> tuple[KindSpec, ...]:
        """`s3.get`, `s3.head`, `s3.list`, `s3.put`, `s3.copy`, `s3.upload`, `s3.delete`."""
        return self._kinds

    def take(self, run_id: RunId, fence: Fence) -> Served | None:
        """Raise the run's fence, and return what was served last.

        Raises:
            FencedError: A newer fence, or an equal version with another nonce, stands.
            UnavailableError: The record cannot be read or written.
        """
        before = self._site.records.raise_fence(run_id, fence)
        return before.served if before else None

    def observe(self, scope: Mapping[str, tuple[str, ...]]) -> Observation:
        """Return the state of all objects that the scope covers; the facts are their ETags.

        The version is always 0, since S3 counts no changes: name the fingerprint.

        Raises:
            ContractError: The scope holds a path that is not canonical.
            UnavailableError: It cannot be listed, or covers too many objects.
        """
        now, entries = state(self._site, paths_of(scope))
        return Observation(state=now, facts={each.path: each.etag for each in entries})

    def look_up(self, run_id: RunId, key: Key, kind: str) -> LookUp:
        """Say what is on record under a key, and what its object shows.

        Absent is said only when no call of the key can land any more.

        Raises:
            FormatError: A record is damaged.
        """
        try:
            held = self._site.records.read(key)
            return settle(self._site, self._spec(kind), held, run_id)
        except UnavailableError as error:
            return unknown(error.message)

    def execute(self, operation: Operation) -> Receipt:
        """Read or change objects, a change once per key.

        Raises:
            ContractError: The kind is unknown, its arguments are out of contract, or the
                service takes no such request.
            FencedError: The lease was followed by another.
            IdempotencyConflictError: The key holds another intent.
            PermissionDeniedError: The key is forbidden, or something is out of scope.
            StaleObservationError: The environment, or an object, is not the expected one.
            UnavailableError: Nothing happened, and it may be tried again.
            UnknownOutcomeError: It may have happened; only a look-up can tell.
        """
        spec = self._spec(operation.kind)
        arguments = spec.normalise(operation.arguments)
        if spec.risk.writes:
            return write(Call(self._site, spec, operation, arguments))
        check_scope(spec, operation, arguments)
        result = read(self._site, operation.kind, arguments)
        now, _ = state(self._site, paths_of(operation.scope))
        return Receipt(
            id="",
            adapter=kinds.NAME,
            kind=operation.kind,
            run_id=operation.run_id,
            key=Key(""),
            digest=operation.digest,
            level=spec.level,
            poststate=now,
            committed_at_ms=0,
            result=result,
        )

    def forbid(self, run_id: RunId, key: Key, kind: str, fence: Fence) -> LookUp:
        """Make the key impossible for the run unless it is done; return found or absent.

        Absent is said only once that is on record and no call can land any more; what
        another writer left no trace of counts as not done then. While a call may still
        land the answer is unknown. Where an object names the intent and holds something
        else it is found other, and the key stays as it is.

        Raises:
            FencedError: The fence is old.
            UnavailableError: The records cannot be read or written.
        """
        site, spec = self._site, self._spec(kind)
        site.records.raise_fence(run_id, fence)
        for _ in range(TRIES_MAX):
            held, answer = quiet(site, spec, key, run_id)
            note = held.note
            is_theirs = note is not None and note.run_id != run_id
            if is_theirs or answer.answer in (Answer.FOUND, Answer.UNKNOWN):
                return answer
            if note is not None and answer.answer is Answer.FOUND_OTHER and is_named(site, note):
                return answer
            blank = Note(stage=Stage.FORBIDDEN, run_id=run_id, key=key, kind=kind, fence=fence)
            barred = blank if note is None else replace(note, stage=Stage.FORBIDDEN)
            if barred == note or site.records.write(held, replace(barred, upload="")) is not None:
                if note is not None:
                    abort(site, note)
                return ABSENT
        raise UnavailableError("other callers use the key", run_id, key)

    def close(self) -> None:
        """Let go of the connections; a second time does nothing."""
        self._site.wire.close()

    def _spec(self, kind: str) -> KindSpec:
        for spec in self._kinds:
            if spec.name == kind:
                return spec
        raise ContractError(f"{kinds.NAME} declares no kind {kind!r:.80}")

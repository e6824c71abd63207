"""Allowed commands as the engine sees them: one port, one lock, one journal.

Each method is one turn or a few: take the lock, bring what has ended since to its
receipt, then answer. A command is started once per key. It runs under a supervisor of
its own, so the death of this program changes nothing for it: whoever asks next by its
key finds its end, or waits for it.
"""

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

from msgspec.structs import replace

from counterfoil import journals
from counterfoil.adapters.shell import journal, kinds
from counterfoil.adapters.shell.command import patience_ms
from counterfoil.adapters.shell.journal import Attempt, Claim, State, transaction, translated
from counterfoil.adapters.shell.kernel import digests
from counterfoil.adapters.shell.kinds import Allowed
from counterfoil.adapters.shell.reading import read
from counterfoil.adapters.shell.records import Seen
from counterfoil.adapters.shell.settling import answer_of, evidence, resolve, settle, state
from counterfoil.adapters.shell.site import ATTEMPTS, Site, close_site, turn, working_folder
from counterfoil.adapters.shell.starting import make_place, new_token, start
from counterfoil.adapters.shell.waiting import monotonic_ms, wait
from counterfoil.core.errors import (
    ContractError,
    IdempotencyConflictError,
    PermissionDeniedError,
    RefusedError,
    StaleObservationError,
    UnavailableError,
    UnknownOutcomeError,
)
from counterfoil.core.intent import EnvironmentState, KindSpec
from counterfoil.core.receipt import ABSENT, Fence, LookUp, Receipt, Served, unknown
from counterfoil.core.task import PATHS, covers
from counterfoil.core.words import Json, Key, RunId
from counterfoil.ports import Observation, Operation

STOP_MS = 12_000
"""How long a stop waits beyond the grace: for SIGKILL to take, and for the record."""


class ShellAdapter:
    """Gives allowed commands, each once per key.

    Args:
        site: What `open_shell` opened; `close` lets go of it.
        allowed: The commands, by kind.
        now_ms: Clock, UTC.
    """

    def __init__(
        self, site: Site, *, allowed: Mapping[str, Allowed], now_ms: Callable[[], int]
    ) -> None:
        self._site = site
        self._allowed = allowed
        self._now_ms = now_ms
        self._is_closed = False

    @property
    def name(self) -> str:
        """Name in intents, scopes and settings."""
        return kinds.NAME

    @property
    def kinds(self) -> tuple[KindSpec, ...]:
        """`shell.NAME` for each allowed command."""
        return tuple(allowed.spec for allowed in self._allowed.values())

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
        """Return the state: the newest start, and the watched files, whose digests are facts.

        Raises:
            UnavailableError: Something cannot be read.
        """
        site = self._site
        with self._turn():
            watched = digests(site.root, list(site.watched))
            facts: dict[str, Json] = dict(zip(site.watched, watched, strict=True))
            return Observation(state=self._state(watched), facts=facts)

    def look_up(self, run_id: RunId, key: Key, kind: str) -> LookUp:
        """Say what is on record under a key; a command that runs is waited for a while.

        One that ran and whose end nobody will ever know is unknown for good, with the
        evidence in words.

        Raises:
            FormatError: The journal is damaged.
        """
        try:
            return self._answer(run_id, key, self._wait_ms(kind))
        except (UnavailableError, PermissionDeniedError) as error:
            return unknown(error.message)

    def execute(self, operation: Operation) -> Receipt:
        """Give a command, once per key, and wait for its end as long as a call may take.

        Raises:
            ContractError: The kind is unknown or its arguments are out of contract.
            FencedError: The lease was followed by another.
            IdempotencyConflictError: The key holds another intent.
            PermissionDeniedError: The key is forbidden, the command or its folder is out
                of scope, or the program may not be run.
            StaleObservationError: The environment is not the expected one.
            UnavailableError: Nothing ran, and it may be tried again.
            UnknownOutcomeError: It ran or runs; only a look-up can tell.
        """
        allowed = self._allowed.get(operation.kind)
        if allowed is None:
            raise ContractError(f"{kinds.NAME} allows no command {operation.kind!r:.80}")
        arguments = allowed.spec.normalise(operation.arguments)
        if not allowed.spec.risk.writes:
            return self._read(operation, allowed, arguments)
        is_begun = self._begin_if_new(operation, allowed, arguments)
        receipt = self._end_of(operation, monotonic_ms() + patience_ms(allowed.command))
        return receipt if is_begun else replace(receipt, replayed=True)

    def forbid(self, run_id: RunId, key: Key, kind: str, fence: Fence) -> LookUp:
        """Make it impossible that the key is started for the run; return what is known.

        What was started before is found, or unknown. Absent means that it did not happen,
        or may be repeated, and that it will not.

        Raises:
            FencedError: The fence is old.
            UnavailableError: The journal cannot be used now.
        """
        with self._turn(), transaction(self._site.db, "forbidding a key"):
            journals.check_fence(self._site.db, run_id, fence)
            journals.raise_fence(self._site.db, run_id, fence)
            journals.forbid(self._site.db, run_id, key)
        return self._answer(run_id, key, self._wait_ms(kind))

    def stop(self, run_id: RunId, key: Key) -> LookUp:
        """Stop a command with all that it started, whatever group or session that went to.

        What was stopped is found, and its receipt says so; a key that was not started
        is absent, and may still be.

        Raises:
            FormatError: The journal is damaged.
            UnavailableError: The journal cannot be used now.
        """
        grace_ms = max(allowed.command.grace_ms for allowed in self._allowed.values())
        return self._answer(run_id, key, grace_ms + STOP_MS, is_stopping=True)

    def preview(self, kind: str, arguments: dict[str, Json]) -> str:
        """Return the words of a command as programs get them, for people.

        Raises:
            ContractError: The kind is unknown or its arguments are out of contract.
        """
        allowed = self._allowed.get(kind)
        if allowed is None:
            raise ContractError(f"{kinds.NAME} allows no command {kind!r:.80}")
        whole = allowed.spec.normalise(arguments)
        shown = "\n| ".join(" ".join(map(repr, words)) for words in whole[kinds.ARGV])
        return f"in {whole[kinds.FOLDER]}:\n{shown}"

    def close(self) -> None:
        """Let go of root and journal; commands that run go on. A second time does nothing."""
        if not self._is_closed:
            self._is_closed = True
            close_site(self._site)

    @contextmanager
    def _turn(self) -> Generator[int]:
        with turn(self._site) as lock:
            resolve(self._site)
            yield lock

    def _begin_if_new(
        self, operation: Operation, allowed: Allowed, arguments: dict[str, Json]
    ) -> bool:
        """Start the command unless its key was used; return whether this call did."""
        with self._turn() as lock:
            with translated("executing"):
                journals.check_fence(self._site.db, operation.run_id, operation.fence)
                attempt = journal.attempt(self._site.db, operation.key)
            if attempt is not None:
                _check_same(operation, attempt)
                return False
            self._check(allowed.spec, operation, arguments)
            self._begin(operation, allowed, arguments, lock)
            return True

    def _end_of(self, operation: Operation, give_up_at_ms: int) -> Receipt:
        """Wait for an attempt; from here on nothing but its record says that it never ran.

        Raises:
            FencedError, FormatError: As `execute`.
            UnavailableError: It never ran.
            UnknownOutcomeError: It ran or runs.
        """
        is_over = False
        while not is_over:
            try:
                with self._turn():
                    with translated("executing"):
                        journals.check_fence(self._site.db, operation.run_id, operation.fence)
                        attempt = journal.attempt(self._site.db, operation.key)
                    if attempt is not None and attempt.state is not State.OPEN:
                        return self._settled(operation, attempt)
                    seen = None if attempt is None else settle(self._site, attempt)
            except (RefusedError, UnavailableError) as error:
                raise UnknownOutcomeError(error.message, operation.run_id, operation.key) from error
            if seen is None:
                raise UnavailableError("the command was not started")
            is_over = not wait(seen, give_up_at_ms, self._site.pause)
        raise UnknownOutcomeError("the command still runs", operation.run_id, operation.key)

    def _answer(
        self, run_id: RunId, key: Key, wait_ms: int, *, is_stopping: bool = False
    ) -> LookUp:
        give_up_at_ms = monotonic_ms() + wait_ms
        while True:
            with self._turn():
                with translated("looking up"):
                    attempt = journal.attempt(self._site.db, key)
                if attempt is None:
                    return ABSENT
                if attempt.receipt is not None:
                    return answer_of(attempt, attempt.receipt, run_id)
                seen = settle(self._site, attempt, is_stopping=is_stopping)
            if not wait(seen, give_up_at_ms, self._site.pause):
                return unknown(_still(seen))

    def _read(self, operation: Operation, allowed: Allowed, arguments: dict[str, Json]) -> Receipt:
        self._check_scope(allowed.spec, operation, arguments)
        with self._turn():
            with translated("reading"):
                journals.check_fence(self._site.db, operation.run_id, operation.fence)
            standing = self._state()
        return Receipt(
            id="",
            adapter=kinds.NAME,
            kind=operation.kind,
            run_id=operation.run_id,
            key=Key(""),
            digest=operation.digest,
            level=allowed.spec.level,
            poststate=standing,
            committed_at_ms=self._now_ms(),
            result=read(self._site, allowed.command, arguments),
        )

    def _settled(self, operation: Operation, attempt: Attempt) -> Receipt:
        """Return the receipt of this very intent; refuse a key that holds another."""
        _check_same(operation, attempt)
        if attempt.state is State.LOST or attempt.receipt is None:
            told = attempt.receipt and evidence(attempt.receipt.result)
            raise UnknownOutcomeError(
                told or "the command was started", operation.run_id, operation.key
            )
        with transaction(self._site.db, "replaying"):
            journals.raise_fence(self._site.db, operation.run_id, operation.fence)
            journals.set_served(self._site.db, operation.run_id, operation.served)
        return attempt.receipt

    def _check(self, spec: KindSpec, operation: Operation, arguments: dict[str, Json]) -> None:
        with translated("executing"):
            if journals.is_forbidden(self._site.db, operation.run_id, operation.key):
                raise PermissionDeniedError(
                    "the key was made impossible", operation.run_id, operation.key
                )
        self._check_scope(spec, operation, arguments)
        standing = self._state()
        if standing != operation.prestate:
            raise StaleObservationError(
                f"the commands are at version {standing.version} or other files, this one was "
                f"built on {operation.prestate.version}",
                operation.run_id,
                operation.key,
            )

    def _check_scope(
        self, spec: KindSpec, operation: Operation, arguments: dict[str, Json]
    ) -> None:
        for name, value in spec.touches(arguments):
            entries = operation.scope.get(name, ())
            if name == PATHS:
                is_covered = any(covers(entry, value) for entry in entries)
            else:
                is_covered = value in entries
            if not is_covered:
                raise PermissionDeniedError(
                    f"{value!r:.200} is outside the scope", operation.run_id, operation.key
                )

    def _begin(
        self, operation: Operation, allowed: Allowed, arguments: dict[str, Json], lock: int
    ) -> None:
        site, command = self._site, allowed.command
        claim = Claim(
            kind=operation.kind,
            run_id=operation.run_id,
            key=operation.key,
            digest=operation.digest,
            level=allowed.spec.level,
            served=operation.served,
            statement=operation.statement,
            token=new_token(),
            begun_at_ms=self._now_ms(),
            accepted=command.accepted,
            is_repeatable=command.is_repeatable,
        )
        with working_folder(site, arguments[kinds.FOLDER]) as folder:
            with translated("beginning"):
                last = journal.newest(site.db)
            sequence = 1 if last is None else last.sequence + 1
            place = make_place(site, ATTEMPTS, str(sequence))  # first: one that is gone was there
            try:
                with transaction(site.db, "beginning"):
                    journals.raise_fence(site.db, operation.run_id, operation.fence)
                    journals.set_served(site.db, operation.run_id, operation.served)
                    journal.begin(site.db, sequence, claim)
                start(
                    site,
                    command,
                    arguments[kinds.ARGV],
                    place=place,
                    folder=folder,
                    token=claim.token,
                    lock=lock,
                )
            finally:
                os.close(place.folder)

    def _state(self, watched: list[str] | None = None) -> EnvironmentState:
        with translated("observing"):
            return state(self._site, journal.newest(self._site.db), watched)

    def _wait_ms(self, kind: str) -> int:
        allowed = self._allowed.get(kind)
        return 0 if allowed is None else patience_ms(allowed.command)


def _check_same(operation: Operation, attempt: Attempt) -> None:
    claim = attempt.claim
    for what, held, asked in (
        ("run", claim.run_id, operation.run_id),
        ("intent", claim.digest, operation.digest),
    ):
        if held != asked:
            raise IdempotencyConflictError(
                f"the key holds the effect of another {what}", operation.run_id, operation.key
            )


def _still(seen: Seen) -> str:
    if seen.is_watched:
        return "the command still runs"
    pids = ", ".join(str(pid) for pid, _ in seen.survivors)
    return f"no end of the command is on record: {seen.why}{pids and f', as {pids}'}"

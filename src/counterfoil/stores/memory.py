"""Stores that live as long as the object: the reference that other backends are held to.

Every method holds one lock, so that each call is one atomic act, as a transaction is.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from threading import RLock

from msgspec.structs import replace

from counterfoil.core.archive import SEAL
from counterfoil.core.codec import Checkpoint
from counterfoil.core.words import Digest, RunId
from counterfoil.ports import FOUND_MAX, Advance, Head, Mark
from counterfoil.stores import rules


class MemoryStore:
    """A `CheckpointStore` in memory, for tests and trials; safe to share by threads."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._rows: dict[RunId, dict[Digest, Checkpoint]] = {}
        self._marks: dict[RunId, Mark] = {}
        self._archives: dict[RunId, dict[str, bytes]] = {}

    def put(self, batch: Sequence[Checkpoint]) -> None:
        """Store checkpoints, all or none; see `CheckpointStore.put`."""
        with self._lock:
            for row in batch:
                rules.check_digest(row.digest)
                mark = self._marks.get(row.run_id)
                if mark is not None and mark.lease_version > row.lease_version:
                    raise rules.superseded(row.run_id, row.lease_version, mark.lease_version)
            for row in batch:
                self._rows.setdefault(row.run_id, {}).setdefault(row.digest, row)

    def get(self, run_id: RunId, checkpoint: Digest) -> Checkpoint | None:
        """Return one checkpoint, or None."""
        rules.check_digest(checkpoint)
        with self._lock:
            return self._rows.get(run_id, {}).get(checkpoint)

    def find(self, run_id: RunId, name: str) -> tuple[Checkpoint, ...]:
        """Return at most `FOUND_MAX` checkpoints that settle `name`, newest first."""
        with self._lock:
            rows = reversed(self._ordered(run_id))
            return tuple(islice((row for row in rows if name in row.settles), FOUND_MAX))

    def trace(self, run_id: RunId, after: int, limit: int) -> tuple[Checkpoint, ...]:
        """Return checkpoints above `after`, oldest first; the last generation is whole."""
        with self._lock:
            rows = [row for row in self._ordered(run_id) if row.generation > after]
        page = rows[: max(0, limit)]
        rest = rows[len(page) :]
        return (*page, *(row for row in rest if page and row.generation == page[-1].generation))

    def mark(self, mark: Mark) -> None:
        """Replace the run's mark, unless it is of a newer lease."""
        with self._lock:
            present = self._marks.get(mark.run_id)
            if present is not None and present.lease_version > mark.lease_version:
                raise rules.superseded(mark.run_id, mark.lease_version, present.lease_version)
            self._marks[mark.run_id] = mark

    def marked(self, run_id: RunId) -> Mark | None:
        """Return the run's mark, or None."""
        with self._lock:
            return self._marks.get(run_id)

    def prune(self, run_id: RunId, chain: Mapping[int, Digest], below: int) -> int:
        """Drop orphans and old states; see `CheckpointStore.prune`."""
        with self._lock:
            rows = self._rows.get(run_id, {})
            orphans = [
                row.digest
                for row in rows.values()
                if row.digest != chain.get(row.generation, row.digest)
            ]
            for digest in orphans:
                del rows[digest]
            old = [row for row in rows.values() if row.generation < below and row.state]
            for row in old:
                rows[row.digest] = replace(row, state=b"")
            return len(orphans) + len(old)

    def archive(self, run_id: RunId, name: str, content: bytes) -> None:
        """Keep one part of a run's archive; another one of its name is replaced."""
        with self._lock:
            self._archives.setdefault(run_id, {})[name] = content

    def archived(self, run_id: RunId, name: str) -> bytes | None:
        """Return one part of a run's archive, or None."""
        with self._lock:
            return self._archives.get(run_id, {}).get(name)

    def collect(self, run_id: RunId, checkpoint: Digest, generation: int, limit: int) -> int:
        """Drop checkpoints of an archived run; see `CheckpointStore.collect`."""
        rules.check_digest(checkpoint)
        with self._lock:
            if SEAL not in self._archives.get(run_id, {}):
                raise rules.not_archived(run_id)
            old = [row for row in self._ordered(run_id) if row.generation <= generation]
            gone = [row.digest for row in old if row.digest != checkpoint][: max(0, limit)]
            for digest in gone:
                del self._rows[run_id][digest]
            return len(gone)

    def runs(self, after: str, limit: int) -> tuple[RunId, ...]:
        """Return run ids in order of their code points, from after `after`."""
        with self._lock:
            known = self._rows.keys() | self._marks.keys() | self._archives.keys()
            return _page(known, after, limit)

    def close(self) -> None:
        """Do nothing: there is no connection, and what is stored stays."""

    def _ordered(self, run_id: RunId) -> list[Checkpoint]:
        """Return the rows of a run by generation, then in order of arrival."""
        return sorted(self._rows.get(run_id, {}).values(), key=lambda row: row.generation)


class MemoryHeads:
    """A `HeadRegister` in memory, for tests and trials; safe to share by threads.

    Attributes:
        incarnation: Random text that names this register.
    """

    def __init__(self, *, now_ms: Callable[[], int], incarnation: str) -> None:
        self.incarnation = incarnation
        self._lock = RLock()
        self._heads: dict[RunId, Head] = {}
        self._wall_ms = now_ms
        self._floor_ms = 0

    def create(
        self, run_id: RunId, checkpoint: Digest, owner: str, nonce: str, ttl_ms: int
    ) -> Head:
        """Register generation 0 and hold it under lease version 1."""
        rules.check_lease(nonce, ttl_ms, run_id)
        rules.check_digest(checkpoint)
        with self._lock:
            if run_id in self._heads:
                raise rules.taken(run_id)
            self._heads[run_id] = Head(
                run_id=run_id,
                generation=0,
                checkpoint=checkpoint,
                owner=owner,
                nonce=nonce,
                lease_version=1,
                expires_at_ms=self._now_ms() + ttl_ms,
                incarnation=self.incarnation,
            )
            return self._heads[run_id]

    def read(self, run_id: RunId) -> Head | None:
        """Return the head, or None."""
        with self._lock:
            return self._heads.get(run_id)

    def acquire(self, expected: Head, owner: str, nonce: str, ttl_ms: int) -> Head:
        """Take a lease that is free, released or expired by the register's clock."""
        rules.check_lease(nonce, ttl_ms, expected.run_id)
        with self._lock:
            present, now_ms = self._heads.get(expected.run_id), self._now_ms()
            refusal = rules.acquire_refusal(present, expected, now_ms)
            if refusal is not None or present is None:
                raise refusal or rules.missing(expected.run_id)
            head = replace(
                present,
                owner=owner,
                nonce=nonce,
                lease_version=present.lease_version + 1,
                expires_at_ms=now_ms + ttl_ms,
            )
            self._heads[expected.run_id] = head
            return head

    def renew(self, held: Head, ttl_ms: int) -> Head:
        """Extend the lease; never shorten it."""
        rules.check_term(ttl_ms, held.run_id)
        with self._lock:
            present, now_ms = self._heads.get(held.run_id), self._now_ms()
            refusal = rules.holder_refusal(present, held, now_ms)
            if refusal is not None or present is None:
                raise refusal or rules.missing(held.run_id)
            head = replace(present, expires_at_ms=max(present.expires_at_ms, now_ms + ttl_ms))
            self._heads[held.run_id] = head
            return head

    def advance(self, batch: Sequence[Advance]) -> tuple[Head, ...]:
        """Move heads on, in order, all of the batch or none."""
        for move in batch:
            rules.check_digest(move.checkpoint)
            rules.check_status(move.status, move.expected.run_id)
            rules.check_term(move.ttl_ms, move.expected.run_id)
        with self._lock:
            now_ms, heads = self._now_ms(), dict[RunId, Head]()
            moved: list[Head] = []
            for move in batch:
                run_id = move.expected.run_id
                present = heads.get(run_id) or self._heads.get(run_id)
                refusal = rules.advance_refusal(present, move.expected, now_ms)
                if refusal is not None or present is None:
                    raise refusal or rules.missing(run_id)
                heads[run_id] = replace(
                    present,
                    generation=present.generation + 1,
                    checkpoint=move.checkpoint,
                    status=move.status,
                    expires_at_ms=max(present.expires_at_ms, now_ms + move.ttl_ms),
                )
                moved.append(heads[run_id])
            self._heads.update(heads)
            return tuple(moved)

    def release(self, held: Head, pause_ms: int = 0) -> None:
        """Give the lease up, if it is still the caller's; otherwise do nothing."""
        rules.check_pause(pause_ms, held.run_id)
        with self._lock:
            present = self._heads.get(held.run_id)
            if present is None:
                return
            if (present.nonce, present.lease_version) == (held.nonce, held.lease_version):
                until_ms = self._now_ms() + pause_ms if pause_ms else 0
                self._heads[held.run_id] = replace(
                    present, owner="", nonce="", expires_at_ms=until_ms
                )

    def claimable(self, limit: int) -> tuple[Head, ...]:
        """Return active heads that are free, those that are so longest first."""
        with self._lock:
            now_ms = self._now_ms()
            free = [
                head
                for head in self._heads.values()
                if head.status == "active" and head.expires_at_ms <= now_ms
            ]
        free.sort(key=lambda head: (head.expires_at_ms, head.run_id))
        return tuple(free[: max(0, limit)])

    def heads(self, after: str, limit: int) -> tuple[Head, ...]:
        """Return heads in order of run id, from after `after`, at most `limit`."""
        with self._lock:
            return tuple(self._heads[run_id] for run_id in _page(self._heads, after, limit))

    def close(self) -> None:
        """Do nothing: there is no connection, and what is registered stays."""

    def _now_ms(self) -> int:
        """Return the register's clock: the caller's, but never going back."""
        self._floor_ms = max(self._floor_ms, self._wall_ms())
        return self._floor_ms


class MemoryInbox:
    """An `Inbox` in memory, for tests and trials; safe to share by threads."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._statements: dict[RunId, dict[bytes, None]] = {}

    def put(self, run_id: RunId, statement: bytes) -> None:
        """Keep a statement; the same bytes twice are one."""
        with self._lock:
            self._statements.setdefault(run_id, {}).setdefault(statement)

    def pending(self, run_id: RunId, limit: int) -> tuple[bytes, ...]:
        """Return statements in order of arrival, at most `limit`."""
        with self._lock:
            return tuple(islice(self._statements.get(run_id, {}), max(0, limit)))

    def discard(self, run_id: RunId, statement: bytes) -> None:
        """Drop a statement; nothing if it is not there."""
        with self._lock:
            self._statements.get(run_id, {}).pop(statement, None)

    def arrivals(self, after: str, limit: int) -> tuple[RunId, ...]:
        """Return runs that have statements, in order of their code points."""
        with self._lock:
            return _page((run for run, kept in self._statements.items() if kept), after, limit)

    def close(self) -> None:
        """Do nothing: there is no connection, and what arrived stays."""


def _page(run_ids: Iterable[RunId], after: str, limit: int) -> tuple[RunId, ...]:
    return tuple(sorted(run_id for run_id in run_ids if run_id > after)[: max(0, limit)])

"""Migrations: a reviewer's leave to go on under another version of a task.

A migration names the head that it goes on from, so it counts once.
"""

from counterfoil.core import task as tasks
from counterfoil.core.codec import Opened
from counterfoil.core.errors import IntegrityError
from counterfoil.core.review import open_migration
from counterfoil.core.task import Task
from counterfoil.core.trust import standing_problem
from counterfoil.core.words import Digest
from counterfoil.engine.parts import Parts
from counterfoil.engine.statements import signer_of
from counterfoil.ports import Head

STATEMENTS_PAGE = 64
PAGES_MAX = 64
"""Statements looked at: what nobody trusted signed is dropped, and makes room."""


def live_migration(parts: Parts, head: Head, found: Opened, task: Task) -> str | None:
    """Return the envelope of a live migration of exactly this head to this task, or None."""
    if parts.inbox is None or found.header.task != task.id:
        return None
    to_task = tasks.fingerprint(task)
    for _ in range(PAGES_MAX):
        is_crowded = False
        for envelope in parts.inbox.pending(head.run_id, STATEMENTS_PAGE):
            if _is_live(parts, envelope, head, found, to_task):
                return envelope.decode("utf-8")
            if _is_junk(parts, envelope):
                parts.inbox.discard(head.run_id, envelope)
                is_crowded = True
        if not is_crowded:
            return None
    return None


def _is_junk(parts: Parts, envelope: bytes) -> bool:
    try:
        signer_of(envelope, parts.roots)
    except IntegrityError:
        return True
    return False


def _is_live(parts: Parts, envelope: bytes, head: Head, found: Opened, to_task: Digest) -> bool:
    now_ms = max(parts.clock.now_ms(), found.run.floor_ms)
    try:
        migration, signer = open_migration(envelope, parts.roots)
    except IntegrityError:
        return False
    is_this = (
        migration.run == head.run_id
        and migration.checkpoint == head.checkpoint
        and migration.from_task == found.header.task_digest
        and migration.to_task == to_task
    )
    problem = standing_problem(
        signer.entry,
        issued_at_ms=migration.issued_at_ms,
        now_ms=now_ms,
        task=found.header.task,
        kind="",
        risk=None,
        adapter="",
    )
    return is_this and now_ms < migration.expires_at_ms and not problem

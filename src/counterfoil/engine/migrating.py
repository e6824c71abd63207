"""Migrations: a reviewer's leave to go on under another version of a task.

A migration names the head that it goes on from, so it counts once.
"""

from counterfoil.core import task as tasks
from counterfoil.core.codec import Opened
from counterfoil.core.errors import IntegrityError
from counterfoil.core.review import open_migration
from counterfoil.core.task import Task
from counterfoil.core.trust import standing_problem
from counterfoil.engine.parts import Parts
from counterfoil.ports import Head

STATEMENTS_PAGE = 64
"""Statements looked at; a run that is bound to another task takes no others."""


def live_migration(parts: Parts, head: Head, found: Opened, task: Task) -> str | None:
    """Return the envelope of a live migration of exactly this head to this task, or None."""
    header = found.header
    if parts.inbox is None or header.task != task.id:
        return None
    now_ms = max(parts.clock.now_ms(), found.run.floor_ms)
    for envelope in parts.inbox.pending(head.run_id, STATEMENTS_PAGE):
        try:
            migration, signer = open_migration(envelope, parts.roots)
        except IntegrityError:
            continue
        is_this = (
            migration.run == head.run_id
            and migration.checkpoint == head.checkpoint
            and migration.from_task == header.task_digest
            and migration.to_task == tasks.fingerprint(task)
        )
        problem = standing_problem(
            signer.entry,
            issued_at_ms=migration.issued_at_ms,
            now_ms=now_ms,
            task=task.id,
            kind="",
            risk=None,
            adapter="",
        )
        if is_this and now_ms < migration.expires_at_ms and not problem:
            return envelope.decode("utf-8")
    return None

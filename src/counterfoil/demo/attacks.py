"""Three attacks on real files, each of which must be refused by name.

Each does what somebody with write access to the project, or to its surroundings, could
do, lets a worker open the run, and puts everything back.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from counterfoil.core.review import CaseReason
from counterfoil.demo.children import ShopChild, WorkerChild
from counterfoil.demo.driver import RUN_ID, Attempt, try_once
from counterfoil.demo.messages import Sent, Work
from counterfoil.demo.plan import Moment, Plan
from counterfoil.demo.restock import call_shop
from counterfoil.stores.sqlite_driver import connect, keep_log

SPARE_RUN_ID = "restock-spare"


@dataclass(frozen=True, kw_only=True, slots=True)
class Attack:
    """One attack and its end.

    Attributes:
        name: What was tried.
        refused: Whether the one right error answered, and nothing was sent.
        answer: Name of the error or case.
        message: What it said.
    """

    name: str
    refused: bool
    answer: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """What attacks act on.

    Attributes:
        plan: The plan.
        worker: Parent of the workers.
        port: Where the shop listens.
        checkpoints: Folder of the project's checkpoints.
        yesterday: A copy of it from the middle of the run.
        aside: Folder for copies.
    """

    plan: Plan
    worker: WorkerChild
    port: int
    checkpoints: Path
    yesterday: Path
    aside: Path


def change_a_checkpoint(scene: Scene) -> Attack:
    """Change one byte of the newest checkpoint in the database."""
    kept = _keep(scene)
    _change_newest(scene.checkpoints / "checkpoints.db")
    attempt = _open(scene, RUN_ID, scene.port)
    _replace(scene.checkpoints, kept)
    return _judged("a changed checkpoint", attempt, ("SignatureError", "FormatError"))


def put_yesterday_back(scene: Scene) -> Attack:
    """Put genuine but old checkpoints in the place of the newest ones."""
    kept = _keep(scene)
    _replace(scene.checkpoints, scene.yesterday)
    attempt = _open(scene, RUN_ID, scene.port)
    _replace(scene.checkpoints, kept)
    return _judged("yesterday's checkpoints put back", attempt, ("RollbackError",))


def swap_the_shop(scene: Scene, other: ShopChild) -> Attack:
    """Kill a second run with a pending order, and let it find another shop."""
    items = (scene.plan.spare,)
    begun = try_once(
        scene.worker,
        Work(run_id=SPARE_RUN_ID, items=items, port=scene.port, stop_at=Moment.BEFORE_EXECUTE),
    )
    job = Work(run_id=SPARE_RUN_ID, items=items, port=other.port)
    attempt = try_once(scene.worker, job)
    attack = _judged("another shop at the same door", attempt, ("FrozenError",))
    reason, _, finding = attack.message.partition(": ")
    is_drift = reason == CaseReason.ENVIRONMENT_DRIFT
    is_untouched = call_shop(other.port, "GET", "/orders")[1] == []
    return Attack(
        name=attack.name,
        refused=attack.refused and begun.was_killed and is_drift and is_untouched,
        answer=f"{attack.answer}: {reason}",
        message=finding,
    )


def _open(scene: Scene, run_id: str, port: int) -> Attempt:
    return try_once(scene.worker, Work(run_id=run_id, items=scene.plan.items, port=port))


def _judged(name: str, attempt: Attempt, wanted: tuple[str, ...]) -> Attack:
    failed = attempt.failed
    was_sent = any(isinstance(fact, Sent) for fact in attempt.facts)
    answer = failed.error if failed else "nothing"
    return Attack(
        name=name,
        refused=answer in wanted and not was_sent,
        answer=answer,
        message=failed.message if failed else "",
    )


def _change_newest(database: Path) -> None:
    connection = connect(database)
    keep_log(connection)
    newest = "SELECT number, envelope FROM checkpoint ORDER BY generation DESC, number DESC LIMIT 1"
    row = connection.execute(newest).fetchone()
    number, envelope = cast("tuple[int, bytes]", row)  # the columns as the schema types them
    changed = bytearray(envelope)
    changed[len(changed) // 2] ^= 1
    connection.execute(
        "UPDATE checkpoint SET envelope = ? WHERE number = ?", (bytes(changed), number)
    )
    connection.close()


def _keep(scene: Scene) -> Path:
    kept = scene.aside / "newest"
    copy_folder(scene.checkpoints, kept)
    return kept


def _replace(folder: Path, source: Path) -> None:
    copy_folder(source, folder)


def copy_folder(source: Path, target: Path) -> None:
    """Make `target` a copy of `source`, modes included."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)

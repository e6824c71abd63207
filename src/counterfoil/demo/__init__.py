"""The demo: a real task, killed at every step in every crash window, counted at its targets.

Three kinds of processes take part: a shop with its own database, a worker that is
killed and started again, and the driver, which kills and counts. The driver believes
nothing that the worker says about effects.
"""

import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

import counterfoil as cf
from counterfoil.demo import attacks, report
from counterfoil.demo.attacks import Attack, Scene
from counterfoil.demo.children import ShopChild, WorkerChild
from counterfoil.demo.counting import Target
from counterfoil.demo.driver import Attempt, Record, audit_run, kill_everywhere
from counterfoil.demo.plan import Plan, make_plan
from counterfoil.demo.report import Verdict
from counterfoil.demo.screen import LiveView, PlainView, SilentView
from counterfoil.settings import FILE_NAME, FOLDER_NAME

__all__ = ["run_demo"]

SETTINGS = """\
[project]
id = "demo"

[commit]
durability = "strict"  # each receipt alone, so that every crash window exists

[adapters.files]
root = "warehouse"
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """Folders of one demo."""

    root: Path

    @property
    def project(self) -> Path:
        return self.root / "project"

    @property
    def warehouse(self) -> Path:
        return self.project / "warehouse"

    @property
    def checkpoints(self) -> Path:
        return self.project / FOLDER_NAME

    @property
    def log(self) -> Path:
        return self.root / "children.log"


def run_demo(*, as_json: bool, seed: int, folder: Path | None, is_sabotaged: bool = False) -> int:
    """Kill a real task at every step in every crash window, and count its effects.

    Args:
        as_json: Print one JSON object and nothing else.
        seed: Of the plan; the same seed kills at the same moments.
        folder: Where everything is kept, new or empty; a temporary folder by default.
        is_sabotaged: Have shop and look-up forget keys, to see the count find it.

    Returns:
        0 when each effect happened once, everything is verified and each attack was
        refused; otherwise 1.

    Raises:
        ConfigError: The folder holds something.
        UnavailableError: A process of the demo does not answer.
    """
    began_at = time.monotonic()
    plan = make_plan(seed)
    console = Console()
    view: SilentView
    if as_json:
        view = SilentView()
    else:
        console.print(
            f"[bold]Counterfoil demo[/bold]: {len(plan.steps)} write steps at a shop and in a "
            f"folder, {plan.kills} kills, seed {seed}",
            highlight=False,
        )
        view = LiveView(plan, console) if console.is_terminal else PlainView(plan, console)
    with _placed(folder) as place:
        with view:
            verdict = _perform(plan, place, view, began_at, is_sabotaged=is_sabotaged)
        if as_json:
            sys.stdout.write(report.as_json(verdict) + "\n")
        else:
            report.show(verdict, console)
            if folder is not None:
                console.print(f"Everything is kept in {place.root}", soft_wrap=True)
    return 0 if verdict.is_good else 1


@contextmanager
def _placed(folder: Path | None) -> Generator[_Place]:
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="counterfoil-demo-") as made:
            yield _set_up(Path(made))
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise cf.ConfigError(f"{folder} is not an empty folder", move="name a new one")
    folder.mkdir(parents=True, exist_ok=True)
    yield _set_up(folder.resolve())


def _set_up(root: Path) -> _Place:
    place = _Place(root=root)
    (place.warehouse / "orders").mkdir(parents=True)
    (place.project / FILE_NAME).write_text(SETTINGS, encoding="utf-8")
    return place


def _perform(
    plan: Plan, place: _Place, view: SilentView, began_at: float, *, is_sabotaged: bool
) -> Verdict:
    with (
        _shop(plan, place, 0, forgets_keys=is_sabotaged) as shop,
        WorkerChild(
            place.project, place.root / "home", log=place.log, is_sabotaged=is_sabotaged
        ) as worker,
    ):
        target = Target(plan=plan, port=shop.port, database=shop.database, folder=place.warehouse)
        scene = Scene(
            plan=plan,
            worker=worker,
            port=shop.port,
            checkpoints=place.checkpoints,
            yesterday=place.root / "yesterday",
            aside=place.root / "aside",
        )
        view.phase("killing a worker, and starting it again")
        record = kill_everywhere(
            plan,
            worker,
            target,
            view,
            at_half=lambda: attacks.copy_folder(scene.checkpoints, scene.yesterday),
        )
        totals = target.totals()
        view.phase("verifying every checkpoint")
        before = audit_run(worker, shop.port)
        refusals = () if record.failure else _attacked(scene, place, view)
        after = audit_run(worker, shop.port)
    return Verdict(
        seed=plan.seed,
        steps=len(plan.steps),
        deaths=record.deaths,
        totals=totals,
        attacks=refusals,
        verified=_are_verified(record, before, after),
        checkpoints=before.audited.checkpoints if before.audited else 0,
        failure=record.failure,
        seconds=time.monotonic() - began_at,
    )


def _shop(plan: Plan, place: _Place, number: int, *, forgets_keys: bool) -> ShopChild:
    instance = plan.instances[number]
    return ShopChild(
        place.root / f"{instance}.db", instance, log=place.log, forgets_keys=forgets_keys
    )


def _attacked(scene: Scene, place: _Place, view: SilentView) -> tuple[Attack, ...]:
    view.phase("attacking: changed checkpoints, old checkpoints, another shop")
    changed = attacks.change_a_checkpoint(scene)
    rolled_back = attacks.put_yesterday_back(scene)
    with _shop(scene.plan, place, 1, forgets_keys=False) as other:
        swapped = attacks.swap_the_shop(scene, other)
    return changed, rolled_back, swapped


def _are_verified(record: Record, before: Attempt, after: Attempt) -> bool:
    """Return whether the run completed and stood both audits, with one and the same root."""
    is_whole = before.audited is not None and before.audited == after.audited
    return is_whole and not record.failure

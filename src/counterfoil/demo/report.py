"""What the demo found, as one value, as tables for people, as one JSON object."""

import json
from collections import Counter
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from counterfoil.demo.attacks import Attack
from counterfoil.demo.counting import Totals
from counterfoil.demo.driver import Death
from counterfoil.demo.plan import Window


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What the demo found.

    Attributes:
        seed: Seed of the plan.
        steps: Writes of the task.
        deaths: Every kill of the main run.
        totals: Effects on the targets.
        attacks: The attacks and their ends.
        verified: Whether every checkpoint stood the audit, before the attacks and after.
        checkpoints: Checkpoints that were verified.
        failure: Why the run did not complete; empty when it did.
        seconds: How long all of it took.
    """

    seed: int
    steps: int
    deaths: tuple[Death, ...]
    totals: Totals
    attacks: tuple[Attack, ...]
    verified: bool
    checkpoints: int
    failure: str
    seconds: float

    @property
    def is_good(self) -> bool:
        """Whether each effect happened once, all is verified, each attack was refused."""
        totals = self.totals
        is_once = totals.counted == totals.expected and not totals.duplicates and not totals.lost
        are_refused = bool(self.attacks) and all(attack.refused for attack in self.attacks)
        return is_once and are_refused and self.verified and not self.failure


def as_json(verdict: Verdict) -> str:
    """Return the verdict as one JSON object on one line."""
    totals = verdict.totals
    windows = Counter(death.window for death in verdict.deaths)
    found = {
        "seed": verdict.seed,
        "steps": verdict.steps,
        "kills": len(verdict.deaths),
        "effects": {"expected": totals.expected, "counted": totals.counted},
        "duplicates": totals.duplicates,
        "lost": totals.lost,
        "windows": {window.value: windows[window] for window in Window},
        "attacks": {attack.name: attack.refused for attack in verdict.attacks},
        "answers": {attack.name: attack.answer for attack in verdict.attacks},
        "verified": verdict.verified,
        "checkpoints": verdict.checkpoints,
        "failure": verdict.failure,
        "seconds": round(verdict.seconds, 1),
    }
    return json.dumps(found, ensure_ascii=False)


def show(verdict: Verdict, console: Console) -> None:
    """Print the final tables and one line of verdict."""
    console.print(_windows_table(verdict))
    console.print(
        "Each receipt is committed alone here (commit.durability is strict), so that every\n"
        "window exists. Effects are counted in the shop's database and in the folder.",
        style="dim",
    )
    console.print()
    console.print(_attacks_table(verdict))
    console.print()
    if verdict.failure:
        console.print(Text(f"The run did not complete: {verdict.failure}", style="red"))
    console.print(_sentence(verdict))


def _windows_table(verdict: Verdict) -> Table:
    table = Table(title="Killed, and recovered", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("SIGKILL in this window", ratio=1)
    table.add_column("kills", justify="right")
    table.add_column("next found", no_wrap=True)
    table.add_column("and then", no_wrap=True)
    table.add_column("effects\nat death", justify="right")
    groups = _grouped(verdict.deaths)
    for window in Window:
        rows = [
            (str(len(deaths)), found, did, str(sum(death.effects for death in deaths)))
            for (place, found, did), deaths in groups.items()
            if place is window
        ]
        table.add_row(window.value, *("\n".join(column) for column in zip(*rows, strict=True)))
    totals = verdict.totals
    table.add_section()
    table.add_row(
        f"{verdict.steps} steps, at the end",
        str(len(verdict.deaths)),
        f"{totals.duplicates} twice",
        f"{totals.lost} lost",
        str(totals.counted),
        style="bold",
    )
    return table


def _grouped(deaths: tuple[Death, ...]) -> dict[tuple[Window, str, str], list[Death]]:
    order = list(Window)
    groups: dict[tuple[Window, str, str], list[Death]] = {}
    for death in sorted(deaths, key=lambda death: (order.index(death.window), death.found)):
        groups.setdefault((death.window, death.found, death.did), []).append(death)
    return groups


def _attacks_table(verdict: Verdict) -> Table:
    table = Table(title="Attacked, and refused", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("attack", no_wrap=True)
    table.add_column("answer", ratio=1)
    table.add_column("refused")
    for attack in verdict.attacks:
        style = "green" if attack.refused else "bold red"
        answer = Text.assemble((attack.answer, "bold"), f"\n{attack.message}")
        table.add_row(attack.name, answer, Text("yes" if attack.refused else "NO", style=style))
    return table


def _sentence(verdict: Verdict) -> Text:
    totals, kills = verdict.totals, len(verdict.deaths)
    refused = sum(attack.refused for attack in verdict.attacks)
    rest = f"{refused} of {len(verdict.attacks)} attacks refused"
    seconds = f"{verdict.seconds:.1f} s"
    if verdict.is_good:
        return Text(
            f"Held: {kills} kills, {totals.counted} of {totals.expected} effects once, {rest}, "
            f"verified, {seconds}",
            style="bold green",
        )
    verified = "verified" if verdict.verified else "NOT verified"
    return Text(
        f"BROKEN: {kills} kills, {totals.counted} effects for {totals.expected}, "
        f"{totals.duplicates} twice, {totals.lost} lost, {rest}, {verified}, {seconds}",
        style="bold red",
    )

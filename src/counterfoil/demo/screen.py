"""What a person sees while the demo runs: a live view, plain lines, or nothing."""

import time
from collections import Counter
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from counterfoil.demo.plan import Kill, Plan, Window, WriteStep


class SilentView:
    """Shows nothing."""

    def killed(self, step: WriteStep, kill: Kill, effects: int) -> None:
        """Show nothing."""

    def phase(self, text: str) -> None:
        """Show nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Hold nothing, so let go of nothing."""


class PlainView(SilentView):
    """Writes a line for each step: for files and pipes."""

    def __init__(self, plan: Plan, console: Console) -> None:
        self._plan = plan
        self._console = console
        self._began_at = time.monotonic()
        self._fell: Counter[str] = Counter()

    def killed(self, step: WriteStep, kill: Kill, effects: int) -> None:
        """Write a line once a step has had all its kills."""
        self._fell[step.name] += 1
        if self._fell[step.name] == len(step.kills):
            number = self._plan.steps.index(step) + 1
            self._line(
                f"step {number:>2} of {len(self._plan.steps)}  {step.name:<20} "
                f"killed {len(step.kills)} times, effects {effects}"
            )

    def phase(self, text: str) -> None:
        """Write a line."""
        self._line(text)

    def _line(self, text: str) -> None:
        elapsed = time.monotonic() - self._began_at
        self._console.print(f"{elapsed:5.1f} s  {text}", highlight=False, soft_wrap=True)


class LiveView(SilentView):
    """Owns the terminal while the demo runs; draws at each kill, with no thread."""

    def __init__(self, plan: Plan, console: Console) -> None:
        self._plan = plan
        self._began_at = time.monotonic()
        self._marks: dict[str, int] = {}
        self._effects: dict[str, int] = {}
        self._windows: Counter[Window] = Counter()
        self._newest: Kill | None = None
        self._phase = "starting a shop and a worker"
        self._cross, self._check = ("✗", "✓") if console.encoding.startswith("utf") else ("x", "ok")
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def killed(self, step: WriteStep, kill: Kill, effects: int) -> None:
        """Draw one more kill."""
        self._marks[step.name] = self._marks.get(step.name, 0) + 1
        self._effects[step.name] = effects
        self._windows[kill.window] += 1
        self._newest = kill
        self._phase = f"{step.name}: {kill.moment}"
        self._draw()

    def phase(self, text: str) -> None:
        """Draw what is done next."""
        self._phase = text
        self._draw()

    def __enter__(self) -> Self:
        self._live.start()
        self._draw()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def _draw(self) -> None:
        kills = self._windows.total()
        elapsed = time.monotonic() - self._began_at
        sides = Table.grid(padding=(0, 2))
        sides.add_row(self._steps(), self._counts())
        foot = Text.assemble(
            (f"{kills} of {self._plan.kills} kills", "bold"), f"  {elapsed:4.1f} s  {self._phase}"
        )
        self._live.update(Group(sides, Text(), foot), refresh=True)

    def _steps(self) -> RenderableType:
        table = Table(box=None, pad_edge=False, padding=(0, 1))
        table.add_column("step")
        table.add_column("killed", min_width=9)
        table.add_column("effects", justify="right")
        for step in self._plan.steps:
            marks = self._marks.get(step.name, 0)
            effects = self._effects.get(step.name)
            is_done = marks == len(step.kills) and effects == 1
            count = "" if effects is None else str(effects)
            table.add_row(
                Text(step.name, style="" if marks else "dim"),
                Text(self._cross * marks, style="red"),
                Text(f"{count} {self._check}" if is_done else f"{count}  ", style="green"),
            )
        return table

    def _counts(self) -> RenderableType:
        table = Table(box=None, pad_edge=False, padding=(0, 1))
        table.add_column("SIGKILL, by crash window", max_width=34)
        table.add_column("kills", justify="right")
        for window in Window:
            is_newest = self._newest is not None and self._newest.window is window
            style = "bold red" if is_newest else ""
            table.add_row(
                Text(window.value, style=style), Text(str(self._windows[window]), style=style)
            )
        return table

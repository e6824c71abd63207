"""Effects, counted where they happened: in the shop and in the folder.

Nothing here asks Counterfoil. An order is a row of the shop. A file counts once for
each time that it was seen to have been made: a second write leaves another inode or
another time of change.
"""

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from counterfoil.demo.plan import Plan, WriteStep
from counterfoil.demo.restock import call_shop
from counterfoil.demo.shop import rows_by_key


@dataclass(frozen=True, kw_only=True, slots=True)
class Totals:
    """Effects on the targets, when all is done.

    Attributes:
        expected: One for each write step.
        counted: All that are there, planned or not.
        duplicates: Those beyond the first of their step, and those of no step.
        lost: Steps without their effect, or with another content.
    """

    expected: int
    counted: int
    duplicates: int
    lost: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """Where the effects of the main run land.

    Attributes:
        plan: What is expected.
        port: Where the shop listens.
        database: The shop's database.
        folder: Root of the files.
        seen: Per file, every identity that it was seen under.
    """

    plan: Plan
    port: int
    database: Path
    folder: Path
    seen: dict[str, set[tuple[int, int]]] = field(default_factory=dict[str, set[tuple[int, int]]])

    def effects(self) -> Counter[str]:
        """Return how many effects there are, by name of their step."""
        counts: Counter[str] = Counter()
        for order in self._orders():
            counts[f"order {order['sku']}"] += 1
        for name, identities in self._files().items():
            counts[f"file {name}"] += len(identities)
        return counts

    def totals(self) -> Totals:
        """Return the final count; the shop's answer and its database must agree."""
        counts = self.effects()
        names = {step.name for step in self.plan.steps}
        rows = rows_by_key(self.database)
        orders = self._orders()
        repeated = sum(counts[name] - 1 for name in names if counts[name] > 1)
        foreign = sum(count for name, count in counts.items() if name not in names)
        in_shop = sum(counts[step.name] for step in self.plan.steps if step.is_order)
        disagreed = abs(sum(rows.values()) - in_shop)
        kept = sum(self._is_kept(step, orders) for step in self.plan.steps)
        return Totals(
            expected=len(self.plan.steps),
            counted=counts.total() + disagreed,
            duplicates=repeated + foreign + disagreed,
            lost=len(self.plan.steps) - kept,
        )

    def _orders(self) -> list[dict[str, Any]]:
        orders: list[dict[str, Any]] = call_shop(self.port, "GET", "/orders")[1]
        return orders

    def _files(self) -> dict[str, set[tuple[int, int]]]:
        for place, _, names in os.walk(self.folder):
            for name in names:
                file = Path(place, name)
                status = file.stat()
                at = file.relative_to(self.folder).as_posix().removeprefix("orders/")
                self.seen.setdefault(at, set()).add((status.st_ino, status.st_mtime_ns))
        return self.seen

    def _is_kept(self, step: WriteStep, orders: list[dict[str, Any]]) -> bool:
        """Return whether a step's effect is there, with the content that it must have."""
        item = step.item
        found = [
            {name: order[name] for name in ("number", "sku", "quantity")}
            for order in orders
            if (order["sku"], order["quantity"]) == (item.sku, item.quantity)
        ]
        if step.is_order:
            return bool(found)
        file = self.folder / "orders" / f"{item.sku}.json"
        return file.exists() and json.loads(file.read_bytes()) in found

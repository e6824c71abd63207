"""What the demo does and where it kills: items, write steps, windows, moments.

The whole plan follows from a seed, so that a run can be repeated. A window is a row of
the table of crash windows; a moment is one exact place at a port inside a window.
"""

import random
from enum import StrEnum

import msgspec

ITEMS = 6
"""Items to restock; each is one order at the shop and one file, so twelve write steps."""

QUANTITY_MAX = 9

WORDS = ("anchor", "bellows", "candle", "drill", "easel", "funnel", "gimlet", "hinge", "ink", "jar")


class Window(StrEnum):
    """A row of the table of crash windows."""

    UNPROPOSED = "before the proposal is durable"
    UNSENT = "intent durable, effect not sent"
    UNRECORDED = "effect done, receipt not durable"
    UNLINKED = "between put and advance of the receipt"
    RECORDED = "after the receipt"
    ASKING = "recovering, before the look-up answers"
    ANSWERED = "recovering, look-up answered, not committed"


class Moment(StrEnum):
    """A place at a port where a worker stops and waits for its death."""

    INTENT_BEFORE_PUT = "before put of the intent"
    INTENT_BEFORE_ADVANCE = "before advance to the intent"
    INTENT_AFTER_ADVANCE = "after advance to the intent"
    BEFORE_EXECUTE = "before the call"
    AFTER_EXECUTE = "after the call"
    RECEIPT_BEFORE_PUT = "before put of the receipt"
    RECEIPT_BEFORE_ADVANCE = "before advance to the receipt"
    RECEIPT_AFTER_ADVANCE = "after advance to the receipt"
    LEASE_TAKEN = "after the lease was taken"
    FENCE_RAISED = "after a fence was raised"
    BEFORE_LOOK_UP = "before the look-up"
    AFTER_LOOK_UP = "after the look-up"
    RESENT_BEFORE_PUT = "before put of the resending"
    RESENT_BEFORE_ADVANCE = "before advance to the resending"


LADDER: tuple[tuple[Window, tuple[Moment, ...]], ...] = (
    (Window.UNPROPOSED, (Moment.INTENT_BEFORE_PUT, Moment.INTENT_BEFORE_ADVANCE)),
    (Window.UNSENT, (Moment.INTENT_AFTER_ADVANCE, Moment.BEFORE_EXECUTE)),
    (Window.ASKING, (Moment.LEASE_TAKEN, Moment.FENCE_RAISED, Moment.BEFORE_LOOK_UP)),
    (
        Window.ANSWERED,
        (Moment.AFTER_LOOK_UP, Moment.RESENT_BEFORE_PUT, Moment.RESENT_BEFORE_ADVANCE),
    ),
    (Window.UNRECORDED, (Moment.AFTER_EXECUTE, Moment.RECEIPT_BEFORE_PUT)),
    (Window.ASKING, (Moment.LEASE_TAKEN, Moment.FENCE_RAISED, Moment.BEFORE_LOOK_UP)),
    (Window.ANSWERED, (Moment.AFTER_LOOK_UP, Moment.RECEIPT_BEFORE_PUT)),
    (Window.UNLINKED, (Moment.RECEIPT_BEFORE_ADVANCE,)),
    (Window.RECORDED, (Moment.RECEIPT_AFTER_ADVANCE,)),
)
"""The kills of one step, in an order in which one step can have them all.

The effect happens in the fifth attempt; what comes before finds it absent, what comes
after finds it done.
"""


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """What is missing in the warehouse.

    Attributes:
        sku: Name of the goods at the shop.
        quantity: How many to order.
    """

    sku: str
    quantity: int


class Kill(msgspec.Struct, frozen=True, kw_only=True):
    """One death to come: in which window, and where exactly."""

    window: Window
    moment: Moment


class WriteStep(msgspec.Struct, frozen=True, kw_only=True):
    """One write of the task.

    Attributes:
        name: For people, and to count its effects by.
        item: What it is about.
        is_order: Whether it is an order at the shop; otherwise it is a file.
        position: Its place among everything that the program does.
        kills: The deaths on the way, in order.
    """

    name: str
    item: Item
    is_order: bool
    position: int
    kills: tuple[Kill, ...]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that follows from a seed.

    Attributes:
        seed: The seed.
        items: What the main run restocks.
        spare: What the second, unfinished run was to restock.
        steps: The writes of the main run.
        instances: Names of the shop, and of the shop that stands in its place later.
    """

    seed: int
    items: tuple[Item, ...]
    spare: Item
    steps: tuple[WriteStep, ...]
    instances: tuple[str, str]

    @property
    def kills(self) -> int:
        """Number of deaths in the main run."""
        return sum(len(step.kills) for step in self.steps)


def make_plan(seed: int) -> Plan:
    """Return the plan of a seed; the same seed gives the same plan."""
    draw = random.Random(seed)  # noqa: S311 - a plan is to be repeatable, not secret
    names = draw.sample(WORDS, ITEMS + 1)
    chosen = [Item(sku=name, quantity=draw.randint(1, QUANTITY_MAX)) for name in names]
    items, spare = tuple(chosen[:ITEMS]), chosen[ITEMS]
    steps: list[WriteStep] = []
    for item in items:
        for is_order in (True, False):
            kills = tuple(
                Kill(window=window, moment=draw.choice(moments)) for window, moments in LADDER
            )
            steps.append(
                WriteStep(
                    name=f"order {item.sku}" if is_order else f"file {item.sku}.json",
                    item=item,
                    is_order=is_order,
                    position=len(steps) + 1,  # position 0 holds the remembered list
                    kills=kills,
                )
            )
    first, second = (f"shop-{draw.getrandbits(32):08x}" for _ in range(2))
    return Plan(seed=seed, items=items, spare=spare, steps=tuple(steps), instances=(first, second))

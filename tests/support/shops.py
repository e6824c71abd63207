"""A shop that lives outside every worker, and keepers whose effects order from it."""

from dataclasses import dataclass, field

from counterfoil.adapters.function import Call, Effects, Found
from counterfoil.adapters.function.effects import Bounds
from counterfoil.compose import wire
from counterfoil.core.errors import IdempotencyConflictError
from counterfoil.core.task import Policy, Task, Verification
from counterfoil.core.words import Json
from counterfoil.engine.session import Session
from counterfoil.keeper import Keeper
from counterfoil.keys import keyring_of
from counterfoil.settings import Commit, Settings
from counterfoil.stores.memory import MemoryHeads, MemoryStore
from tests.support.scenes import SECRET, TTL_MS, StillClock

TASK = Task(
    id="restock",
    policy=Policy(permissions=("shop.order", "shop.check", "shop.stock", "shop.photo")),
    verifier=Verification(kind="shop.check"),
)


@dataclass(kw_only=True)
class Shop:
    """A target that keeps one order per key, and counts what reaches it.

    Attributes:
        orders: Order and digest by key.
        calls: Writes on the wire.
        asked: Look-ups on the wire.
        fault: What goes wrong with the next calls: "", "reset" (done, answer lost),
            "refused" (never arrives), "killed" (done, and the worker dies).
        look_up_fault: Whether look-ups fail.
    """

    orders: dict[str, tuple[str, Json]] = field(default_factory=dict)
    calls: int = 0
    asked: int = 0
    fault: str = ""
    look_up_fault: bool = False

    def order(self, key: str, digest: str, body: Json) -> Json:
        self.calls += 1
        if self.fault == "refused":
            raise ConnectionRefusedError
        if key in self.orders and self.orders[key][0] != digest:
            raise IdempotencyConflictError("the key holds another order")
        self.orders.setdefault(key, (digest, {"id": len(self.orders) + 1, "body": body}))
        if self.fault == "reset":
            raise ConnectionResetError
        if self.fault == "killed":
            raise WorkerKilled
        return self.orders[key][1]

    def find(self, key: str) -> object:
        self.asked += 1
        if self.look_up_fault:
            raise TimeoutError
        found = self.orders.get(key)
        return None if found is None else Found(result=found[1], digest=found[0])


class WorkerKilled(BaseException):
    """The worker dies here; nothing in the library catches it."""


def effects_of(
    shop: Shop, *, level: str = "deduplicating", bounds: Bounds | None = None
) -> Effects:
    """Return the shop's effects at a level; a blind one has no look-up."""
    effects = Effects()
    look_up = None if level == "blind" else shop.find

    @effects.effect("shop.order", level=level, look_up=look_up, bounds=bounds, volatile=("token",))
    def order(call: Call, *, sku: str, quantity: int = 1, token: str = "") -> Json:
        return shop.order(call.key, call.digest, {"sku": sku, "quantity": quantity})

    @effects.effect("shop.stock", risk="read_only")
    def stock(call: Call) -> Json:
        return {"orders": len(shop.orders)}

    @effects.effect("shop.photo", risk="read_only")
    def photo(call: Call) -> object:
        return {"raw": b"\xff\x00", "text": "half \ud83d"}

    @effects.effect("shop.check", risk="verification")
    def check(call: Call) -> Json:
        return {"passed": len(shop.orders) > 0}

    return effects


@dataclass(kw_only=True)
class Street:
    """A shop, its clock and its stores; workers come and go."""

    shop: Shop = field(default_factory=Shop)
    clock: StillClock = field(default_factory=StillClock)
    store: MemoryStore = field(default_factory=MemoryStore)
    level: str = "deduplicating"
    bounds: Bounds | None = None
    merges: bool = True

    def __post_init__(self) -> None:
        self.heads = MemoryHeads(now_ms=self.clock.now_ms, incarnation="register-1")

    def keeper(self) -> Keeper:
        """Return a new worker's keeper, after the lease of any earlier one is over."""
        self.clock.move(TTL_MS + 1)
        effects = effects_of(self.shop, level=self.level, bounds=self.bounds)
        settings = Settings(commit=Commit(durability="merged" if self.merges else "strict"))
        return Keeper(
            wire(
                settings,
                keyring_of(SECRET),
                self.store,
                self.heads,
                effects.adapters(self.clock.now_ms),
                clock=self.clock,
                owner="worker",
                runs_background=False,
            )
        )

    def run(self, run_id: str = "run-1", task: Task = TASK) -> Session:
        """Open a run as a new worker."""
        return self.keeper().run(task, run_id)


__all__ = ["TASK", "Shop", "Street", "WorkerKilled", "effects_of"]

"""A small world in memory that keeps exactly what its declared level promises.

For tests and lessons: `World` is the target and outlives sessions, `SandboxAdapter`
is one way to reach it, `load_scenario` reads a task together with its world.
"""

from counterfoil.adapters.sandbox.adapter import SandboxAdapter
from counterfoil.adapters.sandbox.promises import Promises
from counterfoil.adapters.sandbox.scenario import lesson, load_scenario
from counterfoil.adapters.sandbox.target import Effect
from counterfoil.adapters.sandbox.world import World

__all__ = ["Effect", "Promises", "SandboxAdapter", "World", "lesson", "load_scenario"]

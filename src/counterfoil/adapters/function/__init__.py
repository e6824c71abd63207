"""Effects that are a user's own Python functions, with a declared level."""

from counterfoil.adapters.function.adapter import FunctionAdapter
from counterfoil.adapters.function.call import UNKNOWN, Call, Found, State
from counterfoil.adapters.function.effects import Effects

__all__ = ["UNKNOWN", "Call", "Effects", "Found", "FunctionAdapter", "State"]

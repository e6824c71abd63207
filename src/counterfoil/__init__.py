"""Counterfoil: long tasks that act on the real world and can be killed at any instant.

Declare effects, open a keeper, open a run, and call `do` for each action. Start the
program again after any death: what is settled answers from the record, and what is in
doubt is asked of its target by key before anything is sent again.
"""

from counterfoil.adapters.function import UNKNOWN, Call, Effects, Found, State
from counterfoil.adapters.function.effects import Bounds
from counterfoil.compose import default_effects, open_keeper
from counterfoil.core.errors import (
    ApprovalError,
    BindingError,
    BudgetError,
    ConfigError,
    ContractError,
    CounterfoilError,
    FencedError,
    FormatError,
    FrozenError,
    HeadMissingError,
    IdempotencyConflictError,
    IntegrityError,
    InvariantError,
    LeaseLostError,
    LostRaceError,
    PermissionDeniedError,
    RefusedError,
    RollbackError,
    SignatureError,
    StaleHeadError,
    StaleObservationError,
    TerminalError,
    UnavailableError,
    UnknownOutcomeError,
    UnknownRunError,
    UsageError,
    VerificationError,
)
from counterfoil.core.intent import Action
from counterfoil.core.run import Phase, Run
from counterfoil.core.task import Budgets, Policy, Task, Verification
from counterfoil.core.words import Level, Risk
from counterfoil.engine.aio import AsyncSession
from counterfoil.engine.performing import Proposal
from counterfoil.engine.session import Session
from counterfoil.engine.settling import Settlement
from counterfoil.keeper import Keeper, load_task

__version__ = "0.1.0"

open = open_keeper  # noqa: A001 - `counterfoil.open()` reads as what it does
effect = default_effects.effect
observer = default_effects.observer

__all__ = [
    "UNKNOWN",
    "Action",
    "ApprovalError",
    "AsyncSession",
    "BindingError",
    "Bounds",
    "BudgetError",
    "Budgets",
    "Call",
    "ConfigError",
    "ContractError",
    "CounterfoilError",
    "Effects",
    "FencedError",
    "FormatError",
    "Found",
    "FrozenError",
    "HeadMissingError",
    "IdempotencyConflictError",
    "IntegrityError",
    "InvariantError",
    "Keeper",
    "LeaseLostError",
    "Level",
    "LostRaceError",
    "PermissionDeniedError",
    "Phase",
    "Policy",
    "Proposal",
    "RefusedError",
    "Risk",
    "RollbackError",
    "Run",
    "Session",
    "Settlement",
    "SignatureError",
    "StaleHeadError",
    "StaleObservationError",
    "State",
    "Task",
    "TerminalError",
    "UnavailableError",
    "UnknownOutcomeError",
    "UnknownRunError",
    "UsageError",
    "Verification",
    "VerificationError",
    "effect",
    "load_task",
    "observer",
    "open",
]

"""The sandbox as the engine sees it: declared kinds, checked arguments, one call each."""

from collections.abc import Mapping
from dataclasses import replace as changed

from counterfoil.adapters.sandbox.promises import PROMISES, Promises
from counterfoil.adapters.sandbox.target import READ, TEST, WRITE
from counterfoil.adapters.sandbox.world import World
from counterfoil.core.errors import ContractError
from counterfoil.core.intent import KindSpec
from counterfoil.core.receipt import Fence, LookUp, Receipt, Served
from counterfoil.core.task import PATHS, canonical_path
from counterfoil.core.words import Json, Key, Level, Risk, RunId, identifier
from counterfoil.ports import Observation, Operation

TARGETS = "targets"
"""Scope list of the test targets that a run may start."""

CALL_MS = 1_000
"""Longest call: everything is in memory."""


class SandboxAdapter:
    """One way to a `World`, with what its level promises and nothing more.

    Args:
        world: The target; adapters of several levels may share one.
        level: Level of every kind.
        name: Name in intents, scopes and settings.
        in_flight_ms: How long a lost call may still land; None when unknown.
        key_retention_ms: How long keys are kept, by the world's clock; None for ever.
        shared_keys: Whether a key of one run is the same key in another.
    """

    def __init__(
        self,
        world: World,
        *,
        level: Level = Level.TRANSACTIONAL,
        name: str = "sandbox",
        in_flight_ms: int | None = None,
        key_retention_ms: int | None = None,
        shared_keys: bool = False,
    ) -> None:
        self._world = world
        self._name = name
        self._promises = changed(
            PROMISES[level], retention_ms=key_retention_ms, shares_keys=shared_keys
        )
        self._kinds = _kinds(name, self._promises, in_flight_ms)

    @property
    def name(self) -> str:
        """Name in intents, scopes and settings."""
        return self._name

    @property
    def kinds(self) -> tuple[KindSpec, ...]:
        """`read_file`, `write_file` and `run_tests`."""
        return self._kinds

    def take(self, run_id: RunId, fence: Fence) -> Served | None:
        """Raise the run's fence where the level has one, and return what was served last.

        Raises:
            FencedError: A newer fence, or an equal version with another nonce, stands.
            UnavailableError: The world is cut off.
        """
        return self._world.take(run_id, fence) if self._promises.fences else None

    def observe(self, scope: Mapping[str, tuple[str, ...]]) -> Observation:
        """Return the state of all files; the facts are the content of each.

        Raises:
            UnavailableError: The world is cut off.
        """
        state, files = self._world.state(self._name)
        return Observation(state=state, facts=dict(files))

    def look_up(self, run_id: RunId, key: Key, kind: str) -> LookUp:
        """Return what the world has on record under a key."""
        return self._world.look_up(run_id, key, self._promises)

    def execute(self, operation: Operation) -> Receipt:
        """Read, write or test.

        Raises:
            ContractError: The kind is unknown or its arguments are not as it wants them.
            CounterfoilError: The world refused, and nothing happened.
            OSError: The answer is lost, or the call is still under way.
        """
        spec = next((spec for spec in self._kinds if spec.name == operation.kind), None)
        if spec is None:
            raise ContractError(f"{self._name} declares no kind {operation.kind!r:.80}")
        spec.normalise(operation.arguments)
        return self._world.execute(operation, self._promises, self._name)

    def forbid(self, run_id: RunId, key: Key, kind: str, fence: Fence) -> LookUp:
        """Make the key impossible unless it is done; return found or absent.

        Raises:
            ContractError: The level forbids nothing.
            FencedError: The fence is old.
            UnavailableError: The world is cut off.
        """
        if not self._promises.forbids:
            raise ContractError(f"{kind} of {self._name} cannot forbid a key", run_id, key)
        return self._world.forbid(run_id, key, fence, self._promises)

    def close(self) -> None:
        """Let go of nothing: the world stays."""


def _kinds(name: str, promises: Promises, in_flight_ms: int | None) -> tuple[KindSpec, ...]:
    def kind(
        kind_name: str, risk: Risk, permission: str, list_name: str, names: tuple[str, ...]
    ) -> KindSpec:
        def normalise(arguments: dict[str, Json]) -> dict[str, Json]:
            return _checked(kind_name, names, arguments)

        def touches(arguments: dict[str, Json]) -> tuple[tuple[str, str], ...]:
            return ((list_name, arguments[names[0]]),)

        return KindSpec(
            name=kind_name,
            adapter=name,
            risk=risk,
            level=promises.level,
            permission=permission,
            normalise=normalise,
            touches=touches,
            call_ms=CALL_MS,
            in_flight_ms=in_flight_ms,
            key_retention_ms=promises.retention_ms,
            linearizable=promises.answers,
            fences=promises.fences,
            forbids=promises.forbids,
        )

    return (
        kind(READ, Risk.READ_ONLY, "workspace.read", PATHS, ("path",)),
        kind(WRITE, Risk.REVERSIBLE_WRITE, "workspace.write", PATHS, ("path", "content")),
        kind(TEST, Risk.VERIFICATION, "tests.run", TARGETS, ("target",)),
    )


def _checked(kind: str, names: tuple[str, ...], arguments: dict[str, Json]) -> dict[str, Json]:
    """Return arguments that are exactly the named texts."""
    for name in names:
        if name not in arguments:
            raise ContractError(f"{kind} lacks its argument {name}")
    for name in arguments:
        if name not in names:
            raise ContractError(f"{kind} takes no argument {name!r:.80}")
    for name, value in arguments.items():
        match name:
            case "path":
                canonical_path(value, "arguments.path")
            case "target":
                identifier(value, "arguments.target")
            case _ if not isinstance(value, str):
                raise ContractError(f"{kind} wants text as its {name}")
            case _:
                continue
    return arguments

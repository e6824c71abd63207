"""Adapters that declare their kinds wrongly, and do everything else well."""

from collections.abc import Callable
from dataclasses import replace as changed

from counterfoil.core.intent import KindSpec
from counterfoil.core.words import Json
from counterfoil.ports import Adapter
from counterfoil.testing.saboteur_adapters import Passing


class Redeclaring(Passing):
    """Hands every call on, and declares its kinds otherwise.

    Args:
        inner: The good adapter.
        declare: Returns what is declared in place of a kind.
    """

    def __init__(self, inner: Adapter, declare: Callable[[KindSpec], KindSpec]) -> None:
        super().__init__(inner)
        self._kinds = tuple(declare(spec) for spec in inner.kinds)

    @property
    def kinds(self) -> tuple[KindSpec, ...]:
        """The other declaration."""
        return self._kinds


class PromisesTooMuch(Redeclaring):
    """Says transactional, and that it neither fences nor forbids."""

    def __init__(self, inner: Adapter) -> None:
        super().__init__(inner, lambda spec: changed(spec, fences=False, forbids=False))


class AcceptsAnyArguments(Redeclaring):
    """Checks nothing that it is asked to do."""

    def __init__(self, inner: Adapter) -> None:
        super().__init__(inner, lambda spec: changed(spec, normalise=dict))


class ChangesWhatItNormalises(Redeclaring):
    """Leaves its mark in the caller's arguments."""

    def __init__(self, inner: Adapter) -> None:
        super().__init__(inner, _marking)


class TouchesNothing(Redeclaring):
    """Names an empty value for the policy to judge."""

    def __init__(self, inner: Adapter) -> None:
        super().__init__(inner, lambda spec: changed(spec, touches=_nothing))


def _marking(spec: KindSpec) -> KindSpec:
    def normalise(arguments: dict[str, Json]) -> dict[str, Json]:
        checked = dict(spec.normalise(arguments))
        arguments["normalised"] = True
        return checked

    return changed(spec, normalise=normalise)


def _nothing(arguments: dict[str, Json]) -> tuple[tuple[str, str], ...]:
    return (("paths", ""),)

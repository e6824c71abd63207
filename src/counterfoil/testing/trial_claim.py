"""What an adapter claims on a bench: what of it can be tried there, and what bears it out.

A clause that was not tried bears nothing out.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from counterfoil.core.intent import KindSpec
from counterfoil.core.words import Level
from counterfoil.ports import Adapter
from counterfoil.testing import adapter_calls as calls
from counterfoil.testing import adapter_keys as keys
from counterfoil.testing.adapter_bench import AdapterBench, Trait, spec_of
from counterfoil.testing.conformance_adapters import ADAPTER_CLAUSES, Clause, clauses_for

OFFERS: Mapping[Trait, tuple[str, str]] = {
    Trait.DISTURBS: (
        "the bench cannot change the environment as somebody else would",
        "disturb, and Trait.DISTURBS in traits",
    ),
    Trait.LOSES_ANSWERS: (
        "the bench cannot lose the answer of the next call",
        "lose_answer, and Trait.LOSES_ANSWERS in traits",
    ),
    Trait.CUTS_OFF: (
        "the bench cannot make the target unreachable",
        "cut_off, and Trait.CUTS_OFF in traits",
    ),
    Trait.CHECKS_PRESTATE: (
        "the bench does not say that the target refuses what was built on another state",
        "Trait.CHECKS_PRESTATE in traits",
    ),
}
"""What a bench may be unable to do, and what it must offer to be able to."""

BESIDE = frozenset(
    {
        *(Trait.DISTURBS, Trait.LOSES_ANSWERS, Trait.CUTS_OFF),
        *(Trait.PRIVATE_KEYS, Trait.SHARED_KEYS),
    }
)
"""What no level rests on alone; with what one rests on, their clauses belong to it."""

OF_THE_SEEN = (keys.a_disturbance_is_observed, calls.an_unreachable_target_is_not_observed)
"""Clauses that do not apply where the environment cannot be observed at all."""

OF_THE_ASKED = (calls.an_unreachable_target_is_unknown_and_not_absent,)
"""Clauses that do not matter to a level at which nobody asks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Untried:
    """One thing that the bench cannot put to the test.

    Attributes:
        sentence: What must hold.
        why: What is in the way.
        offer: What the bench must offer for it.
    """

    sentence: str
    why: str
    offer: str


def sentence_of(clause: Clause) -> str:
    """Return what a clause checks, as a sentence."""
    return clause.__name__.replace("_", " ")


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """What an adapter claims on a bench, and what of it can be tried there.

    Attributes:
        spec: The kind that the bench writes with.
        traits: What the bench can do.
        has_names: Whether it tells effects from each other.
        clauses: Those that it can try.
        untried: What it cannot, though it belongs to the claim.
    """

    spec: KindSpec
    traits: frozenset[Trait]
    has_names: bool
    clauses: tuple[Clause, ...]
    untried: tuple[Untried, ...]


def claim_of(bench: AdapterBench, adapter: Adapter) -> Claim:
    """Return what an adapter claims on a bench.

    Raises:
        ConformanceError: The adapter does not declare the kind that the bench writes with.
    """
    spec, traits = spec_of(adapter, bench.write(1).kind), bench.traits
    has_reads = any(not kind.risk.writes for kind in adapter.kinds)
    empty: dict[Clause, tuple[str, str] | None] = {}
    if not bench.reads:
        of_reads = ("reads", "that change nothing") if has_reads else None
        empty[calls.reading_changes_nothing] = of_reads
    if not bench.garbled:
        garbled = ("garbled", "whose arguments are out of contract")
        empty[calls.arguments_out_of_contract_are_refused] = garbled
    if not adapter.observe(bench.scope).state.fingerprint:
        empty |= dict.fromkeys(OF_THE_SEEN)
    untried = [
        Untried(
            sentence=sentence_of(clause),
            why=f"the bench names no {given[0]}",
            offer=f"{given[0]}, calls {given[1]}",
        )
        for clause, given in empty.items()
        if given is not None
    ]
    untried += _unable(spec, traits, passed_over=frozenset(empty))
    if bench.effects is None:
        untried.append(
            Untried(
                sentence="two effects are told from each other",
                why="the bench counts effects and does not name them, and one that is done"
                " twice would hide one that is missing; so runs have a single effect",
                offer="effects, which names each of them",
            )
        )
    return Claim(
        spec=spec,
        traits=traits,
        has_names=bench.effects is not None,
        clauses=tuple(clause for clause in clauses_for(spec, traits) if clause not in empty),
        untried=tuple(untried),
    )


def _unable(
    spec: KindSpec, traits: frozenset[Trait], passed_over: frozenset[Clause]
) -> Iterator[Untried]:
    """Return clauses of the claim that would be tried if the bench could do more."""
    able = frozenset({Trait.DISTURBS, Trait.LOSES_ANSWERS, Trait.CUTS_OFF})
    if spec.level is Level.CONDITIONAL:  # elsewhere it is more than the level promises
        able |= {Trait.CHECKS_PRESTATE}
    tried = {*clauses_for(spec, traits), *passed_over}
    for clause in clauses_for(spec, traits | able):
        if clause not in tried:
            lacking = [trait for trait in OFFERS if trait in ADAPTER_CLAUSES[clause] - traits]
            yield Untried(
                sentence=sentence_of(clause),
                why=", and ".join(OFFERS[trait][0] for trait in lacking),
                offer="; ".join(OFFERS[trait][1] for trait in lacking),
            )


def levels_of(claim: Claim, problems: Mapping[Clause, str]) -> tuple[Level, ...]:
    """Return the levels that clauses bear out, up to the claimed one, strongest first.

    Args:
        claim: What is claimed.
        problems: For each clause that was tried, why it does not hold; empty where it does.
    """
    levels = list(Level)
    weaker = levels[levels.index(claim.spec.level) :]
    return tuple(level for level in weaker if _bears_out(level, claim, problems))


def _bears_out(level: Level, claim: Claim, problems: Mapping[Clause, str]) -> bool:
    """Return whether each trait that a level wants was tried, and no clause of it failed."""
    wanted = _wanted(level, claim.spec)
    if wanted is None:
        return False
    rests_on = wanted | BESIDE
    of_level = [clause for clause in problems if ADAPTER_CLAUSES[clause] <= rests_on]
    if level is Level.BLIND and claim.spec.level is not Level.BLIND:
        of_level = [clause for clause in of_level if clause not in OF_THE_ASKED]
    tried = {trait for clause in of_level for trait in ADAPTER_CLAUSES[clause]}
    return wanted <= tried and not any(problems[clause] for clause in of_level)


def _wanted(level: Level, spec: KindSpec) -> frozenset[Trait] | None:
    """Return what a level rests on; None where what is declared is too little for it."""
    asked = Trait.ASKABLE if spec.has_look_up else Trait.BLIND
    match level:
        case Level.TRANSACTIONAL:
            means = {Trait.FENCING} if spec.fences else set[Trait]()
            means |= {Trait.FORBIDDING} if spec.forbids else set[Trait]()
            return frozenset({Trait.KEYED, Trait.ASKABLE} | means) if means else None
        case Level.DEDUPLICATING:
            return frozenset({Trait.KEYED, asked})
        case Level.CONDITIONAL:
            conditions = {Trait.ASKABLE, Trait.FENCING, Trait.CHECKS_PRESTATE}
            return frozenset(conditions) if spec.fences else None
        case Level.QUERYABLE:
            return frozenset({Trait.ASKABLE})
        case Level.BLIND:
            is_claimed = spec.level is Level.BLIND
            return frozenset({Trait.BLIND} if is_claimed else ())

"""What a pair of places for checkpoints and heads protects from, and what not.

Pure: the same pair always gets the same table. docs/explanation/protection.md is its argument.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from counterfoil.urls import Scheme

MARKER = "set commit.marker = true"
STANDBY = "set synchronous_standby_names and leave synchronous_commit on"


class Closeness(StrEnum):
    """How much one restore of something brings back of both."""

    ONE_DATABASE = "one_database"
    ONE_SERVER = "one_server"
    ONE_FOLDER = "one_folder"
    ONE_MACHINE = "one_machine"
    APART = "apart"


TOGETHER = {
    Closeness.ONE_DATABASE: "restoring the database",
    Closeness.ONE_SERVER: "restoring the server",
    Closeness.ONE_FOLDER: "restoring the folder",
    Closeness.ONE_MACHINE: "restoring the whole machine",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """Where checkpoints and heads lie, as far as it matters here.

    Attributes:
        store: Kind of place of checkpoints.
        heads: Kind of place of heads.
        closeness: How near to each other they are.
        store_is_here: Whether checkpoints lie on this machine.
        heads_are_here: Whether heads lie on this machine.
        marks: Whether a signed marker is written before each effect.
        store_waits: Whether commits of checkpoints wait for a standby.
        heads_wait: Whether commits of heads wait for a standby.
        heads_members: Members that keep heads; 1 where it is no cluster, 0 for unknown.
    """

    store: Scheme
    heads: Scheme
    closeness: Closeness
    store_is_here: bool
    heads_are_here: bool
    marks: bool = False
    store_waits: bool = False
    heads_wait: bool = False
    heads_members: int = 1


class Answer(StrEnum):
    """Whether a pair protects from something."""

    YES = "yes"
    PARTLY = "partly"
    NO = "no"


@dataclass(frozen=True, kw_only=True, slots=True)
class Protection:
    """What happens in one case.

    Attributes:
        hazard: The case, by a name that stays.
        title: The case, for people.
        answer: Whether the pair protects from it.
        why: What happens, and what would be better.
    """

    hazard: str
    title: str
    answer: Answer
    why: str


def protections(pair: Pair) -> Iterator[Protection]:
    """Yield what a pair does in each case that can occur with it."""
    if Scheme.MEMORY in {pair.store, pair.heads}:
        yield Protection(
            hazard="process_ended",
            title="the process ends",
            answer=Answer.NO,
            why="what lies in memory is gone with it, and its runs are lost or refused",
        )
        return
    yield _store_restored(pair)
    yield _heads_restored(pair)
    yield _both_restored(pair)
    yield _clock_wrong(pair)
    yield _machine_lost(pair)
    yield _administrator(pair)
    if Scheme.POSTGRESQL in {pair.store, pair.heads}:
        yield _failover(pair)
    if pair.heads is Scheme.ETCD:
        yield _quorum_lost(pair)


def _store_restored(pair: Pair) -> Protection:
    answer, why = Answer.YES, "a head names a checkpoint that the copy lacks: the run is refused"
    if pair.closeness in TOGETHER:
        answer = Answer.PARTLY
        why += f"; {TOGETHER[pair.closeness]} brings heads back too, which is the case below"
    return Protection(
        hazard="checkpoints_restored",
        title="checkpoints restored from an older copy",
        answer=answer,
        why=why,
    )


def _heads_restored(pair: Pair) -> Protection:
    if pair.marks:
        answer = Answer.YES
        why = "checkpoints, lease records or markers are beyond the head: the run is refused"
    else:
        answer = Answer.PARTLY
        why = (
            "two lost commits or a lost lease are noticed, and the run is refused; one lost "
            f"commit alone is not: {MARKER}"
        )
    return Protection(
        hazard="heads_restored", title="heads restored from an older copy", answer=answer, why=why
    )


def _both_restored(pair: Pair) -> Protection:
    targets = (
        "only targets remember: `files` refuses, whoever deduplicates repeats nothing, and "
        "others may be called again"
    )
    if pair.closeness in TOGETHER:
        answer, why = Answer.NO, f"{TOGETHER[pair.closeness]} is enough, and {targets}"
    else:
        answer, why = Answer.PARTLY, f"it takes two restores to one moment; then {targets}"
    return Protection(
        hazard="both_restored", title="both restored to one moment", answer=answer, why=why
    )


def _clock_wrong(pair: Pair) -> Protection:
    if pair.heads is Scheme.SQLITE:
        answer = Answer.PARTLY
        why = (
            "this machine's clock ends leases: set ahead it ends them early, and the former "
            "worker cannot commit; set back it is not followed"
        )
    else:
        answer = Answer.YES
        why = "leases end by the register's time, and a worker counts its own on no wall clock"
    return Protection(
        hazard="clock_wrong", title="a worker's clock is wrong", answer=answer, why=why
    )


def _machine_lost(pair: Pair) -> Protection:
    match pair.store_is_here, pair.heads_are_here:
        case False, False:
            answer = Answer.YES
            why = "another machine with the keys goes on as soon as leases are over"
        case True, False:
            answer = Answer.NO
            why = "heads stay, checkpoints are lost: runs are refused until the newest copy is back"
        case False, True:
            answer = Answer.NO
            why = "checkpoints stay, heads are lost: runs are refused until the newest copy is back"
        case _:
            answer, why = Answer.NO, "checkpoints and heads are lost with it, but for your copies"
    return Protection(hazard="machine_lost", title="this machine is lost", answer=answer, why=why)


def _administrator(pair: Pair) -> Protection:
    common = "can stop runs, and can forge no checkpoint without a key"
    if pair.closeness in {Closeness.ONE_DATABASE, Closeness.ONE_SERVER, Closeness.ONE_FOLDER}:
        answer, why = Answer.NO, f"{common}; can bring both back to one moment, the case above"
    else:
        answer, why = (
            Answer.PARTLY,
            f"{common}; of one place alone, is noticed as in the cases above",
        )
    return Protection(
        hazard="administrator",
        title="whoever may write to a database or file",
        answer=answer,
        why=why,
    )


def _failover(pair: Pair) -> Protection:
    return Protection(
        hazard="failover",
        title="PostgreSQL fails over to a standby that lags",
        answer=_failover_answer(pair),
        why=_failover_why(pair),
    )


def _failover_answer(pair: Pair) -> Answer:
    if _waits(pair):
        return Answer.YES
    if pair.closeness in {Closeness.ONE_DATABASE, Closeness.ONE_SERVER}:
        return Answer.NO
    is_noticed = pair.heads is not Scheme.POSTGRESQL or pair.heads_wait or pair.marks
    return Answer.YES if is_noticed else Answer.PARTLY


def _failover_why(pair: Pair) -> str:
    if _waits(pair):
        return "commits wait for a standby, so that none is lost"
    if pair.closeness in {Closeness.ONE_DATABASE, Closeness.ONE_SERVER}:
        return (
            "commits that were acknowledged are lost in both at once, and only targets "
            f"remember: {STANDBY}"
        )
    if pair.heads is not Scheme.POSTGRESQL or pair.heads_wait:
        return f"a head names a checkpoint that was lost: the run is refused; {STANDBY}"
    if pair.marks:
        return f"a head may turn back; the marker shows it, and the run is refused; {STANDBY}"
    return f"a head may turn back by one commit, which nothing shows: {MARKER}, or {STANDBY}"


def _waits(pair: Pair) -> bool:
    store_waits = pair.store is not Scheme.POSTGRESQL or pair.store_waits
    heads_wait = pair.heads is not Scheme.POSTGRESQL or pair.heads_wait
    return store_waits and heads_wait


def _quorum_lost(pair: Pair) -> Protection:
    if pair.heads_members == 1:
        answer = Answer.PARTLY
        why = "runs stop, nothing is acknowledged; with the only member's disk heads are lost"
    else:
        answer = Answer.YES
        why = (
            "runs stop, nothing is acknowledged, and they go on when most members are back; a "
            "cluster made anew from a snapshot is a restore of heads"
        )
    return Protection(hazard="quorum_lost", title="etcd loses its quorum", answer=answer, why=why)

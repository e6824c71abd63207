"""Bringing attempts to their ends: as a receipt, as unknown for good, or without a trace.

The same code follows a command that was just given and one of a session that was
killed. An attempt is open until one transaction records which it was.
"""

import codecs
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from counterfoil.adapters.shell import journal
from counterfoil.adapters.shell.journal import Attempt, State, transaction, translated
from counterfoil.adapters.shell.kernel import STDERR, STDOUT, digests
from counterfoil.adapters.shell.kinds import NAME
from counterfoil.adapters.shell.records import Exited, Seen, Standing, look
from counterfoil.adapters.shell.site import ATTEMPTS, Site, instance
from counterfoil.core.canonical import bounded, canonical, digest
from counterfoil.core.intent import EnvironmentState
from counterfoil.core.receipt import Answer, LookUp, Receipt, found, unknown
from counterfoil.core.words import Json, RunId

SHOWN_BYTES = (24 * 1024, 8 * 1024, 2 * 1024)
"""How much of each output a result shows: as much as fits, however it must be spelled."""


def resolve(site: Site) -> None:
    """Settle every attempt that has ended since the last turn.

    Raises:
        FormatError: A record is damaged.
        OSError, UnavailableError: It cannot be told or recorded now.
    """
    with translated("settling"):
        left = journal.open_attempts(site.db)
    for attempt in left:
        settle(site, attempt)


def settle(site: Site, attempt: Attempt, *, is_stopping: bool = False) -> Seen:
    """Record how an open attempt ended, if it has; return how it stands.

    Args:
        site: Where.
        attempt: An open one.
        is_stopping: Whether it is to be stopped, if it still runs.

    Raises:
        FormatError: A record is damaged.
        OSError, UnavailableError: It cannot be told or recorded now.
    """
    folder = _opened(site, attempt)
    if folder is None:
        seen = Seen(standing=Standing.LOST, may_run=True, why="the folder of its records is gone")
        _conclude(site, attempt, State.LOST, _without_end(site, attempt, None, seen))
        return seen
    try:
        seen = look(folder, site.pause, is_stopping=is_stopping)
        match seen.standing:
            case Standing.RUNS:
                pass
            case Standing.NEVER:
                _forget(site, attempt)
            case Standing.LOST if attempt.claim.is_repeatable and not seen.may_run:
                _forget(site, attempt)
            case Standing.LOST:
                _conclude(site, attempt, State.LOST, _without_end(site, attempt, folder, seen))
            case Standing.ENDED:
                _conclude(site, attempt, State.DONE, _receipt(site, attempt, folder, seen.exited))
        return seen
    finally:
        os.close(folder)


def state(site: Site, attempt: Attempt | None, seen: list[str] | None = None) -> EnvironmentState:
    """Return the environment as it stands after an attempt.

    Args:
        site: Where.
        attempt: The newest one; None when there is none.
        seen: Digests of the watched files; None to look at them now.

    Raises:
        OSError: A watched file cannot be read.
    """
    watched = digests(site.root, list(site.watched)) if seen is None else seen
    token = "" if attempt is None else attempt.claim.token
    return EnvironmentState(
        adapter=NAME,
        instance=instance(site),
        version=0 if attempt is None else attempt.sequence,
        fingerprint=digest(canonical([token, *watched])),
        account=site.account,
    )


def result_of(exited: Exited, folder: int, accepted: tuple[int, ...]) -> dict[str, Json]:
    """Return what a receipt tells of an end.

    Raises:
        OSError: The output cannot be read.
    """
    codes = [stage.get("code") for stage in exited.stages]
    is_cut_short = exited.is_timed_out or exited.is_stopped
    told: dict[str, Json] = {
        "passed": not is_cut_short and all(code in accepted for code in codes),
        "stages": list(exited.stages),
        "is_timed_out": exited.is_timed_out,
        "is_stopped": exited.is_stopped,
        "left_behind": exited.left_behind,
        "stdout_bytes": exited.stdout_bytes,
        "stderr_bytes": exited.stderr_bytes,
        "output_trouble": exited.output_trouble,
        "started_at_ms": exited.started_at_ms,
        "ended_at_ms": exited.ended_at_ms,
    }
    return _with_output(told, folder)


def answer_of(attempt: Attempt, receipt: Receipt, run_id: RunId) -> LookUp:
    """Return what a look-up for a run tells of an attempt that is over.

    Nobody will ever know more of one that is lost, so its evidence is in words.
    """
    is_lost = attempt.state is State.LOST
    if attempt.claim.run_id != run_id:
        reason = "the key holds the command of another run"
        shown = None if is_lost else receipt
        return LookUp(answer=Answer.FOUND_OTHER, receipt=shown, reason=reason)
    return unknown(evidence(receipt.result), is_final=True) if is_lost else found(receipt)


def evidence(told: Json) -> str:
    """Return in one sentence what is known of a command whose end nobody knows."""
    pids, left = (_listed(told[name]) for name in ("pids", "survivors"))
    if left:
        runs = f"{left} may still run"
    elif told["may_run"]:
        runs = "something of it may still run"
    else:
        runs = "nothing of it is found running"
    return (
        f"the command was started, and its end is not known: {told['why']}; "
        f"it ran as {pids or 'no pid on record'}, {runs}; "
        f"its output so far is in {told['kept']} of the journal"
    )


def _listed(lives: Sequence[Sequence[int]]) -> str:
    return ", ".join(f"pid {pid} (start time {start})" for pid, start in lives)


def drop_folder(site: Site, group: str, name: str) -> None:
    """Remove a folder of an attempt or a read; what cannot be removed is left."""
    shutil.rmtree(site.place / group / name, ignore_errors=True)


def _opened(site: Site, attempt: Attempt) -> int | None:
    path = site.place / ATTEMPTS / str(attempt.sequence)
    with suppress(FileNotFoundError):
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    return None


def _forget(site: Site, attempt: Attempt) -> None:
    with transaction(site.db, "forgetting an attempt"):
        journal.forget(site.db, attempt.sequence)
    drop_folder(site, ATTEMPTS, str(attempt.sequence))


def _conclude(site: Site, attempt: Attempt, ending: State, receipt: Receipt) -> None:
    with transaction(site.db, "recording a receipt"):
        journal.conclude(site.db, attempt.sequence, ending, receipt)


def _receipt(site: Site, attempt: Attempt, folder: int, exited: Exited | None) -> Receipt:
    if exited is None:
        return _draft(site, attempt, None, None)
    told = result_of(exited, folder, attempt.claim.accepted)
    watched = None if exited.watched is None else list(exited.watched)
    return _draft(site, attempt, watched, {**told, "kept": f"{ATTEMPTS}/{attempt.sequence}"})


def _without_end(site: Site, attempt: Attempt, folder: int | None, seen: Seen) -> Receipt:
    """Return the evidence of a start whose end nobody knows: a receipt without an id."""
    started = seen.started
    told: dict[str, Json] = {
        "passed": False,
        "outcome": "unknown",
        "why": seen.why,
        "pids": [] if started is None else [list(one) for one in started.stages],
        "survivors": [list(one) for one in seen.survivors],
        "may_run": seen.may_run,
        "started_at_ms": 0 if started is None else started.started_at_ms,
        "kept": f"{ATTEMPTS}/{attempt.sequence}",
    }
    if folder is not None:
        told = _with_output(told, folder)
    return replace(_draft(site, attempt, None, told), id="")


def _draft(site: Site, attempt: Attempt, watched: list[str] | None, result: Json) -> Receipt:
    claim = attempt.claim
    return Receipt(
        id=f"{NAME}-{attempt.sequence}",
        adapter=NAME,
        kind=claim.kind,
        run_id=claim.run_id,
        key=claim.key,
        digest=claim.digest,
        level=claim.level,
        poststate=state(site, attempt, watched),
        committed_at_ms=claim.begun_at_ms,
        served=claim.served,
        statement=claim.statement,
        result=result,
    )


def _with_output(told: dict[str, Json], folder: int) -> dict[str, Json]:
    """Add as much of the output as a receipt may hold; the rest stays in its file."""
    whole: dict[str, Json] = told
    for shown in SHOWN_BYTES:
        out, err = _head(folder, STDOUT, shown), _head(folder, STDERR, shown)
        whole = dict(bounded({**told, "stdout": _text(out, shown), "stderr": _text(err, shown)}))
        if "stdout" in whole:
            break
    return whole


def _head(folder: int, name: str, size: int) -> bytes:
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
    except FileNotFoundError:
        return b""
    with os.fdopen(descriptor, "rb") as opened:
        return opened.read(size)


def _text(raw: bytes, size: int) -> str | bytes:
    """Return text where it is UTF-8; a letter that the bound cuts is left out."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(raw, len(raw) < size)
    except UnicodeDecodeError:
        return raw

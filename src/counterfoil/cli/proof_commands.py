"""`counterfoil verify`, `prove` and `check-proof`: evidence, with and without a store."""

import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from counterfoil.cli.options import (
    JsonOption,
    ProjectOption,
    RunArgument,
    folder_of,
    is_marked,
    placed,
    records,
    run_of,
)
from counterfoil.cli.screen import clock_time, console, moment, say, show_facts, show_json
from counterfoil.core.envelope import Verifier
from counterfoil.core.errors import ConfigError, FormatError, VerificationError
from counterfoil.engine.audit import audit
from counterfoil.engine.proof import PROOF_BYTES_MAX, Proved, check_proof, make_proof
from counterfoil.keys import Purpose, open_source, parse_source

PROGRESS_FROM = 200
"""Checkpoints below which an audit is over before a bar is worth drawing."""


def verify(run: RunArgument, project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """Check everything of a run: signatures, hashes, chain, Merkle roots, head, state.

    Reads every checkpoint. Exits with 4 and names the generation if anything does not
    fit; what is shown then is not to be trusted, and no file should be touched.

    Example:  counterfoil verify restock-42
    """
    name = run_of(run)
    with records(project) as keeper, _progress() as note:
        found = audit(keeper.parts, name, note=note)
    if as_json:
        show_json({"run": name, "verified": True, **_plain(found)})
        return
    say(f"Run {name} is whole: every signature, hash and root fits, and the head.", "green")
    show_facts(
        [
            ("checkpoints", found.checkpoints),
            ("events", found.events),
            ("root", found.root),
            ("leftovers", f"{found.leftovers} off the chain, left by losers of races"),
            ("signed by", ", ".join(found.keys)),
            *([("archived", found.archived_at)] if found.archived_at else []),
        ]
    )


def _plain(found: object) -> dict[str, object]:
    fields: dict[str, object] = msgspec.to_builtins(found)
    return fields


@contextmanager
def _progress() -> Generator[Callable[[int, int], None] | None]:
    """Draw a bar on standard error while an audit is long and somebody looks."""
    screen = console(is_error=True)
    if not screen.is_terminal:
        yield None
        return
    bar = Progress(
        TextColumn("checked"), BarColumn(), MofNCompleteColumn(), console=screen, transient=True
    )
    job = bar.add_task("checked", total=None)

    def note(done: int, total: int) -> None:
        if total >= PROGRESS_FROM:
            bar.start()
            bar.update(job, completed=done, total=total)

    try:
        yield note
    finally:
        if bar.live.is_started:
            bar.stop()


def prove(
    run: RunArgument,
    event: Annotated[
        int, typer.Argument(metavar="EVENT", min=0, help="Index of the event in the trace.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Where to write the proof.", show_default=False
        ),
    ] = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a proof that one event is in the signed trace of a run.

    The proof holds the event, its audit path and the signed header of the newest
    checkpoint; `counterfoil check-proof` checks it without any store. Without --output
    it is printed. A file that is there is replaced.

    Example:  counterfoil prove restock-42 2 --output proof.json
    """
    name = run_of(run)
    with records(project) as keeper:
        proof = make_proof(keeper.parts, name, event)
    if output is None:
        sys.stdout.write(proof.decode("utf-8"))
        return
    try:
        output.write_bytes(proof)
    except OSError as error:
        raise ConfigError(
            f"{output} cannot be written: {error.strerror}", move="name another file"
        ) from error
    if as_json:
        show_json({"run": name, "event": event, "output": str(output), "bytes": len(proof)})
    else:
        say(f"Event {event} of run {name} is proved in {output}.")


def check_proof_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A proof, as `prove` writes it.")],
    unsigned_ok: Annotated[
        bool,
        typer.Option(
            "--unsigned-ok", help="Be content with the Merkle part where no key is at hand."
        ),
    ] = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a proof; no store is needed.

    The Merkle part shows that the event is under the root in the proof. Only the
    signature shows that the root is genuine: anybody can make a root. It is checked
    with the project's keys. Where there is none, the event is shown, and the command
    exits with 3, unless --unsigned-ok says that the Merkle part is enough.

    Example:  counterfoil check-proof proof.json
    """
    proved = check_proof(_proof_bytes(file), _verifiers(project))
    if as_json:
        show_json(_proof_json(proved))
    else:
        _show_proof(proved)
    if not proved.is_signed and not unsigned_ok:
        raise VerificationError(
            "the signature was not checked, since no key is at hand",
            proved.header.run,
            move="name the project that has the keys with --project, or pass --unsigned-ok",
        )


def _proof_bytes(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            raw = opened.read(PROOF_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be read: {error.strerror}", move="name a proof"
        ) from error
    if len(raw) > PROOF_BYTES_MAX:
        raise FormatError(f"{file} has more than the {PROOF_BYTES_MAX} bytes of a proof")
    return raw


def _verifiers(project: Path | None) -> Mapping[str, Verifier] | None:
    """Return the project's keys; None where there is no project, or no key file."""
    if not is_marked(folder_of(project)):
        return None
    _, places = placed(project)
    if places.keys is not None and not places.keys.exists():
        return None
    ring = open_source(
        parse_source(places.key_source if places.keys is None else f"file:{places.keys}")
    )
    return ring.verifiers(Purpose.CHECKPOINT)


def _show_proof(proved: Proved) -> None:
    header, event = proved.header, proved.event
    signature = "checked, and genuine" if proved.is_signed else "NOT CHECKED, no key is at hand"
    say(f"Event {proved.index} is in the trace of run {header.run}.")
    show_facts(
        [
            ("outcome", event.outcome.value),
            ("kind", event.kind or "none"),
            ("key", event.key or "none"),
            ("time", clock_time(event.at_ms)),
            ("generation", f"{header.generation}, written {header.written_at}"),
            ("Merkle part", f"fits root {header.trace_root} over {header.trace_size} events"),
            ("signature", signature),
        ]
    )


def _proof_json(proved: Proved) -> dict[str, object]:
    header = proved.header
    return {
        "run": header.run,
        "event": proved.index,
        "outcome": proved.event.outcome.value,
        "kind": proved.event.kind,
        "key": proved.event.key,
        "at": moment(proved.event.at_ms),
        "generation": header.generation,
        "trace_size": header.trace_size,
        "trace_root": header.trace_root,
        "merkle_checked": True,
        "signature_checked": proved.is_signed,
    }

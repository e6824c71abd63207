"""What commands of approvers and reviewers share: keys, names, terms and consent."""

import getpass
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from counterfoil import terms
from counterfoil.cli.screen import console, say
from counterfoil.core.bounds import INTEGER_MAX
from counterfoil.core.envelope import Signer
from counterfoil.core.errors import ApprovalError, ConfigError, UsageError
from counterfoil.core.trust import Role, TrustRoots
from counterfoil.keys.signing import load_signer

PASSPHRASE = "COUNTERFOIL_PASSPHRASE"  # noqa: S105 - the name of a variable, not its value

TERM_DAYS_MAX = 366
"""A statement that outlives a year is a policy, and belongs into the task."""

KeyOption = Annotated[
    str,
    typer.Option(
        "--key",
        metavar="FILE",
        help="Your private key, as `keygen` makes it; or the source of an HMAC key.",
    ),
]
ExpiresOption = Annotated[
    str,
    typer.Option(
        "--expires", metavar="TERM", help="How long it counts: 30min, 1h, 7d; by the wall clock."
    ),
]
ProposalsOption = Annotated[
    int,
    typer.Option(
        "--proposals", min=0, metavar="N", help="How many further proposals of the run it outlives."
    ),
]
NoteOption = Annotated[
    str, typer.Option("--note", metavar="TEXT", help="A sentence for those who read the trace.")
]
EvidenceOption = Annotated[
    str,
    typer.Option(
        "--evidence", metavar="TEXT", help="For confirm_done: the business id, or the proof."
    ),
]
YesOption = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask; for those who have read it already.")
]
EXPIRES = "1h"
PROPOSALS = 100


def term_ms(text: str) -> int:
    """Return a term such as "1h" in milliseconds.

    Raises:
        UsageError: It is none, is 0, or is longer than a year.
    """
    ms = terms.term_ms(text, name="--expires", most_days=TERM_DAYS_MAX, error=UsageError)
    if not ms:
        raise UsageError("--expires 0 is over before it begins", move="write 30min, 1h or 7d")
    return ms


def last_proposal(spent: int, further: int) -> int:
    """Return the last proposal count at which a statement counts."""
    return min(spent + further, INTEGER_MAX)


def passphrase() -> bytes:
    """Return the passphrase of a key, from the environment or from a person.

    Raises:
        ConfigError: There is neither.
    """
    given = os.environ.get(PASSPHRASE)
    if given is not None:
        return given.encode("utf-8")
    if not sys.stdin.isatty():
        raise ConfigError(
            "the key has a passphrase, and nobody sits at a terminal",
            move=f"set {PASSPHRASE}, or sign at a terminal",
        )
    return getpass.getpass("Passphrase of the key: ").encode("utf-8")


def new_passphrase() -> bytes:
    """Return a passphrase for a fresh key, asked for twice.

    Raises:
        ConfigError: There is nobody to ask, or the second differs from the first.
    """
    first = passphrase()
    if PASSPHRASE not in os.environ and getpass.getpass("Once more: ").encode("utf-8") != first:
        raise ConfigError("the two passphrases differ", move="try it again; nothing was made")
    return first


def key_for(text: str, role: Role) -> Signer:
    """Return the key that signs in a role; errors are those of `load_signer`."""
    return load_signer(text, role, passphrase)


def name_in(roots: TrustRoots, role: Role, key: Signer) -> str:
    """Return under which name the project trusts a key.

    Raises:
        ApprovalError: It does not, in this role.
    """
    signer = roots.of(role).get(key.id)
    if signer is None:
        known = ", ".join(roots.of(role)) or "none"
        raise ApprovalError(
            f"the key is {key.id}, and the {role}s of this project have {known}",
            move=f"have the key added with `counterfoil trust add NAME --role {role}`",
        )
    return signer.entry.id


def name_among(holders: Mapping[str, str], key: Signer, given: str | None) -> str:
    """Return the name to sign under: the given one, or the one that goes with the key.

    Raises:
        UsageError: The file does not know the key, and no name is given.
    """
    name = given or holders.get(key.id)
    if not name:
        raise UsageError(
            f"the file names nobody with key {key.id}",
            move="pass your name in the trust file with --signer",
        )
    return name


def consent(question: str, *, is_given: bool) -> None:
    """Go on if a person agrees.

    Raises:
        UsageError: There is nobody to ask, and --yes was not passed.
        typer.Exit: The person does not agree.
    """
    if is_given:
        return
    if not sys.stdin.isatty():
        raise UsageError(
            "nobody sits at a terminal to confirm it; nothing was signed",
            move="read what is signed, then pass --yes",
        )
    if not typer.confirm(question, err=True):
        say("Nothing was signed.")
        raise typer.Exit(1)


def print_lines(text: str) -> None:
    """Print text of any origin line by line, with nothing that could steer a terminal."""
    screen = console()
    for line in text.splitlines():
        say(line, _style(line) if screen.is_terminal else "")


def _style(line: str) -> str:
    return {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")


def written(path: Path, content: bytes) -> None:
    """Write a file that is not there yet.

    Raises:
        ConfigError: It is there, or cannot be written.
    """
    try:
        with path.open("xb") as file:
            file.write(content)
    except FileExistsError as error:
        raise ConfigError(f"there is a file at {path}; it is kept", move="name another") from error
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}", move="name another file"
        ) from error


def file_bytes(path: Path, bytes_max: int) -> bytes:
    """Return what a file holds.

    Raises:
        ConfigError: It cannot be read, or holds more than `bytes_max`.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(bytes_max + 1)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}", move="name another file"
        ) from error
    if len(raw) > bytes_max:
        raise ConfigError(f"{path} has more than {bytes_max} bytes", move="name another file")
    return raw

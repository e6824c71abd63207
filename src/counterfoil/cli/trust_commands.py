"""`counterfoil trust` and `keygen`: who may sign statements, and the keys they sign with."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from counterfoil.cli.group import show_help_when_bare
from counterfoil.cli.options import JsonOption, ProjectOption, placed
from counterfoil.cli.people import new_passphrase
from counterfoil.cli.screen import (
    cell,
    heading,
    moment,
    say,
    short_time,
    show_facts,
    show_json,
    show_table,
)
from counterfoil.core.errors import ConfigError, UnavailableError, UsageError
from counterfoil.core.trust import Role, SignerEntry, SignerScope
from counterfoil.core.words import Json, Risk
from counterfoil.keys.signing import make_key, public_text
from counterfoil.keys.trustfile import add_signer, list_signers, revoke_signer, trusted

trust = typer.Typer(
    name="trust",
    invoke_without_command=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Names = list[str] | None


NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the person, as statements carry it.")
]
RoleOption = Annotated[Role, typer.Option("--role", help="What the key may sign.")]
PublicOption = Annotated[
    str | None,
    typer.Option(
        "--public",
        metavar="KEY",
        help="Public key in base64, as `keygen` prints it.",
        show_default=False,
    ),
]
HmacOption = Annotated[
    str | None,
    typer.Option(
        "--hmac",
        metavar="SOURCE",
        help="Source of a shared secret instead: file:PATH, env:NAME or command:ARGV.",
        show_default=False,
    ),
]
TaskOption = Annotated[Names, typer.Option("--task", help="Only this task; may be repeated.")]
KindOption = Annotated[Names, typer.Option("--kind", help="Only this kind; may be repeated.")]
RiskOption = Annotated[
    list[Risk] | None, typer.Option("--risk", help="Only this risk class; may be repeated.")
]
AdapterOption = Annotated[
    Names, typer.Option("--adapter", help="Only this adapter; may be repeated.")
]
FromOption = Annotated[
    datetime | None, typer.Option("--valid-from", help="UTC; by default from always.")
]
UntilOption = Annotated[
    datetime | None, typer.Option("--valid-until", help="UTC, exclusive; by default for ever.")
]


@trust.callback()
def root(context: typer.Context) -> None:
    """Say who may approve and review, for what, and until when.

    The trust file lies outside the project, where no planner writes. Approvers and
    reviewers are two roots: neither ever stands in for the other.

    Example:  counterfoil trust list
    """
    show_help_when_bare(context)


@trust.command("list")
def list_trusted(project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """List who may sign: name, role, key id, scope and validity; revoked ones too.

    Example:  counterfoil trust list
    """
    _, places = placed(project)
    entries = list_signers(places.trust)
    if as_json:
        shown = [_facts(entry) for entry in entries]
        show_json({"file": str(places.trust), "signers": shown})
        return
    if not entries:
        say(f"Nobody is trusted: there is no signer in {places.trust}.")
        say("Make a key with `counterfoil keygen`, then add it with `counterfoil trust add`.")
        return
    show_table(
        ("signer", "role", "key", "may decide on", "valid (UTC)"),
        [
            (
                entry.id,
                entry.role.value,
                _key_id(entry),
                _scope_text(entry.scope),
                _validity(entry),
            )
            for entry in entries
        ],
    )
    heading(f"File: {places.trust}", "")


@trust.command("add")
def add(
    name: NameArgument,
    *,
    role: RoleOption,
    public: PublicOption = None,
    hmac: HmacOption = None,
    task: TaskOption = None,
    kind: KindOption = None,
    risk: RiskOption = None,
    adapter: AdapterOption = None,
    valid_from: FromOption = None,
    valid_until: UntilOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Trust one more key, for a role, within a scope.

    A secret that the runtime reads it could also sign with, so --hmac is for authorities
    that are programs; people should have keys of their own.

    Example:  counterfoil trust add ada --role approver --public KEY --kind files.write
    """
    if (public is None) == (hmac is None):
        raise UsageError("a signer has one key", move="pass either --public or --hmac")
    _, places = placed(project)
    entry = SignerEntry(
        id=name,
        role=role,
        algorithm="ed25519" if hmac is None else "hmac-sha256",
        key=public or hmac or "",
        scope=SignerScope(
            tasks=tuple(task or ()),
            kinds=tuple(kind or ()),
            risks=tuple(risk or ()),
            adapters=tuple(adapter or ()),
        ),
        valid_from_ms=_ms(valid_from),
        valid_until_ms=_ms(valid_until),
    )
    added = add_signer(places.trust, entry)
    if as_json:
        show_json({"signer": _facts(added)})
        return
    say(f"{added.id} may sign as {role.value} from here on: {_scope_text(added.scope)}.")
    say("Programs that run already go on with the signers they started with.")


@trust.command("revoke")
def revoke(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A signer, as `trust list` shows it.")
    ],
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have a signer decide nothing any more; the entry stays, so old evidence is readable.

    Programs that run already go on with the signers they started with: stop them first
    if a key was stolen.

    Example:  counterfoil trust revoke ada
    """
    _, places = placed(project)
    entry = revoke_signer(places.trust, name)
    if as_json:
        show_json({"signer": _facts(entry)})
        return
    say(f"{entry.id} decides nothing any more. Programs that run already must be restarted.")


def keygen(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Where to write the private key; no file yet.")
    ],
    has_passphrase: Annotated[
        bool, typer.Option("--passphrase", help="Encrypt it; asks for the passphrase.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a key to sign statements with: Ed25519, PEM, readable for you alone.

    Keep the file where no planner and no program reads it, best on another machine; the
    public key, which is printed, goes to whoever keeps the trust file. Needs no project.

    Example:  counterfoil keygen ada.pem --passphrase
    """
    key = make_key(file, passphrase=new_passphrase() if has_passphrase else None)
    public = public_text(key)
    if as_json:
        show_json({"file": str(file), "id": key.id, "public": public})
        return
    show_facts([("private key", f"{file}, for you alone"), ("public key", public), ("id", key.id)])
    say(f"Have it trusted: counterfoil trust add NAME --role approver --public {public}")


def _ms(at: datetime | None) -> int:
    if at is None:
        return 0
    aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)


def _key_id(entry: SignerEntry) -> str:
    """Return the key id; empty where the secret is not at hand."""
    try:
        return trusted(entry).key_id
    except (ConfigError, UnavailableError):
        return ""


def _scope_text(scope: SignerScope) -> str:
    parts = [
        f"{what} {', '.join(values)}"
        for what, values in (
            ("task", scope.tasks),
            ("kind", scope.kinds),
            ("risk", tuple(risk.value for risk in scope.risks)),
            ("adapter", scope.adapters),
        )
        if values
    ]
    return "; ".join(parts) or "everything"


def _validity(entry: SignerEntry) -> object:
    if entry.revoked_at_ms:
        return cell(f"revoked {short_time(moment(entry.revoked_at_ms))}", "red")
    begins = short_time(moment(entry.valid_from_ms)) or "always"
    return f"{begins} to {short_time(moment(entry.valid_until_ms)) or 'without end'}"


def _facts(entry: SignerEntry) -> dict[str, Json]:
    return {
        "id": entry.id,
        "role": entry.role.value,
        "algorithm": entry.algorithm,
        "key": entry.key,
        "key_id": _key_id(entry),
        "tasks": list(entry.scope.tasks),
        "kinds": list(entry.scope.kinds),
        "risks": [risk.value for risk in entry.scope.risks],
        "adapters": list(entry.scope.adapters),
        "valid_from": moment(entry.valid_from_ms),
        "valid_until": moment(entry.valid_until_ms),
        "revoked_at": moment(entry.revoked_at_ms),
    }

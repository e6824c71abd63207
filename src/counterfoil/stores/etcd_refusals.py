"""What it means when etcd, or something before it, does not do what it was asked.

A refusal is certain only where etcd decides before it applies anything. Everything else
leaves a write unknown; so does "database space exceeded", which etcd also says after it
has applied a transaction.
"""

import ssl
from dataclasses import dataclass

import msgspec

from counterfoil.core.errors import (
    ConfigError,
    CounterfoilError,
    FormatError,
    LeaseLostError,
    UsageError,
)
from counterfoil.stores.etcd_address import PASSWORD_VARIABLE, Address
from counterfoil.stores.etcd_wire import RefusalAnswer

INVALID = 3
NO_TOKEN = 16
"""Numbers of gRPC, as those below."""

EXISTS = "lease already exists"
NO_LEASE = "requested lease not found"
OLD_RIGHTS = "revision of auth store is old"
NOT_ASKED = "authentication is not enabled"
NO_USER = "user name is empty"
WRONG_PASSWORD = "authentication failed"  # noqa: S105 - what etcd says, not one
COMMON_NAME = "CommonName of client"
TOO_MANY = "too many operations"

NOT_FOUND_STATUS = 404
SAID_CHARS_MAX = 200

UNTRUSTED = ("CERTIFICATE_VERIFY_FAILED",)
"""Why we do not talk to a node."""

UNWANTED = ("ALERT_CERTIFICATE_REQUIRED", "ALERT_BAD_CERTIFICATE", "ALERT_UNKNOWN_CA")
"""Why a node does not talk to us; it says so when we have already sent something."""

_decoder = msgspec.json.Decoder(RefusalAnswer)


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """One answer that is not a success.

    Attributes:
        status: Of HTTP.
        code: Of gRPC; 0 when the answer is not etcd's own.
        message: What it says, cut.
    """

    status: int
    code: int
    message: str

    def says(self, what: str) -> bool:
        """Return whether the message holds a text."""
        return what in self.message

    @property
    def wants_token(self) -> bool:
        """Whether the same request goes through once we have said anew who we are."""
        return self.code == NO_TOKEN or (self.code == INVALID and self.says(OLD_RIGHTS))


def read_refusal(status: int, body: bytes) -> Refusal:
    """Return what an answer says, whoever it is from."""
    try:
        answer = _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeError):
        text = body[:SAID_CHARS_MAX].decode("utf-8", errors="replace")
        return Refusal(status=status, code=0, message=text)
    return Refusal(status=status, code=answer.code, message=answer.message[:SAID_CHARS_MAX])


def certain_error(refusal: Refusal, address: Address, run_id: str) -> CounterfoilError | None:
    """Return the error of a request that was certainly not carried out; None if it may be."""
    if refusal.says(COMMON_NAME):
        return ConfigError(
            "etcd refuses a client certificate that has a common name, since it asks for a user",
            move="make a certificate whose subject has no CN, and start again",
        )
    match refusal.code:
        case 0 if refusal.status == NOT_FOUND_STATUS:
            return ConfigError(
                f"{address.hosts} has no gateway of etcd's third version",
                move="point the url to the client port of an etcd 3.4 or later",
            )
        case 3:
            return _invalid(refusal, address)
        case 5 if refusal.says(NO_LEASE):
            return LeaseLostError("the lease ended before it was used", run_id)
        case 7:
            return ConfigError(
                f"etcd does not let {address.user or 'us'!r} read and write below "
                f"{address.prefix}/",
                move="grant the user's role readwrite on that prefix, and start again",
            )
        case 9 if refusal.says(NOT_ASKED):
            return ConfigError(
                "the url of an etcd names a user, and that etcd asks nobody for a password",
                move="enable authentication there, or take the user out of the url",
            )
        case 11:
            return UsageError(f"etcd refuses the request: {refusal.message}", run_id)
        case 15:
            return FormatError(f"etcd says that its cluster is damaged: {refusal.message}", run_id)
        case _:
            return None


def _invalid(refusal: Refusal, address: Address) -> CounterfoilError | None:
    if refusal.says(OLD_RIGHTS):
        return None
    if refusal.says(WRONG_PASSWORD):
        return ConfigError(
            f"etcd does not know the user {address.user!r} with this password",
            move=f"correct the url or the environment variable {PASSWORD_VARIABLE}",
        )
    if refusal.says(NO_USER):
        return ConfigError(
            "etcd asks who calls, and its url names no user",
            move=f"name one in the url, and set the environment variable {PASSWORD_VARIABLE}",
        )
    if refusal.says(TOO_MANY):
        return ConfigError(
            "etcd takes fewer operations in one transaction than by its own default",
            move="start it without --max-txn-ops, or with 128 or more",
        )
    return ConfigError(f"etcd refuses the request: {refusal.message}")


def tls_reason(error: BaseException, reasons: tuple[str, ...]) -> str:
    """Return which of `reasons` of TLS is behind an error of the connection; empty if none."""
    cause: BaseException | None = error
    for _ in range(8):
        if isinstance(cause, ssl.SSLError):
            said = cause.reason or ""
            return next((reason for reason in reasons if reason in said), "")
        if cause is None:
            break
        cause = cause.__cause__ or cause.__context__
    return ""


def untrusted(address: Address) -> ConfigError:
    """Return the error for a node that we do not talk to."""
    return ConfigError(
        f"the certificate of {address.hosts} is not signed by the one that is trusted, or is "
        "another host's",
        move="check ca and the hosts in the url of the etcd",
    )


def unwanted(address: Address, reason: str) -> ConfigError:
    """Return the error for a node that does not talk to us."""
    return ConfigError(
        f"{address.hosts} does not accept our certificate, or wants one: {reason}",
        move="check cert and key in the url of the etcd",
    )

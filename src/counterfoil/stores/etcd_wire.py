"""What etcd's JSON gateway is asked and what it answers: shapes alone, no connection.

Keys and values are base64, which msgspec reads and writes for bytes. Whole numbers of 64
bits are texts. What is false, zero or empty is left out of an answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct

TXN_OPERATIONS_MAX = 128
"""Comparisons, and operations in either branch, that etcd takes in one transaction."""

Digits: TypeAlias = Annotated[str, Meta(pattern="^[0-9]{1,20}$")]
Step: TypeAlias = Mapping[str, object]
"""A comparison or an operation, ready to be written as JSON."""


class Header(Struct, frozen=True):
    """Who answered, and at which moment of the cluster's history."""

    cluster_id: Digits
    member_id: Digits
    revision: Digits
    raft_term: Digits


class Row(Struct, frozen=True):
    """One key; the value is left out where only keys were asked for."""

    key: bytes
    value: bytes = b""
    lease: Digits = "0"


class RangeAnswer(Struct, frozen=True):
    """Keys of one range."""

    kvs: tuple[Row, ...] = ()
    more: bool = False


class Done(Struct, frozen=True):
    """A put or a deletion was made."""


class OperationAnswer(Struct, frozen=True):
    """What one operation of a transaction came to: one of three."""

    response_range: RangeAnswer | None = None
    response_put: Done | None = None
    response_delete_range: Done | None = None

    @property
    def kind(self) -> str:
        """What kind of operation this answers."""
        if self.response_range is not None:
            return "range"
        return "put" if self.response_put is not None else "delete_range"


class TxnAnswer(Struct, frozen=True):
    """Which branch of a transaction was taken, and what its operations came to."""

    header: Header
    succeeded: bool = False
    responses: tuple[OperationAnswer, ...] = ()

    @property
    def term(self) -> int:
        """The term of the leader that the transaction went through."""
        return int(self.header.raft_term)

    @property
    def ranges(self) -> tuple[RangeAnswer, ...]:
        """The ranges among the answers, in order."""
        found = (each.response_range for each in self.responses)
        return tuple(each for each in found if each is not None)

    def fits(self, txn: "Txn") -> bool:
        """Return whether there is one answer of the right kind to each operation."""
        branch = txn.success if self.succeeded else txn.failure
        wanted = [next(iter(step)).removeprefix("request_") for step in branch]
        return wanted == [each.kind for each in self.responses]


class GrantAnswer(Struct, frozen=True):
    """A lease was granted."""

    header: Header
    id: Digits = msgspec.field(name="ID")
    ttl: Digits = msgspec.field(name="TTL")


class KeptLease(Struct, frozen=True):
    """A lease was kept alive; without a term it has ended."""

    header: Header
    id: Digits = msgspec.field(name="ID")
    ttl: Digits = msgspec.field(name="TTL", default="0")


class KeepLine(Struct, frozen=True):
    """One line of the stream that answers keepalives; an error ends it."""

    result: KeptLease | None = None


class RevokeAnswer(Struct, frozen=True):
    """A lease was ended."""

    header: Header


class TokenAnswer(Struct, frozen=True):
    """Who we are was believed."""

    token: Annotated[str, Meta(pattern="^[!-~]{1,8000}$")]


class RefusalAnswer(Struct, frozen=True):
    """Why etcd did not do what it was asked, by the numbers of gRPC."""

    code: int
    message: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Txn:
    """One transaction: everything of one branch at once.

    Attributes:
        compare: What must all hold for the first branch.
        success: The first branch.
        failure: The other branch.
    """

    compare: tuple[Step, ...] = ()
    success: tuple[Step, ...] = ()
    failure: tuple[Step, ...] = ()

    def encode(self) -> bytes:
        """Return the request's body."""
        return msgspec.json.encode(
            {"compare": self.compare, "success": self.success, "failure": self.failure}
        )


def is_absent(key: bytes) -> Step:
    """Compare: there is no such key."""
    return {"target": "CREATE", "result": "EQUAL", "key": key, "create_revision": "0"}


def are_absent(first: bytes, end: bytes) -> Step:
    """Compare: there is no key from `first` to before `end`."""
    return {**is_absent(first), "range_end": end}


def has_value(key: bytes, value: bytes) -> Step:
    """Compare: the key has exactly this value; false if there is none."""
    return {"target": "VALUE", "result": "EQUAL", "key": key, "value": value}


def has_lease(key: bytes, lease_id: int) -> Step:
    """Compare: the key lives as long as this lease; false if there is none."""
    return {"target": "LEASE", "result": "EQUAL", "key": key, "lease": str(lease_id)}


def put(key: bytes, value: bytes, lease_id: int = 0) -> Step:
    """Operate: set a key, which lives as long as a lease, or with 0 for ever."""
    return {"request_put": {"key": key, "value": value, "lease": str(lease_id)}}


def delete(key: bytes) -> Step:
    """Operate: take a key away."""
    return {"request_delete_range": {"key": key}}


def get(key: bytes) -> Step:
    """Operate: read one key."""
    return {"request_range": {"key": key}}


def page(first: bytes, end: bytes, limit: int) -> Step:
    """Operate: read at most `limit` keys from `first` to before `end`, in order."""
    return {"request_range": {"key": first, "range_end": end, "limit": str(limit)}}


def names(first: bytes, end: bytes) -> Step:
    """Operate: read keys without their values, in order."""
    return {"request_range": {"key": first, "range_end": end, "keys_only": True}}


def oldest(first: bytes, end: bytes, limit: int) -> Step:
    """Operate: read keys without values, those first that were not set for longest."""
    return {
        "request_range": {
            "key": first,
            "range_end": end,
            "limit": str(limit),
            "keys_only": True,
            "sort_order": "ASCEND",
            "sort_target": "MOD",
        }
    }

"""Names and values of git as they may stand in an intent: refs, object ids, people.

Each has one spelling, so that two intents that mean one effect have one digest, and
nothing that comes in here reads as an option, a pattern or a revision expression.

Source: git-check-ref-format(1); what it allows beyond these rules is refused here too.
"""

import re
from datetime import datetime

import msgspec

from counterfoil.core.errors import ContractError
from counterfoil.core.words import Json, identifier

BRANCHES = "refs/heads/"
TAGS = "refs/tags/"

ABSENT = "absent"
"""What stands in place of an object id where a ref is not there."""

ZONE_MINUTES_MAX = 14 * 60
"""Furthest offset from UTC that any place keeps."""

_OBJECT_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REF_PART = re.compile(r"[^\x00-\x20\x7f~^:?*\[\\/]+")


class Person(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who made something, and when: all that git puts into an object of them.

    Attributes:
        name: As it is shown.
        email: Without angle brackets.
        date: RFC 3339 with an offset, in whole seconds.
    """

    name: str
    email: str
    date: str


def check_ref(text: Json, field: str, *starts: str) -> str:
    """Return a full ref name.

    Raises:
        ContractError: It is no name that git keeps, is longer than an identifier, or does
            not begin with one of `starts`.
    """
    ref = identifier(text, field)
    parts = ref.split("/")
    is_formed = all(
        _REF_PART.fullmatch(part) and part[0] not in ".-" and not part.endswith((".lock", "."))
        for part in parts
    )
    if not is_formed or ".." in ref or "@{" in ref or not ref.isascii():
        raise ContractError(f"{field} {ref!r:.120} is no name of a ref")
    if not any(ref.startswith(start) and ref != start for start in starts):
        raise ContractError(f"{field} {ref!r:.120} does not begin with {' or '.join(starts)}")
    return ref


def check_id(text: Json, field: str, *, may_be_absent: bool = False) -> str:
    """Return a full object id in lower-case hexadecimal, or `ABSENT` where that is allowed.

    Raises:
        ContractError: It is neither.
    """
    if may_be_absent and text == ABSENT:
        return ABSENT
    if not isinstance(text, str) or not _OBJECT_ID.fullmatch(text) or not text.strip("0"):
        absent = f" or {ABSENT!r}" if may_be_absent else ""
        raise ContractError(f"{field} is no full object id{absent}")
    return text


def check_person(person: Person, field: str) -> None:
    """Refuse a person whom git would write down differently.

    Raises:
        ContractError: A name or address with line ends, brackets or outer blanks, or a
            date that is no RFC 3339 time in whole seconds since 1970.
    """
    for name, text in (("name", person.name), ("email", person.email)):
        identifier(text, f"{field}.{name}")
        if set(text) & set("<>") or text[0] in " .,:;'\"\\" or text[-1] in " .,:;'\"\\":
            raise ContractError(f"{field}.{name} holds what git drops from a {name}")
    raw_date(person.date, f"{field}.date")


def raw_date(text: str, field: str) -> str:
    """Return a date as objects of git hold it: seconds since 1970, and the offset.

    Raises:
        ContractError: It is no RFC 3339 time with an offset, in whole seconds since 1970.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ContractError(f"{field} is no RFC 3339 time") from error
    offset = moment.utcoffset()
    if offset is None or moment.microsecond or "T" not in text:
        raise ContractError(f"{field} is no RFC 3339 time with an offset, in whole seconds")
    minutes, rest = divmod(int(offset.total_seconds()), 60)
    seconds = int(moment.timestamp())
    if rest or abs(minutes) > ZONE_MINUTES_MAX or seconds < 0:
        raise ContractError(f"{field} is before 1970, or its offset is not in minutes")
    sign, minutes = "-" if minutes < 0 else "+", abs(minutes)
    return f"{seconds} {sign}{minutes // 60:02}{minutes % 60:02}"

"""Plain values: those that are their own normal form, told by a compiled codec.

Almost all values are plain. The codec says so many times faster than the rules of
`canonical`, one by one; what is not plain goes by the rules.
"""

import re

import msgspec

from counterfoil.core.bounds import JSON_DEPTH_MAX
from counterfoil.core.words import Json

MARK = "$counterfoil"
"""Member that marks a value which JSON cannot hold as it is."""

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Json] = msgspec.json.Decoder()
_sorting_encoder = msgspec.json.Encoder(order="sorted")
_plain_decoder: msgspec.json.Decoder[Json] = msgspec.json.Decoder(float_hook=lambda _: object())
"""Gives for a float what no value is equal to."""

_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
_LONG_NUMBER = b"0" * 16
"""With `_ZEROS`, finds digits that may be an integer beyond its bound, or its neighbour."""

_BEYOND_UTF_16_UNIT = re.compile(rb"[\xf0-\xf4]")
"""First byte of a character that UTF-16 sorts elsewhere than its code point says."""

_MARKED = b'"' + MARK.encode("ascii") + b'"'


def plain_copy(value: object) -> tuple[Json] | None:
    """Return a copy of a value that is its own normal form; None for every other.

    Plain is: no float, mark or other class, and integers and nesting far from their
    bounds. What comes back from JSON as it went in is one of these.
    """
    try:
        raw = _encoder.encode(value)
    except (msgspec.MsgspecError, RecursionError, TypeError, ValueError):
        return None
    if not _is_plain(raw):
        return None
    copy = _plain_decoder.decode(raw)
    return (copy,) if copy == value else None


def sorted_plain(raw: bytes) -> bytes | None:
    """Return the canonical bytes of the value that `raw` encodes; None if it is not plain."""
    if not _is_plain(raw):
        return None
    try:
        return _sorting_encoder.encode(_plain_decoder.decode(raw))
    except TypeError:  # a float was there
        return None


def _is_plain(raw: bytes) -> bool:
    """Return whether JSON holds no mark, and nothing near a bound or out of order."""
    return (
        raw.count(b"[") + raw.count(b"{") <= JSON_DEPTH_MAX
        and _MARKED not in raw
        and _LONG_NUMBER not in raw.translate(_ZEROS)
        and (raw.isascii() or not _BEYOND_UTF_16_UNIT.search(raw))
    )


def unmarked_copy(value: object) -> tuple[Json] | None:
    """Return a copy of a value that JSON gives back as it is, and that holds no mark.

    None for every other; among those that are copied are floats and long integers.
    """
    try:
        raw = _encoder.encode(value)
    except (msgspec.MsgspecError, RecursionError, TypeError, ValueError):
        return None
    if _MARKED in raw:
        return None
    copy = _decoder.decode(raw)
    return (copy,) if copy == value else None


def may_hold_mark(value: Json) -> bool:
    """Return False for a value of `canonical.normalise` that surely holds no mark."""
    return _MARKED in _encoder.encode(value)

"""Texts and rows travel as bytes, and come back as they were or not at all."""

import pytest

from counterfoil.core.errors import FormatError, UsageError
from counterfoil.stores.postgres_heads import HEADS
from counterfoil.stores.postgres_rows import (
    CheckpointRow,
    checkpoint,
    name_hash,
    octets,
    put_call,
    text,
)
from counterfoil.stores.postgres_schema import script
from counterfoil.testing.store_bench import ODD_TEXTS, RUN
from counterfoil.testing.store_bench import checkpoint as made


def test_bytes_of_texts_are_in_order_of_code_points() -> None:
    texts = [*ODD_TEXTS, "", "\uffff", "\U0001f9fe", "\U00010000", "\ue000"]
    assert [text(each) for each in sorted(map(octets, texts))] == sorted(texts)


@pytest.mark.parametrize("use", [octets, name_hash])
def test_half_a_character_is_refused(use: object) -> None:
    with pytest.raises(UsageError, match="half a character"):
        use("\ud800")


def test_bytes_that_are_no_text_are_damage() -> None:
    with pytest.raises(FormatError):
        text(b"\xff")


@pytest.mark.parametrize("settles", [b"", b"{}", b"[1]", b'["a"'])
def test_a_list_of_names_that_is_none_is_damage(settles: bytes) -> None:
    row = CheckpointRow(
        generation=0,
        lease_version=1,
        digest=bytes(32),
        settles=settles,
        envelope=b"",
        events=b"",
        state=None,
    )
    with pytest.raises(FormatError):
        checkpoint(RUN, row)


def test_a_batch_binds_every_value_once() -> None:
    call = put_call([made(0, settles=("a", "b", "a")), made(1)])
    assert call.text.count("%s") == len(call.bindings) == 1 + 2 * 9 + 2 * 2


def test_every_script_is_shipped_and_names_its_schema_by_its_mark() -> None:
    for name in ("store_001", "heads_001", "inbox_001", "roles"):
        assert "{schema}" in script(name)
        assert "counterfoil." not in script(name).replace("{schema}.counterfoil_schema", "")
    assert HEADS.version == 1
